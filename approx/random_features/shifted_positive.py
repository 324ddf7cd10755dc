"""Positive features drawn around the mean of q + k."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from approx.checks import Array
from approx.random_features.features import (
    ExponentialFeatures,
    half_square,
)


@dataclasses.dataclass(frozen=True)
class ShiftedPositive(ExponentialFeatures):
    """Positive features with a shifted proposal, unbiased for exp(q·k).

    φ(x)_r = m^{−1/2} exp(w_r·x − |x|²/2 − w_r·μ/2 + |μ|²/4),  w_r ~ N(μ, I_d), μ = q̄ + k̄.

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1; None is a template.
    projection : str or Projection
        How w − μ is drawn.

    Notes
    -----
    Unbiased for every μ, with relative variance (e^{|q+k−μ|²} − 1)/m, exact for iid draws: none at
    q + k = μ. This μ minimises the mean of |q+k−μ|², in O((n + l)·d).
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers.

    References
    ----------
    .. [1] L. Zheng, C. Wang, L. Kong, "Linear Complexity Randomized Self-attention Mechanism",
       ICML 2022: the optimal proposal N(q + k, I) of one pair.

    Examples
    --------
    One query and one key are their own mean: no variance.

    >>> ShiftedPositive(m=1).approximate([[1.0]], [[1.0]], rng=0).to_dense().round(12)
    array([[2.71828183]])
    """

    name: ClassVar[str] = "shifted_positive"

    def shift(self, Q: Array, K: Array) -> Array:
        """Return μ, (d,)."""
        return np.asarray(Q.mean(axis=0) + K.mean(axis=0))

    def vectors(self, Q: Array, K: Array) -> tuple[Array, Array]:
        """Return u = q + k − μ."""
        return Q - self.shift(Q, K), K

    def log_features(self, X: Array, omega: Array, Q: Array, K: Array) -> Array:
        """Return w_r·(x − μ/2) − |x|²/2 + |μ|²/4, w_r = μ + ω_r."""
        mu = self.shift(Q, K)
        out = (X - mu / 2) @ (omega + mu).T
        out -= (half_square(X) - mu @ mu / 4)[:, None]
        return np.asarray(out)
