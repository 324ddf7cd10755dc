"""Covariance between keys, expected errors of whole matrices, features needed."""

import dataclasses
import math

import numpy as np
import pytest

from analysis import inputs
from analysis.moments import expected_error, features_needed, normalised_moments
from analysis.pitfalls import RawQR
from approx import METHODS, exact, parse
from approx.projections import Fixed
from approx.random_features.positive import Positive

SPECS = (
    "positive(m=2)",
    "trigonometric(m=2)",
    "hyperbolic(m=2)",
    "generalized_exponential(m=2, a=-0.2)",
    "shifted_positive(m=2)",
    "generalized_trigonometric(m=2, a=-0.1)",
    "dense_exponential(m=2)",
)
SAMPLED = (
    "random_phase(m=4)",
    "random_phase(m=4, projection='zero_mean')",
    "angular_hybrid(m=12, signs=2)",
    "positive(m=4, projection='antithetic')",
    "trigonometric(m=8, projection='zero_mean')",
    "poisson(m=4)",
    "geometric(m=4)",
    "centered(positive(m=4))",
    "scatterbrain(positive(m=4), top_k(k=1))",
)


def nodes(d, count):
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grid = np.stack([g.ravel() for g in np.meshgrid(*[x] * d)], axis=1)
    weights = np.prod([g.ravel() for g in np.meshgrid(*[w / w.sum()] * d)], axis=0)
    return grid, weights


