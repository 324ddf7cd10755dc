"""A projection of attention onto a few of its columns: a few keys, with fitted values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import scipy.linalg

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import MOST_KEYS, Method, Size
from approx.method.fields import integer, one_of, real
from approx.method.prices import Numbers, Price, Shape
from approx.method.tags import AUTOREGRESSIVE, INVARIANT, collect
from approx.supports import patterns
from approx.supports.patterns import exact_on

PIVOTS = ("greedy", "qr", "leverage", "h2o")
LEAST_WEIGHT = 2.0**-10  # of a weight
NONE = 1e-14  # of the largest squared column: a residual column below it is rounding


@dataclasses.dataclass(frozen=True)
class ColumnProjection(Method):
    """Attention projected onto a few of its columns (attention matching), biased for exp(q·k).

    estimate = exp(Q K_Sᵀ) diag(w) W, with some of the keys K_S (rank, d), weights w > 0 and
    W = P_S⁺ P. P (r, l) is the attention of reference queries, and P_S (r, rank) their softmax over
    the kept keys with these weights.

    Parameters
    ----------
    rank : int, optional
        Number of kept keys, all if there are fewer; None: a budget fills it.
    pivots : {"greedy", "qr", "leverage", "h2o"}
        The choice of keys, as columns of P. ``greedy`` takes in turn the column that leaves the
        least residual of P in Frobenius norm. ``qr`` takes the pivots of a QR decomposition with
        column pivoting. ``leverage`` takes the largest leverage scores |V_r[j]|² of the first rank
        right singular vectors. ``h2o`` takes the largest column sums.
    block : int, optional
        Keys per block, if a query must use its past only. Each block of queries has its own fit of
        the keys before the block to the queries before the block. Keys of the query's own block are
        exact. Required under a mask.
    ridge : float
        λ, in units of the mean squared column of P_S.

    Notes
    -----
    Each row of W sums to 1, so the normalised estimate is P_S P_S⁺ P. Its output is
    P_S (P_S⁺ P V): kept keys with weights, and the values W V, as in [1]_. The fit to rows of
    attention is also the fit to outputs, since P_S⁺ (P V) = (P_S⁺ P) V is the least-squares
    solution for every V; so no values are needed. The estimate has rank ``rank``, and a Frobenius
    error no less than that of the truncated SVD of P. Theorems on column subsets of P do not apply,
    since each row of P_S is divided by its sum over the kept keys. The weights w correct these
    sums, and W corrects the outputs.

    A ridge replaces the pseudo-inverse. With E_S the rows of the identity for the kept keys,

        w = 1 + (P:Sᵀ P:S + λI)⁻¹ P:Sᵀ(1 − P:S 1), at least 2⁻¹⁰, with P:S the columns of P,
        W = E_S + (P_Sᵀ P_S + λI)⁻¹ P_Sᵀ(P − P_S E_S).

    For λ → ∞ this is attention to the kept keys; for λ → 0 it is the best fit to the reference
    queries, even if kept keys are alike. With all keys it is exact. Only the choice of keys could
    use values, which a method is not given.

    Reference queries are all queries, or the queries before a block. Each of them attends to all
    keys before the block, also to keys after itself: rows cut by the mask would make the last keys
    look unimportant. If there is no query before a block, keys serve as queries. Under a window,
    keys that no query of a block sees are left out.

    Cost: r·l·(d + l) + rank·l² operations per fit (``leverage`` l³; ``h2o`` without r·l²), r·rank·l
    for W, and the dense P. A row reads rank keys, weights and values, and the keys of its block;
    the `block` queries of a block share the cost of reading all earlier keys, values and queries.
    As a matrix the estimate stores a pair of factors per block; a cache holds one.

    The authors' code solves for w by bounded non-negative least squares, and generates reference
    queries by letting the model repeat the text or question itself.

    References
    ----------
    .. [1] A. Zweiger, X. Fu, H. Guo, Y. Kim, "Fast KV compaction via attention matching", 2026,
       arXiv:2602.16284 (abstract and summaries); adamzweiger/compaction.
    .. [2] A. Farahat, A. Ghodsi, M. Kamel, "An efficient greedy method for unsupervised feature
       selection", ICDM 2011: the greedy choice by the Gram matrix.

    Examples
    --------
    Two keys are equal: one stands for both.

    >>> method = ColumnProjection(rank=2)
    >>> method.approximate([[1.0], [2.0]], [[0.0], [1.0], [1.0]]).to_dense().round(1)
    array([[1. , 2.7, 2.7],
           [1. , 7.4, 7.4]])
    """

    name = "projection"
    label = "projection on columns"
    class_name = "sparse + low rank"
    examples = (
        "projection()",
        "projection(block=2)",
        "projection(pivots='qr')",
        "projection(pivots='leverage')",
        "projection(pivots='h2o', block=3)",
    )
    sized_by = Size("rank", counts="rank", most=lambda n, l: MOST_KEYS)

    rank: int | None = None
    pivots: str = one_of("greedy", PIVOTS)
    block: int | None = integer()
    ridge: float = real(1e-3)

    @property
    def tags(self) -> frozenset[str]:
        return INVARIANT | collect(self.block is not None and AUTOREGRESSIVE)

    @property
    def refusal(self) -> str | None:
        if self.block is not None:
            return None
        return "one fit gives each query a share of keys that it does not see: give block"

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        a, b = (x.astype(np.float64) for x in (q, k))
        fits = [
            (i, keys, Compaction.fitted(a[np.sort(past)] if len(past) else b[keys], b[keys], self))
            for i, keys, past in self._fits(mask)
        ]
        width = sum(len(fit.keys) for *_, fit in fits)
        left, right = np.zeros((len(a), width)), np.zeros((len(b), width))
        row_log, start = np.full(len(a), np.finfo(q.dtype).min / 8, np.float64), 0  # has no fit
        for rows, keys, fit in fits:
            columns = slice(start, start + len(fit.keys))
            exponent = fit.exponents(a[rows])
            row_log[rows] = exponent.max(axis=1)
            left[rows, columns] = np.exp(exponent - row_log[rows, None])
            right[keys, columns] = fit.weights.T
            start = columns.stop
        low = Factors(left, right, row_log).astype(q.dtype)
        if mask.is_full:
            return Parts(low)
        begin = np.maximum(mask.first, self._starts(mask))
        return Parts(low, exact_on(patterns.runs(begin, mask.stop), q, k, mask))

    def _starts(self, mask: Mask) -> Array:
        """Return the first key of each query's block: the block of the last key that it sees."""
        assert self.block is not None
        return (mask.stop - 1) // self.block * self.block

    def _fits(self, mask: Mask) -> Iterator[tuple[Array, slice, Array]]:
        """Yield for each fit its rows, its keys, and the queries to which it is fitted."""
        if mask.is_full:
            every = np.arange(mask.n)
            yield every, slice(0, mask.l), every
            return
        starts, by_stop = self._starts(mask), np.argsort(mask.stop, kind="stable")
        order, stops = np.argsort(starts, kind="stable"), mask.stop[by_stop]
        blocks, begin = np.unique(starts[order], return_index=True)
        lowest = np.minimum.reduceat(mask.first[order], begin)
        for t, low, rows in zip(blocks.tolist(), lowest.tolist(), np.split(order, begin[1:])):
            if low < t:
                past = by_stop[slice(*np.searchsorted(stops, [low, t], "right"))]
                yield rows, slice(low, t), past

    def _price(self, shape: Shape) -> Price | None:
        if self.rank is None or (self.block is None and not shape.rows.is_full):
            return None
        n, _, d, c = shape
        width, wide, work = d + c, 0, 0.0
        per_row = np.zeros(n)
        for rows, keys, past in self._fits(shape.rows):
            l, kept = keys.stop - keys.start, self._kept(keys)
            wide += kept
            work += self._work(len(past) or l, l, kept, d, c)
            per_row[rows] = kept
        near, full = np.zeros(n), shape.rows.is_full
        if not full:
            near = shape.rows.stop - np.maximum(shape.rows.first, self._starts(shape.rows))
        work += float((per_row + near).sum()) * width
        low = wide * shape.both
        stored = low + float(near.mean())
        return Price.from_numbers(stored, work / n, self._read(shape))

    def _kept(self, keys: slice) -> int:
        return min(self.rank or 0, int(keys.stop - keys.start))

    def _read(self, shape: Shape) -> Numbers:
        """Return the numbers of the kept keys, and of the keys and queries of the last fit."""
        mask, width = shape.decoding, shape.d + shape.c
        if mask.is_full:
            return Numbers(float(min(self.rank or 0, shape.l) * (width + 1)))
        reads = (mask.stop - np.maximum(mask.first, self._starts(mask))) * float(width)
        held = reads.copy()
        for rows, keys, past in self._fits(mask):
            l, kept = keys.stop - keys.start, self._kept(keys)
            of_fit = l * width + len(past) * shape.d if kept < l else 0.0
            reads[rows] += kept * (width + 1) + of_fit / (self.block or 1)
            held[rows] += kept * (width + 1) + of_fit
        return Numbers(float(reads.max()), float(held.max()))

    def _work(self, r: int, l: int, kept: int, d: int, c: int) -> float:
        if kept == l:
            return 0.0
        choice = {"h2o": 0, "qr": kept * l**2, "greedy": 2 * kept * l**2, "leverage": l**3}
        gram = 0 if self.pivots == "h2o" else r * l**2
        weights = r * kept**2 + r * kept + kept**3 + kept**2
        values = r * kept**2 + r * kept * l + kept**3 + l * kept**2 + kept * l * c
        return float(r * l * d + gram + choice[self.pivots] + weights + values)

    def _workspace(self, shape: Shape) -> int:
        n, l = shape.n, shape.l
        rank = min(self.rank or 0, l)
        blocks = 1 if self.block is None or shape.rows.is_full else math.ceil(l / self.block)
        return 8 * (2 * rank * blocks * (n + l) + 3 * max(n, l) * l + 3 * l**2 + 4 * rank * l)


