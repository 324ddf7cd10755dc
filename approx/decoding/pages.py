"""Pages of keys, of which a query reads those that score highest: Quest."""

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache, softmax
from approx.supports import boxes


class KeptPages(Cache):
    """All keys in pages, each with the box or the mean of its keys.

    Parameters
    ----------
    d, c : int
    size : int
        Keys of a page.
    count : int
        Pages that a query reads.
    by_box : bool
        Whether pages are scored by their boxes, or else by their means.
    current : bool
        Whether the last page is always read, and not scored.

    Notes
    -----
    The box and the mean of the last page change with each key that is appended. A query reads them
    for every page that is scored, and then the keys of the best pages, all of which are kept. Of
    equal scores the first pages are read.

    Examples
    --------
    The second page has the largest logits, and there are two boxes of two numbers to read:

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
        self.keys: list[Array] = []  # (keys, d) for each page
        self.values: list[Array] = []
        self.low, self.high, self.means = np.zeros((3, 0, self.d))

    def add(self, k: Array, v: Array) -> None:
        """Put the key into the last page, or into a new one."""
        if self.tokens % self.size == 0:
            self.keys.append(k[None])
            self.values.append(v[None])
            self.low, self.high, self.means = (
                np.vstack([x, k]) for x in (self.low, self.high, self.means)
            )
            return
        self.keys[-1], self.values[-1] = (
            np.vstack([pages[-1], x]) for pages, x in ((self.keys, k), (self.values, v))
        )
        self.low[-1], self.high[-1] = np.minimum(self.low[-1], k), np.maximum(self.high[-1], k)
        self.means[-1] += (k - self.means[-1]) / len(self.keys[-1])

    def answer(self, q: Array) -> Array:
        """Return the softmax over the keys of the best pages times their values."""
        best = self._best(q)
        keys, values = (np.vstack([pages[p] for p in best]) for pages in (self.keys, self.values))
        return np.asarray(softmax(keys @ q) @ values)

    def _best(self, q: Array) -> Array:
        scored = self._scored
        if self.by_box:
            scores = boxes.highest(q[None], self.low[:scored], self.high[:scored])[0]
        else:
            scores = self.means[:scored] @ q
        best = np.argsort(-scores, kind="stable")[: self.count - self.current]
        return np.sort(np.append(best, scored) if self.current else best)

    @property
    def _scored(self) -> int:
        return len(self.keys) - self.current

    @property
    def reads(self) -> int:
        """Boxes or means, and the keys with their values of full pages, if there are enough."""
        summaries = self._scored * self.d * (2 if self.by_box else 1)
        return summaries + min(self.count * self.size, self.tokens) * (self.d + self.c)
