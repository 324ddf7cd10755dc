"""The exponential of a product of two factors, computed row by row."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import scipy.sparse

from approx.checks import Array, Given
from approx.estimate import exact, masks, memory
from approx.estimate.low import Dense, Low, Rows, ScaledFactors, rescale
from approx.estimate.masks import ALL, Mask
from approx.kernels import pattern_products
from approx.kernels.elementary import exp_rows


@dataclasses.dataclass(frozen=True, eq=False)
class Exponential(Low):
    """exp(left rightᵀ), entry by entry.

    Parameters
    ----------
    left, right : (n, r), (l, r)
        C-contiguous, of one dtype.
    stored : int
        How many numbers left and right cost, which is less if some are 0 or have few bits.
    mask : Mask, optional
        Unseen entries are 0, and the scale of a row is its largest seen logit.
    """

    left: Array
    right: Array
    stored: int
    mask: Mask | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), len(self.right)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.left.dtype

    @property
    def rank(self) -> int:
        """The trivial bound, min(n, l): exp of a matrix of small rank may have any rank."""
        return min(self.shape)

    @property
    def parameters(self) -> int:
        return self.stored

    @property
    def nbytes(self) -> int:
        """Bytes of the mask and of both factors as arrays here, not in fewer bits."""
        bounds = 0 if self.mask is None else self.mask.first.nbytes + self.mask.stop.nbytes
        return int(self.left.nbytes + self.right.nbytes + bounds)

    def seeing(self, mask: Mask) -> Exponential:
        return dataclasses.replace(self, mask=mask)

    @property
    def _seen(self) -> Mask:
        return self.mask or Mask.full(*self.shape)

    @functools.cached_property
    def _tops(self) -> Array:
        tops = [
            exact.seen_logits(self.left, self.right, self._seen, rows).max(axis=1)
            for rows in exact.stripes(*self.shape)
        ]
        return np.concatenate(tops)

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        return np.asarray(self._tops[rows])

    def block(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        values = np.matmul(self.left[rows], self.right[cols].T, out=out)
        if self.mask is not None:  # unseen logits must not overflow
            self.mask.hide(values, rows, cols, fill=-np.inf)
        exp_rows(values, shift.astype(self.dtype, copy=False))
        return rescale(values, np.zeros(1))

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        x = pattern_products.product(self.left, self.right, pattern)
        x -= np.repeat(shift.astype(self.dtype, copy=False), np.diff(pattern.indptr))
        if self.mask is not None:
            x[~masks.sees(pattern, self.mask)] = -np.inf
        with np.errstate(over="ignore"):
            np.exp(x, out=x)
        return rescale(x, np.zeros(1))

    @property
    def zero_outside(self) -> Mask | None:
        return self.mask

    def matmat(self, V: Array) -> tuple[Array, Array]:
        """Return (y, row_log) in one pass; the scales, the largest logits, are kept."""
        y = np.empty((self.shape[0], V.shape[1]), np.result_type(self.dtype, V))
        tops = np.empty(self.shape[0], self.dtype)
        for rows in exact.stripes(*self.shape):
            x = exact.seen_logits(self.left, self.right, self._seen, rows)
            tops[rows] = x.max(axis=1)
            exp_rows(x, tops[rows])
            y[rows] = x @ V[self._seen.span(rows)]
        return y, vars(self).setdefault("_tops", tops)

    def scaled_factors(self) -> ScaledFactors:
        nbytes = math.prod(self.shape) * self.dtype.itemsize
        memory.reserve(nbytes, "exp of all logits", "n or l (or use block, @)")
        return Dense(self.block(ALL, ALL, self._tops), self._tops).scaled_factors()

    def rescaled(self, row: Array, column: Array) -> Exponential:
        """Return diag(e^row) · self · diag(e^column): the factors get two more columns."""
        left = np.column_stack([self.left, np.ones_like(row), row])
        right = np.column_stack([self.right, column, np.ones_like(column)])
        return dataclasses.replace(self, left=left, right=right)
