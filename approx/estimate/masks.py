"""Masks: the interval of keys that each query sees."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Any

import numpy as np
import scipy.sparse

from approx import checks
from approx.checks import Array
from approx.kernels.jit import kernel

ALL = slice(None)


@kernel
def _fill(x: Any, first: Any, stop: Any, values: Any) -> None:
    for i in range(x.shape[0]):
        row, value = x[i], values[i]
        for j in range(first[i]):
            row[j] = value
        for j in range(stop[i], row.size):
            row[j] = value


@kernel
def _sees(first: Any, stop: Any, indptr: Any, indices: Any, seen: Any) -> None:
    for i in range(first.size):
        for p in range(indptr[i], indptr[i + 1]):
            seen[p] = first[i] <= indices[p] < stop[i]


@dataclasses.dataclass(frozen=True, eq=False)
class Mask:
    """The mask under which query i sees only the keys first_i ≤ j < stop_i.

    Parameters
    ----------
    first, stop : (n,) integers
        Every query must see a key: 0 ≤ first < stop ≤ l.
    l : int
        Number of keys.
    looks_back : bool, optional
        Whether the last key that a query sees is at the query's own position; windows then end
        there. By default true, unless all queries see all keys. `Mask.causal` sets it to true also
        for a single decoding query, which sees all keys.

    places : (n,) integers, optional
        The position of each query among the keys. By default the last key that the query sees if
        the mask looks back, else ⌊i·l/n⌋.

    Raises
    ------
    TypeError, ValueError
        The bounds are not integers of one shape, or a query sees no key or keys beyond l.

    Notes
    -----
    Masks of language models are such intervals: causal attention with n ≤ l (the queries are the
    last n positions), sliding windows, decoding, and any sample of their rows. Two masks are equal
    if the same queries see the same keys from the same positions.

    Examples
    --------
    >>> Mask([0, 0, 1], [1, 2, 3], l=3).visible().astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """

    first: Array
    stop: Array
    l: int
    looks_back: bool | None = None
    places: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "l", checks.integer("l", self.l, least=1))
        for name in ("first", "stop"):
            object.__setattr__(self, name, _bounds(name, getattr(self, name)))
        if self.first.shape != self.stop.shape:
            raise ValueError(
                "first and stop must have one entry per query, "
                f"got shapes {self.first.shape} and {self.stop.shape}"
            )
        for bad, what in (
            (self.first < 0, "first must be >= 0"),
            (self.stop > self.l, f"stop must be at most l={self.l}"),
            (self.first >= self.stop, "every query must see a key, first < stop"),
        ):
            if bad.any():
                i = int(np.argmax(bad))
                raise ValueError(
                    f"{what}, got first={self.first[i]}, stop={self.stop[i]} for query {i}"
                )
        back = not self.is_full if self.looks_back is None else self.looks_back
        object.__setattr__(self, "looks_back", checks.flag("looks_back", back))
        if self.places is not None:
            object.__setattr__(self, "places", _bounds("places", self.places))
            if self.places.shape != self.first.shape:
                raise ValueError(
                    f"places must have one entry per query, got shape {self.places.shape}"
                )
            if self.places.min() < 0 or self.places.max() >= self.l:
                raise ValueError(f"places must lie in [0, {self.l}), got {self.places.max()}")
            if np.array_equal(self.places, self._usual_places):
                object.__setattr__(self, "places", None)

    @classmethod
    def full(cls, n: int, l: int) -> Mask:
        """Return the mask under which every query sees every key."""
        return _full(*_sizes(n, l))

    @classmethod
    def causal(cls, n: int, l: int) -> Mask:
        """Return the mask of n queries at the last n of l positions, which see no later key.

        Raises
        ------
        ValueError
            n > l.

        Examples
        --------
        >>> Mask.causal(2, 3).stop
        array([2, 3])
        """
        n, l = _sizes(n, l)
        if n > l:
            raise ValueError(
                f"causal queries are the last n of l positions, so n must be <= l, got {n} and {l}"
            )
        return cls(np.zeros(n, np.intp), np.arange(l - n + 1, l + 1), l, looks_back=True)

    @classmethod
    def window(cls, n: int, l: int, width: int) -> Mask:
        """Return the sliding-window mask: each query sees the last ``width`` keys, own included.

        Examples
        --------
        >>> Mask.window(3, 3, width=2).first
        array([0, 0, 1])
        """
        width = checks.integer("width", width, least=1)
        stop = cls.causal(n, l).stop
        return cls(np.maximum(stop - width, 0), stop, l, looks_back=True)

    @property
    def n(self) -> int:
        """The number of queries."""
        return len(self.first)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape, (n, l)."""
        return self.n, self.l

    @functools.cached_property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        return not self.first.any() and bool((self.stop == self.l).all())

    @property
    def counts(self) -> Array:
        """The number of keys that each query sees, (n,)."""
        return self.stop - self.first

    @property
    def entries(self) -> int:
        """The number of pairs of a query and a key that it sees."""
        return int(self.counts.sum())

    @functools.cached_property
    def is_ordered(self) -> bool:
        """Whether both ``first`` and ``stop`` are nondecreasing."""
        return bool((np.diff(self.first) >= 0).all() and (np.diff(self.stop) >= 0).all())

    def is_within(self, other: Mask) -> bool:
        """Return whether each query sees all these keys under another mask, too."""
        return bool((self.first >= other.first).all() and (self.stop <= other.stop).all())

    @property
    def positions(self) -> Array:
        """The position of each query among the keys, (n,)."""
        return self._usual_places if self.places is None else self.places

    @property
    def _usual_places(self) -> Array:
        return self.stop - 1 if self.looks_back else np.arange(self.n) * self.l // self.n

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask):
            return NotImplemented
        return self.key == other.key and self.shape == other.shape

    def __hash__(self) -> int:
        return hash((self.key, self.shape))

    @functools.cached_property
    def key(self) -> str:
        """A text that identifies the mask in labels and stores: full, causal, or a digest."""
        if self.is_full and self.places is None:
            return "causal" if self.looks_back else "full"
        arrays = [x for x in (self.first, self.stop, self.places) if x is not None]
        bounds = np.stack(arrays).astype("<i8")
        digest = hashlib.sha256(bounds.tobytes()).hexdigest()[:12]
        return f"{digest} of {self.l}" + ("" if self.looks_back else " centred")

    def __str__(self) -> str:
        """Return the mask's name: full, causal, window(width), or intervals."""
        if self.is_full and not self.looks_back:
            return "full"
        if not self.looks_back:
            return "intervals"
        last = np.arange(self.l - self.n + 1, self.l + 1)
        if self.n <= self.l and np.array_equal(self.stop, last):
            if not self.first.any():
                return "causal"
            width = int(self.counts.max())
            if np.array_equal(self.first, np.maximum(last - width, 0)):
                return f"window({width})"
        return "intervals"

    def take(self, rows: slice | Array) -> Mask:
        """Return the mask of a subset of the queries, at their old positions."""
        kept = self.places is not None or not self.looks_back
        places = self.positions[rows] if kept else None
        return Mask(self.first[rows], self.stop[rows], self.l, self.looks_back, places)

    def span(self, rows: slice | Array = ALL) -> slice:
        """Return the slice from the first to the last key that any of the rows sees."""
        first, stop = self.first[rows], self.stop[rows]
        return slice(int(first.min(initial=self.l)), int(stop.max(initial=0)))

    def visible(self, rows: slice | Array = ALL, cols: slice | Array = ALL) -> Array:
        """Return whether each of the rows sees each of the columns, (rows, cols) bool."""
        keys = np.arange(self.l)[cols]
        return (self.first[rows, None] <= keys) & (keys < self.stop[rows, None])

    def hide(
        self,
        x: Array,
        rows: slice | Array = ALL,
        cols: slice | Array = ALL,
        fill: float | Array = 0.0,
    ) -> None:
        """Write ``fill``, one value or one per row, to the unseen entries of x, in place.

        x is matrix[rows, cols].
        """
        if self.is_full:
            return
        values = np.full(len(x), fill, x.dtype)
        if isinstance(cols, slice) and cols.step in (None, 1):
            begin, _, _ = cols.indices(self.l)
            first, stop = (np.clip(y[rows] - begin, 0, x.shape[1]) for y in (self.first, self.stop))
            _fill(x, first, stop, values)
        else:
            np.copyto(x, values[:, None], where=~self.visible(rows, cols))

    def maximum(self, x: Array) -> Array:
        """Return the largest of x (l,) among the keys that each query sees, (n,).

        Notes
        -----
        Cost: O(l log l + n). If all intervals begin at 0, a running maximum suffices. If not, each
        interval is the union of two overlapping ranges whose length is a power of two.
        """
        if not self.first.any():
            return np.asarray(np.maximum.accumulate(x)[self.stop - 1])
        levels = np.frexp(self.counts)[1] - 1  # ⌊log₂ count⌋
        out = np.empty(self.n, x.dtype)
        for level in range(int(levels.max()) + 1):
            if level:
                half = 1 << (level - 1)
                x = np.maximum(x[:-half], x[half:])  # over 2^level keys from each key on
            mine = levels == level
            last = self.stop[mine] - (1 << level)
            out[mine] = np.maximum(x[self.first[mine]], x[last])
        return out

    def transposed(self) -> tuple[Array, Array]:
        """Return (first, stop), each (l,): key j is seen by the queries first_j ≤ i < stop_j.

        A key that no query sees has an empty interval. The mask must be ordered.
        """
        assert self.is_ordered
        keys = np.arange(self.l)
        first = np.searchsorted(self.stop, keys, "right")
        return first, np.maximum(np.searchsorted(self.first, keys, "right"), first)


