"""Predictions of theory for one head: each bound, its hypothesis, and the measured quantity.

A theorem about attention is about all inputs of a kind, or about growing sizes. A head is one input
of one size. So each row of the table has a number of this head, the condition that the hypothesis
puts on it, the prediction of the bound, and the same quantity measured. A bound O(…) has an unknown
constant; its number then shows the order of size only, and proves or refutes nothing.
"""

import dataclasses
import functools
import math
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.linalg
from scipy.special import ndtr, ndtri

from analysis.inputs import Head, Heads
from analysis.ranks import rank, state_rank
from analysis.sentences import Sentence
from approx import checks
from approx.checks import Array
from approx.combinations.sampled import Sampled
from approx.estimate import exact, memory
from approx.estimate.corrections import Support
from approx.low_rank.coreset import Coreset
from approx.low_rank.thinning import thinned
from approx.polynomials import error_bounds
from approx.polynomials.chebyshev import log_tail
from approx.polynomials.monomials import width
from approx.random_features.positive import Positive
from approx.supports.key_boxes import lengths

DRAWS = 16  # draws of each random quantity
BROAD = 64  # least number of visible keys of a row whose logits are compared with a normal law
LILLIEFORS = 1.031  # 1 % quantile of D√N for normal samples, with the sample's mean and deviation
GAUSSIAN = 1.2  # times the deviation: 1 for normal entries, plus an allowance for a finite sample
MOST_DEGREE = 2**20  # degree of a polynomial beyond which no rank is computed


@dataclasses.dataclass(frozen=True)
class Case:
    """One head, with the quantities that several rows of the table need."""

    x: Head
    epsilon: float
    keys: int
    seed: int

    @functools.cached_property
    def q(self) -> Array:
        """Queries as Alman and Song scale them: logits are q·k/d, channels as large as in k."""
        return self._balanced[0]

    @functools.cached_property
    def k(self) -> Array:
        """Keys in the same scaling."""
        return self._balanced[1]

    @functools.cached_property
    def _balanced(self) -> tuple[Array, Array]:
        q, k = (np.asarray(a, np.float64) * math.sqrt(self.x.d) for a in (self.x.Q, self.x.K))
        tops = [np.abs(a).max(axis=0) for a in (q, k)]
        least = np.finfo(np.float64).tiny
        both = (tops[0] >= least) & (tops[1] >= least)  # else all logits of the channel are 0
        scale = np.sqrt(np.where(both, tops[1], 1.0) / np.where(both, tops[0], 1.0))
        return q * np.where(both, scale, 0.0), k / np.where(both, scale, np.inf)

    @functools.cached_property
    def logits(self) -> Array:
        """All logits, (n, l), without the mask."""
        return np.asarray(self.x.Q, np.float64) @ np.asarray(self.x.K, np.float64).T

    @functools.cached_property
    def weights(self) -> Array:
        """The rows of softmax under the mask, (n, l)."""
        return exact.softmax(self.x.Q, self.x.K, self.x.mask)

    @functools.cached_property
    def matrix(self) -> Array:
        """The rows of softmax without a mask, (n, l)."""
        return self.weights if self.x.mask.is_full else exact.softmax(self.x.Q, self.x.K)

    @functools.cached_property
    def values(self) -> Array | None:
        """The values as float64, over their largest entry: no theory depends on their unit."""
        if self.x.V is None:
            return None
        V = np.asarray(self.x.V, np.float64)
        return V / (np.abs(V).max(initial=0.0) or 1.0)

    def rng(self) -> np.random.Generator:
        """Return a new generator with the case's seed."""
        return np.random.default_rng(self.seed)


class Outcome(NamedTuple):
    """The prediction of one theory for a head, and the measurement.

    Attributes
    ----------
    value : float
        The value of the theory's ``quantity``.
    number, limit : float
        The hypothesis requires number < limit; NaN if it has no such condition.
    met : bool
    predicted, measured : float
        The prediction of the bound, and the measured value; NaN if unknown, inf if it is beyond
        everything that was tried.
    """

    value: float
    number: float
    limit: float
    met: bool
    predicted: float
    measured: float


