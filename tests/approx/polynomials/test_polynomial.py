"""The Polynomial object against mpmath, exact algebra and published values; and what makes it."""

import math
from decimal import localcontext

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st
from small import few

from approx import parse
from approx.estimate import exact
from approx.polynomials import extrema
from approx.polynomials.chebyshev import Chebyshev, log_tail
from approx.polynomials.least_squares import LeastSquares
from approx.polynomials.polynomial import LANES, Polynomial
from approx.polynomials.remez import FLOAT64, OFF, _exchange, remez
from approx.polynomials.richardson import Richardson
from approx.polynomials.taylor import Taylor
from approx.polynomials.tensor_power import TensorPower

EPS = np.finfo(float).eps
degrees = st.integers(0, 12)
bounds = st.floats(0.25, 8)


def value(p, x):
    """Return p(x) in mpmath, of its coefficients as they are stored."""
    c = [mpmath.ldexp(mpmath.mpf(float(m)), int(e)) for m, e in zip(p.mantissas, p.exponents)]
    if p.basis == "monomial":
        return sum(a * mpmath.mpf(x) ** j for j, a in enumerate(c))
    t = mpmath.mpf(x) / p.bound
    before, term, total = t, mpmath.mpf(1), mpmath.mpf(0)  # T_{−1} = T_1
    for a in c:
        total += a * term
        before, term = term, 2 * t * term - before
    return total


# Coefficients


@pytest.mark.parametrize("degree", [0, 1, 20, 200])
def test_taylor_coefficients_against_mpmath(degree):
    p = Taylor(degree).polynomial()
    with mpmath.workdps(50):
        for j in range(degree + 1):
            got = mpmath.ldexp(mpmath.mpf(float(p.mantissas[j])), int(p.exponents[j]))
            # one rounding; beyond 170! the logarithm, about 900, carries its last place
            error = EPS if j < 171 else 1000 * EPS
            assert abs(got * mpmath.factorial(j) - 1) <= error


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("points", [1, 2, 3])
def test_power_coefficients_against_mpmath(n, points):
    p = TensorPower(n).polynomial() if points == 1 else Richardson(n, points).polynomial()
    weights = {1: (1,), 2: (-1, 2), 3: (mpmath.mpf(1) / 3, -2, mpmath.mpf(8) / 3)}[points]
    with mpmath.workdps(50):
        for j, got in enumerate(p.coefficients):
            want = sum(
                w * mpmath.binomial(n * 2**i, j) / mpmath.mpf(n * 2**i) ** j
                for i, w in enumerate(weights)
            )
            # up to 160 logarithms that add up to 160, roundings of the sums add up like their root:
            # some 13·160/2; the weights add up to 5 times what is left
            assert abs(got - want) <= 5 * 1000 * EPS * abs(want) + 1e-300
            assert got >= 0
    assert p.degree == n * 2 ** (points - 1)


@pytest.mark.parametrize(("degree", "B"), [(0, 1.0), (5, 0.5), (12, 4.0), (30, 16.0), (6, 700.0)])
def test_chebyshev_coefficients_are_bessel_functions(degree, B):
    p = Chebyshev(degree).polynomial(B)
    with mpmath.workdps(50):
        for k in range(degree + 1):
            got = mpmath.ldexp(mpmath.mpf(float(p.mantissas[k])), int(p.exponents[k]))
            want = (1 if k == 0 else 2) * mpmath.besseli(k, B)
            # a few ulps of the Bessel function, and e^B carries B roundings of its exponent
            assert abs(got / want - 1) <= (16 + B) * EPS


@few
@given(st.integers(0, 30), st.sampled_from([0.5, 2.0, 5.0, 16.0]))
def test_powers_of_x_are_the_same_polynomial(degree, B):
    p = Chebyshev(degree).polynomial(B)
    with mpmath.workdps(50):
        for x in np.linspace(-B, B, 7):
            size = sum(abs(value(Polynomial.from_coefficients([a]), 0)) * abs(x) ** j
                       for j, a in enumerate(p.monomial.coefficients))  # fmt: skip
            # each of the coefficients is rounded three times, nothing else
            assert abs(value(p.monomial, x) - value(p, x)) <= 3 * EPS * size + 1e-300


# Evaluation


