"""Bias and variance: Monte Carlo, every draw by its factors, against closed forms."""

import dataclasses
import math
from typing import ClassVar

import numpy as np
import pytest
from small import points

from analysis.moments.simulation import monte_carlo
from approx import METHODS, Moments
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate.distances import squared_distances
from approx.method import Method, generator
from approx.method.prices import entries
from approx.method.tags import RANDOM
from approx.random_features.positive import Positive
from approx.sparse.support import SupportMethod

EPS = np.finfo(float).eps


DRAWS, M = 300, 128


DRAWS, M = 300, 128


BOUND = 5.0  # |z|: two-sided 6·10⁻⁷ for one entry, if it is normal


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


@dataclasses.dataclass(frozen=True)
class Plain(Method):
    """A method of which nothing but its estimates and moments is known.

    So `monte_carlo` builds the factors of every draw: what is checked is `approximate`.
    """

    name: ClassVar[str] = "plain"

    of: Method

    def evaluate(self, q, k, mask, rng):
        return self.of.evaluate(q, k, mask, rng)

    def _moments(self, q, k, mask):
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


@dataclasses.dataclass(frozen=True)
class HalfSpace(SupportMethod):
    """The keys on one side of a random plane: each with probability ½."""

    name: ClassVar[str] = "half_space"
    tags = frozenset({RANDOM})

    def pattern(self, Q, K, mask, rng):
        chosen = np.flatnonzero(K @ generator(rng).standard_normal(K.shape[1]) > 0)
        return np.arange(len(Q) + 1) * len(chosen), np.tile(chosen, len(Q))

    def _price(self, shape):
        return entries(shape.l, shape)


class Halved(Scatterbrain):
    """Scatterbrain on a HalfSpace, with its moments: those of the features, times 1 − p = ½."""

    def _moments(self, q, k, mask):
        low = self.low_rank.moments(q, k)
        return Moments(low.relative_bias, low.log_relative_variance - math.log(2))


def test_a_random_support_halves_the_variance():
    method = Halved(Positive(m=2), HalfSpace())
    assert max(scores(method, positive_law, 2, points(4), share=0.5)) <= BOUND
