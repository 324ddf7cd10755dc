"""Blocks of draws: the draws of `approximate`, many at once and at several temperatures."""

import itertools
import math

import naive
import numpy as np
import pytest
from each import each
from small import FEATURES, points

from analysis.moments import ratio_samples as together
from analysis.moments.simulation import monte_carlo
from approx import Parts, parse
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate import memory
from approx.random_features.features import Frame
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric

EPS = np.finfo(float).eps

BLOCKS = (  # of 5000 features one draw is a block
    "positive(m=3)", "positive(m=5000)", "positive(m=6, projection='orthogonal')",
    "hyperbolic(m=6)", "generalized_exponential(m=4)", "shifted_positive(m=4, a=None)",
    "dense_exponential(m=4)", "trigonometric(m=6)", "generalized_trigonometric(m=6)",
    "scatterbrain(low_rank=positive(m=4), sparse=top_k(k=2))",
    "scatterbrain(low_rank=trigonometric(m=4), sparse=sliding_window(1))",
)  # fmt: skip
COMPOSED = sorted(name for name, kind in FEATURES.items() if kind.composed)
COUPLED = ("iid", "orthogonal", "simplex", "sobol", "regularized")
LADDER = (0.5, 1.0, 3.0)


def block_score(method, dtype=np.float64, size=0.7):
    """Return the largest difference of blocks from their slow twin, over what rounding allows.

    Exponents of some 10 round by 10 eps, the tilt's levels by a few more, products of 5000 terms
    by some 70 more; a variance has twice that.
    """
    rng = np.random.default_rng(2)
    Q, K = (size * rng.standard_normal((n, 3)).astype(dtype) for n in (23, 29))  # 667 pairs
    draws = 7
    found = monte_carlo(method, Q, K, draws=draws, rng=5, temperatures=LADDER)
    worst = 0.0
    for t, one in zip(LADDER, found):
        q, k = ((x / np.sqrt(t)).astype(dtype) for x in (Q, K))
        ratios = naive.ratios(method, q, k, np.random.default_rng(5).spawn(draws))
        mean, variance, _ = naive.two_pass(ratios)
        scale = np.abs(ratios).max(axis=0)
        worst = max(worst, float((np.abs(one.mean - mean) / scale).max()))
        worst = max(worst, float((np.abs(one.variance - variance) / scale**2).max()))
    return worst / (300 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [*itertools.product(BLOCKS, (np.float64, np.float32))]
    + [
        (f"{f}(m=12, projection='{p}')", np.float64)
        for f in COMPOSED
        for p in COUPLED
        if f != "regularized" or p == f
    ],
)
def test_blocks_equal_the_factors_of_every_draw(spec, dtype):
    """Nothing looks at this again while Monte Carlo runs."""
    method = parse(spec)
    assert together.family(method) is not None
    assert block_score(method, dtype) <= 1


def test_a_family_of_its_own_is_left_to_itself():
    others = FEATURES.keys() - {*COMPOSED}
    assert others >= {"random_phase", "poisson", "geometric"}  # they draw phases, or counts
    assert all(together.family(parse(f"{name}(m=4)")) is None for name in others)
    assert together.family(parse("scatterbrain(sparse=lsh())")) is None  # a support that is drawn


# Subclasses


class Doubled(Positive):
    def evaluate(self, q, k, mask, rng):
        left, right, row_log = super().evaluate(q, k, mask, rng).low.scaled_factors()
        return Parts.from_factors(2 * left, right, row_log)


class Weighted(Positive):
    def frequencies(self, Q, K, rng):
        omega, half = super().frequencies(Q, K, rng)
        return omega, half + 1


class Swollen(Trigonometric):
    def frame(self, Q, K):
        return Frame(2 * Q, 2 * K)  # not q·k: a bug that Monte Carlo is there to find


class Halved(Positive):
    def frame(self, Q, K):
        return Frame(2 * Q, K / 2)

    def tilt(self, frame):
        return np.full(frame.a.shape[1], 0.05)

    def level(self, omega, half, A):
        return super().level(omega, half, A) + 0.1


class Off(Scatterbrain):
    def evaluate(self, q, k, mask, rng):
        return self.low_rank.evaluate(q, k, mask, rng)


@each("method", [*(kind(m=2) for kind in (Doubled, Weighted, Swollen, Halved)),
                 Off(Positive(m=2), parse("top_k(1)"))])  # fmt: skip
