"""Reformer: keys of the query's angular bucket, cut into chunks."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.method import Size
from approx.method.fields import integer, one_of
from approx.method.prices import Numbers, Price, Shape
from approx.method.tags import (
    AUTOREGRESSIVE,
    POSITIONAL,
    RANDOM,
    READS_VALUES,
    ROTATION,
    ROW_LOCAL,
    SCALE,
    collect,
)
from approx.sparse.support import MOST_ROUNDS, SupportMethod
from approx.supports import hashing, patterns


@dataclasses.dataclass(frozen=True)
class Reformer(SupportMethod):
    """Keys of the query's bucket in its chunk and the one before, in several rounds, exact.

    In a round, the bucket of a vector x is the index of the largest of ±w_1·x, …, ±w_{b/2}·x, with
    b near l/size. Keys are sorted by (bucket, place) and cut into chunks of `size`. The query gets
    the chunk in which a key of its bucket and place would be. It takes the keys of its bucket in
    that chunk and in the chunk before (for the first chunk, the last). The support is the union of
    the rounds; each pair counts once.

    Parameters
    ----------
    size : int, optional
        Keys per chunk; None is a template.
    rounds : int
    buckets : int, optional
        The number b of buckets, an even number; near l/size by default.
    cut : {"list", "bucket"}
        ``list`` cuts the sorted list of all keys; a new token moves its cuts. ``bucket`` cuts each
        bucket from its first key, with nothing before its first chunk; no token moves these cuts.

    Notes
    -----
    The method is made for shared queries and keys (Q = K up to the lengths of the keys). There it
    has the Reformer's support, except for the query's own place, which the Reformer masks. A chunk
    is as long as the average bucket, as in public code; the paper has chunks of twice that length,
    which is ``buckets`` near 2·l/size. Where Q and K differ, the method searches by angle and not
    by inner product. The probability of an entry has no known closed form. Under a mask that looks
    back, the place of a query is that of the last key that it sees. The support is autoregressive
    if ``cut="bucket"`` and `buckets` is given.
    Cost: (n + l)·d·b/2·rounds and the sorting; at most 2·n·rounds·size entries.

    References
    ----------
    .. [1] N. Kitaev, Ł. Kaiser, A. Levskaya, "Reformer: the efficient transformer", ICLR 2020,
       section 2 and Eq. (5).

    Examples
    --------
    >>> x = [[1.0], [-1.0], [2.0], [-2.0]]
    >>> Reformer(size=2).approximate(x, x, rng=0).to_dense().round(2)
    array([[ 2.72,  0.  ,  7.39,  0.  ],
           [ 0.  ,  2.72,  0.  ,  7.39],
           [ 7.39,  0.  , 54.6 ,  0.  ],
           [ 0.  ,  7.39,  0.  , 54.6 ]])
    """

    name = "reformer"
    label = "Reformer buckets"
    examples = (
        "reformer(size=1, rounds=2)",
        "reformer(rounds=2, buckets=2, cut='bucket')",
    )
    sized_by = Size("size", counts="entries")

    size: int | None = None
    rounds: int = integer(1, most=MOST_ROUNDS)
    buckets: int | None = integer(least=2, even=True)
    cut: str = one_of("list", ("list", "bucket"))

    @property
    def tags(self) -> frozenset[str]:
        past = self.cut == "bucket" and self.buckets is not None
        return collect(
            READS_VALUES, ROW_LOCAL, RANDOM, POSITIONAL, ROTATION, SCALE, past and AUTOREGRESSIVE
        )

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> patterns.Pattern:
        l, size = len(K), self.size or 0
        vertices = rng.standard_normal((self.rounds, self._vertices(l), Q.shape[1]))
        codes = (hashing.cross_polytope(x, vertices.astype(Q.dtype)) for x in (Q, K))
        cut = _round if self.cut == "list" else _bucket_round
        rounds = (cut(q, k, mask.positions, size) for q, k in zip(*(code.T for code in codes)))
        return patterns.union(rounds, l)

    def held(self, mask: Mask) -> Array | None:
        """Return 2·rounds·size, as for disjoint rounds and wide buckets, or what a row sees."""
        return None if self.size is None else np.minimum(2 * self.rounds * self.size, mask.counts)

    def selection(self, shape: Shape) -> Price:
        directions = float(self.rounds * self._vertices(shape.l) * shape.d)
        buckets = self.rounds * shape.l
        return Price.from_numbers(0.0, directions * shape.both, Numbers(directions + buckets))

    def _vertices(self, l: int) -> int:
        if self.buckets is not None:
            return self.buckets // 2
        return max(1, round(l / (self.size or 1) / 2))


def _order(queries: Array, keys: Array, positions: Array) -> tuple[Array, Array]:
    """Return the order of the keys by (bucket, place), and the rank of each query in it, (n,)."""
    l, order = len(keys), np.argsort(keys, kind="stable")
    return order, np.searchsorted(keys[order] * l + order, queries * l + positions)


def _bucket_round(queries: Array, keys: Array, positions: Array, size: int) -> patterns.Pattern:
    """Return the pairs of one round in which every bucket is cut by itself."""
    order, place = _order(queries, keys, positions)
    begin, end = (np.searchsorted(keys[order], queries, side) for side in ("left", "right"))
    chunk = (place - begin) // size
    indptr, places = patterns.runs(
        begin + np.maximum(chunk - 1, 0) * size, np.minimum(begin + (chunk + 1) * size, end)
    )
    return indptr, order[places]


def _round(queries: Array, keys: Array, positions: Array, size: int) -> patterns.Pattern:
    """Return the pairs of one round in which the whole list is cut; buckets are (n,), (l,)."""
    l = len(keys)
    order, place = _order(queries, keys, positions)
    chunk = np.minimum(place, l - 1) // size
    before = np.where(chunk > 0, chunk - 1, -(-l // size) - 1)
    pairs = (patterns.same_chunk(c * size, l, size) for c in (chunk, before))
    return _within_bucket(patterns.union(pairs, l), order, queries, keys)


def _within_bucket(
    pairs: patterns.Pattern, order: Array, queries: Array, keys: Array
) -> patterns.Pattern:
    """Return the pairs that share a bucket, from pairs (query, rank in the order)."""
    indptr, places = pairs
    rows, columns = np.repeat(np.arange(len(queries)), np.diff(indptr)), order[places]
    kept = queries[rows] == keys[columns]
    counts = np.bincount(rows[kept], minlength=len(queries))
    return np.concatenate([[0], np.cumsum(counts)]), columns[kept]