class Theory(NamedTuple):
    """A bound from the literature: its quantity, statement, hypothesis, and check.

    ``compared`` says what is predicted and measured.
    """

    name: str
    quantity: str
    bound: str
    hypothesis: str
    compared: str
    source: str
    check: Callable[[Case], Outcome]


def _entries(head: Case) -> Outcome:
    most, n = float(np.abs(head.logits).max()), head.x.n
    unit = math.sqrt(math.log(max(n, 2)))
    B = max(float(np.abs(a).max()) for a in (head.q, head.k)) / unit
    predicted = math.inf
    if 0 < most < MOST_DEGREE:
        degree = error_bounds.minimum_degree(
            "chebyshev", most, head.epsilon, "relative", exact=False
        )
        ways = width(head.x.d, degree)
        predicted = float(ways) if ways < 1e308 else math.inf
    s = rank.singular_values(head.matrix)
    measured = rank.measures(s, head.matrix.shape, epsilon=head.epsilon)["epsilon_rank_frobenius"]
    return Outcome(B, B, 1.0, B < 1, predicted, measured)


def _any_basis(head: Case) -> Outcome:
    least = math.sqrt(float(np.abs(head.logits).max()) / math.log(max(head.x.n, 2)))
    return Outcome(least, least, 1.0, least < 1, math.nan, math.nan)


def _temperature(head: Case) -> Outcome:
    dimension = min(int(np.linalg.matrix_rank(a)) for a in (head.q, head.k)) or 1
    limit, root = math.log2(max(head.x.n, 2)), head.x.n ** (1 / dimension)
    return Outcome(2 - 1 / dimension, dimension, limit, dimension < limit, root, math.nan)


def _coreset(head: Case) -> Outcome:
    x, values = head.x, head.values
    K = np.asarray(x.K, np.float64)
    norms = lengths(K - K.mean(axis=0))
    rho = float(lengths(x.Q).max() * norms.max())
    spread = float(1 - norms.min() / norms.max()) if norms.max() > 0 else 0.0
    size = math.exp(rho) if rho < 700 else math.inf
    size *= math.sqrt(x.d) / head.epsilon
    measured = math.nan if values is None else _smallest(head, values)
    return Outcome(rho, spread, 0.01, spread < 0.01, size, measured)


def _smallest(head: Case, values: Array) -> float:
    """Return the least power of two of keys whose coreset reaches the error; inf if none does."""
    Q, K = (np.asarray(a, np.float64) for a in (head.x.Q, head.x.K))
    output = head.matrix @ values
    limit = head.epsilon * float(np.linalg.norm(values, axis=1).max())
    size = 1
    while 2 * size <= len(K):
        estimate = Coreset(rank=size).approximate(Q, K, rng=head.rng())
        if np.linalg.norm(estimate.attend(values) - output, axis=1).max() <= limit:
            return float(size)
        size *= 2
    return math.inf


def _support_basis(head: Case) -> Outcome:
    threshold = math.sqrt(math.log(max(head.x.n, 2)))
    alone, normal = 1.0, 1.0
    worst = 0.0
    for a in (head.q, head.k):
        alone *= float((np.abs(a) <= threshold).all(axis=1).mean())
        deviation = float(np.sqrt(np.square(a).mean()))
        if deviation == 0:
            continue
        normal *= float((1 - 2 * ndtr(-threshold / deviation)) ** head.x.d)
        size = np.sort(np.abs(a).ravel())[::-1] / deviation
        # the share of entries that are at least as large
        share = np.arange(1, len(size) + 1) / len(size)
        worst = max(worst, float((size / np.sqrt(2 * np.log(2 / share))).max()))
    return Outcome(threshold, worst, GAUSSIAN, worst < GAUSSIAN, 1 - normal, 1 - alone)


