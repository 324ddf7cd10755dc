"""The exchange algorithm of Remez for exp, in float64 if that is enough, else in decimals."""

import functools
import math
from decimal import Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np
import scipy

from approx import checks
from approx.checks import Array
from approx.estimate import memory
from approx.polynomials.extrema import peaks
from approx.polynomials.polynomial import Polynomial

FLOAT64 = 15  # digits of float64
LEVELLED = 1e-6  # the largest accepted spread of the peaks, relative to the level
MOST_DIGITS = 500
MOST_WORK = 2**18  # (degree + 2)²·digits, of 9 to 28 µs each: at most about 7 s
NOISE = 1e-6  # the largest rounding, relative to the level, at which float64 is trusted
OFF = 4e-6  # the largest relative error of a level: LEVELLED, and about three times NOISE
EPS = float(np.finfo(float).eps)


class BestPolynomial(NamedTuple):
    """The best approximation of exp on [−B, B] by a polynomial.

    Attributes
    ----------
    polynomial : Polynomial
    level : float
        Its largest error: the relative error, or for the absolute weight the error over e^B. It is
        right to 4·10⁻⁶, relative: the least possible error is between the least and the largest
        peak, and float64 knows a peak to a few eps/level, times e^{2B} for the relative weight.
    reference : (n + 2,)
        Points where the error is ± the level, with alternating signs. By Chebyshev's theorem they
        prove that no other polynomial is better.
    spread : float
        (largest − least peak)/largest, ≤ 10⁻⁶.
    digits : int
        Decimal digits of the computation, 15 for float64.
    """

    polynomial: Polynomial
    level: float
    reference: Array
    spread: float
    digits: int


def remez(degree: int, bound: float, weight: str = "relative") -> BestPolynomial:
    """Return the polynomial p of a degree whose largest error on [−B, B] is least.

    Accuracy: 1e+10 eps·κ of the level, as docs/accuracy.md defines it; for degree 0 it is 8 eps·κ.

    Parameters
    ----------
    degree : int
        n ≥ 0.
    bound : float
        B > 0.
    weight : {"relative", "absolute"}
        The error is |p(x) − e^x|/e^x, or |p(x) − e^x|.

    Notes
    -----
    Each step levels the errors of p on a reference of n + 2 points, then moves each point to the
    peak of the error between the neighbouring zeros. The error has at most n + 1 zeros and n
    critical points (p′ − p is a polynomial of degree n; a derivative of p − e^x has no zero). So
    there is one peak between neighbouring zeros, and both ends of the interval always belong to the
    reference.
    With the relative weight float64 loses a factor e^{2B}, so it is used up to about B = 8. Above,
    and for levels near its rounding, the same steps are done in as many digits as they need. If the
    relative level is already 1 to 10⁻⁸ on [−B, −B + 50 + 6n], the polynomial of this interval is
    taken. Beyond it, p e^{−x} has no critical point and falls to 0, so the error stays below 1.
    Cost: O(n²) per step, about 5 to 10 steps; 5 ms in float64, 0.5 s in decimals at B = 16, n = 21.

    Raises
    ------
    ArithmeticError
        The peaks did not level. Or the polynomial needs more than 500 digits, or its degree and
        digits would take ten seconds or more; this is raised before the work begins.
    ResourceLimitError
        The matrix of differences would not fit into memory.

    References
    ----------
    .. [1] E. Remez, "Sur la détermination des polynomes d'approximation de degré donnée", 1934.
    .. [2] R. Pachón, L. N. Trefethen, "Barycentric-Remez algorithms for best polynomial
       approximation in the chebfun system", BIT 49, 2009, section 2.
    """
    return _remez(
        checks.integer("degree", degree, least=0),
        checks.positive("bound", bound, most=checks.MOST_LOGIT),
        checks.one_of("weight", weight, ("relative", "absolute")),
    )


