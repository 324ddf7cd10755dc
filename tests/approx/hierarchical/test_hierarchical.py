"""Hierarchical estimates: what they take, and how near they are."""

import math

import naive
import numpy as np
import pytest
import scipy.sparse
from each import each
from hypothesis import given, strategies as st
from small import hiding

from approx import Mask, parse
from approx.hierarchical.partition import partition
from approx.hierarchical.summaries import Means, Pivots

RUNNABLE = "mean", "pivots"
EPS = np.finfo(float).eps


def points(n, l, d=3, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal((count, d)) for count in (n, l, l)]


# Which blocks


@given(
    n=st.integers(1, 20), l=st.integers(1, 40), leaf=st.integers(1, 6), sinks=st.integers(0, 5),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_every_seen_pair_is_near_or_in_one_block_as_long_as_can_be(n, l, leaf, sinks, seed):
    mask = Mask.full(n, l) if seed % 5 == 0 else hiding(n, l, seed)
    if seed % 3 == 0:
        mask = mask.take(np.random.default_rng(seed).permutation(n)[: max(1, n // 2)])
    parts, times = partition(mask, leaf, sinks), np.zeros(mask.shape, int)
    found = set()
    for level in parts.levels:
        for block, pairs in level.groups:
            keys = parts.keys(level, block)
            times[level.rows[pairs], keys] += 1
            found |= {(int(i), keys.start, keys.stop) for i in level.rows[pairs]}
    assert found == {tuple(map(int, x)) for x in naive.taken(mask, leaf, sinks)}
    for i in range(mask.n):
        for a, z in zip(parts.first[i], parts.last[i]):
            times[i, a:z] += 1
    np.testing.assert_array_equal(times, mask.visible())
    assert parts.near.sum() + sum(z - a for _, a, z in found) == mask.entries
    assert parts.near.max() <= sinks + 3 * leaf
    assert parts.stored(1) == len(found) + sum(z - a for a, z in {x[1:] for x in found})


# The oracle


@each("mask, space", [(m, s) for m in ("causal", None) for s in ("kernel", "attention")])
def test_squared_error_of_the_oracle_is_the_dyadic_sum(mask, space):
    n, rank, leaf = 64, 2, 4
    Q, K, _ = points(n, n)
    truth = naive.kernel(Q, K) * naive.seen(mask, n, n)
    if space == "attention":
        truth /= truth.sum(axis=1, keepdims=True)
    A = parse(f"hierarchical(rank={rank}, leaf={leaf}, space='{space}')").approximate(
        Q, K, mask=mask
    )
    below = naive.dyadic_sum(truth, rank, leaf)
    above = 0.0 if mask else naive.dyadic_sum(truth[::-1, ::-1], rank, leaf)
    assert below + above > 1e-3
    error = np.square(A.to_dense() - truth).sum()
    assert error == pytest.approx(below + above, rel=1e-10)
    stored = A.parameters / n  # Notes of the method
    assert stored == (rank * 4 + (leaf + 1) / 2 if mask else 2 * rank * 4 + leaf)


# Summaries of blocks


def test_means_are_those_of_runs_that_are_merged_two_by_two():
    q, K, _ = points(1, 24)
    A, T = Means.from_keys(K[:8], 3)
    B, _ = Means.from_keys(K[8:16], 3)
    C, _ = Means.from_keys(K[16:], 3)
    np.testing.assert_array_equal(T @ np.arange(8.0), [0 + 1 + 2, 3 + 4 + 5, 6 + 7])
    AB, transfer = A.merged(B, 3)
    np.testing.assert_array_equal(AB.counts, [6, 5, 5])
    np.testing.assert_array_equal(transfer @ np.ones(6), [2, 2, 2])
    for summary, runs in [
        (A, [K[:3], K[3:6], K[6:8]]),
        (AB, [K[:6], K[6:11], K[11:16]]),  # 3 + 3, 2 + 3, 3 + 2
        (AB.merged(C, 3)[0], [K[:11], K[11:19], K[19:24]]),
    ]:
        weights = [naive.mean_weight(q[0], run) for run in runs]
        # d = 3 products of 24 keys, and one exponential
        np.testing.assert_allclose(np.exp(summary.logs(q)[0]), weights, rtol=200 * EPS)


def test_the_sum_over_a_run_is_right_to_second_order():
    q, _, _ = points(1, 1)
    offsets = np.vstack([np.eye(3), -np.eye(3), [[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]])
    gaps = []
    for scale in (2**-4, 2**-6):  # coordinates are uncorrelated, so only third moments are left
        keys = 1 + scale * offsets
        weight = len(keys) * np.exp(Means.from_keys(keys, 1)[0].logs(q)[0, 0])
        gaps.append(weight / naive.kernel(q, keys).sum() - 1)
    assert math.log2(gaps[0] / gaps[1]) / 2 == pytest.approx(3, abs=0.3)


@pytest.mark.kernel
def test_pivots_are_keys_whose_weights_interpolate():
    _, K, _ = points(1, 20)
    A, T_a = Pivots.from_keys(K[:8], 3)
    B, T_b = Pivots.from_keys(K[8:20], 3)
    both, transfer = A.merged(B, 3)
    candidates = np.vstack([A.keys, B.keys])
    for summary, keys, T, block in [
        (A, K[:8], T_a, K[:8]),
        (B, K[8:20], T_b, K[8:20]),
        (both, candidates, transfer, K),
    ]:
        assert {tuple(z) for z in summary.keys} <= {tuple(k) for k in keys}
        apart = [((x - y) ** 2).sum() for x in block for y in block]  # a key and itself as well
        width = math.sqrt(sum(apart) / len(apart))
        expected = naive.gaussian_weights(summary.keys, keys, width)
        # three pivots at distances of about the width: a condition below 10³
        np.testing.assert_allclose(T, expected, atol=1e3 * 20 * EPS)
    np.testing.assert_allclose(both.mass, transfer @ np.r_[T_a.sum(1), T_b.sum(1)], rtol=20 * EPS)
    whole = np.hstack([transfer[:, :3] @ T_a, transfer[:, 3:] @ T_b])
    np.testing.assert_allclose(both.mass, whole.sum(axis=1), rtol=1e3 * EPS)
    assert len(Pivots.from_keys(np.ones((4, 2)), 3)[0].keys) == 1  # equal keys have one pivot


def test_the_first_pivot_is_the_heaviest_and_the_next_the_farthest_for_its_mass():
    keys = np.array([[0.0], [0.1], [4.0]])
    near, _ = Pivots.from_keys(keys[:2], 1)
    far, _ = Pivots.from_keys(keys[2:], 1)
    heavy, _ = far.merged(near, 1)
    np.testing.assert_array_equal(heavy.keys, near.keys)  # it stands for two keys
    two, _ = Pivots.from_keys(keys, 2)
    np.testing.assert_array_equal(two.keys, keys[[0, 2]])


@each("basis, scale", [(basis, scale) for basis in RUNNABLE for scale in (1.0, 40.0)])
def test_blocks_of_few_different_keys_are_exact(basis, scale):
    Q, K, V = points(64, 64, scale=scale)
    K = np.repeat(K[::16], 16, axis=0)  # as many as leaves of 16
    A = parse(f"hierarchical(rank=4, leaf=16, basis='{basis}')").approximate(Q, K, mask="causal")
    x = np.where(naive.seen("causal", 64, 64), Q @ K.T, -np.inf)
    top = x.max(axis=1)
    truth = np.exp(x - top[:, None])
    assert A.nnz < np.isfinite(x).sum()
    rounding = 100 * EPS * max(1, np.abs(Q @ K.T).max())  # of logits, means and variances
    entries = A.block(slice(None), shift=top)
    np.testing.assert_allclose(entries, truth, rtol=1e3 * rounding, atol=1e-300)
    out = (truth / truth.sum(axis=1, keepdims=True)) @ V
    np.testing.assert_allclose(A.attend(V), out, rtol=0, atol=rounding * np.abs(V).max())


# Products, extreme logits


@each(
    "basis, mask",
    [(b, m) for b in ("svd", *RUNNABLE) for m in (Mask.full(40, 50), Mask.window(40, 50, 23))],
)
def test_products_and_entries_agree_where_exp_overflows(basis, mask):
    Q, K, V = points(40, 50, scale=40.0)  # logits up to about 10⁴
    A = parse(f"hierarchical(rank=2, leaf=3, basis='{basis}', sinks=2)").approximate(
        Q, K, mask=mask
    )
    assert np.abs(Q @ K.T).max() > 5e3
    log = A.row_log()
    entries = A.block(slice(None), shift=log)
    assert (entries[~mask.visible()] == 0).all()
    y, y_log = A.scaled_matmat(V)
    terms = np.abs(entries) @ np.abs(V)
    found = y * np.exp(y_log - log)[:, None]
    assert (np.abs(found - entries @ V) <= 200 * EPS * terms).all()
    rows, cols = np.array([7, 3, 30]), np.array([49, 2, 11, 1])
    np.testing.assert_allclose(
        A.block(rows, cols, shift=log[rows]), entries[rows][:, cols], rtol=1e-12
    )
    every = scipy.sparse.csr_array(mask.visible().astype(float))
    low = A.low.block(slice(None), slice(None), log)
    np.testing.assert_allclose(A.low.at(every, log), low[mask.visible()], rtol=1e-12)
    shifted = A.low.rescaled(np.full(40, -1.0), np.linspace(-5, 5, 50))
    expected = low * np.exp(np.linspace(-5, 5, 50) - 1)
    np.testing.assert_allclose(
        shifted.block(slice(None), slice(None), log), expected, rtol=1e-10, atol=1e-300
    )


def test_a_block_has_at_most_one_term_a_key():
    Q, K, _ = points(5, 5)
    method = parse("hierarchical(rank=1000, leaf=1, basis='pivots', sinks=1)")
    price, A = method.price(n=5, l=5, d=3, c=2), method.approximate(Q, K)
    # query 0 takes the block of keys 1 … 4 (a rectangle of 1 + 4) and is near key 0
    assert price.stored == A.parameters / 5 == (4 * 5 + 1 + 4 * 5) / 5
    assert price.reads == 4 * (3 + 2 + 1) + (3 + 2)
