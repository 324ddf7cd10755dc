"""A-priori errors of polynomials of exp, and the rank that they guarantee.

Let |q·k| ≤ B. A polynomial of degree n whose largest error on [−B, B] is ε has C(d + n, n)
monomials, for any number of queries and keys. So a matrix of this rank is within ε of exp(Q Kᵀ) in
each entry.

The norm ``"relative"`` is max |p(x) − e^x|/e^x, and ``"scaled"`` is max |p(x) − e^x|/e^B. The
relative norm needs a degree of order B, the scaled norm a degree of order √B.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaln, hyp1f1

from approx import checks
from approx.polynomials.chebyshev import left_out, log_bessel, log_tail
from approx.polynomials.extrema import peaks
from approx.polynomials.monomials import width
from approx.polynomials.powers import log1p_less
from approx.polynomials.remez import remez
from approx.polynomials.richardson import WEIGHTS

NORMS = ("relative", "scaled")
MOST_PEAKS = 2**14  # the largest degree whose peaks the grid of `_largest` separates
MOST_FINITE = 1e4  # above this B, Chebyshev polynomials of these degrees are off by 10³⁶⁰⁰ e^x
MOST_DEGREE = 2**53  # above this, n + 1 is not a float
Error = Callable[[int, float, str], float]


def _exp(log: float) -> float:
    return math.exp(log) if log < 709 else math.inf


# Bounds: inequalities in n and B alone.


def lagrange(n: int, B: float, norm: str) -> float:
    """Return a bound on the error of the Taylor polynomial of degree n.

    For x ≥ 0, e^x − T_n ≤ x^{n+1}/(n+1)!·e^x; for x < 0 the series alternates, and
    |e^x − T_n| ≤ |x|^{n+1}/(n+1)!. So the bound is B^{n+1}/(n+1)! in the scaled norm, and e^B times
    that in the relative norm.

    Accuracy: 40 eps·κ, as docs/accuracy.md defines it.
    """
    log = (n + 1) * math.log(B) - float(gammaln(n + 2.0))
    return _exp(log + (B if norm == "relative" else 0.0))


def power(n: int, B: float, norm: str) -> float:
    """Bound the error of (1 + x/n)^n, by e^x (1 − x²/n) ≤ (1 + x/n)^n ≤ e^x for |x| ≤ n."""
    return B * B / n if n >= B else math.inf


def peano(n: int, B: float, norm: str, points: int = 2) -> float:
    """Return a bound on the error of Richardson's extrapolation of (1 + x/n)^n; inf for B ≥ n.

    With h = 1/n, e^{−x} p_n(x) = r(h) is smooth. The extrapolated error is the integral of a Peano
    kernel of one sign, h²/4 or h³/48, times a derivative r″ or r‴, with 0 ≤ r ≤ 1 and
    (log r)^{(k)} ≤ k!/(k+1)·|x|^{k+1} q^{k+1}, q = 1/(1 − B/n). The bound holds in the relative
    norm, and therefore also in the scaled norm.
    """
    if n <= B:
        return math.inf
    q = 1 / (1 - B / n)
    first, second, third = (B * q) ** 2 / 2, 2 * (B * q) ** 3 / 3, 3 * (B * q) ** 4 / 2
    if points == 2:
        return float((second + first**2) / (4 * n**2))
    return float((third + 3 * first * second + first**3) / (48 * n**3))


def bessel_tail(n: int, B: float, norm: str) -> float:
    """Return a bound on the error of the Chebyshev truncation: 2 Σ_{k>n} I_k(B), reached at x = B.

    In the scaled norm this is the error itself; in the relative norm it is at most e^{2B} times it.

    Accuracy: 20 eps·κ, as docs/accuracy.md defines it.
    """
    return _exp(log_tail(n, B) + (2 * B if norm == "relative" else 0.0))


def aliasing(n: int, B: float, norm: str) -> float:
    """Return a bound on the error of the interpolant at Chebyshev points: twice the Bessel tail."""
    return 2 * bessel_tail(n, B, norm)


def level(n: int, B: float, norm: str) -> float:
    """Return the error of the minimax polynomial in the same norm, by Chebyshev's theorem."""
    return remez(n, B, "relative" if norm == "relative" else "absolute").level


# Errors: the exact largest errors.


