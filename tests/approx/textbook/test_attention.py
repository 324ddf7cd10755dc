"""Attention itself: each formula against its definition, and the identities between them."""

import math

import numpy as np
import pytest
from refusals import refuses

from approx.estimate import exact
from approx.textbook.attention import (
    additive_scores,
    dot_product_attention,
    jacobian_norm,
    linear_attention,
    linear_weights,
    log_length_scale,
    multi_head_attention,
    nadaraya_watson,
    regression_logits,
    relu_squared,
    self_attention,
    simple_normalisation,
    softmax,
)

TIGHT = 1e-12  # identities: some hundred roundings of numbers of size 1 to 10


def points(n=7, l=9, d=4, c=3, heads=(), seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((*heads, *shape)) for shape in ((n, d), (l, d), (l, c)))


def features(X):
    return np.exp(0.3 * X)


# Kernel regression


@pytest.mark.parametrize("w", [0.3, 1.0, 4.0])
def test_kernel_regression_is_softmax_of_its_logits(w):
    Q, K, _ = points(heads=(2,))
    weights = nadaraya_watson(Q, K, w=w)
    np.testing.assert_allclose(weights, softmax(regression_logits(Q, K, w=w)), rtol=TIGHT)
    Q, K, _ = points(d=1)
    density = np.exp(-(((Q - K.T) * math.sqrt(w)) ** 2) / 2) / math.sqrt(2 * math.pi)
    want = density / density.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(nadaraya_watson(Q, K, w=w), want, rtol=TIGHT)


# Scores


def test_scores_are_their_definitions():
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 4, 2))
    W_q, W_k, w_v = (rng.standard_normal(s) for s in ((6, 5), (6, 2), 6))
    got = additive_scores(Q, K, W_q, W_k, w_v)
    for b, i, j in np.ndindex(got.shape):
        want = w_v @ np.tanh(W_q @ Q[b, i] + W_k @ K[b, j])
        assert math.isclose(got[b, i, j], want, rel_tol=1e-12, abs_tol=1e-13)
    Q, K, _ = points()
    K /= np.linalg.norm(K, axis=1, keepdims=True)
    np.testing.assert_allclose(nadaraya_watson(Q, K), softmax(Q @ K.T), rtol=TIGHT)
    scores = np.array([[1.0, 1.0], [3.0, -1.0], [0.0, 0.0], [-1.0, -3.0]])
    weights, share = simple_normalisation(scores)
    np.testing.assert_array_equal(weights[:2], [[0.5, 0.5], [1.5, -0.5]])
    np.testing.assert_array_equal(weights[2], 0.0)
    assert share == 0.75


@pytest.mark.parametrize("causal", [False, True])
def test_dot_product_attention_is_exact_attention_at_one_over_root_d(causal):
    Q, K, V = points(n=6, l=6, heads=(2, 3))
    got = dot_product_attention(Q, K, V, causal=causal)
    assert got.shape == (2, 3, 6, 3)
    for head in np.ndindex(2, 3):
        want = exact.attention(
            Q[head] / 2, K[head], V[head], mask="causal" if causal else None
        )  # √4
        np.testing.assert_allclose(got[head], want, rtol=TIGHT, atol=TIGHT)


def test_heads_are_independent_equivariant_and_side_by_side():
    rng = np.random.default_rng(1)
    X, W = rng.standard_normal((6, 5)), rng.standard_normal((3, 5, 2))
    order = rng.permutation(6)
    got = self_attention(X, *W)
    assert got.shape == (6, 2)
    np.testing.assert_allclose(self_attention(X[order], *W), got[order], rtol=0, atol=TIGHT)
    q, k, v = (X @ w for w in W)
    one = dot_product_attention(q[2:3], k, v)
    np.testing.assert_allclose(one[0], got[2], rtol=0, atol=TIGHT)
    assert np.abs(self_attention(X[order], *W, causal=True) - got[order]).max() > 0.01
    rng = np.random.default_rng(2)
    X, W_q, W_k = rng.standard_normal((6, 5)), *rng.standard_normal((2, 3, 5, 2))
    W_v, W_o = rng.standard_normal((3, 5, 4)), rng.standard_normal((12, 5))
    heads = [self_attention(X, *W) for W in zip(W_q, W_k, W_v)]
    got = multi_head_attention(X, W_q, W_k, W_v, W_o)
    np.testing.assert_allclose(got, np.concatenate(heads, axis=1) @ W_o, rtol=0, atol=TIGHT)


