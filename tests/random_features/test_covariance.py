"""Covariance between keys, expected errors of whole matrices, features needed."""

import dataclasses
import math

import numpy as np
import pytest

from analysis.moments import expected_error, features_needed
from approx import exact, parse
from approx.projections import Fixed

SPECS = (
    "positive(m=2)",
    "trigonometric(m=2)",
    "hyperbolic(m=2)",
    "generalized_exponential(m=2, a=-0.2)",
    "shifted_positive(m=2)",
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


@pytest.mark.parametrize("spec", SPECS)
def test_the_diagonal_of_the_covariance_is_the_variance(spec):
    rng = np.random.default_rng(1)
    q, K = rng.standard_normal((1, 3)) * 0.5, rng.standard_normal((4, 3)) * 0.5
    method = parse(spec)
    variance = np.exp(method.moments(q, K).log_relative_variance[0])
    np.testing.assert_allclose(np.diag(method.covariance(q[0], K)), variance, rtol=1e-11)


def test_covariance_is_of_one_query_and_iid():
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


@pytest.mark.parametrize("spec", ["positive", "trigonometric", "positive(projection='orthogonal')"])
def test_features_needed_are_enough_and_no_more(spec):
    rng = np.random.default_rng(3)
    Q, K = rng.standard_normal((4, 3)) * 0.4, rng.standard_normal((5, 3)) * 0.4
    method = parse(spec)
    m = features_needed(method, 0.07, Q, K)
    assert expected_error(dataclasses.replace(method, m=m), Q, K) <= 0.07
    fewer = dataclasses.replace(method, m=m - method.step)
    assert expected_error(fewer, Q, K) > 0.07


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
