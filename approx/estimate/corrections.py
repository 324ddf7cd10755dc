"""The sparse part S of an estimate diag(e^row_log) · (low ⊕ S).

S is a `Support`, which replaces the low-rank part by exp(q·k), or an `Addition`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate import masks
from approx.estimate.low import Rows, rescale
from approx.estimate.masks import Mask
from approx.kernels import pattern_products
from approx.kernels.pattern_products import coordinates


@dataclasses.dataclass(frozen=True, eq=False)
class Correction(ABC):
    """The sparse part S, an (n, l) CSR matrix whose scale is stored separately."""

    matrix: scipy.sparse.csr_array
    replaces: ClassVar[bool]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.matrix.nnz)

    @property
    def nbytes(self) -> int:
        """Bytes stored, including indices."""
        s = self.matrix
        return int(s.data.nbytes + s.indices.nbytes + s.indptr.nbytes)

    @abstractmethod
    def row_log(self) -> Array:
        """Return the log of each row's scale, (n,); −inf for an empty row of a support."""

    @abstractmethod
    def rescaled(self, Q: Array, K: Array, row: Array, column: Array) -> Correction:
        """Return diag(e^row) S diag(e^column); for a support, exp(q·k) of these Q and K."""

    @abstractmethod
    def scaled(self, shift: Array) -> scipy.sparse.csr_array:
        """Return diag(e^−shift) S."""

    @abstractmethod
    def correct(self, values: Array, shift: Array) -> None:
        """Turn values of the low-rank part, diag(e^−shift) low, into the estimate's, in place."""

    @abstractmethod
    def restricted(self, rows: Rows, cols: Rows) -> Correction:
        """Return S[rows, cols]."""

    def under(self, mask: Mask) -> Correction:
        """Return S with only the entries that are seen under a mask."""
        seen = masks.cut(self.matrix, mask)
        return self if seen is self.matrix else dataclasses.replace(self, matrix=seen)

    def _with(self, data: Array) -> scipy.sparse.csr_array:
        s = copy.copy(self.matrix)  # SciPy's constructor would check the indices again
        s.data = data
        return s

    def _per_entry(self, x: Array) -> Array:
        return np.repeat(x, np.diff(self.matrix.indptr))


