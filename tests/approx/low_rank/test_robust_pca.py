import math

import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose

from approx import Mask, parse
from approx.low_rank import robust_pca
from approx.low_rank.godec import at_budget, godec
from approx.low_rank.robust_pca import PROVING, acc_alt_proj, inexact_alm
from approx.low_rank.stable_pca import _clipped_square, _multiplier, stable_pca
from approx.method.tags import ORACLE

GOLDEN = [(400, 20, 0.05), (500, 25, 0.05), (500, 50, 0.10)]
shapes = st.tuples(st.integers(1, 8), st.integers(1, 8))
seeds = st.integers(0, 2**32 - 1)


def attention(n, l=None, temperature=1.0, d=64):
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((n, d)), rng.standard_normal((l or n, d))
    return np.exp(Q @ K.T / (temperature * math.sqrt(d)))


def objective(L, S, lam):
    return np.linalg.norm(L, "nuc") + lam * np.abs(S).sum()


@pytest.mark.parametrize(("n", "rank", "corruption"), GOLDEN)
def test_golden_instances_are_recovered(n, rank, corruption):
    L, S = naive.golden(n, rank, corruption)
    parts = inexact_alm(L + S)
    assert parts.sparse.nnz == int(corruption * n * n)
    assert abs(parts.gap) <= 1e-4
    # Recovery is exact, so the optimum is known; L + S = D holds to 1e-7.
    assert parts.objective == pytest.approx(objective(L, S, n**-0.5), rel=1e-6)
    assert 16 <= parts.iterations <= 26 or corruption > 0.05
    projected = acc_alt_proj(L + S, rank)
    assert projected.objective <= 1e-7 * np.linalg.norm(L + S)
    assert math.isnan(projected.gap)
    assert projected.iterations <= 25
    for found in (parts, projected):
        assert found.rank == rank
        assert ((found.sparse.toarray() != 0) == (S != 0)).all()
        assert np.linalg.norm(found.low_rank - L) < 1e-6 * np.linalg.norm(L)


def test_exact_recovery_is_not_run_again():
    L, S = naive.golden(400, 20, 0.05)
    alone = inexact_alm(L + S, gap_tolerance=math.inf)
    believed = inexact_alm(L + S)
    assert believed.iterations == alone.iterations
    assert believed.objective == alone.objective
    # Here the gap is too large at first, but the better dual point of a few more iterations
    # confirms the same L and S.
    L, S = naive.golden(200, 20, 0.1)
    alone = inexact_alm(L + S, gap_tolerance=math.inf)
    confirmed = inexact_alm(L + S)
    assert alone.gap > 1e-4 >= confirmed.gap
    assert alone.iterations < confirmed.iterations <= alone.iterations + 10
    assert (confirmed.left == alone.left).all()


@pytest.mark.parametrize("D", [
    attention(24),
    attention(40, temperature=0.25)[:, :24],
    attention(40, temperature=4.0)[:24],
    np.random.default_rng(1).standard_normal((30, 20)),
    naive.golden(60, 3, 0.05)[0] + naive.golden(60, 3, 0.05)[1],
])  # fmt: skip
def test_objective_equals_that_of_the_plain_solver(D):
    lam = max(D.shape) ** -0.5
    parts = inexact_alm(D, gap_tolerance=1e-6)
    assert abs(parts.gap) <= 1e-6  # so the objective is that close to the optimum
    assert parts.objective == pytest.approx(naive.pursuit(D, lam), rel=2e-6)
    assert parts.objective == pytest.approx(
        objective(parts.low_rank, parts.sparse.toarray(), lam), rel=1e-12
    )


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_wrong_point_is_noticed_and_left(temperature):
    D = attention(128, temperature=temperature)
    fast = inexact_alm(D, gap_tolerance=math.inf)
    found = inexact_alm(D)
    assert fast.gap > 0.03
    assert abs(found.gap) <= 1e-4
    assert found.objective < fast.objective
    assert found.rank < fast.rank
    # Both satisfy the constraint that other solvers stop at.
    for parts in (fast, found):
        rest = np.linalg.norm(D - parts.low_rank - parts.sparse.toarray())
        assert rest <= 1e-7 * np.linalg.norm(D) * (1 + 1e-6)


def test_a_gap_out_of_reach_ends_with_the_iterations():
    parts = inexact_alm(attention(20), gap_tolerance=1e-14, max_iterations=300)
    assert parts.iterations == 300
    assert abs(parts.gap) < 1e-6
    for first in (
        inexact_alm(attention(20), max_iterations=1),
        stable_pca(attention(20, d=16), 0.01, max_iterations=1),
    ):
        assert first.iterations == 1
        assert math.isfinite(first.gap)


@given(shapes, seeds)
def test_extreme_lam_leaves_one_part(shape, seed):
    D = np.random.default_rng(seed).standard_normal(shape)
    # S = D is optimal for λ ≤ 1/√(nl), L = D for λ ≥ 1 (|sgn D| and the polar factor are feasible).
    everything = inexact_alm(D, 0.5 / math.sqrt(D.size))
    assert everything.objective == pytest.approx(
        0.5 / math.sqrt(D.size) * np.abs(D).sum(), rel=1e-4
    )
    nothing = inexact_alm(D, 2.0)
    assert nothing.objective == pytest.approx(np.linalg.norm(D, "nuc"), rel=1e-4)
    assert_allclose(nothing.low_rank, D, atol=1e-4 * np.abs(D).max())


