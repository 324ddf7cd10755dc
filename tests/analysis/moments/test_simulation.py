"""Monte Carlo: the moments of a sample, what is believed of them, what is refused."""

import dataclasses
import functools
import math

import naive
import numpy as np
import pytest
from refusals import refuses
from small import points

from analysis.moments.simulation import _update, monte_carlo
from approx import Parts, parse, sample_moments
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate import exact
from approx.method import Method
from approx.method.tags import RANDOM
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric
from approx.sample_moments import pareto_k

EPS = np.finfo(float).eps
DRAWS = 1000
BOUND = 5.0  # |z|: two-sided 6·10⁻⁷ for one entry, if it is normal


@dataclasses.dataclass(frozen=True)
class Recorded(Method):
    """Ratios to exp(q·k) drawn from a skewed law; nothing is known in closed form."""

    name = "recorded"
    tags = frozenset({RANDOM})

    sink: list = dataclasses.field(default_factory=list)
    mean: float = 1.0

    def __str__(self):
        return self.name  # and not all that was recorded

    def evaluate(self, q, k, mask, rng):
        ratio = self.mean * rng.lognormal(0.0, 0.5, (len(q), len(k)))
        self.sink.append(ratio)
        return Parts.from_factors(np.eye(len(q)), (ratio * exact.kernel(q, k)).T)


@pytest.mark.parametrize("draws", [2, 3, 5, 1000])
def test_updates_equal_two_passes(draws):
    method = Recorded()
    found = monte_carlo(method, [[0.1], [2.0]], [[0.5], [1.0], [-1.0]], draws=draws, rng=0)
    mean, variance, error = naive.two_pass(np.array(method.sink))
    # a thousand updates of numbers of order 1: each a few eps; the root of m₄ halves the relative
    # error unless it vanishes, as for two draws
    np.testing.assert_allclose(found.mean, mean, rtol=1e3 * EPS)
    np.testing.assert_allclose(found.variance, variance, rtol=1e4 * EPS)
    np.testing.assert_allclose(found.variance_stderr, error, rtol=1e5 * EPS, atol=EPS**0.5)
    np.testing.assert_allclose(found.mean_stderr, np.sqrt(variance / draws), rtol=1e4 * EPS)
    np.testing.assert_allclose(found.z, (mean - 1) / np.sqrt(variance / draws), rtol=1e5 * EPS)


@pytest.mark.parametrize("space", ["kernel", "attention"])
def test_fourth_powers_of_large_ratios_stay_finite(space):
    """A ratio of about e^100: its fourth power, e^400, is inside e^709, its eighth is not.

    Here D² = 200 or p = e^{−200}, so that x² of x² overflows unless a unit is taken out.
    """
    q = np.array([[10.0, 0.0]])
    K = -q if space == "kernel" else np.array([[10.0, 0.0], [-10.0, 0.1], [-10.0, -0.1]])
    method = Trigonometric(m=4) if space == "kernel" else parse("positive(m=2)")
    found = monte_carlo(method, q, K, draws=20, rng=0, space=space)
    children = np.random.default_rng(0).spawn(20)
    x = np.array([method.approximate(q, K, rng=child).to_dense() for child in children])
    truth = exact.kernel(q, K)
    if space == "attention":
        x, truth = x / x.sum(axis=2, keepdims=True), exact.softmax(q, K)
    unit = np.abs(x).max(axis=0)
    moments = *found[:2], found.variance_stderr
    for one, other, power in zip(moments, naive.two_pass(x / unit), (1, 2, 2)):
        with np.errstate(over="ignore"):
            expected = other * (unit / truth) ** power
        # exponents up to 200 are rounded, and doubled
        np.testing.assert_allclose(one, expected, rtol=1e6 * EPS)
        assert np.isfinite(one).all()


@pytest.mark.kernel
def test_updates():
    x = np.random.default_rng(0).standard_normal((5, 3))
    sums = np.zeros((4, 3))
    _update(x[:2], 0, *sums)
    _update(x[2:], 2, *sums)
    for power, found in zip((2, 3, 4), sums[1:]):
        # sums of five numbers of order 1
        np.testing.assert_allclose(found, ((x - x.mean(axis=0)) ** power).sum(axis=0), atol=1e-14)
    np.testing.assert_allclose(sums[0], x.mean(axis=0), atol=10 * EPS)


