"""Pages of keys; a query reads the pages with the largest scores (Quest)."""

from typing import Any

import numpy as np

from approx.checks import Array
from approx.decoding.cache import softmax
from approx.decoding.keys import AllKeys
from approx.decoding.rows import Rows
from approx.supports import boxes
from approx.supports.patterns import ranked


class KeptPages(AllKeys):
    """All keys in pages, each with the box or the mean of its keys.

    Parameters
    ----------
    d, c : int
    size : int
        Number of keys in a page.
    count : int
        Number of pages that a query reads.
    by_box : bool
        Whether pages are scored by their boxes, or by their means.
    current : bool
        Whether the last page is always read, without a score.

    Notes
    -----
    The box or the mean of the last page changes with each appended key. A query reads the boxes or
    means of all scored pages, and then the keys of the best pages. Of equal scores the first pages
    are read. While there are at most ``count`` pages, all are read without a score.

    Examples
    --------
    The second page has the largest logits; the query also reads two boxes of two numbers:

    >>> from approx import parse
    >>> cache = parse("pages(k=2, size=2)").cache(d=1, c=1)
    >>> for key in [0.0, 1.0, 3.0, 3.0]:
    ...     cache.append([key], [key])
    >>> cache.attend([1.0]), cache.reads
    (array([3.]), 8)
    """

    def __init__(
        self, d: int, c: int, size: int, count: int, *, by_box: bool, current: bool
    ) -> None:
        super().__init__(d, c)
        self.size, self.count, self.by_box, self.current = size, count, by_box, current
        self.low, self.high, self.means = (Rows(self.d) for _ in range(3))

    def add(self, k: Array, v: Array) -> None:
        super().add(k, v)
        before = self.tokens % self.size
        if before == 0:
            for rows in self._summaries:
                rows.append(k[None])
        elif self.by_box:
            low, high = self.low.array, self.high.array
            low[-1], high[-1] = np.minimum(low[-1], k), np.maximum(high[-1], k)
        else:
            self.means.array[-1] += (k - self.means.array[-1]) / (before + 1)

    def extend(self, K: Array, V: Array) -> None:
        for k, v in zip(K, V):
            self.append(k, v)

    @property
    def _summaries(self) -> list[Rows]:
        return [self.low, self.high] if self.by_box else [self.means]

    def answer(self, q: Array, sink: float) -> Array:
        places = (self._best(q)[:, None] * self.size + np.arange(self.size)).ravel()
        places = places[places < self.tokens]
        keys, values = self.keys.array[places], self.values.array[places]
        return np.asarray(softmax(keys @ q, sink) @ values)

    def _best(self, q: Array) -> Array:
        scored = self._scored
        if not scored:
            return np.arange(-(-self.tokens // self.size))
        if self.by_box:
            low, high = self.low.array[:scored], self.high.array[:scored]
            scores = boxes.highest(q[None], low, high)[0]
        else:
            scores = self.means.array[:scored] @ q
        best = ranked(scores, offset=True)[: self.count - self.current]
        return np.sort(np.append(best, scored) if self.current else best)

    @property
    def _scored(self) -> int:
        pages = -(-self.tokens // self.size)
        return pages - self.current if pages > self.count else 0

    @property
    def reads(self) -> int:
        summaries = self._scored * self.d * (2 if self.by_box else 1)
        return summaries + min(self.count * self.size, self.tokens) * (self.d + self.c)

    def arrays(self) -> list[Any]:
        return [*super().arrays(), *self._summaries]
