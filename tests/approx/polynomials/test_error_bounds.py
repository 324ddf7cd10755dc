"""Errors are within their bounds, closed forms are right, and the table of degrees as published."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st
from refusals import refuses
from small import few

from approx.polynomials import error_bounds
from approx.polynomials.chebyshev import Chebyshev, log_bessel, log_tail
from approx.polynomials.least_squares import LeastSquares
from approx.polynomials.minimax import Minimax
from approx.polynomials.remez import OFF, remez
from approx.polynomials.richardson import WEIGHTS, Richardson
from approx.polynomials.taylor import Taylor
from approx.polynomials.tensor_power import TensorPower

EPS = np.finfo(float).eps
TABLE = """
1 1e-2 5 51 4 3 4 3 3
1 1e-4 7 5001 6 5 6 5 5
2 1e-2 8 201 6 5 6 4 4
2 1e-4 11 20001 8 7 9 6 6
4 1e-2 15 799 10 7 9 5 5
4 1e-4 19 79999 13 10 13 8 8
8 1e-2 30 3190 19 12 15 7 7
8 1e-4 33 319990 22 16 20 12 11
16 1e-2 58 12747 37 21 26 10 10
16 1e-4 62 1279947 40 26 33 16 16
"""  # B, ε, then the columns: reference, section 5.1
COLUMNS = [
    ("taylor", "relative"), ("tensor_power", "relative"), ("chebyshev", "relative"),
    ("minimax", "relative"), ("taylor", "scaled"), ("chebyshev", "scaled"), ("minimax", "scaled"),
]  # fmt: skip
MAKE = {
    "taylor": Taylor,
    "tensor_power": TensorPower,
    "richardson": Richardson,
    "richardson3": lambda n: Richardson(n, 3),
    "chebyshev": Chebyshev,
    "interpolation": lambda n: Chebyshev(n, kind="interpolation"),
}


@pytest.mark.parametrize("line", [
    pytest.param(line, marks=[pytest.mark.slow] if line.startswith(("16", "8 1e-4")) else [])
    for line in TABLE.strip().splitlines()
])  # fmt: skip
def test_minimum_degrees_as_published(line):
    B, epsilon, *degrees = line.split()
    found = [error_bounds.minimum_degree(m, float(B), float(epsilon), norm) for m, norm in COLUMNS]
    assert found == [int(n) for n in degrees]


@pytest.mark.parametrize("method", MAKE)
@pytest.mark.parametrize("norm", error_bounds.NORMS)
@few
@given(st.integers(1, 12), st.floats(0.1, 8))
def test_measured_errors_are_within_their_bounds(method, norm, n, B):
    p = MAKE[method](n).polynomial(B)
    x = np.concatenate([np.linspace(-B, B, 101), B * np.cos(np.linspace(0, np.pi, 40))])
    unit = np.exp(x) if norm == "relative" else math.exp(B)
    measured = (np.abs(p(x) - np.exp(x)) / unit).max()
    # evaluation: a few n of Σ|terms| ≤ its log_bound, and weights of at most 4 (extrapolation)
    size = float(np.exp(p.log_bound(np.array([B])))[0])
    rounding = 16 * (n + 4) ** 2 * EPS * size / (math.exp(-B) if norm == "relative" else 1.0)
    bound, error = (
        f(method, n, B, norm) for f in (error_bounds.error_bound, error_bounds.sup_error)
    )
    assert measured <= bound + rounding
    assert measured <= error * (1 + 1e-6) + rounding
    assert error <= bound * (1 + 1e-9) + 1e-15  # powers are summed in float64


@pytest.mark.parametrize("norm", error_bounds.NORMS)
@few
@given(st.integers(0, 10), st.floats(0.25, 8))
def test_minimax_is_within_its_level(norm, n, B):
    p = Minimax(n, weight="relative" if norm == "relative" else "absolute").polynomial(B)
    errors = p.sup_errors()
    measured = errors.relative if norm == "relative" else errors.scaled
    # coefficients in float64, Σ|c_k| ≤ 2e^B
    rounding = 32 * EPS * (math.exp(2 * B) if norm == "relative" else 1.0)
    level = error_bounds.error_bound("minimax", n, B, norm)
    assert abs(measured - level) <= 1e-6 * level + rounding


@pytest.mark.parametrize(("n", "B"), [(0, 2.0), (5, 100.0), (17, 3.0), (30, 1.0)])
def test_errors_of_the_interpolant_however_small(n, B):
    """At n = 30, B = 1 the error is 10^−44, far below the rounding of stored coefficients."""
    with mpmath.workdps(60 + int(2 * B)):
        B, nodes = mpmath.mpf(B), [mpmath.pi * (j + 0.5) / (n + 1) for j in range(n + 1)]
        values = [mpmath.exp(B * mpmath.cos(t)) for t in nodes]
        c = [2 * sum(f * mpmath.cos(k * t) for f, t in zip(values, nodes)) / (n + 1)
             for k in range(n + 1)]  # fmt: skip
        for norm, at in (("relative", -1), ("scaled", 1)):  # where each is worst
            p = sum(a * at**k for k, a in enumerate(c)) - c[0] / 2
            unit = mpmath.exp(at * B)
            want = float(abs(p - unit) / unit)
            found = error_bounds.sup_error("interpolation", n, float(B), norm)
            assert found == pytest.approx(want, rel=1e-10)
            assert found <= error_bounds.error_bound("interpolation", n, float(B), norm)


def test_long_intervals():
    """The rest of the series and I_0 + 2 Σ_{1 ≤ k ≤ n} I_k are e^B; beyond 10⁸ its limit."""
    for n, B in ((44, 2000.0), (100, 1e4)):
        with mpmath.workdps(30):
            first = sum((2 if k else 1) * mpmath.besseli(k, B) for k in range(n + 1))
            tail = float(1 - first * mpmath.exp(-B))
        assert math.exp(log_tail(n, B)) == pytest.approx(tail, rel=1e-13)
    assert log_tail(20_000, 1e8) == pytest.approx(log_tail(20_000, 1.0000001e8), abs=1e-6)
    assert error_bounds.error_bound("interpolation", 4, 2.0**50, "scaled") == pytest.approx(2)
    for method in ("chebyshev", "interpolation"):
        assert error_bounds.sup_error(method, 4, 1e4) == math.inf
        assert error_bounds.sup_error(method, 4, 1e4, "scaled") == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("n", "B"),
    [(40, 2000.0), (1000, 1e5), (2000, 1e5), (2**11, 1e8), (2**11, 1.0000001e8), (9, 1e12)],
)
def test_the_interpolant_on_long_intervals_by_its_nodes(n, B):
    N = n + 1
    with mpmath.workdps(60):  # of 1 − p(B) e^−B, at least 10^−17
        half = [mpmath.pi * (2 * i + 1) / (4 * N) for i in range(N)]
        nodes = [mpmath.cot(t) * mpmath.exp(-2 * B * mpmath.sin(t) ** 2) for t in half]
        want = float(1 - (mpmath.fsum(nodes[::2]) - mpmath.fsum(nodes[1::2])) / N)
    # 9√B Bessel functions of some 1e-15, or cardinal polynomials that do not cancel
    assert error_bounds.sup_error("interpolation", n, B, "scaled") == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("method", ["chebyshev", "interpolation"])
def test_an_error_that_underflows(method):
    assert (
        error_bounds.sup_error(method, 1084, 300.0) < 1e-322
    )  # at most 1e-323, by the Bessel tail


@pytest.mark.parametrize(("n", "points"), [(500, 2), (300, 3)])
def test_extrapolated_powers_above_float64(n, points):
    """They are above 10³⁰⁸ e^x each at −B, and were inf − inf; over e^B worst at B."""
    method, B = {2: "richardson", 3: "richardson3"}[points], 900.0
    assert error_bounds.sup_error(method, n, B) == math.inf
    with mpmath.workdps(60):
        powers = (
            w * (1 + B / mpmath.mpf(n * 2**i)) ** (n * 2**i) for i, w in enumerate(WEIGHTS[points])
        )
        want = float(1 - sum(powers) * mpmath.exp(-B))
    assert error_bounds.sup_error(method, n, B, "scaled") == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize(("n", "B"), [(900, 500.0), (1000, 500.0), (1100, 500.0)])
def test_a_truncation_whose_bessel_functions_underflow(n, B):
    """I_k(B) e^−B is below 10⁻³⁰⁸ there, but e^{2B} times it is not: the error is 10¹³⁴ … 10⁹."""
    with mpmath.workdps(30):
        terms = [mpmath.besseli(k, B) for k in range(n + 1, n + 60)]  # ratio below 0.27
        scale = 2 * mpmath.exp(B)
        bound = float(scale * sum(terms))
        at_left = float(scale * abs(sum(t * (-1) ** i for i, t in enumerate(terms))))
    # logarithms of up to 2000, a few roundings of that size
    assert error_bounds.error_bound("chebyshev", n, B) == pytest.approx(bound, rel=1e-11)
    assert error_bounds.sup_error("chebyshev", n, B) == pytest.approx(at_left, rel=1e-11)
    assert error_bounds.sup_error("interpolation", n, B) <= 2 * bound


@pytest.mark.parametrize(("k", "B"), [(30, 1e-9), (200, 1.0), (1001, 500.0), (20_000, 3000.0)])
def test_logarithms_of_bessel_functions_that_underflow(k, B):
    with mpmath.workdps(30):
        want = float(mpmath.log(mpmath.besseli(k, B)) - B)
    assert want < -650
    # k⁻⁴ at k = 30 is 10⁻⁶, its coefficient below 10⁻³
    assert log_bessel(np.array([k]), B)[0] == pytest.approx(want, rel=1e-14, abs=1e-9)


def test_degrees_whose_errors_are_nothing_or_not_to_be_found():
    for method in ("chebyshev", "interpolation"):
        for n in (2**20, 2**53):
            for norm in error_bounds.NORMS:
                assert error_bounds.sup_error(method, n, 1.0, norm) == 0
        refuses("n must be <= 16384, got 1048576", error_bounds.sup_error, method, 2**20, 1e6)
    refuses("n must be <= 9007199254740992", error_bounds.error_bound, "taylor", 2**53 + 1, 1.0)


@pytest.mark.parametrize(("n", "B"), [(5, 800.0), (2500, 800.0), (3700, 1000.0)])
def test_the_closed_form_of_taylor_on_long_intervals(n, B):
    """e^B is not representable where B^{n+1}/(n+1)! e^B is, or is tiny; e^828 is inf."""
    with mpmath.workdps(40):
        first = mpmath.mpf(B) ** (n + 1) / mpmath.factorial(n)
        want = first * mpmath.nsum(lambda k: mpmath.mpf(B) ** k / mpmath.factorial(k) / (n + 1 + k),
                                   [0, 4 * int(B)], method="direct")  # fmt: skip
    # in logarithms of up to (n + 1) log B ≈ 26000, five roundings of that size
    assert error_bounds.sup_error("taylor", n, B) == pytest.approx(float(want), rel=3e-11)


@given(st.integers(0, 60), st.floats(0.1, 16))
def test_the_closed_form_of_taylor_in_mpmath(n, B):
    with mpmath.workdps(50):
        below = abs(sum((-mpmath.mpf(B)) ** j / mpmath.factorial(j) for j in range(n + 1))
                    * mpmath.exp(B) - 1)  # fmt: skip
    # hyp1f1, and logarithms of up to (n + 1) log 16 + log 60!: some 400 of size, times eps
    assert error_bounds.sup_error("taylor", n, B) == pytest.approx(float(below), rel=1e-12)


@pytest.mark.parametrize("weight", ["relative", "absolute"])
@few
@given(st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_least_squares_is_at_least_as_good_as_minimax_on_its_logits(weight, n, seed):
    Q, K = np.random.default_rng(seed).uniform(-1, 1, (2, 8, 3))
    p = LeastSquares(n, weight).fitted(Q, K)
    x = Q @ K.T
    unit = np.exp(x) if weight == "relative" else math.exp(p.bound)
    rms = math.sqrt(np.mean(((p(x) - np.exp(x)) / unit) ** 2))
    # a level is right to OFF; evaluation rounds by some (n + 2)² eps·Σ|c_k|, B ≤ 3
    assert rms <= remez(n, p.bound, weight).level * (1 + 2 * OFF) + 1e-11


# Rank


@few
@given(st.integers(1, 3), st.floats(0.2, 4), st.sampled_from([0.1, 1e-3]), st.integers(0, 99))
def test_the_theorem_on_matrices(d, B, epsilon, seed):
    Q, K = np.random.default_rng(seed).uniform(-1, 1, (2, 30, d)) * math.sqrt(B / d)
    kernel = np.exp(Q @ K.T)
    n = error_bounds.minimum_degree("minimax", B, epsilon, "scaled")
    p = Minimax(n, B, "absolute").approximate(Q, K)
    assert p.rank == math.comb(d + n, n)
    error = np.abs(p.to_dense() - kernel).max()
    assert error <= epsilon * math.exp(B) * (1 + 1e-6) + 1e-10
    s = np.linalg.svd(kernel, compute_uv=False)
    found = error_bounds.epsilon_rank_bound(
        "minimax", Q @ K.T, d, epsilon, largest=s[0] / np.exp(np.abs(Q @ K.T).max())
    )
    assert (s > epsilon * s[0]).sum() <= found


@pytest.mark.parametrize(("arguments", "message"), [
    (("tayler", 3, 1.0), "method must be one of taylor"),
    (("taylor", 3, -1.0), "bound must be finite"),
    (("taylor", 3, 1e30), "bound must be <= 4.5e\\+15"),  # hyp1f1 looped for ever there
    (("tensor_power", 0, 1.0), "n must be >= 1"),
    (("taylor", 3, 1.0, "absolute"), "norm must be one of relative, scaled"),
])  # fmt: skip
def test_bad_arguments(arguments, message):
    for f in (error_bounds.error_bound, error_bounds.sup_error):
        refuses(message, f, *arguments)
