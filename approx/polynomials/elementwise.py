"""A polynomial of q·k as an estimate: a function of the logits, or a pair of factors."""

from __future__ import annotations

import dataclasses
import functools
from decimal import Decimal
from typing import Any

import numpy as np
import scipy.sparse

from approx.checks import Array, Given
from approx.estimate import exact, memory
from approx.estimate.low import Features, Low, Rows, ScaledFactors, rescale
from approx.estimate.masks import ALL, Mask
from approx.kernels import pattern_products
from approx.polynomials import monomials
from approx.polynomials.polynomial import Polynomial

LOSS = 5.0  # above this log of the cancellation in powers of x, products use the logits
TILE = 256  # rows of features that a streamed product holds at a time


@dataclasses.dataclass(frozen=True, eq=False)
class Elementwise(Low):
    """The matrix diag(e^row) p(Q Kᵀ) diag(e^column), as rows on demand or as monomial factors.

    Parameters
    ----------
    Q, K : (n, d), (l, d)
    polynomial : Polynomial
    row, column : (n,), (l,), optional
        Offsets of the logs of the entries, per row and per column; give both or none.
    mask : Mask, optional
        Row scales follow from seen keys only: an unseen entry gets the logit of the first seen key.
    """

    Q: Array
    K: Array
    polynomial: Polynomial
    row: Array | None = None
    column: Array | None = None
    mask: Mask | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.Q), len(self.K)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.Q.dtype

    @property
    def rank(self) -> int:
        return monomials.width(self.Q.shape[1], self.polynomial.degree)

    @property
    def nbytes(self) -> int:
        p = self.polynomial
        arrays = [self.Q, self.K, p.mantissas, p.exponents, self.row, self.column]
        return sum(x.nbytes for x in arrays if x is not None)

    @property
    def elementwise(self) -> bool:
        return self.column is None

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        """Return the scale of p at the logits; without logits, its bound by Cauchy–Schwarz."""
        if logits is not None and self.elementwise:
            return self.polynomial.log_size(self._seen(logits, rows)).astype(self.dtype)
        return self._with_offsets(self._scale(rows), rows)

    def block(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        given = logits if self.elementwise else None
        values = self._values(rows, cols, self._without_offsets(shift, rows), given, out)
        if self.column is not None and self._weights is not None:
            if self.mask is None:
                values *= self._weights[cols]
            else:  # entries of unseen keys are set to 0 later
                own = self.column[cols] - self._tops[rows][:, None]
                values *= np.exp(np.minimum(own, 0))
        return values

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        x = pattern_products.product(self.Q, self.K, pattern)
        per_entry = np.repeat(self._without_offsets(shift), np.diff(pattern.indptr))
        values = self.polynomial.scaled(x[:, None], per_entry)[:, 0]
        if self.column is None or self._weights is None:
            return values
        if self.mask is None:
            return values * self._weights[pattern.indices]
        tops = np.repeat(self._tops, np.diff(pattern.indptr))
        return np.asarray(values * np.exp(self.column[pattern.indices] - tops))

    def matmat(self, V: Array) -> tuple[Array, Array]:
        v = self._weighted(V)
        if self._factors_are_cheaper(V.shape[1]):
            query, key, scale = self._feature_tiles()
            tile = np.empty((TILE, self.rank), self.dtype)
            total = sum(key(rows, tile).T @ v[rows] for rows in _tiles(len(self.K)))
            y = np.concatenate([query(rows, tile) @ total for rows in _tiles(len(self.Q))])
        else:
            scale = self._scale()
            y = np.empty((len(self.Q), V.shape[1]), np.result_type(self.Q, V))
            for rows in exact.stripes(*self.shape):
                y[rows] = self._values(rows, ALL, scale[rows]) @ v
        return y, self._with_offsets(scale)

    def rmatmat(self, W: Array, row_log: Array) -> Array:
        shift = self._without_offsets(row_log)
        if self._factors_are_cheaper(W.shape[1]):
            query, key, logs = self._feature_tiles()
            scaled = rescale(W.copy(), logs - shift)
            tile = np.empty((TILE, self.rank), self.dtype)
            total = sum(query(rows, tile).T @ scaled[rows] for rows in _tiles(len(self.Q)))
            y = np.concatenate([key(rows, tile) @ total for rows in _tiles(len(self.K))])
        else:
            y = np.zeros((len(self.K), W.shape[1]), np.result_type(self.Q, W))
            for rows in exact.stripes(*self.shape):
                y += self._values(rows, ALL, shift[rows]).T @ W[rows]
        return self._weighted(y)

    def scaled_factors(self) -> ScaledFactors:
        nbytes = self.rank * sum(self.shape) * self.dtype.itemsize
        what = f"{Decimal(self.rank):.6g} monomials per row"  # an int may have too many digits
        memory.reserve(nbytes, what, "the degree (or use block, @)")
        query, key, scale = self._feature_tiles()
        if self.row is not None and self.column is not None:
            scale = scale + self.row + self.column.max()
        return ScaledFactors(query(ALL), self._weighted(key(ALL)), scale)

    def rescaled(self, row: Array, column: Array) -> Elementwise:
        if self.row is not None and self.column is not None:
            row, column = self.row + row, self.column + column
        return dataclasses.replace(self, row=row, column=column)

    def seeing(self, mask: Mask) -> Elementwise:
        return dataclasses.replace(self, mask=mask)

    def features(self, columns: int) -> Features | None:
        assert self.mask is not None
        if not self._factors_are_cheaper(columns, self.mask.entries):
            return None
        query, key, q_log, k_log = self._tiles_by_key()
        if self.row is not None and self.column is not None:
            q_log, k_log = q_log + self.row, k_log + self.column
        q_log, k_log = (x.astype(self.dtype) for x in (q_log, k_log))

        def with_log(build: Any, logs: Array) -> Any:
            return lambda rows: (build(rows), logs[rows])

        return Features(with_log(query, q_log), with_log(key, k_log), self.rank, self.dtype, TILE)

    # The polynomial without offsets, and the effect of the offsets

    def _seen(self, x: Array, rows: Rows, cols: Rows = ALL, *, copy: bool = True) -> Array:
        if self.mask is None:
            return x
        x = x.copy() if copy else x
        # an unseen entry gets the logit of a seen key, so that it has no effect on any scale
        own = np.einsum("id,id->i", self.Q[rows], self.K[self.mask.first[rows]])
        self.mask.hide(x, rows, cols, fill=own)
        return x

    def _scale(self, rows: Rows = ALL) -> Array:
        q = self.Q[rows]
        if self.polynomial.one_sided:
            index = np.arange(len(self.Q))[rows]
            logs = [
                self.polynomial.log_size(
                    self._seen(q[stripe] @ self.K.T, index[stripe], copy=False)
                )
                for stripe in exact.stripes(len(q), len(self.K))
            ]
            return np.concatenate([*logs, np.empty(0)]).astype(self.dtype)
        lengths = np.sqrt(np.einsum("id,id->i", q, q))
        squares = np.einsum("jd,jd->j", self.K, self.K)
        most = squares.max() if self.mask is None else self.mask.maximum(squares)[rows]
        size = lengths * np.sqrt(most)
        return self.polynomial.log_bound(size.astype(np.float64)).astype(self.dtype)

    def _values(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        if logits is None or logits.dtype != self.dtype:
            x = np.matmul(self.Q[rows], self.K[cols].T, out=out)
        else:
            x = np.positive(logits, out=out)
        x = self._seen(x, rows, cols, copy=False)
        return self.polynomial.scaled(np.ascontiguousarray(x), shift)

    @functools.cached_property
    def _weights(self) -> Array | None:
        # e^column over its largest entry, which goes into the row scale
        return None if self.column is None else np.exp(self.column - self.column.max())

    @functools.cached_property
    def _tops(self) -> Array:
        # the largest offset of the columns that each row sees
        assert self.column is not None
        if self.mask is None:
            return np.broadcast_to(self.column.max(), len(self.Q))
        return self.mask.maximum(self.column)

    def _weighted(self, x: Array) -> Array:
        return x if self._weights is None else x * self._weights[:, None]

    def _with_offsets(self, log: Array, rows: Rows = ALL) -> Array:
        if self.row is None or self.column is None:
            return log
        return np.asarray(log + self.row[rows] + self._tops[rows])

    def _without_offsets(self, shift: Array, rows: Rows = ALL) -> Array:
        if self.row is None or self.column is None:
            return shift
        return np.asarray(shift - self.row[rows] - self._tops[rows])

    def _feature_tiles(self) -> tuple[Any, Any, Array]:
        # with one scale for all keys
        query, key, q_log, k_log = self._tiles_by_key()
        top = k_log.max()
        scale = (q_log + top).astype(self.dtype)
        return query, functools.partial(key, log=np.full(len(k_log), top)), scale

    def _tiles_by_key(self) -> tuple[Any, Any, Array, Array]:
        p, d = self.polynomial.monomial, self.Q.shape[1]
        logs = p.log_coefficients
        roots = monomials.root_ratios(d, p.degree)
        begin, _ = monomials.layout(d, p.degree)
        sign = np.repeat(p.signs, np.diff(begin)).astype(self.dtype)

        def norm_log(X: Array) -> Array:
            squares = np.einsum("id,id->i", X, X, dtype=np.float64)
            return 0.5 * p.log_bound(squares)

        q_log = norm_log(self.Q)
        k_log = norm_log(self.K)

        def features(X: Array, log: Array, tile: Array | None) -> Array:
            out = None if tile is None else tile[: len(X)]
            return monomials.features(X, roots, logs, log, out=out)

        def query(rows: slice, tile: Array | None = None) -> Array:
            signed = features(self.Q[rows], q_log[rows], tile)
            signed *= sign
            return signed

        def key(rows: slice, tile: Array | None = None, log: Array = k_log) -> Array:
            return features(self.K[rows], log[rows], tile)

        return query, key, q_log, k_log

    def _factors_are_cheaper(self, columns: int, entries: int | None = None) -> bool:
        n, l = self.shape
        entries = n * l if entries is None else entries
        by_factors = (n + l) * self.rank * (2 + 2 * columns)
        by_stripes = entries * (2 * self.Q.shape[1] + 2 * self.polynomial.degree + 2 * columns)
        if by_factors >= by_stripes:
            return False
        if not monomials.keeps_digits(self.Q.shape[1], self.polynomial.degree, self.dtype):
            return False
        tile = (TILE + columns) * self.rank * self.dtype.itemsize
        return tile < memory.limit() // 4 and self.polynomial.log_loss < LOSS


def _tiles(rows: int) -> list[slice]:
    return [slice(start, min(start + TILE, rows)) for start in range(0, rows, TILE)]
