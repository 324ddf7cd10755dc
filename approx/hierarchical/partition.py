"""The keys that a query sees, partitioned into long blocks far away and single keys near by.

Keys from ``sinks`` on form a binary tree, whose leaves have ``leaf`` keys each. A block of level p
has leaf·2^p keys and, counted from the first leaf, begins at a multiple of that. A query *takes* a
block if it sees all of its keys, the block does not contain the query's position, and the query
does not take the block of which this block is a half. The other keys are *near*: the first
``sinks``, the keys of the query's leaf, and fewer than a leaf at each end of its interval.

Under a causal mask these are the blocks of a Fenwick tree, one for each binary digit 1 of the
number of the query's leaf. The queries at its right sibling take a block, which gives dyadic
rectangles [mid, hi) × [lo, mid). Without a mask there are also the mirrored rectangles above.
"""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.supports import patterns


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """The pairs of a query and a block of one size that the query takes.

    Attributes
    ----------
    size : int
        Keys per block; the last block may have fewer.
    rows, blocks : (pairs,)
        Query and block of every pair, sorted by block and then by query.
    """

    size: int
    rows: Array
    blocks: Array

    @functools.cached_property
    def groups(self) -> list[tuple[int, slice]]:
        """The blocks that a query takes, each with the slice of its pairs."""
        taken, first = np.unique(self.blocks, return_index=True)
        ends = [*first[1:].tolist(), len(self.blocks)]
        return [(b, slice(a, z)) for b, a, z in zip(taken.tolist(), first.tolist(), ends)]


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The seen pairs of a query and a key, as blocks and near keys.

    Attributes
    ----------
    mask : Mask
    sinks : int
        Keys before the first block.
    levels : tuple of Level
        Level p has blocks of leaf·2^p keys.
    first, last : (n, 4)
        The near keys of every query, as four runs first ≤ j < last.
    """

    mask: Mask
    sinks: int
    levels: tuple[Level, ...]
    first: Array
    last: Array

    def keys(self, level: Level, block: int) -> slice:
        """Return the keys of a block."""
        start = self.sinks + block * level.size
        return slice(start, min(start + level.size, self.mask.l))

    @property
    def nbytes(self) -> int:
        """Bytes of the pairs, the runs of near keys and the bounds of the mask."""
        arrays = [x for level in self.levels for x in (level.rows, level.blocks)]
        arrays += [self.first, self.last, self.mask.first, self.mask.stop]
        return sum(x.nbytes for x in arrays)

    @functools.cached_property
    def near(self) -> Array:
        """The number of near keys of each query, (n,)."""
        return np.asarray(patterns.lengths(self.first, self.last).sum(axis=1))

    def rectangles(self, rank: int) -> Iterator[tuple[Array, Array, Array]]:
        """Yield the numbers of queries, keys and terms of all rectangles of every level.

        A block of fewer than ``rank`` keys has one term a key.
        """
        for level in self.levels:
            queries = np.bincount(level.blocks)
            blocks = np.flatnonzero(queries)
            keys = np.minimum(level.size, self.mask.l - self.sinks - blocks * level.size)
            yield queries[blocks], keys, np.minimum(rank, keys)

    def terms(self, rank: int) -> Array:
        """Return the number of terms of the blocks that each query takes, (n,)."""
        found = np.zeros(self.mask.n, np.intp)
        for level, (queries, _, terms) in zip(self.levels, self.rectangles(rank)):
            np.add.at(found, level.rows, np.repeat(terms, queries))  # in the order of the blocks
        return found

    def stored(self, rank: int) -> int:
        """Return the stored values: (queries + keys)·terms, summed over all rectangles."""
        return int(sum(((n + keys) * terms).sum() for n, keys, terms in self.rectangles(rank)))


@functools.lru_cache(maxsize=16)  # searches for a rank and the heads of a model repeat calls
def partition(mask: Mask, leaf: int, sinks: int) -> Partition:
    """Return the blocks, of at least ``leaf`` keys, and the near keys of every query.

    Notes
    -----
    Cost: O(n log(l/leaf)). The blocks depend only on the interval and the position of the query.

    Examples
    --------
    >>> causal = partition(Mask.causal(8, 8), leaf=2, sinks=0)
    >>> [(level.size, level.rows.tolist(), level.blocks.tolist()) for level in causal.levels]
    [(2, [2, 3, 6, 7], [0, 0, 2, 2]), (4, [4, 5, 6, 7], [0, 0, 0, 0])]
    >>> causal.near.tolist()
    [1, 2, 1, 2, 1, 2, 1, 2]
    """
    begin, stop = np.maximum(mask.first, sinks), np.maximum(mask.stop, sinks)
    count = max(-(-(mask.l - sinks) // leaf), 0)  # number of leaves; the last may be short
    low = -(-(begin - sinks) // leaf)
    high = np.where(stop == mask.l, count, (stop - sinks) // leaf)
    own = (mask.positions - sinks) // leaf
    inside = (low <= own) & (own < high)
    edge = np.where(inside, own, high)
    first_after = np.minimum(sinks + low * leaf, stop)
    last_before = np.maximum(np.minimum(sinks + high * leaf, stop), first_after)
    own_first = np.where(inside, sinks + own * leaf, first_after)
    own_last = np.where(inside, np.minimum(own_first + leaf, mask.l), first_after)
    first = np.stack([np.minimum(mask.first, sinks), begin, own_first, last_before], axis=1)
    last = np.stack([np.minimum(mask.stop, sinks), first_after, own_last, stop], axis=1)
    levels = []
    segments = [(low, edge), (edge + inside, high)]
    size = leaf
    while any((lo < hi).any() for lo, hi in segments):
        taken = []
        for side, (lo, hi) in enumerate(segments):
            odd = (lo < hi) & (lo & 1 == 1)
            taken.append((np.flatnonzero(odd), lo[odd]))
            lo = lo + odd
            odd = (lo < hi) & (hi & 1 == 1)
            taken.append((np.flatnonzero(odd), hi[odd] - 1))
            segments[side] = lo >> 1, (hi - odd) >> 1
        rows, blocks = (np.concatenate(x) for x in zip(*taken))
        order = np.lexsort((rows, blocks))
        levels.append(Level(size, rows[order], blocks[order]))
        size *= 2
    return Partition(mask, sinks, tuple(levels), first, last)
