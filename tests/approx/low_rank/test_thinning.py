"""Kernel thinning: halves without repeats, a mean feature nearer than that of fair coins."""

import math

import naive
import numpy as np
from hypothesis import given, strategies as st

from approx.low_rank import thinning
from approx.low_rank.thinning import halves, thinned


def kernel(points):
    return np.exp(points @ points.T - np.square(points).sum(axis=1).max())


def gaps(points, kept):
    """Return |Σ over the half − Σ over the rest of φ|² of each bucket of the same points."""
    signs = np.full((len(kept), len(points)), -1.0)
    np.put_along_axis(signs, kept, 1.0, axis=1)
    return np.einsum("bi,ij,bj->b", signs, kernel(points), signs)


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_as_many_places_as_asked_in_order_without_repeats(rank, more, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rank + more, 2))
    places = thinned(x, rank, rng)
    assert len(places) == rank
    assert (np.diff(places) > 0).all()
    assert places[0] >= 0
    assert places[-1] < len(x)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_half_has_one_of_each_pair_and_is_that_of_the_slow_twin(pairs, buckets, seed):
    rng = np.random.default_rng(seed)
    x = 0.7 * rng.standard_normal((buckets, 2 * pairs, 3))
    kept = halves(x, 0.3, np.random.default_rng(seed))
    np.testing.assert_array_equal(kept // 2, np.tile(np.arange(pairs), (buckets, 1)))
    rng = np.random.default_rng(seed)
    coins, flips = rng.uniform(-1, 1, (buckets, pairs)), rng.choice([-1.0, 1.0], (buckets, 1))
    want = [naive.half(*bucket, 0.3) for bucket in zip(x, coins, flips[:, 0])]
    np.testing.assert_array_equal(kept, want)


def test_every_point_is_kept_with_the_same_probability():
    x = np.random.default_rng(0).standard_normal((13, 2))
    for rank, draws in ((3, 1500), (5, 1500)):
        rng, counts = np.random.default_rng(1), np.zeros(13)
        for _ in range(draws):
            counts[thinned(x, rank, rng)] += 1
        share = rank / 13
        z = (counts / draws - share) / math.sqrt(share * (1 - share) / draws)
        assert np.abs(z).max() < 5


def test_two_pairs_have_the_mean_of_the_closed_form():
    """E|Σ s_i f_i|² = |f_0|² + |f_1|² − 2⟨f_0, f_1⟩²/a, by the probability of the second sign."""
    x, draws, delta = np.array([[0.9], [0.1], [0.8], [-0.3]]), 20_000, 0.5
    G = kernel(x)
    f = G[::2, ::2] - G[::2, 1::2] - G[1::2, ::2] + G[1::2, 1::2]
    bound = math.sqrt(f[1, 1] * max(f[0, 0], f[1, 1])) * (0.5 + math.log(8 / delta))
    opposite = 0.5 + f[0, 1] / (2 * bound)
    kept = halves(np.tile(x, (draws, 1, 1)), delta, np.random.default_rng(0))
    found = ((kept % 2).sum(axis=1) == 1).mean()
    assert abs(found - opposite) / math.sqrt(opposite * (1 - opposite) / draws) < 5
    assert (opposite - 0.5) / math.sqrt(opposite * (1 - opposite) / draws) > 10
    gap = gaps(x, kept)
    want = f[0, 0] + f[1, 1] - 2 * f[0, 1] ** 2 / bound
    assert abs(gap.mean() - want) / (gap.std() / math.sqrt(draws)) < 5


def test_buckets_are_those_of_compress():
    """4^(g+1) points at first, and twice as many in each round, where rank = 2^g √count."""
    for g, log4 in ((0, 3), (1, 4), (2, 4)):
        rank, rounds = 2**g * 2**log4, log4 - g
        sizes = [thinning._bucket(rank, rounds, done) for done in range(rounds)]
        assert sizes == [4 ** (g + 1) * 2**done for done in range(rounds)]
    assert [thinning._bucket(3, 4, done) for done in range(4)] == [6, 6, 6, 6]


def test_hot_points_and_equal_points():
    rng = np.random.default_rng(0)
    for x in (100 * rng.standard_normal((16, 3)), np.ones((16, 2))):
        assert len(set(thinned(x, 4, rng))) == 4