def _gaussian_logits(head: Case) -> Outcome:
    predicted, measured, distances, deviations = [], [], [], []
    for i in np.flatnonzero(head.x.mask.counts >= BROAD):
        seen = slice(int(head.x.mask.first[i]), int(head.x.mask.stop[i]))
        x = np.sort(head.logits[i, seen])
        count, deviation = len(x), float(x.std())
        mass = np.cumsum(np.sort(head.weights[i, seen])[::-1])
        measured.append((np.searchsorted(mass, 1 - head.epsilon) + 1) / count)
        predicted.append(float(ndtr(-(deviation + ndtri(head.epsilon)))))
        law = ndtr((x - x.mean()) / deviation) if deviation > 0 else np.zeros(count)
        steps = np.arange(count + 1) / count
        off = max(float((steps[1:] - law).max()), float((law - steps[:-1]).max()))
        distances.append(off * math.sqrt(count))
        deviations.append(deviation)
    if not predicted:
        return Outcome(math.nan, math.nan, LILLIEFORS, False, math.nan, math.nan)
    distance = float(np.median(distances))
    return Outcome(
        float(np.median(deviations)), distance, LILLIEFORS, distance < LILLIEFORS,
        float(np.mean(predicted)), float(np.mean(measured)),
    )  # fmt: skip


def _sampling(head: Case) -> Outcome:
    x, k = head.x, head.keys
    squares = np.square(head.weights).sum(axis=1)
    N = x.mask.counts.astype(np.float64)
    broad = k < N
    if not broad.any():
        return Outcome(float(np.median(1 / squares)), math.nan, math.nan, True, 0.0, 0.0)
    N, squares = N[broad], squares[broad]
    variance = (N - k) / (k * (N - 1)) * np.maximum(N * squares - 1, 0)
    total = exact.log_row_sums(x.Q, x.K, mask=x.mask)
    off = []
    for rng in head.rng().spawn(DRAWS):
        support = x.approximate(Sampled(k=k), rng=rng).correction
        assert isinstance(support, Support)
        off.append(support.scaled(total).sum(axis=1)[broad] - 1)
    measured = np.sqrt(np.square(off).mean(axis=0))
    return Outcome(
        float(np.median(1 / squares)), math.nan, math.nan, True,
        float(np.median(np.sqrt(variance))), float(np.median(measured)),
    )  # fmt: skip


def _states(head: Case) -> Outcome:
    P, mask = head.weights, head.x.mask
    least = state_rank.least_states(P, head.epsilon, mask=mask)
    bound = state_rank.lower_bound(P, head.keys, mask=mask)
    method = Positive(m=head.keys, projection="orthogonal")
    estimate = head.x.approximate(method, rng=head.rng())
    found = head.x.compare(estimate)["attention_relative_frobenius"]
    return Outcome(float(least), math.nan, math.nan, True, bound, found)


def _rank(head: Case) -> Outcome:
    P, mask = head.weights, head.x.mask
    U, s, right = scipy.linalg.svd(P, full_matrices=False, check_finite=False)
    norm, r = float(np.linalg.norm(P)), head.keys
    rest = (U[:, r:] * s[r:]) @ right[r:]  # the residual of the best matrix of that rank
    mask.hide(rest)
    value = rank.measures(s, P.shape)["effective_rank"]
    predicted = float(np.linalg.norm(s[r:]) / norm)
    measured = float(np.linalg.norm(rest) / norm)
    unseen = 1 - mask.entries / P.size
    return Outcome(value, unseen, math.nan, mask.is_full, predicted, measured)


def _columns(head: Case) -> Outcome:
    P, V = head.weights, head.values
    s = rank.singular_values(P)
    stable = float(np.square(s / s[0]).sum())
    if V is None or not V.any():
        return Outcome(stable, math.nan, math.nan, True, math.nan, math.nan)
    of_values = rank.singular_values(V)
    norms = np.linalg.norm(P, axis=0) * np.linalg.norm(V, axis=1)
    shares, rng, off = norms / norms.sum(), head.rng(), []
    for _ in range(DRAWS):
        drawn = rng.choice(len(shares), head.keys, p=shares)
        product = (P[:, drawn] / (head.keys * shares[drawn])) @ V[drawn]
        off.append(np.linalg.norm(product - P @ V, 2))
    size = s[0] * of_values[0]
    predicted = math.sqrt(
        stable * float(np.square(of_values).sum()) / of_values[0] ** 2 / head.keys
    )
    measured = math.sqrt(float(np.mean(np.square(off)))) / size
    return Outcome(stable, math.nan, math.nan, True, predicted, measured)


