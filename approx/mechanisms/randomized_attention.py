"""Randomized attention: unbiased for softmax rows, at quadratic cost."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from approx import exact, memory
from approx._elementary import exp_rows
from approx.approximation import Approximation
from approx.checks import Array
from approx.distances import half_square
from approx.fields import whole
from approx.masks import Mask
from approx.method import Method
from approx.parts import ALL, Low, Rows, ScaledFactors, coordinates, rescale
from approx.prices import Price, Shape, low_rank


@dataclasses.dataclass(frozen=True)
class RandomizedAttention(Method):
    """Randomized attention (RA), unbiased for softmax rows after normalisation; quadratic cost.

    estimate_i = mean over s of softmax_j(ω_is·k_j − |k_j|²/2),
    ω_is ~ Σ_j π_ij N(q_i + k_j, I),  π_i = softmax(q_i Kᵀ).

    Parameters
    ----------
    samples : int
        Draws a query, ≥ 1.

    Notes
    -----
    In attention space. The density of ω is ∝ N(ω; q, I) Σ_j ξ_j with ξ_j = e^{ω·k_j − |k_j|²/2}, of
    which ξ_j/Σξ is the posterior of key j: its mean is π_ij exactly. So every row is a softmax, and
    unbiased as it is, unlike a ratio of two estimates. Weights lie in [0, 1], hence the variance
    of an entry is at most π(1 − π)/samples. Under a causal mask rows are renormalised: biased.
    Each query has draws of its own, and drawing them needs its softmax row: no factors, rows are
    computed on demand, and nothing is saved (an oracle).
    Cost: 2·n·l·d operations for π and 2·samples·n·l·d for the rows; samples·n·d numbers of ω. The
    rank counted is the trivial one, min(n, l).

    References
    ----------
    .. [1] L. Zheng, C. Wang, L. Kong, "Linear complexity randomized self-attention mechanism",
       ICML 2022, section 3.

    Examples
    --------
    Equal keys have equal weights:

    >>> RandomizedAttention().approximate([[1.0]], [[0.5], [0.5]], rng=0).to_dense()
    array([[0.5, 0.5]])
    """

    name: ClassVar[str] = "randomized_attention"
    deterministic: ClassVar[bool] = False
    space = "attention"
    oracle = True  # its draws need every softmax weight

    samples: int = whole(1)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Approximation:
        """Return rows on demand, given the draws."""
        n, d = q.shape
        u = rng.random((n, self.samples))
        omega = rng.standard_normal((self.samples, n, d))
        for rows in exact.stripes(n, len(k)):
            weights = np.cumsum(exact.softmax(q[rows], k), axis=1)
            weights /= weights[:, -1:]
            for s in range(self.samples):
                chosen = np.sum(weights <= u[rows, s, None], axis=1)
                omega[s, rows] += q[rows].astype(np.float64) + k[chosen]
        return Approximation(Softmaxes(omega.astype(q.dtype), k), space="attention")

    def priced(self, shape: Shape) -> Price:
        """Return that of min(n, l) columns: nothing is saved.

        A query reads every key for its weights and again for each sample, and every value.
        """
        n, l, d, c = shape
        work = float(l * ((1 + self.samples) * d + c))
        return dataclasses.replace(low_rank(min(n, l), shape), reads=work, multiply_adds=work)

    def workspace(self, shape: Shape) -> int:
        """Return the bytes of the draws."""
        return 16 * self.samples * shape.n * shape.d


@dataclasses.dataclass(frozen=True, eq=False)
class Softmaxes(Low):
    """mean over s of softmax_j(omega_is·k_j − |k_j|²/2), rows on demand.

    Parameters
    ----------
    omega : (samples, n, d)
    K : (l, d)
    """

    omega: Array
    K: Array

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(n, l)."""
        return self.omega.shape[1], len(self.K)

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Dtype of omega."""
        return self.omega.dtype

    @property
    def rank(self) -> int:  # type: ignore[override]
        """The trivial bound, min(n, l)."""
        return min(self.shape)

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Bytes of the rows and the identity, as which they are factors."""
        return self.rank * sum(self.shape) * self.dtype.itemsize

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        """Return 0: entries are weights."""
        return np.zeros(self.shape[0], self.dtype)[rows]

    def rows(self, rows: Rows) -> Array:
        """Return whole rows."""
        total: Any = 0.0
        for omega in self.omega:
            x = omega[rows] @ self.K.T
            x -= half_square(self.K)
            exp_rows(x, x.max(axis=1, initial=-np.inf))
            x /= x.sum(axis=1, keepdims=True)
            total += x
        return np.asarray(total / self.dtype.type(len(self.omega)))

    def block(
        self,
        rows: Rows,
        cols: Rows,
        shift: Array,
        logits: Array | None = None,
        out: Array | None = None,
    ) -> Array:
        """Return rows[:, cols] · exp(−shift)."""
        values = np.positive(self.rows(rows)[:, cols], out=out, order="C")
        return rescale(values, -shift)

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        """Return the entries of a pattern · exp(−shift)."""
        parts = [np.empty(0, self.dtype)]
        for rows in exact.stripes(*self.shape):
            parts.append(self.block(rows, ALL, shift[rows])[coordinates(pattern[rows])])
        return np.concatenate(parts)

    def matmat(self, V: Array) -> tuple[Array, Array]:
        """Return rows @ V, and zeros."""
        y = [self.rows(rows) @ V for rows in exact.stripes(*self.shape)]
        return np.concatenate(y), self.row_log()

    def rmatmat(self, W: Array, row_log: Array) -> Array:
        """Return (diag(e^−row_log) rows)ᵀ W."""
        y: Any = 0.0
        for rows in exact.stripes(*self.shape):
            y += self.block(rows, ALL, row_log[rows]).T @ W[rows]
        return np.asarray(y)

    def scaled_factors(self) -> ScaledFactors:
        """Return the rows and an identity, the smaller one."""
        n, l = self.shape
        memory.reserve(self.nbytes, "all rows", "n or l (or use block, @)")
        rows, scale = self.rows(ALL), self.row_log()
        if l <= n:
            return ScaledFactors(rows, np.eye(l, dtype=self.dtype), scale)
        return ScaledFactors(np.eye(n, dtype=self.dtype), np.ascontiguousarray(rows.T), scale)
