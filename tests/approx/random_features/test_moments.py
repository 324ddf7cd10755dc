"""Bias and variance: Monte Carlo, every draw by its factors, against closed forms."""

import dataclasses
import math
from typing import ClassVar

import numpy as np
import pytest
from small import points

from analysis.moments.simulation import monte_carlo
from approx import METHODS, Approximation, Moments, Parts, parse
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate.corrections import Support
from approx.estimate.distances import squared_distances
from approx.method import Method, generator
from approx.method.prices import entries
from approx.random_features.positive import Positive
from approx.sparse.support import SupportMethod

EPS = np.finfo(float).eps
DRAWS, M = 300, 128
BOUND = 5.0  # |z|: two-sided 6·10⁻⁷ for one entry, if it is normal


# The laws of one frequency, relative to exp(q·k): variance and fourth central moment


def positive_law(Q, K):
    """X = e^{g − z²/2}, g ~ N(0, z²): E Xⁿ = e^{n(n−1)z²/2}."""
    z2 = squared_distances(Q, -K)
    return np.expm1(z2), np.exp(6 * z2) - 4 * np.exp(3 * z2) + 6 * np.exp(z2) - 3


def trigonometric_law(Q, K):
    """X = e^{D²/2} cos g, g ~ N(0, D²), with E cos(ng) = e^{−n²D²/2}.

    cos² = (1 + cos 2g)/2        →  E X² = (e^{D²} + e^{−D²})/2
    cos³ = (3 cos g + cos 3g)/4  →  E X³ = (3e^{D²} + e^{−3D²})/4
    cos⁴ = (3 + 4 cos 2g + cos 4g)/8  →  E X⁴ = (3e^{2D²} + 4 + e^{−6D²})/8
    """
    d2 = squared_distances(Q, K)
    second = np.cosh(d2)
    third = (3 * np.exp(d2) + np.exp(-3 * d2)) / 4
    fourth = (3 * np.exp(2 * d2) + 4 + np.exp(-6 * d2)) / 8
    return second - 1, fourth - 4 * third + 6 * second - 3


LAWS = {"positive": positive_law, "trigonometric": trigonometric_law}


@pytest.mark.parametrize("size", [0.3, 1.0])
def test_fourth_moments_by_quadrature(size):
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    x = {
        "positive": np.exp(nodes * size - size**2 / 2),
        "trigonometric": math.exp(size**2 / 2) * np.cos(nodes * size),
    }
    at = {"positive": ([[0.0]], [[size]]), "trigonometric": ([[0.0]], [[size]])}
    for name, law in LAWS.items():
        variance, fourth = law(*map(np.array, at[name]))
        # e^{4g} at 60 nodes is exact; the formulas cancel from e⁶ to 10⁻³ at worst: 10⁶ eps
        assert weights @ (x[name] - 1) ** 2 == pytest.approx(variance[0, 0], rel=1e6 * EPS)
        assert weights @ (x[name] - 1) ** 4 == pytest.approx(fourth[0, 0], rel=1e6 * EPS)


# The check


@dataclasses.dataclass(frozen=True)
class Plain(Method):
    """A method of which nothing but its estimates and moments is known.

    So `monte_carlo` builds the factors of every draw: what is checked is `approximate`.
    """

    name: ClassVar[str] = "plain"
    deterministic: ClassVar[bool] = False

    of: Method

    @property
    def uses_rng(self):
        return self.of.uses_rng

    def evaluate(self, q, k, mask, rng):
        return self.of.evaluate(q, k, mask, rng)

    def entry_moments(self, q, k, mask):
        return self.of.moments(q, k)


