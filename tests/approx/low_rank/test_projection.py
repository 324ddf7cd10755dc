"""Column projections: least squares of outputs, the bound of the SVD, and what is held out."""

import itertools

import numpy as np
import pytest
import scipy.linalg
from small import peak

from approx import Mask, parse
from approx.estimate import exact
from approx.low_rank import projection
from approx.low_rank.projection import PIVOTS, ColumnProjection, Compaction, _ridged, pivots

RNG = np.random.default_rng(4)
Q, K, V = (RNG.standard_normal(shape) for shape in ((24, 3), (16, 3), (16, 2)))
P = exact.softmax(Q, K)


def shares(fit):
    """Return P_S of the queries, from the definition."""
    e = np.exp(Q @ fit.keys.T) * np.exp(fit.log)
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("by", PIVOTS)
def test_the_fit_of_rows_is_the_fit_of_outputs(by):
    # ridge 1e-12 moves a solution by 1e-12 times the condition of the Gram matrix
    fit = Compaction.fitted(Q, K, ColumnProjection(rank=5, pivots=by, ridge=1e-12))
    A = shares(fit)
    bound = 1e-11 * np.linalg.cond(A) ** 2
    best = np.linalg.lstsq(A, P @ V, rcond=None)[0]
    np.testing.assert_allclose(fit.weights @ V, best, rtol=0, atol=bound * np.abs(best).max())
    np.testing.assert_allclose(fit.weights.sum(axis=1), 1, rtol=0, atol=bound)
    np.testing.assert_allclose(A @ fit.weights, A @ np.linalg.pinv(A) @ P, rtol=0, atol=bound)
    s = np.linalg.svd(P, compute_uv=False)
    assert np.linalg.norm(fit.rows(Q) - P) >= np.linalg.norm(s[5:])


@pytest.mark.parametrize("ridge", [1e-3, 0.5])
def test_weights_and_values_are_ridge_regressions(ridge):
    fit = Compaction.fitted(Q, K, ColumnProjection(rank=4, ridge=ridge))
    chosen = [int(np.flatnonzero((key == K).all(axis=1))[0]) for key in fit.keys]
    E = np.eye(16)[chosen]

    def regression(A, B, prior):
        root = np.sqrt(ridge * np.square(A).sum() / 4) * np.eye(4)
        return np.linalg.lstsq(np.vstack([A, root]), np.vstack([B, root @ prior]), rcond=None)[0]

    w = regression(P[:, chosen], np.ones((24, 1)), np.ones((4, 1)))[:, 0]
    np.testing.assert_allclose(np.exp(fit.log), np.maximum(w, projection.LEAST_WEIGHT), rtol=1e-9)
    want = regression(shares(fit), P, E)
    np.testing.assert_allclose(fit.weights, want, rtol=0, atol=1e-9)


def left(columns):
    A = P[:, list(columns)]
    return np.linalg.norm(P - A @ np.linalg.lstsq(A, P, rcond=None)[0])


def test_pivots_are_those_of_their_definitions():
    greedy = []
    for _ in range(4):
        rest = [j for j in range(16) if j not in greedy]
        greedy.append(min(rest, key=lambda j: left([*greedy, j])))
    assert pivots(P, 4, "greedy").tolist() == sorted(greedy)
    qr = scipy.linalg.qr(P, pivoting=True, mode="r")[1][:9]
    assert pivots(P, 9, "qr").tolist() == sorted(qr.tolist())
    scores = np.square(np.linalg.svd(P)[2][:4]).sum(axis=0)
    assert pivots(P, 4, "leverage").tolist() == sorted(np.argsort(-scores)[:4].tolist())
    assert pivots(P, 4, "h2o").tolist() == sorted(np.argsort(-P.sum(axis=0))[:4].tolist())
    least = min(map(left, itertools.combinations(range(16), 4)))
    assert least <= left(greedy) <= 1.5 * least


def test_a_block_is_fitted_to_what_came_before_it():
    Q = np.random.default_rng(5).standard_normal((16, 3))
    method = parse("projection(rank=3, block=4)")
    found = method.approximate(Q, K, mask="causal")
    for i in range(16):
        t = i // 4 * 4
        logits = Q[i] @ K[t : i + 1].T
        row = np.r_[np.zeros(t), np.exp(logits), np.zeros(15 - i)]
        if t:
            fit = Compaction.fitted(Q[:t], K[:t], method)
            row[:t] = np.exp(Q[i] @ fit.keys.T + fit.log) @ fit.weights
        np.testing.assert_allclose(found.block(slice(i, i + 1))[0], row, rtol=1e-11, atol=1e-13)
    with pytest.raises(ValueError, match="give block"):
        parse("projection(rank=3)").approximate(Q, K, mask="causal")


def test_exact_keys_equal_keys_and_their_unit():
    want = exact.softmax(Q, K)
    found = parse("projection(rank=16)").approximate(Q, K).attend(np.eye(16))
    np.testing.assert_allclose(found, want, rtol=1e-12)
    same = np.ones((9, 2))
    row = parse("projection(rank=4)").approximate(same, same).attend(np.arange(9.0)[:, None])
    np.testing.assert_allclose(row, 4.0, atol=1e-2)  # of a ridge of 1e-3
    hidden = parse("projection(rank=2, block=2)").approximate(
        Q[:16], K, mask=Mask.window(16, 16, 5)
    )
    assert not hidden.to_dense()[~Mask.window(16, 16, 5).visible()].any()
    A, B = np.random.default_rng(0).standard_normal((2, 9, 3))
    small = _ridged(2.0**-30 * A, 2.0**-30 * B, 0.0)
    np.testing.assert_array_equal(small, _ridged(A, B, 0.0))  # powers of 2 round nothing


def test_a_price_takes_little_memory_and_one_fit_has_none_under_a_mask():
    method, mask = parse("projection(rank=2, block=4)"), Mask.causal(4096, 4096)
    most = peak(lambda: method.price(n=4096, l=4096, d=4, mask=mask).multiply_adds)
    # 64 arrays of n numbers; the 1024 blocks with their past have 512
    assert 0 < most < 4096 * 8 * 64
    at = {"n": 8, "l": 8, "d": 4, "mask": "causal"}
    assert parse("projection()").within(16, **at) is None
    assert parse("projection(block=4)").within(16, **at) is not None
