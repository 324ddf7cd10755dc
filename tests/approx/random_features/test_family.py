"""Random features: golden values, families that are equal, optima, the leverage proposal."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special
from hypothesis import given, strategies as st
from small import summand

from approx import parse
from approx.projections.summand import Entries, gaussian_log_variance
from approx.random_features.dense_exponential import balance
from approx.random_features.features import Frame
from approx.random_features.generalized_exponential import (
    GeneralizedExponential,
    optimal_tilt,
    second_moments,
)
from approx.random_features.generalized_trigonometric import optimal_wave_tilt
from approx.random_features.geometric import optimal_rate
from approx.random_features.hyperbolic import Hyperbolic
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric

q = np.array([[0.5, 0.3, 0.4, 0.2]])
k = np.array([[0.4, 0.6, -0.2, 0.3]])
EXACT = 1.4333294145603403


def variance(method, Q=q, K=k):
    return np.exp(method.moments(Q, K).log_relative_variance)


@pytest.mark.parametrize(("method", "golden"), [
    (Positive(m=1), 5.753088798531287),
    (Hyperbolic(m=2), 2.4505845925633746),
    (Trigonometric(m=2), 0.11249823075003052),
    (GeneralizedExponential(m=1), 2.2129000032907866),
    (Positive(m=4), 2.954834172872 / EXACT**2),
    (Positive(m=4, projection="orthogonal"), 2.663311320548 / EXACT**2),
    (Positive(m=4, projection="simplex"), 2.199015028110 / EXACT**2),
])  # fmt: skip
def test_golden_variances(method, golden):
    # given to 12 digits and more; the sums have fewer than 100 roundings
    assert variance(method)[0, 0] == pytest.approx(golden, rel=1e-12)


def clouds():
    """Return Q, K that are random, of mean 0, the same, the same in reverse, and opposite axes."""
    rng = np.random.default_rng(4)
    Q, K = rng.standard_normal((2, 6, 3)) * 0.4
    axes = np.vstack([np.eye(3), -np.eye(3)]) * 0.7
    return {
        "free": (Q, K), "centred": (Q - Q.mean(axis=0), K - K.mean(axis=0)), "same": (Q, Q),
        "reversed": (Q, Q[::-1]), "axes": (axes, 0 * axes[:1]),
    }  # fmt: skip


@pytest.mark.parametrize(("spec", "same", "inputs", "draw"), [
    # A = 0, pairs ±ω, no shift: for the same draw, so the same estimate
    ("generalized_exponential(m=6, a=0.0)", "positive(m=6)", "free", True),
    ("generalized_trigonometric(m=4, a=0.0)", "trigonometric(m=4)", "free", True),
    ("positive(m=12, projection='antithetic')", "hyperbolic(m=12)", "free", True),
    ("shifted_positive(m=6)", "positive(m=6)", "centred", True),
    ("shifted_positive(m=4)", "centered(positive(m=4))", "free", False),
    ("shifted_positive(m=4, a=None)", "centered(generalized_exponential(m=4))", "free", False),
    # cosh takes each value twice
    ("hyperbolic(m=24, projection='antithetic')", "hyperbolic(m=12)", "free", False),
    # M_q = M_k: T = I
    ("dense_exponential(m=4)", "dense_exponential(m=4, form='sderf')", "same", False),
    # mean (q + k)(q + k)ᵀ a multiple of I: A = aI
    ("dense_exponential(m=4, form='sderf')", "generalized_exponential(m=4)", "axes", False),
    # mean q_c² = mean k_c²: the diagonal T is I
    ("dense_exponential(m=4, form='saderf')", "generalized_exponential(m=4)", "reversed", False),
])  # fmt: skip
def test_methods_with_nothing_to_choose_are_equal(spec, same, inputs, draw):
    Q, K = clouds()[inputs]
    found, want = (log_variance(x, Q, K) for x in (spec, same))
    close = 1e-9 if inputs == "same" else 1e-12  # T has a ridge
    np.testing.assert_allclose(found, want, rtol=close, atol=close)
    if draw:
        found, want = (parse(x).approximate(Q, K, rng=0).to_dense() for x in (spec, same))
        np.testing.assert_allclose(found, want, rtol=1e-12)


def log_variance(spec, Q, K):
    return parse(spec).moments(Q, K).log_relative_variance


@given(phi=st.floats(0.01, 30), d=st.integers(1, 128))
def test_the_tilt_is_the_minimum_of_the_mean_log_second_moment(phi, d):
    def mean_log(A):
        y = 2 * phi * d * (1 - 4 * A) / (1 - 8 * A)
        return d * math.log(1 - 4 * A) - d / 2 * math.log(1 - 8 * A) - phi * d + y

    best = optimal_tilt(phi)
    found = scipy.optimize.minimize_scalar(
        mean_log, bounds=(3 * best - 0.01, 0.1), method="bounded", options={"xatol": 1e-10}
    )
    # a minimiser of values with relative error eps is known to √eps of its scale
    assert abs(found.x - best) < 1e-6 * (1 + abs(best))


def test_the_mean_squared_sum_is_the_mean():
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((3, 4)), rng.standard_normal((5, 4)) + 1
    every = [float(np.sum((a + b) ** 2)) for a in Q for b in K]
    assert second_moments(Frame(Q, K)).sum() == pytest.approx(np.mean(every), rel=1e-13)


@given(x=st.floats(1e-12, 40), A=st.floats(-3, 0.1), d=st.integers(1, 64), paired=st.booleans())
def test_log_variance_against_mpmath(x, A, d, paired):
    with mpmath.workdps(60):
        X, a = mpmath.mpf(x), mpmath.mpf(A)
        y = 2 * X * (1 - 4 * a) / (1 - 8 * a)
        factor = (1 + mpmath.exp(y)) / 2 if paired else mpmath.exp(y)
        moment = (1 - 4 * a) ** d * (1 - 8 * a) ** (-mpmath.mpf(d) / 2) * mpmath.exp(-X) * factor
        want = float(mpmath.log(moment - 1)) if moment > 1 else -math.inf
    found = gaussian_log_variance(summand(x, d, paired=paired, A=A))[0, 0]
    # log E ρ² is a sum of terms up to d·log(25) and 9x: what rounding leaves of E ρ² − 1
    noise = math.log(4e-15 * (4 * d + 10 * x + 1))
    if want < noise + 1:
        assert found <= noise + 2
    else:  # |log(1 + e)| ≤ 2|e| for |e| ≤ 1/e
        assert abs(found - want) <= 2 * math.exp(noise - want) + 1e-13


def test_a_tilt_below_one_eighth():
    for a in (0.2, math.nan, "x"):
        with pytest.raises(ValueError, match="a must be finite and < 1/8, got"):
            GeneralizedExponential(m=2, a=a)
    with pytest.raises(TypeError, match="a must be a number, got"):
        parse("generalized_trigonometric(a=[1.0])")


# Parameters fitted to the inputs


def skewed(seed, centre=0.0):
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((2, 4, 4))
    return [rng.standard_normal((30, 4)) @ m * 0.3 + centre * rng.standard_normal(4) for m in mix]


def test_the_transform_balances_queries_and_keys():
    """TᵀT = G minimises tr(G M_q) + tr(G⁻¹ M_k); the minimum is 2‖M_q^{1/2} M_k^{1/2}‖_*."""
    Q, K = skewed(3)
    T, inverse = balance(Q, K)
    np.testing.assert_allclose(T @ inverse, np.eye(4), atol=1e-12)
    np.testing.assert_allclose((Q @ T) @ (K @ inverse).T, Q @ K.T, atol=1e-12)
    M_q, M_k = Q.T @ Q / len(Q), K.T @ K / len(K)
    found = np.trace(T @ T @ M_q) + np.trace(inverse @ inverse @ M_k)
    roots = [scipy.linalg.sqrtm(M).real for M in (M_q, M_k)]
    nuclear = np.linalg.svd(roots[0] @ roots[1], compute_uv=False).sum()
    assert found == pytest.approx(2 * nuclear, rel=1e-7)  # a ridge of 1e-8


def test_the_diagonal_transform_is_the_best_diagonal():
    Q, K = skewed(4)
    frame = parse("dense_exponential(form='saderf')").frame(Q, K)
    psi = frame.a[0] / Q[0]

    def loss(log):
        return np.sum(np.square(Q) * np.exp(2 * log)) / len(Q) + np.sum(
            np.square(K) * np.exp(-2 * log)
        ) / len(K)

    best = scipy.optimize.minimize(loss, np.zeros(4), tol=1e-14)
    np.testing.assert_allclose(np.log(psi), best.x, atol=1e-6)


def test_the_dense_tilt_is_the_best_in_its_basis():
    Q, K = skewed(5)
    method = parse("dense_exponential(m=1, form='sderf')")
    frame = method.frame(Q, K)
    best = method.tilt(frame)

    def loss(A):
        rho = dataclasses.replace(method.entries(Q, K), A=A)
        return np.logaddexp(0, gaussian_log_variance(rho)).mean()

    found = scipy.optimize.minimize(
        loss, best + 0.02, method="L-BFGS-B", bounds=[(-2, 0.12)] * 4, tol=1e-15
    )
    assert loss(best) <= found.fun + 1e-12
    # a minimiser of values with relative error eps is known to √eps of its scale
    np.testing.assert_allclose(best, found.x, atol=1e-5)
    rotated = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    turned = Frame(frame.a @ rotated, frame.b @ rotated)
    other = Entries(method.tilt(turned), False, False, turned.a, turned.b)
    assert loss(best) <= np.logaddexp(0, gaussian_log_variance(other)).mean()


@given(square=st.floats(0, 60), d=st.integers(1, 64))
def test_the_tilt_of_waves_is_a_minimum(square, d):
    def loss(A):
        return gaussian_log_variance(summand(square, d, paired=True, A=A, imaginary=True))[0, 0]

    best = optimal_wave_tilt(square, d)
    for step in (1e-3, 1e-2):
        for other in (best - step, min(best + step, 0.1249)):
            assert np.logaddexp(0, loss(best)) <= np.logaddexp(0, loss(other)) + 1e-12


def test_waves_are_tilted_for_the_mean_square_of_q_minus_k():
    """Points far from 0 and near each other: that of q + k would be another."""
    rng = np.random.default_rng(4)
    Q, K = rng.standard_normal((2, 6, 3)) / 2 + 2
    method = parse("generalized_trigonometric(m=4)")
    square = np.mean([np.square(q - k).sum() for q in Q for k in K])
    want = optimal_wave_tilt(float(square), 3)
    assert -1 < want < 0.125
    np.testing.assert_allclose(method.tilt(method.frame(Q, K)), want, rtol=1e-12)


@given(r=st.floats(1e-6, 50))
def test_the_rate_of_counts_is_a_minimum(r):
    def loss(p):
        y = 2 * r / math.sqrt(1 - p)
        return math.log(scipy.special.i0e(y)) + y - math.log(p)

    best = optimal_rate(r)
    found = scipy.optimize.minimize_scalar(
        lambda x: loss(scipy.special.expit(x)),
        bracket=(scipy.special.logit(best) - 1, 3.0),
        tol=1e-12,
    )
    assert loss(best) <= found.fun + 1e-12 * (1 + abs(found.fun))


def test_poisson_rates_minimise_the_mean_log_second_moment():
    Q, K = (np.abs(x) for x in skewed(6))
    method = parse("poisson(nonnegative=False)")
    best = method.parameter(Frame(Q, K))

    def loss(log):
        rate = np.exp(log)
        return (rate + np.square(Q).mean(axis=0) * np.square(K).mean(axis=0) / rate).sum()

    found = scipy.optimize.minimize(loss, np.zeros(4), tol=1e-14)
    np.testing.assert_allclose(np.log(best), found.x, atol=1e-6)


def test_the_shift_is_the_mean():
    Q, K = skewed(7, 0.5)
    frame = parse("shifted_positive").frame(Q, K)
    u = (frame.a[:, None] + frame.b).reshape(-1, 4)  # q + k − μ over all pairs
    np.testing.assert_allclose(u.mean(axis=0), 0, atol=1e-13)
    np.testing.assert_allclose(
        frame.a @ frame.b.T + frame.row[:, None] + frame.column, Q @ K.T, atol=1e-13
    )


# Leverage


def test_the_leverage_proposal_has_the_least_error_of_all():
    """m·E‖·‖²_F = Z² − ‖exact‖²_F, Z by quadrature, against sampling, and below FAVOR+."""
    rng = np.random.default_rng(1)
    Q, K = rng.standard_normal((5, 1)) * 1.2, rng.standard_normal((6, 1)) * 1.2
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    phi = [np.exp(np.outer(x[:, 0], nodes) - np.square(x) / 2) for x in (Q, K)]
    Z = (weights / weights.sum()) @ np.prod([np.linalg.norm(p, axis=0) for p in phi], axis=0)
    truth = np.exp(Q @ K.T)
    want = Z**2 - np.sum(truth**2)
    m, T = 32, 220
    method = parse(f"leverage(m={m})")
    squares = np.array(
        [np.sum((method.approximate(Q, K, rng=t).to_dense() - truth) ** 2) for t in range(T)]
    )
    error = m * squares.std() / math.sqrt(T)
    # the estimated Z adds at most √(n·l)/4096 of E‖estimate‖²
    slack = m * math.sqrt(30) / 4096 * (np.sum(truth**2) + want / m)
    assert abs(m * squares.mean() - want) <= 5 * error + slack
    assert 5 * error + slack < 0.4 * want  # a mixture of all pairs has 1.5 times as much
    plain = np.sum(truth**2 * np.exp(log_variance("positive(m=1)", Q, K)))
    shifted = np.sum(truth**2 * np.exp(log_variance("shifted_positive(m=1)", Q, K)))
    assert want <= min(plain, shifted)


def test_the_leverage_proposal_is_accepted_by_uniforms_of_rng():
    """Where all uniforms are 0, the proposal is that of the first pair and nothing is rejected.

    The frequencies are then N(q_0 + k_0, 1) = N(0, 1). By other uniforms those near the points at
    2, of which there are eight on each side, are accepted with a probability of 1/8 or so.
    """

    class Zeros(np.random.Generator):
        def random(self, size):
            return np.zeros(size)

    m, X = 4000, np.array([[0.0], *[[2.0]] * 8])
    A = parse(f"leverage(m={m})").approximate(X, X, rng=Zeros(np.random.PCG64(0)))
    left, _, log = A.scaled_factors()
    log_phi = np.log(left[:2]) + log[:2, None]  # ωx − x²/2 at x = 0 and 2, plus what both share
    omega = (log_phi[1] - log_phi[0] + 2) / 2
    assert abs(omega.mean()) * math.sqrt(m) < 5
    assert abs(np.mean(omega**2) - 1) / math.sqrt(2 / m) < 5


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_query_far_below_the_largest_has_a_row_under_the_leverage_proposal(dtype):
    """Logits are 10⁴ for one query, at most 10 for another: each row has a scale of its own."""
    Q = np.array([[100.0], [0.1], [-100.0]], dtype)
    A = parse("leverage(m=4)").approximate(Q, np.array([[100.0], [99.0]], dtype), rng=0)
    np.testing.assert_array_equal(A.attend(np.ones(2, dtype)), 1)
    assert len(np.unique(A.row_log())) == 3


def mean_log_second_moment(method, Q, K):
    """Return the mean of log E ρ² over all pairs."""
    log_v = method.moments(Q, K).log_relative_variance + math.log(method.m)
    return np.logaddexp(0, log_v).mean()


@pytest.mark.parametrize(("seed", "centre"), [(0, 0.0), (1, 0.0), (2, 0.5)])
def test_more_freedom_is_never_worse(seed, centre):
    """The mean log second moment falls from FAVOR+ to FAVOR++ to FAVOR#."""
    Q, K = skewed(seed, centre)
    if centre == 0:
        Q, K = Q - Q.mean(axis=0), K - K.mean(axis=0)  # where ADERF's T is the optimum
    specs = ("dense_exponential(m=1)", "dense_exponential(m=1, form='sderf')",
             "generalized_exponential(m=1)", "positive(m=1)")  # fmt: skip
    moments = [mean_log_second_moment(parse(spec), Q, K) for spec in specs]
    assert moments == sorted(moments)
    diagonal = mean_log_second_moment(parse("dense_exponential(m=1, form='saderf')"), Q, K)
    assert moments[0] <= diagonal <= moments[2] + 1e-12
    shifted = mean_log_second_moment(parse("shifted_positive(m=1)"), Q, K)
    assert shifted <= moments[3] + 1e-12
