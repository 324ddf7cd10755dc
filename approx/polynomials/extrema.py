"""Largest errors and real roots of a polynomial, beyond the precision of float64."""

import itertools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from approx.checks import Array

GOLDEN = (math.sqrt(5) - 1) / 2
MOST_DIGITS = 2000  # these take about 20 s
Function = Callable[[Any], Any]


def peaks(f: Function, left: Any, right: Any, steps: int) -> Any:
    """Return the position and the value of the maximum of f in each interval, by golden sections.

    ``left`` and ``right`` are arrays of ends, of float64 or decimals; f must be unimodal on each
    interval. The position is accurate to 0.618^steps of the interval, and the value to about the
    square of that.
    """
    golden = GOLDEN if left.dtype != object else Decimal(GOLDEN)
    inner = [right - golden * (right - left), left + golden * (right - left)]
    values = [f(inner[0]), f(inner[1])]
    for _ in range(steps):
        up = np.asarray(values[0] < values[1], bool)  # the peak is right of inner[0]
        left, right = np.where(up, inner[0], left), np.where(up, right, inner[1])
        kept, value = np.where(up, inner[1], inner[0]), np.where(up, values[1], values[0])
        new = np.where(up, left + golden * (right - left), right - golden * (right - left))
        height = f(new)
        inner = [np.where(up, kept, new), np.where(up, new, kept)]
        values = [np.where(up, value, height), np.where(up, height, value)]
    first = np.asarray(values[0] > values[1], bool)
    return np.where(first, inner[0], inner[1]), np.where(first, values[0], values[1])


def sup_errors(
    in_decimals: Callable[[], Function], degree: int, log_size: float, B: float
) -> tuple[float, float]:
    """Return max |p(x) e^−x − 1| and max |p(x) − e^x| e^−B over [−B, B].

    Parameters
    ----------
    in_decimals : function
        Returns p as a function of arrays of decimals, at the precision of the decimal context.
    degree : int
        Degree of p.
    log_size : float
        s such that Σ|c_j φ_j| ≤ e^s on [−B, B].

    Notes
    -----
    Terms of size e^s sum to p(−B) ≈ e^−B, so (s + B)/log 10 digits are lost.
    """
    lost = (max(log_size, B) + B) / math.log(10)
    if not lost < MOST_DIGITS:
        raise ValueError(
            f"the largest error on [−{B:g}, {B:g}] would need {lost:.3g} digits, more than "
            f"{MOST_DIGITS}: give a smaller bound, or use approx.polynomials.error_bounds.sup_error"
        )
    exp = np.frompyfunc(Decimal.exp, 1, 1)
    grid = B * np.cos(np.linspace(np.pi, 0, 16 * (degree + 2)))
    with localcontext(prec=30 + int(lost)):
        evaluate, unit = in_decimals(), Decimal(-B).exp()

        def relative(x: Any) -> Any:
            return abs(evaluate(x) * exp(-x) - 1)

        def scaled(x: Any) -> Any:
            return abs(evaluate(x) - exp(x)) * unit

        x = np.array([Decimal(y) for y in grid.tolist()])
        return float(_largest(relative, x)), float(_largest(scaled, x))


def _largest(error: Function, x: Any) -> Any:
    """Return the largest error: at an end, or in the cells beside a local maximum of the grid.

    Only maxima that may be the largest are refined: a cell is a 16th of the Chebyshev spacing, and
    within it a smooth extremum rises by less than a tenth.
    """
    values = error(x)
    inside = np.flatnonzero((values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:])) + 1
    best = max(values)
    inside = inside[np.asarray(values[inside] * 6 >= best * 5, bool)]
    if not len(inside):
        return best
    _, refined = peaks(error, x[inside - 1], x[inside + 1], 24)
    return max(best, *refined)


def horner(c: list[Any]) -> Function:
    """Return x ↦ Σ c_j x^j."""

    def evaluate(x: Any) -> Any:
        y = 0 * x + c[-1]
        for a in reversed(c[:-1]):
            y = a + x * y
        return y

    return evaluate


def clenshaw(c: list[Any], bound: Any) -> Function:
    """Return x ↦ Σ c_j T_j(x/bound)."""

    def evaluate(x: Any) -> Any:
        t = x / bound
        y, z = 0 * t, 0 * t
        for a in reversed(c[1:]):
            y, z = a + 2 * t * y - z, y
        return c[0] + t * y - z

    return evaluate


