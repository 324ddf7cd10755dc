"""What a query sees as few blocks of keys: long ones far away, single keys near by.

Keys from ``sinks`` on belong to a binary tree, whose leaves hold ``leaf`` keys each. A block of
level p has leaf·2^p keys, and begins at a multiple of that. A query *takes* every block that it
sees whole and that does not hold its own position, unless it takes the block of which this one is a
half. The keys that are left are *near*: the first ``sinks``, those of its own leaf, and fewer than
a leaf at each end of its interval.

Under a causal mask these are the blocks of a Fenwick tree, one for each binary digit 1 of the
position's leaf, and the queries that take a block are its right sibling: the dyadic rectangles
[mid, hi) × [lo, mid). Without a mask, they are these and the same above the diagonal.
"""

import dataclasses
import functools

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.supports import patterns


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """Which queries take which blocks of one size.

    Attributes
    ----------
    size : int
        Keys per block; the last one may have fewer.
    rows, blocks : (pairs,)
        Query and block of every pair, those of a block together, in order.
    """

    size: int
    rows: Array
    blocks: Array

    @functools.cached_property
    def groups(self) -> list[tuple[int, slice]]:
        """The blocks that are taken, each with the slice of its pairs."""
        taken, first = np.unique(self.blocks, return_index=True)
        ends = [*first[1:].tolist(), len(self.blocks)]
        return [(b, slice(a, z)) for b, a, z in zip(taken.tolist(), first.tolist(), ends)]


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The pairs of a query and a key that are seen, as blocks and near keys.

    Attributes
    ----------
    mask : Mask
    sinks : int
        Keys before the first block.
    levels : tuple of Level
        Level p has blocks of leaf·2^p keys.
    first, last : (n, 4)
        The near keys of every query, as runs of keys first ≤ j < last.
    """

    mask: Mask
    sinks: int
    levels: tuple[Level, ...]
    first: Array
    last: Array

    def keys(self, level: Level, block: int) -> slice:
        """Return the keys of a block.

        Examples
        --------
        >>> whole = partition(Mask.full(5, 5), leaf=2, sinks=0)
        >>> whole.keys(whole.levels[0], 2)
        slice(4, 5, None)
        """
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
        """How many near keys each query has, (n,)."""
        return np.asarray(patterns.lengths(self.first, self.last).sum(axis=1))

    @functools.cached_property
    def far(self) -> Array:
        """How many blocks each query takes, (n,)."""
        rows = [level.rows for level in self.levels]
        return np.bincount(np.concatenate([*rows, np.empty(0, np.intp)]), minlength=self.mask.n)

    @functools.cached_property
    def columns(self) -> int:
        """Queries and keys of all rectangles together: what one term of each stores."""
        keys = [self.keys(level, b) for level in self.levels for b, _ in level.groups]
        return int(self.far.sum()) + sum(int(part.stop - part.start) for part in keys)


@functools.lru_cache(maxsize=16)  # searches for a rank, and the heads of a model, ask again
def partition(mask: Mask, leaf: int, sinks: int) -> Partition:
    """Return the blocks and the near keys of every query.

    Parameters
    ----------
    mask : Mask
    leaf : int
        Keys of the smallest block.
    sinks : int
        Keys before the first block.

    Notes
    -----
    Cost: O(n log(l/leaf)). The blocks follow from the interval and the position of the query alone.

    Examples
    --------
    >>> causal = partition(Mask.causal(8, 8), leaf=2, sinks=0)
    >>> [(level.size, level.rows.tolist(), level.blocks.tolist()) for level in causal.levels]
    [(2, [2, 3, 6, 7], [0, 0, 2, 2]), (4, [4, 5, 6, 7], [0, 0, 0, 0])]
    >>> causal.near.tolist()
    [1, 2, 1, 2, 1, 2, 1, 2]
    """
    begin, stop = np.maximum(mask.first, sinks), np.maximum(mask.stop, sinks)
    count = max(-(-(mask.l - sinks) // leaf), 0)  # leaves, of which the last may be short
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
