"""The dense part of an estimate diag(e^row_log) · (low ⊕ S).

`Low` is the base class of `Factors` and `Dense`, of polynomials of the logits
(`approx.polynomials`), and of exponentials built on demand (`approx.random_features`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from approx.checks import Array, Given
from approx.estimate import exact, memory
from approx.estimate.masks import ALL, Mask
from approx.kernels import pattern_products
from approx.kernels.pattern_products import coordinates

Rows = slice | Array
FeatureRows = Callable[[slice], tuple[Array, Array]]


CLOSE, CLOSE_32 = 100.0, 20.0  # logs: e^−100 of a row's scale is far above the least number, e^−745


class ScaledFactors(NamedTuple):
    """The factors of diag(e^row_log) left rightᵀ, of shapes (n, r), (l, r) and (n,)."""

    left: Array
    right: Array
    row_log: Array


class Features(NamedTuple):
    """The factors of a dense part, whose rows are computed on demand, each at its own scale.

    Attributes
    ----------
    query, key : callable
        Maps a slice of rows to φ(q) or ψ(k), (rows, rank), and their log scales (rows,).
    rank : int
    dtype : numpy dtype
    height : int
        The number of rows that are best computed at once.
    """

    query: FeatureRows
    key: FeatureRows
    rank: int
    dtype: Any
    height: int


def rescale(
    values: Array,
    log_scale: Array,
    what: str = "an entry of the estimate",
    *,
    counts: Array | None = None,
    log_most: float = math.inf,
) -> Array:
    """Multiply row i by e^log_scale[i] in place, in three steps if e^log_scale overflows.

    With ``counts``, ``values`` is a vector that has counts[i] values of row i, one row after the
    other. ``log_most`` bounds the log of every |value| and of the partial sums behind it. If
    e^log_most is representable before and after scaling, the results are not checked.

    Raises
    ------
    OverflowError
        A result is not representable.
    """
    if np.any(log_scale):
        most = math.log(np.finfo(values.dtype).max) - 2  # e^most and e^-most are both normal
        steps = 1 if np.abs(log_scale).max() <= most else 3
        exponent = np.clip(np.asarray(log_scale, np.float64) / steps, -most, most)
        column = np.exp(exponent).astype(values.dtype)
        if counts is None:
            column = column.reshape(-1, *(1,) * (values.ndim - 1))
        else:
            column = np.repeat(column, counts)
        with np.errstate(over="ignore", under="ignore"):
            for _ in range(steps):
                values *= column
    top = float(np.max(log_scale, initial=-np.inf))
    if log_most < math.inf and log_most + max(top, 0) < math.log(np.finfo(values.dtype).max) - 1:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()  # one pass without a mask; finite only if every term is finite
    if not np.isfinite(total) and not np.isfinite(values).all():
        raise OverflowError(
            f"{what} is not representable in {values.dtype} (scale e^{top:.6g}): "
            f"use scaled_factors(), attend(), or block(shift=...)"
        )
    return values


def beside_ones(V: Array) -> Array:
    """Return [V, 1]: the last column of A [V, 1] has the row sums of A."""
    return np.hstack([V, np.ones((len(V), 1), V.dtype)])


def add_sink(y: Array, row_log: Array, sink: float) -> Array:
    """Return rows of diag(e^row_log) y with e^sink added to the last column, each at some scale."""
    top = np.maximum(row_log, sink)
    y = y * np.exp(row_log - top)[:, None]
    y[:, -1] += np.exp(sink - top)
    return y


def divide_by_last(y: Array, out: Array | None = None) -> Array:
    """Return the other columns of y divided by the last; a row where the last is ≤ 0 becomes 0."""
    total = y[:, -1:]
    empty = ~(total > 0)
    out = np.divide(y[:, :-1], np.where(empty, 1, total), out=out)
    out[empty[:, 0]] = 0
    return out


class Low(ABC):
    """The dense part of an estimate, as factors or as rows on demand.

    A subclass defines its entries by `block`. Products are computed from stripes of rows that
    `block` returns, unless the subclass has a cheaper way.
    """

    @property
    def zero_outside(self) -> Mask | None:
        """The mask outside which all entries are 0 already; None if there is no such mask."""
        return None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The shape, (n, l)."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the entries."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of columns of the factors."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the arrays held now, including those that `prepare` has built."""

    @property
    def elementwise(self) -> bool:
        """Whether `row_log` and `block` use logits that are given to them."""
        return False

    @property
    def parameters(self) -> int:
        """Number of stored values, rank·(n + l)."""
        return self.rank * sum(self.shape)

    def seeing(self, mask: Mask) -> Low:
        """Return this part with scales that depend only on the keys that a query sees."""
        return self

    def keyed(self) -> Factors | None:
        """Return stored factors with a scale per key; None if there are no factors."""
        return None

    def features(self, columns: int) -> Features | None:
        """Return factors for a product under a mask; None if row stripes are cheaper."""
        return None

    def prepare(self) -> Low:
        """Build the arrays for entries and repeated products; return the part that holds them."""
        return self

    @abstractmethod
    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        """Return a log scale per row, at which its entries are at most about ``rank``."""

    @abstractmethod
    def block(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        """Return low[rows, cols] · exp(−shift), C-contiguous, in ``out`` or a new array."""

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        """Return low[i, j] · exp(−shift[i]) for the entries of a pattern."""
        entries = [
            self.block(rows, ALL, shift[rows])[coordinates(pattern[rows])]
            for rows in exact.stripes(*self.shape)
        ]
        return np.concatenate([*entries, np.empty(0, self.dtype)])

    def matmat(self, V: Array) -> tuple[Array, Array]:
        """Return (y, row_log) with low @ V = diag(e^row_log) y."""
        row_log = self.row_log()
        y = np.empty((self.shape[0], V.shape[1]), np.result_type(self.dtype, V))
        for rows in exact.stripes(*self.shape):
            y[rows] = self.block(rows, ALL, row_log[rows]) @ V
        return y, row_log

    def rmatmat(self, W: Array, row_log: Array) -> Array:
        """Return (diag(e^−row_log) low)ᵀ W."""
        y = np.zeros((self.shape[1], W.shape[1]), np.result_type(self.dtype, W))
        for rows in exact.stripes(*self.shape):
            y += self.block(rows, ALL, row_log[rows]).T @ W[rows]
        return y

    def attend(self, V: Array) -> Array:
        """Return D⁻¹ low V, with D the row sums; rows whose sum is ≤ 0 give 0."""
        return divide_by_last(self.matmat(beside_ones(V))[0])

    @abstractmethod
    def scaled_factors(self) -> ScaledFactors:
        """Return the factors; raise ResourceLimitError first if they are too wide to allocate."""

    @abstractmethod
    def rescaled(self, row: Array, column: Array) -> Low:
        """Return diag(e^row) low diag(e^column)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Factors(Low):
    """The matrix diag(e^row_logs) left rightᵀ diag(e^column_logs), with stored factors.

    Only factors under a mask have column_logs, a log scale per key, and only `Masked` uses them. An
    `Approximation` without a mask merges them into ``right``.
    """

    left: Array
    right: Array
    row_logs: Array
    column_logs: Array | None = None

    @classmethod
    def scaled(
        cls,
        left: Array,
        right: Array,
        row_logs: Array,
        column_logs: Array,
        mask: Mask,
        log: float = 0.0,
        dtype: Any = None,
    ) -> Factors:
        """Return e^log diag(e^row_logs) left rightᵀ diag(e^column_logs), all keys at one scale.

        Under a mask each key keeps its own scale, so that no query sees the scale of a later key.
        """
        if not mask.is_full:
            logs = row_logs + row_logs.dtype.type(log)
            return cls.by_key(left, right, logs, column_logs, dtype)
        top = column_logs.max()
        scale = row_logs + (top + log).astype(row_logs.dtype)
        return cls(left, right * np.exp(column_logs - top)[:, None], scale)

    @classmethod
    def empty(cls, n: int, l: int, dtype: Any) -> Factors:
        """Return the zero matrix, as factors without columns."""
        return cls(np.zeros((n, 0), dtype), np.zeros((l, 0), dtype), np.zeros(n, dtype))

    @classmethod
    def constant(cls, row_log: Array, l: int) -> Factors:
        """Return the matrix whose entries in row i are all e^row_log[i]."""
        one = np.ones((len(row_log), 1), row_log.dtype)
        return cls(one, np.ones((l, 1), row_log.dtype), row_log)

    @classmethod
    def by_key(
        cls,
        left: Array,
        right: Array,
        row_logs: Array,
        column_logs: Array,
        dtype: Any = None,
    ) -> Factors:
        """Return diag(e^row_logs) left rightᵀ diag(e^column_logs); may scale ``right`` in place.

        Each key keeps its own scale, unless the scales are so close that none of them makes
        another underflow, also in ``dtype``, which the factors will have later.
        """
        top = column_logs.max()
        narrow = np.float32 in (right.dtype, dtype)
        if top - column_logs.min() > (CLOSE_32 if narrow else CLOSE):
            return cls(left, right, row_logs, column_logs)
        right *= np.exp(column_logs - top)[:, None]
        return cls(left, right, row_logs + top)

    @classmethod
    def joined(cls, parts: list[Factors]) -> Factors:
        """Return the sum of the parts, as their columns side by side at the largest scales."""
        row_logs = np.max([part.row_logs for part in parts], axis=0)
        left = [rescale(part.left.copy(), part.row_logs - row_logs) for part in parts]
        right = [part.right for part in parts]
        if all(part.column_logs is None for part in parts):
            return cls(np.hstack(left), np.hstack(right), row_logs)
        zeros = np.zeros(len(right[0]), row_logs.dtype)
        logs = [zeros if part.column_logs is None else part.column_logs for part in parts]
        column_logs = np.max(logs, axis=0)
        right = [x * np.exp(log - column_logs)[:, None] for x, log in zip(right, logs)]
        return cls(np.hstack(left), np.hstack(right), row_logs, column_logs)

    def astype(self, dtype: Any) -> Factors:
        """Return these factors in another dtype, C-contiguous."""
        left, right = (x.astype(dtype, order="C") for x in (self.left, self.right))
        columns = None if self.column_logs is None else self.column_logs.astype(dtype)
        return Factors(left, right, self.row_logs.astype(dtype), columns)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), len(self.right)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.left.dtype

    @property
    def rank(self) -> int:
        return int(self.left.shape[1])

    @property
    def nbytes(self) -> int:
        arrays = self.left, self.right, self.row_logs, self.column_logs
        return sum(x.nbytes for x in arrays if x is not None)

    @functools.cached_property
    def _log_most(self) -> float:
        # An upper bound of log |left rightᵀ| and of its partial sums: −inf if there are no columns,
        # inf if checking the entries is cheaper.
        if self.rank * sum(self.shape) > math.prod(self.shape):
            return math.inf
        sizes = [max(x.max(initial=0), -x.min(initial=0)) for x in (self.left, self.right)]
        with np.errstate(divide="ignore"):
            return float(np.log([*sizes, self.rank]).sum())

    def keyed(self) -> Factors:
        return self

    def features(self, columns: int) -> Features:
        zeros = np.zeros(len(self.right), self.dtype)
        column_logs = zeros if self.column_logs is None else self.column_logs
        return Features(
            lambda rows: (self.left[rows], self.row_logs[rows]),
            lambda rows: (self.right[rows], column_logs[rows]),
            self.rank,
            self.dtype,
            max(self.shape),
        )

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        return np.asarray(self.row_logs[rows])

    def block(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # rescale raises
            values = np.matmul(self.left[rows], self.right[cols].T, out=out)
        return rescale(values, self.row_logs[rows] - shift, log_most=self._log_most)

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        entries = pattern_products.product(self.left, self.right, pattern)
        counts = np.diff(pattern.indptr)
        if self.column_logs is None:
            return rescale(entries, self.row_logs - shift, counts=counts)
        logs = np.repeat(self.row_logs - shift, counts) + self.column_logs[pattern.indices]
        return rescale(entries, logs)

    def matmat(self, V: Array) -> tuple[Array, Array]:
        return self.left @ (self.right.T @ V), self.row_logs

    def rmatmat(self, W: Array, row_log: Array) -> Array:
        return np.asarray(self.right @ (self.left.T @ rescale(W.copy(), self.row_logs - row_log)))

    def scaled_factors(self) -> ScaledFactors:
        if self.column_logs is None:
            return ScaledFactors(self.left, self.right, self.row_logs)
        top = self.column_logs.max()
        right = self.right * np.exp(self.column_logs - top)[:, None]
        return ScaledFactors(self.left, right, self.row_logs + top)

    def rescaled(self, row: Array, column: Array) -> Factors:
        if self.column_logs is not None:
            return dataclasses.replace(
                self, row_logs=self.row_logs + row, column_logs=self.column_logs + column
            )
        top = column.max()
        right = self.right * np.exp(column - top)[:, None]
        return Factors(self.left, right, self.row_logs + row + top)


@dataclasses.dataclass(frozen=True, eq=False)
class Dense(Low):
    """The matrix diag(e^row_logs) values, with every entry stored."""

    values: Array
    row_logs: Array

    @property
    def shape(self) -> tuple[int, int]:
        n, l = self.values.shape
        return n, l

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def rank(self) -> int:
        return min(self.shape)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.row_logs.nbytes)

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        return np.asarray(self.row_logs[rows])

    def block(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        values = np.positive(self.values[rows][:, cols], out=out, order="C")
        return rescale(values, self.row_logs[rows] - shift)

    def scaled_factors(self) -> ScaledFactors:
        n, l = self.shape
        nbytes = self.rank * (n + l) * self.dtype.itemsize
        memory.reserve(nbytes, "all rows and an identity", "n or l (or use block, @)")
        one = np.eye(self.rank, dtype=self.dtype)
        if l <= n:
            return ScaledFactors(self.values, one, self.row_logs)
        return ScaledFactors(one, np.ascontiguousarray(self.values.T), self.row_logs)

    def rescaled(self, row: Array, column: Array) -> Dense:
        top = column.max()
        return Dense(self.values * np.exp(column - top), self.row_logs + row + top)
