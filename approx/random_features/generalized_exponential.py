"""Generalised exponential features: FAVOR++."""

import dataclasses
from typing import Any

import numpy as np

from approx import checks
from approx.checks import Array
from approx.method.fields import ruled
from approx.random_features.features import ExponentialFeatures, Frame


def checked_tilt(name: str, a: Any) -> Any:
    """Return a; raise ValueError unless it is None, or finite and < 1/8."""
    rule = "finite and < 1/8"
    if a is not None and not checks.number(name, a, rule) < 0.125:
        raise ValueError(f"{name} must be {rule}, got {a}")
    return a


@dataclasses.dataclass(frozen=True)
class GeneralizedExponential(ExponentialFeatures):
    """Generalised exponential random features (FAVOR++), unbiased for exp(q·k), positive.

    φ(x)_r = m^{−1/2} (1−4A)^{d/4} exp(A|ω_r|² + √(1−4A) ω_r·x − |x|²/2),  ω_r ~ N(0, I_d).

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1; None is a template.
    projection : str or Projection
        The joint distribution of the ω.
    a : float, optional
        A < 1/8; by default A*, the minimiser of the mean log second moment over all pairs.

    Notes
    -----
    The estimate is unbiased for every A, with relative variance (C_ρ e^{ρ|q+k|²} − 1)/m,
    ρ = 1/(1−8A), C_ρ = ((1+ρ)²/4ρ)^{d/2}. A = 0 is `positive`. For A < 0 features are bounded in
    ω. With φ = mean |q+k|²/d, A* = (1 − 2φ − √((2φ+1)² + 8φ))/16, in O((n + l)·d).
    A* minimises a mean of logarithms; it does not minimise each variance or the Frobenius error.
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers.

    References
    ----------
    .. [1] V. Likhosherstov et al., "Chefs' Random Tables", NeurIPS 2022, Theorems 3.1, 3.2.

    Examples
    --------
    >>> GeneralizedExponential(m=2, a=0.0).approximate([[0.0]], [[0.0]], rng=0).to_dense()
    array([[1.]])
    """

    name = "generalized_exponential"
    label = "FAVOR++ features"
    composed = True

    a: float | None = ruled(None, checked_tilt)

    @property
    def fits_all(self) -> bool:
        return self.a is None

    def tilt(self, frame: Frame) -> Array:
        d = frame.a.shape[1]
        return np.full(d, optimal_tilt(second_moments(frame).mean()) if self.a is None else self.a)


def second_moments(frame: Frame) -> Array:
    """Return the mean of (a_ic + b_jc)² over all pairs, (d,) float64, in O((n + l)·d)."""
    a, b = frame.a.astype(np.float64), frame.b.astype(np.float64)
    together = a.mean(axis=0) + b.mean(axis=0)  # variances add, and nothing cancels
    return np.asarray(a.var(axis=0) + b.var(axis=0) + np.square(together))


def optimal_tilt(phi: Array | float) -> Array:
    """Return A* for φ ≥ 0, the mean of u² in a coordinate; it is 0 at φ = 0.

    Accuracy: 2 eps·κ, as docs/accuracy.md defines it.
    """
    phi = np.asarray(phi)
    root = np.hypot(2 * phi + 1, np.sqrt(8 * phi))
    below = -phi / np.maximum(1 - 2 * phi + root, 1.0)  # for φ < ½, where 1 − 2φ − root cancels
    return np.asarray(np.where(phi < 0.5, below, (1 - 2 * phi - root) / 16))