def test_p_value_is_bonferroni():
    X = points(2)
    found = monte_carlo(Positive(m=4), X, X, draws=100, rng=0)
    largest = np.abs(found.z).max()
    assert found.p_value == pytest.approx(min(1, 16 * math.erfc(largest / math.sqrt(2))), rel=1e-12)
    biased = monte_carlo(Recorded(mean=2.0), X, X, draws=100, rng=0)
    assert biased.p_value < 1e-6
    exactly = monte_carlo(Trigonometric(m=2), X[:1], X[:1], draws=10, rng=0)
    assert exactly.p_value == 1.0


def test_what_is_believable_of_a_sample():
    q, k = np.array([[0.5], [1.5], [5.0]]), np.array([[0.5]])
    found = monte_carlo(Positive(m=8), q, k, draws=2000, rng=0)  # |q + k|² = 1, 4, 30
    assert found.believable[:, 0].tolist() == [True, False, False]
    assert found.mean[2, 0] < 0.5  # far below 1, and not a contradiction:
    assert abs(found.z[2, 0]) < 1
    # Cosines are bounded, so only the first condition decides: cosh(1) − 1 = 0.543.
    q = np.array([[1.0]])
    for draws, believable in ((50, False), (60, True)):  # 0.543/draws against 0.01
        found = monte_carlo(Trigonometric(m=2), q, 0 * q, draws=draws, rng=0)
        assert (found.variance_stderr / found.variance) ** 2 < 0.1
        assert found.believable == believable


def test_same_seed_same_numbers():
    X, method, sequence = points(2), Positive(m=4), np.random.SeedSequence(7)
    seeds = (7, sequence, sequence, np.random.default_rng(7))
    found = [monte_carlo(method, X, X, draws=10, rng=seed) for seed in seeds]
    for one in found[1:]:
        np.testing.assert_array_equal(one.mean, found[0].mean)


# Normalised attention: a ratio


def test_normalised_attention_is_biased_and_less_so_with_more_features():
    """The delta method: bias of X_j/S is Var S − Cov(X_j, S) to first order in 1/m, S = Σ p_l X_l.

    With X_l = e^{ω·z_l − z_l²/2}, Cov(X_j, X_l) = e^{z_j·z_l} − 1.
    """
    rng = np.random.default_rng(5)
    q, K = 0.6 * rng.standard_normal((1, 2)), 0.6 * rng.standard_normal((5, 2))
    p = exact.softmax(q, K)[0]
    covariance = np.expm1((q + K) @ (q + K).T)
    first = p @ covariance @ p - covariance @ p
    found = {
        m: monte_carlo(Positive(m=m), q, K, draws=DRAWS, rng=m, space="attention")
        for m in (4, 16, 64)
    }
    assert np.abs(found[4].z).max() > BOUND  # although exp(q·k) itself is estimated without bias
    bias = {m: x.mean[0] - 1 for m, x in found.items()}
    assert np.abs(bias[4]).max() > np.abs(bias[16]).max() > np.abs(bias[64]).max()
    for m in (16, 64):
        # the second order is of the size of the first one's square times a few
        remainder = 5 * BOUND * np.abs(first).max() ** 2 / m**2
        assert (np.abs(bias[m] - first / m) <= BOUND * found[m].mean_stderr[0] + remainder).all()
    shares = np.array(p) @ found[4].mean[0]
    assert shares == pytest.approx(1, rel=1e5 * EPS)  # rows sum to 1 in every draw


def test_attention_of_softmax_rows_is_used_as_it_is():
    X = points(3)
    method = parse("truncated_svd(2, space='attention')")
    found = monte_carlo(method, X, X, draws=2, rng=0, space="attention")
    ratio = method.approximate(X, X).to_dense() / exact.softmax(X, X)
    np.testing.assert_allclose(found.mean, ratio, rtol=100 * EPS)
    refuses("softmax rows", monte_carlo, method, X, X, draws=2, rng=0)


# Deterministic methods, any scale, refusals


@pytest.mark.parametrize("spec", ["zero", "uniform", "taylor(2)", "top_k(2)", "truncated_svd(1)"])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_deterministic_methods_have_no_chance(spec, scale):
    X = scale * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.6, 0.8]])
    found = monte_carlo(parse(spec), X, X, draws=3, rng=0)
    expected = 1 + parse(spec).moments(X, X).relative_bias
    # both are e^x with x up to 2·10⁴ rounded
    np.testing.assert_allclose(found.mean, expected, rtol=4 * EPS * (1 + 2 * scale**2))
    assert (found.z == 0).all()
    assert (found.variance == 0).all()
    assert (found.variance_stderr == 0).all()
    assert found.p_value == 1.0
    assert found.believable.all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize(
    "spec", ["positive(m=8)", "trigonometric(m=8)", "scatterbrain(sparse=top_k(1))"]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_at_logits_of_ten_thousand(spec, space, sign, dtype):
    X = 100 * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.6, 0.8]], dtype)
    found = monte_carlo(parse(spec), X, sign * X, draws=5, rng=0, space=space)
    for name, values in found._asdict().items():
        assert not np.isnan(values).any(), name
    assert (found.mean_stderr >= 0).all()
    assert (found.variance_stderr >= 0).all()
    assert 0 <= found.p_value <= 1


