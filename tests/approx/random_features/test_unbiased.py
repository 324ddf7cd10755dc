"""Unbiasedness without chance: quadrature nodes for frequencies, enumeration of counts."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from small import FEATURES, nodes

from approx import parse
from approx.estimate import exact
from approx.projections import Fixed
from approx.random_features.angular_hybrid import AngularHybrid
from approx.random_features.dense_exponential import DenseExponential
from approx.random_features.generalized_exponential import GeneralizedExponential
from approx.random_features.generalized_trigonometric import GeneralizedTrigonometric
from approx.random_features.geometric import Geometric
from approx.random_features.poisson import Poisson
from approx.random_features.random_phase import RandomPhase
from approx.random_features.shifted_positive import ShiftedPositive

VARIANTS = {
    "generalized_exponential, a = 0.05": (GeneralizedExponential, {"a": 0.05}),
    "generalized_trigonometric, a = −0.1": (GeneralizedTrigonometric, {"a": -0.1}),
    "shifted and tilted": (ShiftedPositive, {"a": None}),
    "sderf": (DenseExponential, {"form": "sderf"}),
    "saderf": (DenseExponential, {"form": "saderf"}),
    "angular_hybrid": (AngularHybrid, {"signs": 2}),
}


def points(d):
    """Return Q, K with |q + k| from 0 to 3, and |q − k| ≤ 3."""
    u = np.random.default_rng(d).standard_normal((4, d))
    u *= np.array([3.0, 2.0, 1.0, 0.1])[:, None] / np.linalg.norm(u, axis=1, keepdims=True)
    return np.vstack([u / 2, -u / 2]), u / 2


def unbiased(family):
    """Return whether a family is a mean over frequencies alone, and has no bias."""
    return family.composed and not family(m=4).moments(*points(2)).relative_bias.any()


MAKERS = VARIANTS | {name: (kind, {}) for name, kind in FEATURES.items() if unbiased(kind)}


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", MAKERS)
def test_at_quadrature_nodes(name, d):
    """1e-12: 180 nodes leave e^{aω² + bω} no error beyond rounding, exponents stay below 40."""
    Q, K = points(d)
    family, fields = MAKERS[name]
    method = family(projection=Fixed(*nodes(d, 180)), **fields)
    ratio = method.approximate(Q, K, rng=0).to_dense() / exact.kernel(Q, K)
    assert np.abs(ratio - 1).max() <= 1e-12
    moments = method.moments(Q, K)
    assert np.abs(moments.relative_bias).max() <= 1e-12
    assert (moments.log_relative_variance == -np.inf).all() or not method.deterministic


def test_random_phases_at_quadrature_nodes(monkeypatch):
    """cos(a + b) cos(c + b) has no harmonic but the second: b = 0, π/2 average it exactly."""
    Q, K = points(1)
    fixed = Fixed(*nodes(1, 180))
    total = 0.0
    for phase in (0.3, 0.3 + math.pi / 2):
        monkeypatch.setattr(
            RandomPhase, "phases", lambda self, count, rng, b=phase: np.full(count, b)
        )
        total = total + RandomPhase(projection=fixed).approximate(Q, K, rng=0).to_dense() / 2
    assert np.abs(total / exact.kernel(Q, K) - 1).max() <= 1e-12


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("family", [Poisson, Geometric])
def test_counts_by_enumeration(monkeypatch, family, d, nonnegative):
    """Mean and second moment by summation over counts below 120 (d = 1) or 60: tails < 1e-16."""
    rng = np.random.default_rng(d)
    Q, K = rng.uniform(-0.7, 0.7, (2, 5, d))
    free = family(m=1, nonnegative=nonnegative)
    frame = free.frame(Q, K)
    parameter = free.parameter(frame)
    top = np.arange(120 if d == 1 else 60)
    pmf = [
        scipy.stats.poisson.pmf(top, x) if family is Poisson else x * (1 - x) ** top
        for x in parameter
    ]
    grid = np.array(list(itertools.product(top, repeat=d)), float)
    weights = np.array([math.prod(c) for c in itertools.product(*pmf)])
    keep = weights > 0
    grid, weights = grid[keep], weights[keep] / weights.sum()
    monkeypatch.setattr(family, "counts", lambda self, omega, parameter: omega)
    method = family(projection=Fixed(grid, weights), nonnegative=nonnegative)
    truth = exact.kernel(Q, K)
    assert np.abs(method.approximate(Q, K).to_dense() / truth - 1).max() <= 1e-12
    left, right, log = method.approximate(Q, K).scaled_factors()  # a column for each count
    columns = left * np.exp(log)[:, None] / weights
    each = columns.T[:, :, None] * right.T[:, None, :] / truth
    variance = np.einsum("r,rij->ij", weights, (each - 1) ** 2)
    known = np.exp(free.moments(Q, K).log_relative_variance)
    np.testing.assert_allclose(known, variance, rtol=1e-9, atol=1e-13)
    centred = each[:, 0] - 1
    covariance = np.einsum("r,rj,rl->jl", weights, centred, centred)
    np.testing.assert_allclose(free.covariance(Q, K, row=0), covariance, rtol=1e-9, atol=1e-12)


def test_counts_are_quantiles():
    omega = np.random.default_rng(0).standard_normal((20_000, 2))
    for method, law in (
        (Poisson(m=1), lambda x: scipy.stats.poisson(x)),
        (Geometric(m=1), lambda p: scipy.stats.geom(p, loc=-1)),
    ):
        parameter = np.array([0.3, 0.9])
        N = method.counts(omega, parameter)
        for c in range(2):
            frozen = law(parameter[c])
            u = scipy.stats.norm.cdf(omega[:, c])
            assert (frozen.cdf(N[:, c]) >= u - 1e-12).all()
            assert (frozen.cdf(N[:, c] - 1) < u + 1e-12).all()


def test_the_angular_hybrid_is_exact_at_both_ends():
    """θ = 0 and θ = π with |q| = |k|: λ̂ is 0 or 1 without error, and so is the part it picks."""
    Q = np.array([[0.8, -0.3]])
    for K in (Q, -Q):
        method = parse("angular_hybrid(m=8)")
        assert np.isneginf(method.moments(Q, K).log_relative_variance[0, 0])
        estimate = method.approximate(Q, K, rng=5).to_dense()
        # sums of 8 products of size up to e
        np.testing.assert_allclose(estimate, exact.kernel(Q, K), rtol=1e-13)
