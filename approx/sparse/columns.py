"""KV cache eviction: one set of keys for many queries, beside the first and the last keys."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.keys import KeptKeys
from approx.estimate import exact
from approx.estimate.masks import Mask
from approx.kernels.elementary import exp_rows
from approx.method import Label, Size
from approx.method.fields import integer, invariant, one_of
from approx.method.prices import NUMBER, Price, Reads, Shape
from approx.sparse.sliding_window import window
from approx.sparse.support import SupportMethod
from approx.supports import eviction, key_scores, patterns
from approx.supports.eviction import Blocks, Limits
from approx.supports.patterns import Pattern

OF_KEYS = {
    "key_norm": key_scores.key_norm,
    "key_diff": key_scores.key_diff,
    "leverage": key_scores.leverage,
    "cur": key_scores.cur,
}
OF_SNAPKV = ("window", "kernel_size", "pooling")
BY = ("mass", "h2o", "snapkv", "expected", *OF_KEYS)


@dataclasses.dataclass(frozen=True)
class Columns(SupportMethod):
    """One set of keys for many queries, with the first and the last keys, exact: KV cache eviction.

    estimate_ij = exp(q_i·k_j) where j is one of the first `sinks` keys, one of the last `recent`
    keys that query i sees, or one of the k − sinks − recent others with the best scores, else 0.

    Parameters
    ----------
    k : int, optional
        Most entries per row, sinks and recent ones included; None is a template.
    by : {"mass", "h2o", "snapkv", "expected", "key_norm", "key_diff", "leverage", "cur"}
        The score of a key:

        - ``mass``: Σ_i softmax_ij of the queries in whose window it is not (needs all logits).
        - ``h2o``: the attention that the key has got so far, from queries that read the cache [1]_.
        - ``snapkv``: the attention of the last `window` queries, pooled over neighbours [2]_.
        - ``expected``: k·μ + ½ kᵀΣk, the log of the mean of exp(q·k) over q ~ N(μ, Σ), which is
          fitted to the queries [3]_.
        - ``key_norm``: −|k|² [4]_.
        - ``key_diff``: −cos(k, mean of k/|k|) [5]_.
        - ``leverage``: kᵀ(KᵀK + λI)⁻¹k with λ = 0.01·|K|²_F/d [6]_.
        - ``cur``: |k|² over its sum in groups of 16 keys [7]_.
    sinks : int
        First keys, which every query that sees them keeps.
    recent : int
        Last keys of every query, as in `sliding_window`, ≥ 0.
    block : int, optional
        Keys that arrive between two evictions. None keeps one set for all queries; for ``h2o``,
        which always evicts, None means 1.
    window : int
        For ``snapkv`` only: the number of queries whose attention is the score.
    kernel_size : int
        For ``snapkv`` only: the number of neighbouring keys to pool over, odd.
    pooling : {"average", "max"}
        For ``snapkv`` only: how neighbours are pooled.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. Its total
    variation from exact attention is the attention off the support. So ``mass``, which needs all
    logits, has the least total variation of all columns beside the same sinks and window. In the
    Frobenius norm of the kernel other columns may be better, because Σ_i exp(q_i·k_j)² counts.

    *One set.* Scores use all keys; ``mass``, ``snapkv`` and ``expected`` also use queries, and the
    other rules are `row_local`. The set is what a cache keeps after an eviction at the end of the
    prompt, but here the queries of the prompt read it. So it is not autoregressive: later tokens
    decide which columns a query reads. A row that does not see all columns has fewer entries. Of
    equal scores (`patterns.rounded`) the first keys are taken.

    *Eviction.* With a block, the support of a query is the cache at its position during decoding.
    Keys arrive in order. When the cache holds k keys, it evicts those with the lowest scores until
    k − block are left, and `block` more keys arrive. A query reads the cache, its own key included
    (so recent = 0 means recent = 1). Scores use the keys in the cache and the queries before the
    block. Of equal scores the oldest keys go; without queries (n < l), rules that use queries keep
    the last keys. An evicted key does not come back; a key that no query of the block sees is
    evicted too. Eviction is autoregressive, except by ``mass``: that is the best set of earlier
    keys for the queries of each block, whether evicted before or not, beside the same sinks and
    recent keys. Under a mask that does not look back, query i reads the keys up to ⌊i·l/n⌋.

    Cost: one set takes the scores of all keys: 2·n·l·d operations for ``mass``, by row stripes,
    2·window·l·d for ``snapkv``, 2·(n + l)·d² for ``expected``, 4·l·d² for ``leverage`` and O(l·d)
    for the others. Eviction takes the scores of k keys (l − k)/block times, ``h2o`` O(n·k·d).
    At most n·k numbers. Prices: one set is selected once, and a query reads at most k keys. With
    eviction, each of `block` queries pays its share of reading the cache (for ``key_norm`` and
    ``cur``, of reading the stored norms), and ``h2o`` reads k sums.

    Queries and keys are those after rotation, each head chooses its own keys, and no score is
    multiplied by norms of values. The authors' code [8]_ fits ``expected`` and ``leverage`` before
    rotation, averages over the heads that share keys and multiplies ``expected`` and ``cur`` by
    norms of values. H2O's code reads the whole prompt before it evicts; SnapKV's keeps its whole
    window of queries (recent = window). studies/lm/peers.md compares the kept keys.

    References
    ----------
    .. [1] Z. Zhang et al., "H2O: heavy-hitter oracle for efficient generative inference of large
       language models", NeurIPS 2023; FMInference/H2O, ``h2o_hf/utils_real_drop``, at ac75c2a.
    .. [2] Y. Li et al., "SnapKV: LLM knows what you are looking for before generation", NeurIPS
       2024; FasterDecoding/SnapKV at e216ddc.
    .. [3] A. Devoto, M. Jeblick, S. Jégou, "Expected attention: KV cache compression by estimating
       attention from future queries distribution", 2025; as in [8]_.
    .. [4] A. Devoto, Y. Zhao, S. Scardapane, P. Minervini, "A simple and effective L2 norm-based
       strategy for KV cache compression", EMNLP 2024; as in [8]_.
    .. [5] J. Park et al., "KeyDiff: key similarity-based KV cache eviction for long-context LLM
       inference in resource-constrained environments", arXiv:2504.15364, 2025; as in [8]_.
    .. [6] V. Chari, B. Van Durme, "Compactor: calibrated query-agnostic KV cache compression with
       approximate leverage scores", arXiv:2507.08143, 2025; as in [8]_.
    .. [7] CurDKV, arXiv:2509.15038, 2025; as in [8]_.
    .. [8] NVIDIA/kvpress at 8bb29b9. For [1]_ to [7]_ the code was read, not the papers.

    Examples
    --------
    >>> x = [[0.0], [0.0], [0.0]]
    >>> Columns(k=2, recent=1).approximate(x, x, mask="causal").to_dense()
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 0., 1.]])
    """

    name: ClassVar[str] = "columns"
    label = Label(
        "columns of most attention",
        {
            "heavy hitters (H2O)": {"by": "h2o"},
            "columns of last queries (SnapKV)": {"by": "snapkv"},
            "columns by expected attention": {"by": "expected"},
            "columns unlike the mean (KeyDiff)": {"by": "key_diff"},
            "columns of small keys (Knorm)": {"by": "key_norm"},
            "columns by leverage scores": {"by": "leverage"},
            "columns by CUR": {"by": "cur"},
        },
    )
    invariant_to = invariant(
        shift=lambda m: m.by in ("mass", "h2o", "snapkv"), rotation=True, scale=True
    )
    examples = (
        "columns()",
        "columns(recent=1)",
        "columns(by='h2o')",
    )
    class_name = "columns"

    k: int | None = None
    by: str = one_of("mass", BY)
    sinks: int = integer(0, least=0)
    recent: int = integer(0, least=0)
    block: int | None = integer()
    window: int = integer(32)
    kernel_size: int = integer(5)
    pooling: str = one_of("average", ("average", "max"))

    @property
    def sized_by(self) -> Size:
        return Size("k", least=self._least, counts="entries")

    @property
    def evicts(self) -> bool:
        """Whether keys are evicted as others arrive, so that the set changes over the queries."""
        return self.block is not None or self.by == "h2o"

    @property
    def _least(self) -> int:
        if not self.evicts:
            return max(self.sinks + self.recent, 1)
        return self.sinks + max(self.recent, 1) + (self.block or 1) - 1

    @property
    def oracle(self) -> bool:
        return self.by == "mass"

    @property
    def autoregressive(self) -> bool:
        return self.evicts and not self.oracle

    @property
    def by_place(self) -> bool:
        return self.recent > 0 or self.evicts

    @property
    def past_queries(self) -> bool:
        return self.evicts and self.by not in OF_KEYS

    @property
    def row_local(self) -> bool:
        """Whether the keys alone decide the set; a cache also evicts keys that no query sees."""
        return self.by in OF_KEYS and not self.evicts

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if self.by != "snapkv" and field.name in OF_SNAPKV and value != field.default:
                raise ValueError(
                    f"{field.name} is a field of by='snapkv' only, got {value!r} with "
                    f"by={self.by!r}; the last keys of a query are `recent`"
                )
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size}")
        if self.k is not None and self.k < self._least:
            counted = "sinks, recent keys and block" if self.evicts else "sinks and recent keys"
            raise ValueError(
                f"k counts {counted} too, so it must be >= {self._least}, got {self.k}"
            )

    @property
    def rivals(self) -> tuple[Any, ...]:
        """Sets of k columns; with eviction, caches of k keys, or for mass one set per block."""
        if not self.evicts:
            return "columns", self.k
        return ("blocks", self.k, self.block or 1) if self.oracle else ("evicting", self.k)

    def divided(self, shape: Shape, reads: float) -> Reads:
        return Reads(reads) if self.by in OF_KEYS else super().divided(shape, reads)

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        Q, K = (np.asarray(x, np.float64) for x in (Q, K))
        assert self.k is not None
        return self._evicted(Q, K, mask, self.k) if self.evicts else self._one_set(Q, K, mask)

    def _one_set(self, Q: Array, K: Array, mask: Mask) -> Pattern:
        n, l = mask.shape
        first, last = window(mask, self.recent)
        free = np.zeros(l, bool)  # the last keys are in the window of every query that sees them
        free[self.sinks : max(l - self.recent, 0) if mask.looks_back else l] = True
        if self.by == "mass":
            scores = _mass(Q, K, mask, first, last)
        else:
            order = np.argsort(mask.positions, kind="stable")
            come = _Scores(self, Q[order], K, mask.first[order], mask.stop[order])
            scores = come(n, np.arange(l), free)
        best = patterns.ranked(scores[free])[: (self.k or 0) - self.sinks - self.recent]
        chosen = np.concatenate(
            [np.arange(min(self.sinks, l)), np.sort(np.flatnonzero(free)[best])]
        )
        columns = np.arange(n + 1) * len(chosen), np.tile(chosen, n)
        return patterns.union([patterns.runs(first, last), columns], l)

    def _limits(self, k: int) -> Limits:
        return Limits(k, self.block or 1, self.sinks, max(self.recent, 1))

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        assert self.k is not None
        if self.by != "h2o":
            return None
        return KeptKeys(d, c, self._limits(self.k), heavy=True, window=window)

    def _evicted(self, Q: Array, K: Array, mask: Mask, k: int) -> Pattern:
        l = len(K)
        limits = self._limits(min(k, l))  # nothing is evicted from a cache of all keys
        blocks = Blocks.from_mask(mask, limits)
        if self.by == "h2o":
            kept = eviction.heavy_hitters(Q, K, blocks, limits)
        elif self.by == "mass":
            kept = [_heaviest(Q, K, mask, blocks, limits, int(b)) for b in blocks.filled()]
        else:
            scores = _Scores(self, Q[blocks.order], K, blocks.first, blocks.end)
            kept = eviction.by_scores(blocks, limits, l, scores)
        return blocks.pattern(kept, limits, l)

    def held(self, mask: Mask) -> Array | None:
        if self.k is None or not self.evicts:
            return super().held(mask)
        return eviction.held(Blocks.from_mask(mask, self._limits(self.k)), self._limits(self.k))

    def selection(self, shape: Shape) -> Price:
        """Return the price of the scores; mass, a reference, has none.

        One set is chosen once. In a cache, each of `block` queries pays its share of an eviction;
        h2o reads a sum with each key in the cache.
        """
        n, l, d, _ = shape
        assert self.k is not None
        if not self.evicts:
            return Price(0.0, 0.0, self._one_set_work(shape) / n, 0.0)
        limits = self._limits(self.k)
        if self.by == "h2o":
            per_query = self.held(shape.decoding)
            assert per_query is not None
            return Price(0.0, float(per_query.max()), 0.0, NUMBER * min(self.k, l) / n)
        looked, come = eviction.looked_at(Blocks.from_mask(shape.decoding, limits), limits)
        reads = float(self._read(looked, come, d).max(initial=0)) / limits.block
        looked, come = eviction.looked_at(Blocks.from_mask(shape.rows, limits), limits)
        stored = self.by in ("key_norm", "cur")
        kept = NUMBER * min(self.k, l) / n if stored else 0.0
        return Price(0.0, reads, self._work(looked, come, d) / n, kept)

    def _one_set_work(self, shape: Shape) -> float:
        if self.by == "snapkv":
            return float(shape.rows.counts[-self.window :].sum() * shape.d)
        keys, queries = np.array([shape.l]), np.array([shape.n])
        return self._work(keys, queries, shape.d)

    def _read(self, keys: Array, come: Array, d: int) -> Array:
        """Return the numbers that each eviction reads, for the counts of keys and of queries."""
        if self.by in ("key_norm", "cur"):
            return keys
        if self.by == "mass":
            return np.zeros(len(keys), int)
        more = {"expected": d * d + d, "snapkv": np.minimum(come, self.window) * d}
        return np.asarray(keys * d + more.get(self.by, 0))

    def _work(self, keys: Array, come: Array, d: int) -> float:
        """Return the multiply-adds of all evictions, for the counts of keys and of queries.

        Norms are not counted. The mean and the covariance of the queries are updated, so that each
        query is added once.
        """
        looked = int(keys.sum())
        if self.by == "leverage":
            return float(2 * looked * d * d + len(keys) * d**3)
        if self.by == "snapkv":
            return float((np.minimum(come, self.window) * keys).sum() * d)
        if self.by == "expected":
            return float(come.max(initial=0) * d * d + looked * (d * d + 2 * d))
        return float(looked * d if self.by == "key_diff" else 0)


class _Scores:
    """Score keys by the queries so far, as `eviction.by_scores` requires.

    Queries are in the order of their arrival; each sees the keys first ≤ j < end.
    """

    def __init__(self, rule: Columns, Q: Array, K: Array, first: Array, end: Array) -> None:
        self.rule, self.Q, self.K, self.first, self.end = rule, Q, K, first, end
        self.fit, self.fitted = key_scores.RunningCovariance(K.shape[1]), 0

    def __call__(self, come: int, keys: Array, free: Array) -> Array:
        rule, K = self.rule, self.K[keys]
        if rule.by in OF_KEYS:
            return OF_KEYS[rule.by](K)
        if rule.by == "expected":
            self.fit.add(self.Q[self.fitted : come])
            self.fitted = come
            return key_scores.expected(K, self.fit.mean, self.fit.covariance)
        last = slice(max(come - rule.window, 0), come)
        seen = (self.first[last, None] <= keys) & (keys < self.end[last, None])
        logits = np.where(seen, self.Q[last] @ K.T, -np.inf)
        return key_scores.snapkv(logits, free, rule.kernel_size, rule.pooling)


def _mass(Q: Array, K: Array, mask: Mask, first: Array, last: Array) -> Array:
    """Return the attention that each key gets, (l,), except from queries with first ≤ j < last."""
    mass = np.zeros(len(K))
    log_sums = exact.log_row_sums(Q, K, mask=mask)
    for rows in exact.stripes(*mask.shape):
        x = exact.seen_logits(Q, K, mask, rows)
        exp_rows(x, log_sums[rows])
        cols = mask.span(rows)
        keys = np.arange(cols.start, cols.stop)
        x[(first[rows, None] <= keys) & (keys < last[rows, None])] = 0.0
        mass[cols] += x.sum(axis=0)
    return mass


def _heaviest(Q: Array, K: Array, mask: Mask, blocks: Blocks, limits: Limits, b: int) -> Array:
    """Return the sinks, the best columns for the queries of block b, and the keys just before."""
    if b == 0:
        return np.arange(0)
    rows, start = blocks.order[blocks.bounds[b] : blocks.bounds[b + 1]], limits.start(b)
    nowhere = np.zeros(len(rows), np.intp)
    mass = _mass(Q[rows], K, mask.take(rows), nowhere, nowhere)
    keys = np.arange(blocks.lows[b], start)
    free = limits.free(keys, start)
    room = limits.k - limits.block - int((~free).sum())
    best = patterns.ranked(mass[keys[free]])[:room]
    return np.sort(np.concatenate([keys[~free], keys[free][best]]))