def taylor_error(n: int, B: float, norm: str) -> float:
    """Return the largest error of the Taylor polynomial of degree n, in closed form.

    T_n e^{−x} = Γ(n+1, x)/n! has the derivative −x^n e^{−x}/n!. So the relative error is largest at
    −B: ∫_0^B v^n e^v dv/n! = B^{n+1}/(n+1)!·e^B M(1, n+2, −B), by Kummer's transformation, with
    0 < M ≤ 1. The scaled error is largest at B, where all terms have one sign: P(n+1, B).

    Accuracy: 40 eps·κ, as docs/accuracy.md defines it.
    """
    if norm == "scaled":
        return float(gammainc(n + 1, B))
    log = (n + 1) * math.log(B) - float(gammaln(n + 2.0))
    return _exp(log + B + math.log(float(hyp1f1(1.0, n + 2.0, -B))))


def power_error(n: int, B: float, norm: str) -> float:
    """Return the largest error of (1 + x/n)^n, in closed form.

    n log|1 + x/n| − x falls on both sides of 0, to −∞ at −n, and rises below −n. So the relative
    error is largest at −B, and at least 1 if B ≥ n. The scaled error is largest at B, since
    0 ≤ a_j ≤ 1/j!.

    Accuracy: 4 eps·κ, as docs/accuracy.md defines it.
    """
    at_top = -math.expm1(n * float(log1p_less(B / n)))
    if norm == "scaled":
        return at_top
    if n > B:
        return max(at_top, -math.expm1(n * float(log1p_less(-B / n))))
    log = n * math.log(B / n - 1) + B if n < B else -math.inf
    below = _exp(log) if n % 2 == 0 else -_exp(log)
    return max(1.0, at_top, abs(below - 1))


def richardson_error(n: int, B: float, norm: str, points: int = 2) -> float:
    """Return the largest error of the extrapolated powers, by critical points.

    The accuracy is 10⁻⁶ relative or, since the powers are float64, 10⁻¹⁵ absolute.
    """

    def relative(x: np.ndarray) -> np.ndarray:
        signs, logs, near = [-np.ones_like(x)], [np.zeros_like(x)], np.zeros_like(x)
        for i, w in enumerate(WEIGHTS[points]):
            m = n * 2**i
            base = 1 + x / m
            less = log1p_less(np.maximum(x / m, -0.9))
            with np.errstate(divide="ignore", invalid="ignore"):
                log = np.where(np.abs(x) < m / 2, m * less, m * np.log(np.abs(base)) - x)
                near += w * np.expm1(m * less)  # weights sum to 1, which is subtracted
            signs.append(w * np.where(base < 0, (-1) ** m, 1))
            logs.append(log)
        top = np.max(logs, axis=0)  # subtracted, because inf − inf would be NaN
        total = np.abs(np.sum(signs * np.exp(logs - top), axis=0))
        total, top = (
            np.where(np.abs(x) < n / 2, y, z) for y, z in ((np.abs(near), total), (0, top))
        )
        with np.errstate(over="ignore", divide="ignore"):
            return np.asarray(np.exp(np.log(total) + top + (x - B if norm == "scaled" else 0.0)))

    return _largest(relative, B, n * 2 ** (points - 1))


def truncation_error(n: int, B: float, norm: str) -> float:
    """Return the largest error of the Chebyshev truncation, to 10⁻⁶ relative.

    Accuracy: 8 eps·κ in the scaled norm, as docs/accuracy.md defines it.
    """
    most = bessel_tail(n, B, norm)
    if norm == "scaled" or most == 0:
        return most
    checks.integer("n", n, least=0, most=MOST_PEAKS)
    if B > MOST_FINITE:
        return math.inf
    k = left_out(n, B)
    log = log_bessel(k, B)
    return _series_error(2 * np.exp(log - log[0]), n + 1, float(log[0]), n, B)