def scores(method, law, count, X, *, share=1.0):
    """Return the largest |z| of the sample mean and of the sample variance over all pairs of X.

    The mean of ``count`` frequencies has fourth central moment (μ₄ + 3(count − 1)σ⁴)/count³, and
    the sample variance of T draws has variance (μ₄ − σ⁴(T − 3)/(T − 1))/T. ``share`` is the
    probability that an entry is not replaced by exp(q·k), where the support is random.
    """
    found = monte_carlo(Plain(method), X, X, draws=DRAWS, rng=0)
    one, fourth = law(X, X)
    fourth = share * (fourth + 3 * (count - 1) * one**2) / count**3
    one = share * one / count
    spread = np.sqrt(np.maximum(fourth - one**2 * (DRAWS - 3) / (DRAWS - 1), 0) / DRAWS)
    difference = found.variance - np.exp(method.moments(X, X).log_relative_variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        # where nothing varies, a sample variance is the square of rounding
        z = np.where(np.abs(difference) < (1e4 * EPS) ** 2, 0.0, difference / spread)
    return float(np.abs(found.z).max()), float(np.abs(z).max())


@pytest.mark.parametrize("d", [1, 2, 4, 16])
@pytest.mark.parametrize("name", LAWS)
def test_mean_and_variance(name, d):
    method = METHODS[name](m=M)
    assert max(scores(method, LAWS[name], M // method.per_frequency, points(d))) <= BOUND


@pytest.mark.parametrize(
    ("d", "sparse"),
    [(1, "top_k(1)"), (4, "sliding_window(2)")],
)
@pytest.mark.parametrize("name", LAWS)
def test_mean_and_variance_off_a_support(name, sparse, d):
    method = Scatterbrain(METHODS[name](m=M), parse(sparse))
    support = parse(sparse).approximate(points(d), points(d)).to_dense() > 0
    moments = method.moments(points(d), points(d))
    assert (moments.log_relative_variance[support] == -np.inf).all()
    assert np.isfinite(moments.log_relative_variance[~support]).any()
    count = M // method.low_rank.per_frequency

    def law(Q, K):
        return tuple(np.where(support, 0.0, x) for x in LAWS[name](Q, K))

    assert max(scores(method, law, count, points(d))) <= BOUND


# Scatterbrain with a random support


@dataclasses.dataclass(frozen=True)
class HalfSpace(SupportMethod):
    """The keys on one side of a random plane: each with probability ½."""

    name: ClassVar[str] = "half_space"
    deterministic: ClassVar[bool] = False

    def pattern(self, Q, K, mask, rng):
        chosen = np.flatnonzero(K @ generator(rng).standard_normal(K.shape[1]) > 0)
        return np.arange(len(Q) + 1) * len(chosen), np.tile(chosen, len(Q))

    def priced(self, shape):
        return entries(shape.l, shape)


class Halved(Scatterbrain):
    """Scatterbrain on a HalfSpace, with its moments: those of the features, times 1 − p = ½."""

    def entry_moments(self, q, k, mask):
        low = self.low_rank.moments(q, k)
        return Moments(low.relative_bias, low.log_relative_variance - math.log(2))


def test_a_random_support_halves_the_variance():
    method = Halved(Positive(m=2), HalfSpace())
    assert max(scores(method, positive_law, 2, points(4), share=0.5)) <= BOUND


# A bug that no line of code has


class BySizeOfEstimate(Scatterbrain):
    """A bug: the support holds the largest estimates, not the largest entries."""

    def evaluate(self, q, k, mask, rng):
        low = self.low_rank.evaluate(q, k, mask, rng).low
        largest = Approximation(low).to_dense().argmax(axis=1)
        support = self.sparse.support(q, k, mask, None).matrix.copy()
        support.indices[:] = largest
        support.data[:] = np.einsum("id,id->i", q, k[largest])
        return Parts(low, Support(support))


@pytest.mark.parametrize("name", LAWS)
def test_a_support_from_the_estimate_is_noticed(killed, name):
    """By its mean, and off the honest support too, where the honest variance is not zero."""
    Q, K = np.random.default_rng(1).uniform(-0.4, 0.4, (2, 4, 2))
    parts = METHODS[name](m=4), parse("top_k(1)")
    found = monte_carlo(BySizeOfEstimate(*parts), Q, K, draws=DRAWS, rng=0)
    honest = monte_carlo(Scatterbrain(*parts), Q, K, draws=DRAWS, rng=0)
    assert np.abs(honest.z).max() <= BOUND
    assert np.abs(found.z[honest.mean_stderr > 0]).max() > BOUND
    assert found.p_value < 1e-6 < honest.p_value
    killed(f"support of the largest estimates, {name}", np.abs(found.z).max())