# Linear attention


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("causal", [False, True])
def test_both_orders_of_association_agree(causal, normalise):
    Q, K, V = points(n=8, l=8, heads=(2,))
    phi_q, phi_k = features(Q), features(K)
    A = phi_q @ np.swapaxes(phi_k, -1, -2)
    A = np.tril(A) if causal else A
    A = A / A.sum(axis=-1, keepdims=True) if normalise else A
    got = linear_attention(phi_q, phi_k, V, causal=causal, normalise=normalise)
    np.testing.assert_allclose(got, A @ V, rtol=0, atol=TIGHT * np.abs(A).sum(axis=-1).max())
    if normalise:
        weights = linear_weights(phi_q, phi_k, causal=causal)
        np.testing.assert_allclose(weights, A, rtol=TIGHT, atol=1e-15)


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_running_sums_are_the_masked_product(dtype):
    Q, K, V = (x.astype(dtype) for x in points(n=4, l=4, d=2))
    got = linear_attention(features(Q), features(K), V, causal=True, normalise=False)
    want = np.tril(features(Q) @ features(K).T) @ V
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=100 * np.finfo(dtype).eps)
    assert linear_attention(Q[:0], K[:0], V[:0], causal=True).shape == (0, 3)


# relu², log n, gradients


def test_relu_squared_and_the_log_n_scale():
    Q, K, _ = points(d=5)
    A = relu_squared(Q, K)
    by_hand = np.maximum(Q @ K.T / math.sqrt(5), 0) ** 2 / len(K)
    np.testing.assert_allclose(A, by_hand, rtol=TIGHT)
    np.testing.assert_allclose(relu_squared(Q, K, scaling="n2"), A * 5 / len(K), rtol=TIGHT)
    np.testing.assert_allclose(relu_squared(Q, 3 * K), 9 * A, rtol=TIGHT)
    assert log_length_scale(512, 64) == 1 / 8
    assert math.isclose(log_length_scale(2**18, 64), 2 / 8)
    assert math.isclose(log_length_scale(100, 16, base=100), 1 / 4)
    one = np.ones((2, 1))
    got = linear_attention([[1.0], [-1.0]], one, [[2.0], [4.0]])
    np.testing.assert_array_equal(got, [[3.0], [0.0]])


def test_the_norm_of_the_jacobian():
    p = softmax(np.random.default_rng(5).standard_normal((3, 6)) * [[0.1], [1], [5]])
    for row, got in zip(p, jacobian_norm(p)):
        want = np.linalg.norm(np.diag(row) - np.outer(row, row))
        assert math.isclose(got, want, rel_tol=1e-12)
    # a derivative: p(x + h e) − p(x − h e) over 2h, error h²
    x, h = np.array([0.3, -0.2, 0.9]), 1e-5
    steps = h * np.eye(3)
    J = (softmax(x + steps) - softmax(x - steps)) / (2 * h)
    assert math.isclose(jacobian_norm(softmax(x)), np.linalg.norm(J), rel_tol=1e-8)
    assert 0 < jacobian_norm([1 - 1e-12, 1e-12]) < 3e-12


# Errors

Q, K, V = points()
SHAPES = r"Q and K must be \(…, n, d\)"


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: dot_product_attention(Q, K[:, :2], V), SHAPES),
        (lambda: linear_attention(Q, K, V[:3]), "phi_q, phi_k, V must be"),
        (lambda: nadaraya_watson(Q, K[:, :2]), "same width"),
        (lambda: nadaraya_watson(Q, K, w=0), "w must be finite and > 0"),
        (lambda: relu_squared(Q, K, scaling="n"), "scaling must be one of ns, n2"),
        (lambda: relu_squared([[1e80]], [[1e80]]), r"\(q·k\)² must be representable in float64"),
        (lambda: dot_product_attention(Q, K, V[:3]),
         r"V must be \(…, l, c\) with l=9 rows, got shape \(3, 3\)"),
        (lambda: dot_product_attention(Q, K, V, scale=math.nan), "scale must be finite"),
        (lambda: self_attention(Q, np.eye(4), V, np.eye(4)),
         r"W_k must have 4 rows, got shape \(9, 3\)"),
        (lambda: additive_scores(Q, K, np.ones((5, 4)), np.ones((6, 4)), np.ones(5)),
         r"W_q, W_k, w_v must be \(h, a\), \(h, b\), \(h,\)"),
        (lambda: log_length_scale(4, 0), "d must be >= 1, got 0"),
    ],
)  # fmt: skip
def test_refusals(use, message):
    refuses(message, use)


@pytest.mark.parametrize("use", [nadaraya_watson, regression_logits, relu_squared])
def test_what_no_kernel_of_points_takes(use):
    refuses("must be representable in float64, got entries up to", use, [[1e200]], [[1.0]])
    refuses(SHAPES, use, [1.0], [1.0])
