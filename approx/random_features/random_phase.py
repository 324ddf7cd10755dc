"""Cosines with a random phase: the other form of random Fourier features."""

import dataclasses
import math

import numpy as np

from approx.checks import Array
from approx.estimate.distances import half_square, squared_distances
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Moments
from approx.method.tags import RANDOM
from approx.projections import Fixed
from approx.random_features.features import RandomFeatures
from approx.random_features.trigonometric import Trigonometric


@dataclasses.dataclass(frozen=True)
class RandomPhase(RandomFeatures):
    """Cosines with a random phase, unbiased for exp(q·k), of either sign.

    φ(x)_r = (2/m)^{1/2} e^{|x|²/2} cos(ω_r·x + b_r),  ω_r ~ N(0, I_d), b_r ~ U[0, 2π).

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1, the columns of the factors; None is a template.
    projection : str or Projection
        The joint distribution of the ω; phases are drawn independently even if ω are `Fixed`.

    Notes
    -----
    The estimate is unbiased, with relative variance (cosh|q−k|² − 1 + e^{|q−k|²}/2)/m, exact for
    iid ω. The variance is never below that of m/2 sines and cosines, 2(cosh|q−k|² − 1)/m, and it is
    not 0 at q = k. A coupling of ω subtracts the same amount from the variance as for sines and
    cosines, because the phases are independent. Row sums may be ≤ 0.
    Cost: 2(n + l)·m·d operations and a cosine per feature, (n + l)·m numbers.

    References
    ----------
    .. [1] D. J. Sutherland, J. Schneider, "On the Error of Random Fourier Features", UAI 2015.

    Examples
    --------
    >>> RandomPhase(m=100_000).approximate([[0.5]], [[0.5]], rng=0).to_dense().round(2)
    array([[1.28]])
    """

    name = "random_phase"
    label = "random-phase Fourier features"
    imaginary = True

    @property
    def tags(self) -> frozenset[str]:
        return super().tags | {RANDOM}  # the phases, even if the frequencies are given

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        omega, half = self.frequencies(q, k, rng)
        phase = self.phases(len(omega), rng).astype(q.dtype)
        amplitude = np.sqrt(q.dtype.type(2)) * np.exp(half)
        row_log, key_log = half_square(q), half_square(k)
        phi_q = np.cos(q @ omega.T + phase) * amplitude
        phi_k = np.cos(k @ omega.T + phase) * amplitude
        return Parts(Factors.scaled(phi_q, phi_k, row_log, key_log, mask))

    def phases(self, count: int, rng: np.random.Generator) -> Array:
        """Return b ~ U[0, 2π), (count,)."""
        return rng.uniform(0.0, 2 * np.pi, count)

    def _waves(self) -> Trigonometric:
        return Trigonometric(None if self.m is None else 2 * self.m, self.projection)

    def _share(self) -> float:
        """Return Σ w²/2 over the weights of the frequencies."""
        if isinstance(self.projection, Fixed):
            return float(np.square(self.projection.weights).sum() / 2)
        return 0.5 / self.count

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return the moments of as many sines and cosines, plus e^{|q−k|²}/2 per frequency."""
        waves = self._waves()
        if (known := waves.moments(q, k)) is None:
            return None
        more = squared_distances(q, k) + math.log(self._share())
        return known._replace(log_relative_variance=np.logaddexp(known.log_relative_variance, more))

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        """Return the covariance of sines and cosines plus e^{(D_j² + D_l² − |k_j − k_l|²)/2}/2m."""
        waves = self._waves()
        if (known := waves.covariance(Q, K, row=i)) is None:
            return None
        D = squared_distances(Q[i : i + 1], K)[0]
        with np.errstate(over="ignore"):
            more = np.exp((D[:, None] + D - squared_distances(K, K)) / 2 + math.log(self._share()))
        return np.asarray(known + more)