@given(degrees, bounds, st.floats(-20, 20))
def test_clenshaw_is_within_its_rounding_also_beyond_the_interval(degree, B, x):
    p = Chebyshev(degree).polynomial(B)
    with mpmath.workdps(50):
        want = value(p, x)
    bound = float(np.exp(p.log_bound(np.array([abs(x)])))[0])
    # n steps, each amplified at most n times (U_n ≤ n + 1), on terms that add up to the bound
    assert abs(float(p(x)) - want) <= (4 * (degree + 2) ** 2 + 16) * EPS * bound


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("basis", ["monomial", "chebyshev"])
def test_rows_of_any_length_at_their_scale(basis, dtype):
    """Entries on both sides of a block's end, a short last block, a row beyond the interval."""
    c, x = [0.5, -1.0, 0.25, 0.125], np.outer([1, 2], np.linspace(-2, 2, 2 * LANES + 3))
    x = x.astype(dtype)
    given = {"basis": basis} | ({"bound": 2.0} if basis == "chebyshev" else {})
    t = x.astype(float)
    y = np.polynomial.Chebyshev(c)(t / 2) if "bound" in given else np.polynomial.Polynomial(c)(t)
    got = Polynomial.from_coefficients(c, **given).scaled(x, np.array([0, math.log(2)], dtype))
    # a dozen roundings of terms that add up to at most 17
    np.testing.assert_allclose(got, y / [[1], [2]], rtol=0, atol=15 * np.finfo(dtype).eps * 17)
    flat = Polynomial.from_coefficients([3.0] if "bound" in given else [3.0, 1.0, 1.0], **given)
    np.testing.assert_allclose(flat.scaled(np.zeros((2, 3)), np.zeros(2)), 3.0, rtol=4 * EPS)
    assert flat.scaled(np.zeros((2, 0)), np.zeros(2)).shape == (2, 0)


def test_a_sum_that_cancels_loses_no_digit_to_its_scale():
    # published: T_62(−16) in float64 is off by 4.2e-4 of e^−16, its terms adding up to e^16
    got = float(Taylor(62).polynomial()(-16.0))
    assert abs(got * math.exp(16) - 1) < 3 * 4.2e-4


# Facts


@pytest.mark.parametrize(
    ("n", "root"), [(1, -1), (3, -1.59607), (5, -2.18061), (7, -2.75900), (9, -3.33355)]
)
def test_odd_taylor_has_one_root_as_published(n, root):
    p = Taylor(n).polynomial()
    found = p.real_roots()
    assert len(found) == 1
    assert abs(found[0] - root) <= 5.1e-6  # five decimals
    with mpmath.workdps(40):

        def taylor(x):
            return sum(mpmath.mpf(x) ** j / mpmath.factorial(j) for j in range(n + 1))

        # coefficients rounded once move a root by eps·Σ|a_j x^j|/|p′(x)| < 1e4 eps here
        assert taylor(found[0] - 1e-11) < 0 < taylor(found[0] + 1e-11)


def test_coefficients_beyond_the_range_of_float64_count():
    """e^−800 T_2 is 2e^−800 x² − e^−800; x^400 − 2^−2400 has the roots ± 2^−6."""
    p = Polynomial.from_coefficients(
        [1.0, 1.0, 1.0], basis="chebyshev", bound=1.0, log_scale=[0.0, 0.0, -800.0]
    )
    np.testing.assert_allclose(p.monomial.log_coefficients, [0, 0, math.log(2) - 800], rtol=1e-15)
    assert p.rank(99, 99, 2) == p.width(2)
    wide = Polynomial.from_coefficients(
        [-1.0, *[0.0] * 399, 1.0], log_scale=[-2400 * math.log(2), *[0.0] * 400]
    )
    np.testing.assert_allclose(wide.real_roots(), [-(2.0**-6), 2.0**-6], rtol=1e-12)


@few
@given(st.lists(st.integers(-6, 6), min_size=1, max_size=5))
def test_roots_are_found_with_their_multiplicity_taken_once(roots):
    coefficients = [int(a) for a in np.polynomial.polynomial.polyfromroots(roots)]  # exact
    np.testing.assert_allclose(extrema.real_roots(coefficients), sorted(set(roots)), atol=1e-12)
    assert not extrema.real_roots([3, 0]).size


def test_indefiniteness_as_published():
    p = Chebyshev(2).polynomial(4.0)
    np.testing.assert_allclose(p.monomial.coefficients, [-1.54, 4.88, 1.61], atol=0.0051)


