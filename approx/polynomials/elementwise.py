"""A polynomial of q·k as an estimate: a function of the logits, or a pair of factors."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from approx import exact, memory, pattern_products
from approx.checks import Array
from approx.parts import ALL, Low, Rows, ScaledFactors, rescale
from approx.polynomials import monomials
from approx.polynomials.polynomial import Polynomial

LOSS = 5.0  # log of the cancellation in powers of x beyond which products keep to the logits
TILE = 256  # rows of features held at a time when a product is streamed


@dataclasses.dataclass(frozen=True, eq=False)
class Elementwise(Low):
    """p(q·k): rows evaluated on demand, monomial factors when asked."""

    Q: Array
    K: Array
    polynomial: Polynomial
    elementwise: ClassVar[bool] = True

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
        return monomials.width(self.Q.shape[1], self.polynomial.degree)

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Bytes of the factors."""
        return self.rank * sum(self.shape) * self.dtype.itemsize

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        """Return the scale of p at the logits; where not given, of its bound by Cauchy–Schwarz."""
        if logits is not None:
            return self.polynomial.log_size(logits).astype(self.dtype)
        q = self.Q[rows]
        if self.polynomial.one_sided:
            parts = [
                self.polynomial.log_size(q[part] @ self.K.T)
                for part in exact.stripes(len(q), len(self.K))
            ]
            return np.concatenate([*parts, np.empty(0)]).astype(self.dtype)
        lengths = np.sqrt(np.einsum("id,id->i", q, q))
        size = lengths * np.sqrt(np.einsum("jd,jd->j", self.K, self.K).max())
        return self.polynomial.log_bound(size.astype(np.float64)).astype(self.dtype)

    def block(
        self,
        rows: Rows,
        cols: Rows,
        shift: Array,
        logits: Array | None = None,
        out: Array | None = None,
    ) -> Array:
        """Return p(q·k)·exp(−shift)."""
        if logits is None or logits.dtype != self.dtype:
            x = np.matmul(self.Q[rows], self.K[cols].T, out=out)
        else:
            x = np.positive(logits, out=out)
        return self.polynomial.scaled(np.ascontiguousarray(x), shift)

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        """Return p(q·k)·exp(−shift) at the entries of a pattern."""
        x = pattern_products.product(self.Q, self.K, pattern)
        per_entry = np.repeat(shift, np.diff(pattern.indptr))
        return self.polynomial.scaled(x[:, None], per_entry)[:, 0]

    def matmat(self, V: Array) -> tuple[Array, Array]:
        """Return low @ V, through the factors or by row stripes, whichever is cheaper."""
        if self._factors_are_cheaper(V.shape[1]):
            query, key, row_log = self._feature_tiles()
            tile = np.empty((TILE, self.rank), self.dtype)
            total = sum(key(rows, tile).T @ V[rows] for rows in _tiles(len(self.K)))
            y = np.concatenate([query(rows, tile) @ total for rows in _tiles(len(self.Q))])
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
            tile = np.empty((TILE, self.rank), self.dtype)
            total = sum(query(rows, tile).T @ scaled[rows] for rows in _tiles(len(self.Q)))
            return np.concatenate([key(rows, tile) @ total for rows in _tiles(len(self.K))])
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
        p, d = self.polynomial.monomial, self.Q.shape[1]
        logs = p.log_coefficients
        roots = monomials.root_ratios(d, p.degree)
        begin, _ = monomials.layout(d, p.degree)
        sign = np.repeat(p.signs, np.diff(begin)).astype(self.dtype)

        def norm_log(X: Array) -> Array:
            squares = np.einsum("id,id->i", X, X, dtype=np.float64)
            return 0.5 * p.log_bound(squares)

        q_log = norm_log(self.Q)
        k_log = norm_log(self.K).max()

        def features(X: Array, log: Array, tile: Array | None) -> Array:
            out = None if tile is None else tile[: len(X)]
            return monomials.features(X, roots, logs, log, out=out)

        def query(rows: slice, tile: Array | None = None) -> Array:
            found = features(self.Q[rows], q_log[rows], tile)
            found *= sign
            return found

        def key(rows: slice, tile: Array | None = None) -> Array:
            X = self.K[rows]
            return features(X, np.full(len(X), k_log), tile)

        return query, key, (q_log + k_log).astype(self.dtype)

    def _factors_are_cheaper(self, columns: int) -> bool:
        n, l = self.shape
        by_factors = (n + l) * self.rank * (2 + 2 * columns)
        by_stripes = n * l * (2 * self.Q.shape[1] + 2 * self.polynomial.degree + 2 * columns)
        if by_factors >= by_stripes:
            return False
        if not monomials.keeps_digits(self.Q.shape[1], self.polynomial.degree, self.dtype):
            return False
        tile = (TILE + columns) * self.rank * self.dtype.itemsize
        return tile < memory.limit() // 4 and self.polynomial.log_loss < LOSS


def _tiles(rows: int) -> list[slice]:
    return [slice(start, min(start + TILE, rows)) for start in range(0, rows, TILE)]
