"""Sums and powers as sign and logarithm, against mpmath."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

from approx.sketches.signed import Signed, excess, signed, tail, total, value

DIGITS = 700


logarithms = st.floats(-9, 6)
numbers = st.one_of(
    st.just(0.0), logarithms.map(lambda x: 10**x), logarithms.map(lambda x: -(10**x))
)


@given(x=numbers, first=st.integers(0, 5), factorials=st.sampled_from([1, 2]))
def test_tails_against_mpmath(x, first, factorials):
    y = math.copysign(abs(x) ** 0.5, x) if factorials == 1 else x  # logs of about 10³ for both
    found = tail(signed(y), first, factorials)
    with mpmath.workdps(DIGITS):
        terms = [mpmath.mpf(y) ** j / mpmath.factorial(j) ** factorials for j in range(first)]
        # 0F1(; 1; y) = I₀(2√y)
        whole = mpmath.exp(y) if factorials == 1 else mpmath.hyp0f1(1, mpmath.mpf(y))
        want = whole - mpmath.fsum(terms)
        # terms cancel where y < 0: absolute error beside the largest term, of a log ≤ 2000
        reach = 2 * first + 2
        size = abs(y) if factorials == 1 else math.sqrt(abs(y))
        largest = max([abs(want), *map(abs, terms)]) if size > reach else mpmath.exp(2 * reach)
        if y < 0 and factorials == 2:
            largest = max(largest, size)  # J₀ at an argument of that rounding
        got = float(found.sign) * mpmath.exp(mpmath.mpf(float(found.log)))
        if want == 0:
            assert got == 0
        elif y >= 0:
            assert abs(got - want) <= 1e-15 * (2000 + abs(float(found.log))) * abs(want)
        else:
            assert abs(got - want) <= 1e-13 * largest * (1 + abs(math.log(abs(y) + 1e-300)) * 5)


@given(
    base=st.floats(-4, 4),
    more=st.one_of(st.floats(-4, 4), st.floats(-1e-12, 1e-12)),
    n=st.integers(1, 40),
)
def test_excess_against_mpmath(base, more, n):
    """Relative to the sum of both sides, n·(|log| + 4) roundings; no less where more is small."""
    got = excess(np.array(base), np.array(more), n)
    with mpmath.workdps(DIGITS):
        # base + more is rounded once where they are of one size
        want = (mpmath.mpf(base) + mpmath.mpf(more)) ** n - mpmath.mpf(base) ** n
        found = float(got.sign) * mpmath.exp(mpmath.mpf(float(got.log)))
        scale = abs(base) ** n + (abs(base) + abs(more)) ** n
        if abs(n * more) < 0.5 * abs(base):
            scale = abs(want)
        assert abs(found - want) <= 1e-15 * n * 800 * scale + mpmath.mpf(10) ** -300


def test_sums_have_signs():
    found = total(signed([1.0, -2.0, 0.0]), signed([2.0, 1.0, 0.0]), signed([-3.0, 0.5, 0.0]))
    # of terms of 1 + 2 + 3, each with two logarithms, a difference and an exponential
    np.testing.assert_allclose(value(found), [0.0, -0.5, 0.0], rtol=0, atol=24 * 2.0**-52)
    huge = total(Signed(np.array(1.0), np.array(1e5)), Signed(np.array(-1.0), np.array(9e4)))
    assert huge == (1.0, 1e5)


@pytest.mark.parametrize("factorials", [1, 2])
def test_tails_of_zero(factorials):
    assert value(tail(signed(0.0), 0, factorials)) == 1
    assert value(tail(signed(0.0), 3, factorials)) == 0