def test_a_bias_beyond_floats_is_no_warning():
    """1 + x over e^x at x = −1000: the mean of draws with and without it is inf, not NaN."""
    method = parse("scatterbrain(low_rank=taylor(degree=1), sparse=lsh(hashes=1))")
    found = monte_carlo(method, [[10.0, 0.0]], [[-100.0, 1.0]], draws=4, rng=0)
    assert found.mean[0, 0] == -np.inf
    assert found.variance[0, 0] == found.variance_stderr[0, 0] == np.inf
    assert not found.believable[0, 0]


def test_rounding_is_not_taken_for_bias():
    """No variance, and differences in the last digits: of float32, of logits of order 10⁴."""
    x = np.array([[0.3, 0.4], [5.0, -3.0]], np.float32)
    found = monte_carlo(Trigonometric(m=8), x, x, draws=50, rng=0)
    assert (np.diag(found.z) == 0).all()
    rng = np.random.default_rng(0)
    Q, K = 100 * rng.standard_normal((2, 20, 64))  # |q||k| ≈ 640 000, q·k a tenth of that
    method = Scatterbrain(Positive(m=2), parse("sliding_window(1)"))
    found = monte_carlo(method, Q, K, draws=2, rng=0)
    assert (np.diag(found.z) == 0).all()


def test_what_does_not_fit_is_refused():
    X = points(2)
    asked = functools.partial(monte_carlo, Positive(m=2), X, X, draws=2, rng=0)
    refuses("space must be one of", asked, space="softmax")
    refuses("temperature must be finite and > 0", asked, temperatures=[1.0, 0.0])
    refuses("finite|representable", asked, temperatures=[1e-320])
    refuses("temperatures must have 1 dimensions", asked, temperatures=1.0)
    refuses("template", monte_carlo, Positive(), X, X, draws=2, rng=0)


# Pareto k̂ against Zhang and Stephens' estimate in words


def test_the_shape_is_that_of_the_posterior_mean_summed_one_by_one():
    """θ̂ = Σ_j θ_j L(θ_j)/Σ L, L(θ) = n (log(−θ/k) − k − 1), k = mean log(1 − θ y) [1], §3."""
    y = np.sort(np.random.default_rng(0).pareto(2.0, 50))
    y /= y[-1]
    m = 30 + int(math.sqrt(50))
    thetas, logs = [], []
    for j in range(1, m + 1):
        theta = 1 / y[-1] + (1 - math.sqrt(m / (j - 0.5))) / (3 * y[12])  # ⌊50/4 + ½⌋ = 13th
        k = sum(math.log(1 - theta * a) for a in y) / 50
        thetas.append(theta)
        logs.append(50 * (math.log(-theta / k) - k - 1))
    shares = np.array([1 / sum(math.exp(b - a) for b in logs) for a in logs])
    theta = float(shares @ thetas)
    expected = sum(math.log(1 - theta * a) for a in y) / 50
    assert sample_moments._shape(y) == pytest.approx(expected, rel=1e-10)


def test_a_tail_is_shrunk_and_has_neither_scale_nor_sign():
    for draws, size in ((100, 20), (400, 60)):
        x = np.sort(np.random.default_rng(4).pareto(1.0, draws))
        tail = x[-size:] - x[-size - 1]
        shape = sample_moments._shape(tail / tail[-1])
        assert pareto_k(x) == pytest.approx((size * shape + 5) / (size + 10), rel=1e-12)
    x = np.random.default_rng(2).standard_t(2, 500)
    k = pareto_k(x)
    assert pareto_k(-1e200 * x[::-1]) == pytest.approx(k, rel=1e-12)
    assert pareto_k(np.abs(x)) == k
    assert pareto_k(np.ones(100)) == -math.inf
    assert math.isfinite(pareto_k(np.repeat([1.0, 2.0], [490, 10])))  # most of the tail is 0


@pytest.mark.parametrize("bad", [np.ones(24), np.array([np.nan] * 30), np.ones((30, 2))])
def test_bad_samples_are_refused(bad):
    refuses("draws", pareto_k, bad)
