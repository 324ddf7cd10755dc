"""Projections: what they draw, and their closed forms against mpmath and definitions."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from refusals import refuses
from scipy.special import factorial, poch
from small import few, summand

from approx import parse
from approx.method.filling import least_size
from approx.projections import (
    PROJECTIONS,
    Antithetic,
    Fixed,
    Hadamard,
    MomentMatched,
    Orthogonal,
    Regularized,
    Simplex,
    ZeroMean,
)
from approx.projections.rotated import STRETCH, _hypergeometric, haar, log_hyp0f1
from approx.projections.summand import Entries, Keys, log_cosh
from approx.random_features.positive import Positive

# What is drawn


@pytest.mark.parametrize(("count", "d"), [(7, 3), (3, 7), (6, 3), (1, 1)])
@pytest.mark.parametrize("projection", [Orthogonal(), Regularized()])
def test_orthogonal_blocks(projection, count, d):
    omega, _ = projection.draw(count, d, np.random.default_rng(0))
    for start in range(0, count, d):
        block = omega[start : start + d]
        gram = block @ block.T
        assert np.abs(gram - np.diag(np.diag(gram))).max() < 1e-12 * (1 + np.diag(gram).max())
    if isinstance(projection, Regularized):
        np.testing.assert_allclose(np.linalg.norm(omega, axis=1), math.sqrt(d), rtol=1e-14)


@pytest.mark.parametrize(("count", "d"), [(7, 3), (3, 7), (2, 2), (1, 4)])
def test_simplex_blocks(count, d):
    omega, _ = Simplex().draw(count, d, np.random.default_rng(0))
    unit = omega / np.linalg.norm(omega, axis=1, keepdims=True)
    start = 0
    for size, number in Simplex().blocks(count, d):
        for _ in range(number):
            gram = unit[start : start + size] @ unit[start : start + size].T
            if size > 1:
                want = np.where(np.eye(size), 1.0, -1 / (size - 1))
                np.testing.assert_allclose(gram, want, atol=1e-13)
            start += size
    assert start == count


@pytest.mark.parametrize(("count", "d"), [(4, 3), (20, 3), (2, 1)])
def test_matched_moments(count, d):
    omega, _ = MomentMatched().draw(count, d, np.random.default_rng(0))
    np.testing.assert_allclose(omega.mean(axis=0), 0, atol=1e-13)
    np.testing.assert_allclose(omega.T @ omega / count, np.eye(d), atol=1e-13)
    omega, _ = ZeroMean().draw(count, d, np.random.default_rng(0))
    np.testing.assert_allclose(omega.mean(axis=0), 0, atol=1e-14)


def test_moment_matching_needs_more_frequencies_than_coordinates():
    x = np.eye(4)
    for spec in ("positive(m=4{})", "poisson(m=4{})", "generalized_exponential(m=4{})",
                 "hyperbolic(m=8{})", "angular_hybrid(m=32{})"):  # fmt: skip
        method = parse(spec.format(", projection='moment_matched'"))
        for use, Q in ("approximate", x), ("moments", x), ("covariance", x[:1]):
            refuses(r"needs m >= \d+ at width 4, got \d+", getattr(method, use), Q, x)
        assert least_size(method, 4) == 5 * method.sized_by.step
    for template, one in (("positive(projection='moment_matched')", 1),
                          ("angular_hybrid(projection='moment_matched')", 8)):  # fmt: skip
        assert parse(template).within(8 * one, n=9, l=9, d=4) is None
        assert parse(template).within(10 * one, n=9, l=9, d=4).m == 5 * one


@pytest.mark.parametrize("d", [1, 4, 8])
def test_hadamard_rows(d):
    omega, _ = Hadamard().draw(d, d, np.random.default_rng(0))
    np.testing.assert_allclose(omega @ omega.T, d * np.eye(d), atol=1e-12)


@pytest.mark.parametrize("projection", PROJECTIONS.values())
def test_weights_and_shapes(projection):
    omega, weights = projection.draw(9, 3, np.random.default_rng(0))
    assert omega.shape == (9, 3)
    np.testing.assert_allclose(weights, 1 / 9)
    blocks = projection.blocks(9, 3)
    assert sum(size * number for size, number in blocks) == 9
    assert projection.blocks(1, 3) == [(1, 1)]


def test_haar_is_uniform_in_its_first_entry():
    """E q₁₁ = 0 and E q₁₁² = 1/d; LAPACK's own sign is always −1."""
    d, count = 3, 4000
    rng = np.random.default_rng(0)
    first = np.array([haar(d, rng)[0, 0] for _ in range(count)])
    assert abs(first.mean()) <= 5 * math.sqrt(1 / d / count)
    # E q⁴ = 3/(d(d+2)) for a coordinate of a uniform direction
    assert abs(np.mean(first**2) - 1 / d) <= 5 * math.sqrt((3 / (d * (d + 2)) - 1 / d**2) / count)


