"""Eviction: a cache of at most k keys, which is reduced each time it is full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.kernels.elementary import exp
from approx.kernels.jit import kernel
from approx.supports.patterns import Pattern, ranked, runs

TIE = 2.0**-32  # as in `patterns`: a kernel uses names of its own file


class Limits(NamedTuple):
    """The size of a cache, and the keys that it never evicts.

    Keys come in order. At the positions k, k + block, k + 2·block, … the cache is reduced to
    k − block keys, before the key at this position is added. The first `sinks` keys are never
    evicted, nor are the last `recent` ≥ 1 keys, which include the coming one. With a ``prompt``,
    all its keys stay until its end: `prompt` takes the place of the first position k.
    """

    k: int
    block: int
    sinks: int
    recent: int
    prompt: int = 0

    @property
    def full(self) -> int:
        """The number of keys before the first eviction."""
        return self.prompt or self.k

    def start(self, b: int) -> int:
        """Return the first key of block b: 0, `full`, `full` + block and so on."""
        return 0 if b == 0 else self.full + (b - 1) * self.block

    def starts(self, blocks: Array) -> Array:
        """Return `start` of each block in an array."""
        return np.where(blocks == 0, 0, self.full + (blocks - 1) * self.block)

    def free(self, keys: Array, start: int) -> Array:
        """Return which keys may be evicted before the block with first key ``start``."""
        return (keys >= self.sinks) & (keys <= start - self.recent)


class Blocks(NamedTuple):
    """The queries, grouped by the block of keys that contains their position.

    Attributes
    ----------
    order : (n,)
        The queries in the order of their positions.
    first, end : (n,)
        In this order, a query reads keys first ≤ j < end; key end − 1 is at its position.
    bounds : (blocks + 1,)
        The queries of block b are order[bounds[b]:bounds[b + 1]].
    lows : (blocks,)
        The first key that any query of a block sees; 0 if the block has no query.
    """

    order: Array
    first: Array
    end: Array
    bounds: Array
    lows: Array

    @classmethod
    def from_mask(cls, mask: Mask, limits: Limits) -> Blocks:
        """Return the blocks of queries under a mask."""
        end = mask.stop if mask.looks_back else np.minimum(mask.positions + 1, mask.stop)
        order = np.argsort(end, kind="stable")
        first, end = mask.first[order], end[order]
        block = np.maximum((end - 1 - limits.full) // limits.block + 1, 0)
        count = int(block[-1]) + 1
        bounds = np.searchsorted(block, np.arange(count + 1))
        lows = np.zeros(count, np.intp)
        filled = bounds[:-1] < bounds[1:]
        lows[filled] = np.minimum.reduceat(first, bounds[:-1][filled])
        return cls(order, first, end, bounds, lows)

    def filled(self) -> Array:
        """Return the blocks that have queries."""
        return np.flatnonzero(np.diff(self.bounds))

    def pattern(self, kept: list[Array], limits: Limits, l: int) -> Pattern:
        """Return the keys that each query reads: the cache before its block, and its block so far.

        ``kept`` lists the keys in the cache before each block that has queries.
        """
        filled = self.filled()
        each = np.repeat(np.arange(len(filled)), np.diff(self.bounds)[filled])
        sizes = np.array([len(keys) for keys in kept])
        stops = np.cumsum(sizes)
        back = np.argsort(self.order)
        block, end = each[back], self.end[back]
        every = np.concatenate([*kept, np.arange(l)])
        begin, end = (len(every) - l + x for x in (limits.starts(filled)[block], end))
        first = np.stack([(stops - sizes)[block], begin], axis=1)
        indptr, places = runs(first.ravel(), np.stack([stops[block], end], axis=1).ravel())
        return indptr[::2], every[places]


def held(blocks: Blocks, limits: Limits) -> Array:
    """Return the largest number of keys that each query can read, (n,), in the given order."""
    block = np.repeat(np.arange(len(blocks.lows)), np.diff(blocks.bounds))
    starts = limits.starts(np.arange(len(blocks.lows)))
    kept = np.minimum(limits.k - limits.block, np.minimum(limits.k, starts - blocks.lows))
    kept[0] = 0
    begin = np.maximum(starts[block], blocks.first)
    old = np.minimum(kept[block], np.maximum(starts[block] - blocks.first, 0))
    found = np.empty(len(blocks.order), int)
    found[blocks.order] = old + blocks.end - begin
    return found


def looked_at(blocks: Blocks, limits: Limits) -> tuple[Array, Array]:
    """Return, for each eviction, the largest number of keys compared, and the queries so far.

    A cache that has room does not evict, and is left out.
    """
    starts = limits.starts(np.arange(len(blocks.lows)))
    keys = np.minimum(limits.k, starts - blocks.lows)
    looks = keys > limits.k - limits.block
    looks[0] = False
    return keys[looks], blocks.bounds[:-1][looks]


def by_scores(
    blocks: Blocks, limits: Limits, l: int, score: Callable[[int, Array, Array], Array]
) -> list[Array]:
    """Return the keys in the cache before each block with queries, after evictions by low score.

    ``score`` maps (number of queries so far, keys in the cache, which of them may be evicted) to a
    score of each key. Of equal scores (`patterns.rounded`) the oldest keys are evicted.
    """
    keys, kept = np.arange(min(limits.full, l)), []
    for b, low in enumerate(blocks.lows):
        if b:
            keys = keys[keys >= low]
            start = limits.start(b)
            keys = reduced(keys, limits, start, score, int(blocks.bounds[b]))
        if blocks.bounds[b] < blocks.bounds[b + 1]:
            kept.append(keys if b else keys[:0])
        if b:
            keys = np.concatenate([keys, np.arange(start, min(start + limits.block, l))])
    return kept


def reduced(
    keys: Array,
    limits: Limits,
    start: int,
    score: Callable[[int, Array, Array], Array],
    come: int,
) -> Array:
    """Return the keys that stay in the cache before the block with first key ``start``.

    ``come`` queries have come so far; `by_scores` describes the score.
    """
    many = len(keys) - (limits.k - limits.block)
    if many <= 0:
        return keys
    free = limits.free(keys, start)
    worst = ranked(-score(come, keys, free)[free])[:many]
    return np.delete(keys, np.flatnonzero(free)[worst])


def heavy_hitters(Q: Array, K: Array, blocks: Blocks, limits: Limits) -> list[Array]:
    """Return the keys in H2O's cache before each block with queries.

    A key's score is the sum of the attention weights it has received, each among cached keys.
    """
    kept = np.full((len(blocks.filled()), limits.k), -1)
    room, d = max(limits.k, limits.full), K.shape[1]
    keys, slots = np.zeros(room, np.int64), np.arange(room)
    sums, logits, weights = np.empty((3, room))
    _heavy_hitters(
        Q[blocks.order], K, blocks.first, blocks.end, blocks.bounds, blocks.lows, *limits[:4],
        limits.full, keys, slots, sums, logits, weights, np.empty((d, room)), kept,
    )  # fmt: skip
    counts = np.count_nonzero(kept >= 0, axis=1).tolist()
    return [keys[:count] for keys, count in zip(kept, counts)]


@kernel
def _heavy_hitters(
    Q: Any, K: Any, first: Any, end: Any, bounds: Any, lows: Any,
    k: int, block: int, sinks: int, recent: int, full: int,
    keys: Any, slots: Any, sums: Any, logits: Any, weights: Any, cached: Any, kept: Any,
) -> None:  # fmt: skip
    # A slot of the cache stores a key. `slots` lists the slots of the keys, oldest first, and then
    # the free slots. Logits are summed coordinate by coordinate, for all slots side by side.
    # Keys that no query of a block sees are the oldest, and leave before any others. Comparisons
    # stand for `min` and `max`, which would take longer to compile.
    l, d = K.shape
    count, most, start, row = 0, 0, 0, 0
    for b in range(lows.size):
        stop = full if b == 0 else start + block
        stop = stop if stop < l else l
        if b > 0:
            while count > k - block or (count > 0 and keys[0] < lows[b]):
                unit, least, worst = 0.0, np.inf, 0
                for s in range(0 if keys[0] < lows[b] else count):
                    if sinks <= keys[s] <= start - recent and sums[s] * TIE > unit:
                        unit = sums[s] * TIE
                for s in range(0 if keys[0] < lows[b] else count):
                    score = np.rint(sums[s] / unit) if unit > 0.0 else 0.0
                    if sinks <= keys[s] <= start - recent and score < least:
                        worst, least = s, score
                slot = slots[worst]
                count -= 1
                for s in range(worst, count):
                    keys[s], sums[s], slots[s] = keys[s + 1], sums[s + 1], slots[s + 1]
                slots[count] = slot
            if bounds[b] < bounds[b + 1]:
                for s in range(count):
                    kept[row, s] = keys[s]
        if bounds[b] < bounds[b + 1]:
            row += 1
        for i in range(bounds[b], bounds[b + 1] + 1):
            upto = end[i] if i < bounds[b + 1] else stop
            while start < upto:
                keys[count], sums[count] = start, 0.0
                for c in range(d):
                    cached[c, slots[count]] = K[start, c]
                count += 1
                start += 1
            most = count if count > most else most
            if i == bounds[b + 1]:
                break
            for s in range(most):
                logits[s] = 0.0
            for c in range(d):
                x = Q[i, c]
                for s in range(most):
                    logits[s] += x * cached[c, s]
            top = -np.inf
            for s in range(count):
                weights[s] = logits[slots[s]] if first[i] <= keys[s] else -np.inf
                top = weights[s] if weights[s] > top else top
            if top == -np.inf:
                continue
            for s in range(count):
                weights[s] = exp(weights[s] - top)
            total = 0.0
            for s in range(count):
                total += weights[s]
            for s in range(count):
                sums[s] += weights[s] / total
