"""Nyström: exact where it must be, the plain formula, landmarks by their definitions."""

import itertools
import math

import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from small import drawn

from approx import Mask, parse
from approx.estimate.distances import squared_distances
from approx.low_rank import nystrom
from approx.low_rank.nystrom import LANDMARKS, Nystrom, choose, gaussian, leverage_scores
from approx.method.tags import AUTOREGRESSIVE

EPS = np.finfo(float).eps
every_choice = pytest.mark.parametrize("landmarks", LANDMARKS)


def scale_of(Q, K):
    """Return e^{(|q|² + |k|²)/2}, which no entry of an estimate exceeds, (n, l)."""
    return np.exp(((Q**2).sum(1)[:, None] + (K**2).sum(1)) / 2)


def assert_exact(A, want, Q, K, rank):
    # the cut, √(rank·eps·λ₁), λ₁ ≤ rank, and as much for the roundings that 1/√λ magnifies
    error = 2 * rank * math.sqrt(EPS)
    assert (np.abs(A - want) <= error * scale_of(Q, K)).all()


def unbalanced(n, seed=0):
    """Return points near 24 directions, of length 2, most of them near a few."""
    rng = np.random.default_rng(seed)
    centres, share = rng.standard_normal((24, 8)), 1 / np.arange(1, 25) ** 2
    share = np.maximum(share / share.sum(), 4 / n)
    group = rng.choice(24, n, p=share / share.sum())
    x = centres[group] + 0.1 * rng.standard_normal((n, 8))
    return 2 * x / np.linalg.norm(x, axis=1, keepdims=True)


# Exact


@every_choice
@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_exact_where_every_point_is_a_landmark(landmarks, n, l, d, seed):
    Q, K = drawn(n, l, d, seed)
    A = Nystrom(n + l, landmarks).approximate(Q, K, rng=seed)
    assert A.rank <= n + l
    assert_exact(A.to_dense(), naive.kernel(Q, K), Q, K, n + l)


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_exact_in_the_rows_and_columns_of_landmarks(side, monkeypatch):
    Q, K = drawn(9, 7, 3)
    whole = {"queries": Q, "keys": K}[side]
    monkeypatch.setattr(nystrom, "choose", lambda *_: whole)
    A = Nystrom(3).approximate(Q, K, rng=0).to_dense()
    assert_exact(A, naive.kernel(Q, K), Q, K, 9)
    monkeypatch.setattr(nystrom, "choose", lambda *_: whole[:4])
    A, want = Nystrom(3).approximate(Q, K, rng=0).to_dense(), naive.kernel(Q, K)
    if side == "queries":
        assert_exact(A[:4], want[:4], Q[:4], K, 4)
        assert np.abs(A[4:] - want[4:]).max() > 1e-3
    else:
        assert_exact(A[:, :4], want[:, :4], Q, K[:4], 4)
        assert np.abs(A[:, 4:] - want[:, 4:]).max() > 1e-3


@every_choice
def test_repeated_points_count_once(landmarks):
    Q = np.repeat(drawn(4, 1, 3)[0], 5, axis=0)
    A = Nystrom(7, landmarks).approximate(Q, Q, rng=0)
    assert A.rank == 4
    assert_exact(A.to_dense(), naive.kernel(Q, Q), Q, Q, 4)


# Landmarks of one's own


def test_given_landmarks_are_those_of_a_rule():
    Q, K = drawn(9, 7, 3)
    points = np.unique(np.vstack([Q, K]), axis=0)
    for rule in LANDMARKS:
        Z = choose(points, 4, rule, np.random.default_rng(5))
        own = Nystrom(landmarks=Z[::-1])
        want = Nystrom(4, rule).approximate(Q, K, rng=5)
        np.testing.assert_allclose(own.approximate(Q, K).to_dense(), want.to_dense(), rtol=1e-9)
        assert own.price(n=9, l=7, d=3).reads == Nystrom(4).price(n=9, l=7, d=3).reads


@pytest.mark.parametrize("count", [1, 3, 40])
def test_means_of_segments_by_the_plain_formula(count):
    """More landmarks than tokens, too, and a repeated one, which counts once."""
    Q, K = drawn(12, 12, 2)
    means = [part.mean(axis=0) for part in np.array_split(np.vstack([Q, K]), min(count, 6))]
    Z = np.vstack([means, drawn(max(count - 6, 1), 1, 2, seed=3)[0], means[:1]])
    estimate = Nystrom(landmarks=Z).approximate(Q, K, mask="causal")
    Z = np.unique(Z, axis=0)
    middle = np.linalg.pinv(naive.kernel(Z, Z), rcond=1e-13, hermitian=True)
    want = np.tril(naive.kernel(Q, Z) @ middle @ naive.kernel(Z, K))
    # where fewer landmarks are independent than given, both invert up to their own cut
    tolerance = 1e-9 if count < 40 else 1e-5
    np.testing.assert_allclose(estimate.to_dense(), want, rtol=0, atol=tolerance)