@dataclasses.dataclass(frozen=True, eq=False)
class Compaction:
    """Kept keys with exp(q·k_j) ≈ Σ_s e^{q·keys_s + log_s} weights_sj, fitted to given queries.

    Attributes
    ----------
    keys, log : (r, d), (r,)
    weights : (r, l)
        Rows sum to 1.
    """

    keys: Array
    log: Array
    weights: Array

    @classmethod
    def fitted(cls, q: Array, k: Array, method: ColumnProjection) -> Compaction:
        """Return the fit of keys k (l, d) to queries q (r, d), by the fields of a method."""
        l, rank = len(k), min(method.rank or 0, len(k))
        if rank == l:
            return cls(k, np.zeros(l), np.eye(l))
        P = exact.softmax(q, k)
        return cls.on(pivots(P, rank, method.pivots), P, q, k, method.ridge)

    @classmethod
    def on(cls, chosen: Array, P: Array, q: Array, k: Array, ridge: float) -> Compaction:
        """Return the fit of the chosen keys of k to attention P of queries q; overwrite P."""
        columns, alone = P[:, chosen], np.eye(len(k))[chosen]
        w = 1 + _ridged(columns, (1 - columns.sum(axis=1))[:, None], ridge)[:, 0]
        log = np.log(np.maximum(w, LEAST_WEIGHT))
        exponent = q @ k[chosen].T + log
        shares = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        P[:, chosen] -= shares
        return cls(k[chosen], log, alone + _ridged(shares, P, ridge))

    def exponents(self, q: Array) -> Array:
        """Return the logits of queries q (n, d) with the kept keys, plus the log weights."""
        return np.asarray(q @ self.keys.T + self.log)

    def rows(self, q: Array) -> Array:
        """Return the estimate P_S W, (n, l), of the attention of queries q (n, d)."""
        x = self.exponents(q)
        shares = np.exp(x - x.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True) @ self.weights)


