"""Factors whose entries are exponentials, built tile by tile for wide products, else stored.

    φ(q)_r = exp(σ ω_r·a + level_r − |a|²/2 + row)
    φ(k)_r = exp(σ ω_r·b + level_r − |b|²/2 + column)

with σ = 1, or for two columns per frequency σ = ±1. The largest exponents, one per query row and
one for all keys, are subtracted while a tile is in the processor's cache, without a pass of its
own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from approx import checks
from approx.checks import Array, Given
from approx.estimate import memory
from approx.estimate.low import (
    Factors,
    Features,
    Low,
    Rows,
    ScaledFactors,
    beside_ones,
    divide_by_last,
)
from approx.estimate.masks import ALL, Mask
from approx.kernels.elementary import exp, exp_rows, largest
from approx.kernels.jit import kernel, summing_kernel

TILE = 2**17  # entries, which take a megabyte in float64


class Side(NamedTuple):
    """Points x (rows, d), and the numbers added to all logs of a row, (rows,) or 0."""

    x: Array
    extra: Array | float


@summing_kernel
def _maxima_and_squares(log: Any, x: Any, top: Any, half: Any) -> None:
    for i in range(log.shape[0]):
        point = x[i]
        top[i] = largest(log[i])
        total = x.dtype.type(0)
        for j in range(point.size):
            total += point[j] * point[j]
        half[i] = total / 2


@kernel
def _exp_into(log: Any, shift: Any, out: Any) -> None:
    for i in range(log.shape[0]):
        source, target, c = log[i], out[i], shift[i]
        for j in range(source.size):
            target[j] = exp(source[j] - c)


def maxima_and_half_squares(log: Array, x: Array) -> tuple[Array, Array]:
    """Return the largest entry of each row of `log`, and |x|²/2 of each row; both C-contiguous."""
    top, half = np.empty(len(log), log.dtype), np.empty(len(log), x.dtype)
    _maxima_and_squares(log, x, top, half)
    return top, half


def tiles(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of rows that fit into the processor's cache."""
    for start in range(0, rows, _height(columns)):
        yield slice(start, min(start + _height(columns), rows))


