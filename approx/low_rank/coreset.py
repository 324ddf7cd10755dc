"""A weighted coreset: attention to a few of the keys, each with a sum of values of its own."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from scipy.special import lambertw

from approx import checks, exact
from approx.approximation import Approximation
from approx.checks import Array
from approx.distances import half_square, squared_distances
from approx.fields import one_of, ruled
from approx.low_rank.nystrom import EXACT, SAMPLE, drawn, factors, gaussian
from approx.low_rank.pivots import Pick, cholesky
from approx.masks import ALL, Mask
from approx.method import Method, Size
from approx.parts import Factors
from approx.prices import Price, Shape, low_rank

PIVOTS = ("cholesky", "uniform", "leverage")
RULES = ("keys", "queries", "radii")
TRIED = tuple(2.0 ** (i / 2) for i in range(-2, 7))  # τ from ½ to 8, so that τ² doubles
PROBES = 32  # rows of which the error is measured
RHO = math.sqrt(1 + math.exp(2 + lambertw(2 / math.e**2).real))


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
        Number of keys in the coreset, 1 ≤ rank ≤ l; None is a template.
    pivots : {"cholesky", "uniform", "leverage"}
        ``cholesky`` draws one key after the other, with probabilities ∝ what those before leave of
        the diagonal of exp(K Kᵀ/τ²). ``uniform`` draws different keys. ``leverage`` draws them in
        turn with probabilities ∝ their ridge leverage scores in G, as `nystrom` does.
    tau : {"keys", "queries", "radii"} or float
        τ, or a rule for it. ``keys`` and ``queries`` draw a coreset for each of nine τ from ½ to 8,
        and take the one that is best in total variation, averaged over 32 rows of attention. The
        rows are those of random keys in place of queries, which see all keys, or those of random
        queries. ``radii`` is the rule of [1]_, below.

    Notes
    -----
    The function k → exp(q·k) is interpolated from its values at Z, in the space of the kernel
    exp(k·k'/τ²), so that it is exact at keys of the coreset for every query, and W needs no
    query. Attention to all keys is then attention to rank keys with the values W V and the row sums
    of W in place of 1. A larger τ makes the kernel smooth and the interpolation good, but the norm
    of the function is e^{τ²|q|²/2}:

        |estimate_ij − exp(q_i·k_j)|² ≤ e^{τ²|q_i|²} (exp(K Kᵀ/τ²) − its part on Z)_jj.

    ``radii`` balances bounds of both: τ² = (R_K/R_Q) b/(2 W₀(b/(2ρ))) with R_Q = max |q|,
    R_K = max |k − k̄|, b = log(l)/(R_Q R_K) + 2, ρ = √(1 + e^{W₀(2/e²) + 2}), and Lambert's W₀.

    It is computed with G = exp(−|k − k'|²/(2τ²)), and with W as G(Z, Z)⁻¹ G(Z, K) and logarithms of
    scales of the columns of the factors, of the keys and of the rows, so that logits of ±10⁴ do
    not overflow. What pivots leave of
    G_jj = 1 is below 1e-8 where a key is near the span of those before, and it is no pivot then, so
    that a coreset can be smaller than rank. Nothing is added to the diagonal.

    The estimate is biased, and its entries may be negative. It is an exact one if the coreset
    has all keys, up to 1e-4·e^{τ²|q|²/2 + |k − k̄|²/(2τ²)}. A query uses no other query unless τ
    follows from them. A coreset of all keys holds the future, so that it is not autoregressive: a
    mask hides entries, changes the rows of random queries, and no coreset.

    Cost: l·rank·(d + rank) operations for pivots and as many for weights, nine times if τ is
    chosen; leverage takes l³ for at most 1024 keys, and l·(4·rank)² above.

    In the authors' code attention is clipped to the range of the values, which cannot be seen here;
    rank keys are taken however little they leave; and successive keys may have a coreset each. At
    first it has τ as above with R_Q from queries, or R_Q = R_K in a cache; in a later version
    τ² = 3.94582·R_K/R_Q. The paper was read as far as its abstract and public code go.

    References
    ----------
    .. [1] T. Schröder, L. Mackey, "WildCat: near-linear attention in theory and practice", 2026,
       arXiv:2602.10056; its code is microsoft/wildcat.
    .. [2] Y. Chen, E. Epperly, J. Tropp, R. Webber, "Randomly pivoted Cholesky: practical
       approximation of a kernel matrix with few entry evaluations", CPAM 2025.

    Examples
    --------
    All keys are in the coreset:

    >>> Coreset(rank=2, tau=1.0).approximate([[1.0]], [[0.0], [0.5]], rng=0).to_dense().round(6)
    array([[1.      , 1.648721]])
    """

    name: ClassVar[str] = "coreset"
    deterministic: ClassVar[bool] = False
    sized_by = Size("rank", counts="rank", most=lambda n, l: l)

    rank: int | None = None
    pivots: str = one_of("cholesky", PIVOTS)
    tau: float | str = ruled("keys", _temperature)

    @property
    def row_local(self) -> bool:
        """Whether τ does not follow from the queries."""
        return self.tau not in ("queries", "radii")

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Approximation:
        a, b = (x.astype(np.float64) for x in (q, k))
        if self.tau in ("keys", "queries"):
            core = self._best(a, b, mask, rng)
        else:
            tau = radii(a, b) if self.tau == "radii" else float(self.tau)
            core = self._drawn(b, tau, rng)
        return Approximation(core.estimate(a, mask, q.dtype))

    def _best(self, a: Array, b: Array, mask: Mask, rng: np.random.Generator) -> Core:
        """Return the coreset with the least total variation of some rows of attention."""
        x, seen = (a, mask) if self.tau == "queries" else (b, Mask.full(len(b), len(b)))
        rows = np.sort(rng.choice(len(x), min(PROBES, len(x)), replace=False))
        x, seen = x[rows], seen.take(rows)
        shares = exact.softmax(x, b, seen)

        def error(core: Core) -> float:
            estimate = Approximation(core.estimate(x, seen, x.dtype)).seen(seen)
            rows = estimate.block(ALL, shift=estimate.row_log())
            total = rows.sum(axis=1, keepdims=True)
            off = np.abs(rows / np.where(total > 0, total, np.inf) - shares).sum(axis=1) / 2
            return float(np.where(total[:, 0] > 0, off, 1.0).mean())

        return min((self._drawn(b, tau, rng) for tau in TRIED), key=error)

    def _drawn(self, b: Array, tau: float, rng: np.random.Generator) -> Core:
        """Return a coreset of keys b at one τ."""
        x = (b - b.mean(axis=0)) / tau
        height = half_square(x)
        chosen, C = cholesky(lambda p: gaussian(x[p : p + 1], x)[0], len(x), self._picks(x, rng))
        exponent = -squared_distances(x[chosen], x) / 2
        nearest = exponent.max(axis=0)
        exponent -= nearest
        weights = scipy.linalg.cho_solve((C[chosen], True), np.exp(exponent), check_finite=False)
        with np.errstate(divide="ignore"):
            size = np.log(np.abs(weights)) + (height + nearest) - height[chosen, None]
        most = size.max(axis=1)
        size -= most[:, None]
        log = size.max(axis=0)
        return Core(b[chosen], most, np.copysign(np.exp(size - log), weights), log)

    def _picks(self, x: Array, rng: np.random.Generator) -> list[Pick]:
        """Return the choices of pivots among scaled keys x."""
        rank = self.rank or 0
        if self.pivots != "cholesky":
            places = drawn(x, rank, self.pivots, rng)
            return [lambda _, p=p: p for p in places]  # type: ignore[misc]
        diagonal = 2 * half_square(x)  # the logarithm of that of exp(x·x')

        def draw(rest: Array) -> int:
            with np.errstate(divide="ignore"):
                return int(np.argmax(np.log(rest) + diagonal + rng.gumbel(size=len(rest))))

        return [draw] * rank

    def priced(self, shape: Shape) -> Price | None:
        """Return the price of logits of rank keys, of their state, and of their weights."""
        if self.rank is None:
            return None
        n, l, d, _ = shape
        tried, probes = (len(TRIED), PROBES) if self.tau in ("keys", "queries") else (1, 0)
        each = 2 * l * self.rank * (d + self.rank)
        if self.pivots == "leverage":
            each += l * min(l, SAMPLE // 2 * self.rank if l > EXACT else l) ** 2
        chosen = tried * each + probes * l * (d + tried * self.rank)
        logits = float(self.rank * d)
        return low_rank(self.rank, shape) + Price(0.0, logits, logits + chosen / n, 0.0)

    def workspace(self, shape: Shape) -> int:
        """Return the bytes of the factors, of pivots, of rows and of leverage scores."""
        n, l, rank = shape.n, shape.l, self.rank or 0
        wide = min(l, max(EXACT, SAMPLE * rank)) if self.pivots == "leverage" else 0
        return 8 * (3 * rank * n + 6 * rank * l + 4 * PROBES * l + 4 * wide**2)


@dataclasses.dataclass(frozen=True, eq=False)
class Core:
    """Keys z with exp(q·k_j) ≈ Σ_s e^{q·z_s + most_s} weights_sj e^{log_j}.

    Attributes
    ----------
    keys, most : (r, d), (r,)
    weights, log : (r, l), (l,)
        Largest of |weights_sj e^{log_j}| over keys j is 1, so that none of them underflows unless
        another one outweighs it in the same column of the factors.
    """

    keys: Array
    most: Array
    weights: Array
    log: Array

    def estimate(self, q: Array, mask: Mask, dtype: Any) -> Factors:
        """Return the estimate for queries q (n, d) as factors."""
        exponent = q @ self.keys.T + self.most
        top = exponent.max(axis=1)
        left = np.exp(exponent - top[:, None])
        return factors(left, self.weights.T.copy(), top, self.log, mask, dtype)


def radii(q: Array, k: Array) -> float:
    """Return the τ of WildCat, from the largest norms of queries and of centred keys.

    Examples
    --------
    >>> round(radii(np.array([[2.0]]), np.array([[1.0], [-1.0]])), 6)
    1.451855
    """
    r_q, r_k = (float(np.linalg.norm(x, axis=1).max()) for x in (q, k - k.mean(axis=0)))
    if r_q * r_k == 0:
        return 1.0
    b = math.log(len(k)) / (r_q * r_k) + 2
    return math.sqrt(r_k / r_q * b / (2 * lambertw(b / (2 * RHO)).real))