def _ridged(A: Array, B: Array, ridge: float) -> Array:
    """Return (AᵀA + λI)⁻¹ AᵀB, λ = ridge·tr(AᵀA)/r, for A (n, r); 0 where A is 0."""
    G = A.T @ A
    scale = float(np.trace(G)) / len(G)
    if scale < np.finfo(np.float64).tiny:
        return np.zeros((len(G), B.shape[1]))
    G[np.diag_indices(len(G))] += ridge * scale + len(G) * np.finfo(np.float64).eps * scale
    return np.asarray(scipy.linalg.solve(G, A.T @ B, assume_a="pos", check_finite=False))


def pivots(P: Array, rank: int, by: str) -> Array:
    """Return the indices of chosen columns of P (n, l), (rank,); see `ColumnProjection`."""
    if by == "h2o":
        return np.sort(patterns.ranked(P.sum(axis=0))[:rank])
    H = P.T @ P  # the Gram matrix of the residual columns
    if by == "leverage":
        vectors = scipy.linalg.eigh(H, check_finite=False)[1][:, -rank:]
        return np.sort(patterns.ranked(np.square(vectors).sum(axis=1))[:rank])
    least, free = NONE * float(np.diagonal(H).max()), np.ones(len(H), bool)
    chosen = []
    for _ in range(rank):
        size = np.diagonal(H).copy()
        left = size > least
        gain = size if by == "qr" else np.square(H).sum(axis=1) / np.where(left, size, np.inf)
        scores = np.where(free, np.where(left, gain, 0.0), -np.inf)
        j = int(np.argmax(patterns.rounded(scores)))
        free[j] = False
        chosen.append(j)
        if left[j]:
            h = H[:, j] / math.sqrt(size[j])
            H -= h[:, None] * h
    return np.sort(chosen)
