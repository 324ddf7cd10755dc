"""Hierarchical low rank: the lengths of blocks of keys double with the distance."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.keys import WindowKeys
from approx.estimate import exact
from approx.estimate.low import Factors, add_sink, divide_by_last
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.hierarchical import levels, summaries
from approx.hierarchical.partition import Level, Partition, partition
from approx.hierarchical.summaries import Summary
from approx.low_rank import exact_matrix
from approx.low_rank.exact_matrix import SPACES
from approx.method import FROBENIUS, Label, Method, Size
from approx.method.fields import integer, one_of
from approx.method.prices import Numbers, Price, Shape, price_at
from approx.method.tags import (
    AUTOREGRESSIVE,
    ORACLE,
    POSITIONAL,
    ROTATION,
    ROW_LOCAL,
    SCALE,
    SHIFT,
    collect,
)
from approx.supports import patterns
from approx.supports.patterns import exact_on

SUMMARIES: dict[str, type[summaries.Summary]] = {
    "mean": summaries.Means,
    "pivots": summaries.Pivots,
}
BASES = ("svd", *SUMMARIES)


@dataclasses.dataclass(frozen=True)
class Hierarchical(Method):
    """Exact near the query, and low rank in blocks that get longer away from it.

    estimate_ij = exp(q_i·k_j) for near keys, and Σ_p e^{w_p(q_i)} T_pj, p ≤ rank, for keys in a
    block that query i takes. `approx.hierarchical.partition` defines near keys and blocks. Under a
    causal mask the blocks form a Fenwick tree.

    Parameters
    ----------
    rank : int, optional
        Terms per block; None: a budget fills it.
    leaf : int
        Keys of the smallest block. It is doubled until it is at least 2·rank: exact blocks of fewer
        keys store no more.
    basis : {"svd", "mean", "pivots"}
        ``svd`` truncates every rectangle separately. ``mean`` cuts a block into runs of keys, and
        represents each run by its mean key with a second-order correction. ``pivots`` keeps some
        keys, with weights for the others. The formulas are in `approx.hierarchical.summaries`.
    sinks : int
        Number of first keys that are exact for every query, and in no block.
    space : {"kernel", "attention"}
        The matrix that ``svd`` decomposes; the other bases estimate exp(q·k).

    Notes
    -----
    A causal matrix has full rank, and so has this estimate. Only its rectangles [mid, hi) × [lo,
    mid) of later queries and earlier keys have small rank. With ``svd`` they are the best of their
    rank: the squared Frobenius error is Σ_R Σ_{i > rank} σ_i(R)² over the rectangles R, the least
    of any estimate with such rectangles. This needs all logits, also those of later queries. Each
    level has its own state: a recurrence with a single state of this rank never has a smaller error
    on the rectangles (`analysis.ranks.state_rank`).

    With ``mean`` and ``pivots`` the estimate is autoregressive, and a row depends on no other
    query. A complete block is summarised from the summaries of its halves; `cache` returns what
    decoding must store. The estimate is deterministic and biased, without an a-priori error bound.
    With ``mean`` entries are positive, and the sum over a run is correct to second order in
    q·(k − μ) if the coordinates of its keys are uncorrelated. With ``pivots`` entries may be
    negative.

    Cost: under a causal mask with n = l, the estimate stores rank·log₂(n/leaf) + (leaf + 1)/2
    values per row; without a mask 2·rank·log₂(n/leaf) + leaf, if n/leaf is a power of two. A query
    reads one state per binary digit 1 of its leaf's number: at most log₂(n/leaf), half of that on
    average. ``mean`` and ``pivots`` take O(n·log(n/leaf)·rank·(d + c)) operations. ``svd`` takes
    the dense matrix and O(n³) operations.

    References
    ----------
    .. [1] W. Hackbusch, "Hierarchical matrices: algorithms and analysis", Springer 2015, chapter 3:
       the matrices with rectangles of small rank off the diagonal (HODLR).
    .. [2] Z. Zeng et al., "Multi resolution analysis (MRA) for approximate self-attention", ICML
       2022, which has mean keys of blocks, without a correction.
    .. [3] H. Guo et al., "Log-linear attention", 2025, which keeps the states of a Fenwick tree.

    Examples
    --------
    Blocks of equal keys are exact:

    >>> x = [[1.0]] * 4
    >>> method = Hierarchical(rank=1, leaf=2, basis="mean")
    >>> method.approximate(x, x, mask="causal").to_dense().round(3)
    array([[2.718, 0.   , 0.   , 0.   ],
           [2.718, 2.718, 0.   , 0.   ],
           [2.718, 2.718, 2.718, 0.   ],
           [2.718, 2.718, 2.718, 2.718]])
    """

    name = "hierarchical"
    label = Label(
        "hierarchical (SVD)",
        {
            "hierarchical, mean keys": {"basis": "mean"},
            "hierarchical, pivot keys": {"basis": "pivots"},
        },
    )
    examples = (
        "hierarchical(rank=1, leaf=2)",
        "hierarchical(rank=1, leaf=2, space='attention')",
        "hierarchical(rank=1, leaf=2, basis='mean')",
        "hierarchical(rank=2, leaf=1, basis='pivots', sinks=1)",
    )
    class_name = "hierarchical"
    sized_by = Size("rank", counts="rank", most=lambda n, l: None)  # more makes more keys exact

    rank: int | None = None
    leaf: int = integer(16)
    basis: str = one_of("svd", BASES)
    sinks: int = integer(0, least=0)
    space: str = one_of("kernel", SPACES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space == "attention" and self.basis != "svd":
            raise ValueError(
                f"basis={self.basis!r} estimates exp(q·k), so space must be 'kernel', "
                f"got {self.space!r}"
            )

    @property
    def tags(self) -> frozenset[str]:
        svd = self.basis == "svd"
        return collect(
            POSITIONAL,
            SCALE,
            svd and ORACLE,
            not svd and AUTOREGRESSIVE,
            not svd and ROW_LOCAL,
            (not svd or self.space == "attention") and SHIFT,
            self.basis != "mean" and ROTATION,
        )

    def optimal_in(self, mask: Mask | None = None) -> set[str]:
        """Return the Frobenius norm for ``svd``, over estimates with ``rank`` terms per block."""
        return {FROBENIUS[self.space]} if ORACLE in self.tags else set()

    @property
    def exact_below(self) -> int:
        """The number of keys of the smallest block: leaf, doubled until it is at least 2·rank."""
        leaf = self.leaf
        while leaf < 2 * (self.rank or 0):
            leaf *= 2
        return leaf

    def partition(self, mask: Mask) -> Partition:
        """Return the blocks and near keys of every query."""
        return partition(mask, self.exact_below, self.sinks)

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        if window:  # in the least block that is at least as long
            size = self.exact_below
            while size < window:
                size *= 2
            return WindowKeys(d, c, window, self, rng, block=size, lead=self.sinks)
        return States(SUMMARIES[self.basis], self.rank or 0, self.exact_below, self.sinks, d, c)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        parts = self.partition(mask)
        indptr, indices = patterns.runs(parts.first.ravel(), parts.last.ravel())
        near = exact_on((indptr[:: parts.first.shape[1]], indices), q, k, mask)
        if self.space == "attention":
            near = near.normalised(exact.log_row_sums(q, k, mask=mask))
        if not parts.levels:
            low = Factors.empty(len(q), len(k), q.dtype)
            return Parts(low, near, self.space, fitted=self.space == "attention")
        if self.basis == "svd":
            D, top = exact_matrix.matrix(q, k, self.space, mask)
            terms = [self._decomposed(D, top, parts, level, q.dtype) for level in parts.levels]
        else:
            terms = list(self._summarised(q, k, parts))
        fitted = self.space == "attention"
        return Parts(levels.Levels(parts, terms), near, self.space, fitted=fitted)

    def _decomposed(
        self, D: Array, top: float, parts: Partition, level: Level, dtype: Any
    ) -> levels.Terms:
        terms = _terms(self.rank or 0, len(level.rows), D.shape[1], dtype)
        terms.logs[:] = top
        for block, pairs in level.groups:
            keys = parts.keys(level, block)
            rectangle = D[level.rows[pairs], keys]
            u, s, vt = scipy.linalg.svd(rectangle, full_matrices=False, check_finite=False)
            r = min(self.rank or 0, len(s))
            terms.left[pairs, :r] = u[:, :r] * s[:r]
            terms.right[keys, :r] = vt[:r].T
        return terms

    def _summarised(self, q: Array, k: Array, parts: Partition) -> Iterable[levels.Terms]:
        """Yield the terms of each level, whose blocks are merged pairs of the level below."""
        rank, summary = self.rank or 0, SUMMARIES[self.basis]
        q, k, dtype = q.astype(np.float64), k.astype(np.float64), q.dtype
        blocks: list[tuple[Any, Array]] = []
        for level in parts.levels:
            if level is parts.levels[0]:
                starts = range(self.sinks, len(k), level.size)
                blocks = [
                    summary.from_keys(k[start : start + level.size], rank) for start in starts
                ]
            else:
                halves = [blocks[i : i + 2] for i in range(0, len(blocks), 2)]
                blocks = [_united(pair, rank) for pair in halves]
            terms = _terms(rank, len(level.rows), len(k), dtype)
            for block, pairs in level.groups:
                one, T = blocks[block]
                logs = one.logs(q[level.rows[pairs]])
                terms.logs[pairs] = top = logs.max(axis=1)
                terms.left[pairs, : len(T)] = np.exp(logs - top[:, None])
                terms.right[parts.keys(level, block), : len(T)] = T.T
            yield terms

    def _price(self, shape: Shape) -> Price | None:
        if self.rank is None:
            return None
        n, _, d, c = shape
        parts, last = self.partition(shape.rows), self.partition(shape.decoding)
        stored = parts.stored(self.rank) / n
        near, terms = float(parts.near.mean()), float(parts.terms(self.rank).mean())
        state = c + (self.space == "kernel")  # rows of softmax need no row sum
        basis = SUMMARIES.get(self.basis)
        width = state + (basis.width(d) if basis else 0)
        each, more = basis.to_merge(d) if basis else (0, 0)
        read = last.terms(self.rank) * width + last.near * (d + c)
        held = read + each * last.terms(self.rank) + more * last.terms(1)
        work = terms * width + near * (d + c) + self._work(shape) / n
        numbers = Numbers(float(read.max()), float(held.max()))
        return Price.from_numbers(stored + near, work, numbers)

    def _work(self, shape: Shape) -> float:
        _, l, d, c = shape
        rank, parts = min(self.rank or 0, max(l - self.sinks, 0)), self.partition(shape.rows)
        if self.basis == "svd" or not parts.levels:
            return float(sum((keys * terms).sum() * c for _, keys, terms in parts.rectangles(rank)))
        first, merged = SUMMARIES[self.basis].work(d, rank, c)
        blocks, merges = -(-(l - self.sinks) // self.exact_below), 0
        for _ in parts.levels[1:]:
            merges += blocks // 2
            blocks -= blocks // 2
        return float((l - self.sinks) * first + merges * merged)

    def _workspace(self, shape: Shape) -> int:
        price = price_at(self, shape)
        if price is None:
            return 0
        count = len(self.partition(shape.mask or Mask.full(shape.n, shape.l)).levels)
        return int(8 * (price.stored * shape.n + count * shape.l * (self.rank or 0)))


def _terms(rank: int, pairs: int, l: int, dtype: Any) -> levels.Terms:
    return levels.Terms(
        np.zeros((pairs, rank), dtype), np.zeros(pairs, dtype), np.zeros((l, rank), dtype)
    )


def _united(pair: list[tuple[Any, Array]], rank: int) -> tuple[Any, Array]:
    if len(pair) == 1:
        return pair[0]
    (a, T_a), (b, T_b) = pair
    both, transfer = a.merged(b, rank)
    return both, np.hstack([transfer[:, : len(T_a)] @ T_a, transfer[:, len(T_a) :] @ T_b])


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """A block of 2^level leaves: its summary and Σ_j T_j [v_j, 1]ᵀ, (r, c + 1)."""

    level: int
    summary: Summary
    total: Array


class States(Cache):
    """The cache of hierarchical attention, to which tokens are added one by one.

    There is one state per binary digit 1 of the number of leaves before the token's leaf. So there
    are at most log₂(n/leaf) states.

    Examples
    --------
    >>> from approx import parse
    >>> cache = parse("hierarchical(rank=1, leaf=2, basis='mean')").cache(d=1, c=1)
    >>> for value in [1.0, 2.0, 3.0, 6.0, 8.0]:
    ...     cache.append([0.0], [value])
    >>> cache.attend([0.5]), cache.reads
    (array([4.]), 6)
    """

    def __init__(
        self, summary: type[Summary], rank: int, leaf: int, sinks: int, d: int, c: int
    ) -> None:
        super().__init__(d, c)
        self.summary, self.rank, self.leaf = summary, rank, leaf
        self.sinks = sinks
        self.states: list[State] = []  # of decreasing level
        self.first: list[tuple[Array, Array]] = []  # sinks, with their values and 1
        self.own: list[tuple[Array, Array]] = []  # the keys of the token's own leaf

    def add(self, k: Array, v: Array) -> None:
        token = k, np.append(v, 1.0)
        if len(self.first) < self.sinks:
            self.first.append(token)
            return
        if len(self.own) == self.leaf:
            self._close()
        self.own.append(token)

    def _close(self) -> None:
        """Summarise the complete leaf, and merge blocks of equal length."""
        keys, values = (np.stack(x) for x in zip(*self.own))
        summary, terms = self.summary.from_keys(keys, self.rank)
        state = State(0, summary, terms @ values)
        while self.states and self.states[-1].level == state.level:
            before = self.states.pop()
            summary, transfer = before.summary.merged(state.summary, self.rank)
            total = transfer @ np.vstack([before.total, state.total])
            state = State(state.level + 1, summary, total)
        self.states.append(state)
        self.own = []

    def answer(self, q: Array, sink: float) -> Array:
        near = [*self.first, *self.own]
        keys, values = (np.stack(x) for x in zip(*near))
        logs = [keys @ q, *(state.summary.logs(q[None])[0] for state in self.states)]
        totals = [values, *(state.total for state in self.states)]
        top = max(x.max() for x in logs)
        y = sum((np.exp(x - top) @ total for x, total in zip(logs, totals)), np.zeros(self.c + 1))
        return np.asarray(divide_by_last(add_sink(y[None], np.array([top]), sink))[0])

    @property
    def reads(self) -> int:
        term = self.summary.width(self.d) + self.c + 1
        near = len(self.first) + len(self.own)
        return near * (self.d + self.c) + sum(len(s.total) for s in self.states) * term

    def arrays(self) -> list[Any]:
        """Return near keys with their values, and the summaries and totals of blocks.

        These include numbers that a query does not read, which summaries need to be merged.
        """
        near = [x for k, v in [*self.first, *self.own] for x in (k, v[:-1])]
        states = [x for s in self.states for x in (s.total, *vars(s.summary).values())]
        return near + [np.asarray(x) for x in states]