def _degree(head: Case) -> Outcome:
    spread = np.where(head.x.mask.visible(), head.logits, np.nan)
    B = float((np.nanmax(spread, axis=1) - np.nanmin(spread, axis=1)).max())
    # e^−x on [0, B] is e^(−B/2) Σ' 2 I_k(B/2) T_k, and the error of a truncation is largest at 0
    enough = range(2**40 if B > 0 else 0)  # B < 2^54, and the degree is about √(B log(1/ε))
    measured = bisect_left(enough, True, key=lambda n: log_tail(n, B / 2) <= math.log(head.epsilon))
    return Outcome(B, B, math.inf, B >= 1, degree_order(B, head.epsilon), float(measured))


def degree_order(B: float, epsilon: float) -> float:
    """Return max(√(B L), L/log(L/B)), L = log 1/ε: the order of the degree for e^(−x) on [0, B].

    Status: an order of size with unknown constant. The second term uses log ≥ 1.

    References
    ----------
    .. [1] A. Aggarwal, J. Alman, "Optimal-degree polynomial approximations for exponentials and
       Gaussian kernel density estimation", CCC 2022, arXiv 2205.06249 (abstract).
    """
    digits = math.log(1 / epsilon)
    few = digits / math.log(max(digits / B, math.e)) if B > 0 else 0.0
    return max(math.sqrt(B * digits), few)


def _space(head: Case) -> Outcome:
    x = head.x
    r = float(lengths(x.Q).max() * lengths(x.K).max())
    most = x.d * math.exp(2 * r) if r < 350 else math.inf
    states = state_rank.least_states(head.weights, head.epsilon, mask=x.mask)
    limit = math.sqrt(x.d)
    return Outcome(r, r, limit, r <= limit, min(head.epsilon**-2, most), states * (x.shape.c + 1.0))


def gap_scale(logits: Array) -> tuple[float, float, int]:
    """Return β = max_Δ log N(Δ)/Δ of the logits of a row, the maximising Δ, and N(Δ).

    N(Δ) is the number of keys whose logit is within Δ of the largest. β is inf if two logits are
    the largest, and 0 if there is only one key.

    Notes
    -----
    At inverse temperature b the sum over keys of e^{−bΔ} is b∫e^{−bΔ}N(Δ)dΔ. Because N(Δ) ≤ e^{βΔ},
    the largest weight is at least 1 − β/b for b > β. Because N(Δ) = e^{βΔ} at some Δ, the largest
    weight is at most e^{bΔ}/N(Δ) = e^{−(β − b)Δ} for b < β.

    Examples
    --------
    >>> beta, gap, count = gap_scale(np.array([3.0, 1.0, 1.0]))
    >>> round(beta, 6), gap, count  # log(3)/2
    (0.549306, 2.0, 3)
    """
    gaps = np.sort(logits.max() - logits)[1:]
    if not len(gaps):
        return 0.0, 0.0, 1
    with np.errstate(divide="ignore", over="ignore"):
        scales = np.log(np.arange(2, len(gaps) + 2)) / gaps
    best = int(np.argmax(scales))
    return float(scales[best]), float(gaps[best]), best + 2


def _critical(head: Case) -> Outcome:
    mask, found = head.x.mask, []
    for i in np.flatnonzero(mask.counts > 1):
        seen = slice(int(mask.first[i]), int(mask.stop[i]))
        beta, gap, count = gap_scale(head.logits[i, seen])
        above = math.exp(min(gap - math.log(count), 0.0))
        found.append((beta, above, float(head.weights[i].max())))
    if not found:
        return Outcome(math.nan, math.nan, 1.0, False, math.nan, math.nan)
    beta, above, largest = (float(np.median(x)) for x in zip(*found, strict=True))
    return Outcome(beta, beta, 1.0, beta < 1, above, largest)