@pytest.mark.parametrize(("d", "most"), [(4, 6), (8, 4)])
def test_the_rank_of_generic_points_is_the_count_of_monomials(d, most):
    """On the sphere |q| = |k| = √d, spherical harmonics are counted instead."""
    n, rng = 96, np.random.default_rng(0)
    for degree in range(1, most + 1):
        for sphere in (False, True):
            Q, K = rng.standard_normal((2, n, d))
            if sphere:
                Q, K = (math.sqrt(d) * x / np.linalg.norm(x, axis=1, keepdims=True) for x in (Q, K))
            p = Taylor(degree).polynomial(1.0)
            want = math.comb(d + degree, degree)
            if sphere:
                want = math.comb(d + degree - 1, degree) + math.comb(d + degree - 2, degree - 1)
            assert p.rank(n, n, d, sphere=sphere) == min(n, want)
            assert np.linalg.matrix_rank(p(Q @ K.T / math.sqrt(d))) == min(n, want)


# Errors


@few
@given(st.integers(0, 10), bounds)
def test_chebyshev_truncation_error_is_the_bessel_tail(degree, B):
    found = Chebyshev(degree).polynomial(B).sup_errors()
    with mpmath.workdps(50):
        tail = 2 * sum(mpmath.besseli(k, B) for k in range(degree + 1, degree + 80))
        tail = float(tail * mpmath.exp(-B))
    # over e^B; coefficients are rounded, 4 ulps each
    assert abs(found.scaled - tail) <= 1e-10
    assert abs(found.scaled - tail) <= 1e-8 * tail + 8 * (degree + 1) * EPS
    assert math.exp(log_tail(degree, B)) == pytest.approx(tail, rel=1e-13)
    assert found.absolute == pytest.approx(found.scaled * math.exp(B), rel=1e-12)


def parabola():
    """Return that through exp at −3, 0 and 3: both errors are largest inside."""
    nodes = np.array([-3.0, 0.0, 3.0])
    return Polynomial.from_coefficients(
        np.linalg.solve(np.vander(nodes, increasing=True), np.exp(nodes)), bound=3
    )


@pytest.mark.parametrize("make", [Taylor(5), Chebyshev(5), Richardson(4), TensorPower(6), None])
def test_sup_errors_are_those_of_a_fine_grid(make):
    p = parabola() if make is None else make.polynomial(3.0)
    x = np.linspace(-3, 3, 200_001)
    error = np.abs(p(x) - np.exp(x))
    found = p.sup_errors()
    # spacing 3e-5: (3e-5)²/8 of a curvature of some 10
    assert found.absolute == pytest.approx(error.max(), rel=1e-8)
    assert found.relative == pytest.approx((error / np.exp(x)).max(), rel=1e-8)


def test_a_bound_is_needed_for_an_error():
    with pytest.raises(ValueError, match="bound must be finite"):
        Taylor(3).polynomial().sup_errors()
    with pytest.raises(ValueError, match=r"would need 8.69e\+03 digits, more than 2000"):
        Taylor(3).polynomial(1e4).sup_errors()
    assert Taylor(3).polynomial().sup_errors(1.0) == Taylor(3).polynomial(1.0).sup_errors()


# Remez


def best_level(n, B, weight, x):
    """Return bounds of the least error, by an exchange in 60 digits that starts at points x.

    Coefficients solve the linear system in powers; peaks are zeros of the derivative. By de la
    Vallée-Poussin's theorem the least error is between the least and the largest peak.
    """
    with mpmath.workdps(60):
        x = [mpmath.mpf(float(a)) for a in x]

        def unit(a):
            return mpmath.exp(-a if weight == "relative" else -B)

        for _ in range(4):
            rows = [
                [(a / B) ** j * unit(a) for j in range(n + 1)] + [(-1) ** i]
                for i, a in enumerate(x)
            ]
            wanted = mpmath.matrix([mpmath.exp(a) * unit(a) for a in x])
            c = list(mpmath.lu_solve(mpmath.matrix(rows), wanted))[n::-1]

            def error(a, c=c):
                return (mpmath.polyval(c, a / B) - mpmath.exp(a)) * unit(a)

            for i in range(1, n + 1):
                for _ in range(2):
                    x[i] -= mpmath.diff(error, x[i]) / mpmath.diff(error, x[i], 2)
            peaks = [abs(error(a)) for a in x]
        return min(peaks), max(peaks)