def test_landmarks_that_cannot_be_used():
    Z = np.ones((2, 3))
    assert parse("nystrom(landmarks=[[1.0, 2.0]])").landmarks.points.shape == (1, 2)
    assert str(Nystrom(landmarks=Z)) != str(Nystrom(landmarks=2 * Z))
    assert Nystrom(landmarks=Z).deterministic
    assert AUTOREGRESSIVE in Nystrom(landmarks=Z).tags
    for wrong, message in (
        ({"rank": 2, "landmarks": Z}, "rank and block follow from given landmarks"),
        ({"landmarks": Z, "block": 4}, "rank and block follow from given landmarks"),
        ({"landmarks": np.ones(3)}, "landmarks must have 2 dimensions"),
        ({"landmarks": np.ones((0, 3))}, "landmarks must hold a point"),
        ({"landmarks": Z * np.nan}, "landmarks must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            Nystrom(**wrong)
    with pytest.raises(ValueError, match=r"landmarks must have d=2 columns, got shape \(2, 3\)"):
        Nystrom(landmarks=Z).approximate(*drawn(4, 4, 2))


# The formula


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_it_is_the_plain_formula(n, l, rank, seed):
    Q, K = drawn(n, l, 5, seed)
    rank = min(rank, n + l)
    Z = choose(np.unique(np.vstack([Q, K]), axis=0), rank, "uniform", np.random.default_rng(seed))
    middle = naive.kernel(Z, Z)
    want = naive.kernel(Q, Z) @ np.linalg.pinv(middle) @ naive.kernel(Z, K)
    A = Nystrom(rank).approximate(Q, K, rng=seed)
    assert A.rank == rank
    # both invert the middle: its condition number times the roundings of a few sums
    size = naive.kernel(Q, Z) @ np.abs(np.linalg.pinv(middle)) @ naive.kernel(Z, K)
    error = 100 * EPS * max(np.linalg.cond(middle), np.linalg.cond(gaussian(Z, Z)))
    assert (np.abs(A.to_dense() - want) <= error * size).all()


@every_choice
@pytest.mark.parametrize("rank", [1, 4, 11])
def test_rank_and_bound(landmarks, rank):
    Q, K = drawn(12, 10, 3)
    A = Nystrom(rank, landmarks).approximate(Q, K, rng=0)
    assert A.rank == rank
    assert np.linalg.matrix_rank(A.to_dense(), tol=1e-12) == min(rank, 10)
    assert A.nnz == 0
    # Cauchy–Schwarz: |g_qᵀ G⁺ g_k|² ≤ g_qᵀ G⁺ g_q · g_kᵀ G⁺ g_k ≤ 1
    assert (np.abs(A.to_dense()) <= scale_of(Q, K) * (1 + 1e-6)).all()
    left, right, _ = A.scaled_factors()
    assert np.abs(left).max(axis=1) == pytest.approx(np.ones(12), abs=4 * EPS)
    assert np.abs(right).max() == pytest.approx(1, abs=4 * EPS)


def test_eigenvalues_below_the_cut_are_left_out():
    Q = np.linspace(0, 0.1, 12)[:, None]  # numerically of rank 5 or so
    A = Nystrom(12).approximate(Q, Q, rng=0)
    assert A.rank < 12
    assert_exact(A.to_dense(), naive.kernel(Q, Q), Q, Q, 12)


# Landmarks


def test_kmeans_finds_separate_clusters():
    x = unbalanced(600, seed=1)
    Z = choose(x, 24, "kmeans", np.random.default_rng(0))
    assert Z.shape == (24, 8)

    def spread(Z):
        return squared_distances(x, Z).min(axis=1).mean()

    # within a cluster |x − centre|² ≈ 8·0.1² (and less once on the sphere)
    assert spread(Z) < 0.08 * 1.5
    assert spread(choose(x, 24, "uniform", np.random.default_rng(0))) > 2 * spread(Z)


@every_choice
def test_landmarks_are_different_rows(landmarks):
    x = unbalanced(200)
    Z = choose(x, 50, landmarks, np.random.default_rng(0))
    assert len(np.unique(Z, axis=0)) == len(Z) == 50
    if landmarks != "kmeans":
        assert (squared_distances(Z, x).min(axis=1) == 0).all()
    np.testing.assert_array_equal(choose(x, 200, landmarks, np.random.default_rng(0)), x)


def test_leverage_scores_are_their_definition():
    x = unbalanced(90)
    G = gaussian(x, x)
    for k in (1, 5, 30):
        gamma = np.sort(np.linalg.eigvalsh(G))[::-1][k:].sum() / k
        want = np.diag(G @ np.linalg.inv(G + gamma * np.eye(90)))
        found = leverage_scores(x, k, np.random.default_rng(0))
        np.testing.assert_allclose(found, want, atol=1e-10)  # the condition of G + γI, times eps
        assert found.sum() <= 2 * k


@pytest.mark.parametrize("sample", [nystrom.SAMPLE, 3])
def test_the_recursion_is_its_formula_for_some_points(monkeypatch, sample):
    """Every subset of every half is tried: all of a half are drawn if 8·k shares are above 1."""
    x = drawn(7, 1, 2)[0]
    monkeypatch.setattr(nystrom, "EXACT", 4)
    monkeypatch.setattr(nystrom, "SAMPLE", sample)
    found = leverage_scores(x, 1, np.random.default_rng(0))
    G = np.exp(-np.array([[math.dist(a, b) ** 2 for b in x] for a in x]) / 2)
    misses = []
    for half in map(list, itertools.combinations(range(7), 4)):
        exact = leverage_scores(x[half], 1, np.random.default_rng(0))
        p = dict(zip(half, np.minimum(1, sample * exact / exact.sum())))
        few = itertools.chain(*(itertools.combinations(half, m) for m in (2, 3)))
        for S in [half] if sample > 3 else map(list, few):
            weight = np.array([p[i] for i in S]) ** -0.5
            GS = G[:, S] * weight
            middle = weight[:, None] * GS[S]
            gamma = np.linalg.eigvalsh(middle)[:-1].sum()
            rest = G - GS @ np.linalg.inv(middle + gamma * np.eye(len(S))) @ GS.T
            misses.append(np.abs(np.clip(1.5 / gamma * np.diag(rest), 0, 1) - found).max())
    assert min(misses) < 1e-12 < sorted(misses)[1]
    assert (found < 1).sum() >= 4
    monkeypatch.undo()
    assert nystrom.work_of_choice(10**6, 9, "leverage", 3) == 10**6 * 32 * (32 + 3)  # SAMPLE·4 each


# Landmarks of the past


def past_factors(Q, K, rank, block, stop, landmarks, seed):
    """Return the plain formula of each query with its own landmarks, and which are known to it."""
    rng = np.random.default_rng(seed)
    blocks = range(1, min(rank, len(K) // block))
    Z = [K[0]]
    for p in blocks:
        Z.append(choose(np.unique(K[p * block : (p + 1) * block], axis=0), 1, landmarks, rng)[0])
    rows, known = [], []
    for q, end in zip(Q, stop):
        mine = np.array([Z[0], *(Z[p] for p in blocks if (p + 1) * block <= end)])
        middle = np.linalg.inv(naive.kernel(mine, mine))
        rows.append(naive.kernel([q], mine) @ middle @ naive.kernel(mine, K))
        known.append(mine)
    return np.vstack(rows), known


@every_choice
@pytest.mark.parametrize("mask", ["causal", Mask.window(7, 12, 5), None], ids=str)
@pytest.mark.parametrize(("rank", "block"), [(1, 3), (3, 3), (9, 2), (9, 30)])
def test_landmarks_of_the_past_are_the_plain_formula_of_each_query(landmarks, mask, rank, block):
    Q, K = drawn(7, 12, 5)
    A = Nystrom(rank, landmarks, block).approximate(Q, K, mask=mask, rng=3)
    stop = A.mask.stop
    want, known = past_factors(Q, K, rank, block, stop, landmarks, 3)
    on = naive.seen(A.mask, 7, 12)
    # the condition of the middle, below 1e3 here, times the roundings of a few sums
    np.testing.assert_allclose(A.to_dense(), np.where(on, want, 0.0), rtol=1e-11, atol=1e-11)
    assert A.rank == max(1, min(rank, 12 // block))
    exact = naive.kernel(Q, K)
    for i, Z in enumerate(known):  # exact in the columns of the landmarks that it knows
        j = [j for j, k in enumerate(K) if on[i, j] and (k == Z).all(axis=1).any()]
        np.testing.assert_allclose(A.to_dense()[i, j], exact[i, j], rtol=1e-11)