def test_rank_zero():
    D = np.arange(6.0).reshape(2, 3)
    parts = acc_alt_proj(D, 0)
    assert (parts.sparse.toarray() == D).all()
    assert parts.low_rank.tolist() == np.zeros((2, 3)).tolist()


@pytest.mark.kernel
@pytest.mark.parametrize("alpha", [1.0, 1.6])
def test_augmented_step_equals_its_definition(alpha):
    rng = np.random.default_rng(0)
    D, L, S, Y = rng.standard_normal((4, 7, 5))
    lam, mu, mu_next = 0.4, 0.7, 0.9
    Y = np.clip(Y, -lam, lam)
    relaxed = alpha * L + (1 - alpha) * (D - S)
    W = mu * (D - relaxed) + Y
    new_Y = np.clip(W, -lam, lam)
    new_S = (W - new_Y) / mu
    assert_allclose(  # the shrinkage it is meant to be
        new_S, np.sign(W) * np.maximum(np.abs(W) - lam, 0) / mu, atol=1e-14
    )
    state = np.stack([Y, D - S + Y / mu])
    weights = np.array([mu, 1 / mu, 1 / mu_next, alpha])
    rest = robust_pca._augmented_step(D, L, state, weights, lam)
    assert_allclose(state[0], new_Y, atol=1e-14)
    assert_allclose(state[1], D - new_S + new_Y / mu_next, atol=1e-14)
    assert rest == pytest.approx(((D - L - new_S) ** 2).sum(), rel=1e-13)
    assert np.abs(state[0]).max() == lam


def test_the_method_finds_rank_and_entry_of_a_kernel():
    Q, K = np.zeros((20, 1)), np.zeros((30, 1))
    Q[3], K[4] = 1.0, 2.0  # one logit of 2, all others 0
    for space, entry in (("kernel", math.exp(2) - 1), ("attention", None)):
        method = parse(f"acc_alt_proj(rank=1, space='{space}')")
        A = method.approximate(Q, K)
        D = np.exp(Q @ K.T)
        if space == "kernel":
            s = A.correction.matrix.toarray() * math.exp(A.correction.log)
            assert (A.rank, A.nnz) == (1, 1)
            assert s[3, 4] == pytest.approx(entry, rel=1e-6)
        else:
            D /= D.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(A.to_dense(), D, atol=1e-6 * np.linalg.norm(D))
        assert ORACLE in method.tags
        assert method.within(1e9, n=20, l=30, d=1) is None


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("solve", [
    lambda D, mask: inexact_alm(D, mask=mask, max_iterations=5),
    lambda D, mask: inexact_alm(D[:50], mask=mask),
    lambda D, mask: acc_alt_proj(D, 3, mask=mask, max_iterations=2),
    lambda D, mask: godec(D, 3, 2.0, mask=mask),
    lambda D, mask: at_budget(D, 8.0, mask=mask),
    lambda D, mask: stable_pca(D, 0.1, mask=mask),
    lambda D, mask: stable_pca(D, 1.0, mask=mask),
])  # fmt: skip
def test_the_residual_says_what_is_reached(solve, mask):
    D = 1e-3 * attention(64, temperature=0.5)
    parts = solve(D, mask)
    shown = D[: len(parts.left)].copy()
    hidden = np.zeros(shown.shape, bool) if mask is None else ~Mask.causal(*shown.shape).visible()
    rest = shown - parts.left @ parts.right.T - parts.sparse.toarray()
    rest[hidden] = shown[hidden] = 0
    assert parts.residual == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(shown), rel=1e-6)


def test_a_good_result_of_the_fast_schedule_is_proven_and_not_sought_again():
    Q, K = np.random.default_rng(0).standard_normal((2, 60, 16))
    D = np.exp(Q @ K.T)  # a few entries are most of all
    fast, proven = (inexact_alm(D, gap_tolerance=gap) for gap in (np.inf, 1e-4))
    assert fast.gap > 1e-3 > 1e-4 >= proven.gap
    assert proven.iterations <= fast.iterations + PROVING
    assert proven.objective == fast.objective  # of the same L and S


# Stable pursuit: its certificate, its limits, an independent solver


def rest(D, parts):
    return D - parts.low_rank - parts.sparse.toarray()


@pytest.mark.parametrize("delta", [0.01, 0.1, 0.4])
def test_an_independent_solver_finds_the_same_optimum(delta):
    D = attention(20, d=16)
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


@pytest.mark.parametrize(
    "D", [attention(48, d=16), attention(64, 40, 0.25, d=16), attention(40, 64, 4.0, d=16)]
)
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


def test_a_rest_of_everything_leaves_nothing():
    parts = stable_pca(attention(5, 4, d=16), 1.0)
    assert parts.rank == parts.sparse.nnz == parts.objective == parts.gap == 0
    assert not parts.low_rank.any()


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
