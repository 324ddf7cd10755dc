"""Mean and variance of every family under every coupling against their closed forms."""

import math

import numpy as np
import pytest
from small import FEATURES, points

from analysis.moments import monte_carlo
from approx import METHODS, parse
from approx.projections import PROJECTIONS
from approx.testing import assert_moments

BOUND = 5.0
FAMILIES = {  # with the fields that matter; others as they are
    "generalized_trigonometric": "generalized_trigonometric(m=24, a=-0.05{})",
    "shifted and tilted": "shifted_positive(m=12, a=None{})",
    "sderf": "dense_exponential(m=12, form='sderf'{})",
    "saderf": "dense_exponential(m=12, form='saderf'{})",
    "aderf": "dense_exponential(m=12, form='aderf'{})",
    "poisson with signs": "poisson(m=12, nonnegative=False{})",
    "geometric with signs": "geometric(m=12, nonnegative=False{})",
    "angular_hybrid": "angular_hybrid(m=48, signs=3{})",
    "centred": "centered(positive(m=12{}))",
} | {
    name: f"{name}(m={12 * kind().sized_by.step}{{}})"
    for name, kind in FEATURES.items()
    if name not in ("generalized_trigonometric", "dense_exponential", "angular_hybrid")
}
CLOSED = [name for name in PROJECTIONS if name not in ("hadamard", "sobol", "halton")]
SHAPES = ("positive", "trigonometric", "hyperbolic", "generalized_exponential")


def near(d):
    """Return Q, K with |q ± k| ≤ 1; the axes among them are what catches raw QR."""
    x = points(d)
    return 0.8 * x, 0.9 * x + 0.15 / math.sqrt(d)


@pytest.mark.parametrize("name", FAMILIES)
def test_independent_frequencies(name):
    projection = ", projection='regularized_iid'" if name == "regularized" else ""
    draws = {"angular_hybrid": 2500, "poisson": 1500}.get(name, 400)
    assert_moments(parse(FAMILIES[name].format(projection)), *near(4), draws=draws)


@pytest.mark.parametrize(
    ("name", "projection", "d"),
    [
        *((name, projection, 4) for projection in CLOSED[1:] for name in SHAPES),
        ("random_phase", "antithetic", 4), ("positive", "regularized", 1),
    ],
)  # fmt: skip
def test_coupled_frequencies(name, projection, d):
    """1000 nearly normal draws are 8 standard errors from a variance that is 36 % off."""
    method = parse(FAMILIES[name].format(f", projection='{projection}'"))
    if method.moments(*near(d)) is None:
        assert projection == "moment_matched"  # no tilt
        assert name == "generalized_exponential"
        return
    assert_moments(method, *near(d), draws=2000 if projection == "simplex" else 1000)


@pytest.mark.parametrize("projection", ["antithetic", "zero_mean"])
@pytest.mark.parametrize("name", ["sderf", "aderf"])
def test_gaussian_couplings_of_a_dense_tilt(name, projection):
    method = parse(FAMILIES[name].format(f", projection='{projection}'"))
    assert_moments(method, *near(4))
    orthogonal = parse(FAMILIES[name].format(", projection='orthogonal'"))
    assert orthogonal.moments(*near(4)) is None  # its law does not turn with u


@pytest.mark.parametrize("projection", ["sobol", "halton"])
@pytest.mark.parametrize("name", ["positive", "trigonometric"])
def test_scrambled_points_are_unbiased_and_below_iid(name, projection):
    method = METHODS[name](m=64, projection=projection)
    Q, K = near(4)
    assert method.moments(Q, K) is None
    draws = 300
    found = monte_carlo(method, Q, K, draws=draws, rng=0)
    iid = np.exp(METHODS[name](m=64).moments(Q, K).log_relative_variance)
    # the sample's variance is at most that of iid draws, which gives a standard error on its side
    assert (np.abs(found.mean - 1) <= BOUND * np.sqrt(iid / draws) + 1e-12).all()
    assert (found.variance <= iid / 2 + 1e-24).all()


@pytest.mark.parametrize(
    ("name", "projection"),
    [("poisson", "antithetic"), ("poisson", "sobol"), ("geometric", "orthogonal"),
     ("geometric", "zero_mean")],
)  # fmt: skip
def test_counts_keep_their_law_under_couplings(name, projection):
    """No variance is known, but the estimate is unbiased: each ω is N(0, I) by itself."""
    Q, K = near(2)
    method = parse(f"{name}(m=16, projection='{projection}')")
    assert method.moments(Q, K) is None
    found = monte_carlo(method, Q, K, draws=500, rng=3)
    assert np.abs(found.z).max() <= BOUND


@pytest.mark.parametrize("d", [2, 3, 8])
def test_hadamard_is_near_regularized(d):
    """Its mean is that of fixed lengths √d where d is a power of two: within 2 % here, as known."""
    Q, K = near(d)
    method = parse("positive(m=24, projection='hadamard')")
    assert method.moments(Q, K) is None
    found = monte_carlo(method, Q, K, draws=500, rng=0)
    similar = parse("positive(m=24, projection='regularized')").moments(Q, K)
    slack = 0.02 + BOUND * np.sqrt(found.variance / 500)
    assert (np.abs(found.mean - 1 - similar.relative_bias) <= slack).all()
