"""The base of every cache: tokens are appended, and each query is answered from what is kept."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array


class Held(NamedTuple):
    """What is held in memory, counted from the arrays.

    Attributes
    ----------
    numbers : int
        Of full width: keys, values, states, boxes, scales, and parameters such as frequencies.
    code_bytes : int
        Bytes of codes, which have few bits.
    """

    numbers: int
    code_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes at 16 bits a number that has no fewer, as a price counts ``bytes_read``."""
        return 2 * self.numbers + self.code_bytes


class Cache(ABC):
    """What a causal model keeps of the keys (d,) and values (c,) that it has seen.

    `append` a key with its value, then `attend` with the query of the same token, once a token. The
    result is that row of ``method.approximate(Q, K, mask="causal", rng=rng).attend(V)``, to
    rounding. It is made by `Method.cache`, and keeps keys and values in the dtype that it is made
    for; states are float64.

    Parameters
    ----------
    d, c : int
        Widths of keys and values.
    """

    dtype: Any = np.float64
    parameters = 0  # numbers that do not follow from keys, such as frequencies
    asks = False  # whether what is kept follows from the queries, too

    def __init__(self, d: int, c: int) -> None:
        self.d, self.c = (
            checks.integer(name, width, least=1) for name, width in (("d", d), ("c", c))
        )
        self.tokens = 0

    def append(self, k: ArrayLike, v: ArrayLike) -> None:
        """Add a key (d,) and its value (c,).

        Raises
        ------
        TypeError, ValueError
            They are not finite numbers, or have another shape.
        """
        self.add(self._vector("k", k, self.d), self._vector("v", v, self.c))
        self.tokens += 1

    def extend(self, K: Array, V: Array) -> None:
        """Add keys (n, d) and their values (n, c), whose queries are not asked."""
        for k, v in zip(K, V):
            self.append(k, v)

    def attend(self, q: ArrayLike) -> Array:
        """Return the attention of a query (d,) over the keys so far, (c,).

        Where the sum of the row is ≤ 0 it is 0, as in `Approximation.attend`.

        Raises
        ------
        TypeError, ValueError
            There is no key yet, or the query is not of finite numbers, or has another shape.
        """
        query = self._vector("q", q, self.d)
        if not self.tokens:
            raise ValueError("there is no key to attend to: append one first")
        return self.answer(query)

    @abstractmethod
    def add(self, k: Array, v: Array) -> None:
        """Do `append` for checked vectors; `tokens` keys came before."""

    @abstractmethod
    def answer(self, q: Array) -> Array:
        """Return `attend` for a checked query."""

    @property
    @abstractmethod
    def reads(self) -> int:
        """Numbers that the next `attend` reads."""

    @abstractmethod
    def arrays(self) -> list[Any]:
        """Return the arrays of full width that are held."""

    def coded(self) -> list[Any]:
        """Return the arrays of codes that are held."""
        return []

    def _vector(self, name: str, x: ArrayLike, width: int) -> Array:
        vector = np.asarray(checks.array(name, x), self.dtype)
        if vector.shape != (width,):
            raise ValueError(f"{name} must have shape ({width},), got {vector.shape}")
        return vector


def held(caches: Iterable[Cache]) -> Held:
    """Return what caches hold together; arrays that several share count once.

    Examples
    --------
    >>> from approx import parse
    >>> cache = parse("sink_window(k=2)").cache(d=3, c=1)
    >>> for _ in range(5):
    ...     cache.append([0.0] * 3, [1.0])
    >>> held([cache, cache])
    Held(numbers=8, code_bytes=0)
    """
    every = {id(cache): cache for cache in caches}.values()
    kept = {id(x): x for cache in every for x in cache.arrays()}.values()
    coded = {id(x): x for cache in every for x in cache.coded()}.values()
    numbers = sum(_array(x).size for x in kept) + sum(cache.parameters for cache in every)
    return Held(int(numbers), sum(_array(x).nbytes for x in coded))


def _array(x: Any) -> Array:
    return np.asarray(getattr(x, "array", x))


def softmax(x: Array) -> Array:
    """Return e^x over its sum.

    Accuracy: 3 eps·κ, as docs/accuracy.md defines it.

    Examples
    --------
    >>> softmax(np.array([9999.0, 9999.0]))
    array([0.5, 0.5])
    """
    weights = np.exp(x - x.max())
    return np.asarray(weights / weights.sum())