def interpolation_error(n: int, B: float, norm: str) -> float:
    """Return the largest error of the interpolant at Chebyshev points, to 10⁻⁶ relative.

    At the zeros of T_N, N = n + 1, an omitted T_k, k = 2jN ± r with r ≤ N, equals (−1)^j T_r, and
    T_N = 0. Since I_k falls with k, no coefficient of the error is negative, and the scaled error
    is largest at x = B. If too many coefficients count, it is computed as 1 − p(B) e^−B there.
    """
    if aliasing(n, B, norm) == 0:
        return 0.0
    N = checks.integer("n", n, least=0, most=MOST_PEAKS) + 1
    if norm == "relative" and B > MOST_FINITE:
        return math.inf
    if B > 1e8:  # cardinal polynomials at 1: (−1)^i cot(θ_i/2)/N
        half = np.pi * (np.arange(N) + 0.5) / (2 * N)
        at_nodes = np.exp(-2 * B * np.sin(half) ** 2) / np.tan(half)
        return float(1 - (at_nodes[::2].sum() - at_nodes[1::2].sum()) / N)
    k = left_out(n, B)
    j = (k + N) // (2 * N)
    r = np.abs(k - 2 * j * N)
    log = log_bessel(k, B)
    c = np.zeros(k[-1] + 1)
    c[k] = 2 * np.exp(log - log[0])
    np.subtract.at(c, r, np.where(r < N, (-1.0) ** j, 0) * c[k])
    if norm == "scaled":
        return float(np.exp(log[0]) * c.sum())
    first = int(np.flatnonzero(c)[0])
    return _series_error(c[first:], first, float(log[0]), n, B)


def _series_error(c: np.ndarray, first: int, log: float, n: int, B: float) -> float:
    """Return the largest e^{B + log − x} |Σ c_j T_{first + j}(x/B)|, c ≥ 0.

    Clenshaw's recurrence runs from the last term down to the first, so nothing cancels against e^x.
    The error is at most e^{B + log − x} Σ c_j. An x where that is below the error at −B is skipped.
    """

    def error(x: np.ndarray) -> np.ndarray:
        t = np.clip(x / B, -1.0, 1.0)
        b, above = np.zeros_like(t), np.zeros_like(t)
        for a in c[::-1]:
            b, above = a + 2 * t * b - above, b
        angle = np.arccos(t)
        rest = np.abs(b * np.cos(first * angle) - above * np.cos((first - 1) * angle))
        with np.errstate(over="ignore", divide="ignore"):
            return np.asarray(np.exp(np.log(rest) + log + B - x))

    at_end = float(error(np.array([-B]))[0])
    if at_end == math.inf:
        return at_end
    with np.errstate(divide="ignore"):  # with an error of 0 at −B, no x is skipped
        return _largest(error, B, n, float(log + B + np.log(c.sum()) - np.log(at_end)))


def _largest(
    error: Callable[[np.ndarray], np.ndarray], B: float, degree: int, end: float = math.inf
) -> float:
    """Return the largest error on [−B, min(B, end)], by a grid whose local peaks are refined."""
    x = B * np.cos(np.linspace(np.pi, 0, 16 * (min(degree, 4096) + 2)))
    x = x[: np.searchsorted(x, end) + 2]
    values = error(x)
    inside = np.flatnonzero((values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:])) + 1
    best = float(max(values[0], values[-1]))
    if len(inside):
        best = max(best, float(peaks(error, x[inside - 1], x[inside + 1], 40)[1].max()))
    return best


BOUNDS: dict[str, Error] = {
    "taylor": lagrange,
    "tensor_power": power,
    "richardson": peano,
    "richardson3": functools.partial(peano, points=3),
    "chebyshev": bessel_tail,
    "interpolation": aliasing,
    "minimax": level,
}
ERRORS: dict[str, Error] = {
    "taylor": taylor_error,
    "tensor_power": power_error,
    "richardson": richardson_error,
    "richardson3": functools.partial(richardson_error, points=3),
    "chebyshev": truncation_error,
    "interpolation": interpolation_error,
    "minimax": level,
}
LEAST_DEGREE = {"tensor_power": 1, "richardson": 1, "richardson3": 1}  # else 0
RAISED = {"richardson": 2, "richardson3": 4}  # degree/n


def error_bound(method: str, n: int, bound: float, norm: str = "relative") -> float:
    """Return a bound on the largest error on [−B, B], from n and B alone.

    Parameters
    ----------
    method : str
        A key of ``BOUNDS``: "taylor", "tensor_power", "richardson" (2 points), "richardson3",
        "chebyshev" (truncation), "interpolation", "minimax" (with the weight of the norm).
    n : int
        The degree, or the smallest power of Richardson's extrapolation; at most 2⁵³.
    bound : float
        B > 0, at most 4.5e15; above, logits have no correct digit left.
    norm : {"relative", "scaled"}

    Notes
    -----
    There is no bound for `least_squares` in these norms. Its root mean square error over the logits
    of the fit is at most the error of ``minimax``.

    Examples
    --------
    >>> round(error_bound("taylor", 9, 4.0) * math.exp(-4), 3)
    0.289
    """
    return _checked(BOUNDS, method, n, bound, norm)


