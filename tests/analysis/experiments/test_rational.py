"""Rational functions for exp: each closed form against mpmath or a search of its own."""

import math

import mpmath
import numpy as np
import pandas as pd
import pytest
import scipy

from analysis.bounds.theory import degree_order
from analysis.experiments import rational
from approx.polynomials.error_bounds import bessel_tail


@pytest.fixture(scope="module")
def errors():
    rows = rational._interval() + rational._half_line()
    table = pd.DataFrame(rows, columns=rational.COLUMNS)
    return table.set_index(["interval", "method", "degree"]).value.sort_index()


def test_the_line_has_the_constant_of_halphen():
    """1/h is the zero of Σ |Σ_{d|k} (−1)^d d| s^k = 1/8 in (0, 1)."""
    with mpmath.workdps(30):
        a = [abs(sum((-1) ** d * d for d in range(1, k + 1) if k % d == 0)) for k in range(1, 90)]
        s = mpmath.findroot(lambda s: mpmath.polyval([*a[::-1], 0], s) - mpmath.mpf(1) / 8, 0.1)
        expected = float(2 * s**3 * mpmath.sqrt(s))
        assert rational.halphen_line(3) == pytest.approx(expected, rel=1e-14)


def test_the_tail_is_that_of_bessel_functions(errors):
    for n in (1, 4, 16):
        tail = 2 * sum(mpmath.besseli(k, rational.B) for k in range(n + 1, 60))
        expected = float(tail / mpmath.exp(rational.B))
        assert errors["interval", "bessel_tail", n] == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_pade_is_that_of_the_series(n):
    p, q = mpmath.pade(mpmath.taylor(mpmath.exp, 0, 2 * n), n, n)
    for x in (-4.0, -0.5, 1.0, 3.7):
        expected = mpmath.polyval(p[::-1], x) / mpmath.polyval(q[::-1], x)
        assert rational.pade(n, np.float64(x)) == pytest.approx(float(expected), rel=1e-9)


def test_the_best_on_the_half_line_is_what_a_search_finds_and_nears_its_line(errors):
    u = np.linspace(0, 1, 3000, endpoint=False)
    x = -u / (1 - u)

    def worst(p):  # (a + b x)/(1 + c x)
        return np.abs((p[0] + p[1] * x) / (1 - math.exp(p[2]) * x) - np.exp(x)).max()

    start = np.array([0.95, 0.05, 0.0])
    for _ in range(3):
        close = {"xatol": 1e-8, "fatol": 1e-9}
        start = scipy.optimize.minimize(worst, start, method="Nelder-Mead", options=close).x
    best = errors["half_line", "best"]
    assert best[1] == pytest.approx(worst(start), rel=2e-3)
    ratio = best / errors["half_line", "halphen"]
    assert ratio.is_monotonic_increasing
    assert 0.99 < ratio.iloc[-1] < 1


def test_nothing_on_the_half_line_is_below_the_best(errors):
    best = errors["half_line", "best"]
    for method in ("aaa", "inverse_taylor"):
        assert (errors["half_line", method] > 0.999 * best).all()


def test_the_order_of_the_degree_is_within_a_constant_of_what_is_needed():
    """Over ranges and errors in both of its cases."""
    ratios = []
    for B in (0.5, 2.0, 8.0, 512.0):
        for epsilon in (1e-3, 1e-8):
            tails = (bessel_tail(n, B / 2, "scaled") for n in range(200))
            needed = next(n for n, tail in enumerate(tails) if tail <= epsilon)
            ratios.append(needed / degree_order(B, epsilon))
    assert min(ratios) > 0.5
    assert max(ratios) < 2
