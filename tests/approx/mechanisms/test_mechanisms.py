"""Efficient attentions by name: definitions, exact limits, unbiasedness."""

import math

import numpy as np
import pytest
from scipy.special import expit

from approx import Mask, parse
from approx.estimate import exact
from approx.mechanisms import segments
from approx.mechanisms.nystromformer import pseudo_inverse
from approx.mechanisms.randomized_attention import mean_softmax
from approx.projections import Fixed

TIGHT = 1e-12


def points(n=8, l=8, d=3, size=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return size * rng.standard_normal((n, d)), size * rng.standard_normal((l, d))


def made(spec, Q, K, rng=0):
    return parse(spec).approximate(Q, K, rng=rng)


def rows(A):
    return A / A.sum(axis=1, keepdims=True)


# Feature maps


def test_elu_keeps_what_would_underflow():
    Q, K = -300.0 * np.ones((2, 1)), np.array([[-600.0], [-600.0 - math.log(3)]])
    # e^x of exponents of 600: 600 roundings
    np.testing.assert_allclose(made("elu", Q, K).to_dense(), [[0.75, 0.25]] * 2, rtol=1e-12)


@pytest.mark.parametrize("M", [8, 20])
def test_cosformer_weighs_relu_by_the_cosine_of_distance(M):
    Q, K = (np.abs(x) for x in points(l=6))
    distance = np.arange(8)[:, None] - np.arange(6)
    want = rows(Q @ K.T * np.cos(np.pi * distance / (2 * M)))
    A = made(f"cosformer(M={M})", Q, K)
    assert A.rank == 6
    np.testing.assert_allclose(A.to_dense(), want, rtol=0, atol=TIGHT)
    if M == 8:
        np.testing.assert_allclose(made("cosformer", Q, K).to_dense(), want, atol=TIGHT)


def test_rfa_is_the_gaussian_kernel_of_unit_vectors():
    Q, K = points(size=2.0)
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (Q, K)]
    A = made("rfa(m=4, sigma=0.8)", Q, K, rng=3)
    inner = made("trigonometric(m=4)", units[0] / 0.8, units[1] / 0.8, rng=3).to_dense()
    total = inner.sum(axis=1)
    want = np.where(total[:, None] > 0, inner / total[:, None], 0.0)
    np.testing.assert_allclose(A.to_dense(), want, rtol=1e-10)
    # many features: softmax of q̂·k̂/σ²
    many = made("rfa(m=200000, sigma=0.8)", Q[:2], K, rng=4).to_dense()
    weights = rows(np.exp(units[0][:2] @ units[1].T / 0.64))
    moments = parse("rfa(m=200000, sigma=0.8)").kernel_moments(Q[:2], K)
    np.testing.assert_allclose(moments.relative_bias, 0.0, atol=TIGHT)
    # two standard deviations a side of the ratio, five of them
    assert (np.abs(many - weights) < 10 * np.exp(moments.log_relative_variance / 2)).all()


def test_rows_without_a_positive_sum_are_zero():
    Q, K = np.array([[1.0], [-1.0]]), np.array([[1.0]])
    omega = [[math.pi / 2 + 0.3]]  # cos ω(q − k) < 0 for q = −k
    A = parse("rfa")
    A = type(A)(projection=Fixed(omega)).approximate(Q, K)
    np.testing.assert_allclose(A.to_dense(), [[1.0], [0.0]], atol=TIGHT)
    np.testing.assert_array_equal(made("relu", Q, K).to_dense(), [[1.0], [0.0]])


def test_flowformer_conserves_flows_that_underflow():
    Q, K = points(l=6)
    a, b = expit(Q), expit(K)
    incoming, outgoing = a @ b.sum(axis=0), b @ a.sum(axis=0)
    sink, source = a @ (b.T / outgoing).sum(axis=1), b @ (a.T / incoming).sum(axis=1)
    competition = 6 * np.exp(source) / np.exp(source).sum()
    want = (expit(sink * 8 / 6) / incoming)[:, None] * (a @ b.T) * competition
    np.testing.assert_allclose(made("flowformer", Q, K).to_dense(), want, rtol=TIGHT)
    # what flows in after normalisation by the other side is conserved: n and l in all
    assert math.isclose(sink.sum(), 6.0)
    assert math.isclose(source.sum(), 8.0)
    # Of one width, Q scales out of I: a row of sigmoids of e^{−900} is that of e^{−30}.
    K = np.array([[0.0], [1.0]])
    far, near = (made("flowformer", [[x], [0.0]], K).to_dense() for x in (-900.0, -30.0))
    np.testing.assert_allclose(far, near, rtol=TIGHT)  # e^{−30} = 1e-13 of what flows into a key


