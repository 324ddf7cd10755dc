"""Truncated SVD: ranks from an error or an energy, and the routes for large matrices."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose
from small import drawn

from approx.estimate import memory
from approx.low_rank import exact_matrix, subspace, truncated_svd
from approx.low_rank.krylov import Streamed, block_krylov
from approx.low_rank.subspace import leading, rotate, shrink_singular_values, spectral_norm, tail
from approx.low_rank.truncated_svd import TruncatedSVD

EPS = np.finfo(float).eps


def dense(Q, K, space):
    D = np.exp(Q @ K.T)
    return D if space == "kernel" else D / D.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("epsilon", [0.9, 0.1, 1e-2, 1e-4, 1e-12])
def test_epsilon_gives_the_least_rank_with_that_spectral_error(space, epsilon):
    Q, K = drawn(30, 20, 3, scale=1)
    D = dense(Q, K, space)
    A = TruncatedSVD(space=space, epsilon=epsilon).approximate(Q, K)
    top = np.linalg.norm(D, 2)
    # a few roundings of σ₁ beside an error that is at most ε·σ₁
    assert np.linalg.norm(D - A.to_dense(), 2) <= (epsilon + 100 * EPS) * top
    s = np.linalg.svd(D, compute_uv=False)
    assert A.rank == np.linalg.matrix_rank(D, tol=epsilon * s[0])
    same = TruncatedSVD(rank=A.rank, space=space).approximate(Q, K)
    np.testing.assert_array_equal(A.to_dense(), same.to_dense())
    if A.rank > 1:
        less = TruncatedSVD(rank=A.rank - 1, space=space).approximate(Q, K)
        assert np.linalg.norm(D - less.to_dense(), 2) > epsilon * top


@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("energy", [0.1, 0.9, 0.99, 1 - 1e-6])
def test_energy_gives_the_least_rank_with_that_share(space, energy):
    Q, K = drawn(30, 20, 3, scale=1)
    D = dense(Q, K, space)
    A = TruncatedSVD(space=space, energy=energy).approximate(Q, K)
    # orthogonal parts: ‖A‖² + ‖D − A‖² = ‖D‖²
    total = np.linalg.norm(D) ** 2
    assert np.linalg.norm(A.to_dense()) ** 2 >= energy * total * (1 - 100 * EPS)
    if A.rank > 1:
        less = TruncatedSVD(rank=A.rank - 1, space=space).approximate(Q, K)
        assert np.linalg.norm(less.to_dense()) ** 2 < energy * total


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(1e-9, 0.999), st.data())
def test_least_rank_is_its_definition(values, share, data):
    s = np.sort(np.array([1.0, *values]))[::-1]
    total = math.fsum(s**2)
    ranks = range(1, len(s) + 1)
    rest = [*s[1:], 0.0]
    by_error = next(r for r in ranks if rest[r - 1] <= share)
    assert (TruncatedSVD(epsilon=share).least_rank(s, s @ s) or len(s)) == by_error
    found = TruncatedSVD(energy=share).least_rank(s, s @ s)
    kept = [math.fsum(s[:r] ** 2) / total for r in ranks]
    # sums of at most 10 terms, and the forgiven 1e-15 each: a tie may fall on either side
    assert kept[found - 1] >= share * (1 - 100 * EPS)
    assert found == 1 or kept[found - 2] < share * (1 + 100 * EPS)
    # the leading values alone: the same answer, or None
    part = s[: data.draw(st.integers(1, len(s)))]
    assert TruncatedSVD(epsilon=share).least_rank(part, s @ s) in (by_error, None)
    assert TruncatedSVD(energy=share).least_rank(part, s @ s) in (found, None)
    assert TruncatedSVD(rank=len(s)).least_rank(s, total) == len(s)
    assert TruncatedSVD(rank=len(s) + 1).least_rank(s, total) is None


def test_all_of_the_energy_a_constant_matrix_and_hot_logits():
    Q, K = drawn(6, 4, 3, scale=1)
    A = TruncatedSVD(energy=1.0).approximate(Q, K)
    D = np.exp(Q @ K.T)
    # of LAPACK's SVD its own tests accept 50 max(n, l) eps·s₁; an entry may be far below s₁
    np.testing.assert_allclose(A.to_dense(), D, rtol=0, atol=300 * EPS * np.linalg.norm(D, 2))
    one = np.zeros((3, 1))
    for given_ in ({"energy": 0.5}, {"epsilon": 0.5}):
        assert TruncatedSVD(**given_).approximate(one, one).rank == 1
    Q = 100 * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    for given_ in ({"energy": 0.99}, {"epsilon": 0.01}):
        assert TruncatedSVD(**given_).approximate(Q, Q).rank == 3  # e^{10⁴} times the identity


# The routes for large matrices, on small ones


@pytest.fixture
def _small_is_large(monkeypatch):
    monkeypatch.setattr(truncated_svd, "DENSE", 8)
    monkeypatch.setattr(truncated_svd, "START", 2)
    monkeypatch.setattr(truncated_svd, "SHARE", 0.3)


def too_large(monkeypatch):
    def refuse(*_):
        raise memory.ResourceLimitError("decomposing a dense matrix")

    monkeypatch.setattr(exact_matrix, "matrix", refuse)


def assert_nearly_the_best(A, D, rank):
    s = np.linalg.svd(D, compute_uv=False)
    rest = np.linalg.norm(s[rank:])
    assert A.rank == rank
    # A residual of 1e-3 of the error is an excess of its square, in units of the gap; where that
    # is none the theorem's ε holds instead. 1e-7: what the squares of D resolve.
    error = D - A.to_dense()
    assert np.linalg.norm(error) <= 1.001 * rest + 2e-7 * np.linalg.norm(s)
    assert np.linalg.norm(error, 2) <= 1.01 * (s[rank] if rank < len(s) else 0) + 2e-7 * s[0]


@pytest.mark.usefixtures("_small_is_large")
@pytest.mark.parametrize("fits", [True, False], ids=["dense", "streamed"])
@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("shape", [(90, 70), (70, 90)])
@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
def test_large_matrices(shape, space, fits, scale, monkeypatch):
    Q, K = drawn(*shape, 5, scale=1)
    Q, K = scale * Q, scale * K
    D = dense(Q, K, space)
    if not fits:
        too_large(monkeypatch)
    for rank in (1, 4, 20):
        A = TruncatedSVD(rank=rank, space=space).approximate(Q, K)
        assert_nearly_the_best(A, D, rank)
    assert_nearly_the_best(TruncatedSVD(energy=1e-3, space=space).approximate(Q, K), D, 1)
    s = np.linalg.svd(D, compute_uv=False)
    epsilon = 0.3  # far enough from every s_i/s_1 here
    A = TruncatedSVD(epsilon=epsilon, space=space).approximate(Q, K)
    assert_nearly_the_best(A, D, int(np.count_nonzero(s > epsilon * s[0])))
    if fits:  # wider than a narrow space: the Gram matrix; and all of LAPACK's digits
        assert_nearly_the_best(TruncatedSVD(rank=60, space=space).approximate(Q, K), D, 60)
        for exact in ({"epsilon": 1e-9}, {"energy": 1 - 1e-15}):
            A = TruncatedSVD(space=space, **exact).approximate(Q, K)
            np.testing.assert_allclose(A.to_dense(), D, atol=1e-7 * s[0])
    else:
        with pytest.raises(memory.ResourceLimitError, match="decomposing a dense"):
            TruncatedSVD(rank=60, space=space).approximate(Q, K)
        memory.set_limit(40_000)  # the space starts with 16·(n + 2·l)·(9 + 8) bytes
        with pytest.raises(memory.ResourceLimitError, match="the block Krylov space"):
            TruncatedSVD(rank=9, space=space).approximate(Q, K)


@pytest.mark.usefixtures("_small_is_large")
def test_streamed_hot_logits(monkeypatch):
    Q, K = drawn(90, 70, 3, scale=1)
    Q *= 100 / np.linalg.norm(Q, axis=1, keepdims=True)
    K *= 100 / np.linalg.norm(K, axis=1, keepdims=True)
    results = []
    for _ in range(2):
        for space in ("kernel", "attention"):
            A = TruncatedSVD(rank=2, space=space).approximate(Q, K)
            results.append(A.block(slice(None), shift=A.row_log()))
        too_large(monkeypatch)
    for once, streamed in zip(results[:2], results[2:]):
        assert np.isfinite(once).all()
        # Singular vectors may differ where values coincide. Logits of 10⁴ carry 1e-12.
        assert np.linalg.norm(streamed) == pytest.approx(np.linalg.norm(once), rel=1e-6)


SPECTRA = {
    "identity": np.ones(70),
    "steep": 0.5 ** np.arange(70),
    "low rank": np.repeat([1.0, 0.0], [5, 65]),
    "step": np.repeat([1.0, 0.5], [20, 50]),
    "slow": 1 / np.sqrt(np.arange(1, 71)),
}


@pytest.mark.parametrize("shape", [(90, 70), (70, 90), (70, 70)])
@pytest.mark.parametrize("kind", SPECTRA)
def test_block_krylov_knows_its_error(shape, kind):
    s = SPECTRA[kind]
    D = spectrum(*shape, s, seed=1)
    stripes = [(slice(0, 30), D[:30]), (slice(30, shape[0]), D[30:])]
    for rank in (1, 5, 20, 70):
        found = block_krylov(stripes, shape, rank)
        assert found.values.shape == found.residual.shape == (rank,)
        np.testing.assert_allclose(found.right.T @ found.right, np.eye(rank), atol=1e-12)
        np.testing.assert_allclose(found.left.T @ found.left, np.eye(rank), atol=1e-12)
        assert (found.values <= s[:rank] * (1 + 100 * EPS) + 100 * EPS).all()
        # the residual's promise; it is at least √(roundings of s₁²)
        nearest = np.abs(found.values[:, None] - s).min(axis=1)
        assert (nearest <= found.residual + 100 * EPS).all()
        # a difference of squares, each with a few roundings
        error = np.linalg.norm(D - (found.left * found.values) @ found.right.T)
        assert found.error == pytest.approx(error, rel=1e-9, abs=1e-7 * np.linalg.norm(s))
        rest = np.linalg.norm(s[rank:])
        assert error <= 1.001 * rest + 1e-7 * np.linalg.norm(s)


def test_stripes_are_the_matrix_and_ranks_are_checked():
    Q, K = drawn(40, 24, 3, scale=1)
    row_log = np.linspace(-1, 1, 40)
    for rows, stripe in Streamed(Q, K, row_log):
        np.testing.assert_allclose(stripe, np.exp(Q @ K.T - row_log[:, None])[rows], rtol=1e-14)
    assert rows.stop == 40
    for rank in (0, 3):
        with pytest.raises(ValueError, match="rank must be"):
            block_krylov([(slice(0, 2), np.eye(2))], (2, 2), rank)


def spectrum(n, l, s, seed=0):
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((size, len(s))))[0] for size in (n, l))
    return (U * s) @ V.T


@pytest.mark.parametrize("shape", [(30, 20), (20, 30)])
@pytest.mark.parametrize("ratio", [1.0, 1e-3, 1e-9])  # 1e-9: beyond a Gram matrix
def test_leading_and_tail_equal_the_svd(shape, ratio):
    s = np.concatenate([np.linspace(3, 2, 6), ratio * np.linspace(1, 0.1, 14)])
    T = spectrum(*shape, s)
    kept = T.copy()
    for count in (0, 1, 6, 10, 20):
        U, values, V = leading(T, count)
        assert_allclose(values, s[:count], atol=50 * EPS * s[0])
        assert_allclose(U.T @ U, np.eye(count), atol=1e-12)
        assert_allclose(V.T @ V, np.eye(count), atol=1e-12)
        rest = np.linalg.norm(s[count:])
        assert np.linalg.norm(T - (U * values) @ V.T) <= rest * (1 + 1e-9) + 1e-13
        # eigenvalues of the Gram matrix are off by some eps·s₁² each, 20 of them
        assert_allclose([tail(T, count), tail(T.T, count)], rest, rtol=1e-8, atol=200 * EPS * s[0])
    assert (kept == T).all()


@pytest.fixture
def small_blocks(monkeypatch):
    """Let the block Lanczos space serve small matrices."""
    sizes = {"BLOCK_SIZE": 60, "BLOCK_SHARE": 0.75, "BLOCKS": 4, "LEAST_WIDTH": 4, "STRIPE": 16}
    for name, value in sizes.items():
        monkeypatch.setattr(subspace, name, value)


@pytest.mark.parametrize(
    "s",
    [
        np.geomspace(3, 0.01, 100),
        np.concatenate([np.linspace(5, 3, 3), np.full(4, 2.0), np.linspace(1, 0.5, 60)]),
        np.concatenate([np.full(3, 3.0), np.full(9, 2.0), np.full(60, 1.0)]),
        1e-150 * np.geomspace(3, 0.01, 100),
    ],
    ids=["decays", "ties at the cut", "many ties", "tiny"],
)
def test_block_lanczos_gives_what_the_svd_gives(small_blocks, s):
    T = spectrum(120, 100, s)
    for count in (1, 6):
        for A in (T, T[:, ::-1].T):
            tall = A if len(A) >= A.shape[1] else A.T
            rest, total, V = subspace._block_lanczos(tall, count, subspace.OF_TAIL)
            least = s[count:] @ s[count:]
            # it is never below, but for rounding of the trace
            assert -100 * EPS * total <= rest - least <= subspace.OF_TAIL * least
            assert_allclose(V.T @ V, np.eye(count), atol=1e-13)
            assert tail(A, count) == pytest.approx(np.sqrt(least), rel=subspace.OF_TAIL)
            U, values, V = leading(A, count)
            assert_allclose(values, s[:count], rtol=1e-12)
            assert np.linalg.norm(A - (U * values) @ V.T) <= np.sqrt(least) * (1 + 1e-12)


def test_block_lanczos_of_empty_parts_flat_or_nothing(small_blocks):
    T = np.tril(np.random.default_rng(0).standard_normal((90, 70))) * 0.9 ** np.arange(70)
    T[16:48, :20] = T[64:80] = 0
    s = np.linalg.svd(T, compute_uv=False)
    assert subspace._block_lanczos(T, 3, 1e-9)[0] == pytest.approx(s[3:] @ s[3:], rel=1e-9)
    T = np.random.default_rng(0).standard_normal((70, 70))
    s = np.linalg.svd(T, compute_uv=False)
    assert subspace._block_lanczos(T, 9, 1e-9) is None
    assert tail(T, 9) == pytest.approx(np.linalg.norm(s[9:]), rel=1e-12)
    assert tail(np.zeros((70, 70)), 3) == 0
    assert_allclose(leading(spectrum(80, 70, [3.0, 2.0]), 3)[1], [3, 2, 0], atol=1e-14)


def test_rotate_is_no_farther_than_any_matrix_with_rows_in_the_span():
    rng = np.random.default_rng(0)
    T, basis = rng.standard_normal((40, 30)), np.linalg.qr(rng.standard_normal((30, 6)))[0]
    U, s, V = rotate(T, basis)
    for rank in (1, 3, 6):
        L = (U[:, :rank] * s[:rank]) @ V[:, :rank].T
        best = T @ basis[:, :rank] @ basis[:, :rank].T
        assert np.linalg.norm(T - L) <= np.linalg.norm(T - best) * (1 + 1e-14)


def test_spectral_norm():
    rng = np.random.default_rng(0)
    flat = spectrum(200, 150, np.concatenate([np.full(30, 1.0), np.linspace(0.95, 0, 120)]))
    gap = spectrum(200, 150, np.concatenate([[2.0], np.linspace(0.95, 0, 149)]))
    for A in (rng.standard_normal((40, 30)), flat, gap, gap.T, rng.standard_normal((300, 300))):
        # The residual of the Ritz value is 1e-5; its error is at most that, of the square.
        assert spectral_norm(A) == pytest.approx(np.linalg.norm(A, 2), rel=1e-5)
    assert spectral_norm(np.zeros((200, 200))) == 0
    assert spectral_norm(np.eye(200)) == pytest.approx(1, rel=1e-12)
    assert spectral_norm(flat, tolerance=1e-30) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    ("l", "threshold", "width"),
    [(80, 0.5, 10), (80, 1e-5, 10), (80, 1e-9, 30), (8, 0.5, 8), (80, 5.0, 10)],
    ids=["block", "block grows to Gram", "LAPACK", "small", "nothing left"],
)
def test_every_route_shrinks_singular_values(l, threshold, width):
    s = np.concatenate([np.linspace(3, 1, 5), np.geomspace(0.1, 1e-12, l - 5)])
    T = spectrum(100, l, s)
    rng = np.random.default_rng(1)
    found = shrink_singular_values(T, threshold, rng.standard_normal((l, width)), rng)
    kept = np.maximum(s - threshold, 0)
    assert found.left.shape[1] == found.right.shape[1] == np.count_nonzero(kept)
    # One block step from a random basis: the gap at the cut, 0.1 to 1, leaves 1e-2.
    tolerance = 0.02 if threshold == 0.5 and l == 80 else 1e-7
    assert found.nuclear == pytest.approx(kept.sum(), rel=tolerance, abs=1e-12)
    U, _, Vt = np.linalg.svd(T, full_matrices=False)
    assert_allclose(found.left @ found.right.T, (U * kept) @ Vt, atol=3 * tolerance)
