"""Sines and cosines with a tilted distribution of frequencies."""

import dataclasses
import math

import numpy as np

from approx.checks import Array
from approx.method.fields import ruled
from approx.random_features.features import Frame
from approx.random_features.generalized_exponential import checked_tilt, second_moments
from approx.random_features.trigonometric import Trigonometric


@dataclasses.dataclass(frozen=True)
class GeneralizedTrigonometric(Trigonometric):
    """Sines and cosines with a tilt, unbiased for exp(q·k), of either sign.

    φ(x) = (m/2)^{−1/2} (1−4A)^{d/4} e^{|x|²/2} e^{A|ω_r|²} (cos, sin)(√(1−4A) ω_r·x)_{r ≤ m/2}.

    Parameters
    ----------
    m : int, optional
        Columns of the factors, two per frequency, so an even number; None is a template.
    projection : str or Projection
        The joint distribution of the ω ~ N(0, I_d).
    a : float, optional
        A < 1/8; by default the minimiser of the log second moment at the mean of |q−k|².

    Notes
    -----
    The estimate is unbiased for every A. Its relative variance, exact for iid ω, is
    (½C_ρ (e^{|q−k|²} + e^{−ρ|q−k|²}) − 1)/(m/2), ρ = 1/(1−8A), C_ρ = ((1+ρ)²/4ρ)^{d/2} ≥ 1. The
    first term is least at A = 0, where the method is `trigonometric`. The best A > 0 gains little,
    and nothing for distant pairs. Row sums may be ≤ 0.
    Cost: 2(n + l)·(m/2)·d operations and a sine and cosine per feature, (n + l)·m numbers.

    References
    ----------
    .. [1] V. Likhosherstov et al., "Chefs' Random Tables", NeurIPS 2022, Theorem 3.1 with s = −1.

    Examples
    --------
    >>> GeneralizedTrigonometric(m=2, a=0.0).approximate(
    ...     [[1.0]], [[1.0]], rng=0).to_dense().round(12)
    array([[2.71828183]])
    """

    name = "generalized_trigonometric"
    label = "generalized Fourier features"
    composed = True

    a: float | None = ruled(None, checked_tilt)

    @property
    def fits_all(self) -> bool:
        return self.a is None

    def tilt(self, frame: Frame) -> Array:
        """Return a, or the best A ≥ 0 for the mean of |q − k|²."""
        d = frame.a.shape[1]
        mean = float(second_moments(frame._replace(b=-frame.b)).sum())
        return np.full(d, optimal_wave_tilt(mean, d) if self.a is None else self.a)


def optimal_wave_tilt(square: float, d: int) -> float:
    """Return the A that minimises log ½C_ρ(e^x + e^{−ρx}) for x = |q − k|²."""
    from scipy.optimize import brentq  # slow to import, so only where it is used

    def slope(log_rho: float) -> float:
        rho = math.exp(log_rho)  # derivative by log ρ
        falls = rho * square / (1 + math.exp(min(square * (1 + rho), 700.0)))
        return d / 2 * math.tanh(log_rho / 2) - falls

    if square < 1e-17:
        return square / (4 * d)  # the limit for small squares
    if slope(0.0) >= 0:
        return 0.0
    top = min(4 * square / d, 1.0)  # about twice the root if the root is small
    while slope(top) < 0:
        top *= 2
    return -math.expm1(-brentq(slope, 0.0, top, xtol=1e-16 * top, rtol=1e-15)) / 8