# Landmarks


def test_segments_are_as_even_as_can_be():
    for rows_, count in ((8, 3), (7, 7), (5, 1)):
        segment = segments.labels(rows_, count)
        sizes = np.bincount(segment)
        assert len(sizes) == count
        assert np.ptp(sizes) <= 1
        X = np.random.default_rng(0).standard_normal((rows_, 2))
        want = [X[segment == c].mean(axis=0) for c in range(count)]
        np.testing.assert_allclose(segments.means(X, count), want, rtol=1e-14, atol=1e-15)


def test_linformer_by_segments_and_by_gaussian_combinations():
    Q, K = points(n=5, l=4)
    K = np.repeat(K[:2], 2, axis=0)
    A = made("linformer(rank=2)", Q, K)
    np.testing.assert_allclose(A.to_dense(), exact.softmax(Q, K), rtol=TIGHT)
    assert A.rank == 2  # low-rank, and no entry is 0: not sparse
    assert (A.to_dense() > 0).all()
    Q, K = points(n=5, l=6)
    A = made("linformer(rank=4, combinations='gaussian')", Q, K, rng=2)
    F = np.random.default_rng(2).standard_normal((6, 4)) / 2
    np.testing.assert_allclose(A.to_dense(), exact.softmax(Q, F.T @ K) @ F.T, rtol=0, atol=TIGHT)


def test_nystromformer_is_exact_with_all_landmarks_and_its_iteration_converges():
    Q, K = points(n=6, l=6, size=1.5)
    A = made("nystromformer(rank=6)", Q, K)
    middle = exact.softmax(Q, K)
    error = 100 * np.finfo(float).eps * np.linalg.cond(middle)
    np.testing.assert_allclose(A.to_dense(), middle, rtol=0, atol=error)
    A = rows(np.eye(5) + 0.1 * np.random.default_rng(0).random((5, 5)))
    found = [np.abs(pseudo_inverse(A, k) @ A - np.eye(5)).max() for k in (0, 3, 6, 12)]
    assert found[0] > found[1] > found[2]
    assert found[3] < 1e-13
    np.testing.assert_allclose(pseudo_inverse(A), np.linalg.inv(A), rtol=0, atol=1e-13)


@pytest.mark.parametrize("iterations", [0, 1, 6])
def test_the_iteration_starts_below_the_pseudo_inverse(iterations):
    """In the singular vectors of A the iteration is one of numbers, z ≤ 1/σ from the start.

    Where all landmarks look at one key, ‖A‖₁ = 5 and ‖A‖_∞ = 1: from Aᵀ/‖A‖_∞² it diverges.
    """
    one_key = np.full((5, 5), 1e-3) + np.outer(np.ones(5), np.eye(5)[2])
    for A in (rows(one_key + np.diag([0.0, 0.1, 0.2, 0.3, 0.4])), rows(one_key)):
        U, s, Vt = np.linalg.svd(A)
        z = s / (np.linalg.norm(A, 1) * np.linalg.norm(A, np.inf))
        for _ in range(iterations):
            z = z / 4 * (13 - s * z * (15 - s * z * (7 - s * z)))
        assert (s * z <= 1 + 1e-12).all()
        np.testing.assert_allclose(pseudo_inverse(A, iterations), Vt.T * z @ U.T, atol=1e-11)


# Randomized attention: unbiased after normalisation


def z_scores(A, want):
    """Return z of the column means of iid rows in [0, 1], with their sample standard errors."""
    mean, error = A.mean(axis=0), A.std(axis=0, ddof=1) / math.sqrt(len(A))
    return np.abs(mean - want) / error


def one_query(draws=100_000):
    """Return one query many times, four keys, and the weights."""
    q, K = np.array([[0.6, -0.4]]), np.array([[1.0, 0.5], [-0.5, 1.0], [0.0, -1.5], [1.5, 1.0]])
    return np.repeat(q, draws, axis=0), K, exact.softmax(q, K)[0]


@pytest.mark.parametrize("samples", [1, 3])
def test_randomized_attention_is_unbiased(samples):
    Q, K, want = one_query()
    A = made(f"randomized_attention(samples={samples})", Q, K, rng=1).to_dense()
    np.testing.assert_allclose(A.sum(axis=1), 1.0, rtol=1e-14)
    assert z_scores(A, want).max() < 5
    # each weight is in [0, 1]: Var ≤ π(1 − π)/samples
    assert (A.var(axis=0) < want * (1 - want) / samples).all()