def real_roots(coefficients: list[int]) -> Array:
    """Return the distinct real roots of Σ a_j x^j in float64, ascending.

    Sturm's theorem in integers counts the roots in an interval, so no root is missed; a double root
    counts once. All roots are within 2 max |a_{n−k}/a_n|^{1/k} of 0 (Fujiwara).

    Notes
    -----
    Cost: operations on integers with O(n) times the digits of a_j; about 10 s for the Taylor
    polynomial of degree 200.
    """
    a = list(coefficients)
    while a and a[-1] == 0:
        a.pop()
    if len(a) < 2:
        return np.empty(0)
    lead = abs(a[-1]).bit_length() - 1
    powers = [-((lead - x.bit_length()) // k) for k, x in enumerate(a[-2::-1], 1) if x]
    edge = Fraction(2) ** (1 + max(powers, default=0))
    content = math.gcd(*a)
    chain = _sturm([x // content for x in a])
    if len(chain[-1]) > 1:  # there are multiple roots, each of which must count once
        chain = _sturm(_quotient(chain[0], chain[-1]))
    roots: list[float] = []
    _isolate(chain, -edge, edge, roots)
    return np.array(sorted(roots))


def _sturm(p: list[int]) -> list[list[int]]:
    """Return p, p′ and the negated remainders, each remainder divided by its content."""
    chain = [p, [j * a for j, a in enumerate(p)][1:]]
    while len(chain[-1]) > 1:
        rest, by = list(chain[-2]), chain[-1]
        while len(rest) >= len(by):
            lead, head = by[-1], rest[-1]
            scale = abs(lead)  # a positive factor keeps the signs
            shift = len(rest) - len(by)
            rest = [scale * x for x in rest]
            for j, b in enumerate(by):
                rest[shift + j] -= (1 if lead > 0 else -1) * head * b
            while rest and rest[-1] == 0:
                rest.pop()
        if not rest:
            break
        content = math.gcd(*rest)
        chain.append([-x // content for x in rest])
    return chain


def _quotient(p: list[int], divisor: list[int]) -> list[int]:
    """Return a multiple of p/divisor with coprime integer coefficients; the divisor divides p."""
    rest, q = [Fraction(x) for x in p], []
    for shift in range(len(p) - len(divisor), -1, -1):
        q.append(rest[shift + len(divisor) - 1] / divisor[-1])
        for j, b in enumerate(divisor):
            rest[shift + j] -= q[-1] * b
    common = math.lcm(*(x.denominator for x in q))
    whole = [int(x * common) for x in reversed(q)]
    return [x // math.gcd(*whole) for x in whole]


def _sign(p: list[int], x: Fraction) -> int:
    """Return the sign of p(x), by Horner's rule in integers."""
    top, bottom = x.numerator, x.denominator
    y, power = 0, 1
    for a in reversed(p):
        y = y * top + a * power
        power *= bottom
    return (y > 0) - (y < 0)


def _changes(chain: list[list[int]], x: Fraction) -> int:
    signs = [s for s in (_sign(p, x) for p in chain) if s]
    return sum(s != t for s, t in itertools.pairwise(signs))


def _isolate(chain: list[list[int]], low: Fraction, high: Fraction, roots: list[float]) -> None:
    """Add the roots in (low, high]: bisect until each is alone, then until float64 is exact."""
    stack = [(low, high, _changes(chain, low), _changes(chain, high))]
    while stack:
        low, high, at_low, at_high = stack.pop()
        if at_low == at_high:
            continue
        middle = (low + high) / 2
        if high - low <= abs(middle) / 2**54 or high - low < Fraction(1, 2**1060):
            roots.append(float(high))
        elif at_low - at_high == 1 and _sign(chain[0], low) * _sign(chain[0], high) < 0:
            # a single simple root, for which the sign of p is enough
            if _sign(chain[0], middle) in (0, _sign(chain[0], high)):
                stack.append((low, middle, at_low, at_high))
            else:
                stack.append((middle, high, at_low, at_high))
        else:
            at_middle = _changes(chain, middle)
            stack += [(low, middle, at_low, at_middle), (middle, high, at_middle, at_high)]
