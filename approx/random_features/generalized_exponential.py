"""Generalised exponential features: FAVOR++."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np

from approx import checks
from approx.checks import Array
from approx.random_features.features import (
    ExponentialFeatures,
    half_square,
)


@dataclasses.dataclass(frozen=True)
class GeneralizedExponential(ExponentialFeatures):
    """Generalised exponential random features (FAVOR++), unbiased for exp(q·k), positive.

    φ(x)_r = m^{−1/2} (1−4A)^{d/4} exp(A|ω_r|² + √(1−4A) ω_r·x − |x|²/2),  ω_r ~ N(0, I_d).

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1; None is a template.
    projection : str or Projection
        How the ω are drawn together.
    a : float, optional
        A < 1/8; by default A*, the minimiser of the mean log second moment over all pairs.

    Notes
    -----
    Unbiased for every A, with relative variance (C_ρ e^{ρ|q+k|²} − 1)/m, ρ = 1/(1−8A),
    C_ρ = ((1+ρ)²/4ρ)^{d/2}. A = 0 is `positive`. For A < 0 features are bounded in ω. With
    φ = mean |q+k|²/d, A* = (1 − 2φ − √((2φ+1)² + 8φ))/16, in O((n + l)·d).
    A* minimises a mean of logarithms, neither each variance nor the Frobenius error.
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers.

    References
    ----------
    .. [1] V. Likhosherstov et al., "Chefs' Random Tables", NeurIPS 2022, Theorems 3.1, 3.2.

    Examples
    --------
    >>> GeneralizedExponential(m=2, a=0.0).approximate([[0.0]], [[0.0]], rng=0).to_dense()
    array([[1.]])
    """

    name: ClassVar[str] = "generalized_exponential"

    a: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.a is not None and not (math.isfinite(self.a) and self.a < 0.125):
            raise ValueError(f"a must be finite and < 1/8, got {self.a}")

    def vectors(self, Q: Array, K: Array) -> tuple[Array, Array]:
        """Return u = q + k."""
        return Q, K

    def tilt(self, Q: Array, K: Array) -> float:
        """Return a, or A* of these inputs."""
        return optimal_tilt(mean_squared_sum(Q, K) / Q.shape[1]) if self.a is None else self.a

    def log_features(self, X: Array, omega: Array, Q: Array, K: Array) -> Array:
        """Return √(1−4A) ω_r·x − |x|²/2 + (d/4) log(1−4A) + A|ω_r|²."""
        A = self.tilt(Q, K)
        out = X @ (math.sqrt(1 - 4 * A) * omega).T
        out -= (half_square(X) - X.shape[1] / 4 * math.log(1 - 4 * A))[:, None]
        out += 2 * A * half_square(omega)
        return np.asarray(out)


def mean_squared_sum(Q: Array, K: Array) -> float:
    """Return the mean of |q_i + k_j|² over all pairs, in O((n + l)·d), float64."""
    q, k = Q.astype(np.float64), K.astype(np.float64)
    cross = float(q.mean(axis=0) @ k.mean(axis=0))
    return float(2 * half_square(q).mean() + 2 * half_square(k).mean() + 2 * cross)


def optimal_tilt(phi: float) -> float:
    """Return A* for φ = mean |q+k|²/d; 0 at φ = 0.

    Examples
    --------
    >>> round(optimal_tilt(1.91 / 4), 12)
    -0.169963829849
    """
    checks.positive("phi + 1", phi + 1)
    return (1 - 2 * phi - math.sqrt((2 * phi + 1) ** 2 + 8 * phi)) / 16