def test_its_expectation_by_quadrature():
    """E over each component of the mixture by Gauss–Hermite: π to rounding."""
    q, K = 0.7, np.array([[0.5], [-1.0], [1.2]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights /= weights.sum()
    pi = exact.softmax(np.array([[q]]), K)[0]
    mean = np.zeros(3)
    for share, k in zip(pi, K[:, 0]):
        omega = (q + k + nodes)[None, :, None]
        mean += share * weights @ mean_softmax(omega, K)
    np.testing.assert_allclose(mean, pi, rtol=1e-10)


# LARA


def before_normalisation(draws, m=3):
    """Return the un-normalised estimate of each draw over exp(q·k), (draws, n, l)."""
    Q, K = np.array([[0.3, -0.4], [0.2, 0.1]]), np.array([[0.4, 0.2], [-0.5, 0.3], [0.1, -0.2]])
    method, found = parse(f"lara(m={m})"), []
    for seed in range(draws):
        left, right = method.log_features(
            Q, K, Mask.full(len(Q), len(K)), np.random.default_rng(seed)
        )
        found.append(np.exp(left) @ np.exp(right).T / exact.kernel(Q, K))
    return np.array(found)


def test_lara_is_unbiased_before_normalisation():
    assert z_scores(before_normalisation(1000).reshape(1000, -1), 1.0).max() < 5


# EVA


@pytest.mark.parametrize("sparse", ["chunk(size=2)", "sliding_window(width=3)", "random(k=2)"])
def test_eva_is_its_definition(sparse):
    n, l, m = 6, 8, 3
    Q, K = points(n, l)
    A = made(f"eva(m={m}, sparse={sparse})", Q, K, rng=5)
    on = np.zeros((n, l), bool)
    on[A.sparse.nonzero()] = True
    draws = np.random.default_rng(5)
    if sparse.startswith("random"):
        parse(sparse).approximate(Q, K, rng=draws)
    segment = segments.labels(l, m)
    q_mean, k_mean = segments.means(Q, m), segments.means(K, m)
    omega = q_mean + k_mean + draws.standard_normal((m, 3))
    want = np.zeros((n, l))
    for i in range(n):
        for j in range(l):
            c, group = segment[j], K[segment == segment[j]]
            xi = np.exp(group @ omega[c] - (group**2).sum(axis=1) / 2)
            share = np.exp(K[j] @ omega[c] - K[j] @ K[j] / 2) / xi.sum()
            off = len(group) * math.exp(Q[i] @ k_mean[c]) * share
            want[i, j] = math.exp(Q[i] @ K[j]) if on[i, j] else off
    np.testing.assert_allclose(A.to_dense(), rows(want), rtol=1e-12)


@pytest.mark.kernel
def test_eva_keeps_a_share_that_is_small_beside_the_support():
    """The share of the key that is left out is about e^−140, and its group outweighs the support.

    With one group of two keys and a support that holds one, the estimate is
    [e^{−1200}, 2 e^{−600} r] in row 0, where the first is 1e−200 of the second.
    """
    Q, K = [[-600.0], [740.0]], [[2.0], [0.0]]
    A = made("eva(m=1, sparse=chunk(size=1))", Q, K, rng=0)
    # exponents of up to 1480, rounded about four times, are off by 4·1480·eps
    np.testing.assert_allclose(A.to_dense(), [[0.0, 1.0], [1.0, 0.0]], rtol=1.4e-12, atol=1e-199)


def test_eva_fills_entries_first_and_groups_with_the_rest():
    shape = {"n": 64, "l": 64, "d": 4}
    assert str(parse("eva").within(32, **shape)) == "eva(m=8, sparse=chunk(size=16))"
    # 24 of 64 entries: chunks of 26, 26 and 12 have 23.4 on average
    assert str(parse("eva(m=4)").within(32, **shape)) == "eva(m=4, sparse=chunk(size=26))"
    spec = "eva(m=4, sparse=chunk(size=8))"
    assert str(parse(spec).within(16, **shape)) == spec
    assert parse(spec).within(15.9, **shape) is None
    assert parse("eva").within(1, **shape) is None
    # 16 values of each of 64 rows: 4 groups take 8, which leaves 8 for the chunk
    method = parse("eva(size=16)").within(16, n=64, l=64, d=4)
    assert str(method) == "eva(sparse=chunk(size=8), size=16)"


# Under masks


UNDER = {
    "causal": Mask.causal(8, 8),
    "the last queries": Mask.causal(5, 8),
    "window": Mask.window(8, 8, 3),
}
KERNELS = {
    "cosformer(M=9)": lambda Q, K, i, j: (
        Q @ K.T * np.cos(np.pi * (i[:, None] - j) / 18)
    ),
    "rfa(m=6)": lambda Q, K, i, j: made(
        "trigonometric(m=6)", Q / np.linalg.norm(Q, axis=1, keepdims=True),
        K / np.linalg.norm(K, axis=1, keepdims=True),
    ).to_dense(),
}  # fmt: skip


@pytest.mark.parametrize("where", UNDER)
@pytest.mark.parametrize("spec", KERNELS)
def test_linear_attention_is_divided_by_what_is_seen(spec, where):
    mask = UNDER[where]
    Q, K = (np.abs(x) for x in points(mask.n))
    kernel = KERNELS[spec](Q, K, mask.stop - 1, np.arange(mask.l)) * mask.visible()
    A = parse(spec).approximate(Q, K, mask=mask, rng=0)
    np.testing.assert_allclose(A.to_dense(), rows(kernel), rtol=0, atol=TIGHT)
    np.testing.assert_allclose(A @ np.ones(mask.l), 1.0, rtol=TIGHT)


def cumulative_flows(Q, K):
    """Return causal flow attention, query by query and key by key."""
    n, a, b = len(Q), expit(Q), expit(K)
    incoming = [np.mean([a[i] @ b[j] for j in range(i + 1)]) for i in range(n)]
    outgoing = [np.mean([b[j] @ a[i] for i in range(j + 1)]) for j in range(n)]
    sink = [np.mean([a[i] @ b[j] / outgoing[j] for j in range(i + 1)]) for i in range(n)]
    source = [np.mean([b[j] @ a[i] / incoming[i] for i in range(j + 1)]) for j in range(n)]
    weights = [
        (j + 1) * math.exp(source[j]) / sum(map(math.exp, source[: j + 1])) for j in range(n)
    ]
    want = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            gate = expit(sink[i]) / (incoming[i] * (i + 1))
            want[i, j] = gate * (a[i] @ b[j]) * weights[j]
    return want


def test_flows_are_cumulative_under_a_causal_mask():
    Q, K = points()
    A = parse("flowformer").approximate(Q, K, mask="causal")
    np.testing.assert_allclose(A.to_dense(), cumulative_flows(Q, K), rtol=TIGHT)
    # keys before the first query have no flow out, but are seen
    last = parse("flowformer").approximate(Q[5:], K, mask="causal").to_dense()
    assert (last[0, :6] > 0).all()
    assert not last[0, 6:].any()
    # one query sees every key, also one at e⁻⁶⁰, a scale that float32 keeps apart
    K[2] = -60.0
    one, narrow = (
        parse("flowformer").approximate(Q[7:].astype(dtype), K.astype(dtype), mask="causal")
        for dtype in (np.float64, np.float32)
    )
    # 2⁻²⁴ for each of some thirty operations, and 60·2⁻²⁴ for the exponent
    np.testing.assert_allclose(narrow.to_dense(), one.to_dense(), rtol=1e-5)


def test_causal_eva_has_the_groups_that_came_before():
    """E is the query's chunk, so that groups of its size leave no key out: exact for equal keys."""
    Q, _ = points(n=12, l=12)
    K = np.repeat(Q[:3], 4, axis=0)
    method = parse("eva(size=4, sparse=chunk(size=4))")
    A = method.approximate(Q, K, mask="causal", rng=0)
    np.testing.assert_allclose(A.to_dense(), exact.softmax(Q, K, "causal"), rtol=1e-12)
    # a key that is in neither has weight 0, and rows still sum to 1
    A = parse("eva(size=8, sparse=chunk(size=4))").approximate(Q, K, mask="causal", rng=0)
    dense = A.to_dense()
    assert not dense[6, :4].any()
    assert dense[7, :4].all()
    np.testing.assert_allclose(dense.sum(axis=1), 1.0, rtol=1e-13)


def test_randomized_attention_is_unbiased_over_what_is_seen():
    """One query at many places, each of which sees the same three keys, in turn."""
    n = 1500
    Q, three, _ = one_query(n)
    K = np.resize(three[:3], (n + 2, 2))
    mask = Mask(np.arange(n), np.arange(3, n + 3), n + 2)
    dense = parse("randomized_attention").approximate(Q, K, mask=mask, rng=1).to_dense()
    place = np.arange(n)[:, None] + (np.arange(3) - np.arange(n)[:, None]) % 3  # of each of them
    found = np.take_along_axis(dense, place, axis=1)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-14)
    assert z_scores(found, exact.softmax(Q[:1], three[:3])[0]).max() < 5