@functools.lru_cache(maxsize=1024)
def _remez(degree: int, bound: float, weight: str) -> BestPolynomial:
    memory.reserve(32 * (degree + 2) ** 2, "the exchange algorithm", "degree")
    short = 25.0 + 3 * degree
    if weight == "relative" and bound > short:
        try:
            near = _remez(degree, short, weight)
        except ArithmeticError as error:
            whole = f"that on [−{bound:g}, {bound:g}] is made of it"
            raise ArithmeticError(f"{error}; {whole}") from None
        if near.level > 1 - 1e-8:
            return _extended(near, bound)
    # e^x spans a factor e^{2B}; the level is near (B/2)^{n+1}/(n+1)!
    span = 2 * bound if weight == "relative" else bound
    depth = float(scipy.special.gammaln(degree + 2.0)) - (degree + 1) * math.log(bound / 2)
    # at a greater depth float64 would end in its rounding
    best = _exchange(degree, bound, weight, FLOAT64) if depth < 36 + bound else None
    if best is None:
        digits = 25 + degree + int((span + max(0.0, depth)) / math.log(10))
        if digits > MOST_DIGITS:
            lower = "a smaller bound" if span > depth else "a lower degree"
            raise ArithmeticError(
                f"the best polynomial of degree {degree} on [−{bound:g}, {bound:g}], weight "
                f"{weight}, needs {digits} digits, more than {MOST_DIGITS}: give {lower}"
            )
        if (degree + 2) ** 2 * digits > MOST_WORK:
            raise ArithmeticError(
                f"the best polynomial of degree {degree} on [−{bound:g}, {bound:g}], weight "
                f"{weight}, needs {digits} digits, with which it would take ten seconds or more: "
                "give a lower degree or a smaller bound"
            )
        with localcontext(prec=digits):
            best = _exchange(degree, bound, weight, digits)
    if best is None:
        raise ArithmeticError(
            f"the peaks of the best polynomial of degree {degree} on [−{bound:g}, {bound:g}], "
            f"weight {weight}, did not level in {digits} digits: give another bound or degree"
        )
    return best


def _extended(near: BestPolynomial, bound: float) -> BestPolynomial:
    """Return e^−gap p(x + gap), with the p of a shorter interval that has the same lower end."""
    p, n = near.polynomial, near.polynomial.degree
    gap = bound - p.bound
    x = bound * np.cos(np.pi * (np.arange(n + 1) + 0.5) / (n + 1)) + gap
    shift = p.log_bound(np.array([bound + gap]))
    import scipy.fft  # only where it is used, as it would delay every command

    c = np.asarray(scipy.fft.dct(p.scaled(x[None, :], shift)[0], type=2)) / (n + 1)
    c[0] /= 2
    scale = float(shift[0]) - gap
    extended = Polynomial.from_coefficients(c, basis="chebyshev", bound=bound, log_scale=scale)
    return BestPolynomial(extended, 1.0, near.reference - gap, near.spread, near.digits)


def _exchange(degree: int, bound: float, weight: str, digits: int) -> BestPolynomial | None:
    """Return the minimax polynomial; None if rounding prevents it."""
    relative, decimal = weight == "relative", digits > FLOAT64
    noise = 0.0 if decimal else EPS * math.exp(min(2 * bound, 700.0) if relative else 0.0)
    if noise > NOISE:
        return None
    t: Any = -np.cos(np.pi * np.arange(degree + 2) / (degree + 1))
    exp: Any = np.exp
    B: Any = bound
    if decimal:
        t, B = np.array([Decimal(x) for x in t.tolist()]), Decimal(bound)
        exp = np.frompyfunc(Decimal.exp, 1, 1)
    spread = 1.0
    for _ in range(60):
        levelled = _Levelled(t, exp, B, relative)
        least = largest = abs(levelled.level)
        if degree:
            left, right = _runs(levelled)
            steps = 60 if not decimal else 12 if spread > 1e-3 else 28
            t[1:-1], heights = peaks(levelled.error, left, right, steps)
            least, largest = min(least, *heights), max(largest, *heights)
        spread = float((largest - least) / largest) if largest > 0 else 0.0
        if spread < 1e-8:
            break
    if spread > LEVELLED or noise > NOISE * float(largest):
        return None
    c, log_scale = _chebyshev(levelled)
    scale = log_scale + (0.0 if relative else bound)
    p = Polynomial.from_coefficients(c, basis="chebyshev", bound=bound, log_scale=scale)
    return BestPolynomial(p, float(largest), bound * t.astype(np.float64), spread, digits)


