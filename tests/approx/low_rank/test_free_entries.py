"""Decompositions under a mask: what is not seen is free, in the objective, the bound and S."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from small import few, hiding, very_few

from approx import Mask, parse
from approx.estimate import exact
from approx.low_rank import godec as module, robust_pca, thresholding, weighted
from approx.low_rank.godec import at_budget, godec
from approx.low_rank.robust_pca import acc_alt_proj, inexact_alm
from approx.low_rank.stable_pca import stable_pca
from approx.low_rank.truncated_svd import TruncatedSVD
from approx.method.prices import Shape

EPS = np.finfo(float).eps
THREE = 24 * EPS  # three roundings of numbers below 8, here and in the twin; one less if fused
seeds = st.integers(0, 2**32 - 1)
shapes = st.tuples(st.integers(1, 8), st.integers(1, 8))
SOLVERS = {
    "godec": lambda D, **options: godec(D, 1, 0.5, **options),
    "rank alone": lambda D, **options: godec(D, 1, 0, **options),
    "entries alone": lambda D, **options: godec(D, 0, 0.5, **options),
    "at_budget": lambda D, **options: at_budget(D, 2.5, **options),
    "inexact_alm": lambda D, **options: inexact_alm(D, max_iterations=40, **options),
    "acc_alt_proj": lambda D, **options: acc_alt_proj(D, 1, **options),
    "stable_pca": lambda D, **options: stable_pca(D, 0.1, max_iterations=40, **options),
}
every_solver = pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)


def matrix(shape, seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))


def rest(D, parts, on):
    """Return D − L − S of what is seen."""
    return np.where(on, D - parts.low_rank - parts.sparse.toarray(), 0.0)


def heads(n, l, d=8, seed=0):
    """Return Q and K of a head whose keys drift, so that what is not seen can be large."""
    rng = np.random.default_rng(seed)
    Q, K = rng.standard_normal((n, d)), rng.standard_normal((l, d))
    return Q, K + np.linspace(0, 1, l)[:, None] * rng.standard_normal(d)


def same(a, b):
    assert_array_equal(a.left, b.left)
    assert_array_equal(a.right, b.right)
    assert_array_equal(a.sparse.toarray(), b.sparse.toarray())
    assert_array_equal([a.gap, a.objective, a.iterations], [b.gap, b.objective, b.iterations])


# Every solver


@every_solver
@very_few
@given(shapes, seeds)
def test_a_full_mask_changes_no_bit(solve, shape, seed):
    D = matrix(shape, seed)
    n, l = shape
    same(solve(D), solve(D, mask=Mask.full(n, l)))
    same(solve(D), solve(D, mask=Mask(np.zeros(n, int), np.full(n, l), l, looks_back=True)))


@every_solver
@very_few
@given(shapes, seeds)
def test_only_what_is_seen_is_kept_or_counted(solve, shape, seed):
    D, mask = matrix(shape, seed), hiding(*shape, seed)
    on = naive.seen(mask, *shape)
    parts = solve(D, mask=mask)
    assert not parts.sparse.toarray()[~on].any()
    assert np.isfinite(parts.low_rank).all()
    if solve not in (SOLVERS["inexact_alm"], SOLVERS["stable_pca"]):  # whose objective is a norm
        # the roundings of a few sums of n·l squares
        assert parts.objective == pytest.approx(np.linalg.norm(rest(D, parts, on)), abs=1e-12)
    for exponent in (-600, 900):  # a power of two changes no digit
        scaled = solve(np.ldexp(D, exponent), mask=mask)
        assert_array_equal(scaled.low_rank, np.ldexp(parts.low_rank, exponent))
        assert_array_equal(scaled.sparse.toarray(), np.ldexp(parts.sparse.toarray(), exponent))
        assert_array_equal(scaled.gap, parts.gap)


@pytest.mark.parametrize(
    "solve", [SOLVERS[x] for x in ("inexact_alm", "acc_alt_proj", "stable_pca")]
)
@very_few
@given(shapes, seeds, st.sampled_from([0.0, -7.0, 1e300]))
def test_what_is_not_seen_does_not_matter(solve, shape, seed, value):
    D, mask = matrix(shape, seed), hiding(*shape, seed)
    other = np.where(naive.seen(mask, *shape), D, value)
    same(solve(D, mask=mask), solve(other, mask=mask))


@every_solver
def test_a_causal_zero_and_a_mask_of_another_shape(solve):
    D = np.triu(np.ones((4, 4)), 1)  # all that is seen is 0
    for parts in (solve(D, mask="causal"), solve(np.zeros((4, 3)))):
        assert not parts.low_rank.any()
        assert parts.objective == parts.sparse.nnz == 0
        assert parts.gap == 0 or math.isnan(parts.gap)  # of a solver without a bound
    with pytest.raises(ValueError, match="mask is for 3 queries and 4 keys, but there are 4 and 4"):
        solve(D, mask=Mask.causal(3, 4))
    with pytest.raises(ValueError, match="causal queries are the last n of l positions"):
        solve(np.ones((3, 2)), mask="causal")


RECOVER = {  # of L of rank 2 and 40 entries, and how near L is in relative Frobenius norm
    "inexact_alm": lambda D: inexact_alm(D),
    "stable_pca": lambda D: stable_pca(D, 0.0),
    "acc_alt_proj": lambda D: acc_alt_proj(D, 2),
    "godec": lambda D: godec(D, 2, 40 / len(D), iterations=200),
}


@pytest.mark.parametrize("name", RECOVER)
@very_few
@given(seeds)
def test_order_orientation_sign_and_scale_do_not_matter_where_the_split_is_unique(name, seed):
    rng = np.random.default_rng(seed)
    L, S = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 48)), np.zeros(60 * 48)
    S[rng.choice(S.size, 40, replace=False)] = rng.choice([-1.0, 1.0], 40) * rng.uniform(5, 9, 40)
    rows, columns = rng.permutation(60), rng.permutation(48)
    signs = rng.choice([-1.0, 1.0], 60)[:, None] * rng.choice([-1.0, 1.0], 48)
    changes = [lambda A: A, lambda A: A.T, lambda A: A[rows][:, columns], lambda A: signs * A]
    for change in (*changes, lambda A: 3e100 * A, lambda A: 1e-200 * A):
        parts = RECOVER[name](change(L + S.reshape(L.shape)))
        unit = np.abs(change(L)).max()
        # a residual of 1e-7 of D, up to 30 times as large, is an error of the parts of that order
        assert_allclose(parts.low_rank / unit, change(L) / unit, atol=1e-5)
        on = np.abs(parts.sparse.toarray()) > 1e-3 * unit
        assert_array_equal(on, change(S.reshape(L.shape)) != 0)


@pytest.mark.parametrize(("call", "message"), [
    (lambda D: godec(D, 1, 3.5), "k must be between 0 and l = 3"),
    (lambda D: godec(D, 1, -0.5), "k must be between 0 and l = 3"),
    (lambda D: godec(D, 1, math.nan), "k must be between 0 and l = 3"),
    (lambda D: godec(D, 1, 1, starts=[D.T]), "shape"),
    (lambda D: at_budget(D, 1, ranks=[2]), "no rank of"),
    (lambda D: at_budget(D, 1, ranks=[-1]), "every rank must be >= 0"),
    (lambda D: inexact_alm(D, rho=0.9), "rho must be finite and >= 1"),
    (lambda D: acc_alt_proj(D, 1, tolerance=-1.0), "tolerance must be finite and > 0"),
    (lambda D: acc_alt_proj(D, 1, max_iterations=0), "max_iterations must be >= 1"),
    (lambda D: stable_pca(D, 0.1, 0.0), "lam must be finite and > 0"),
    (lambda D: stable_pca(D, 0.1, tolerance=0.0), "tolerance must be finite and > 0"),
    (lambda D: stable_pca(D, 0.1, gap_tolerance=0.0), "gap_tolerance must be finite"),
    (lambda D: stable_pca(D, -1.0), "delta must be finite and >= 0"),
])  # fmt: skip
def test_bad_input_of_a_solver_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 3)))


# Low rank


def starts(D, on, rank):
    """The errors of the SVD of D with zeros, and of that of D with all that is not seen."""
    fills = np.where(on, D, 0.0), D
    return [np.linalg.norm(np.where(on, D - naive.truncated(F, rank), 0.0)) for F in fills]


@pytest.mark.parametrize("space", ["kernel", "attention"])
@given(st.integers(1, 8), st.integers(1, 8), seeds, st.data())
def test_the_method_is_nearer_than_both_svds(space, n, l, seed, data):
    (Q, K), mask = heads(n, l, 3, seed), hiding(n, l, seed)
    rank = data.draw(st.integers(1, min(n, l)))
    on, D = naive.seen(mask, n, l), np.exp(Q @ K.T)
    if space == "attention":
        D /= np.where(on, D, 0.0).sum(axis=1, keepdims=True)
    A = TruncatedSVD(rank, space=space).approximate(Q, K, mask=mask)
    assert A.space == space
    error = np.linalg.norm(np.where(on, D, 0.0) - A.to_dense())
    # as above, and e^x carries |x| roundings, |x| < 30
    assert error <= min(starts(D, on, rank)) + 1000 * EPS * np.linalg.norm(D)


def test_a_matrix_of_that_rank_beside_zeros_is_found_whatever_is_unseen():
    rng = np.random.default_rng(0)
    on = np.tril(np.ones((16, 16), bool))
    D = np.where(on, 0.0, 1e3 * rng.standard_normal((16, 16)))
    D[-4:, :-4] = rng.standard_normal((4, 12))
    parts = godec(D, 4, 0, mask="causal")
    # an SVD, as above; from what is unseen, 40 sweeps and least squares are still at 3e-2
    assert parts.objective <= 100 * EPS * np.linalg.norm(np.where(on, D, 0.0))


def test_a_low_rank_matrix_is_completed():
    rng = np.random.default_rng(0)
    L = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 60))
    on = naive.seen("causal", 60, 60)
    D = np.where(on, L, rng.standard_normal((60, 60)))
    found = godec(D, 2, 0, mask="causal")
    assert found.objective < 0.02 * min(starts(D, on, 2))
    # what is there before the mask is a start
    assert godec(L, 2, 0, mask="causal").objective <= 100 * EPS * np.linalg.norm(L)
    # its steps go further than plain ones of the same number
    assert found.objective < naive.completed(D, on, 2, np.zeros_like(D), sweeps=40)


def test_energy_under_a_mask_is_reached_and_epsilon_refused():
    Q, K = heads(30, 30)
    D = np.tril(np.exp(Q @ K.T))
    for energy in (0.5, 0.99):
        A = TruncatedSVD(energy=energy).approximate(Q, K, mask="causal")
        s = np.linalg.svd(D, compute_uv=False)
        assert A.rank == int(np.argmax(np.cumsum(s**2) >= energy * (s @ s))) + 1
        error = np.linalg.norm(D - A.to_dense())
        assert error**2 <= (1 - energy) * np.linalg.norm(D) ** 2 * (1 + 100 * EPS)
    with pytest.raises(ValueError, match="a matrix with free entries has no spectral norm"):
        TruncatedSVD(epsilon=0.1).approximate(Q, K, mask="causal")


@pytest.mark.parametrize("spec", ["truncated_svd(2)", "godec(1, 2)", "stable_pca()"])
@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_keys_that_are_not_seen_may_be_of_any_size(spec, space, dtype):
    Q, K = (x.astype(dtype) for x in heads(12, 12, 3))
    K[-1] = 400 * Q[0] / np.linalg.norm(Q[0])  # only the last query sees it
    method = parse(spec.replace(")", f", space={space!r})").replace("(, ", "("))
    mask = Mask.causal(11, 12).take(slice(0, 10))
    A = method.approximate(Q[:10], K, mask=mask)
    assert A.dtype == dtype
    values = A.block(slice(None), shift=A.row_log())
    assert np.isfinite(values).all()
    truth = exact.softmax(Q[:10], K, mask)
    shares = values / values.sum(axis=1, keepdims=True) if space == "kernel" else A.to_dense()
    # better than nothing, however large the rest is
    assert np.linalg.norm(shares - truth) < np.linalg.norm(truth)


# Both parts


@pytest.mark.parametrize("batched", [weighted.BATCHED, 0], ids=["many rows", "row by row"])
def test_a_factor_is_fitted_by_weighted_least_squares(batched, monkeypatch):
    monkeypatch.setattr(weighted, "BATCHED", batched)
    rng = np.random.default_rng(0)
    D, factor = rng.standard_normal((6, 7)), rng.standard_normal((7, 6))  # rows one at a time
    weights = rng.uniform(0.5, 2.0, (6, 7)) * (rng.random((6, 7)) < 0.7)
    weights[2] = 0.0
    X = module._fitted(D, weights, factor)
    for x, d, w in zip(X, D, np.sqrt(weights)):
        A = factor * w[:, None]
        ridge = weighted.RIDGE * (A**2).sum()
        if ridge:  # the minimum of |A x − d|² + ridge |x|², as one least-squares problem
            A, d = (
                np.vstack([A, math.sqrt(ridge) * np.eye(6)]),
                np.concatenate([d * w, np.zeros(6)]),
            )
            # condition² ≤ 28/ridge times 100 roundings, of a matrix of norm about 1
            assert_allclose(x, np.linalg.lstsq(A, d)[0], rtol=0, atol=3e9 * EPS)
        else:
            assert_array_equal(x, 0.0)
    # squares of 1e-161 are above 0, the ridge of their Gram matrix was not: it was singular
    tiny = 1e-161 * np.eye(7, 2) @ np.eye(2, 6)
    assert np.abs(module._fitted(D, np.ones_like(D), tiny)).max() < 1e-160


def test_factors_follow_each_other_by_least_squares(monkeypatch):
    # a band, which is far from low rank beside zeros, and near to it beside free entries
    n, mask = 60, Mask.window(60, 60, 8)
    D = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) + np.sin(np.arange(n)))
    found = godec(D, 3, 0, mask=mask)
    assert math.isclose(found.objective, np.linalg.norm(rest(D, found, mask.visible())))
    monkeypatch.setattr(module, "ALTERNATIONS", 0)
    module._completed.cache_clear()
    assert found.objective < 0.5 * godec(D, 3, 0, mask=mask).objective


@given(shapes, seeds, st.data())
def test_both_parts_are_nearer_than_either(shape, seed, data):
    (n, l), D, mask = shape, matrix(shape, seed), hiding(*shape, seed)
    on = naive.seen(mask, n, l)
    rank = data.draw(st.integers(1, min(shape)))
    k = data.draw(st.integers(1, 4 * l)) / 4
    count = math.floor(sum(min(k, seen) for seen in mask.counts))
    parts = godec(D, rank, k, mask=mask)
    assert parts.rank == rank
    assert parts.sparse.nnz <= count <= on.sum()
    seen = np.where(on, D, 0.0)
    rounding = 100 * EPS * np.linalg.norm(D)
    assert parts.objective <= np.linalg.norm(seen - naive.largest(seen, count)) + rounding
    assert parts.objective <= godec(D, rank, 0, mask=mask).objective + rounding
    assert godec(D, 0, k, mask=mask).objective == pytest.approx(
        np.linalg.norm(seen - naive.largest(seen, count)), abs=rounding
    )


@pytest.mark.parametrize("budget", [2, 7.3, 20])
@pytest.mark.parametrize("mask", [Mask.causal(40, 48), Mask.window(48, 48, 12)], ids=str)
def test_a_split_is_at_most_either_part_alone(budget, mask):
    n, l = mask.shape
    D = exact.softmax(*heads(n, l), mask)
    parts = at_budget(D, budget, mask=mask)
    assert parts.rank * (n + l) + parts.sparse.nnz <= budget * n
    largest = naive.largest(D, min(int(budget * n), mask.entries))
    assert parts.objective <= np.linalg.norm(D - largest) * (1 + 1e-12)
    rank = int(budget * n / (n + l))
    if rank:
        assert parts.objective <= godec(D, rank, 0, mask=mask).objective * (1 + 1e-12)


@given(seeds, st.floats(0.1, 12))
def test_entries_per_row_spend_what_is_left(seed, budget):
    n, l = 5, 8
    mask = hiding(n, l, seed)
    method = parse("godec(rank=1)").within(budget, n=n, l=l, d=2, mask=mask)
    left = budget - (n + l) / n
    if left < 0:
        assert method is None
        return
    # all of it, unless everything is seen for less
    everything = mask.entries / n
    assert Shape(n, l, 2, 2, mask).seen(method.k) == pytest.approx(min(left, everything), abs=1e-12)
    A = method.approximate(*heads(n, l, 2, seed), mask=mask)
    assert A.parameters <= budget * n + 1e-9
    stored = method.price(n=n, l=l, d=2, mask=mask).stored
    assert A.parameters <= stored * n + 1e-9


# Pursuit and its bound


@few
@given(st.tuples(st.integers(2, 6), st.integers(2, 6)), seeds, st.sampled_from([0.6, 0.8, 1.1]))
def test_a_pursuit_is_optimal_and_its_bound_holds(shape, seed, lam):
    D, mask = matrix(shape, seed), hiding(*shape, seed)
    on = naive.seen(mask, *shape)
    twin = naive.pursuit(np.where(on, D, 0.0), lam, on, rho=1.003)
    size = np.linalg.norm(D[on])
    parts = inexact_alm(D, lam, mask=mask, gap_tolerance=1e-5)
    L, S = parts.low_rank, parts.sparse.toarray()
    assert np.linalg.norm(rest(D, parts, on)) <= 1.001e-7 * size
    assert parts.objective == pytest.approx(np.linalg.norm(L, "nuc") + lam * np.abs(S).sum())
    assert abs(parts.gap) <= 1e-5
    # the twin is feasible, so that the bound is below it; and the pursuit is within its gap
    assert parts.objective * (1 - parts.gap) <= twin * (1 + 1e-9)
    assert parts.objective <= twin * (1 + 1.1e-5) + 1e-6 * size
    # a bound holds at any time
    early = inexact_alm(D, lam, mask=mask, max_iterations=5)
    assert early.objective * (1 - early.gap) <= twin * (1 + 1e-9)
    assert early.objective * early.gap >= -1e-6 * size or early.objective < twin


@very_few
@given(st.tuples(st.integers(2, 6), st.integers(2, 6)), seeds, st.floats(0, 0.9))
def test_a_stable_pursuit_is_optimal_and_its_bound_holds(shape, seed, delta):
    D, mask = matrix(shape, seed), hiding(*shape, seed)
    on = naive.seen(mask, *shape)
    size = np.linalg.norm(D[on])
    parts = stable_pca(D, delta, 0.5, mask=mask, gap_tolerance=1e-5)
    assert np.linalg.norm(rest(D, parts, on)) <= (delta + 1.001e-7) * size
    assert abs(parts.gap) <= 1e-5
    L, S = parts.low_rank, parts.sparse.toarray()
    assert parts.objective == pytest.approx(
        np.linalg.norm(L, "nuc") + 0.5 * np.abs(S).sum(), abs=1e-12
    )
    if delta == 0:
        whole = inexact_alm(D, 0.5, mask=mask, gap_tolerance=1e-5)
        assert parts.objective == pytest.approx(whole.objective, rel=3e-5, abs=1e-6 * size)
    # (1 − δ) times a feasible pair of δ = 0 leaves a rest of δ‖D‖
    whole = inexact_alm(D, 0.5, mask=mask, gap_tolerance=1e-5)
    assert parts.objective <= (1 - delta) * whole.objective * (1 + 3e-5) + 1e-6 * size
    early = stable_pca(D, delta, 0.5, mask=mask, max_iterations=3)
    assert early.objective * (1 - early.gap) <= parts.objective * (1 + 1e-9) + 1e-6 * size


def missing(n):
    """Return a mask that hides the first keys from every other query, up to a quarter of them."""
    first = np.random.default_rng(2).integers(0, n // 4, n)
    first[::2] = 0
    return Mask(first, np.full(n, n), n)


@pytest.mark.parametrize("name", ["inexact_alm", "acc_alt_proj"])
def test_both_parts_are_recovered_from_what_is_seen(name):
    L, S = naive.golden(200, 5, 0.03)
    mask = missing(200)
    on = naive.seen(mask, 200, 200)
    D = np.where(on, L + S, 100.0)
    parts = inexact_alm(D, mask=mask) if name == "inexact_alm" else acc_alt_proj(D, 5, mask=mask)
    assert parts.rank == 5
    assert_array_equal(parts.sparse.toarray() != 0, (S != 0) & on)
    assert np.linalg.norm(parts.low_rank - L) < 1e-5 * np.linalg.norm(L)  # also where none is seen


def test_the_weight_of_entries_follows_the_share_that_is_seen():
    D, mask = matrix((30, 20), 0), hiding(30, 20, 6)
    lam = math.sqrt(30 * 20 / (mask.entries * 30))
    assert lam > 30**-0.5
    same(inexact_alm(D, mask=mask), inexact_alm(D, lam, mask=mask))
    same(stable_pca(D, 0.1, mask=mask), stable_pca(D, 0.1, lam, mask=mask))


# Kernels


@pytest.mark.kernel
def test_separate_and_gather_leave_out_what_is_not_seen():
    rng = np.random.default_rng(0)
    D, L, P = rng.standard_normal((3, 7, 5))
    off = rng.random((7, 5)) < 0.4
    D[off] = np.nan
    out, work = np.empty_like(D), np.empty(36)
    for threshold in (0.0, 0.8, math.inf):
        large = np.abs(D - L) >= threshold
        total = thresholding._separate(D, L, P, threshold, 0.9, out)
        assert total == pytest.approx(((D - L)[~large & ~off] ** 2).sum(), rel=1e-14)
        want = np.where(large | off, L + 0.9 * (L - P), D)
        assert_allclose(out, want, rtol=0, atol=THREE)
        above, found = thresholding._gather(D, L, threshold, 2.0, work)
        assert_array_equal(work[:found], np.abs(D - L)[large & (np.abs(D - L) <= 2.0)])
        assert above == np.count_nonzero(np.abs(D - L) > 2.0)


@pytest.mark.kernel
@pytest.mark.parametrize("alpha", [1.0, 1.6])
def test_augmented_step_is_free_where_nothing_is_seen(alpha):
    rng = np.random.default_rng(0)
    D, L, P, Y = rng.standard_normal((4, 7, 5))
    off = rng.random((7, 5)) < 0.4
    Y[off] = 0.0
    lam, mu, mu_next = 0.4, 0.7, 0.9
    weights = np.array([mu, 1 / mu, 1 / mu_next, alpha])
    state, whole = np.stack([Y, P]), np.stack([Y, P])
    total = robust_pca._augmented_step(np.where(off, np.nan, D), L, state, weights, lam)
    robust_pca._augmented_step(D, L, whole, weights, lam)
    assert_array_equal(state[:, ~off], whole[:, ~off])
    assert_array_equal(state[0][off], 0.0)
    relaxed = alpha * L + (1 - alpha) * P
    assert_allclose(state[1][off], relaxed[off], rtol=0, atol=THREE)
    S = D - whole[1] + whole[0] / mu_next
    assert total == pytest.approx(((D - L - S)[~off] ** 2).sum(), rel=1e-12)


def test_fits_go_further_than_subspace_iteration(monkeypatch):
    D = exact.softmax(*heads(64, 64), "causal")
    fitted = godec(D, 4, 4, mask="causal").objective
    monkeypatch.setattr(module, "ALTERNATING", 0)
    module._completed.cache_clear()
    assert fitted < 0.99 * godec(D, 4, 4, mask="causal").objective
