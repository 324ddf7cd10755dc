"""The dense part under a mask: the entries that are seen, and products in time linear in n + l.

Products with factors φ(Q) ψ(K)ᵀ go through chunks of `CHUNK` keys, for tiles of `CHUNK` queries.
The chunks that all queries of a tile see share one sum Σ_j ψ(k_j) v_jᵀ; the few keys at the ends of
the queries' intervals are taken one by one:

    y_i = φ(q_i)·(Σ_{j in whole chunks} ψ(k_j) v_jᵀ) + Σ_{j at the ends} (φ(q_i)·ψ(k_j)) v_jᵀ.

Every key has its own scale e^column_log_j, and each sum has the scale of its largest key. The scale
of a query is the largest that it sees. So a key that it does not see cannot make its row underflow;
otherwise the future would leak through the scale. No sum is ever subtracted from another.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
import scipy.sparse

from approx.checks import Array, Given
from approx.estimate import exact, memory
from approx.estimate.low import Factors, FeatureRows, Features, Low, Rows, ScaledFactors, rescale
from approx.estimate.masks import ALL, Mask
from approx.kernels.elementary import exp
from approx.kernels.jit import kernel

CHUNK = 64  # keys: longer chunks need more work at the ends of intervals, shorter ones more calls
PIECE = 4096  # the most keys at the end of an interval that are multiplied at once
MOST_KEPT = 16  # stretches of rows, a megabyte each


@kernel
def _largest_seen(column_log: Any, left: int, first: Any, stop: Any, top: Any) -> None:
    # top[i] = max(top[i], max of the logs of keys left + j that row i sees)
    for i in range(top.size):
        most = top[i]
        for j in range(max(first[i] - left, 0), min(stop[i] - left, column_log.size)):
            most = max(most, column_log[j])
        top[i] = most


@kernel
def _weigh(values: Any, column_log: Any, left: int, first: Any, stop: Any, top: Any) -> None:
    # values[i, j] · e^(column_log[j] − top[i]) where row i sees key left + j, else 0; in two steps,
    # because a small value may have a scale that is not representable
    half = values.dtype.type(0.5)
    for i in range(values.shape[0]):
        row, c = values[i], top[i]
        a = min(max(first[i] - left, 0), row.size)
        z = max(min(stop[i] - left, row.size), a)
        for j in range(a):
            row[j] = 0.0
        for j in range(a, z):
            root = exp(half * (column_log[j] - c))
            row[j] = row[j] * root * root
        for j in range(z, row.size):
            row[j] = 0.0


class _Kept:
    """Rows of features, computed `height` at a time; the latest stretches are kept."""

    def __init__(self, make: FeatureRows, count: int, height: int, span: int = 0) -> None:
        self.make, self.count, self.height = make, count, height
        self.most = min(2 + span // height, MOST_KEPT)  # stretches
        self.kept: dict[int, tuple[Array, Array]] = {}

    def _stretch(self, index: int) -> tuple[Array, Array]:
        if index not in self.kept:
            while len(self.kept) >= self.most:
                del self.kept[next(iter(self.kept))]
            start = index * self.height
            values, logs = self.make(slice(start, min(start + self.height, self.count)))
            self.kept[index] = values, logs
        return self.kept[index]

    def __call__(self, start: int, stop: int) -> tuple[Array, Array]:
        """Return the values and log scales of the rows start … stop − 1."""
        parts = []
        for index in range(start // self.height, (stop - 1) // self.height + 1):
            values, logs = self._stretch(index)
            begin = index * self.height
            rows = slice(max(start - begin, 0), stop - begin)
            parts.append((values[rows], logs[rows]))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([v for v, _ in parts]), np.concatenate([g for _, g in parts])


Sum = tuple[Array, Any]  # Σ_j v_j ψ(k_j)ᵀ, (c, rank), at the scale e^log


def _chunk_sum(keys: _Kept, V: Array, index: int) -> Sum:
    start, stop = index * CHUNK, (index + 1) * CHUNK
    psi, column_log = keys(start, stop)
    top = column_log.max()
    weight = np.exp(column_log - top)
    return (V[start:stop] * weight[:, None]).T @ psi, top


def _merged(one: Sum, other: Sum) -> Sum:
    (x, a), (y, b) = one, other
    if a < b:
        (x, a), (y, b) = (y, b), (x, a)
    return x + y * x.dtype.type(np.exp(b - a)), a


class _Prefix:
    """Sums over the first chunks, for intervals that all begin at key 0 and end in order."""

    def __init__(self, keys: _Kept, V: Array, rank: int) -> None:
        self.keys, self.V, self.done, self.log = keys, V, 0, -np.inf
        self.total, self.one = np.zeros((2, V.shape[1], rank), V.dtype)

    def __call__(self, first: int, stop: int) -> Sum:
        for index in range(self.done, stop):
            start = index * CHUNK
            psi, column_log = self.keys(start, start + CHUNK)
            log = max(self.log, column_log.max())
            if log > self.log:
                self.total *= np.exp(self.log - log)
                self.log = log
            weighted = self.V[start : start + CHUNK] * np.exp(column_log - log)[:, None]
            self.total += np.matmul(weighted.T, psi, out=self.one)
        self.done = stop
        return self.total, self.log


class _Window:
    """Sums over a range of chunks whose two ends both move forward.

    The class is a queue made of two stacks. ``old`` holds the sums from each of its chunks to its
    last chunk, in reverse order; ``recent`` is the sum of the chunks after these. When the range
    leaves the old chunks, the recent chunks become the old ones. So each chunk is added three
    times, for any length of the range.
    """

    def __init__(self, keys: _Kept, V: Array, rank: int, longest: int) -> None:
        nbytes = 2 * longest * rank * V.shape[1] * V.itemsize
        memory.reserve(nbytes, "sums of chunks of keys", "m or the keys that a query sees")
        self.keys, self.V = keys, V
        self.old: list[Sum] = []
        self.chunks: list[Sum] = []  # the recent ones
        self.recent: Sum | None = None
        self.stop = 0  # of the recent chunks

    def __call__(self, first: int, stop: int) -> Sum:
        self.stop = max(self.stop, first) if not (self.old or self.chunks) else self.stop
        for index in range(self.stop, stop):
            one = _chunk_sum(self.keys, self.V, index)
            self.chunks.append(one)
            self.recent = one if self.recent is None else _merged(self.recent, one)
        self.stop = max(self.stop, stop)
        gone = first - (self.stop - len(self.chunks) - len(self.old))
        if gone >= len(self.old):  # no old chunk is left: the recent ones become old
            chunks = self.chunks[gone - len(self.old) :]
            self.old = list(itertools.accumulate(reversed(chunks), _merged))
            self.chunks, self.recent = [], None
        elif gone:
            del self.old[-gone:]
        if self.recent is None:
            return self.old[-1]
        return _merged(self.old[-1], self.recent)


def matmat(features: Features, first: Array, stop: Array, V: Array) -> tuple[Array, Array]:
    """Return (y, log) with e^log_i y_i = Σ_{first_i ≤ j < stop_i} (low)_ij v_j, for V (l, c).

    Parameters
    ----------
    features : Features
        The factors of low.
    first, stop : (n,)
        Intervals of keys, both ends nondecreasing. The interval of a row may be empty.
    V : (l, c)

    Notes
    -----
    Cost: O((n + l)·rank·c), and 2·CHUNK·(rank + c) operations per query at the ends of its
    interval. If not all begin at 0, 2·(chunks in the longest) sums of rank·c numbers are held.
    """
    n, l = len(first), len(V)
    dtype = np.result_type(features.dtype, V)
    longest = int((stop - first).max())
    queries = _Kept(features.query, n, features.height)
    keys = _Kept(features.key, l, features.height, longest if first.any() else 0)
    V = V.astype(dtype, copy=False)
    sums = (
        _Window(keys, V, features.rank, longest // CHUNK)
        if first.any()
        else _Prefix(keys, V, features.rank)
    )
    y, log = np.zeros((n, V.shape[1]), dtype), np.empty(n, features.dtype)
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        a, z = first[rows], stop[rows]
        phi, row_log = queries(rows.start, rows.stop)
        begin, end = -(-int(a.max()) // CHUNK), int(z.min()) // CHUNK  # chunks that all rows see
        ends = [(int(a.min()), int(z.max()))]
        total, total_log = None, -np.inf
        if begin < end:
            total, total_log = sums(begin, end)
            ends = [(ends[0][0], begin * CHUNK), (end * CHUNK, ends[0][1])]
        pieces = [
            (left, min(left + PIECE, last))
            for first_left, last in ends
            for left in range(first_left, last, PIECE)
        ]
        top = np.full(len(a), total_log, features.dtype)
        for left, right in pieces:
            _largest_seen(keys(left, right)[1], left, a, z, top)
        top[np.isneginf(top)] = 0  # rows that see nothing
        if total is not None:
            np.matmul(phi, total.T, out=y[rows])
            y[rows] *= np.exp(total_log - top)[:, None]
        for left, right in pieces:
            psi, column_log = keys(left, right)
            values = phi @ psi.T
            _weigh(values, column_log, left, a, z, top)
            y[rows] += values @ V[left:right]
        log[rows] = row_log + top
    return y, log


@dataclasses.dataclass(frozen=True, eq=False)
class Masked(Low):
    """A dense part whose entries are 0 where a query does not see a key.

    Parameters
    ----------
    low : Low
        The part as `Low.seeing` returns it: a query's scale depends only on the keys it sees.
    mask : Mask
    """

    low: Low
    mask: Mask

    @property
    def zero_outside(self) -> Mask:
        return self.mask

    @property
    def shape(self) -> tuple[int, int]:
        return self.low.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.low.dtype

    @property
    def rank(self) -> int:
        return self.low.rank

    @property
    def parameters(self) -> int:
        return self.low.parameters

    @property
    def nbytes(self) -> int:
        shared = self.low.zero_outside is self.mask
        bounds = 0 if shared else self.mask.first.nbytes + self.mask.stop.nbytes
        return self.low.nbytes + bounds

    @property
    def elementwise(self) -> bool:
        return self.low.elementwise

    def prepare(self) -> Masked:
        return self._prepared

    @functools.cached_property
    def _prepared(self) -> Masked:
        return Masked(self.low.keyed() or self.low.prepare(), self.mask)

    @functools.cached_property
    def _row_logs(self) -> Array:
        factors = self.low.keyed()
        if factors is None:
            return self.low.row_log()
        if factors.column_logs is None:
            return factors.row_logs
        return np.asarray(factors.row_logs + self.mask.maximum(factors.column_logs))

    def row_log(self, rows: Rows = ALL, logits: Array | None = None) -> Array:
        if logits is not None and self.elementwise:
            return self.low.row_log(rows, logits)
        return self._row_logs[rows]

    def block(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        """Return low[rows, cols] · exp(−shift), 0 where unseen; only the seen span is computed."""
        if not isinstance(cols, slice) or cols.step not in (None, 1):
            return self._block(rows, cols, shift, logits, out)
        begin, end, _ = cols.indices(self.shape[1])
        end = max(begin, end)
        span = self.mask.span(rows)
        first, stop = max(begin, span.start), min(end, span.stop)
        if (first, stop) == (begin, end):
            return self._block(rows, cols, shift, logits, out)
        if out is None:
            out = np.empty((len(shift), end - begin), self.dtype)
        stop = max(first, stop)
        seen = slice(first - begin, stop - begin)
        out[:, : seen.start] = 0
        out[:, seen.stop :] = 0
        if first < stop:
            given = None if logits is None else logits[:, seen]
            out[:, seen] = self._block(rows, slice(first, stop), shift, given)
        return out

    def _block(
        self, rows: Rows, cols: Rows, shift: Array, logits: Given = None, out: Given = None
    ) -> Array:
        factors = self.low.keyed()
        if factors is None or factors.column_logs is None:
            values = self.low.block(rows, cols, shift, logits, out)
            self.mask.hide(values, rows, cols)
            return values
        with np.errstate(over="ignore", invalid="ignore"):  # rescale raises
            values = np.matmul(factors.left[rows], factors.right[cols].T, out=out)
        column_log, top = factors.column_logs[cols], shift - factors.row_logs[rows]
        if isinstance(cols, slice) and cols.step in (None, 1):
            begin = cols.indices(self.shape[1])[0]
            first, stop = self.mask.first[rows], self.mask.stop[rows]
            _weigh(values, column_log, begin, first, stop, top)
        else:
            half = (column_log - top[:, None]) / 2
            self.mask.hide(half, rows, cols, fill=-np.inf)
            self.mask.hide(values, rows, cols)
            with np.errstate(over="ignore", invalid="ignore"):
                root = np.exp(half)
                values *= root
                values *= root
        return rescale(values, np.zeros(1))

    def at(self, pattern: scipy.sparse.csr_array, shift: Array) -> Array:
        factors = self.low.keyed()
        if factors is None:
            return self.low.at(pattern, shift)
        return factors.at(pattern, shift)

    def matmat(self, V: Array) -> tuple[Array, Array]:
        features = self._features(V.shape[1])
        if features is not None:
            return matmat(features, self.mask.first, self.mask.stop, V)
        if self.low.zero_outside == self.mask:
            return self.low.matmat(V)
        row_log = self.row_log()
        y = np.empty((self.shape[0], V.shape[1]), np.result_type(self.dtype, V))
        for rows in exact.stripes(*self.shape):
            cols = self.mask.span(rows)
            y[rows] = self.block(rows, cols, row_log[rows]) @ V[cols]
        return y, row_log

    def rmatmat(self, W: Array, row_log: Array) -> Array:
        features = self._features(W.shape[1])
        if features is None:
            return super().rmatmat(W, row_log)
        shifted = features.query

        def query(rows: slice) -> tuple[Array, Array]:
            values, logs = shifted(rows)
            return values, logs - row_log[rows]

        exchanged = features._replace(query=features.key, key=query)
        return rescale(*matmat(exchanged, *self.mask.transposed(), W))

    def _features(self, columns: int) -> Features | None:
        return self.low.features(columns) if self.mask.is_ordered else None

    def scaled_factors(self) -> ScaledFactors:
        """Return the factors before the mask."""
        return self.low.scaled_factors()

    def rescaled(self, row: Array, column: Array) -> Masked:
        return Masked(self.low.rescaled(row, column), self.mask)


def under(low: Low, mask: Mask) -> Low:
    """Return the dense part under a mask; itself if it is already 0 outside the mask.

    Under a full mask, factors get one scale for all keys.
    """
    if low.zero_outside is not None and low.zero_outside.is_within(mask):
        return low
    if not mask.is_full:
        return Masked(low.seeing(mask), mask)
    if isinstance(low, Factors) and low.column_logs is not None:
        return Factors(*low.scaled_factors())
    return low
