"""Scores of keys: a set of keys with large scores is kept for many queries.

A score is a class with what it computes for a key, what it reads and costs, and what it needs. To
add one, write the class and its line in `SCORES`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache, softmax
from approx.decoding.keys import KeptKeys
from approx.estimate import exact
from approx.estimate.masks import Mask
from approx.kernels.elementary import exp_rows
from approx.method.prices import Shape
from approx.supports import eviction, patterns
from approx.supports.eviction import Blocks, Limits

NEIGHBOURS = 16  # keys per group of `cur`, as in KVPress
EPSILON = 1e-4  # is added to attention in `critical`, as in KVPress
RIDGE = 1e-2  # relative to the mean eigenvalue of KᵀK

# (number of queries so far, keys, which of them may be evicted) → a score of each of these keys
Scorer = Callable[[int, Array, Array], Array]


@dataclasses.dataclass(frozen=True)
class KeyScore:
    """The score of a key. Fields of a subclass are fields of `columns` with the same names.

    Attributes
    ----------
    label : str
        The name that people know; that of `columns` if empty.
    all_logits : bool
        Whether the score needs logits of queries to come, so that no model can compute it.
    keys_alone : bool
        Whether the score depends on no query.
    shift_invariant : bool
        Whether the same vector added to all keys leaves the order of the scores as it is.
    stored : int
        Numbers stored with each key for its score.
    running : bool
        Whether every query scores the keys that it reads, so that there are always evictions.
    of_values : bool
        Whether the score reads values: the field ``values`` is then (l, c).
    """

    label: ClassVar[str] = ""
    all_logits: ClassVar[bool] = False
    keys_alone: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False
    stored: ClassVar[int] = 0
    running: ClassVar[bool] = False
    of_values: ClassVar[bool] = False

    def scorer(self, Q: Array, K: Array, first: Array, end: Array) -> Scorer:
        """Return a function that scores keys by the queries so far; it is called in order of time.

        Queries are in the order of their arrival; each sees the keys first ≤ j < end. A score that
        no such function computes defines `scores` and `cached_keys` instead.
        """
        raise NotImplementedError

    def scores(
        self, Q: Array, K: Array, mask: Mask, window: tuple[Array, Array], free: Array
    ) -> Array:
        """Return the scores of all keys after all queries, (l,).

        Query i keeps the keys window[0][i] ≤ j < window[1][i] anyway; keys that are ``free`` may be
        chosen.
        """
        order = np.argsort(mask.positions, kind="stable")
        scorer = self.scorer(Q[order], K, mask.first[order], mask.stop[order])
        return scorer(mask.n, np.arange(mask.l), free)

    def cached_keys(
        self, Q: Array, K: Array, mask: Mask, blocks: Blocks, limits: Limits
    ) -> list[Array]:
        """Return the keys in the cache before each block with queries."""
        scorer = self.scorer(Q[blocks.order], K, blocks.first, blocks.end)
        return eviction.by_scores(blocks, limits, len(K), scorer)

    def reads(self, keys: Array, queries: Array, d: int) -> Array:
        """Return the numbers that each eviction reads, for the counts of keys and of queries."""
        return np.asarray(keys * (self.stored or d))

    def work(self, keys: Array, queries: Array, d: int) -> float:
        """Return the multiply-adds of all evictions, for the counts of keys and of queries.

        Norms are not counted. The counts of queries are those so far.
        """
        return 0.0

    def one_set_work(self, shape: Shape) -> float:
        """Return the multiply-adds of the scores of all keys after all queries."""
        return self.work(np.array([shape.l]), np.array([shape.n]), shape.d)

    def cache(self, d: int, c: int, limits: Limits, window: int) -> Cache | None:
        """Return a cache that evicts by this score; None if there is none."""
        return None


class AttentionMass(KeyScore):
    """Σ_i softmax_ij of the queries in whose window key j is not: needs all logits."""

    all_logits = True
    shift_invariant = True

    def scores(
        self, Q: Array, K: Array, mask: Mask, window: tuple[Array, Array], free: Array
    ) -> Array:
        return _mass(Q, K, mask, *window)

    def cached_keys(
        self, Q: Array, K: Array, mask: Mask, blocks: Blocks, limits: Limits
    ) -> list[Array]:
        return [self._best(Q, K, mask, blocks, limits, int(b)) for b in blocks.filled()]

    def _best(
        self, Q: Array, K: Array, mask: Mask, blocks: Blocks, limits: Limits, b: int
    ) -> Array:
        """Return the sinks, the best keys for the queries of block b, and the keys just before."""
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

    def reads(self, keys: Array, queries: Array, d: int) -> Array:
        return np.zeros(len(keys), int)


class HeavyHitters(KeyScore):
    """The attention that the key has got so far, from queries that read the cache (H2O)."""

    label = "heavy hitters (H2O)"
    shift_invariant = True
    stored = 1
    running = True

    def cached_keys(
        self, Q: Array, K: Array, mask: Mask, blocks: Blocks, limits: Limits
    ) -> list[Array]:
        return eviction.heavy_hitters(Q, K, blocks, limits)

    def cache(self, d: int, c: int, limits: Limits, window: int) -> Cache:
        return KeptKeys(d, c, limits, heavy=True, window=window)


class LastAttention(KeyScore):
    """The log of the attention that the last query paid to each key in the cache (TOVA)."""

    label = "columns of last attention (TOVA)"
    shift_invariant = True
    running = True

    def scorer(self, Q: Array, K: Array, first: Array, end: Array) -> Scorer:
        values = self._checked(len(K))

        def score(come: int, keys: Array, free: Array) -> Array:
            last = slice(max(come - 1, 0), come)
            seen = (first[last, None] <= keys) & (keys < end[last, None])
            if not seen.any():
                return np.zeros(len(keys))
            logits, V = np.where(seen, Q[last] @ K[keys].T, -np.inf)[0], values[keys]
            return self.of_logits(logits, V, softmax(logits) @ V)

        return score

    def _checked(self, l: int) -> Array:
        return np.zeros((l, 0))

    def of_logits(self, logits: Array, V: Array, output: Array) -> Array:
        """Return the score of each key from logits (keys,), values (keys, c) and the output."""
        return np.asarray(logits - logits.max())

    def cache(self, d: int, c: int, limits: Limits, window: int) -> Cache:
        scores, again = self.of_logits, self.of_values
        return KeptKeys(d, c, limits, scores=scores, rereads=again, window=window)


@dataclasses.dataclass(frozen=True)
class OutputChange(LastAttention):
    """The log of p/(1 − p)·|o − v|, by which the last query's output o moves without the key.

    Without key j the weights are p_i/(1 − p_j), so that the output is o + p_j/(1 − p_j)·(o − v_j).
    """

    label = "columns of least output change"
    of_values = True

    values: Any

    def _checked(self, l: int) -> Array:
        return _values(self.values, l)

    def of_logits(self, logits: Array, V: Array, output: Array) -> Array:
        distance = np.sqrt(((output - V) ** 2).sum(axis=1))
        weights = np.exp(logits - logits.max())
        rest = weights.sum() - weights
        with np.errstate(divide="ignore", invalid="ignore"):  # a change of 0, or no other weight
            change = logits - logits.max() + np.log(distance) - np.log(rest)
        return np.where(rest > 0, change, np.inf)


@dataclasses.dataclass(frozen=True)
class SnapKV(KeyScore):
    """The attention of the last `window` queries, pooled over neighbours (SnapKV)."""

    label = "columns of last queries (SnapKV)"
    shift_invariant = True

    window: int
    kernel_size: int
    pooling: str

    def scorer(self, Q: Array, K: Array, first: Array, end: Array) -> Scorer:
        def score(come: int, keys: Array, free: Array) -> Array:
            last = slice(max(come - self.window, 0), come)
            seen = (first[last, None] <= keys) & (keys < end[last, None])
            return self.pooled(np.where(seen, Q[last] @ K[keys].T, -np.inf), free)

        return score

    def pooled(self, logits: Array, free: Array) -> Array:
        """Return the attention of some queries to each free key, pooled over neighbours.

        Logits are −inf outside the mask. Keys that are not free take part in the softmax, but not
        in the pooling. Neighbours beyond the ends count as 0.

        Examples
        --------
        >>> x, free = np.log([[1.0, 1e-9, 3.0, 4.0]]), np.array([True, True, True, False])
        >>> SnapKV(1, 3, "max").pooled(x, free)[free].round(3)
        array([0.125, 0.375, 0.375])
        """
        weights = np.array(logits, np.float64)
        top = weights.max(axis=1, initial=-np.inf)
        weights = np.ascontiguousarray(weights[top > -np.inf])
        exp_rows(weights, top[top > -np.inf])
        weights /= weights.sum(axis=1, keepdims=True)
        sums = np.zeros(len(free))
        sums[free] = weights.sum(axis=0)[free]
        padded = np.pad(sums, self.kernel_size // 2)
        near = np.lib.stride_tricks.sliding_window_view(padded, self.kernel_size)
        return np.asarray(near.max(axis=1) if self.pooling == "max" else near.mean(axis=1))

    def reads(self, keys: Array, queries: Array, d: int) -> Array:
        return np.asarray(keys * d + np.minimum(queries, self.window) * d)

    def work(self, keys: Array, queries: Array, d: int) -> float:
        return float((np.minimum(queries, self.window) * keys).sum() * d)

    def one_set_work(self, shape: Shape) -> float:
        return float(shape.rows.counts[-self.window :].sum() * shape.d)


@dataclasses.dataclass(frozen=True)
class CriticalKV(SnapKV):
    """First SnapKV's score a; when half of the keys are chosen, (a + ε)·‖v‖₁ (CriticalKV).

    Here a is a mean over queries. Keys that are kept anyway count among the first half.
    """

    label = "columns of critical keys (CriticalKV)"
    stored = 1
    of_values = True

    values: Any
    k: int
    block: int | None

    def scorer(self, Q: Array, K: Array, first: Array, end: Array) -> Scorer:
        attention = super().scorer(Q, K, first, end)
        norms = np.abs(_values(self.values, len(K))).sum(axis=1)

        def score(come: int, keys: Array, free: Array) -> Array:
            mean = attention(come, keys, free) / max(min(come, self.window), 1)
            first_half = (self.k - (self.block or 0)) // 2 - np.count_nonzero(~free)
            best = patterns.ranked(mean[free])[: max(first_half, 0)]
            found = (mean + EPSILON) * norms[keys]
            found[np.flatnonzero(free)[best]] = 2 * found.max(initial=0.0) or 1.0
            return np.asarray(found)

        return score

    def reads(self, keys: Array, queries: Array, d: int) -> Array:
        return super().reads(keys, queries, d) + keys


class ExpectedAttention(KeyScore):
    """k·μ + ½ kᵀΣk, with the mean μ and the covariance Σ of the queries so far.

    It is the log of the mean of exp(q·k) over q ~ N(μ, Σ) (Expected Attention).
    """

    label = "columns by expected attention"

    def scorer(self, Q: Array, K: Array, first: Array, end: Array) -> Scorer:
        fit = RunningCovariance(K.shape[1])

        def score(come: int, keys: Array, free: Array) -> Array:
            fit.add(Q[fit.count : come])
            return expected(K[keys], fit.mean, fit.covariance)

        return score

    def reads(self, keys: Array, queries: Array, d: int) -> Array:
        return np.asarray(keys * d + d * d + d)

    def work(self, keys: Array, queries: Array, d: int) -> float:
        # The mean and the covariance are updated, so that each query is added once.
        return float(queries.max(initial=0) * d * d + int(keys.sum()) * (d * d + 2 * d))


class KeysAlone(KeyScore):
    """A score that depends on the keys alone."""

    keys_alone = True

    def of_keys(self, K: Array) -> Array:
        """Return the score of each of these keys."""
        raise NotImplementedError

    def scorer(self, Q: Array, K: Array, first: Array, end: Array) -> Scorer:
        return lambda come, keys, free: self.of_keys(K[keys])


class KeyNorm(KeysAlone):
    """−|k|²: keys of small norm get much attention (Devoto et al. 2024)."""

    label = "columns of small keys (Knorm)"
    stored = 1

    def of_keys(self, K: Array) -> Array:
        return np.asarray(-(_near_one(K) ** 2).sum(axis=1))


class KeyDiff(KeysAlone):
    """−cos(k, a), where the anchor a is the mean of all k/|k| (KeyDiff).

    Not divided by the norm of a, which does not change the order. A key 0 has score 0.
    """

    label = "columns unlike the mean (KeyDiff)"

    def of_keys(self, K: Array) -> Array:
        x = _near_one(K)
        norms = np.sqrt((x**2).sum(axis=1, keepdims=True))
        unit = np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
        return np.asarray(-(unit * unit.mean(axis=0)).sum(axis=1))

    def work(self, keys: Array, queries: Array, d: int) -> float:
        return float(int(keys.sum()) * d)


class RidgeLeverage(KeysAlone):
    """The ridge leverage score kᵀ(KᵀK + λI)⁻¹k, λ = RIDGE·|K|²_F/d."""

    label = "columns by leverage scores"

    def of_keys(self, K: Array) -> Array:
        x = _near_one(K)
        gram = x.T @ x
        trace = gram.trace()
        if trace == 0:
            return np.zeros(len(x))
        ridge = RIDGE * trace / len(gram) * np.eye(len(gram))
        return np.asarray((x * np.linalg.solve(gram + ridge, x.T).T).sum(axis=1))

    def work(self, keys: Array, queries: Array, d: int) -> float:
        return float(2 * int(keys.sum()) * d * d + len(keys) * d**3)


class GroupShare(KeysAlone):
    """|k|² over its sum in the key's group of NEIGHBOURS keys (CurDKV without values)."""

    label = "columns by CUR"
    stored = 1

    def of_keys(self, K: Array) -> Array:
        squares = (_near_one(K) ** 2).sum(axis=1)
        sums = np.add.reduceat(squares, np.arange(0, len(squares), NEIGHBOURS))
        of_mine = np.repeat(sums, NEIGHBOURS)[: len(squares)]
        return np.asarray(squares / np.where(of_mine > 0, of_mine, 1.0))