def sup_error(method: str, n: int, bound: float, norm: str = "relative") -> float:
    """Return the exact largest error on [−B, B], in closed form or by critical points.

    The parameters are as for `error_bound`. The error is for exact coefficients;
    `Polynomial.sup_errors` has the error of the stored coefficients. For "interpolation", and for
    "chebyshev" in the relative norm, n is at most 2¹⁴, unless the error is below 10⁻³⁰⁸; then the
    result is 0 at any n.

    Examples
    --------
    >>> sup_error("taylor", 1, 1.0, "scaled")  # (e − 2)/e
    0.264241...
    """
    return _checked(ERRORS, method, n, bound, norm)


def _checked(table: dict[str, Error], method: str, n: int, bound: float, norm: str) -> float:
    checks.one_of("method", method, tuple(table))
    checks.one_of("norm", norm, NORMS)
    degree = checks.integer("n", n, least=LEAST_DEGREE.get(method, 0), most=MOST_DEGREE)
    return table[method](degree, checks.positive("bound", bound, most=checks.MOST_LOGIT), norm)


def minimum_degree(
    method: str, bound: float, epsilon: float, norm: str = "relative", *, exact: bool = True
) -> int:
    """Return the smallest n ≥ 1 whose largest error on [−B, B] is at most ε.

    Parameters
    ----------
    method, bound, norm
        As for `error_bound`.
    epsilon : float
        > 0.
    exact : bool
        Whether to use the errors of `sup_error` instead of the bounds of `error_bound`.

    Notes
    -----
    n is found by doubling and bisection, since errors fall with n once they are below 1.
    Cost: about 2 log n errors; up to 3 s for minimax at B = 16.

    Examples
    --------
    >>> minimum_degree("taylor", 8.0, 1e-2), minimum_degree("minimax", 8.0, 1e-2)
    (30, 12)
    """
    checks.positive("epsilon", epsilon)
    error = sup_error if checks.flag("exact", exact) else error_bound
    low, high = 0, 1
    while error(method, high, bound, norm) > epsilon:
        low, high = high, 2 * high
        if high > 2**40:
            raise ValueError(
                f"no degree up to 2^40 gives {epsilon} on [−{bound:g}, {bound:g}]: "
                "raise epsilon or lower bound"
            )
    while high - low > 1:
        middle = (low + high) // 2
        if error(method, middle, bound, norm) > epsilon:
            low = middle
        else:
            high = middle
    return high


def epsilon_rank_bound(
    method: str, logits: ArrayLike, d: int, epsilon: float, *, largest: float
) -> int:
    """Return a bound on #{s_i > ε s₁} for exp(logits), from its shape, B and s₁ alone.

    |A − p| ≤ δ e^B in every entry gives ‖A − p‖₂ ≤ δ e^B √(nl), and s_{r+1} ≤ ‖A − p‖₂ for
    r = C(d + n, n) by Weyl's inequality: δ = ε s₁/(e^B √(nl)). The bound is at most min(n, l).

    Parameters
    ----------
    logits : (n, l)
    largest : float
        s₁ e^{−B}, the largest singular value of the kernel over e^B.
    """
    checks.one_of("method", method, tuple(ERRORS))
    x = checks.array("logits", logits, ndim=2)
    if not x.size:
        raise ValueError(f"logits must not be empty, got shape {x.shape}")
    d = checks.integer("d", d, least=1)
    B = max(float(np.abs(x).max()), 2.0**-20)
    epsilon = checks.positive("epsilon", epsilon)
    delta = epsilon * checks.positive("largest", largest) / math.sqrt(x.size)
    most = int(min(x.shape))
    n = LEAST_DEGREE.get(method, 0)
    while (rank := width(d, n * RAISED.get(method, 1))) < most:
        if sup_error(method, n, B, "scaled") <= delta:
            return rank
        n += 1
    return most
