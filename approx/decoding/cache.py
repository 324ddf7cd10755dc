"""The base of caches: tokens are appended, and each query is answered from the stored data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array


class Cache(ABC):
    """The data that a causal model stores about earlier keys (d,) and values (c,).

    For each token, `append` its key and value, then `attend` once with its query. The result is the
    token's row of ``method.approximate(Q, K, mask="causal", rng=rng).attend(V)``, up to rounding.
    `Method.cache` returns a cache. Keys and values are stored in its dtype, states in float64.

    Parameters
    ----------
    d, c : int
        Widths of keys and values.
    """

    dtype: Any = np.float64
    parameters = 0  # numbers that do not depend on keys, such as frequencies
    asks = False  # whether the stored data depend on the queries, too

    def __init__(self, d: int, c: int) -> None:
        self.d, self.c = (
            checks.integer(name, width, least=1) for name, width in (("d", d), ("c", c))
        )
        self.tokens = 0

    def append(self, k: ArrayLike, v: ArrayLike) -> None:
        """Add a key (d,) and its value (c,)."""
        self.add(self._vector("k", k, self.d), self._vector("v", v, self.c))
        self.tokens += 1

    def extend(self, K: Array, V: Array) -> None:
        """Add keys (n, d) and their values (n, c), without attention for their queries."""
        for k, v in zip(K, V):
            self.append(k, v)

    def fill(self, Q: Array, K: Array, V: Array) -> None:
        """Add keys (n, d) and their values (n, c), for which the queries (n, d) attend exactly."""
        if not self.asks:
            self.extend(K, V)
            return
        for q, k, v in zip(Q, K, V):
            self.append(k, v)
            self.attend(q)

    def attend(self, q: ArrayLike, sink: float = -np.inf) -> Array:
        """Return the attention of a query (d,) over the keys so far, (c,).

        If the sum of the row is ≤ 0 the result is 0, as in `Approximation.attend`. ``sink`` is the
        logit of an attention sink, which adds to this sum alone. ValueError: there is no key yet.
        """
        query = self._vector("q", q, self.d)
        if not self.tokens:
            raise ValueError("there is no key to attend to: append one first")
        return self.answer(query, checks.sink(sink))

    @abstractmethod
    def add(self, k: Array, v: Array) -> None:
        """Append checked vectors; the cache has had `tokens` keys before."""

    @abstractmethod
    def answer(self, q: Array, sink: float) -> Array:
        """Return the result of `attend` for a checked query."""

    @property
    @abstractmethod
    def reads(self) -> int:
        """The count of numbers that the next `attend` reads."""

    @property
    def common(self) -> int:
        """How many stored numbers the caches of a group of heads have in common, each its own."""
        return 0

    @abstractmethod
    def arrays(self) -> list[Any]:
        """Return the stored arrays of full width."""

    def coded(self) -> list[Any]:
        """Return the stored arrays of codes."""
        return []

    def _vector(self, name: str, x: ArrayLike, width: int) -> Array:
        vector = np.asarray(checks.array(name, x), self.dtype)
        if vector.shape != (width,):
            raise ValueError(f"{name} must have shape ({width},), got {vector.shape}")
        return vector


def storage(caches: Iterable[Cache]) -> tuple[int, int]:
    """Return the count of numbers of full width that caches store, and the bytes of their codes.

    Numbers are keys, values, states, boxes, scales, and parameters such as frequencies. An array
    that several caches share counts once.
    """
    every = {id(cache): cache for cache in caches}.values()
    kept = {id(x): x for cache in every for x in cache.arrays()}.values()
    coded = {id(x): x for cache in every for x in cache.coded()}.values()
    numbers = sum(_array(x).size for x in kept) + sum(cache.parameters for cache in every)
    return int(numbers), sum(_array(x).nbytes for x in coded)


def _array(x: Any) -> Array:
    return np.asarray(getattr(x, "array", x))


def softmax(x: Array, sink: float = -np.inf) -> Array:
    """Return e^x divided by its sum, which an attention sink makes e^sink larger.

    Accuracy: 3 eps·κ, as docs/accuracy.md defines it.
    """
    top = max(x.max(), sink)
    weights = np.exp(x - top)
    return np.asarray(weights / (weights.sum() + np.exp(sink - top)))


ROOM = 32  # spare rows at first; later an eighth of the count


class Rows:
    """An array to which rows are appended, and from which rows can be dropped.

    Its dtype is the dtype of the first rows; before, the array is empty.

    Examples
    --------
    >>> rows = Rows(1)
    >>> rows.append(np.array([[1.0], [2.0], [3.0]]))
    >>> rows.drop(np.array([1]))
    >>> len(rows), rows.array
    (2, array([[1.],
           [3.]]))
    """

    def __init__(self, *shape: int) -> None:
        self._shape = shape
        self._room: Array | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def numbers(self) -> int:
        """The count of numbers that are read with all rows."""
        return self._count * math.prod(self._shape)

    @property
    def wide(self) -> list[Rows]:
        """What is stored of them in full width."""
        return [self]

    @property
    def codes(self) -> list[Rows]:
        """What is stored of them in codes."""
        return []

    @property
    def array(self) -> Any:
        """A view of the rows."""
        if self._room is None:
            return np.zeros((0, *self._shape))
        return self._room[: self._count]

    def append(self, rows: Array) -> None:
        """Add rows (any number, …) at the end."""
        count = self._count + len(rows)
        if self._room is None or count > len(self._room):
            room = np.empty((count + max(ROOM, count // 8), *self._shape), rows.dtype)
            room[: self._count] = self.array
            self._room = room
        self._room[self._count : count] = rows
        self._count = count

    def drop(self, places: Array) -> None:
        """Remove the rows at given indices; the others keep their order and their memory."""
        left = np.delete(self.array, places, axis=0)
        self._count = len(left)
        if self._room is not None:
            self._room[: self._count] = left