class _Levelled:
    """The polynomial whose errors at n + 2 nodes alternate and are equal, for e^{Bt} on [−1, 1].

    In float64 it has the barycentric form; in decimals Newton's form, which is cheaper and needs
    more digits. With the absolute weight all values are divided by e^B.
    """

    def __init__(self, t: Any, exp: Any, B: Any, relative: bool) -> None:
        self.t, self.exp, self.B, self.relative = t.copy(), exp, B, relative
        self.divided: Any = None
        self.scale = 0 if relative else B
        sign = np.array([(-1) ** i for i in range(len(t))])
        differences = t[:, None] - t[None, :]
        np.fill_diagonal(differences, 0 * t[0] + 1)
        w = 1 / (2 * differences).prod(axis=1)  # 2: the capacity of [−1, 1] is ½
        self.w = w / abs(w).max()
        target = exp(B * t - self.scale)
        each = sign * target if relative else sign
        self.level = (self.w * target).sum() / (self.w * each).sum()
        self.values = target - self.level * each
        self.direction = sign[1:-1] * (1 if self.level >= 0 else -1)
        if t.dtype == object:
            a = self.values.copy()
            for j in range(1, len(t)):
                a[j:] = (a[j:] - a[j - 1 : -1]) / (t[j:] - t[:-j])
            self.divided = a

    def __call__(self, x: Any) -> Any:
        if self.divided is not None:
            y = 0 * x
            for a, node in zip(self.divided[::-1], self.t[::-1]):
                y = a + (x - node) * y
            return y
        d = x[:, None] - self.t[None, :]
        rows, columns = np.nonzero(d == 0)
        d[rows, columns] = 1
        parts = self.w / d
        y = (parts * self.values).sum(axis=1) / parts.sum(axis=1)
        y[rows] = self.values[columns]
        return y

    def error(self, x: Any) -> Any:
        """Return the weighted error at one point per run, positive within the run."""
        target = self.exp(self.B * x - self.scale)
        error = (target - self(x)) * self.direction
        return error / target if self.relative else error


def _runs(p: _Levelled) -> tuple[Any, Any]:
    """Return the ends of the run of equal sign around each inner node, or points just outside."""
    ends = []
    for beyond in (p.t[:-2], p.t[2:]):
        within = p.t[1:-1]
        for _ in range(6):
            middle = (within + beyond) / 2
            inside = np.asarray(p.error(middle) > 0, bool)
            within, beyond = np.where(inside, middle, within), np.where(inside, beyond, middle)
        ends.append(beyond)
    return ends[0], ends[1]


def _chebyshev(p: _Levelled) -> tuple[Array, Array]:
    """Return c_k and log scales with p = Σ c_k e^scale_k T_k."""
    m = len(p.t) - 1
    if p.divided is None:
        # c_k = (2 − [k = 0])/m Σ_j p(cos θ_j) cos kθ_j, θ_j = (j + ½)π/m
        angles = np.pi * (np.arange(m) + 0.5) / m
        c = np.cos(np.outer(np.arange(m), angles)) @ p(np.cos(angles)) * 2 / m
        c[0] /= 2
        return c, np.zeros(m)
    # Horner's rule: c ← a + (t − node) c, with 2t T_k = T_{k+1} + T_{|k−1|}
    terms = [Decimal(0)] * (m + 1)
    for a, node in zip(p.divided[:-1][::-1], p.t[:-1][::-1]):
        raised = [Decimal(0)] * (m + 1)
        for k, c_k in enumerate(terms[:-1]):
            raised[k + 1] += c_k if k == 0 else c_k / 2
            raised[abs(k - 1)] += 0 if k == 0 else c_k / 2
        terms = [x - node * y for x, y in zip(raised, terms)]
        terms[0] += a
    top = max(abs(x) for x in terms).ln()
    scaled = np.array([float(x / top.exp()) for x in terms[:m]])
    return scaled, np.full(m, float(top))