@pytest.mark.parametrize("spec", SPECS)
def test_covariance_of_keys_by_quadrature(spec):
    """E ρ_j ρ_l as an integral over one frequency in d = 2: no chance."""
    rng = np.random.default_rng(0)
    q, K = rng.standard_normal((1, 2)) * 0.4, rng.standard_normal((5, 2)) * 0.4
    method = parse(spec)
    grid, weights = nodes(2, 60)
    ratios = []
    for omega in grid:  # one frequency at a time
        one = dataclasses.replace(method, m=None, projection=Fixed(omega[None, :]))
        ratios.append(one.approximate(q, K).to_dense()[0] / exact.kernel(q, K)[0])
    ratios = np.array(ratios)
    mean = weights @ ratios
    want = (ratios * weights[:, None]).T @ ratios - np.outer(mean, mean)
    count = method.m // method.columns
    # 60 nodes a coordinate leave less than 1e-12 at |u_j + u_l| < 4; A = −0.2 narrows the law
    np.testing.assert_allclose(method.covariance(q, K) * count, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("spec", SAMPLED)
def test_covariance_of_keys_by_sampling(spec):
    rng = np.random.default_rng(5)
    Q, K = rng.standard_normal((3, 3)) * 0.3, rng.standard_normal((4, 3)) * 0.3
    method = parse(spec)
    T = 4000
    draws = [method.approximate(Q, K, rng=t).to_dense()[1] for t in range(T)]
    x = np.array(draws) / exact.kernel(Q, K)[1] - 1
    products = np.einsum("tj,tl->tjl", x, x)
    difference = products.mean(axis=0) - method.covariance(Q, K, row=1)
    stderr = products.std(axis=0) / math.sqrt(T)
    assert (np.abs(difference) <= 5 * stderr + 1e-14).all()


def test_covariance_of_methods_that_draw_nothing_is_zero():
    assert not parse("taylor(degree=2)").covariance([0.1], [[0.2], [0.3]]).any()


@pytest.mark.parametrize("spec", [*SPECS, *SAMPLED])
def test_the_diagonal_of_the_covariance_is_the_variance(spec):
    rng = np.random.default_rng(1)
    q, K = rng.standard_normal((1, 3)) * 0.5, rng.standard_normal((4, 3)) * 0.5
    method = parse(spec)
    variance = np.exp(method.moments(q, K).log_relative_variance[0])
    np.testing.assert_allclose(np.diag(method.covariance(q[0], K)), variance, rtol=1e-11)


def test_the_covariance_of_hybrid_features_in_a_plane_has_no_negative_weight():
    """There a chance that both keys lie on q's other side is 0: −10⁻¹⁷ times inf, with inf, is NaN.

    The covariances of P and of T at |q| |k| = 10⁴ are far beyond 10³⁰⁸.
    """
    angle = np.random.default_rng(0).uniform(-np.pi, np.pi, 20)
    K = 100 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    found = parse("angular_hybrid(m=8)").covariance([100.0, 0.0], K)
    assert not np.isnan(found).any()
    assert (np.diag(found) > 0).all()


@pytest.mark.parametrize("projection", ["hadamard", RawQR()])
def test_no_covariance_where_the_law_has_no_closed_form(projection):
    """One frequency of `hadamard` is not N(0, I): its entries are ±1 in d = 2."""
    for method in (Positive(1, projection), METHODS["trigonometric"](2, projection)):
        assert method.moments(np.eye(2), np.eye(2)) is None
        assert method.covariance([[0.5, 1.0]], np.eye(2)) is None


def test_covariance_is_of_one_query():
    with pytest.raises(ValueError, match="one query, got 2"):
        parse("positive(m=2)").covariance([[0.0], [1.0]], [[1.0]])
    simplex = parse("positive(m=2, projection='simplex')")
    assert simplex.covariance([[0.0, 1.0]], [[1.0, 0.0]]) is None


@pytest.mark.parametrize("projection", ["iid", "orthogonal", "antithetic"])
def test_expected_error_is_the_mean_over_draws(projection):
    rng = np.random.default_rng(2)
    Q, K = rng.standard_normal((4, 3)) * 0.3, rng.standard_normal((5, 3)) * 0.3
    method = parse(f"positive(m=12, projection='{projection}')")
    truth = exact.kernel(Q, K)
    squares = [
        np.sum((method.approximate(Q, K, rng=seed).to_dense() - truth) ** 2) for seed in range(2000)
    ]
    want = expected_error(method, Q, K) ** 2 * np.sum(truth**2)
    error = np.std(squares) / math.sqrt(len(squares))
    assert abs(np.mean(squares) - want) <= 5 * error


def test_expected_error_of_a_biased_method_is_its_error():
    Q, K = np.array([[0.5], [1.0]]), np.array([[0.3], [-1.0]])
    method = parse("taylor(degree=1)")
    truth = exact.kernel(Q, K)
    want = np.linalg.norm(method.approximate(Q, K).to_dense() - truth) / np.linalg.norm(truth)
    assert expected_error(method, Q, K) == pytest.approx(want, rel=1e-12)


def test_moments_of_random_phases_draw_nothing():
    """10¹² features need no memory to be judged; their variance is that of one over 10¹²."""
    Q, K = np.array([[0.5, 0.2]]), np.array([[-0.3, 0.4], [0.1, 0.0]])
    one, many = parse("random_phase(m=1)"), parse("random_phase(m=1_000_000_000_000)")
    logs = [method.moments(Q, K).log_relative_variance for method in (one, many)]
    np.testing.assert_allclose(logs[1], logs[0] - 12 * math.log(10), rtol=1e-13)
    np.testing.assert_allclose(many.covariance(Q, K) * 1e12, one.covariance(Q, K), rtol=1e-13)
    found = features_needed(parse("random_phase"), 1e-5, Q, K)
    assert found == math.ceil((expected_error(one, Q, K) / 1e-5) ** 2)


@pytest.mark.parametrize("spec", ["positive", "trigonometric", "positive(projection='orthogonal')"])
def test_features_needed_are_enough_and_no_more(spec):
    rng = np.random.default_rng(3)
    Q, K = rng.standard_normal((4, 3)) * 0.4, rng.standard_normal((5, 3)) * 0.4
    method = parse(spec)
    m = features_needed(method, 0.07, Q, K)
    assert expected_error(dataclasses.replace(method, m=m), Q, K) <= 0.07
    fewer = dataclasses.replace(method, m=m - method.step)
    assert expected_error(fewer, Q, K) > 0.07


@pytest.mark.parametrize("projection", ["antithetic", "orthogonal", "simplex", "zero_mean"])
@pytest.mark.parametrize("name", ["positive", "trigonometric", "hyperbolic", "random_phase"])
def test_features_needed_are_the_least_of_all(name, projection):
    """Against every m: where a coupling leaves a frequency alone, one more may raise the error."""
    rng = np.random.default_rng(4)
    template = parse(f"{name}(projection='{projection}')")
    rises = 0
    for size, d in ((0.05, 1), (0.05, 3), (0.4, 3), (0.9, 4)):
        Q, K = rng.standard_normal((2, d)) * size, rng.standard_normal((3, d)) * size
        sizes = np.arange(1, 25) * template.step
        errors = [expected_error(dataclasses.replace(template, m=int(m)), Q, K) for m in sizes]
        rises += sum(np.diff(errors) > 0)
        for target in {*errors, *(e * 1.01 for e in errors)}:
            first = sizes[np.argmax(np.array(errors) <= target)]
            more = features_needed(template, target, Q, K) - first
            if projection == "simplex" and name != "positive":
                assert 0 <= more <= 2 * d * template.step
            else:
                assert more == 0
    if projection == "antithetic" and name == "positive":
        assert rises > 10  # there is something to get wrong


def test_features_needed_of_a_method_with_a_part():
    rng = np.random.default_rng(3)
    Q, K = rng.standard_normal((4, 3)) * 0.4 + 0.3, rng.standard_normal((5, 3)) * 0.4
    centred = Q - Q.mean(axis=0), K - K.mean(axis=0)
    alone = features_needed(parse("hyperbolic"), 0.03, *centred)
    found = features_needed(parse("centered(hyperbolic)"), 0.03, Q, K)
    filled = (
        expected_error(parse(f"centered(hyperbolic(m={m}))"), Q, K) for m in (found, found - 2)
    )
    assert next(filled) <= 0.03 < next(filled)
    assert found != alone  # the error is relative to another matrix
    spec = "scatterbrain(positive{}, top_k(k=2))"
    found = features_needed(parse(spec.format("")), 0.03, Q, K)
    assert expected_error(parse(spec.format(f"(m={found})")), Q, K) <= 0.03
    assert expected_error(parse(spec.format(f"(m={found - 1})")), Q, K) > 0.03
    with pytest.raises(ValueError, match="has no size m"):
        features_needed(parse("centered(taylor(degree=1))"), 0.1, Q, K)


def test_features_needed_gives_up_where_nothing_is_known_or_enough():
    far = [[5.0]], [[5.0]]
    assert features_needed(parse("positive"), 0.1, *far, most=1000) is None
    farther = [[20.0]], [[20.0]]  # e^{1600/2}: the error itself is not representable
    assert features_needed(parse("positive"), 0.1, *farther, most=10**300) is None
    near = features_needed(parse("positive"), 0.1, [[8.0]], [[8.0]], most=10**300)
    assert near == pytest.approx(math.exp(256) / 0.01, rel=1e-11 + 256 * 1e-15)
    assert features_needed(parse("positive(projection='sobol')"), 0.1, [[0.1]], [[0.1]]) is None
    with pytest.raises(ValueError, match="has no size m"):
        features_needed(parse("taylor(degree=1)"), 0.1, [[0.1]], [[0.1]])


# Normalised attention


@pytest.mark.parametrize(
    "spec", ["positive(m=800)", "trigonometric(m=800)", "positive(m=400, projection='orthogonal')",
             "scatterbrain(positive(m=400), top_k(k=1))"]
)  # fmt: skip
def test_the_delta_method(spec):
    """Bias and variance of a ratio to first order: 20 % of the largest, at m ≥ 200 where R ≪ 1."""
    rng = np.random.default_rng(6)
    Q, K = rng.standard_normal((3, 4)) * 0.3, rng.standard_normal((5, 4)) * 0.3
    method = parse(spec)
    found = normalised_moments(method, Q, K)
    assert found.row_variance.max() < 0.03
    attention = exact.softmax(Q, K)
    T = 2000
    draws = np.empty((T, 3, 5))
    for t in range(T):
        estimate = method.approximate(Q, K, rng=t).to_dense()
        draws[t] = estimate / estimate.sum(axis=1, keepdims=True) - attention
    bias, variance = draws.mean(axis=0), draws.var(axis=0)
    stderr = np.sqrt(variance / T)
    assert (np.abs(bias - found.bias) <= 5 * stderr + 0.2 * np.abs(found.bias).max()).all()
    assert (np.abs(variance - found.variance) <= 0.2 * found.variance.max()).all()
    # rows sum to one, exact ones too
    np.testing.assert_allclose(found.bias.sum(axis=1), 0, atol=1e-12)


def test_the_delta_method_errs_by_the_largest_variance():
    """Its variance is off by about R_jj, several times ``row_variance``, and not its square."""
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((1, 3)) * 0.8, rng.standard_normal((6, 3)) * 0.8
    off = []
    for m, T in ((64, 20_000), (512, 4000)):
        method = parse(f"positive(m={m})")
        found = normalised_moments(method, Q, K)
        weights = np.empty((T, 6))
        for part in np.split(np.arange(T), 20):
            omega = rng.standard_normal((len(part), m, 3))
            phi = np.exp(omega @ K.T - np.square(K).sum(axis=1) / 2)
            estimate = np.einsum("tm,tml->tl", np.exp(omega @ Q[0]), phi)
            weights[part] = estimate / estimate.sum(axis=1, keepdims=True)
        ratio = weights.var(axis=0) / found.variance[0]
        off.append(np.abs(1 - ratio).max())
        largest = np.exp(method.moments(Q, K).log_relative_variance).max()
        # what is off is known to √((kurtosis − 1)/T), 0.04 or less: kurtosis 17 and 7
        assert 5 * found.row_variance[0] < largest / 2 < off[-1] < 4 * largest + 0.2
    assert off[1] < off[0]


def test_the_delta_method_of_biased_and_unknown_methods():
    Q, K = np.array([[0.5], [1.0]]), np.array([[0.3], [-1.0]])
    taylor = parse("taylor(degree=2)")
    found = normalised_moments(taylor, Q, K)
    dense = taylor.approximate(Q, K).to_dense()
    want = dense / dense.sum(axis=1, keepdims=True) - exact.softmax(Q, K)
    np.testing.assert_allclose(found.bias, want, atol=1e-14)
    assert not found.variance.any()
    assert normalised_moments(parse("positive(m=4, projection='simplex')"), Q, K) is not None
    wide = np.eye(3)
    assert normalised_moments(parse("positive(m=4, projection='simplex')"), wide, wide) is None
    assert normalised_moments(parse("leverage(m=2)"), Q, K) is None


def test_the_bias_of_a_ratio_is_noticed_without_the_covariance():
    """With independent keys (a diagonal covariance) the delta method fails the same check."""
    rng = np.random.default_rng(6)
    Q, K = rng.standard_normal((3, 4)) * 0.3, rng.standard_normal((5, 4)) * 0.3
    right = normalised_moments(parse("positive(m=800)"), Q, K)

    class Diagonal(Positive):
        def covariance(self, q, K, *, row=None):
            return np.diag(np.diag(super().covariance(q, K, row=row)))

    wrong = normalised_moments(Diagonal(m=800), Q, K)
    assert (np.abs(wrong.bias - right.bias) > 0.2 * np.abs(right.bias).max()).any()


def test_normalised_moments_of_orthogonal_features_on_real_tensors():
    """The third head of the bundled sample, where |q + k|² is 18 to 132 at t = 1."""
    x = list(inputs.sample().heads())[2].at_temperature(1.0)
    method = parse("positive(m=128, projection='orthogonal')")
    found = normalised_moments(method, x.Q[:8], x.K[:64])
    assert all(np.isfinite(part).all() for part in found)
    assert (found.variance > 0).all()