SCORES: dict[str, type[KeyScore]] = {
    "mass": AttentionMass,
    "h2o": HeavyHitters,
    "tova": LastAttention,
    "output": OutputChange,
    "snapkv": SnapKV,
    "critical": CriticalKV,
    "expected": ExpectedAttention,
    "key_norm": KeyNorm,
    "key_diff": KeyDiff,
    "leverage": RidgeLeverage,
    "cur": GroupShare,
}


def expected(K: Array, mean: Array, covariance: Array) -> Array:
    """Return k·μ + ½ kᵀΣk of each key, for μ (d,) and Σ (d, d)."""
    return np.asarray(((0.5 * K @ covariance + mean) * K).sum(axis=1))


@dataclasses.dataclass
class RunningCovariance:
    """Mean and covariance of vectors that arrive in parts; both are 0 before the first part.

    Examples
    --------
    >>> fit = RunningCovariance(1)
    >>> fit.add(np.array([[1.0], [3.0]])), fit.add(np.array([[5.0]]))
    (None, None)
    >>> fit.mean, fit.covariance.round(3)
    (array([3.]), array([[2.667]]))
    """

    d: int

    def __post_init__(self) -> None:
        self.count, self.mean, self.scatter = 0, np.zeros(self.d), np.zeros((self.d, self.d))

    def add(self, x: Array) -> None:
        """Add vectors (n, d), by the update of Chan, Golub and LeVeque."""
        if not len(x):
            return
        both = self.count + len(x)
        gap = x.mean(axis=0) - self.mean
        rest = x - x.mean(axis=0)
        self.scatter += rest.T @ rest + np.outer(gap, gap) * (self.count * len(x) / both)
        self.mean = self.mean + gap * (len(x) / both)
        self.count = both

    @property
    def covariance(self) -> Array:
        """The covariance, divided by the number of vectors."""
        return np.asarray(self.scatter / max(self.count, 1))


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


def _values(values: Any, l: int) -> Array:
    if values is None:
        raise ValueError("by='critical' and by='output' score values: give V to approximate")
    if len(values) != l:
        raise ValueError(f"V must have one row for each of the {l} keys, got {len(values)}")
    return np.asarray(values, np.float64)


def _near_one(K: Array) -> Array:
    # scaling by a power of two: equal norms stay equal, and no square overflows
    exponent = np.frexp(np.abs(K).max(initial=0.0))[1]
    return np.asarray(np.ldexp(K, -int(exponent)))
