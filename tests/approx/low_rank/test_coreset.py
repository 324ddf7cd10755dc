"""Coresets: the plain formula, the rules for τ."""

import itertools
import math

import mpmath
import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from small import drawn

from approx import Mask
from approx.low_rank import coreset, thinning
from approx.low_rank.coreset import PIVOTS, PROBES, RHO, TRIED, Coreset, radii
from approx.low_rank.nystrom import gaussian
from approx.low_rank.pivots import NEAR, cholesky
from approx.low_rank.thinning import halves, thinned

EPS = np.finfo(float).eps
every_choice = pytest.mark.parametrize("pivots", PIVOTS)


def chosen_by(method, K, rng, monkeypatch):
    """Return the places of the keys that the method takes."""
    found = []

    def spy(*given):
        chosen, C = cholesky(*given)
        found.append(chosen.tolist())
        return chosen, C

    monkeypatch.setattr(coreset, "cholesky", spy)
    method.approximate(K[:1], K, rng=rng)
    return found[-1]


# Pivots


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_what_pivots_leave_is_the_schur_complement(count, rank, seed):
    X = drawn(1, count, 3, seed)[1]
    G, rng, left = gaussian(X, X), np.random.default_rng(seed), []

    def pick(rest):
        left.append(rest.copy())
        return rng.integers(count)

    chosen, C = cholesky(G.__getitem__, count, [pick] * rank)
    assert len(set(chosen)) == len(chosen) <= min(rank, count)
    assert np.array_equal(C[chosen], np.tril(C[chosen]))
    want = naive.schur(G, chosen.tolist())
    # roundings of r sums, divided by pivots of at least NEAR
    error = 10 * rank * EPS / NEAR
    np.testing.assert_allclose(G - C @ C.T, want, atol=error)
    assert math.isclose(np.trace(want), count - (C**2).sum(), abs_tol=count * error)
    for rest, more in itertools.pairwise(left):
        assert (more <= rest).all()
    first = naive.schur(G, chosen[:1].tolist()).diagonal()
    if rank > 1:
        assert (np.abs(left[1] - first) <= NEAR).all()


def test_pivots_are_drawn_by_what_is_left_of_the_exponential_kernel(monkeypatch):
    """Pairs of pivots, enumerated: P(s, t) = A_ss/tr A · (A/A_ss)_tt/tr(A/A_ss) of A = e^{x·x'}."""
    K = drawn(1, 4, 2, seed=3, scale=0.9)[1]
    x = K - K.mean(axis=0)
    A = np.exp(x @ x.T)
    want, draws = {}, 1000
    for s in range(4):
        rest = naive.schur(A, [s]).diagonal()
        for t in {0, 1, 2, 3} - {s}:
            want[s, t] = A[s, s] / np.trace(A) * rest[t] / rest.sum()
    method, rng = Coreset(2, tau=1.0), np.random.default_rng(0)
    found = [tuple(chosen_by(method, K, rng, monkeypatch)) for _ in range(draws)]
    assert math.isclose(sum(want.values()), 1.0)
    for pair, share in want.items():
        z = (found.count(pair) / draws - share) / math.sqrt(share * (1 - share) / draws)
        assert abs(z) < 5, pair


@every_choice
def test_repeated_keys_count_once(pivots):
    K = np.repeat(drawn(1, 4, 3)[1], 5, axis=0)
    A = Coreset(20, pivots, 1.0).approximate(K, K, rng=0)
    assert A.rank == 4
    np.testing.assert_allclose(A.to_dense(), naive.kernel(K, K), rtol=1e-11)


# The formula