def _discrepancy(head: Case) -> Outcome:
    x, V = head.x, head.values
    if V is None or not V.any() or x.l < 2:
        return Outcome(math.nan, math.nan, 1.0, False, math.nan, math.nan)
    q, k = np.asarray(x.Q, np.float64), np.asarray(x.K, np.float64)
    k = k - k.mean(axis=0)
    longest = float(np.linalg.norm(V, axis=1).max())
    total = exact.log_row_sums(q, k)
    reach = lengths(q) * lengths(k).max()
    with np.errstate(over="ignore"):
        predicted = math.log(x.l / head.epsilon) * np.exp(reach - total)
    off, rng = [], head.rng()
    for _ in range(DRAWS):
        sign = np.full(x.l, -1.0)
        sign[thinned(k, x.l // 2, rng)] = 1.0
        off.append(np.linalg.norm((head.matrix * sign) @ V, axis=1) / longest)
    bound = float(np.median(predicted))
    return Outcome(float(np.median(reach)), bound, 1.0, bound < 1, bound, float(np.median(off)))


# Of the papers of arXiv, but 2302.02451 and 2512.07647, the abstract was read.
THEORIES: tuple[Theory, ...] = (
    Theory(
        Sentence("bounded entries"),
        Sentence("B/√log n, B the largest entry of Q and K where logits are q·k/d"),
        Sentence(
            "n^(1 + o(1)) operations for B = o(√log n); for B = Θ(√log n) not n^(2 − Ω(1)), if "
            "SETH holds, both to within 1/poly(n) and for d = O(log n)"
        ),
        Sentence("B < √log n, as if the constant were 1"),
        Sentence(
            "the rank of a polynomial of q·k within ε of every exp(q·k), and the least rank within "
            "ε of attention without a mask in Frobenius norm"
        ),
        "J. Alman, Z. Song, NeurIPS 2023, arXiv 2302.13214",
        _entries,
    ),
    Theory(
        Sentence("in any basis"),
        Sentence("√(largest |logit| / log n)"),
        Sentence("B/√log n is not below it, whatever matrix maps queries and its inverse keys"),
        Sentence("B < √log n, for the best such matrix"),
        Sentence("nothing"),
        "|q·k|/d ≤ B²",
        _any_basis,
    ),
    Theory(
        Sentence("any temperature"),
        Sentence("2 − 1/r, r the rank of Q and K"),
        Sentence("Õ(n^(2 − 1/r)·polylog B) operations for r = O(1), at any temperature"),
        Sentence("r < log₂ n, so that n^(1/r), by which n² is divided, is above 2"),
        Sentence("n^(1/r), without logarithms; nothing is measured"),
        "S. Gupta et al., ICLR 2026, arXiv 2505.14840",
        _temperature,
    ),
    Theory(
        Sentence("coreset"),
        Sentence("ρ = max |q|·max |k − mean of k|"),
        Sentence(
            "O(√d e^(ρ + o(ρ))/ε) of the keys have outputs within ε for all |q| ≤ ρ, and some sets "
            "of keys need Ω(√d e^ρ/ε)"
        ),
        Sentence("keys and values of norm 1: here 1 − least/largest norm of the centred keys"),
        Sentence(
            "√d e^ρ/ε, without its constant, and the least power of two of keys with which "
            "`coreset` has every output within ε of the largest |v|, without a mask"
        ),
        "E. Liberty, A. Andoni, E. Kleiner, 2026, arXiv 2605.05602",
        _coreset,
    ),
    Theory(
        Sentence("support basis"),
        Sentence("√log n, above which an entry is large"),
        Sentence(
            "large entries are taken exactly, the others by a polynomial, below n² operations"
        ),
        Sentence(
            "entries as rare as normal ones, 2·exp(−t²/2): here the largest t/√(2 log(2/share)), t "
            "in deviations"
        ),
        Sentence(
            "the share of pairs of a query and a key of which one has a large entry, if entries "
            "were normal, and as it is"
        ),
        "M. Aliakbarpour et al., AISTATS 2026, arXiv 2510.01643",
        _support_basis,
    ),
    Theory(
        Sentence("normal logits"),
        Sentence("σ, the median deviation of the logits of a row"),
        Sentence("the k largest have tv = ε for k/n = Φ(−(σ + Φ⁻¹(ε))), where n is large"),
        Sentence("the logits of a row are normal: here the median of D√n (Lilliefors, 1 %)"),
        Sentence("the share of keys that the largest have to be for tv ≤ ε, mean over rows"),
        "arXiv 2512.07647",  # the law follows from ∫ exp(σz) φ(z) dz
        _gaussian_logits,
    ),
    Theory(
        Sentence("sampling"),
        Sentence("N_eff = 1/Σp², the median over rows that see more than k keys"),
        Sentence("k of N keys, weighted by N/k: Var = (N − k)/(k(N − 1))·(N/N_eff − 1) of the sum"),
        Sentence("all sets of k keys alike"),
        Sentence("the root mean squared error of the row sum, and that of 16 draws; medians"),
        "W. G. Cochran, Sampling Techniques, 1977, section 2.5",  # from memory
        _sampling,
    ),
    Theory(
        Sentence("states"),
        Sentence("states of a recurrence within ε, at least"),
        Sentence("no linear attention and no state-space model of that size is nearer"),
        Sentence("none: of the mask it takes what it needs"),
        Sentence(
            "the least Frobenius error of k states, and that of orthogonal positive features, k of "
            "them"
        ),
        "`analysis.ranks.state_rank.lower_bound`",
        _states,
    ),
    Theory(
        Sentence("rank"),
        Sentence("effective rank of attention"),
        Sentence("no matrix of rank k is nearer in Frobenius norm than √Σ s² of the rest"),
        Sentence("no mask: here the share of pairs that are not seen, which are free"),
        Sentence(
            "that error at rank k, and the error of the best matrix of rank k where it is seen"
        ),
        "C. Eckart, G. Young, Psychometrika 1, 1936",
        _rank,
    ),
    Theory(
        Sentence("columns"),
        Sentence("stable rank of attention, |P|²_F/|P|²₂"),
        Sentence("k columns, drawn by |p_j||v_j|: error of P V ≤ √(srank(P)·srank(V)/k)·|P|₂|V|₂"),
        Sentence("all columns and values are known"),
        Sentence("that bound over |P|₂|V|₂, and the root mean squared spectral error of 16 draws"),
        "A. Zandieh et al., ICML 2023, arXiv 2302.02451",  # and claim KDE-1, with |X|₂ ≤ |X|_F
        _columns,
    ),
    Theory(
        Sentence("degree"),
        Sentence("B, the widest range of the logits that a row sees"),
        Sentence(
            "a polynomial within ε of e^(−x) on [0, B] has a degree Θ(max(√(B log 1/ε), "
            "log(1/ε)/log(B⁻¹ log 1/ε)))"
        ),
        Sentence("B ≥ 1"),
        Sentence("that order with constant 1, and the degree at which a Chebyshev series is there"),
        "A. Aggarwal, J. Alman, CCC 2022, arXiv 2205.06249",
        _degree,
    ),
    Theory(
        Sentence("streaming space"),
        Sentence("r, max |q|·max |k|"),
        Sentence("Ω(min(1/ε², d e^(2r))) bits for outputs within ε, read once, on some inputs"),
        Sentence("r ≤ √d"),
        Sentence(
            "that order with constant 1, and the numbers of the least recurrence within ε, which "
            "the bound is not about"
        ),
        "E. Kochetkova et al., NeurIPS 2025, arXiv 2502.07861; arXiv 2606.07205",  # from memory
        _space,
    ),
    Theory(
        Sentence("critical temperature"),
        Sentence("β, the median over rows of max log N(Δ)/Δ, N(Δ) keys within Δ of the largest"),
        Sentence(
            "at an inverse temperature b > β the largest weight is at least 1 − β/b, at b < β at "
            "most e^(−(β − b)Δ)"
        ),
        Sentence("β < 1, so that attention is concentrated as it is"),
        Sentence("the upper bound at b = 1, and the largest weight; medians"),
        "R. Karakida, T. Hayase, arXiv 2605.12697",  # both bounds from ∫ b e^(−bΔ) N(Δ) dΔ
        _critical,
    ),
    Theory(
        Sentence("discrepancy"),
        Sentence("|q|·max |k − mean of k|, the median over queries"),
        Sentence(
            "half of the keys, balanced, leave O(log(n/ε))·e^(|q||k|)·max |v| of the sum of "
            "e^(q·k) v"
        ),
        Sentence("the bound is below max |v| times the row sum, else it says nothing"),
        Sentence(
            "that, with constant 1, over the row sum and max |v|, and what a halving by the kernel "
            "leaves of it; medians"
        ),
        "BalanceKV, arXiv 2502.07861; R. Alweiss, Y. Liu, M. Sawhney, STOC 2021",  # from memory
        _discrepancy,
    ),
)


def predictions(
    inputs: Head | Heads, *, epsilon: float = 0.1, keys: int = 32, seed: int = 0
) -> pd.DataFrame:
    """Return the prediction of each theory for each head, and the measured value.

    Parameters
    ----------
    inputs : Head or Heads
        One or more heads, at their temperature.
    epsilon : float
        The target error, 0 < ε < 1.
    keys : int
        k, the number of keys, columns, features or states in the bounds that have one.
    seed : int
        The seed of all draws.

    Returns
    -------
    DataFrame
        A row per head and theory:

        - ``input``, ``layer``, ``head``, ``n``, ``l``, ``d``, ``mask``, ``theory``
        - ``value``: the value of ``quantity``
        - ``bound``, ``hypothesis``: its statement, and its condition ``number`` < ``limit`` (NaN if
          there is no such condition); ``met`` says whether the hypothesis holds
        - ``predicted``, ``measured``: the two values of the quantity that ``compared`` names
        - ``source``, ``epsilon``, ``keys``

    Raises
    ------
    ResourceLimitError
        Dense matrices of n × l numbers would not fit.

    Notes
    -----
    ``met`` is about this head at this size. One head cannot meet a hypothesis about growing n or
    with an unknown constant; the limit is then the condition with constant 1.

    Entries are those of q, k with logits q·k/d, as Alman and Song scale them, not q·k/√d: B is
    d^(1/4) times as large as an entry of the raw queries and keys. Among all scales of the channels
    that leave the logits unchanged, the code takes the one with the least B.

    Cost: O(n·l·min(n, l)) per head for decompositions, and several n × l matrices in memory.

    Examples
    --------
    >>> from analysis.inputs import gaussian
    >>> found = predictions(gaussian(64, 8, rng=0), keys=8)
    >>> found.set_index("theory").met["rank"], len(found)
    (np.True_, 14)
    """
    checks.instance("inputs", inputs, Head | Heads, "a Head or Heads")
    inputs.require_no_sinks("theory")
    if not (error := checks.positive("epsilon", epsilon)) < 1:
        raise ValueError(f"epsilon must be below 1, got {epsilon!r}")
    count = checks.integer("keys", keys, least=1)
    checks.integer("seed", seed, least=0)
    rows = []
    for x in inputs.heads():
        memory.reserve(10 * 8 * x.n * x.l, "dense matrices of a head", "n or l")
        if count > min(x.n, x.l):
            raise ValueError(f"keys must be at most {min(x.n, x.l)}, those of {x.name}, got {keys}")
        head = Case(x, error, count, seed)
        place = {
            "input": x.name, "layer": x.layer, "head": x.head, "n": x.n, "l": x.l, "d": x.d,
            "mask": str(x.mask),
        }  # fmt: skip
        for theory in THEORIES:
            said = theory._asdict()
            check = said.pop("check")
            rows.append(
                place | {"theory": said.pop("name")} | check(head)._asdict() | said
                | {"epsilon": error, "keys": count}
            )  # fmt: skip
    return pd.DataFrame(rows)
