"""Caches of keys: all, sinks and a window, those with most attention, the best pages."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache, Rows, softmax
from approx.estimate.masks import Mask
from approx.supports import boxes
from approx.supports.eviction import Limits
from approx.supports.patterns import ranked

if TYPE_CHECKING:
    from approx.method import Method


class AllKeys(Cache):
    """All keys with their values; a query reads all of them.

    Heads of a group have the same keys. Caches that `share` them store them once.
    """

    def __init__(self, d: int, c: int) -> None:
        super().__init__(d, c)
        self.keys, self.values = Rows(self.d), Rows(self.c)

    def share(self, other: AllKeys) -> None:
        """Use the keys of a cache that gets the same tokens, and its values if both are exact."""
        self.keys = other.keys
        if type(self.values) is type(other.values) is Rows:
            self.values = other.values

    def add(self, k: Array, v: Array) -> None:
        """Store key and value, unless a cache that shares them has stored them."""
        self._keep(k[None], v[None])

    def extend(self, K: Array, V: Array) -> None:
        self._keep(K, V)
        self.tokens += len(K)

    def _keep(self, K: Array, V: Array) -> None:
        for rows, x in ((self.keys, K), (self.values, V)):
            if len(rows) == self.tokens:
                rows.append(np.asarray(x, self.dtype))

    def answer(self, q: Array, sink: float) -> Array:
        return np.asarray(softmax(self.keys.array @ q, sink) @ self.values.array)

    @property
    def reads(self) -> int:
        return self.keys.numbers + self.values.numbers

    def arrays(self) -> list[Any]:
        return [self.keys, *self.values.wide]

    def coded(self) -> list[Any]:
        return self.values.codes


class KeptKeys(Cache):
    """Keys with their values, with eviction when there are too many.

    Parameters
    ----------
    d, c : int
    limits : Limits
        The largest number of keys, and the keys that are never evicted.
    heavy : bool
        Whether to evict the keys with the least attention so far, as in H2O, or the oldest keys.
    scores : callable, optional
        Maps the logits of a query, the values and the output to a score of each key, as in TOVA.
        When the cache is full, the query evicts the keys with the lowest scores.
    rereads : bool
        Whether these scores read the values a second time.
    window : int
        The number of last tokens that a query sees; 0 for all. Hidden keys are evicted at once.
    choose : callable, optional
        Maps queries, keys and values of the prompt to the keys that stay; later keys all stay.
    keys_alone : bool
        Whether this choice makes no use of the queries.

    Notes
    -----
    A query reads every stored key. With ``heavy`` it also reads the sum of attention of each key,
    and adds its own attention. So call `attend` exactly once per token, after `append`.

    Examples
    --------
    >>> from approx import parse
    >>> cache = parse("sink_window(k=2)").cache(d=1, c=1)
    >>> for value in [1.0, 2.0, 3.0]:
    ...     cache.append([0.0], [value])
    >>> cache.places.array, cache.attend([0.5]), cache.reads
    (array([0, 2]), array([2.]), 4)
    """

    def __init__(
        self,
        d: int,
        c: int,
        limits: Limits,
        *,
        heavy: bool = False,
        scores: Callable[[Array, Array, Array], Array] | None = None,
        rereads: bool = False,
        window: int = 0,
        choose: Callable[[Array, Array, Array], Array] | None = None,
        keys_alone: bool = False,
    ) -> None:
        super().__init__(d, c)
        self.limits, self.heavy, self.window, self.choose = limits, heavy, window, choose
        self.scores, self.rereads = scores, rereads
        self.keys, self.values = Rows(self.d), Rows(self.c)
        self.queries = Rows(self.d)  # of the prompt, if they choose
        self.places, self.sums = Rows(), Rows()
        self.asks = heavy or scores is not None or (choose is not None and not keys_alone)

    def add(self, k: Array, v: Array) -> None:
        if self.window and (self.choose is None or self.tokens > self.limits.full):
            self._drop(np.flatnonzero(self._hidden))
        if self._is_full:
            self._evict(self.sums.array)
        if self.tokens >= self.limits.full and len(self.keys) == self.limits.k:
            return  # the cache is full of sinks
        for rows, x in ((self.keys, k), (self.values, v)):
            rows.append(x[None])
        self.places.append(np.array([self.tokens]))
        self.sums.append(np.zeros(1))

    @property
    def _is_full(self) -> bool:
        over = self.tokens - self.limits.full
        return over >= 0 and over % self.limits.block == 0

    @property
    def _hidden(self) -> Array:
        """Whether the next query does not see each key."""
        oldest = self.tokens + 1 - self.window if self.window else 0
        return np.asarray(self.places.array < oldest)

    def _evict(self, scores: Array) -> None:
        if self.choose is not None:
            kept = self.choose(self.queries.array, self.keys.array, self.values.array)
            self._drop(np.setdiff1d(self.places.array, kept))
            self.queries = Rows(self.d)
            return
        hidden = self._hidden
        self._drop(np.flatnonzero(hidden))
        scores = scores[~hidden]
        many = len(self.keys) - (self.limits.k - self.limits.block)
        free = np.flatnonzero(self.limits.free(self.places.array, self.tokens))
        worst = ranked(-scores[free])  # of equal scores the oldest keys
        self._drop(free[worst[: max(many, 0)]])

    def _drop(self, places: Array) -> None:
        for rows in (self.keys, self.values, self.places, self.sums):
            rows.drop(places)

    def answer(self, q: Array, sink: float) -> Array:
        if self.choose is not None and self.asks and self.tokens <= self.limits.prompt:
            self.queries.append(q[None])
        logits = self.keys.array @ q
        if self.window:
            logits[self.places.array < self.tokens - self.window] = -np.inf
        if self.heavy:
            self.sums.array[:] = self.sums.array + softmax(logits)
        values = self.values.array
        found = np.asarray(softmax(logits, sink) @ values)
        if self.scores is not None and self._is_full:
            output = found if sink == -np.inf else softmax(logits) @ values
            self._evict(self.scores(logits, values, output))
        return found

    @property
    def reads(self) -> int:
        seen = len(self.keys) - np.count_nonzero(self._hidden)
        evicts = self._is_full and seen > self.limits.k - self.limits.block
        again = self.c if self.rereads and evicts else 0
        return len(self.keys) * (self.d + self.c + self.heavy + again)

    @property
    def common(self) -> int:
        later = 0 if self.choose is None else self.places.array >= self.limits.prompt
        return int(np.count_nonzero(later)) * (self.d + self.c)

    def arrays(self) -> list[Any]:
        return [self.keys, self.values, self.queries, *([self.sums] if self.heavy else [])]


class ChosenKeys(AllKeys):
    """All keys; a query reads the keys with the largest scores.

    Parameters
    ----------
    d, c : int
    scores : callable
        (q (d,), K (l, d)) → a score of each key; of equal scores the first keys are read.
    k : int
        Number of keys that a query reads.
    looks : int
        Numbers that the score of a key reads.

    Examples
    --------
    The second channel of the query is larger, and in this channel the second key is larger:

    >>> from approx import parse
    >>> cache = parse("projected_top_k(k=1, r=1, by='channels')").cache(d=2, c=1)
    >>> for key, value in [([5.0, 0.0], 3.0), ([0.0, 1.0], 4.0)]:
    ...     cache.append(key, [value])
    >>> cache.attend([1.0, 2.0]), cache.reads
    (array([4.]), 5)
    """

    def __init__(
        self,
        d: int,
        c: int,
        scores: Callable[[Array, Array], Array],
        k: int,
        *,
        looks: int,
    ) -> None:
        super().__init__(d, c)
        self.scores, self.k, self.looks = scores, k, looks

    def answer(self, q: Array, sink: float) -> Array:
        keys = self.keys.array
        best = np.argsort(-self.scores(q, keys), kind="stable")[: self.k]
        return np.asarray(softmax(keys[best] @ q, sink) @ self.values.array[best])

    @property
    def reads(self) -> int:
        chosen = min(self.k, self.tokens) * (self.d + self.c)
        return self.tokens * self.looks + chosen


class KeptChannels(Cache):
    """Keys with some of their channels, except the last keys, which are whole; and all values.

    Parameters
    ----------
    d, c : int
    choose : callable
        (queries (m, d), keys (group, d)) → the channels that these keys keep, (r,).
    r, group, recent, window : int
        The fields of `key_channels`; recent ≥ group − 1.
    """

    asks = True

    def __init__(
        self,
        d: int,
        c: int,
        choose: Callable[[Array, Array], Array],
        r: int,
        group: int,
        recent: int,
        window: int,
    ) -> None:
        super().__init__(d, c)
        self.choose, self.group, self.recent, self.window = choose, group, recent, window
        self.last, self.queries, self.values = Rows(d), Rows(d), Rows(c)
        self.thin, self.channels = Rows(r), Rows(r)  # of each key, of each group

    def add(self, k: Array, v: Array) -> None:
        self.last.append(k[None])
        self.values.append(v[None])
        if len(self.last) > self.recent:
            if len(self.thin) % self.group == 0:
                chosen = self.choose(self.queries.array, self.last.array[: self.group])
                self.channels.append(chosen[None])
            self.thin.append(self.last.array[:1, self.channels.array[-1]])
            self.last.drop(np.zeros(1, np.intp))

    def answer(self, q: Array, sink: float) -> Array:
        groups = np.arange(len(self.thin)) // self.group
        logits = (self.thin.array * q[self.channels.array.astype(np.intp)][groups]).sum(axis=1)
        logits = np.concatenate([logits, self.last.array @ q])
        if len(self.queries) == self.window:
            self.queries.drop(np.zeros(1, np.intp))
        self.queries.append(q[None])
        return np.asarray(softmax(logits, sink) @ self.values.array)

    @property
    def reads(self) -> int:
        return sum(x.array.size for x in (self.thin, self.last, self.values))

    @property
    def common(self) -> int:
        return int(self.last.array.size + self.values.array.size)

    def arrays(self) -> list[Any]:
        return [self.thin, self.last, self.values, self.queries]


class WindowKeys(Cache):
    """The keys of a window, for a method whose rows depend on their query and these keys alone.

    Each query gets a copy of ``rng``. At least ``lead`` keys before the window are stored, too. The
    position of the first stored key is a multiple of ``block``.
    """

    def __init__(
        self,
        d: int,
        c: int,
        window: int,
        method: Method,
        rng: np.random.Generator,
        block: int = 1,
        lead: int = 0,
    ) -> None:
        super().__init__(d, c)
        self.window, self.method, self.rng = window, method, rng
        self.block, self.lead = block, lead
        self.keys, self.values = Rows(self.d), Rows(self.c)

    def add(self, k: Array, v: Array) -> None:
        for rows, x in ((self.keys, k), (self.values, v)):
            rows.append(x[None])
        need = max(self.tokens + 1 - self.window - self.lead, 0) // self.block * self.block
        if gone := need - (self.tokens + 1 - len(self.keys)):
            self.keys.drop(np.arange(gone))
            self.values.drop(np.arange(gone))

    def answer(self, q: Array, sink: float) -> Array:
        l = len(self.keys)
        mask = Mask(np.array([max(l - self.window, 0)]), np.array([l]), l, looks_back=True)
        rng, keys = copy.deepcopy(self.rng), self.keys.array
        values = self.values.array
        given: Any = {"mask": mask, "rng": rng, "sink": sink, "V": values}
        return np.asarray(self.method.approximate(q[None], keys, **given).attend(values)[0])

    @property
    def reads(self) -> int:
        return len(self.keys) * (self.d + self.c)

    def arrays(self) -> list[Any]:
        return [self.keys, self.values]


class KeptPages(AllKeys):
    """All keys in pages, each with the box, the mean, or mean and deviation of its keys.

    Parameters
    ----------
    d, c : int
    size : int
        Number of keys in a page.
    count : int
        Number of pages that a query reads.
    by : {"box", "mean", "deviation"}
        The score of a page, see `pages`.
    current : bool
        Whether the last page is always read, without a score.

    Notes
    -----
    The summary of the last page changes with each appended key; beside a mean it may be the sum of
    squares around it. A query reads the summaries of all scored pages, and then the keys of the
    best pages. Of equal scores the first pages are read. While there are at most ``count`` pages,
    all are read without a score.

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

    def __init__(self, d: int, c: int, size: int, count: int, *, by: str, current: bool) -> None:
        super().__init__(d, c)
        self.size, self.count, self.by, self.current = size, count, by, current
        # the least and the greatest numbers, the means, or the means and the sums of squares
        self.first, self.second = Rows(self.d), Rows(self.d)

    def add(self, k: Array, v: Array) -> None:
        super().add(k, v)
        before = self.tokens % self.size
        if before == 0:
            self.first.append(k[None])
            if self.by != "mean":
                self.second.append(k[None] if self.by == "box" else 0 * k[None])
            return
        first, second = self.first.array, self.second.array
        if self.by == "box":
            first[-1], second[-1] = np.minimum(first[-1], k), np.maximum(second[-1], k)
            return
        away = k - first[-1]
        first[-1] += away / (before + 1)
        if self.by == "deviation":
            second[-1] += away * (k - first[-1])

    def extend(self, K: Array, V: Array) -> None:
        for k, v in zip(K, V):
            self.append(k, v)

    def answer(self, q: Array, sink: float) -> Array:
        places = (self._best(q)[:, None] * self.size + np.arange(self.size)).ravel()
        places = places[places < self.tokens]
        keys, values = self.keys.array[places], self.values.array[places]
        return np.asarray(softmax(keys @ q, sink) @ values)

    def _best(self, q: Array) -> Array:
        scored = self._scored
        if not scored:
            return np.arange(-(-self.tokens // self.size))
        first, second = self.first.array[:scored], self.second.array[:scored]
        scores = boxes.highest(q[None], first, second)[0] if self.by == "box" else first @ q
        if self.by == "deviation":
            counts = np.full((scored, 1), self.size, second.dtype)
            counts[-1] = min(self.size, self.tokens - self.size * (scored - 1))
            scores = scores + np.sqrt(second / counts) @ np.abs(q)
        best = ranked(scores, offset=True)[: self.count - self.current]
        return np.sort(np.append(best, scored) if self.current else best)

    @property
    def _scored(self) -> int:
        pages = -(-self.tokens // self.size)
        return pages - self.current if pages > self.count else 0

    @property
    def reads(self) -> int:
        summaries = self._scored * self.d * (1 if self.by == "mean" else 2)
        missing = -self.tokens % self.size if self.current else 0  # of the last page, which is read
        keys = min(self.count * self.size - missing, self.tokens)
        return summaries + keys * (self.d + self.c)

    def arrays(self) -> list[Any]:
        return [*super().arrays(), self.first, self.second]
