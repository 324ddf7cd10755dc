import numpy as np
import pytest
from numpy.testing import assert_allclose

from approx.low_rank import subspace
from approx.low_rank.subspace import leading, rotate, shrink_singular_values, spectral_norm, tail

EPS = np.finfo(float).eps


def spectrum(n, l, s, seed=0):
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((size, len(s))))[0] for size in (n, l))
    return (U * s) @ V.T


@pytest.mark.parametrize("shape", [(30, 20), (20, 30)])
@pytest.mark.parametrize("ratio", [1.0, 1e-3, 1e-9])  # 1e-9: beyond a Gram matrix
def test_leading_equals_the_svd(shape, ratio):
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
    assert (kept == T).all()


@pytest.mark.parametrize("ratio", [1.0, 1e-2, 1e-9])  # 1e-9: beyond a Gram matrix
def test_tail_is_what_the_leading_singular_values_leave(ratio):
    s = np.concatenate([np.linspace(3, 2, 6), ratio * np.linspace(1, 0.1, 14)])
    T = spectrum(30, 20, s)
    for count in (0, 1, 6, 10, 20):
        rest = np.linalg.norm(s[count:])
        # eigenvalues of the Gram matrix are off by some eps·s₁² each, 20 of them
        assert_allclose([tail(T, count), tail(T.T, count)], rest, rtol=1e-8, atol=200 * EPS * s[0])


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


def test_block_lanczos_reads_all_of_a_matrix_with_empty_parts(small_blocks):
    T = np.tril(np.random.default_rng(0).standard_normal((90, 70))) * 0.9 ** np.arange(70)
    T[16:48, :20] = T[64:80] = 0
    s = np.linalg.svd(T, compute_uv=False)
    assert subspace._block_lanczos(T, 3, 1e-9)[0] == pytest.approx(s[3:] @ s[3:], rel=1e-9)


def test_block_lanczos_leaves_what_is_flat_or_nothing_to_lapack(small_blocks):
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
