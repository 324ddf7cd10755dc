"""The price of an estimate per query row, which is known before the estimate is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from approx.masks import Mask

CURRENCIES = ("stored", "reads", "multiply_adds", "bytes")
NUMBER = 8  # bytes of a stored number, float64
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

    @property
    def both(self) -> float:
        """Queries and keys together, per query: (n + l)/n."""
        return (self.n + self.l) / self.n


@dataclasses.dataclass(frozen=True)
class Price:
    """The cost of an estimate per query row, in four currencies.

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
        once for all of them is divided by n. Exponentials are not counted, and a cubic
        decomposition of a small matrix is counted by its leading term. It is None as above.
    bytes : float
        Bytes stored in float64, including int32 indices and the scales of rows.

    Notes
    -----
    The price of an oracle counts the result of its search but not the search, which is what makes
    it an oracle. Prices can be added.
    """

    stored: float
    reads: float | None
    multiply_adds: float | None
    bytes: float

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
        )


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def low_rank(columns: float, shape: Shape, *, mapped: float | None = 0.0) -> Price:
    """Return the price of factors.

    Parameters
    ----------
    columns : float
        Columns of the factors. Their state is columns·(c + 1) numbers, which are the sums of the
        keys' features times values and times 1.
    shape : Shape
    mapped : float, optional
        Multiply-adds that map a query or a key to its features, each of which reads a parameter of
        its own, such as m·d for m frequencies; None where the number follows from the inputs only.

    Examples
    --------
    >>> low_rank(16, Shape(n=8, l=8, d=4, c=4), mapped=16 * 4)
    Price(stored=32.0, reads=144.0, multiply_adds=288.0, bytes=264.0)
    """
    n, l, _, c = shape
    state = columns * (c + 1)
    stored = columns * (n + l) / n
    return Price(
        stored,
        None if mapped is None else float(state + mapped),
        None if mapped is None else float((state + mapped) * shape.both),
        NUMBER * (stored + 1.0),
    )


def entries(
    k: float, shape: Shape, *, mean: float | None = None, selection: float | None = 0.0
) -> Price:
    """Return the price of k exact entries per row.

    Parameters
    ----------
    k : float
        Keys per row, each of which is read with its value. A row that sees fewer has fewer, but
        the next query sees l keys.
    shape : Shape
    mean : float, optional
        Entries of a row on average, where they are not the lesser of k and what it sees.
    selection : float, optional
        Numbers that are read to find the keys, each for one multiply-add; None where the number
        follows from the inputs only.

    Examples
    --------
    >>> entries(32, Shape(n=8, l=100, d=4, c=4))
    Price(stored=32.0, reads=256.0, multiply_adds=256.0, bytes=388.0)
    """
    mean, width = shape.seen(k) if mean is None else mean, shape.d + shape.c
    reads = None if selection is None else float(k * width + selection)
    work = None if selection is None else float(mean * width + selection)
    return Price(mean, reads, work, float(mean * (NUMBER + INDEX) + INDEX))
