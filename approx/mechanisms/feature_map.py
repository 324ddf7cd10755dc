"""Linear attention with a feature map ≥ 0: rows of φ(q)·ψ(k), normalised."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

import numpy as np
from numpy.typing import ArrayLike

from approx import memory
from approx.approximation import Approximation
from approx.checks import Array
from approx.method import Method, Rng
from approx.parts import Factors


@dataclasses.dataclass(frozen=True)
class FeatureMap(Method):
    """estimate_ij = φ(q_i)·ψ(k_j)/Σ_c φ(q_i)·ψ(k_c), with φ, ψ ≥ 0.

    A row of zeros stays one. Under a causal mask rows are normalised over what is seen.
    """

    @abstractmethod
    def log_features(self, Q: Array, K: Array, rng: Rng) -> tuple[Array, Array]:
        """Return log φ(Q) (n, r) and log ψ(K) (l, r), float64; −inf where a feature is 0."""

    @abstractmethod
    def width(self, d: int) -> int | None:
        """Return r; None for a template."""

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return the normalised rows, as factors."""
        q, k = self.checked(Q, K)
        r = self.width(q.shape[1]) or 0
        memory.reserve(16 * r * (len(q) + len(k)), f"{self}", "m, n or l")
        left, right = self.log_features(q.astype(np.float64), k.astype(np.float64), rng)
        return normalised(left, right, q.dtype)

    def price(self, *, n: int, l: int, d: int) -> float | None:
        """Return r·(n + l)/n."""
        r = self.width(d)
        return None if r is None else r * (n + l) / n


def normalised(log_left: Array, log_right: Array, dtype: np.dtype) -> Approximation:
    """Return rows ∝ Σ_r exp(log_left_ir + log_right_jr) that sum to 1, in attention space.

    Every column of the right factor and every row of the left one is scaled by its largest entry,
    so a row sum is ≥ 1 before it is divided by: nothing overflows, nothing vanishes.

    Examples
    --------
    >>> log = np.log([[1.0], [3.0]]) - 9999
    >>> normalised(log, log, np.dtype(float)).to_dense()
    array([[0.25, 0.75],
           [0.25, 0.75]])
    """
    top = log_right.max(axis=0)
    top[top == -np.inf] = 0.0
    right = np.exp(log_right - top)
    log_left = log_left + top
    peak = log_left.max(axis=1, keepdims=True)
    peak[peak == -np.inf] = 0.0
    left = np.exp(log_left - peak)
    total = left @ right.sum(axis=0)
    left /= np.where(total > 0, total, 1.0)[:, None]
    scale = np.zeros(len(left), dtype)
    return Approximation(Factors(left.astype(dtype), right.astype(dtype), scale), space="attention")
