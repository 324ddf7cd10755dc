"""The gated attention unit and mixed chunk attention: limits, counts, normalisers."""

import numpy as np
import pytest

from analysis.ranks.rank import summary
from approx import parse
from approx.textbook import attention, flash
from approx.textbook.flash import GatedUnit, Projections, mixed_chunk, mixed_chunk_output, swish

TIGHT = 1e-12


def unit(d=6, e=5, s=3, seed=0):
    return GatedUnit.random(d, e, s, np.random.default_rng(seed))


def tokens(n=12, d=6, seed=1):
    return np.random.default_rng(seed).standard_normal((n, d))


def parts(n, s, seed=2):
    return Projections(*np.random.default_rng(seed).standard_normal((4, n, s)))


def dense(p, size, causal, normaliser=None):
    """Return mixed chunk attention entry by entry, as it is defined."""
    n, s = p.local_queries.shape
    A = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            g, h = i // size, j // size
            if g == h and (j <= i or not causal):
                A[i, j] += max(p.local_queries[i] @ p.local_keys[j], 0) ** 2 / (size * s)
            product = p.global_queries[i] @ p.global_keys[j]
            if causal and h < g:
                A[i, j] += product / (g * (n / size if normaliser == "printed" else size))
            if not causal:
                A[i, j] += product / (size if normaliser == "chunk" else n)
    return A


# The unit


def test_the_identity_gives_the_gated_linear_unit_and_no_gate_attention():
    u, X = unit(), tokens()
    glu = (swish(X @ u.W_u) * swish(X @ u.W_v)) @ u.W_o
    np.testing.assert_array_equal(u.combine(X), glu)
    np.testing.assert_allclose(u.combine(X, np.eye(12)), glu, rtol=0, atol=TIGHT)
    u, X = unit(), tokens()
    q, k, _, _ = u.projections(X)
    A = attention.softmax(q @ k.T)
    want = A @ swish(X @ u.W_v) @ u.W_o
    np.testing.assert_allclose(u.combine(X, A, gate=False), want, rtol=0, atol=TIGHT)
    assert np.abs(u.combine(X, A) - want).max() > 0.01
    assert unit(d=6, e=5, s=3).parameters == 3 * 6 * 5 + 6 * 3 + 4 * 2 * 3


@pytest.mark.parametrize("causal", [False, True])
def test_one_chunk_is_flash_quad_and_the_global_part(causal):
    u, X = unit(), tokens()
    A = mixed_chunk(u.projections(X), 12, causal=causal)
    got = u.flash(X, 12, causal=causal)
    np.testing.assert_allclose(got, u.combine(X, A), rtol=0, atol=TIGHT)
    if causal:  # one chunk has no previous one: FLASH-Quad
        A = np.tril(attention.relu_squared(*u.projections(X)[:2]))
        np.testing.assert_allclose(got, u.combine(X, A), rtol=0, atol=TIGHT)


# Mixed chunk attention


@pytest.mark.parametrize("n", [12, 10])
@pytest.mark.parametrize(
    ("causal", "normaliser"),
    [(False, None), (False, "chunk"), (True, None), (True, "printed")],
)
def test_operator_and_running_sums_are_the_definition(causal, normaliser, n):
    p, V = parts(n, 3), tokens(n, 2)
    want = dense(p, 4, causal, normaliser)
    A = mixed_chunk(p, 4, causal=causal, normaliser=normaliser)
    np.testing.assert_allclose(A.to_dense(), want, rtol=0, atol=TIGHT)
    np.testing.assert_allclose(A @ V, want @ V, rtol=0, atol=TIGHT)
    got = mixed_chunk_output(p, V, 4, causal=causal, normaliser=normaliser)
    np.testing.assert_allclose(got, want @ V, rtol=0, atol=TIGHT)
    vector = mixed_chunk_output(p, V[:, 0], 4, causal=causal, normaliser=normaliser)
    np.testing.assert_allclose(vector, want @ V[:, 0], rtol=0, atol=TIGHT)


