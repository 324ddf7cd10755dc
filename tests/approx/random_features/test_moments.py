"""Bias and variance: Monte Carlo against closed forms, and bugs planted to see that it notices."""

import dataclasses
import itertools
import math
from typing import ClassVar

import numpy as np
import pytest
from small import points

from analysis.moments.simulation import monte_carlo
from approx import METHODS, Approximation, Moments, Parts, parse
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate import exact
from approx.estimate.corrections import Support
from approx.estimate.distances import squared_distances
from approx.estimate.low import Factors
from approx.method import Method, generator
from approx.method.prices import entries
from approx.projections import IID, Fixed, base
from approx.random_features import exponentials, trigonometric
from approx.random_features.features import RandomFeatures
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric
from approx.sparse.support import SupportMethod

EPS = np.finfo(float).eps
DRAWS, M = 600, 128
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


def half_space_scores(kind):
    return scores(kind(Positive(m=2), HalfSpace()), positive_law, 2, points(4), share=0.5)


def test_a_random_support_halves_the_variance():
    assert max(half_space_scores(Halved)) <= BOUND


# Planted bugs: each makes the same check fail


def changed(patch, owner, name, change):
    """Replace a function by what ``change`` makes of its result and arguments."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **kwargs: change(original, *args, **kwargs))


def squares(factor):
    """Return a planted bug: ω·x − factor·|x|²/2."""

    def plant(patch):
        def mutant(both, log, x):
            top, half = both(log, x)
            return top, factor * half

        changed(patch, exponentials, "maxima_and_half_squares", mutant)

    return plant


def two_omegas(patch):
    """Give the keys the frequencies in reverse: independent of those of the queries."""

    def mutant(logs, self, side):
        owner = dataclasses.replace(self, omega=self.omega[::-1].copy())
        return logs(owner if side is self.keys else self, side)

    changed(patch, exponentials.Exponentials, "_logs", mutant)


def no_normalisation(patch):
    def mutant(frequencies, self, Q, K, rng):
        omega, half = frequencies(self, Q, K, rng)
        return omega, 0 * half

    changed(patch, RandomFeatures, "frequencies", mutant)


def half_normalisation(patch):
    def mutant(frequencies, self, Q, K, rng):
        omega, half = frequencies(self, Q, K, rng)
        return omega, half - math.log(2) / 2

    changed(patch, RandomFeatures, "frequencies", mutant)


def epsilon(patch):
    def mutant(kernel, values, shift, *out):
        kernel(values, shift, *out)
        (*out, values)[0][...] += 1e-4

    for name in ("exp_rows", "_exp_into"):
        changed(patch, exponentials, name, mutant)


def raw_qr(patch):
    """Take Householder's Q as it comes: its first row always points to one side."""

    def mutant(draw, self, count, d, rng):
        blocks = [np.linalg.qr(rng.standard_normal((d, d)))[0].T for _ in range(count // d)]
        lengths = np.sqrt(rng.chisquare(d, (count, 1)))
        return np.concatenate(blocks) * lengths, np.full(count, 1 / count)

    changed(patch, IID, "draw", mutant)


def omegas(factor):
    def plant(patch):
        def mutant(draw, self, count, d, rng):
            omega, weights = draw(self, count, d, rng)
            return factor * omega, weights

        changed(patch, IID, "draw", mutant)

    return plant


def inputs_scaled(factor):
    """Return a planted bug: features of q and k over t = 1/factor² where √t is asked for."""

    def plant(patch):
        def mutant(frame, self, Q, K):
            return frame(self, factor * Q, factor * K)

        changed(patch, RandomFeatures, "frame", mutant)

    return plant


class Scaleless(Factors):
    def __init__(self, left, right, row_logs):
        super().__init__(left, right, 0 * row_logs)


def no_scale(module):
    return lambda patch: patch.setattr(module, "Factors", Scaleless)


def variances(factor):
    return lambda patch: changed(
        patch, base, "gaussian_log_variance", lambda f, rho: f(rho) + math.log(factor)
    )


def half_squares(factor):
    return lambda patch: changed(patch, trigonometric, "half_square", lambda f, X: factor * f(X))


def cosines_only(patch):
    def mutant(waves, X, omega, amplitude):
        y = waves(X, omega, amplitude)
        y[:, len(omega) :] = 0
        return y

    changed(patch, trigonometric, "waves", mutant)


MUTANTS = {
    "|x|² for |x|²/2": ("positive", squares(2)),
    "|x|²/2 left out": ("positive", squares(0)),
    "+|x|²/2 for −|x|²/2": ("positive", squares(-1)),
    "another omega for k": ("positive", two_omegas),
    "1/√m left out": ("positive", no_normalisation),
    "log scale dropped": ("positive", no_scale(exponentials)),
    "1e-4 added after the shift": ("positive", epsilon),
    "raw QR for omega": ("positive", raw_qr),
    "bandwidth times 2": ("positive", omegas(2.0)),
    "bandwidth times 2, trigonometric": ("trigonometric", omegas(2.0)),
    "t for √t: q and k over t each": ("positive", inputs_scaled(1 / math.sqrt(2))),
    "t for √t, trigonometric": ("trigonometric", inputs_scaled(1 / math.sqrt(2))),
    "variance times 2": ("positive", variances(2)),
    "variance over 2": ("positive", variances(0.5)),
    "2π in sin and cos": ("trigonometric", omegas(2 * math.pi)),
    "|x|² for |x|²/2, trigonometric": ("trigonometric", half_squares(2)),
    "|x|²/2 left out, trigonometric": ("trigonometric", half_squares(0)),
    "1/√m for 1/√(m/2)": ("trigonometric", half_normalisation),
    "log scale dropped, trigonometric": ("trigonometric", no_scale(trigonometric)),
    "cosines only": ("trigonometric", cosines_only),
    "variance times 2, trigonometric": ("trigonometric", variances(2)),
}


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_planted_bug_is_noticed(monkeypatch, killed, bug):
    name, plant = MUTANTS[bug]
    plant(monkeypatch)
    method = METHODS[name](m=M)
    found = max(scores(method, LAWS[name], M // method.per_frequency, points(4)))
    assert found > BOUND
    killed(bug, found)


class OneStream(Halved):
    """A bug: support and features from one stream, so the support knows the first frequency."""

    def evaluate(self, q, k, mask, rng):
        seed = rng.integers(2**63)
        support = self.sparse.support(q, k, mask, np.random.default_rng(seed))
        low = self.low_rank.evaluate(q, k, mask, np.random.default_rng(seed)).low
        return Parts(low, support)


class BySizeOfEstimate(Scatterbrain):
    """A bug: the support holds the largest estimates, not the largest entries."""

    def evaluate(self, q, k, mask, rng):
        low = self.low_rank.evaluate(q, k, mask, rng).low
        largest = Approximation(low).to_dense().argmax(axis=1)
        support = self.sparse.support(q, k, mask, None).matrix.copy()
        support.indices[:] = largest
        support.data[:] = np.einsum("id,id->i", q, k[largest])
        return Parts(low, Support(support))


def test_a_support_from_the_stream_of_the_features_is_noticed(killed):
    found = max(half_space_scores(OneStream))
    assert found > BOUND
    killed("support drawn from the features' stream", found)


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


# Without chance: quadrature nodes for frequencies


def nodes(d, count=40):
    """Return Gauss–Hermite nodes of N(0, I_d): exact to degree 79 in each coordinate."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grid = np.array(list(itertools.product(x, repeat=d)))
    weights = np.array([math.prod(c) for c in itertools.product(w / w.sum(), repeat=d)])
    return Fixed(grid, weights)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", LAWS)
def test_unbiased_at_quadrature_nodes(name, d):
    rng = np.random.default_rng(d)
    Q, K = rng.standard_normal((2, 12, d))
    Q *= np.linspace(0.1, 2.2, 12)[:, None] / np.linalg.norm(Q, axis=1, keepdims=True)
    K *= np.linspace(2.2, 0.1, 12)[:, None] / np.linalg.norm(K, axis=1, keepdims=True)
    sign = {"positive": 1, "trigonometric": -1}[name]
    near = squared_distances(Q, -sign * K) <= 9
    assert near.sum() > 60
    method = METHODS[name](projection=nodes(d))
    ratio = method.approximate(Q, K).to_dense() / exact.kernel(Q, K)
    # remainder 9⁴⁰·40!/80! < 1e-30; cosines cancel from e^{4.5}; exponents below 30: 3000 eps
    assert np.abs(ratio - 1)[near].max() <= 1e-12
    moments = method.moments(Q, K)
    np.testing.assert_allclose(moments.relative_bias, ratio - 1, atol=100 * EPS * np.exp(4.5))
    assert (moments.log_relative_variance == -np.inf).all()
    assert monte_carlo(method, Q, K, draws=3, rng=0).z.max() == 0


def test_quadrature_notices_a_small_bias(monkeypatch):
    epsilon(monkeypatch)
    ratio = Positive(projection=nodes(1)).approximate([[0.3]], [[0.4]]).to_dense()
    assert abs(ratio[0, 0] / math.exp(0.12) - 1) > 1e-6


def test_golden_values():
    """Section 6 of the mathematics, from 40 digits."""
    q, k = [[0.5, 0.3, 0.4, 0.2]], [[0.4, 0.6, -0.2, 0.3]]
    kernel = exact.kernel(q, k)[0, 0]
    assert kernel == pytest.approx(1.4333294145603403, rel=1e-14)

    def variance(method):
        return math.exp(method.moments(q, k).log_relative_variance[0, 0])

    assert variance(Positive(m=1)) == pytest.approx(5.753088798531287, rel=1e-12)
    assert variance(Trigonometric(m=2)) == pytest.approx(0.11249823075003052, rel=1e-12)
    assert kernel**2 * variance(Positive(m=4)) == pytest.approx(2.954834172872, rel=1e-11)
