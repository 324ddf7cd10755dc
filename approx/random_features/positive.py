"""Positive random features: FAVOR+ of the Performer."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from approx._exp import exp_rows
from approx.base import Approximation, Rng
from approx.checks import Array
from approx.parts import Factors
from approx.random_features.features import RandomFeatures, half_square, squared_distances


@dataclasses.dataclass(frozen=True)
class Positive(RandomFeatures):
    """Positive random features, unbiased for exp(q·k).

    φ(x)_r = m^{−1/2} exp(ω_r·x − |x|²/2),  ω_r ~ N(0, I_d),  estimate = φ(q)·φ(k).

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1: columns of the factors; None is a template.
    projection : str or Projection
        Law of ω.

    Notes
    -----
    Unbiased, with relative variance (e^{|q+k|²} − 1)/m, exact for iid ω. Its draws are lognormal:
    a sample variance is not to be believed beyond |q+k|² ≈ 2.
    Every entry is ≥ 0, so rows can be normalised.
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers.
    Features are built in log space and shifted by their largest exponent, one shift a query row
    and one for all keys; the shifts are kept, so the estimate stays unbiased.

    References
    ----------
    .. [1] K. Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, Lemmas 1, 2.

    Examples
    --------
    At q = k = 0 every feature is m^{−1/2}, so the estimate is exactly 1:

    >>> Positive(m=4).approximate([[0.0]], [[0.0]], rng=0).to_dense()
    array([[1.]])
    """

    name: ClassVar[str] = "positive"

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return φ(Q) φ(K)ᵀ; both sides share one draw."""
        q, k = self.checked(Q, K)
        omega, half_log_weight = self.frequencies(q, k, rng)
        phi_q, phi_k = (log_features(x, omega) for x in (q, k))
        phi_q += half_log_weight
        phi_k += half_log_weight
        row_log, key_log = phi_q.max(axis=1), phi_k.max()
        exp_rows(phi_q, row_log)
        exp_rows(phi_k, np.full(len(k), key_log))
        return Approximation(Factors(phi_q, phi_k, row_log + key_log))

    def log_relative_variance(self, Q: Array, K: Array) -> Array:
        """Return log(e^{z²} − 1), z = q + k."""
        z2 = squared_distances(Q, -K)
        with np.errstate(divide="ignore"):
            return np.asarray(z2 + np.log(-np.expm1(-z2)))


def log_features(X: Array, omega: Array) -> Array:
    """Return ω_r·x − |x|²/2, (rows, count)."""
    out = X @ omega.T
    out -= half_square(X)[:, None]
    return np.asarray(out)