@pytest.mark.parametrize(
    ("n", "B", "weight"),
    [
        (7, 0.5, "relative"), (5, 0.25, "relative"), (3, 6.0, "relative"), (12, 2.0, "relative"),
        (11, 2.0, "absolute"), (5, 0.19, "absolute"), (9, 8.0, "absolute"),
    ],
)  # fmt: skip
def test_levels_are_right_to_what_they_promise(n, B, weight):
    found = remez(n, B, weight)
    least, largest = best_level(n, B, weight, found.reference)
    assert largest / least - 1 < 1e-15
    assert abs(found.level / least - 1) <= OFF


def test_remez_takes_more_digits_where_float64_is_not_enough():
    assert remez(12, 8.0).digits == remez(8, 2.0).digits == FLOAT64
    assert remez(21, 16.0).digits > 40
    assert remez(10, 16.0, "absolute").digits == FLOAT64
    assert remez(24, 4.0, "absolute").digits > FLOAT64  # a level of 1e-18
    near = remez(8, 7.0)
    with localcontext(prec=50):
        again = _exchange(8, 7.0, "relative", 50)
    assert near.digits == FLOAT64
    # both know peaks to 1e-8 of the level
    assert near.level == pytest.approx(again.level, rel=1e-7)


def test_remez_never_fails_silently():
    with pytest.raises(ArithmeticError, match=r"ten seconds.*\[−700, 700\] is made"):
        remez(80, 700.0)
    with pytest.raises(ArithmeticError, match="would take ten seconds or more: give a lower"):
        remez(60, 300.0)  # half a minute, of which nobody had been told
    with pytest.raises(ArithmeticError, match=r"absolute, needs \d+ digits, more than 500"):
        remez(300, 1.0, "absolute")
    with pytest.raises(ArithmeticError, match="give a lower degree"):  # for a level of 10^−700
        parse("minimax(degree=300, weight='absolute')").approximate([[1.0]], [[1.0]])
    with pytest.raises(ArithmeticError, match="give a smaller bound"):
        remez(200, 600.0)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_an_interval_too_long_for_the_degree(n):
    found = remez(n, 60.0)
    assert found.level == 1.0
    assert remez(n, 25.0 + 3 * n).level > 1 - 1e-8
    if n == 0:  # 1/cosh B, the error tanh B
        assert float(found.polynomial(0.0)) * math.cosh(60) == pytest.approx(1, rel=1e-12)
        return
    x = -60 + np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 60.0, 120.0])
    ratio = found.polynomial(x) * np.exp(-x)  # the error is this − 1
    # eps of the largest value, (120/n)^n over that at −B, and 1e-8 of the level
    assert (np.abs(ratio - 1) <= 1 + 1e-8 + 1e3 * EPS * 120**n).all()


# Least squares


@given(st.integers(0, 5), st.integers(0, 2**32 - 1), st.sampled_from(["relative", "absolute"]))
def test_least_squares_is_that_of_the_whole_system(degree, seed, weight):
    Q, K = np.random.default_rng(seed).uniform(-1, 1, (2, 9, 3))
    x = (Q @ K.T).ravel()
    w = np.exp(-x) if weight == "relative" else np.ones_like(x)
    A = np.vander(x, degree + 1, increasing=True) * w[:, None]
    fit = np.polynomial.polynomial.polyval(x, np.linalg.lstsq(A, np.exp(x) * w, rcond=None)[0])
    p = LeastSquares(degree, weight).fitted(Q, K)
    # powers of |x| ≤ 3 up to 5 have a condition below 1e5, 81 equations
    np.testing.assert_allclose(p(x), fit, rtol=0, atol=1e5 * 81 * EPS * math.exp(3))


def test_least_squares_streams(monkeypatch):
    Q, K = np.random.default_rng(0).uniform(-1, 1, (2, 9, 3))
    whole = LeastSquares(3).fitted(Q, K).coefficients
    monkeypatch.setattr(exact, "STRIPE", 20)
    np.testing.assert_allclose(LeastSquares(3).fitted(Q, K).coefficients, whole, rtol=1e-10)


def test_factors_that_would_cancel_are_not_used_for_products():
    x = np.linspace(-6.3, 6.3, 600)[:, None]
    A = Chebyshev(60).approximate(x, x)  # B = 39.7: powers of x cancel by e^{0.41 B}
    assert A.low.polynomial.log_loss > 9
    assert not A.low._factors_are_cheaper(1)
    assert Taylor(60).approximate(x, x).low._factors_are_cheaper(1)
