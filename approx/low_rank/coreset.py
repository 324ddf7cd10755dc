"""A weighted coreset: attention to a few of the keys, each with a weighted sum of the values."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.linalg

from approx import checks
from approx.checks import Array
from approx.estimate import exact
from approx.estimate.approximation import Approximation
from approx.estimate.distances import half_square, squared_distances
from approx.estimate.low import Factors
from approx.estimate.masks import ALL, Mask
from approx.estimate.parts import Parts
from approx.low_rank.nystrom import (
    EXACT,
    SAMPLE,
    draw_landmarks,
    factors,
    gaussian,
    past_factors,
    work_of_choice,
)
from approx.low_rank.pivots import Pick, cholesky
from approx.low_rank.thinning import kernel_entries, thinned
from approx.method import MOST_KEYS, Method, Moments, Size
from approx.method.fields import integer, one_of, ruled
from approx.method.prices import Numbers, Price, Shape, entries, low_rank
from approx.method.tags import AUTOREGRESSIVE, RANDOM, ROTATION, ROW_LOCAL, SCALE, SHIFT, collect

PIVOTS = ("cholesky", "uniform", "leverage", "thinning")
EVEN = ("uniform", "thinning")  # with these, each key is drawn with probability rank/l
WEIGHTS = ("interpolated", "equal")
RULES = ("keys", "queries", "radii")
TRIED = tuple(2.0 ** (i / 2) for i in range(-2, 7))  # τ from ½ to 8, so that τ² doubles
PROBES = 32  # rows on which the error is measured
RHO = 3.1916010253237044  # √(1 + e^(2 + W(2/e²))), with Lambert's W


def _temperature(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return checks.one_of(name, value, RULES)
    checks.positive(name, value)
    return value


@dataclasses.dataclass(frozen=True)
class Coreset(Method):
    """A few keys with weights for all others (WildCat), biased for exp(q·k).

    estimate = exp(Q Zᵀ) W, with some of the keys Z = K_S (rank, d) and
    W = exp(Z Zᵀ/τ²)⁻¹ exp(Z Kᵀ/τ²), where keys are centred in W.

    Parameters
    ----------
    rank : int, optional
        Number of keys in the coreset, all if there are fewer; None: a budget fills it.
    pivots : {"cholesky", "uniform", "leverage", "thinning"}
        ``cholesky`` draws one key after the other, with probabilities ∝ the residual diagonal of
        exp(K Kᵀ/τ²) after the earlier keys. ``uniform`` draws distinct keys. ``leverage`` draws
        distinct keys in turn with probabilities ∝ their ridge leverage scores in G, as `nystrom`
        does. ``thinning`` halves the keys by the kernel exp(k·k') until rank are left
        (`low_rank.thinning`).
    tau : {"keys", "queries", "radii"} or float
        τ, or a rule for it. ``keys`` and ``queries`` draw a coreset for each of nine τ from ½ to 8,
        and take the one with the least total variation, averaged over 32 rows of attention:
        ``queries`` takes rows of random queries, ``keys`` uses random keys as queries, which see
        all keys. ``radii`` is the rule of [1]_, below.
    weights : {"interpolated", "equal"}
        ``equal`` gives each key of the coreset the weight l/rank and all others 0, without τ, for
        pivots "uniform" or "thinning". Thinformer is ``pivots="thinning", weights="equal"``.
    block : int, optional
        Keys per block, if the coreset of a query must come from its past; needs a given τ. Key 0 is
        the first key of the coreset. Each block after the first gives one key, chosen by the same
        rule, until there are ``rank``. A query uses key 0 and the chosen keys of blocks that lie in
        its past. Keys are centred at key 0.

    Notes
    -----
    The function k → exp(q·k) is interpolated from its values at Z, in the space of the kernel
    exp(k·k'/τ²). So it is exact at keys of the coreset for every query, and W does not depend on
    queries. Attention to all keys becomes attention to rank keys, with the values W V, and with the
    row sums of W as weights in the denominator. A larger τ makes the kernel smoother and the
    interpolation better, but the norm of the function, e^{τ²|q|²/2}, larger:

        |estimate_ij − exp(q_i·k_j)|² ≤ e^{τ²|q_i|²} (exp(K Kᵀ/τ²) − its part on Z)_jj.

    ``radii`` balances bounds on both: τ² = (R_K/R_Q) b/(2 W₀(b/(2ρ))) with R_Q = max |q|,
    R_K = max |k − k̄|, b = log(l)/(R_Q R_K) + 2, ρ = √(1 + e^{W₀(2/e²) + 2}), and Lambert's W₀.

    The computation uses G = exp(−|k − k'|²/(2τ²)) and G(Z, Z)⁻¹ G(Z, K), with the logarithms of the
    scales of factor columns, keys and rows, so that logits of ±10⁴ do not overflow. A key near the
    span of the earlier pivots, with a residual of G_jj = 1 below 1e-8, is not taken as a pivot, so
    a coreset can be smaller than rank. Nothing is added to the diagonal.

    With interpolated weights the estimate is biased, and its entries may be negative. If the
    coreset has all keys, it is exact up to 1e-4·e^{τ²|q|²/2 + |k − k̄|²/(2τ²)}·e^{q·k̄}. A row
    depends on other queries only if τ does. A coreset of all keys contains the future, so the
    method is not autoregressive: a mask hides entries and changes the rows of random queries, but
    not the coreset.

    With equal weights the estimate is unbiased, since each key is drawn with probability rank/l;
    its relative variance is l/rank − 1. Normalised, it is exact attention to the rank keys.

    With ``block`` the method is `nystrom` with landmarks of the past, at another τ: one pair of
    factors from the triangular factor of G(Z, Z), in the order of blocks.

    Cost: l·rank·(d + rank) operations for pivots and as many for weights, nine times if τ is
    chosen; leverage takes l³ for at most 1024 keys, and l·(4·rank)² above; thinning takes
    4·rank²·d for each halving.

    The authors' codes also use the values, which a method here is not given: WildCat's clips
    attention to their range, and Thinformer's kernel is exp(k·k')(v·v' + b²) with their largest
    entry b (studies/lm/peers.md).

    References
    ----------
    .. [1] T. Schröder, L. Mackey, "WildCat: near-linear attention in theory and practice", 2026,
       arXiv:2602.10056 (abstract and public code); its code is microsoft/wildcat.
    .. [2] A. Carrell, A. Gong, A. Shetty, R. Dwivedi, L. Mackey, "Low-rank thinning", ICML 2025,
       arXiv:2502.12063; its code is microsoft/thinformer.
    .. [3] Y. Chen, E. Epperly, J. Tropp, R. Webber, "Randomly pivoted Cholesky: practical
       approximation of a kernel matrix with few entry evaluations", CPAM 2025.

    Examples
    --------
    All keys are in the coreset:

    >>> Coreset(rank=2, tau=1.0).approximate([[1.0]], [[0.0], [0.5]], rng=0).to_dense().round(6)
    array([[1.      , 1.648721]])
    """

    name = "coreset"
    label = "coreset (WildCat)"
    examples = (
        "coreset()",
        "coreset(tau=1.5, block=2)",
        "coreset(pivots='thinning', weights='equal')",
    )
    sized_by = Size("rank", counts="rank", most=lambda n, l: MOST_KEYS)

    rank: int | None = None
    pivots: str = one_of("cholesky", PIVOTS)
    tau: float | str = ruled("keys", _temperature)
    weights: str = one_of("interpolated", WEIGHTS)
    block: int | None = integer()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights == "equal" and (self.pivots not in EVEN or self.block is not None):
            raise ValueError(
                "equal weights are of keys that are drawn with equal probabilities from all: "
                f"give pivots 'uniform' or 'thinning' and no block, got {self}"
            )
        if self.block is not None and isinstance(self.tau, str):
            raise ValueError(
                f"tau must be a number where keys of the past are chosen, got {self.tau!r}, a rule "
                "that sees all of them"
            )

    @property
    def tags(self) -> frozenset[str]:
        thinned, equal = self.pivots == "thinning", self.weights == "equal"
        return collect(
            RANDOM,
            ROTATION,
            self.block is not None and AUTOREGRESSIVE,
            (self.tau not in ("queries", "radii") or equal) and ROW_LOCAL,
            (not thinned and (equal or self.tau != "keys")) and SHIFT,
            (not thinned and (equal or self.tau == "radii")) and SCALE,
        )

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        a, b = (x.astype(np.float64) for x in (q, k))
        if self.block is not None:
            return Parts(self._causal(a, b, self.block, mask, rng, q.dtype))
        if self.weights == "equal":
            core = self._even(b, rng)
        elif self.tau in ("keys", "queries"):
            core = self._best(a, b, mask, rng)
        else:
            core = self._drawn(b, self._fixed(a, b), rng)
        return Parts(core.estimate(a, mask, q.dtype))

    def _fixed(self, a: Array, b: Array) -> float:
        return radii(a, b) if self.tau == "radii" else float(self.tau)

    def _even(self, b: Array, rng: np.random.Generator) -> Core:
        rank, l = min(self.rank or 0, len(b)), len(b)
        places = self._places(b, b, rank, rng)
        alone = np.zeros((rank, l))
        alone[np.arange(rank), places] = 1.0
        return Core(b[places], np.full(rank, math.log(l / rank)), alone, np.zeros(l))

    def _causal(
        self,
        a: Array,
        b: Array,
        block: int,
        mask: Mask,
        rng: np.random.Generator,
        dtype: np.dtype[Any],
    ) -> Factors:
        """Return the factors through keys of earlier blocks, for queries a and keys b."""
        x = (b - b[0]) / self._fixed(a, b)

        def within(rows: slice) -> Pick:
            (pick,) = self._picks(b[rows], x[rows], 1, rng)
            return lambda rest: rows.start + pick(rest[rows])

        count = min(self.rank or 0, len(b) // block)
        later = [within(slice(p * block, (p + 1) * block)) for p in range(1, count)]
        picks = [lambda _: 0, *later]
        chosen, C = _pivots(x, picks)
        if mask.is_full:
            return Core.interpolated(b, x, chosen, C).estimate(a, mask, dtype)
        known = (chosen == 0) | ((chosen // block + 1) * block <= mask.stop[:, None])
        exponent = a @ b[chosen].T - half_square(x[chosen])
        left, right, top = past_factors(exponent, gaussian(x, x[chosen]), C, known)
        return factors(left, right, top, half_square(x), mask, dtype)

    def _best(self, a: Array, b: Array, mask: Mask, rng: np.random.Generator) -> Core:
        """Return the coreset with the least total variation on a sample of rows of attention."""
        x, seen = (a, mask) if self.tau == "queries" else (b, Mask.full(len(b), len(b)))
        rows = np.sort(rng.choice(len(x), min(PROBES, len(x)), replace=False))
        x, seen = x[rows], seen.take(rows)
        shares = exact.row_shares(x @ b.T, seen)  # no caller has checked logits of keys by keys

        def error(core: Core) -> float:
            estimate = Approximation(core.estimate(x, seen, x.dtype), mask=seen)
            rows = estimate.block(ALL, shift=estimate.row_log())
            total = rows.sum(axis=1, keepdims=True)
            off = np.abs(rows / np.where(total > 0, total, np.inf) - shares).sum(axis=1) / 2
            return float(np.where(total[:, 0] > 0, off, 1.0).mean())

        return min((self._drawn(b, tau, rng) for tau in TRIED), key=error)

    def _drawn(self, b: Array, tau: float, rng: np.random.Generator) -> Core:
        """Return a coreset of keys b at one τ."""
        x = (b - b.mean(axis=0)) / tau
        return Core.interpolated(
            b, x, *_pivots(x, self._picks(b, x, min(self.rank or 0, len(b)), rng))
        )

    def _places(self, b: Array, x: Array, rank: int, rng: np.random.Generator) -> Array:
        return (
            thinned(b, rank, rng)
            if self.pivots == "thinning"
            else draw_landmarks(x, rank, self.pivots, rng)
        )

    def _picks(self, b: Array, x: Array, rank: int, rng: np.random.Generator) -> list[Pick]:
        """Return the functions that choose pivots among keys b; x are the scaled keys."""
        if self.pivots != "cholesky":
            return [lambda _, p=p: p for p in self._places(b, x, rank, rng)]  # type: ignore[misc]
        diagonal = 2 * half_square(x)  # the logarithm of the diagonal of exp(x·x')

        def draw(rest: Array) -> int:
            with np.errstate(divide="ignore"):
                return int(np.argmax(np.log(rest) + diagonal + rng.gumbel(size=len(rest))))

        return [draw] * rank

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return bias 0 and relative variance l/rank − 1 with equal weights, else None."""
        if self.weights != "equal":
            return None
        with np.errstate(divide="ignore"):
            log = np.log(max(len(k) / (self.rank or 0), 1) - 1)
        return Moments(np.zeros((len(q), len(k))), np.full((len(q), len(k)), log))

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        if self.weights != "equal" or self.pivots != "uniform":
            return None
        l, rank = len(K), min(self.rank or 0, len(K))
        both = np.full((l, l), l * (rank - 1) / (rank * max(l - 1, 1)))
        np.fill_diagonal(both, l / rank)
        return np.asarray(both - 1)

    def _price(self, shape: Shape) -> Price | None:
        if self.rank is None:
            return None
        n, l, d, _ = shape
        rank = min(self.rank, l)
        state = low_rank(rank, shape)
        among, picked = (l, rank) if self.block is None else (self.block, 1)
        each = 0.0
        if self.pivots == "leverage":
            each += work_of_choice(among, picked, "leverage", d)
        elif self.pivots == "thinning":
            each += d * kernel_entries(among, picked)
        if self.weights == "equal":
            even = entries(rank, shape)
            assert even.multiply_adds is not None
            work = even.multiply_adds + each / n
            assert even.reads is not None
            return Price.from_numbers(state.stored, work, Numbers(even.reads), entry_work=rank)
        if self.block is not None:
            factor = float(rank * (d + rank))
            once = each * max(min(rank, l // self.block) - 1, 0)
            return low_rank(rank, shape, mapped=factor, once=once)
        each += l * rank * (d + 2 * rank)  # of pivots, and of weights by the same logits
        once = each
        if self.tau in ("keys", "queries"):
            of_keys = self.tau == "keys"
            fewest = np.full(l, l) if of_keys else np.sort(shape.rows.counts)
            rows = fewest[-PROBES:]  # the rows that see most keys
            tried = each + len(rows) * rank * (d + l)
            once = len(TRIED) * tried + float(np.sum(rows)) * d
        return low_rank(rank, shape, mapped=rank * d, keyed=0.0, once=once)

    @property
    def _alone(self) -> bool:
        """Whether a single coreset is drawn, so that no error chooses among several."""
        return self.weights == "equal" or self.tau not in ("keys", "queries")

    def _workspace(self, shape: Shape) -> int:
        n, l = shape.n, shape.l
        rank = min(self.rank or 0, l)
        wide = min(l, max(EXACT, SAMPLE * rank)) if self.pivots == "leverage" else 0
        return 8 * (3 * rank * n + 6 * rank * l + 4 * PROBES * l + 4 * wide**2)


def _pivots(x: Array, picks: list[Pick]) -> tuple[Array, Array]:
    """Return pivots among scaled keys x, and the triangular factor of their G."""
    chosen, C = cholesky(lambda p: gaussian(x[p : p + 1], x)[0], len(x), picks)
    return chosen, C[chosen]


@dataclasses.dataclass(frozen=True, eq=False)
class Core:
    """Keys z with exp(q·k_j) ≈ Σ_s e^{q·z_s + most_s} weights_sj e^{log_j}.

    Attributes
    ----------
    keys, most : (r, d), (r,)
    weights, log : (r, l), (l,)
        The largest |weights_sj e^{log_j}| over keys j is 1. So an entry underflows only if another
        entry outweighs it in the same column of the factors.
    """

    keys: Array
    most: Array
    weights: Array
    log: Array

    @classmethod
    def interpolated(cls, b: Array, x: Array, chosen: Array, C: Array) -> Core:
        """Return the chosen keys of b with weights for all keys; x are the scaled keys."""
        height = half_square(x)
        exponent = -squared_distances(x[chosen], x) / 2
        nearest = exponent.max(axis=0)
        exponent -= nearest
        weights = scipy.linalg.cho_solve((C, True), np.exp(exponent), check_finite=False)
        with np.errstate(divide="ignore"):
            size = np.log(np.abs(weights)) + (height + nearest) - height[chosen, None]
        most = size.max(axis=1)
        size -= most[:, None]
        log = size.max(axis=0)
        return cls(b[chosen], most, np.copysign(np.exp(size - log), weights), log)

    def estimate(self, q: Array, mask: Mask, dtype: Any) -> Factors:
        """Return the estimate for queries q (n, d) as factors."""
        exponent = q @ self.keys.T + self.most
        top = exponent.max(axis=1)
        left = np.exp(exponent - top[:, None])
        return factors(left, self.weights.T.copy(), top, self.log, mask, dtype)


def radii(q: Array, k: Array) -> float:
    """Return the τ of WildCat, from the largest norms of queries and of centred keys."""
    r_q, r_k = (float(np.linalg.norm(x, axis=1).max()) for x in (q, k - k.mean(axis=0)))
    b = math.log(len(k)) / (r_q * r_k) + 2 if r_q * r_k > 0 else math.inf
    if b == math.inf:  # no logit differs from another
        return 1.0
    return math.sqrt(r_k / r_q * b / (2 * scipy.special.lambertw(b / (2 * RHO)).real))
