"""Stable pursuit: its certificate, its limits, an independent solver."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose

from approx import parse
from approx.low_rank.robust_pca import inexact_alm
from approx.low_rank.stable_pca import _clipped_square, _multiplier, stable_pca

seeds = st.integers(0, 2**32 - 1)


def attention(n, l, temperature=1.0, d=16, seed=0):
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((n, d)), rng.standard_normal((l, d))
    return np.exp(Q @ K.T / (temperature * math.sqrt(d)))


def rest(D, parts):
    return D - parts.low_rank - parts.sparse.toarray()


def objective(L, S, lam):
    return np.linalg.norm(L, "nuc") + lam * np.abs(S).sum()


@pytest.mark.parametrize("delta", [0.01, 0.1, 0.4])
def test_an_independent_solver_finds_the_same_optimum(delta):
    D = attention(20, 20)
    D /= D.max()
    lam = 20**-0.5
    L, S = naive.stable_pursuit(D, delta * np.linalg.norm(D), lam, step=0.1)
    parts = stable_pca(D, delta, gap_tolerance=1e-7)
    assert abs(parts.gap) <= 1e-7
    # the slow solver's residual after 4000 steps is the coarser of the two
    assert parts.objective == pytest.approx(objective(L, S, lam), rel=1e-5)
    assert parts.objective == pytest.approx(
        objective(parts.low_rank, parts.sparse.toarray(), lam), rel=1e-12
    )


@pytest.mark.parametrize("D", [attention(48, 48), attention(64, 40, 0.25), attention(40, 64, 4.0)])
def test_without_a_rest_it_is_robust_pca(D):
    exact = inexact_alm(D, gap_tolerance=1e-6)
    parts = stable_pca(D, 0.0, gap_tolerance=1e-6)
    assert np.linalg.norm(rest(D, parts)) <= 1.001e-7 * np.linalg.norm(D)
    assert parts.objective == pytest.approx(exact.objective, rel=2e-6)  # the gaps of both
    # the objective is convex in δ, with slope −‖Y‖_F‖D‖_F at least: |Y| ≤ λ, ‖Y‖₂ ≤ 1
    slope = math.sqrt(min(D.shape)) * np.linalg.norm(D)
    for delta in (1e-3, 1e-5):
        near = stable_pca(D, delta, gap_tolerance=1e-6)
        assert near.objective <= exact.objective * (1 + 2e-6)
        assert near.objective >= exact.objective * (1 - 2e-6) - delta * slope


def test_zeros():
    for parts in (stable_pca(np.zeros((3, 2)), 0.1), stable_pca(attention(5, 4), 1.0)):
        assert parts.rank == parts.sparse.nnz == parts.objective == parts.gap == 0
        assert not parts.low_rank.any()
    first = stable_pca(attention(20, 20), 0.01, max_iterations=1)
    assert first.iterations == 1
    assert math.isfinite(first.gap)


@pytest.mark.parametrize("space", ["kernel", "attention"])
def test_the_method_has_the_error_that_is_allowed(space):
    Q, K = np.random.default_rng(0).standard_normal((2, 30, 4))
    D = np.exp(Q @ K.T)
    D = D if space == "kernel" else D / D.sum(axis=1, keepdims=True)
    A = parse(f"stable_pca(delta=0.2, space={space!r})").approximate(Q, K)
    assert np.linalg.norm(A.to_dense() - D) == pytest.approx(0.2 * np.linalg.norm(D), rel=1e-5)
    assert parse("stable_pca").within(100, n=30, l=30, d=4) is None


@pytest.mark.kernel
@given(st.tuples(st.integers(1, 5), st.integers(1, 5)), seeds)
def test_the_pair_of_sparse_and_rest_is_optimal(shape, seed):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal(shape)
    kappa = rng.uniform(0, 3)
    size = np.minimum(np.abs(W), kappa)
    assert _clipped_square(W, kappa) == pytest.approx((size**2).sum(), rel=1e-13)
    mu, lam, delta = rng.uniform(0.2, 3, 3)
    Y, S = _multiplier(W, mu, lam, delta)
    Z = W - S - Y / mu
    assert np.abs(Y).max() <= lam * (1 + 2**-51)  # a quotient and a product, rounded
    assert np.linalg.norm(Z) <= delta * (1 + 1e-9)
    large = S != 0
    assert_allclose(Y[large], lam * np.sign(S[large]), rtol=1e-12)
    # Y is a nonnegative multiple of Z, and 0 unless ‖Z‖ = δ
    assert np.vdot(Y, Z) == pytest.approx(np.linalg.norm(Y) * np.linalg.norm(Z), abs=1e-9)
    assert np.linalg.norm(Y) * abs(np.linalg.norm(Z) - delta) <= 1e-8
