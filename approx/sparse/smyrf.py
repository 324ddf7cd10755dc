"""SMYRF: balanced clusters of queries and keys by random projections."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.method import Size
from approx.method.fields import integer
from approx.method.prices import Numbers, Price, Shape
from approx.method.tags import RANDOM, READS_VALUES, ROTATION
from approx.sparse.support import MOST_ROUNDS, SupportMethod
from approx.supports import patterns
from approx.supports.hashing import xbox


@dataclasses.dataclass(frozen=True)
class Smyrf(SupportMethod):
    """Keys in the query's cluster of a sorted random projection, in several rounds, exact.

    `approx.supports.hashing.xbox` first transforms queries and keys. In a round, both are
    sorted by w·x, w ~ N(0, I), and cut: the keys into clusters of `size`; the query of rank r joins
    the cluster of the key of rank ⌊r·l/n⌋. The support is the union of the rounds; each pair counts
    once.

    Parameters
    ----------
    size : int, optional
        Keys per cluster; None is a template.
    rounds : int

    Notes
    -----
    The probability that a pair shares a cluster depends on every other point and has no closed
    form, so the moments are unknown. The support is still independent of the draws of other
    methods. Clusters contain all tokens even under a mask, which then hides part of each cluster.
    So the support is not autoregressive, and a row may hold no key.
    Cost: (n + l)·d·rounds and the sorting; at most n·rounds·size entries, fewer where rounds agree.

    References
    ----------
    .. [1] G. Daras, N. Kitaev, A. Odena, A. G. Dimakis, "SMYRF: efficient attention using
       asymmetric clustering", NeurIPS 2020, section 3. Public code counts a pair once for each
       round that finds it.

    Examples
    --------
    Two keys that point in opposite directions go to separate clusters:

    >>> x = [[9.0], [-9.0]]
    >>> Smyrf(size=1).approximate(x, x, rng=1).sparse.indices
    array([0, 1], dtype=int32)
    """

    name = "smyrf"
    label = "SMYRF clusters"
    tags = frozenset({READS_VALUES, RANDOM, ROTATION})
    examples = ("smyrf(size=1, rounds=2)",)
    sized_by = Size("size", counts="entries")

    size: int | None = None
    rounds: int = integer(1, most=MOST_ROUNDS)

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> patterns.Pattern:
        l, size = len(K), self.size or 0
        q, k = xbox(Q, K)
        omega = rng.standard_normal((self.rounds, q.shape[1])).astype(q.dtype)
        rounds = (_clusters(x, y, size) for x, y in zip(omega @ q.T, omega @ k.T))
        return patterns.union(rounds, l)

    def held(self, mask: Mask) -> Array | None:
        """Return rounds·size, as if no pair were found twice, or what a row sees if less."""
        return None if self.size is None else np.minimum(self.rounds * self.size, mask.counts)

    def selection(self, shape: Shape) -> Price:
        directions = float(self.rounds * (shape.d + 2))
        places = self.rounds * shape.l
        return Price.from_numbers(0.0, directions * shape.both, Numbers(directions + places))


def _clusters(queries: Array, keys: Array, size: int) -> patterns.Pattern:
    """Return the pairs of one round, given the projections (n,), (l,)."""
    n, l = len(queries), len(keys)
    places = np.empty(n, int)
    places[np.argsort(queries, kind="stable")] = patterns.aligned(n, l)
    indptr, indices = patterns.same_chunk(places, l, size)
    return indptr, np.argsort(keys, kind="stable")[indices]
