"""The price of an estimate per query row, which is known before the estimate is made.

What is counted:

- ``stored``: the values that the estimate holds, of all rows, over n.
- ``reads``: the numbers that one new query reads in memory before it has its answer: what a
  selection looks at, parameters such as frequencies, exact keys and their values, and states.
  Queries come one after the other, at every place among the keys, and the one that reads most
  counts: under a causal mask it sees all l keys, under a window as many as the window holds. A
  number that is read in two passes counts twice. The query itself, what is written, and numbers
  that change all weights of a row alike do not count. A factor of each column of a state is part
  of the state.
- ``multiply_adds``: the terms of sums of products of two vectors, which are dot products, outer
  products that are added up, and products of matrices, while l keys and n queries are answered
  together, over n. What is done to the numbers of one vector alone, or number by number, is not
  counted: exponentials, norms, sums, scales, products of two features, comparisons, sorting. Beside
  them, a polynomial of a logit counts its degree, a decomposition of an r × r matrix r³, its
  inverse times a vector r², and a Fourier transform of m numbers m·log₂ m.
- ``bytes``: those of what is stored, at 8 a number and 4 an index, with a scale for each row of a
  low-rank part, and with what is kept of every key for a selection: boxes of pages, hashes, sums.
  Parameters, of which there are no more if there are more keys, are not counted.
- ``bytes_read``: those of ``reads``, at 2 a number, as a cache in 16 bits has them, but for codes,
  which have their bits. Scales and norms of codes are numbers of 16 bits.

Where inputs or draws decide how much is read, the price is the most that they can ask for, row by
row; that of a random size (`random_maclaurin`, `lsh`, the design "poisson") is its mean. It is None
where it follows from the inputs only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from approx.estimate.masks import Mask

CURRENCIES = ("stored", "reads", "multiply_adds", "bytes", "bytes_read")
NUMBER = 8  # bytes of a stored number, float64
READ = 2  # bytes of a number that is read from a cache, bfloat16 or float16
INDEX = 4  # bytes of a stored index, int32


@dataclasses.dataclass(frozen=True)
class Shape:
    """Queries n, keys l, their width d, the width c of the values, and the mask, if there is one.

    It unpacks into n, l, d and c.
    """

    n: int
    l: int
    d: int
    c: int
    mask: Mask | None = None

    def __iter__(self) -> Iterator[int]:
        return iter((self.n, self.l, self.d, self.c))

    @property
    def given(self) -> dict[str, Any]:
        """The shape as keyword arguments of `Method.within` and `Method.price`."""
        return {"n": self.n, "l": self.l, "d": self.d, "c": self.c, "mask": self.mask}

    def seen(self, k: float) -> float:
        """Return how many of k keys a row has on average, as it has no more than it sees."""
        if self.mask is None or self.mask.is_full:
            return float(k)
        return float(np.minimum(self.mask.counts, k).mean())

    @functools.cached_property
    def rows(self) -> Mask:
        """What each query sees."""
        return self.mask or Mask.full(self.n, self.l)

    @functools.cached_property
    def decoding(self) -> Mask:
        """What queries at every place see, as they come one after the other, l of them.

        Under a mask that does not look back, and is not full, they are the queries that there are.
        """
        if self.rows.looks_back:
            return Mask.window(self.l, self.l, self.most)
        return Mask.full(self.l, self.l) if self.rows.is_full else self.rows

    @property
    def most(self) -> int:
        """How many keys a query sees at most."""
        return self.l if self.mask is None else int(self.mask.counts.max())

    @property
    def exact(self) -> float:
        """How many numbers the keys are that a query sees, with their values."""
        return float(self.most * (self.d + self.c))

    @property
    def both(self) -> float:
        """Queries and keys together, per query: (n + l)/n."""
        return (self.n + self.l) / self.n


@dataclasses.dataclass(frozen=True)
class Price:
    """The cost of an estimate per query row, in five currencies.

    Parameters
    ----------
    stored : float
        Stored values, (rank·(n + l) + nnz)/n. Indices are not counted; a polynomial counts the
        width of its monomials even where it is evaluated elementwise.
    reads : float, optional
        Numbers read to answer one new query when l keys are present, including the selection of
        keys: k exact keys are k·(d + c) numbers, and a state of m features is m·(c + 1). Writing
        is not counted. It is None where it follows from the inputs only.
    multiply_adds : float, optional
        Multiply-adds of one query row when all n queries are answered together; work that is done
        once for all of them is divided by n. Exponentials are not counted, and a decomposition of
        a small matrix is counted by its leading term. It is None as above.
    bytes : float
        Bytes stored in float64, including int32 indices, the scales of rows and what is kept of
        every key for a selection.
    few, few_bytes : float
        How many of the numbers that are read have few bits, and the bytes of these.

    Attributes
    ----------
    bytes_read : float, optional
        Bytes read to answer one new query, 2·(reads − few) + few_bytes. It is None as above.

    Notes
    -----
    The module says what is counted. The price of what needs all logits counts the result of its
    search but not the search, so that it cannot be run at that price. Prices can be added.
    """

    stored: float
    reads: float | None
    multiply_adds: float | None
    bytes: float
    few: float = dataclasses.field(default=0.0, repr=False)
    few_bytes: float = dataclasses.field(default=0.0, repr=False)

    @property
    def bytes_read(self) -> float | None:
        """Bytes read to answer one new query, at 16 bits a number that has no fewer."""
        return None if self.reads is None else READ * (self.reads - self.few) + self.few_bytes

    def within(self, budget: float, currency: str) -> bool:
        """Return whether it is known in a currency, and no more than a budget."""
        cost = getattr(self, currency)
        return cost is not None and cost <= budget

    def __add__(self, other: Price) -> Price:
        """Return the price of both together."""
        return Price(
            self.stored + other.stored,
            _sum(self.reads, other.reads),
            _sum(self.multiply_adds, other.multiply_adds),
            self.bytes + other.bytes,
            self.few + other.few,
            self.few_bytes + other.few_bytes,
        )


class Reads(NamedTuple):
    """The numbers that a new query of one head reads, by who else reads them.

    Attributes
    ----------
    shared : float
        Those that every head of the group reads, once for all of them.
    chosen : float
        Those of keys and values that a head chooses for itself.
    most : float
        How many numbers there are to choose from, so that a group reads no more than these.
    unshared : float
        Those that belong to one head.
    """

    shared: float = 0.0
    chosen: float = 0.0
    most: float = 0.0
    unshared: float = 0.0

    @property
    def single(self) -> float:
        """What one head reads: the price."""
        return self.shared + self.chosen + self.unshared

    def per_head(self, group: int) -> float:
        """Return what a head of a group reads on average."""
        return (self.shared + min(group * self.chosen, self.most)) / group + self.unshared

    def paid_share(self, group: int) -> float:
        """Return which part of the keys and values that it reads a head of a group pays for."""
        if not self.chosen:
            return 1 / group
        return min(group * self.chosen, self.most) / (group * self.chosen)


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
    """Return the price of factors.

    Parameters
    ----------
    columns : float
        Columns of the factors. Their state is columns·(c + 1) numbers, which are the sums of the
        keys' features times values, for one multiply-add each, and the sums of the features.
    shape : Shape
    mapped : float, optional
        Multiply-adds that map a query to its features, such as m·d for m frequencies; None where
        the number follows from the inputs only.
    keyed : float, optional
        Multiply-adds that map a key; by default as many.
    read : float, optional
        Parameters that a query reads to be mapped; by default one for each multiply-add.
    once : float
        Multiply-adds for all queries and keys together.
    sums : bool
        Whether a row is divided by its sum, for which the state holds the sums of the features.

    Examples
    --------
    >>> low_rank(16, Shape(n=8, l=8, d=4, c=4), mapped=16 * 4)
    Price(stored=32.0, reads=144.0, multiply_adds=272.0, bytes=264.0)
    """
    n, l, _, c = shape
    state = columns * (c + sums)
    stored = columns * (n + l) / n
    found = Price(stored, None, None, NUMBER * (stored + 1.0))
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
        Most keys per row, each of which is read with its value; a row that sees fewer has fewer.
    shape : Shape
    mean : float, optional
        Entries of a row on average, where they are not the lesser of k and what it sees.

    Examples
    --------
    >>> entries(32, Shape(n=8, l=100, d=4, c=4))
    Price(stored=32.0, reads=256.0, multiply_adds=256.0, bytes=388.0)
    """
    mean, width = shape.seen(k) if mean is None else mean, shape.d + shape.c
    read = float(min(k, shape.most) * width)
    return Price(mean, read, float(mean * width), float(mean * (NUMBER + INDEX) + INDEX))
