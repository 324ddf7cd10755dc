"""Low rank for total variation: what is found against brute force, starts and the true metric."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from analysis.errors.metrics import compare
from approx import Mask, parse
from approx.estimate import exact, masks
from approx.low_rank import total_variation
from approx.low_rank.total_variation import nearest
from approx.low_rank.weighted import solve

MASKS = {"full": None, "causal": "causal"}


def softmax(n, l, seed=0, scale=1.5):
    x = scale * np.random.default_rng(seed).standard_normal((n, l))
    P = np.exp(x)
    return P / P.sum(axis=1, keepdims=True)


def tv(W, P):
    return 0.5 * np.abs(W - P).sum(axis=1).mean()


def nearest_in_span(p, basis):
    """Return the least ½ Σ|a·basis − p| over a with Σ a·basis = 1, by linear programming."""
    r, l = basis.shape
    # variables a (free), e ≥ |a·basis − p|
    cost = np.concatenate([np.zeros(r), np.full(l, 0.5)])
    upper = np.block([[basis.T, -np.eye(l)], [-basis.T, -np.eye(l)]])
    sums = np.concatenate([basis.sum(axis=1), np.zeros(l)])[None]
    bounds = [(None, None)] * r + [(0, None)] * l
    found = linprog(cost, upper, np.concatenate([p, -p]), sums, [1.0], bounds)
    return found.fun


def test_rank_one_is_the_best_that_a_search_finds():
    """Rows that sum to 1 and have rank 1 are all equal: the weighted median up to scale."""
    P = softmax(7, 3)
    best = min(
        tv(np.tile([a, b, 1 - a - b], (7, 1)), P)
        for a in np.linspace(-0.1, 1.1, 121)
        for b in np.linspace(-0.1, 1.1, 121)
    )
    # the grid misses the least by at most its step, 0.01, in each of three entries
    assert best - 0.015 <= nearest(P, 1).tv <= best + 1e-3


def test_each_factor_is_the_best_beside_the_other():
    """Given the keys' factor, linear programs find rows that are hardly nearer."""
    P = softmax(12, 10, scale=2.0)
    parts = nearest(P, 3)
    least = np.mean([nearest_in_span(p, parts.right.T) for p in P])
    assert least <= parts.tv * (1 + 1e-12)
    assert parts.tv <= 1.01 * least


@pytest.mark.parametrize("name", MASKS)
def test_rows_sum_to_one_and_beat_every_start(name):
    mask = masks.as_mask(MASKS[name], 24, 24)
    Q, K = np.random.default_rng(1).standard_normal((2, 24, 4))
    P, seen = exact.softmax(Q, K, mask), mask.visible()
    parts = nearest(P, 4, mask=mask)
    W = np.where(seen, parts.left @ parts.right.T, 0.0)
    assert_allclose(W.sum(axis=1), 1.0, rtol=0, atol=1e-9)
    assert tv(W, P) == pytest.approx(parts.tv, rel=1e-12)
    for left, right in [total_variation._least_squares(P, 4, mask), *total_variation._starts(P, 4)]:
        start = np.where(seen, left @ right.T, 0.0)
        assert parts.tv < tv(start / start.sum(axis=1, keepdims=True), P)
    method = parse("truncated_svd(rank=4, space='attention', refine='tv')")
    own = compare(method.approximate(Q, K, mask=mask), Q, K)["attention_tv"]
    if name == "full":  # under a mask what is not seen is another start, which the method has
        assert own == pytest.approx(parts.tv, rel=1e-9)
    again = nearest(P, 4, mask=mask, starts=[(parts.left, parts.right)])
    assert again.tv <= parts.tv


def test_what_has_the_rank_is_found_whatever_is_not_seen():
    rng = np.random.default_rng(0)
    A, B = rng.random((20, 3)), rng.random((3, 20))
    P = A @ B
    P /= P.sum(axis=1, keepdims=True)
    assert nearest(P, 3).tv < 1e-12
    mask = Mask([0] * 20, range(1, 21), l=20)
    P = np.tril(A @ B)
    P /= P.sum(axis=1, keepdims=True)
    assert nearest(P, 3, mask=mask).tv < 0.5 * tv(np.tril(1 / np.arange(1, 21)[:, None] + 0 * P), P)


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_systems_are_solved_side_by_side(dtype):
    factors = np.random.default_rng(0).standard_normal((18, 5, 3))  # one group and two more
    grams = (factors.transpose(0, 2, 1) @ factors).astype(dtype)
    sides = factors[:, :2].transpose(0, 2, 1).copy()
    solved = sides.copy()
    solve(np.tril(grams) + np.triu(np.full((3, 3), np.nan), 1), solved)
    # the condition is below 1e4, and both solvers round at 1e-16 some ten times
    assert_allclose(solved, np.linalg.solve(grams.astype(np.float64), sides), atol=1e-10)


@pytest.mark.kernel
def test_an_unknown_without_a_pivot_stays():
    sides = np.ones((1, 2, 1))
    solve(np.array([[[4.0, 0.0], [0.0, -1e-9]]]), sides)
    assert sides.ravel().tolist() == [0.25, 0.0]


def test_a_matrix_of_equal_rows_and_all_ranks():
    P = np.tile(softmax(1, 6), (5, 1))
    assert nearest(P, 1).tv < 1e-12
    assert nearest(np.eye(4), 4).tv < 1e-12
    assert nearest(np.eye(4), 2).tv == pytest.approx(0.5)
    with pytest.raises(ValueError, match="rank"):
        nearest(np.eye(4), 5)