def test_a_subclass_is_not_taken_for_its_parent(method):
    """Whatever it overrides, what is sampled is what its `evaluate` does."""
    assert together.family(method) is None
    assert block_score(method) <= 1


@pytest.mark.parametrize("kind", [Weighted, Halved])
def test_what_a_subclass_overrides_is_followed_if_it_says_so(kind):
    class Composed(kind):
        composed = True

    class Further(Composed):
        pass

    assert together.family(Composed(m=4)) is not None
    assert block_score(Composed(m=4)) <= 1
    assert together.family(Further(m=4)) is None


@pytest.mark.parametrize(("dtype", "length"), [(np.float32, 30.0), (np.float64, 300.0)])
def test_what_a_block_cannot_represent_is_left_to_the_factors(dtype, length):
    """Exponents beyond 40 and 300 for some draws only: |q| of 30 and 300 at one ω ~ N(0, 1)."""
    q, k = np.array([[length]], dtype), np.array([[-length]], dtype)
    method = Positive(m=1)
    block = together.RatioDraws(method, [together.Point(q, k, 1.0, np.zeros((1, 1)))])
    streams = [np.random.default_rng(0).spawn(20) for _ in range(2)]
    alone = [block.ratios([rng])[0] for rng in streams[0]]
    assert 0 < sum(x is None for x in alone) < 20
    assert block.ratios(streams[1]) == [None]
    found = monte_carlo(method, q, k, draws=20, rng=0)
    # u = 0: estimate and exact are e^{−length²}, whose exponent rounds
    assert found.mean[0, 0] == pytest.approx(1, rel=2 * length**2 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize(("length", "lost"), [(37.0, False), (38.0, True)])
def test_a_key_that_the_factors_lose_is_left_to_them(length, lost):
    """Of keys 0 and k one is e^{−k²/2} times the other: representable at 37, at 38 not."""
    q, K = np.zeros((1, 1)), np.array([[0.0], [length]])
    unit = np.square(K).T / 2  # so that the factor of a pair is 1
    block = together.RatioDraws(Trigonometric(m=2), [together.Point(q, K, 1.0, unit)])
    assert (block.ratios([np.random.default_rng(0)])[0] is None) == lost


@pytest.mark.parametrize("spec", ["positive(m=4)", "random_maclaurin(m=4)", "taylor(2)"])
@pytest.mark.parametrize("space", ["kernel", "attention"])
def test_temperatures_share_draws(spec, space):
    X, method = points(2), parse(spec)
    found = monte_carlo(method, X, X, draws=4, rng=1, space=space, temperatures=LADDER)
    for t, one in zip(LADDER, found):
        x = X / math.sqrt(t)
        alone = monte_carlo(method, x, x, draws=4, rng=1, space=space)
        # exponents of order 1, rounded a few times, with ω·u/√t for ω·(u/√t)
        np.testing.assert_allclose(one.mean, alone.mean, rtol=1e3 * EPS)
        np.testing.assert_allclose(one.variance, alone.variance, rtol=1e5 * EPS, atol=1e3 * EPS)
    assert monte_carlo(method, X, X, draws=4, rng=1, temperatures=[]) == []


@pytest.mark.kernel
def test_exponentials_of_products():
    rng = np.random.default_rng(0)
    G, level, out = rng.standard_normal((3, 4)), rng.standard_normal(3), np.empty((3, 4))
    together._exponentials(G, -0.5, level, out)
    np.testing.assert_allclose(out, np.exp(level[:, None] - 0.5 * G), rtol=20 * EPS)


def test_what_temperatures_hold_together_is_looked_at_before_it_is_allocated():
    Q, K = np.random.default_rng(0).standard_normal((64, 4)), np.zeros((8, 4))
    method, ladder = Positive(m=64), np.linspace(1, 2, 16)
    memory.set_limit(2_000_000)  # factors of queries: 8 draws of 64 frequencies, 16 temperatures
    monte_carlo(method, Q, K, draws=2, rng=0, temperatures=ladder[:1])
    with pytest.raises(memory.ResourceLimitError, match=r"lower m, n or the temperatures"):
        monte_carlo(method, Q, K, draws=2, rng=0, temperatures=ladder)
    memory.set_limit(300_000)
    with pytest.raises(memory.ResourceLimitError, match=r"lower n, l or the temperatures"):
        monte_carlo(method, Q, K, draws=2, rng=0, temperatures=ladder)