@dataclasses.dataclass(frozen=True, eq=False)
class Support(Correction):
    """Entries where exp(q·k), or a weighted mean of it and the low-rank part, is the estimate.

    The matrix stores the *logits*, so that exp(q·k) is exact to the last bit at any shift. An entry
    with weight w has the estimate (1 − w)·low + w·exp(q·k), which is exp(q·k) for w = 1. For a key
    that is drawn with probability π, w = 1/π makes the estimate unbiased.
    """

    weights: Array | None = None  # (nnz,) float64, in the order of the entries; None: all 1
    replaces = True

    def row_log(self) -> Array:
        return self._tops

    @functools.cached_property
    def _tops(self) -> Array:
        s = self.matrix
        top = np.full(s.shape[0], -np.inf, s.dtype)
        filled = np.diff(s.indptr) > 0
        if filled.any():
            top[filled] = np.maximum.reduceat(self._logs, s.indptr[:-1][filled])
        return top

    @property
    def _logs(self) -> Array:
        # log(w·exp(q·k))
        logits = self.matrix.data
        if self.weights is None:
            return np.asarray(logits)
        return np.asarray((logits + np.log(self.weights)).astype(logits.dtype))

    def scaled(self, shift: Array) -> scipy.sparse.csr_array:
        """Return w·exp(q·k − shift) on the support; raise OverflowError if not representable."""
        data = self._per_entry(shift.astype(self.matrix.dtype, copy=False))
        np.subtract(self._logs, data, out=data)
        with np.errstate(over="ignore"):
            np.exp(data, out=data)
        return self._with(rescale(data, np.zeros(1)))

    def correct(self, values: Array, shift: Array) -> None:
        s = self.scaled(shift)
        at = coordinates(s)
        if self.weights is not None:
            s.data += self.split(values[at])[0]
            rescale(s.data, np.zeros(1))  # raises if that is not representable
        values[at] = s.data

    def split(self, low: Array) -> tuple[Array | float, Array]:
        """Return (1 − w)·low and w·low on the support: the part of low that stays, and the rest."""
        if self.weights is None:
            return 0.0, low
        taken = (self.weights * low).astype(low.dtype)
        return low - taken, taken

    def normalised(self, log_sums: Array) -> Support:
        """Return e^−log_sums exp(q·k): entries of softmax, given the log sums of the rows."""
        data = self.matrix.data - self._per_entry(log_sums)
        return Support(self._with(data.astype(self.matrix.dtype)))

    @property
    def nbytes(self) -> int:
        return super().nbytes + (0 if self.weights is None else self.weights.nbytes)

    def under(self, mask: Mask) -> Support:
        seen = masks.cut(self.matrix, mask)
        return self if seen is self.matrix else self._taken(seen, lambda s: masks.cut(s, mask))

    def rescaled(self, Q: Array, K: Array, row: Array, column: Array) -> Support:
        return Support(self._with(pattern_products.product(Q, K, self.matrix)), self.weights)

    def restricted(self, rows: Rows, cols: Rows) -> Support:
        return self._taken(_slice(self.matrix, rows, cols), lambda s: _slice(s, rows, cols))

    def _taken(
        self,
        matrix: scipy.sparse.csr_array,
        take: Callable[[scipy.sparse.csr_array], scipy.sparse.csr_array],
    ) -> Support:
        # a subset of the entries, and their weights in the same order
        return Support(
            matrix, None if self.weights is None else take(self._with(self.weights)).data
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Addition(Correction):
    """Values that are added to the low-rank part, stored at scale e^log."""

    log: float = 0.0
    replaces = False

    def row_log(self) -> Array:
        return np.full(self.matrix.shape[0], self.log)

    def scaled(self, shift: Array) -> scipy.sparse.csr_array:
        data = self.matrix.data.copy()
        counts = np.diff(self.matrix.indptr)
        return self._with(rescale(data, self.log - shift, counts=counts))

    def correct(self, values: Array, shift: Array) -> None:
        s = self.scaled(shift)
        values[coordinates(s)] += s.data

    def rescaled(self, Q: Array, K: Array, row: Array, column: Array) -> Addition:
        logs = self._per_entry(row) + column[self.matrix.indices]
        top = float(logs.max(initial=-np.inf)) if len(logs) else 0.0
        return Addition(self._with(self.matrix.data * np.exp(logs - top)), self.log + top)

    def restricted(self, rows: Rows, cols: Rows) -> Addition:
        return Addition(_slice(self.matrix, rows, cols), self.log)


def _slice(s: Any, rows: Rows, cols: Rows) -> scipy.sparse.csr_array:
    whole: scipy.sparse.csr_array = s
    n, l = whole.shape
    every = isinstance(cols, slice) and cols.indices(l) == (0, l, 1)
    if every and isinstance(rows, slice) and rows.indices(n) == (0, n, 1):
        return whole
    if isinstance(rows, slice) and isinstance(cols, slice) and {rows.step, cols.step} <= {None, 1}:
        (begin, end, _), (first, last, _) = rows.indices(n), cols.indices(l)
        indptr = s.indptr[begin : max(begin, end) + 1]
        some = slice(indptr[0], indptr[-1])
        indices = s.indices[some]
        if not first and indices.max(initial=-1) < last:  # SciPy would look at each index
            shape = len(indptr) - 1, last
            return scipy.sparse.csr_array((s.data[some], indices, indptr - indptr[0]), shape=shape)
        return scipy.sparse.csr_array(s[rows, cols])  # one pass; SciPy fails for other steps
    entries: scipy.sparse.csr_array = s[rows] if every else s[rows][:, cols]
    return entries