# Closed forms


@given(d=st.integers(1, 128), x=st.floats(-20, 60))
def test_orthogonal_covariance_is_the_hypergeometric_function(d, x):
    with mpmath.workdps(60):
        want = float(mpmath.exp(-x) * mpmath.hyp1f1(d, mpmath.mpf(d) / 2, mpmath.mpf(x) / 2) - 1)
    rho = summand(abs(x), d, paired=x < 0, imaginary=x < 0)
    found = Orthogonal().pair(rho, d)[0, 0]
    # the polynomial alternates for x > 0: |1F1(−d/2; d/2; −x/2)| ≤ e^{|x|/2}, and for x > 0 the
    # factor e^{−x/2} undoes that; for x < 0 both factors are positive
    assert found == pytest.approx(want, rel=1e-10, abs=1e-11)


@few
@given(d=st.integers(2, 64), x=st.floats(0.01, 40), share=st.floats(0, 1), waves=st.booleans())
def test_simplex_covariance_is_its_integral(d, x, share, waves):
    size = 2 + round(share * (d - 2))
    rho = summand(min(x, 12.0) if waves else x, d, paired=waves, imaginary=waves)
    x = float(rho.dot[0, 0])
    found = Simplex().pair(rho, size)[0, 0]
    with mpmath.workdps(30):

        def term(phi, c):
            inner = mpmath.hyp1f1(d, mpmath.mpf(d) / 2, (1 + c * mpmath.sin(phi)) * x / 2)
            return mpmath.sin(phi) ** (d - 1) * inner

        cosines = [-1 / mpmath.mpf(size - 1)] * 1 + ([1 / mpmath.mpf(size - 1)] if waves else [])
        mass = mpmath.quad(lambda phi: mpmath.sin(phi) ** (d - 1), [0, mpmath.pi / 2, mpmath.pi])
        top = sum(
            mpmath.quad(lambda phi, c=c: term(phi, c), [0, mpmath.pi / 2, mpmath.pi])
            for c in cosines
        )
        want = float(mpmath.exp(-x) * top / mass / len(cosines) - 1)
    # as for orthogonal frequencies; the variance it is added to is e^{|x|}
    assert found == pytest.approx(want, rel=1e-9, abs=1e-12 * math.exp(abs(x)) if waves else 1e-10)


@example(b=128.0, z=1e18)
@example(b=172.0, z=-1.0)  # Γ(b) is not representable
@example(b=300.0, z=-1300.0)
@example(b=300.0, z=-1100.0)
@given(b=st.floats(0.5, 300), z=st.floats(-2e3, 1e7))
def test_log_hyp0f1(b, z):
    sign, log = log_hyp0f1(b, np.array([z]))
    with mpmath.workdps(60):
        want = mpmath.hyp0f1(mpmath.mpf(b), mpmath.mpf(z))
        size = float(mpmath.log(abs(want)))
    if z >= 0:
        assert sign[0] == 1
        assert log[0] == pytest.approx(size, rel=1e-12, abs=1e-12)
    else:  # a Bessel function near its zeros: absolute, at the scale of its envelope
        envelope = min(1.0, math.gamma(min(b, 100)) * max(1.0, -z) ** (0.25 - b / 2) * 4)
        assert abs(sign[0] * math.exp(log[0]) - float(want)) <= 1e-10 * max(envelope, 1e-3)


@given(x=st.floats(0, 1e5), d=st.integers(1, 256))
def test_regularised_estimates_are_below_the_truth(x, d):
    bias = Regularized().bias(summand(x, d), 4)[0, 0]
    assert -1 <= bias <= 1e-12
    if x < 0.05:  # −x²/(4d + 8) + O(x³)
        assert bias == pytest.approx(-(x**2) / (4 * d + 8), rel=0.05, abs=1e-13)


def test_matching_moments_of_all_directions_is_a_simplex_of_one_length():
    """At m = d + 1 both draw the corners of a regular simplex of length √d."""
    for x in (0.3, 2.0, 9.0):
        rho = summand(x, 4)
        np.testing.assert_allclose(
            MomentMatched().bias(rho, 5), Regularized().bias(rho, 5), rtol=1e-11
        )


# Keys


@pytest.mark.kernel
@pytest.mark.parametrize("c", [1.0, 1.5, 2.0, 32.0, 512.0])
@pytest.mark.parametrize("least", [0.0, -2.0])
def test_the_hypergeometric_function_of_two_orthogonal_frequencies(c, least):
    y = np.linspace(least, 150.0, STRETCH + 2).reshape(2, -1)  # of two stretches
    found, picked = _hypergeometric(c, y), ([0, 0, 1, 1], [0, 9, 8, -1])
    want = [float(mpmath.hyp1f1(-c, c, -mpmath.mpf(x))) for x in y[picked]]
    # every term of the polynomial is ≥ 0; SciPy's function promises less
    np.testing.assert_allclose(found[picked], want, rtol=1e-14 if c % 1 == 0 <= least else 1e-12)


