"""The price of an estimate per query row, known before the estimate is computed.

The five currencies:

- ``stored``: the values that the estimate stores for all rows, divided by n.
- ``reads``: the numbers that one new query reads from memory before it has its answer. These are
  the data of a selection, parameters such as frequencies, exact keys with their values, and states.
  Queries come one after the other, at every position among the keys, and the one that reads most
  counts. Under a causal mask it sees all l keys, under a window the keys of the window. A number
  that is read in two passes counts twice. The query, writes, and numbers that scale all weights of
  a row alike do not count. A factor for each column of a state is part of the state.
- ``multiply_adds``: the products in dot products, in sums of outer products, and in matrix
  products, for l keys and n queries answered together, divided by n. Operations on one vector or
  on single numbers do not count: exponentials, norms, sums, scales, products of two features,
  comparisons, sorting. In addition, a polynomial of a logit counts its degree, a decomposition of
  an r × r matrix r³, its inverse times a vector r², and a Fourier transform of m numbers m·log₂ m.
- ``bytes``: the memory of a cache, 2 bytes per number. A cache holds what ``reads`` counts, each
  number once, and what a later query may read: all keys from which a selection chooses.
- ``bytes_read``: the bytes of ``reads``, 2 per number.

Codes count their own bits; their scales and norms have 16 bits. Heads of a group share their keys:
``reads``, ``bytes`` and ``bytes_read`` are those of the whole group, the others those of one head.

If inputs or draws decide how much is read, the price is the largest possible amount, row by row.
For a random size (`random_maclaurin`, `lsh`, the design "poisson") the price is its mean. It is
None if it depends on the inputs alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from approx.estimate.masks import Mask
from approx.method.tags import READS_VALUES, ROW_LOCAL

CURRENCIES = ("stored", "reads", "multiply_adds", "bytes", "bytes_read")
BITS = 16  # of a number in a cache, bfloat16 or float16
SHARED, OWN = 0.0, math.inf  # how many more numbers the heads of a group can read than one of them


@dataclasses.dataclass(frozen=True)
class Shape:
    """The number n of queries and l of keys, their width d, the width c of values, and the mask.

    It unpacks into n, l, d and c. ``group`` heads share the keys and values.
    """

    n: int
    l: int
    d: int
    c: int
    mask: Mask | None = None
    group: int = 1

    def __iter__(self) -> Iterator[int]:
        return iter((self.n, self.l, self.d, self.c))

    @property
    def given(self) -> dict[str, Any]:
        """The shape as keyword arguments of `Method.within` and `Method.price`."""
        fields = dataclasses.fields(self)
        return {field.name: getattr(self, field.name) for field in fields}

    def seen(self, k: float) -> float:
        """Return the mean over rows of min(k, the number of keys that the row sees)."""
        if self.mask is None or self.mask.is_full:
            return float(min(k, self.l))
        return float(np.minimum(self.mask.counts, k).mean())

    @functools.cached_property
    def alone(self) -> Shape:
        """The shape of one head that shares its keys with no other."""
        return self if self.group == 1 else dataclasses.replace(self, group=1)

    @functools.cached_property
    def rows(self) -> Mask:
        """The keys that each query sees, as a `Mask`."""
        return self.mask or Mask.full(self.n, self.l)

    @functools.cached_property
    def decoding(self) -> Mask:
        """The mask of l queries, one at each position, as they arrive in decoding.

        A mask that neither looks back nor is full is returned unchanged.
        """
        if self.rows.looks_back:
            return Mask.window(self.l, self.l, self.most)
        return Mask.full(self.l, self.l) if self.rows.is_full else self.rows

    @property
    def most(self) -> int:
        """The largest number of keys that a query sees."""
        return self.l if self.mask is None else int(self.mask.counts.max())

    @property
    def exact(self) -> float:
        """The largest count of numbers in the keys and values that a query sees."""
        return float(self.most * (self.d + self.c))

    @property
    def both(self) -> float:
        """The number of queries and keys per query, (n + l)/n."""
        return (self.n + self.l) / self.n


class Numbers(NamedTuple):
    """Numbers of one kind that a new query reads, or that a cache holds for it.

    Attributes
    ----------
    read : float
        How many numbers a query of one head reads.
    held : float, optional
        How many numbers a cache holds for one head; by default those that are read.
    most : float, optional
        How many numbers all heads of a group can read, or hold, if that is more than one head's:
        `SHARED` for numbers that all read, `OWN` for numbers of one head, else the count from which
        each head chooses. By default `SHARED` if a row depends on no other query, else `OWN`.
    bits : float
        Bits of a number.
    kind : {"", "keys", "values"}
        What is read, if it is the keys or the values themselves. No cache holds them twice.
    """

    read: float
    held: float | None = None
    most: float | None = None
    bits: float = BITS
    kind: str = ""

    def times(self, each: float, kind: str = "", of: int = 1) -> Numbers:
        """Return numbers of 16 bits, `each` for every `of` of these."""
        held, most = (None if x is None else x * each / of for x in (self.held, self.most))
        return Numbers(self.read * each / of, held, most, kind=kind)

    def of_group(self, group: int, default: float) -> Numbers:
        """Return the numbers of a group of heads, whose ``most`` is `default` unless it is said."""
        most = default if self.most is None else self.most
        held = self.read if self.held is None else self.held
        read, held = (max(x, min(group * x, most)) for x in (self.read, held))
        return self._replace(read=read, held=held, most=most)


@dataclasses.dataclass(frozen=True)
class Price:
    """The cost of an estimate in five currencies, which the module's docstring defines.

    Parameters
    ----------
    stored : float
        Stored values, (rank·(n + l) + nnz)/n, without indices. A polynomial counts the width of
        its monomials even if it is evaluated elementwise.
    reads, multiply_adds, bytes : float, optional
        k exact keys are k·(d + c) numbers read, and a state of m features is m·(c + 1). They are
        None if they depend on the inputs alone.
    numbers : tuple of Numbers
        What is read and held, by kind. By default the numbers of ``reads`` and ``bytes`` have 16
        bits, and the heads of a group share them if a row depends on no other query.
    entry_work : float
        The multiply-adds of one entry of a low-rank estimate whose features are computed.

    Attributes
    ----------
    bytes_read : float, optional
        Bytes read to answer one new query; None if reads is.

    Notes
    -----
    For a method that needs all logits, the price counts the result of its search but not the
    search, so it cannot be run at this price. Prices can be added.
    """

    stored: float
    reads: float | None
    multiply_adds: float | None
    bytes: float | None
    numbers: tuple[Numbers, ...] = dataclasses.field(default=(), repr=False, compare=False)
    entry_work: float = dataclasses.field(default=0.0, repr=False)

    @classmethod
    def from_numbers(
        cls, stored: float, multiply_adds: float | None, *numbers: Numbers, entry_work: float = 0.0
    ) -> Price:
        """Return the price of an estimate that reads and holds some numbers."""
        reads = float(sum(x.read for x in numbers))
        held = _held(numbers, math.inf, math.inf)
        return cls(stored, reads, multiply_adds, held, numbers, entry_work)

    @property
    def bytes_read(self) -> float | None:
        """Bytes read to answer one new query: 16 bits per number, fewer for codes."""
        if self.reads is None:
            return None
        return float(sum(x.read * x.bits for x in self.listed)) / 8

    @property
    def listed(self) -> tuple[Numbers, ...]:
        """The numbers that are read and held, which a price of four amounts says together."""
        if self.numbers or self.reads is None:
            return self.numbers
        held = None if self.bytes is None else self.bytes * 8 / BITS
        return (Numbers(self.reads, held),) if self.reads or held else ()

    def within(self, budget: float, currency: str) -> bool:
        """Return whether the price is known in a currency and at most the budget."""
        cost = getattr(self, currency)
        return cost is not None and cost <= budget

    def of_group(self, shape: Shape, tags: Collection[str]) -> Price:
        """Return the price of a group of heads with the same keys and values.

        It reads Σ min(group·read, most) numbers: an upper bound where heads choose keys, since two
        heads may choose the same key. Stored values and multiply-adds stay those of one head.

        Parameters
        ----------
        shape : Shape
        tags : collection of str
            The tags of the method that has this price for one head.

        Notes
        -----
        Shared are keys that depend on positions (`exact`, `sink_window`, …) or on the keys alone
        (`columns` by norms, …); data about all keys for a selection (boxes of pages, sorted lists);
        logits from keys that are compressed by themselves; and states, if a row depends on no other
        query, since all heads of the group then have the same frequencies. Chosen are the keys of
        every other support. Numbers that are fitted to the queries of a head are its own.

        Examples
        --------
        Three heads share a window of 16 keys; or each chooses 16 of 40 keys, at most all 40:

        >>> from approx import parse
        >>> methods = parse("sink_window(k=16)"), parse("top_k(k=16)")
        >>> prices = [method.price(n=40, l=40, d=4, group=3) for method in methods]
        >>> [(price.reads, price.bytes) for price in prices]
        [(128.0, 256.0), (320.0, 640.0)]
        """
        default = SHARED if ROW_LOCAL in tags else OWN
        numbers = tuple(x.of_group(shape.group, default) for x in self.listed)
        if self.reads is None:
            return self
        reads, held = float(sum(x.read for x in numbers)), self.bytes
        if held is not None:
            held = _held(numbers, shape.most * shape.d, shape.most * shape.c)
        return dataclasses.replace(self, reads=reads, bytes=held, numbers=numbers)

    def __add__(self, other: Price) -> Price:
        """Return the sum of both prices, of keys and values of one head."""
        return Price(
            self.stored + other.stored,
            _sum(self.reads, other.reads),
            _sum(self.multiply_adds, other.multiply_adds),
            _sum(self.bytes, other.bytes),
            self.listed + other.listed,
            self.entry_work + other.entry_work,
        )


def price_at(method: Any, shape: Shape) -> Price | None:
    """Return `Method.price` at a shape, cached for the many heads of one shape."""
    try:
        return _cached(method, shape)
    except TypeError:  # a field is an array, which has no hash
        return _price(method, shape)


def _price(method: Any, shape: Shape) -> Price | None:
    found: Price | None = method._price(shape.alone)
    if found is not None and not found.numbers and READS_VALUES in method.tags:
        found = _with_values(method, found, shape)
    return None if found is None else found.of_group(shape, method.tags)


def _with_values(method: Any, price: Price, shape: Shape) -> Price:
    """Return a price of four amounts with what it says of values, which wider ones make larger."""
    wider = method._price(dataclasses.replace(shape.alone, c=shape.c + 1))
    if not price.reads or wider is None or wider.reads is None or price.bytes is None:
        return price
    values = (wider.reads - price.reads) * shape.c
    rest = Numbers(price.reads - values, max(price.bytes * 8 / BITS - values, 0.0))
    return dataclasses.replace(price, numbers=(rest, Numbers(values, kind="values")))


_cached = functools.lru_cache(maxsize=1024)(_price)


def _held(numbers: Iterable[Numbers], keys: float, values: float) -> float:
    """Return the bytes that a cache holds, which has each of the keys and values at most once."""
    most, held = {"": math.inf, "keys": keys, "values": values}, 0.0
    for x in numbers:
        count = min(x.read if x.held is None else x.held, most[x.kind])
        held += count * x.bits
        if x.kind:
            most[x.kind] -= count
    return held / 8


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def low_rank(
    columns: float,
    shape: Shape,
    *,
    mapped: float | None = 0.0,
    keyed: float | None = None,
    read: float | None = None,
    once: float = 0.0,
    sums: bool = True,
) -> Price:
    """Return the price of a low-rank estimate.

    Parameters
    ----------
    columns : float
        Columns of the factors. Their state has columns·(c + 1) numbers: the sums over keys of
        features times values, at one multiply-add each, and the sums of the features.
    shape : Shape
    mapped : float, optional
        Multiply-adds that map a query to its features, such as m·d for m frequencies; None if the
        number depends on the inputs alone.
    keyed : float, optional
        Multiply-adds that map a key; by default ``mapped``.
    read : float, optional
        Parameters that are read to map a query; by default one for each multiply-add.
    once : float
        Multiply-adds for all queries and keys together.
    sums : bool
        Whether a row is divided by its sum; the state then includes the sums of the features.
    """
    n, l, _, c = shape
    state = columns * (c + sums)
    stored = columns * (n + l) / n
    if mapped is None:
        return Price(stored, None, None, None, entry_work=columns)
    of_keys = columns * c + (mapped if keyed is None else keyed)
    work = float(state + mapped + (of_keys * l + once) / n)
    numbers = Numbers(float(state + (mapped if read is None else read)))
    return Price.from_numbers(stored, work, numbers, entry_work=columns)


def entries(
    k: float,
    shape: Shape,
    *,
    mean: float | None = None,
    held: float | None = None,
    most: float | None = None,
) -> Price:
    """Return the price of k exact entries per row.

    Parameters
    ----------
    k : float
        The largest number of keys per row, each read with its value; a row may see fewer.
    shape : Shape
    mean : float, optional
        Mean number of entries per row; by default the mean of min(k, keys that the row sees).
    held : float, optional
        The number of keys that a cache holds; by default those that are read.
    most : float, optional
        The number of keys that a group of heads can read, see `Numbers`.
    """
    mean, read = shape.seen(k) if mean is None else mean, min(k, shape.most)
    of_keys = Numbers(float(read), held, most)
    numbers = of_keys.times(shape.d, "keys"), of_keys.times(shape.c, "values")
    return Price.from_numbers(mean, float(mean * (shape.d + shape.c)), *numbers)