def test_rank_and_entries_are_those_predicted():
    n, size, s = 32, 8, 3
    p = parts(n, s)
    A = mixed_chunk(p, size)
    assert (A.rank, A.nnz) == (s, n * size)
    assert summary(A.low.block(slice(None), slice(None), np.zeros(n)))["numerical_rank"] == s
    blocks = A.sparse.toarray()
    assert not blocks[np.arange(n)[:, None] // size != np.arange(n) // size].any()
    assert summary(blocks)["numerical_rank"] == n  # relu² of rank 3: full
    B = mixed_chunk(p, size, causal=True)
    assert (B.rank, B.nnz) == ((n // size - 1) * s, n * (size + 1) // 2)
    assert summary(B.low.block(slice(None), slice(None), np.zeros(n)))["numerical_rank"] == 9


def test_the_global_part_is_linear_attention_whatever_the_chunks():
    p, V = parts(24, 3), tokens(24, 2)
    zero = p._replace(local_queries=0 * p.local_queries)
    want = attention.linear_attention(p.global_queries, p.global_keys, V, normalise=False) / 24
    for size in (1, 4, 24):
        np.testing.assert_allclose(mixed_chunk_output(zero, V, size), want, rtol=0, atol=TIGHT)


@pytest.mark.parametrize(
    ("causal", "normaliser", "gains"),
    [
        (True, "previous", [0, 1, 1, 1]),
        (True, "printed", [0, 64, 64, 64]),  # c²/n
        (False, "length", [1, 1, 1, 1]),
        (False, "chunk", [4, 4, 4, 4]),  # n/c
    ],
)
def test_gain_of_a_constant_signal(causal, normaliser, gains):
    n, size = 1024, 256
    one = np.ones((n, 1))
    p = Projections(0 * one, one, one, one)
    got = mixed_chunk_output(p, one, size, causal=causal, normaliser=normaliser)
    np.testing.assert_array_equal(got[::size, 0], gains)
    assert np.isfinite(got).all()


def test_the_method_is_the_operator_on_scaled_inputs():
    Q, K = np.random.default_rng(3).standard_normal((2, 12, 4))
    p = Projections(Q, K, Q, K)
    for mask, size in (("causal", 5), (None, 4)):
        A = parse(f"flash(size={size})").approximate(Q, K, mask=mask)
        want = mixed_chunk(p, size, causal=mask == "causal", width=1)
        np.testing.assert_allclose(A.to_dense(), want.to_dense(), rtol=0, atol=TIGHT)
    assert (A.rank, A.nnz) == (4, 48)
    # A constant signal has gain 1 from either part, whatever the number of queries.
    for size in (3, 6, 10**6):  # a chunk has at most all keys
        A = parse(f"flash(size={size})").approximate(np.ones((4, 1)), np.ones((6, 1)))
        np.testing.assert_allclose(A.to_dense().sum(axis=1), 2.0, rtol=1e-15)
    by = [flash.normalisers(16, 4, causal=True, normaliser=x) for x in ("previous", "printed")]
    np.testing.assert_array_equal(*by)


def test_refusals():
    p = parts(8, 2)
    with pytest.raises(ValueError, match="normaliser must be one of previous, printed"):
        mixed_chunk(p, 4, causal=True, normaliser="length")
    with pytest.raises(ValueError, match="size must be >= 1, got 0"):
        mixed_chunk(p, 0)
    short = p._replace(local_keys=p.local_keys[:6], global_keys=p.global_keys[:6])
    for refuses in (mixed_chunk, lambda *p, **c: mixed_chunk_output(p[0], np.ones(6), *p[1:], **c)):
        for causal in (False, True):
            with pytest.raises(ValueError, match=r"of one shape \(n, s\), got \(8, 2\), \(6, 2\)"):
                refuses(short, 4, causal=causal)
    with pytest.raises(ValueError, match="as many keys as queries, got n=8, l=6"):
        flash.local_quadratic(p.local_queries, short.local_keys, 4, causal=True)