def _height(columns: int) -> int:
    return max(1, TILE // columns)


@dataclasses.dataclass(frozen=True, eq=False)
class Exponentials(Low):
    """φ(Q) φ(K)ᵀ, where the features are exponentials of linear functions.

    Parameters
    ----------
    queries, keys : Side
    omega : (count, d)
    level : (count,) or (2 count,)
        With two levels per frequency, the second half of the columns belongs to −ω.

    Notes
    -----
    A product with V of c ≥ d/2 columns, as in attention, builds both factors tile by tile and
    discards them, which is cheaper than writing and reading them. Entries, and narrower products,
    which algorithms repeat, use factors that are built once and stored.
    """

    queries: Side
    keys: Side
    omega: Array
    level: Array

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.queries.x), len(self.keys.x)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.omega.dtype

    @property
    def rank(self) -> int:
        return len(self.level)

    @property
    def nbytes(self) -> int:
        held = [*self.queries, *self.keys, self.omega, self.level]
        own = sum(int(x.nbytes) for x in held if isinstance(x, np.ndarray))
        built = (vars(self).get(name) for name in ("_factors", "_keyed"))
        return own + sum(int(factors.nbytes) for factors in built if factors)

    @functools.cached_property
    def _across(self) -> Array:
        return np.ascontiguousarray(self.omega.T)  # BLAS packs this faster for every tile

    def _logs(self, side: Side) -> Iterator[tuple[slice, Array, Array, Array]]:
        # yields rows, their logs without the common term of a row, the largest, the common term
        count, x = len(self.omega), side.x
        common = bool((self.level == self.level[0]).all())
        extra = np.broadcast_to(side.extra + (self.level[0] if common else 0), len(x))
        buffer = np.empty((min(len(x), _height(self.rank)), self.rank), self.dtype)
        for rows in tiles(len(x), self.rank):
            tile = buffer[: rows.stop - rows.start]
            np.matmul(x[rows], self._across, out=tile[:, :count])
            if self.rank > count:
                np.negative(tile[:, :count], out=tile[:, count:])
            if not common:
                tile += self.level
            top, half = maxima_and_half_squares(tile, x[rows])
            yield rows, tile, top, (extra[rows] - half).astype(self.dtype)

    def log_features(self, side: Side) -> Array:
        """Return the logs of the features of the queries or keys, (rows, rank)."""
        return np.concatenate([log + rest[:, None] for _, log, _, rest in self._logs(side)])

    def query_features(self, out: Array | None = None) -> tuple[Array, Array]:
        """Return φ(Q) (n, rank) divided by the largest entry of each row, and its log (n,).

        ``out`` is where to write, C-contiguous and of the dtype of omega. A new array is slower,
        because its pages have to be allocated.
        """
        n = self.shape[0]
        if out is None:
            nbytes = n * self.rank * self.dtype.itemsize
            memory.reserve(nbytes, f"factors of {self.rank} columns", "m or n")
        out = checks.out(out, (n, self.rank), self.dtype)
        row_log = np.empty(n, self.dtype)
        for rows, log, top, rest in self._logs(self.queries):
            _exp_into(log, top, out[rows])
            row_log[rows] = top + rest
        return out, row_log

    def prepare(self) -> Factors:
        """Build both factors; the largest entry is 1 in each row of left, and in all of right."""
        return self._factors

    def _reserve(self) -> None:
        n, l = self.shape
        nbytes = (self.rank * (n + l) + n + l) * self.dtype.itemsize
        memory.reserve(nbytes, f"factors of {self.rank} columns", "m, n or l")

    def keyed(self) -> Factors:
        return self._keyed

    @functools.cached_property
    def _keyed(self) -> Factors:
        self._reserve()
        sides = []
        for side in (self.queries, self.keys):
            values = np.empty((len(side.x), self.rank), self.dtype)
            logs = np.empty(len(side.x), self.dtype)
            for rows, log, top, rest in self._logs(side):
                _exp_into(log, top, values[rows])
                logs[rows] = top + rest
            sides.append((values, logs))
        (left, row_logs), (right, column_logs) = sides
        return Factors.by_key(left, right, row_logs, column_logs)

    def features(self, columns: int) -> Features:
        if 2 * columns < self.omega.shape[1] or "_keyed" in vars(self):
            return self._keyed.features(columns)

        def rows_of(side: Side) -> Callable[[slice], tuple[Array, Array]]:
            extra = np.broadcast_to(side.extra, len(side.x))

            def build(rows: slice) -> tuple[Array, Array]:
                ((_, log, top, rest),) = self._logs(Side(side.x[rows], extra[rows]))
                exp_rows(log, top)
                return log, top + rest

            return build

        height = _height(self.rank)
        return Features(rows_of(self.queries), rows_of(self.keys), self.rank, self.dtype, height)

    @functools.cached_property
    def _factors(self) -> Factors:
        l, dtype = self.shape[1], self.dtype
        self._reserve()
        left, row_log = self.query_features()
        right, tops, rests = np.empty((l, self.rank), dtype), np.empty(l, dtype), np.empty(l, dtype)
        for rows, log, top, rest in self._logs(self.keys):
            right[rows], tops[rows], rests[rows] = log, top, rest
        key_log = (tops + rests).max()
        # key_log − rest ≥ top, up to the rounding of |x|²/2
        exp_rows(right, np.maximum(key_log - rests, tops))
        return Factors(left, right, row_log + key_log)

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        return self._factors.row_log(rows)

    def block(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        return self._factors.block(rows, cols, shift, out=out)

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        return self._factors.at(pattern, shift)

    def matmat(self, V: Array) -> tuple[Array, Array]:
        if self._is_narrow(V):
            return self._factors.matmat(V)
        total, key_log = self._key_sums(V)
        n, dtype = self.shape[0], np.result_type(self.dtype, V)
        y, row_log = np.empty((n, V.shape[1]), dtype), np.empty(n, dtype)
        for rows, log, top, rest in self._logs(self.queries):
            exp_rows(log, top)
            y[rows], row_log[rows] = log @ total, top + rest + key_log
        return y, row_log

    def attend(self, V: Array) -> Array:
        """Return D⁻¹ φ(Q) (φ(K)ᵀ V); each tile of rows is divided while it is in the cache."""
        if self._is_narrow(V):
            return self._factors.attend(V)
        total, _ = self._key_sums(V, beside_ones)
        y = np.empty((self.shape[0], V.shape[1]), self.dtype)
        for rows, log, top, _ in self._logs(self.queries):
            exp_rows(log, top)
            divide_by_last(log @ total, out=y[rows])
        return y

    def _is_narrow(self, V: Array) -> bool:
        return bool(2 * V.shape[1] < self.omega.shape[1])

    def _key_sums(
        self, V: Array, prepared: Callable[[Array], Array] = np.asarray
    ) -> tuple[Array, float]:
        """Return φ(K)ᵀ V, applying `prepared` to each tile of V, and the log of its scale."""
        total: Any = 0.0
        key_log = -np.inf
        for rows, log, top, rest in self._logs(self.keys):
            largest = max(key_log, float((top + rest).max()))
            exp_rows(log, np.maximum(self.dtype.type(largest) - rest, top))
            total = total * self.dtype.type(np.exp(key_log - largest))
            total += prepared(V[rows]).T @ log  # BLAS is faster if the odd side is the short one
            key_log = largest
        return total.T, key_log

    def rmatmat(self, W: Array, row_log: Array) -> Array:
        return self._factors.rmatmat(W, row_log)

    def scaled_factors(self) -> ScaledFactors:
        return self._factors.scaled_factors()

    def rescaled(self, row: Array, column: Array) -> Exponentials:
        (x, extra), (y, other) = self.queries, self.keys
        return dataclasses.replace(self, queries=Side(x, extra + row), keys=Side(y, other + column))


def exponentials(
    phi_q: Array, phi_k: Array, half: Array, mask: Mask | None = None, dtype: Any = None
) -> Factors:
    """Return e^{log φ + half} of both sides without their largest exponents; overwrite the logs.

    All keys share one exponent. Under a mask each key has one, which stays separate where the keys
    are too far apart for the dtype of the factors.
    """
    phi_q += np.tile(half, phi_q.shape[1] // len(half))
    phi_k += np.tile(half, phi_k.shape[1] // len(half))
    if mask is not None and not mask.is_full:
        logs = []
        for phi in (phi_q, phi_k):
            top = phi.max(axis=1)
            top[np.isneginf(top)] = 0  # rows whose features are all 0
            exp_rows(phi, top)
            logs.append(top)
        return Factors.by_key(phi_q, phi_k, logs[0], logs[1], dtype)
    row_log, key_log = phi_q.max(axis=1), phi_k.max()
    row_log[np.isneginf(row_log)] = 0  # rows whose features are all 0
    key_log = key_log if np.isfinite(key_log) else np.zeros_like(key_log)
    exp_rows(phi_q, row_log)
    exp_rows(phi_k, np.full(len(phi_k), key_log))
    return Factors(phi_q, phi_k, row_log + key_log)
