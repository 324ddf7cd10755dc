"""KV cache eviction: one set of keys for many queries, beside the first and the last keys."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from approx import checks
from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.keys import KeptKeys
from approx.estimate.masks import Mask
from approx.method import Label, Size
from approx.method.fields import integer, one_of
from approx.method.prices import SHARED, Numbers, Price, Shape, entries
from approx.method.tags import (
    AUTOREGRESSIVE,
    ORACLE,
    PAST_QUERIES,
    POSITIONAL,
    READS_VALUES,
    ROTATION,
    ROW_LOCAL,
    SCALE,
    SCORES_VALUES,
    SHIFT,
    collect,
)
from approx.sparse.eviction_scores import SCORES, KeyScore, SnapKV
from approx.sparse.sliding_window import window
from approx.sparse.support import Rivals, SupportMethod
from approx.supports import eviction, patterns
from approx.supports.eviction import Blocks, Limits
from approx.supports.patterns import Pattern

# the fields of some scores only
OPTIONS = {
    field.name: tuple(by for by, x in SCORES.items() if issubclass(x, SnapKV))
    for field in dataclasses.fields(SnapKV)
}
LATER = 2**31 - 1  # more keys than come after a prompt


@dataclasses.dataclass(frozen=True)
class Columns(SupportMethod):
    """One set of keys for many queries, with the first and the last keys, exact: KV cache eviction.

    estimate_ij = exp(q_i·k_j) where j is one of the first `sinks` keys, one of the last `recent`
    keys that query i sees, or one of the k − sinks − recent others with the best scores, else 0.

    Parameters
    ----------
    k : int, optional
        Most entries per row, sinks and recent ones included; None is a template.
    by : str
        The score of a key:

        - ``mass``: Σ_i softmax_ij of the queries in whose window it is not (needs all logits).
        - ``h2o``: the attention that the key has got so far, from queries that read the cache [1]_.
        - ``tova``: the attention that the key got from the last query [8]_.
        - ``output``: p/(1 − p)·|o − v|, the change of the last query's output o without the key
          [10]_.
        - ``snapkv``: the attention of the last `window` queries, pooled over neighbours [2]_.
        - ``critical``: for half of the keys as ``snapkv``, then (its mean + 10⁻⁴)·‖v‖₁ [9]_.
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
        ``tova`` and ``output``, which always evict, None means 1.
    window : int
        For ``snapkv`` and ``critical`` only: the number of queries whose attention is the score.
    kernel_size : int
        For ``snapkv`` and ``critical`` only: the number of neighbouring keys to pool over, odd.
    pooling : {"average", "max"}
        For ``snapkv`` and ``critical`` only: how neighbours are pooled.
    values : (l, c), optional
        The values that ``output`` and ``critical`` score. ``approximate(…, V=V)`` sets them, and so
        does `Head.approximate`; without values both scores are refused.
    prompt : int
        First keys that all stay until the last of them has come, so that their queries read them
        exactly. The first eviction comes then. With block None it is the only one, and all later
        keys stay beside the k kept ones. The price is that after the prompt. 0: there is none.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. Its total
    variation from exact attention is the attention off the support. So ``mass``, which needs all
    logits, has the least total variation of all columns beside the same sinks and window. In the
    Frobenius norm of the kernel other columns may be better, because Σ_i exp(q_i·k_j)² counts.

    *One set.* Scores use all keys; ``mass``, ``snapkv``, ``critical`` and ``expected`` also use
    queries, and the other scores follow from the keys alone. The set is what a cache keeps after an
    eviction at the end of the prompt, but here the queries of the prompt read it. So it is not
    autoregressive: later tokens decide which columns a query reads. A row that does not see all
    columns has fewer entries. Of equal scores (`patterns.rounded`) the first keys are taken.

    *Eviction.* With a block, the support of a query is the cache at its position during decoding.
    Keys arrive in order. When the cache holds k keys, it evicts those with the lowest scores until
    k − block are left, and `block` more keys arrive. A query reads the cache, its own key included
    (so recent = 0 means recent = 1). Scores use the keys in the cache and the queries before the
    block. Of equal scores the oldest keys go; without queries (n < l), rules that use queries keep
    the last keys. An evicted key does not come back; a key that no query of the block sees is
    evicted too. After a prompt, ``h2o`` has the sums of its exact attention, and the last queries
    of ``snapkv`` are those of the prompt. Eviction is autoregressive, except by ``mass``: that is
    the best set of earlier keys for the queries of each block, whether evicted before or not,
    beside the same sinks and recent keys. Under a mask that does not look back, query i reads the
    keys up to ⌊i·l/n⌋.

    Cost: one set takes the scores of all keys: 2·n·l·d operations for ``mass``, by row stripes,
    2·window·l·d for ``snapkv``, 2·(n + l)·d² for ``expected``, 4·l·d² for ``leverage`` and O(l·d)
    for the others. Eviction takes the scores of k keys (l − k)/block times, ``h2o`` O(n·k·d).
    At most n·k numbers. Prices: one set is selected once, and a query reads at most k keys. With
    eviction, each of `block` queries pays its share of reading the cache (for ``key_norm`` and
    ``cur``, of reading the stored norms), ``h2o`` reads k sums, and ``output`` reads values twice.

    Queries and keys are those after rotation, each head chooses its own keys, and ‖v‖₁ stands for
    ‖Wv‖₁ with the output projection W. The code of TOVA averages over the heads of a layer, kvpress
    over those that share keys; it fits ``expected`` and ``leverage`` before rotation, and its
    ``expected`` and ``cur`` have a factor of norms of values. studies/lm/peers.md has the rest.

    References
    ----------
    .. [1] Z. Zhang et al., "H2O: heavy-hitter oracle for efficient generative inference of large
       language models", NeurIPS 2023; FMInference/H2O, ``h2o_hf/utils_real_drop``, at ac75c2a.
    .. [2] Y. Li et al., "SnapKV: LLM knows what you are looking for before generation", NeurIPS
       2024; FasterDecoding/SnapKV at e216ddc.
    .. [3] A. Devoto, M. Jeblick, S. Jégou, "Expected attention: KV cache compression by estimating
       attention from future queries distribution", 2025. For [1]_ to [7]_ the code was read, not
       the papers, for [3]_ to [7]_ that of NVIDIA/kvpress at 8bb29b9.
    .. [4] A. Devoto, Y. Zhao, S. Scardapane, P. Minervini, "A simple and effective L2 norm-based
       strategy for KV cache compression", EMNLP 2024.
    .. [5] J. Park et al., "KeyDiff: key similarity-based KV cache eviction for long-context LLM
       inference in resource-constrained environments", arXiv:2504.15364, 2025.
    .. [6] V. Chari, B. Van Durme, "Compactor: calibrated query-agnostic KV cache compression with
       approximate leverage scores", arXiv:2507.08143, 2025.
    .. [7] CurDKV, arXiv:2509.15038, 2025.
    .. [8] M. Oren, M. Hassid, N. Yarden, Y. Adi, R. Schwartz, "Transformers are multi-state RNNs",
       TOVA, EMNLP 2024; schwartz-lab-NLP/TOVA, ``src/tova_cache.py``, at 9c7d09b.
    .. [9] Y. Feng et al., "Identify critical KV cache in LLM inference from an output perturbation
       perspective", CriticalKV, arXiv:2502.03805, 2025; kvpress 0.5.5.
    .. [10] DropKV, NVIDIA/kvpress#284, which sums the square over some last queries.

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
        {score.label: {"by": by} for by, score in SCORES.items() if score.label},
    )
    examples = (
        "columns()",
        "columns(recent=1)",
        "columns(by='h2o')",
        "columns(k=4, by='snapkv', window=2, prompt=5)",
    )
    class_name = "columns"

    k: int | None = None
    by: str = "mass"
    sinks: int = integer(0, least=0)
    recent: int = integer(0, least=0)
    block: int | None = integer()
    window: int = integer(32)
    kernel_size: int = integer(5)
    pooling: str = one_of("average", ("average", "max"))
    values: Any = dataclasses.field(default=None, compare=False, repr=False)
    prompt: int = integer(0, least=0)

    @property
    def score(self) -> KeyScore:
        """The score of a key."""
        score = SCORES[self.by]
        return score(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(score)}
        )

    @property
    def sized_by(self) -> Size:
        return Size("k", least=self._least, counts="entries")

    @property
    def evicts(self) -> bool:
        """Whether keys are evicted as others arrive, so that the set changes over the queries."""
        return self.block is not None or self.score.running or self.prompt > 0

    @property
    def _once(self) -> bool:
        """Whether the only eviction is that after the prompt."""
        return self.prompt > 0 and self.block is None and not self.score.running

    @property
    def _least(self) -> int:
        if not self.evicts:
            return max(self.sinks + self.recent, 1)
        return self.sinks + max(self.recent, 1) + (self.block or 1) - 1

    @property
    def tags(self) -> frozenset[str]:
        score = self.score
        return collect(
            READS_VALUES,
            ROTATION,
            SCALE,
            score.shift_invariant and SHIFT,
            score.all_logits and ORACLE,
            score.of_values and SCORES_VALUES,
            (self.evicts and not score.all_logits) and AUTOREGRESSIVE,
            (score.keys_alone and not self.evicts) and ROW_LOCAL,  # caches evict unseen keys, too
            (self.evicts and not score.keys_alone) and PAST_QUERIES,
            (self.evicts or self.recent > 0) and POSITIONAL,
        )

    def __post_init__(self) -> None:
        checks.one_of("by", self.by, tuple(SCORES))  # the checks of the base class ask the score
        super().__post_init__()
        for field in dataclasses.fields(self):
            bys, value = OPTIONS.get(field.name, (self.by,)), getattr(self, field.name)
            if self.by not in bys and value != field.default:
                raise ValueError(
                    f"{field.name} is a field of by={' or '.join(map(repr, bys))} only, got "
                    f"{value!r} with by={self.by!r}; the last keys of a query are `recent`"
                )
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size}")
        if self.k is not None and self.k < self._least:
            counted = "sinks, recent keys and block" if self.evicts else "sinks and recent keys"
            raise ValueError(
                f"k counts {counted} too, so it must be >= {self._least}, got {self.k}"
            )

    @property
    def rivals(self) -> Rivals | None:
        """Sets of k columns; with eviction, caches of k keys, or for mass one set per block."""
        assert self.k is not None
        if self.prompt:
            return None
        if not self.evicts:
            return Rivals("columns", (self.k,))
        if ORACLE in self.tags:
            return Rivals("blocks", (self.k, self.block or 1))
        return Rivals("evicting", (self.k,))

    keeps_all = False

    @property
    def shares_keys(self) -> bool:
        return self.score.keys_alone

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        Q, K = (np.asarray(x, np.float64) for x in (Q, K))
        assert self.k is not None
        return self._evicted(Q, K, mask, self.k) if self.evicts else self._one_set(Q, K, mask)

    def _one_set(self, Q: Array, K: Array, mask: Mask) -> Pattern:
        n, l = mask.shape
        first, last = window(mask, self.recent)
        free = np.zeros(l, bool)  # the last keys are in the window of every query that sees them
        free[self.sinks : max(l - self.recent, 0) if mask.looks_back else l] = True
        scores = self.score.scores(Q, K, mask, (first, last), free)
        best = patterns.ranked(scores[free])[: (self.k or 0) - self.sinks - self.recent]
        chosen = np.concatenate(
            [np.arange(min(self.sinks, l)), np.sort(np.flatnonzero(free)[best])]
        )
        columns = np.arange(n + 1) * len(chosen), np.tile(chosen, n)
        return patterns.union([patterns.runs(first, last), columns], l)

    def _limits(self, k: int) -> Limits:
        if self._once:
            return Limits(k + LATER, LATER, self.sinks, self.recent + 1, self.prompt)
        return Limits(k, self.block or 1, self.sinks, max(self.recent, 1), self.prompt)

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        assert self.k is not None
        limits = self._limits(self.k)
        if not self._once:
            return self.score.cache(d, c, limits, window)

        def choose(Q: Array, K: Array, V: Array) -> Array:
            n = len(K)
            seen = Mask.window(n, n, window) if window else Mask.causal(n, n)
            score = dataclasses.replace(self, values=V).score.scorer(Q, K, seen.first, seen.stop)
            low = max(n + 1 - window, 0) if window else 0
            return eviction.reduced(np.arange(low, n), limits, n, score, n)

        alone = self.score.keys_alone
        return KeptKeys(d, c, limits, window=window, choose=choose, keys_alone=alone)

    def _evicted(self, Q: Array, K: Array, mask: Mask, k: int) -> Pattern:
        limits = self._limits(min(k, len(K)))  # nothing is evicted from a cache of all keys
        blocks = Blocks.from_mask(mask, limits)
        kept = self.score.cached_keys(Q, K, mask, blocks, limits)
        return blocks.pattern(kept, limits, len(K))

    def held(self, mask: Mask) -> Array | None:
        if self.k is None or not self.evicts:
            return super().held(mask)
        return eviction.held(Blocks.from_mask(mask, self._limits(self.k)), self._limits(self.k))

    def longest(self, shape: Shape) -> float:
        held = self.held(shape.decoding)
        assert held is not None
        return float(held[self.prompt if self.prompt < len(held) else 0 :].max())

    def price_of_keys(self, longest: float, mean: float, shape: Shape) -> Price:
        if not self._once or longest <= (kept := float(self.k or 0)):
            return super().price_of_keys(longest, mean, shape)
        # the keys after the prompt are the same for all heads
        later = entries(longest - kept, shape, mean=0.0, most=SHARED)
        return super().price_of_keys(kept, mean, shape) + later

    def selection(self, shape: Shape) -> Price:
        """Return the price of the scores; mass, a reference, has none.

        One set is chosen once. In a cache, each of `block` queries pays its share of an eviction,
        and a running score reads what it stores with each key in the cache; values are read again.
        """
        n, _, d, c = shape
        assert self.k is not None
        score = self.score
        if not self.evicts:
            return Price(0.0, 0.0, score.one_set_work(shape) / n, 0.0)
        limits, kept = self._limits(self.k), float(score.stored * min(self.k, shape.most))
        keys, queries = eviction.looked_at(Blocks.from_mask(shape.decoding, limits), limits)
        if score.running:
            sums = Numbers(float(score.stored * self.longest(shape)), kept)
            again = c * keys.max(initial=0) / limits.block if score.of_values else 0.0
            reread = Numbers(float(again), held=0.0, kind="values")
            return Price.from_numbers(0.0, 0.0, sums, reread)
        read = Numbers(0.0)
        if not self._once:
            reads = score.reads(keys, queries, d)
            kept += float((reads - score.reads(keys, 0 * queries, d)).max(initial=0))  # of queries
            most = SHARED if self.shares_keys else None
            read = Numbers(float(reads.max(initial=0)) / limits.block, kept, most)
        counts = eviction.looked_at(Blocks.from_mask(shape.rows, limits), limits)
        return Price.from_numbers(0.0, score.work(*counts, d) / n, read)
