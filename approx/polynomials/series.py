"""Polynomials of the logits: one object with two faces, a function of q·k and a pair of factors."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from scipy.special import logsumexp

from approx import exact, memory, sampled
from approx._jit import kernel
from approx.checks import Array
from approx.parts import ALL, Low, Rows, ScaledFactors, rescale
from approx.polynomials import monomials

TILE = 256  # rows of features held at a time when a product is streamed
SMALLEST = 2.0**-126  # what counts as 0 for a scale: without a constant term p has none there


@kernel
def _horner_rows(coefficients: Any, inverse: Any, values: Any) -> None:
    for i in range(values.shape[0]):
        row = values[i]
        a = coefficients[i]
        s = inverse[i]
        for j in range(row.size):
            x = row[j] * s
            y = a[a.size - 1]
            for k in range(a.size - 2, -1, -1):
                y = a[k] + x * y
            row[j] = y


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """p(x) = Σ_{j ≤ n} sign_j e^{log_j} x^j.

    Parameters
    ----------
    log_coefficients : (n + 1,)
        log |a_j|; −inf where a_j = 0.
    signs : (n + 1,)
        ±1.
    """

    log_coefficients: Array
    signs: Array
    one_sided: ClassVar[bool] = False  # |p(−x)| ≪ p(x): a bound by |x| is no scale

    @property
    def degree(self) -> int:
        """The degree n."""
        return len(self.log_coefficients) - 1

    def log_bound(self, size: Array) -> Array:
        """Return log Σ_j |a_j| size^j, an upper bound of log |p(x)| for |x| ≤ size; finite."""
        powers = monomials.log_powers(np.maximum(size, SMALLEST), self.log_coefficients)
        return np.asarray(np.maximum(logsumexp(powers, axis=1), -1e6))  # p = 0

    def log_size(self, x: Array) -> Array:
        """Return a log scale for each row of x (rows, cols), at which |p(x)| is at most 1."""
        return self.log_bound(np.abs(x).max(axis=1).astype(np.float64))

    def scaled(self, x: Array, shift: Array) -> Array:
        """Return p(x)·exp(−shift), (rows, cols), by Horner's rule in x/max|x|; may reuse x.

        Raises
        ------
        OverflowError
            A coefficient at that scale is not representable.
        """
        size = np.maximum(np.abs(x).max(axis=1, initial=0.0), x.dtype.type(SMALLEST))
        logs = monomials.log_powers(size.astype(np.float64), self.log_coefficients)
        coefficients = np.repeat(self.signs[None, :].astype(x.dtype), len(x), axis=0)
        for j in range(self.degree + 1):
            rescale(coefficients[:, j], logs[:, j] - shift, "a term of the polynomial")
        _horner_rows(coefficients, (1.0 / size).astype(x.dtype), x)
        return x


@dataclasses.dataclass(frozen=True, eq=False)
class Elementwise(Low):
    """p(q·k): rows evaluated on demand, monomial factors when asked."""

    Q: Array
    K: Array
    series: Series

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(n, l)."""
        return len(self.Q), len(self.K)

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Dtype of Q."""
        return self.Q.dtype

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Return C(d+n, n)."""
        return monomials.width(self.Q.shape[1], self.series.degree)

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Bytes of the factors."""
        return self.rank * sum(self.shape) * self.dtype.itemsize

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        """Return the scale of p at the logits; where not given, of its bound by Cauchy–Schwarz."""
        if logits is not None:
            return self.series.log_size(logits).astype(self.dtype)
        q = self.Q[rows]
        if self.series.one_sided:
            parts = [
                self.series.log_size(q[part] @ self.K.T)
                for part in exact.stripes(len(q), len(self.K))
            ]
            return np.concatenate([*parts, np.empty(0)]).astype(self.dtype)
        lengths = np.sqrt(np.einsum("id,id->i", q, q))
        size = lengths * np.sqrt(np.einsum("jd,jd->j", self.K, self.K).max())
        return self.series.log_bound(size.astype(np.float64)).astype(self.dtype)

    def block(self, rows: Rows, cols: Rows, shift: Array, logits: Array | None = None) -> Array:
        """Return p(q·k)·exp(−shift)."""
        if logits is None or logits.dtype != self.dtype:
            x = self.Q[rows] @ self.K[cols].T
        else:
            x = logits.copy()
        return self.series.scaled(np.ascontiguousarray(x), shift)

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        """Return p(q·k)·exp(−shift) at the entries of a pattern."""
        x = sampled.product(self.Q, self.K, pattern)
        per_entry = np.repeat(shift, np.diff(pattern.indptr))
        return self.series.scaled(x[:, None], per_entry)[:, 0]

    def matmat(self, V: Array) -> tuple[Array, Array]:
        """Return low @ V, through the factors or by row stripes, whichever is cheaper."""
        if self._factors_are_cheaper(V.shape[1]):
            query, key, row_log = self._feature_tiles()
            total = sum(key(tile).T @ V[tile] for tile in _tiles(len(self.K)))
            y = np.concatenate([query(tile) @ total for tile in _tiles(len(self.Q))])
            return y, row_log
        row_log = self.row_log()
        y = np.empty((len(self.Q), V.shape[1]), np.result_type(self.Q, V))
        for rows in exact.stripes(*self.shape):
            y[rows] = self.block(rows, ALL, row_log[rows]) @ V
        return y, row_log

    def rmatmat(self, W: Array, row_log: Array) -> Array:
        """Return (diag(e^−row_log) low)ᵀ W, by the cheaper route."""
        if self._factors_are_cheaper(W.shape[1]):
            query, key, logs = self._feature_tiles()
            scaled = rescale(W.copy(), logs - row_log)
            total = sum(query(tile).T @ scaled[tile] for tile in _tiles(len(self.Q)))
            return np.concatenate([key(tile) @ total for tile in _tiles(len(self.K))])
        y = np.zeros((len(self.K), W.shape[1]), np.result_type(self.Q, W))
        for rows in exact.stripes(*self.shape):
            y += self.block(rows, ALL, row_log[rows]).T @ W[rows]
        return y

    def scaled_factors(self) -> ScaledFactors:
        """Return the monomial factors; a negative coefficient's sign sits on the left.

        Raises
        ------
        ResourceLimitError
            Too wide: `@`, `block` and `attend` work without the factors.
        """
        what = f"{Decimal(self.rank):.6g} monomials a row"  # an int may have too many digits
        memory.reserve(self.nbytes, what, "the degree (or use block, @)")
        query, key, row_log = self._feature_tiles()
        return ScaledFactors(query(ALL), key(ALL), row_log)

    def _feature_tiles(self) -> tuple[Any, Any, Array]:
        logs, d = self.series.log_coefficients, self.Q.shape[1]
        multinomial = monomials.multinomials(d, self.series.degree)
        begin, _ = monomials.layout(d, self.series.degree)
        sign = np.repeat(self.series.signs, np.diff(begin)).astype(self.dtype)

        def norm_log(X: Array) -> Array:
            squares = np.einsum("id,id->i", X, X, dtype=np.float64)
            return 0.5 * self.series.log_bound(squares)

        q_log = norm_log(self.Q)
        k_log = norm_log(self.K).max()

        def query(rows: slice) -> Array:
            return np.asarray(
                monomials.features(self.Q[rows], multinomial, logs, q_log[rows]) * sign
            )

        def key(rows: slice) -> Array:
            count = len(self.K[rows])
            return monomials.features(self.K[rows], multinomial, logs, np.full(count, k_log))

        return query, key, (q_log + k_log).astype(self.dtype)

    def _factors_are_cheaper(self, columns: int) -> bool:
        n, l = self.shape
        by_factors = (n + l) * self.rank * (2 + 2 * columns)
        by_stripes = n * l * (2 * self.Q.shape[1] + 2 * self.series.degree + 2 * columns)
        tile = (TILE + columns) * self.rank * self.dtype.itemsize
        return by_factors < by_stripes and tile < memory.limit() // 4


def _tiles(rows: int) -> list[slice]:
    return [slice(start, min(start + TILE, rows)) for start in range(0, rows, TILE)]