@functools.lru_cache(maxsize=64)  # one for each estimate of a Monte Carlo run
def _full(n: int, l: int) -> Mask:
    return Mask(np.zeros(n, np.intp), np.full(n, l), l, looks_back=False)


MaskLike = Mask | str | None


def as_mask(mask: MaskLike, n: int, l: int) -> Mask:
    """Return the `Mask` for None (full), "causal", or a `Mask`, which must have shape (n, l)."""
    if mask is None:
        return Mask.full(n, l)
    if isinstance(mask, str):
        if mask != "causal":
            raise ValueError(f'mask must be None, "causal" or a Mask, got {checks.display(mask)}')
        return Mask.causal(n, l)
    checks.instance("mask", mask, Mask, 'None, "causal" or a Mask')
    if mask.shape != (n, l):
        raise ValueError(
            f"the mask is for {mask.n} queries and {mask.l} keys, but there are {n} and {l}"
        )
    return mask


def cut(s: scipy.sparse.csr_array, mask: Mask) -> scipy.sparse.csr_array:
    """Return a CSR matrix with only its entries under the mask; itself if these are all."""
    if mask.is_full:
        return s
    if s.has_sorted_indices:  # then the first and the last entry of a row decide for all
        filled = np.flatnonzero(np.diff(s.indptr))
        least, most = s.indices[s.indptr[filled]], s.indices[s.indptr[filled + 1] - 1]
        if (mask.first[filled] <= least).all() and (most < mask.stop[filled]).all():
            return s
    seen = sees(s, mask)
    if seen.all():
        return s
    indptr = np.concatenate([[0], np.cumsum(seen)])[s.indptr].astype(s.indptr.dtype)
    return scipy.sparse.csr_array((s.data[seen], s.indices[seen], indptr), shape=s.shape)


def sees(s: scipy.sparse.csr_array, mask: Mask) -> Array:
    """Return which entries of a CSR matrix are seen, (nnz,) bool."""
    seen = np.empty(s.nnz, bool)
    _sees(mask.first, mask.stop, s.indptr, s.indices, seen)
    return seen


def _sizes(n: Any, l: Any) -> tuple[int, int]:
    return checks.integer("n", n, least=1), checks.integer("l", l, least=1)


def _bounds(name: str, given: Any) -> Array:
    x = np.asarray(given)
    if x.dtype.kind not in "iu" or x.ndim != 1 or not len(x):
        raise TypeError(f"{name} must be integers, one per query, got {checks.display(given)}")
    if x.dtype == np.uint64 and (x > np.iinfo(np.intp).max).any():
        raise ValueError(f"{name} must be at most l, got {x.max()}")
    x = x.astype(np.intp)
    x.flags.writeable = False
    return x
