"""ThinK: keys without the channels in which recent queries and keys are small."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.compressed_logits.coded_keys import before
from approx.compressed_logits.exponential import Exponential
from approx.compressed_logits.method import CompressedLogits, CompressionCost
from approx.decoding.cache import Cache
from approx.decoding.keys import KeptChannels
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Size
from approx.method.fields import integer
from approx.method.prices import OWN, SHARED, Numbers, Price, Shape
from approx.method.tags import (
    AUTOREGRESSIVE,
    PAST_QUERIES,
    POSITIONAL,
    READS_VALUES,
    SCALE,
    collect,
)
from approx.supports import patterns


@dataclasses.dataclass(frozen=True)
class KeyChannels(CompressedLogits):
    """The r channels of keys with the largest products of norms, and exp of the logits: ThinK.

    estimate_ij = exp(Σ_{c ∈ C} q_ic k_jc) for a group of keys. C holds the channels with the
    largest Σ_i q_ic² Σ_j k_jc² over the last queries and over the keys of the group; of equal
    values the first. The last keys are exact.

    Parameters
    ----------
    r : int, optional
        Channels that a key keeps, 1 ≤ r ≤ d; None is a template.
    window : int
        Number of queries that decide. Before any query, the keys alone decide.
    group : int, optional
        Number of consecutive keys with one C, by the queries before the first of these keys is
        no longer exact. By default all keys have one C, by the last queries of all.
    recent : int, optional
        Number of last keys that are exact for each query; by default group − 1, the fewest with
        which a row reads nothing of the future, and 0 without groups.

    Notes
    -----
    The estimate is deterministic, positive and biased, and exact at r = d. A model can run it where
    recent ≥ group − 1: what a group drops is lost, as in memory. A query reads r numbers of every
    key that is not exact. The heads of a group choose apart, so that they keep at most
    min(heads·r, d) channels of a key. The last queries are stored, too.
    Cost: n·l·r operations if only these channels are read. Here the others are set to 0: n·l·d.

    The authors' code [2]_ and KVPress choose once, after the prompt: without groups this is the
    row of the last query. KVPress has no exact keys (recent=0) and takes the mean of q_c² over the
    heads of a group.

    References
    ----------
    .. [1] Y. Xu, Z. Jie, H. Dong, L. Wang, X. Lu, A. Zhou, A. Saha, C. Xiong, D. Sahoo, "ThinK:
       thinner key cache by query-driven pruning", ICLR 2025, arXiv 2407.21018.
    .. [2] github.com/SalesforceAIResearch/ThinK, commit d200577,
       ThinK_eager/src/kv_pruning_utils.py: key_pruner_query_driven; github.com/NVIDIA/kvpress,
       kvpress/presses/think_press.py.

    Examples
    --------
    The second channel has larger keys and larger queries:

    >>> KeyChannels(r=1).approximate([[1.0, 2.0]], [[1.0, 1.5]]).to_dense().round(4)
    array([[20.0855]])
    """

    name = "key_channels"
    label = "channels of keys (ThinK)"
    examples = (
        "key_channels(r=1, group=2)",
        "key_channels(r=1, window=3, group=2, recent=3)",
        "key_channels(r=1)",
    )
    sized_by = Size("r")

    r: int | None = None
    window: int = integer(32)
    group: int | None = integer()
    recent: int | None = integer(least=0)

    @property
    def exact_keys(self) -> int:
        """How many of the last keys that a query sees are exact for it."""
        return (self.group or 1) - 1 if self.recent is None else self.recent

    @property
    def tags(self) -> frozenset[str]:
        past = self.group is not None and self.exact_keys >= self.group - 1
        return collect(READS_VALUES, SCALE, POSITIONAL, past and AUTOREGRESSIVE, PAST_QUERIES)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        right = self._thinned(q, k, mask)
        low = Exponential(np.ascontiguousarray(q), right, self.stored(len(q), *k.shape))
        if not self.exact_keys:
            return Parts(low)
        begin = np.asarray(np.maximum(mask.stop - self.exact_keys, mask.first))
        exactly = patterns.exact_on(patterns.runs(begin, mask.stop), q, k, mask)
        return Parts(before(begin, low, mask), exactly)

    def compressed(self, q: Array, k: Array) -> tuple[Array, Array]:
        return q, self._thinned(q, k, Mask.full(len(q), len(k)))

    def _thinned(self, q: Array, k: Array, mask: Mask) -> Array:
        """Return keys with 0 in the channels that they do not keep."""
        order = np.argsort(mask.positions, kind="stable")
        places, found = mask.positions[order], np.zeros_like(k)
        size = self.group or len(k)
        for start in range(0, len(k), size):
            keys = k[start : start + size]
            come = np.searchsorted(places, start + self.exact_keys) if self.group else len(q)
            kept = self.channels(q[order[max(come - self.window, 0) : come]], keys)
            found[start : start + size, kept] = keys[:, kept]
        return found

    def channels(self, q: Array, k: Array) -> Array:
        """Return the channels that some keys keep, in order, given the last queries."""
        squares = [np.square(x / (np.abs(x).max() or 1)).sum(axis=0) for x in (q, k) if len(x)]
        score = patterns.rounded(np.prod(squares, axis=0))
        return np.flatnonzero(patterns.largest(score[None], self.r or 0)[0])

    def numbers(self, d: int) -> CompressionCost:
        r = self.r or 0
        return CompressionCost(d, r, r)

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        if window or self.group is None:
            return None
        return KeptChannels(
            d, c, self.channels, self.r or 0, self.group, self.exact_keys, self.window
        )

    def _price(self, shape: Shape) -> Price | None:
        if self.r is None:
            return None
        n, l, d, c = shape
        recent = shape.seen(min(self.exact_keys, l))  # these are read with all channels
        exact = min(self.exact_keys, shape.most)
        dropped = shape.most - exact
        queries = float(min(self.window, l - 1) * d)  # which choose the channels of later keys
        return Price.from_numbers(
            self.stored(n, l, d) / n + recent,
            float((shape.seen(l) - recent) * self.r + recent * d + shape.seen(l) * c),
            Numbers(float(dropped * self.r), most=float(dropped * d)),
            Numbers(float(exact * d), most=SHARED, kind="keys"),
            Numbers(float(shape.most * c), most=SHARED, kind="values"),
            Numbers(0.0, queries, OWN),
        )
