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
- ``bytes``: the bytes of the stored values, 8 per number and 4 per index. They include a scale for
  each row of a low-rank part, and the data of every key for a selection: boxes of pages, hashes,
  sums. Parameters whose number does not grow with the keys do not count.
- ``bytes_read``: the bytes of ``reads``, 2 per number, as in a cache of 16 bits. Codes count their
  own bits; their scales and norms have 16 bits.

If inputs or draws decide how much is read, the price is the largest possible amount, row by row.
For a random size (`random_maclaurin`, `lsh`, the design "poisson") the price is its mean. It is
None if it depends on the inputs alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from approx.estimate.masks import Mask
from approx.method.tags import ROW_LOCAL

CURRENCIES = ("stored", "reads", "multiply_adds", "bytes", "bytes_read")
NUMBER = 8  # bytes of a stored number, float64
READ = 2  # bytes of a number that is read from a cache, bfloat16 or float16
INDEX = 4  # bytes of a stored index, int32


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


@dataclasses.dataclass(frozen=True)
class Price:
    """The cost of an estimate per query row, in five currencies.

    Parameters
    ----------
    stored : float
        Stored values, (rank·(n + l) + nnz)/n, without indices. A polynomial counts the width of
        its monomials even if it is evaluated elementwise.
    reads : float, optional
        Numbers read to answer one new query when l keys are present, including the selection of
        keys. k exact keys are k·(d + c) numbers, and a state of m features is m·(c + 1). Writes do
        not count. It is None if it depends on the inputs alone.
    multiply_adds : float, optional
        Multiply-adds of one query row when all n queries are answered together. Work that is done
        once for all queries is divided by n. Exponentials do not count, and a decomposition of a
        small matrix counts its leading term. It is None if it depends on the inputs alone.
    bytes : float
        Bytes stored: float64 numbers, int32 indices, the scales of rows, and the data of every key
        for a selection.
    codes, code_bytes : float
        The count of numbers that are read as codes of few bits, and their bytes.
    chosen, most : float
        Of the reads, the numbers in the keys and values that a head chooses for itself, and all
        numbers to choose from. Heads of a group may choose alike.
    unshared : float, optional
        Of the reads, the numbers that belong to one head. By default these are all reads if a row
        depends on other queries, else none. The other heads of a group share the rest.
    entry_work : float
        The multiply-adds of one entry of a low-rank estimate whose features are computed.

    Attributes
    ----------
    bytes_read : float, optional
        Bytes read to answer one new query, 2·(reads − codes) + code_bytes; None if reads is.

    Notes
    -----
    The module's docstring defines the currencies. For a method that needs all logits, the price
    counts the result of its search but not the search, so it cannot be run at this price. Prices
    can be added.
    """

    stored: float
    reads: float | None
    multiply_adds: float | None
    bytes: float
    codes: float = dataclasses.field(default=0.0, repr=False)
    code_bytes: float = dataclasses.field(default=0.0, repr=False)
    chosen: float = dataclasses.field(default=0.0, repr=False)
    most: float = dataclasses.field(default=0.0, repr=False)
    unshared: float | None = dataclasses.field(default=None, repr=False)
    entry_work: float = dataclasses.field(default=0.0, repr=False)

    @property
    def bytes_read(self) -> float | None:
        """Bytes read to answer one new query: 16 bits per number, fewer for codes."""
        return None if self.reads is None else READ * (self.reads - self.codes) + self.code_bytes

    def within(self, budget: float, currency: str) -> bool:
        """Return whether the price is known in a currency and at most the budget."""
        cost = getattr(self, currency)
        return cost is not None and cost <= budget

    def of_group(self, group: int) -> Price:
        """Return the price of a group of heads with the same keys and values.

        Its reads are shared + min(group·chosen, most) + group·unshared: an upper bound where heads
        choose keys, since two heads may choose the same key. Stored values and multiply-adds stay
        those of one head.

        Notes
        -----
        Shared are keys that depend on positions (`exact`, `sink_window`, …) or on the keys alone
        (`columns` by norms, …); data about all keys for a selection (boxes of pages, sorted lists);
        logits from keys that are compressed by themselves; and states, if a row depends on no other
        query, since all heads of the group then have the same frequencies. Chosen are the keys of
        every other support. Unshared are numbers that are fitted to the queries of a head.

        Examples
        --------
        Three heads share a window of 16 keys; or each chooses 16 of 40 keys, at most all 40:

        >>> from approx import parse
        >>> methods = parse("sink_window(k=16)"), parse("top_k(k=16)")
        >>> [method.price(n=40, l=40, d=4, group=3).reads for method in methods]
        [128.0, 320.0]
        """
        if self.reads is None or group == 1:
            return self
        chosen, unshared = min(group * self.chosen, self.most), self.unshared or 0.0
        paid = chosen / self.chosen if self.chosen else 1.0
        reads = self.reads - self.chosen - unshared + chosen + group * unshared
        return dataclasses.replace(
            self, reads=reads, codes=self.codes * paid, code_bytes=self.code_bytes * paid,
            chosen=0.0, unshared=reads,
        )  # fmt: skip

    def __add__(self, other: Price) -> Price:
        """Return the sum of both prices, of keys and values of one head."""
        said = self.unshared is not None or other.unshared is not None
        return Price(
            self.stored + other.stored,
            _sum(self.reads, other.reads),
            _sum(self.multiply_adds, other.multiply_adds),
            self.bytes + other.bytes,
            self.codes + other.codes,
            self.code_bytes + other.code_bytes,
            self.chosen + other.chosen,
            max(self.most, other.most),
            (self.unshared or 0.0) + (other.unshared or 0.0) if said else None,
            self.entry_work + other.entry_work,
        )


def price_at(method: Any, shape: Shape) -> Price | None:
    """Return `Method.price` at a shape, cached for the many heads of one shape."""
    try:
        return _cached(method, shape)
    except TypeError:  # a field is an array, which has no hash
        return _price(method, shape)


def _price(method: Any, shape: Shape) -> Price | None:
    if shape.group > 1:
        alone = price_at(method, dataclasses.replace(shape, group=1))
        return None if alone is None else alone.of_group(shape.group)
    found: Price | None = method._price(shape)
    if found is None or found.unshared is not None:
        return found
    return dataclasses.replace(found, unshared=0.0 if ROW_LOCAL in method.tags else found.reads)


_cached = functools.lru_cache(maxsize=1024)(_price)


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
    found = Price(stored, None, None, NUMBER * (stored + 1.0), entry_work=columns)
    if mapped is None:
        return found
    of_keys = columns * c + (mapped if keyed is None else keyed)
    return dataclasses.replace(
        found,
        reads=float(state + (mapped if read is None else read)),
        multiply_adds=float(state + mapped + (of_keys * l + once) / n),
    )


def entries(k: float, shape: Shape, *, mean: float | None = None) -> Price:
    """Return the price of k exact entries per row.

    Parameters
    ----------
    k : float
        The largest number of keys per row, each read with its value; a row may see fewer.
    shape : Shape
    mean : float, optional
        Mean number of entries per row; by default the mean of min(k, keys that the row sees).
    """
    mean, width = shape.seen(k) if mean is None else mean, shape.d + shape.c
    read = float(min(k, shape.most) * width)
    return Price(mean, read, float(mean * width), float(mean * (NUMBER + INDEX) + INDEX))
