"""Covariance between keys, without chance where there is a quadrature."""

import dataclasses
import math

import numpy as np
import pytest
from small import FEATURES, assert_covariance, nodes

from analysis.advice.pitfalls import RawQR
from analysis.moments import expected_error, features_needed
from approx import METHODS, parse
from approx.estimate import exact
from approx.projections import Fixed
from approx.random_features.positive import Positive


def family(name):
    """Return four features of a family, None if no covariance is known of them."""
    method = METHODS[name](m=4)
    return None if method.covariance([[0.5, 0.2]], np.eye(2)) is None else method


KNOWN = [name for name in FEATURES if family(name)]
SPECS = (  # an integral over one frequency
    "generalized_exponential(m=2, a=-0.2)",
    "generalized_trigonometric(m=2, a=-0.1)",
    *(f"{name}(m=2)" for name in KNOWN if family(name).composed and "general" not in name),
)
SAMPLED = (
    "random_phase(m=4, projection='zero_mean')",
    "angular_hybrid(m=12, signs=2)",
    "positive(m=4, projection='antithetic')",
    "positive(m=3, projection='orthogonal')",
    "hyperbolic(m=6, projection='orthogonal')",
    "trigonometric(m=8, projection='zero_mean')",
    "centered(positive(m=4))",
    "scatterbrain(positive(m=4), top_k(k=1))",
    *(f"{name}(m=4)" for name in KNOWN if not family(name).composed),
)


@pytest.mark.parametrize("spec", SPECS)
def test_covariance_of_keys_by_quadrature(spec):
    """E ρ_j ρ_l as an integral over one frequency in d = 2: no chance."""
    rng = np.random.default_rng(0)
    q, K = rng.standard_normal((1, 2)) * 0.4, rng.standard_normal((5, 2)) * 0.4
    method = parse(spec)
    grid, weights = nodes(2, 60)
    every = dataclasses.replace(method, m=None, projection=Fixed(grid))
    left, right, log = every.approximate(q, K).scaled_factors()
    # a column or two for each frequency; each frequency alone is one, together they are an average
    terms = (right * left[0]).reshape(len(K), -1, len(grid)).sum(axis=1) * len(grid)
    ratios = (terms * np.exp(log[0])).T / exact.kernel(q, K)[0]
    mean = weights @ ratios
    want = (ratios * weights[:, None]).T @ ratios - np.outer(mean, mean)
    count = method.m // method.per_frequency
    # 60 nodes a coordinate leave less than 1e-12 at |u_j + u_l| < 4; A = −0.2 narrows the law
    np.testing.assert_allclose(method.covariance(q, K) * count, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("spec", SAMPLED)
def test_covariance_of_keys_by_sampling(spec):
    rng = np.random.default_rng(5)
    Q, K = rng.standard_normal((3, 3)) * 0.3, rng.standard_normal((4, 3)) * 0.3
    assert_covariance(parse(spec), Q, K, 1)


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


def test_covariance_is_of_one_query_and_known_without_draws():
    with pytest.raises(ValueError, match="one query, got 2"):
        parse("positive(m=2)").covariance([[0.0], [1.0]], [[1.0]])
    simplex = parse("positive(m=2, projection='simplex')")
    assert simplex.covariance([[0.0, 1.0]], [[1.0, 0.0]]) is None
    assert "regularized" not in KNOWN
    assert len(KNOWN) > 9
    assert not parse("taylor(degree=2)").covariance([0.1], [[0.2], [0.3]]).any()


def test_moments_of_random_phases_draw_nothing():
    """10¹² features need no memory to be judged; their variance is that of one over 10¹²."""
    Q, K = np.array([[0.5, 0.2]]), np.array([[-0.3, 0.4], [0.1, 0.0]])
    one, many = parse("random_phase(m=1)"), parse("random_phase(m=1_000_000_000_000)")
    logs = [method.moments(Q, K).log_relative_variance for method in (one, many)]
    np.testing.assert_allclose(logs[1], logs[0] - 12 * math.log(10), rtol=1e-13)
    np.testing.assert_allclose(many.covariance(Q, K) * 1e12, one.covariance(Q, K), rtol=1e-13)
    found = features_needed(parse("random_phase"), 1e-5, Q, K)
    assert found == math.ceil((expected_error(one, Q, K) / 1e-5) ** 2)