@pytest.mark.kernel
def test_two_keys_under_orthogonal_frequencies():
    """The series against the plain sum over three indices, and its diagonal against ₁F₁."""
    rng = np.random.default_rng(0)
    for d in (2, 3, 5):
        U = rng.standard_normal((4, d)) * 1.2
        U[3] = 0.0
        rho = Keys(np.zeros(d), False, False, U)
        found = Orthogonal().pair(rho, d)
        entries = Entries(np.zeros(d), False, False, U, np.zeros((1, d)))
        np.testing.assert_allclose(
            np.diag(found), Orthogonal().pair(entries, d)[:, 0], rtol=1e-11, atol=1e-13
        )
        a, b, dot = U[0] @ U[0] / 2, U[1] @ U[1] / 2, U[0] @ U[1]
        c, delta = d / 2, a * b - dot**2 / 4
        i, j, k = np.ogrid[:32, :32, :16]
        terms = poch(c, k + i) * poch(c, k + j) / poch(c, 2 * k + i + j) * a**i * b**j * delta**k
        terms /= factorial(i) * factorial(j) * factorial(k) * poch(c - 0.5, k)
        want = math.exp(-a - b) * terms.sum() - 1  # all terms are positive
        assert found[0, 1] == pytest.approx(want, rel=1e-11)


def keys(x, d):
    """Return vectors of |u|² = x, of 0, of −u, one orthogonal to u, one short and one oblique."""
    rng = np.random.default_rng(d)
    U = np.zeros((6, d))
    U[0, 0], U[2, 0], U[3, 1], U[4, 0] = 1.0, -1.0, 1.0, 1e-3
    U[5] = rng.standard_normal(d)
    U[5] /= np.linalg.norm(U[5])
    return U * math.sqrt(x)


@pytest.mark.parametrize("x", [1.0, 98.0, 115.0, 200.0, 300.0, 301.0, 400.0])
@pytest.mark.parametrize("d", [2, 16, 64])
def test_covariance_of_orthogonal_keys_at_any_norm(x, d):
    """Finite, the variance on the diagonal, |cov| ≤ σσ′, and 0 with a key that is constant."""
    U = keys(x, d)
    method = parse(f"positive(m={d}, projection='orthogonal')")
    with np.errstate(all="raise", under="ignore"):
        found = method.covariance(np.zeros((1, d)), U)
    assert np.isfinite(found).all()
    variance = np.exp(method.moments(np.zeros((1, d)), U).log_relative_variance[0])
    # 1 + cov is a sum of positive terms that is right to some roundings: 100 eps
    np.testing.assert_allclose(np.diag(found), variance, rtol=1e-11, atol=1e-13)
    sigma = np.sqrt(variance)
    assert (np.abs(found) <= np.outer(sigma, sigma) * (1 + 1e-11) + 1e-13).all()
    assert np.abs(found[1]).max() <= 1e-13


def test_keys_that_are_waves_have_no_covariance_here():
    U = np.array([[30.0, 0.0], [0.1, 0.0]])
    assert Orthogonal().pair(Keys(np.zeros(2), True, True, U), 2) is None


@given(x=st.floats(-800, 800))
def test_log_cosh(x):
    with mpmath.workdps(40):
        want = float(mpmath.log1p(2 * mpmath.sinh(mpmath.mpf(x) / 2) ** 2))
    assert log_cosh(np.array(x)) == pytest.approx(want, rel=1e-14, abs=1e-300)


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.6], [1.5, -0.5]])
def test_fixed_weights_are_as_many_not_negative_and_sum_to_one(weights):
    refuses("weights must be 2 numbers >= 0 with sum 1, got", Fixed, [[1.0], [-1.0]], weights)


def test_names():
    method = parse("positive(m=8, projection='orthogonal')")
    assert method.projection == "orthogonal"
    for name, projection in PROJECTIONS.items():
        assert parse("positive").__class__(projection=projection).projection == name
    assert Antithetic().blocks(5, 2) == [(2, 2), (1, 1)]
    refuses("directions must be one of orthogonal, iid", Regularized, "simplex")


def test_independent_frequencies_have_no_covariance():
    assert (PROJECTIONS["iid"].pair(summand(2.0, 3), 4) == 0).all()


def test_fixed_frequencies_are_of_the_width_of_the_inputs():
    Q = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"omega must have d=3 columns, got shape \(5, 4\)"):
        Positive(projection=Fixed(np.ones((5, 4)))).approximate(Q, Q)