@every_choice
@pytest.mark.parametrize("tau", [0.6, 1.0, 2.0])
def test_it_is_the_plain_formula(pivots, tau, monkeypatch):
    Q, K = drawn(5, 9, 5)
    method = Coreset(4, pivots, tau)
    A = method.approximate(Q, K, rng=1)
    chosen = chosen_by(method, K, 1, monkeypatch)
    want = naive.coreset(Q, K, chosen, tau)
    # the condition of the kernel among four keys, below 1e4 here, times the roundings of a few sums
    np.testing.assert_allclose(A.to_dense(), want, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(A.to_dense()[:, chosen], naive.kernel(Q, K[chosen]), rtol=1e-10)
    masked = method.approximate(Q, K, mask=Mask.causal(5, 9), rng=1)
    on = naive.seen("causal", 5, 9)
    np.testing.assert_allclose(masked.to_dense(), np.where(on, want, 0.0), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("tau", [0.7, 1.0, 1.5])
def test_the_error_is_below_its_bound(tau, monkeypatch):
    Q, K = drawn(30, 40, 4)
    Q, K = Q, K - K.mean(axis=0)
    method = Coreset(6, tau=tau)
    A = method.approximate(Q, K, rng=0).to_dense()
    left = naive.schur(np.exp(K @ K.T / tau**2), chosen_by(method, K, 0, monkeypatch)).diagonal()
    bound = np.exp(tau**2 * (Q**2).sum(axis=1) / 2)[:, None] * np.sqrt(np.maximum(left, 0))
    error = np.abs(A - np.exp(Q @ K.T))
    assert (error <= bound * (1 + 1e-6) + 1e-9).all()
    assert (error > bound / 10).any()


# Equal weights


@pytest.mark.parametrize("pivots", ["uniform", "thinning"])
def test_equal_weights_are_unbiased_with_the_moments_that_they_say(pivots):
    Q, K = drawn(2, 10, 2)
    method, rng, draws = Coreset(3, pivots, weights="equal"), np.random.default_rng(0), 1000
    ratios = np.array([method.approximate(Q, K, rng=rng).to_dense() for _ in range(draws)])
    ratios /= naive.kernel(Q, K)
    taken = ratios[:, 0] > 0
    assert (taken.sum(axis=1) == 3).all()
    np.testing.assert_allclose(ratios, (taken * (10 / 3))[:, None] * np.ones((2, 1)), rtol=1e-13)
    bias, log_variance = method.moments(Q, K)
    assert (bias == 0).all()
    np.testing.assert_allclose(np.exp(log_variance), 10 / 3 - 1, rtol=1e-14)
    z = (ratios.mean(axis=0) - 1) / np.sqrt(np.exp(log_variance) / draws)
    assert np.abs(z).max() < 5
    covariance = method.covariance(Q, K, row=1)
    if pivots == "thinning":
        assert covariance is None
        return
    np.testing.assert_allclose(covariance.diagonal(), 10 / 3 - 1, rtol=1e-14)
    np.testing.assert_allclose(covariance.sum(axis=1), 0, atol=1e-14)  # always three of ten keys
    both = (taken.T.astype(float) @ taken / draws)[~np.eye(10, dtype=bool)]
    share = 3 * 2 / (10 * 9)
    assert np.abs((both - share) / math.sqrt(share * (1 - share) / draws)).max() < 5
    pairs = covariance[~np.eye(10, dtype=bool)]
    np.testing.assert_allclose(pairs, share * (10 / 3) ** 2 - 1, rtol=1e-12)


# Coresets of the past


@every_choice
@pytest.mark.parametrize("mask", ["causal", Mask.window(7, 12, 5), None], ids=str)
@pytest.mark.parametrize(("rank", "block"), [(3, 3), (9, 2), (9, 30)])
def test_a_coreset_of_the_past_is_the_plain_formula_of_each_query(
    pivots, mask, rank, block, monkeypatch
):
    Q, K = drawn(7, 12, 5)
    method = Coreset(rank, pivots, 1.3, block=block)
    A = method.approximate(Q, K, mask=mask, rng=3)
    taken = chosen_by(method, K, 3, monkeypatch)
    assert [p // block for p in taken] == list(range(max(1, min(rank, 12 // block))))
    assert taken[0] == 0
    on, exact = naive.seen(A.mask, 7, 12), naive.kernel(Q, K)
    for i, stop in enumerate(A.mask.stop):
        known = [0, *(p for p in taken[1:] if (p // block + 1) * block <= stop)]
        want = naive.coreset(Q[i : i + 1], K, known, 1.3, centre=K[0], digits=30)[0]
        row = A.to_dense()[i]
        # the condition of the kernel among six keys, below 1e4, times the roundings of a few sums
        np.testing.assert_allclose(row, np.where(on[i], want, 0.0), rtol=1e-10, atol=1e-11)
        kept = [p for p in known if on[i, p]]
        np.testing.assert_allclose(row[kept], exact[i, kept], rtol=1e-10)


# Temperature


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("rule", ["keys", "queries"])
def test_a_rule_takes_the_best_of_what_it_tries(rule, mask):
    Q, K = drawn(40, 50, 4, scale=1.2)
    A = Coreset(5, tau=rule).approximate(Q, K, mask=mask, rng=3).to_dense()
    rng, on = np.random.default_rng(3), naive.seen(mask, 40, 50)
    x = Q if rule == "queries" else K
    rows = rng.choice(len(x), PROBES, replace=False)
    sees = Mask.causal(40, 50).take(rows) if mask and rule == "queries" else None
    fixed = [Coreset(5, tau=tau) for tau in TRIED]
    truth = naive.kernel(x[rows], K)
    errors = [
        naive.errors(method.approximate(x, K, rng=rng).to_dense()[rows], truth, mask=sees)
        for method in fixed
    ]
    best = int(np.argmin([found["attention_tv"] for found in errors]))
    assert 0 < best < len(TRIED) - 1
    rng = np.random.default_rng(3)
    rng.choice(len(x), PROBES, replace=False)
    want = [method.approximate(Q, K, rng=rng).to_dense() for method in fixed][best]
    np.testing.assert_allclose(A, np.where(on, want, 0.0), rtol=1e-12)


def test_the_radius_rule_is_its_formula():
    Q, K = drawn(7, 11, 3)
    r_q = max(mpmath.norm(q) for q in Q)
    r_k = max(mpmath.norm(k - K.mean(axis=0)) for k in K)
    rho = mpmath.sqrt(1 + mpmath.exp(mpmath.lambertw(2 / mpmath.e**2) + 2))
    b = mpmath.log(11) / (r_q * r_k) + 2
    want = mpmath.sqrt(r_k / r_q * b / (2 * mpmath.lambertw(b / (2 * rho))))
    assert math.isclose(radii(Q, K), want, rel_tol=1e-12)
    assert math.isclose(2 * RHO, 6.383202050647408, rel_tol=1e-15)  # TWO_RHO_0 of the authors' code
    A = Coreset(5, tau="radii").approximate(Q, K, rng=0).to_dense()
    fixed = Coreset(5, tau=radii(Q, K)).approximate(Q, K, rng=0).to_dense()
    np.testing.assert_array_equal(A, fixed)
    assert radii(0 * Q, K) == radii(Q, 0 * K) == radii(1e-160 * Q, 1e-160 * K) == 1.0


# Kernel thinning: halves without repeats, a mean feature nearer than that of fair coins


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


def test_buckets_are_those_of_compress_for_any_points():
    """4^(g+1) points at first, and twice as many in each round, where rank = 2^g √count."""
    for g, log4 in ((0, 3), (1, 4), (2, 4)):
        rank, rounds = 2**g * 2**log4, log4 - g
        sizes = [thinning._bucket(rank, rounds, done) for done in range(rounds)]
        assert sizes == [4 ** (g + 1) * 2**done for done in range(rounds)]
    assert [thinning._bucket(3, 4, done) for done in range(4)] == [6, 6, 6, 6]
    rng = np.random.default_rng(0)
    for x in (100 * rng.standard_normal((16, 3)), np.ones((16, 2))):
        assert len(set(thinned(x, 4, rng))) == 4
