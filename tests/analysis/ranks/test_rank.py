"""Rank measures: definitions, the order they stand in, what leaves them alone, any scale."""

import itertools
import math

import numpy as np
import pytest
from each import each
from hypothesis import given, strategies as st
from refusals import refuses
from scipy.sparse.linalg import aslinearoperator
from small import ONE_OF_EACH, member

from analysis.inputs import Head
from analysis.ranks import position_rank, rank
from analysis.ranks.rank import exact_singular_values, measures, singular_values, summary
from approx import METHODS, Approximation, parse
from approx.estimate import memory
from approx.low_rank.krylov import Streamed

EPS = np.finfo(float).eps


def matrix(n, l, seed=0, decay=0.5):
    """Return an n × l matrix with singular values decay^i, and these."""
    rng = np.random.default_rng(seed)
    r = min(n, l)
    u = np.linalg.qr(rng.standard_normal((n, r)))[0]
    v = np.linalg.qr(rng.standard_normal((l, r)))[0]
    s = decay ** np.arange(r)
    return (u * s) @ v.T, s


def definitions(s, shape, epsilon, eps):
    """Return every measure, by its formula in the heading of analysis.ranks.rank."""
    p, q = s / s.sum(), s**2 / sum(s**2)
    p, q = p[p > 0], q[q > 0]

    def least(weights):
        held = [sum(weights[:r]) / sum(weights) for r in range(1, len(s) + 1)]
        return next(r for r, e in enumerate(held, 1) if e >= 0.9 * (1 - 8 * EPS))

    rests = [math.sqrt(math.fsum(s[r:] ** 2)) for r in range(len(s) + 1)]
    return {
        "numerical_rank": sum(s > s[0] * max(shape) * eps),
        "epsilon_rank": sum(s > epsilon * s[0]),
        "epsilon_rank_frobenius": next(r for r, e in enumerate(rests) if e <= epsilon * rests[0]),
        "stable_rank": sum(s**2) / s[0] ** 2,
        "intrinsic_dimension": sum(s) / s[0],
        "nuclear_ratio": sum(s) ** 2 / sum(s**2),
        "effective_rank": math.exp(-sum(p * np.log(p))),
        "energy_effective_rank": math.exp(-sum(q * np.log(q))),
        "participation_ratio": sum(s**2) ** 2 / sum(s**4),
        "energy_rank_90": least(s**2),
        "singular_value_rank_90": least(s),
    }


def assert_summaries(found, expected, tolerance):
    assert list(found) == list(expected) == list(rank.MEASURES)
    for name, value in expected.items():
        if name in rank.ESTIMATED:  # the continuous ones
            assert found[name] == pytest.approx(value, rel=tolerance), name
        else:
            assert found[name] == value, name


@each("epsilon", [1e-3, 1e-2, 0.3])
@each("decay", [0.4, 0.5, 0.9, 1.0])
@each(("n", "l"), [(7, 12), (12, 7), (9, 9), (1, 5)])
def test_measures_are_their_definitions(n, l, decay, epsilon):
    A, s = matrix(n, l, decay=decay)
    expected = definitions(s, (n, l), epsilon, EPS)
    # singular values are good to eps·s₁ each, entropies to a few times that
    assert_summaries(summary(A, epsilon=epsilon), expected, 100 * EPS)
    assert_summaries(measures(s, (n, l), epsilon=epsilon), expected, 10 * EPS)
    np.testing.assert_allclose(singular_values(A), s, atol=20 * EPS)


def test_known_values_and_thresholds():
    four = pytest.approx(4.0, rel=10 * EPS)
    assert summary(np.diag([1.0, 1.0, 1.0, 1.0, 0.0])) == dict.fromkeys(rank.MEASURES, four)
    # s = (3, 1): p = (¾, ¼); energies 0.9 and 1: the first holds 90 % exactly; ‖(s₂)‖/‖s‖ = 1/√10
    for epsilon, frobenius, largest in ((0.32, 1, 2), (0.31, 2, 2), (0.34, 1, 1)):
        found = summary(np.diag([3.0, 1.0]), epsilon=epsilon)
        assert found == pytest.approx({
            "stable_rank": 10 / 9, "effective_rank": 4 / 3**0.75, "intrinsic_dimension": 4 / 3,
            "nuclear_ratio": 1.6, "energy_effective_rank": 10 / 9**0.9,
            "participation_ratio": 100 / 82, "energy_rank_90": 1, "singular_value_rank_90": 2,
            "numerical_rank": 2, "epsilon_rank": largest, "epsilon_rank_frobenius": frobenius,
        }, rel=10 * EPS)  # fmt: skip
    # Strictly above ε·s₁; above s₁·max(n, l)·eps, whichever side is the longer.
    assert measures(np.array([2.0, 1.0]), (2, 2), epsilon=0.5)["epsilon_rank"] == 1
    s = np.array([1.0, 100 * EPS])
    assert measures(s, (99, 2))["numerical_rank"] == measures(s, (2, 99))["numerical_rank"] == 2
    assert measures(s, (101, 2))["numerical_rank"] == measures(s, (2, 101))["numerical_rank"] == 1


CHAINS = (
    ["stable_rank", "intrinsic_dimension", "nuclear_ratio", "effective_rank", "numerical_rank"],
    ["stable_rank", "participation_ratio", "energy_effective_rank", "effective_rank"],
)


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=12), st.floats(1e-5, 0.99))
def test_the_order_of_the_measures(values, epsilon):
    """Rényi entropies of s/Σs and of s²/Σs², and the least ranks beside the number of values."""
    s = np.sort(values)[::-1]
    found = measures(s, (12, 12), epsilon=epsilon)
    assert found["numerical_rank"] == len(s)  # 1e-6 is far above 12·eps
    for chain in CHAINS:
        ordered = [1.0, *(found[name] for name in chain)]
        # a few roundings a term, of 12 terms
        assert all(a <= b * (1 + 50 * EPS) for a, b in itertools.pairwise(ordered))
    for name in rank.MEASURES:
        assert 1 - 50 * EPS <= found[name] <= len(s) * (1 + 50 * EPS)
    assert found["energy_rank_90"] <= found["singular_value_rank_90"]  # squares decay faster
    # nothing depends on the scale, but the sums round differently
    again = measures(s / 3, (12, 12), epsilon=epsilon)
    for name in rank.ESTIMATED:
        assert again[name] == pytest.approx(found[name], rel=50 * EPS)


# L = 512, d = 64, logits of standard deviation 1/t, a single draw: columns as in MEASURES
GOLDEN = {
    8.0: (65, 1.02, 2.1, 4.5, 25, 1.15, 1.03, 1, 60),
    2.0: (416, 1.29, 7.7, 46, 176, 4.6, 1.65, 27, 251),
    1.0: (462, 2.80, 21.8, 169, 296, 48, 7.6, 114, 292),
    0.5: (434, 3.29, 20.0, 121, 236, 35, 9.1, 71, 251),
    0.25: (100, 1.17, 2.9, 7.3, 26, 2.0, 1.35, 2, 53),
}


def gaussian(n, t, d=64, seed=0):
    Q, K = np.random.default_rng(seed).standard_normal((2, n, d)) / math.sqrt(t * math.sqrt(d))
    return Q, K


@pytest.mark.parametrize("t", GOLDEN)
def test_the_ranks_of_gaussian_attention(t):
    """Measured independently; the values of a draw differ by its few per cent."""
    Q, K = gaussian(512, t)
    found = summary(np.exp(Q @ K.T))
    assert found["numerical_rank"] == 512
    values = [found[name] for name in rank.MEASURES[2:]]
    np.testing.assert_allclose(values, GOLDEN[t], rtol=0.04, atol=1)


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 7.0, 1e300])
def test_scale_transposition_and_permutation_change_nothing(scale):
    A, _ = matrix(8, 6, decay=0.4)
    rng, expected = np.random.default_rng(0), summary(A)
    tolerance = 100 * EPS
    assert_summaries(summary(scale * A), expected, tolerance)
    assert_summaries(summary(scale * A.T), expected, tolerance)
    assert_summaries(summary(A[rng.permutation(8)][:, rng.permutation(6)]), expected, tolerance)
    assert_summaries(summary(np.asfortranarray(A)), expected, tolerance)
    assert_summaries(summary(aslinearoperator(scale * A)), expected, tolerance)
    assert summary(aslinearoperator(np.eye(3, dtype=int)))["numerical_rank"] == 3


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (0, 4)])
def test_the_zero_matrix_has_rank_zero(shape):
    assert summary(np.zeros(shape)) == dict.fromkeys(rank.MEASURES, 0.0)


# Large matrices


@pytest.mark.parametrize("shape", [(40, 30), (30, 40)])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize(("decay", "by_gram"), [(0.7, True), (0.5, False), (0.12, False)])
def test_a_gram_matrix_where_it_loses_nothing(shape, scale, decay, by_gram, monkeypatch):
    # s_30 = 0.7²⁹ = 3e-5, 0.5²⁹ = 2e-9, 0.12²⁹ = 2e-27; no decay^i is near a threshold: 0.1² would
    # be the ε of the ε-ranks itself, and 1 − 0.1 the share 0.9
    A, s = matrix(*shape, decay=decay)
    A = scale * A
    expected = singular_values(A)
    monkeypatch.setattr(rank, "LAPACK", 8)
    calls = []
    lapack = rank.scipy.linalg.svdvals
    monkeypatch.setattr(
        rank.scipy.linalg, "svdvals", lambda *a, **k: calls.append(1) or lapack(*a, **k)
    )
    found = singular_values(A)
    assert bool(calls) != by_gram
    # squares are good to a few eps·s₁²: relative to s_i ≥ 3e-5 s₁, 100·eps/1e-9
    np.testing.assert_allclose(found, expected, rtol=1e-4 if by_gram else 1e-15)
    np.testing.assert_allclose(found / scale, s, atol=1e-9)
    for name, value in summary(A).items():
        assert value == pytest.approx(definitions(s, shape, 1e-2, EPS)[name], rel=1e-6), name


@pytest.mark.parametrize("t", [0.25, 1.0, 4.0])
def test_estimates_are_within_their_standard_errors(t):
    Q, K = gaussian(300, t)
    A = np.exp(Q @ K.T)
    expected = summary(A)
    for matrix_ in (A, A.T, Streamed(Q, K, np.full(300, 5.0))):
        found = rank.estimates(matrix_, probes=32, rng=2)
        assert found["stable_rank"] == pytest.approx(expected["stable_rank"], rel=1e-9)
        assert found["stable_rank_stderr"] == pytest.approx(0, abs=1e-12)
        for name in rank.ESTIMATED[1:]:
            error = found[f"{name}_stderr"]
            # 60 steps for 300 values: the quadrature adds well below 1 %
            assert abs(found[name] - expected[name]) <= 5 * error + 0.01 * expected[name], name
            assert error < 0.1 * expected[name]


def test_the_jackknife_is_its_definition():
    """A dense twin: 60 steps for 28 values beyond the 32 leading ones make a quadrature exact."""
    probes = 8
    A = np.random.default_rng(0).standard_normal((80, 60)) * 0.97 ** np.arange(60)
    found = rank.estimates(A, probes=probes, rng=5)
    s, Vt = np.linalg.svd(A)[1:]
    weights = np.ones((60, probes))
    weights[32:] = (Vt @ np.random.default_rng(5).standard_normal((60, probes)))[32:] ** 2

    def ratio(chosen):
        return (s @ weights[:, chosen].mean(axis=1)) ** 2 / np.sum(s**2)

    each = np.array([ratio([j for j in range(probes) if j != i]) for i in range(probes)])
    error = math.sqrt((probes - 1) / probes * np.sum((each - each.mean()) ** 2))
    assert found["nuclear_ratio"] == pytest.approx(ratio(range(probes)), rel=1e-6)
    assert found["nuclear_ratio_stderr"] == pytest.approx(error, rel=1e-6)
    # of a mean the jackknife is the textbook's standard error
    nuclear = (s / s[0]) @ weights
    error = nuclear.std(ddof=1) / math.sqrt(probes)
    assert found["intrinsic_dimension"] == pytest.approx(nuclear.mean(), rel=1e-6)
    assert found["intrinsic_dimension_stderr"] == pytest.approx(error, rel=1e-6)


def test_estimates_of_special_matrices():
    zero = dict.fromkeys([f"{x}{end}" for x in rank.ESTIMATED for end in ("", "_stderr")], 0.0)
    assert rank.estimates(np.zeros((5, 3))) == zero
    # everything is among the 32 leading values: exact
    for shape in [(20, 30), (30, 20), (1, 1)]:
        A = np.random.default_rng(0).standard_normal(shape)
        found, expected = rank.estimates(1e200 * A, rng=0), summary(A)
        for name in rank.ESTIMATED:
            assert found[name] == pytest.approx(expected[name], rel=1e-9)
            assert found[f"{name}_stderr"] == pytest.approx(0, abs=1e-9)
    Q = 100 * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    estimate = parse("top_k(1)").approximate(Q, Q)
    assert rank.estimates(estimate)["effective_rank"] == pytest.approx(3, rel=1e-9)


# Approximations


@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("rank", [1, 3])
def test_truncated_svd_keeps_the_leading_singular_values(rank, space):
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((2, 7, 3))
    exact_values = exact_singular_values(Head("x", Q, K, scaling=1.0), space)
    found = singular_values(parse(f"truncated_svd({rank}, space={space!r})").approximate(Q, K))
    # the approximation's common scale is the largest entry, as that of exact
    np.testing.assert_allclose(found[:rank], exact_values[:rank], rtol=100 * EPS * 7)
    assert summary(parse(f"truncated_svd({rank})").approximate(Q, K))["numerical_rank"] == rank


@pytest.mark.parametrize("name", [*ONE_OF_EACH, "relu", "nystromformer"])
@each("dtype", [np.float64, np.float32])
def test_every_method_has_the_ranks_of_its_matrix(name, dtype):
    """The factors' route where there is no sparse part, the dense one elsewhere."""
    rng = np.random.default_rng(1)
    Q, K = (0.6 * rng.standard_normal((2, 12, 3))).astype(dtype)
    estimate = member(name, 12, 12, 3).approximate(Q, K, rng=0)
    dense = np.linalg.svd(estimate.to_dense().astype(float), compute_uv=False)
    s = singular_values(estimate)
    by_factors = estimate.correction is None and estimate.rank < 12
    assert len(s) == (estimate.rank if by_factors else 12)
    if not dense.any():
        assert not s.any()
        return
    # relative to the largest: rounding of factors of that dtype, summed over at most 12 columns
    eps = float(np.finfo(dtype).eps)
    kept = s / s[0]
    np.testing.assert_allclose(kept, (dense / dense[0])[: len(s)], atol=100 * eps)
    assert (dense[len(s) :] <= 100 * eps * dense[0]).all()
    found = summary(estimate)
    assert found["numerical_rank"] <= min(12, estimate.rank + estimate.nnz)
    expected = definitions(dense, (12, 12), 1e-2, eps)
    for measure in ("stable_rank", "effective_rank", "energy_rank_90", "epsilon_rank"):
        # the entropy of k values of size δ: kδ|log δ| ≤ 12·100·eps·16
        assert found[measure] == pytest.approx(expected[measure], rel=2e4 * eps), measure


def test_row_scales_count_and_a_common_one_does_not():
    A, _ = matrix(9, 6)
    left, right = A[:, :3], np.eye(6)[:, :3]
    logs = np.linspace(-3, 3, 9)
    scaled = summary(Approximation.from_factors(left, right, logs))
    assert_summaries(scaled, summary(np.exp(logs)[:, None] * left @ right.T), 1000 * EPS)
    far = summary(Approximation.from_factors(left, right, logs + 5000))
    assert_summaries(far, scaled, 1e4 * EPS)  # eps of the exponent 5000


@pytest.mark.parametrize("name", METHODS)
@each("sign", [1, -1])
def test_at_logits_of_ten_thousand(name, sign):
    Q = 100 * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.6, 0.8], [0.8, -0.6]])
    estimate = member(name, 5, 5, 2).approximate(Q, sign * Q, rng=0)
    found = summary(estimate)
    assert all(0 <= x <= 5 * (1 + EPS) for x in found.values())


# Exact


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exact_at_logits_of_ten_thousand(space, mask, dtype):
    q = 100 * np.array([[1, 0], [0, 1], [-1, 0]], dtype)
    s = exact_singular_values(Head("x", q, q, scaling=1.0, mask=mask), space)
    # softmax rows: each sees itself alone. Kernel: the largest entries, e^{10⁴}, on the diagonal.
    np.testing.assert_allclose(s, [1, 1, 1], rtol=10 * EPS)
    s = exact_singular_values(Head("x", q, -q, scaling=1.0, mask=mask), space)
    # −q sees no other key as well as its opposite, which the future holds or is
    assert np.isfinite(s).all()
    assert s[0] >= 1 - 10 * EPS


def test_refusals():
    x = Head("x", np.ones((4, 1)), np.ones((4, 1)))
    refuses("space must be one of", exact_singular_values, x, "softmax")
    estimate = parse("top_k(1)").approximate(x.q, x.k)
    memory.set_limit(100)
    with pytest.raises(memory.ResourceLimitError, match="singular values"):
        exact_singular_values(x)
    with pytest.raises(memory.ResourceLimitError, match="singular values"):
        summary(estimate)


# Positions at the input and at the logits: ranks before and after exp


def positions(n=32, d=16, d_h=4, d_p=6, seed=0, heads=None):
    return position_rank.generic(n, d, d_h, d_p, rng=np.random.default_rng(seed), heads=heads)


def test_generic_positions_reach_both_bounds_by_definition():
    x = positions()
    assert position_rank.ranks(x.at_input()) == {"logits": 4, "exp": 32, "softmax": 32}
    assert position_rank.ranks(x.at_logits()) == {"logits": 10, "exp": 32, "softmax": 32}
    x = positions()
    for i, j in ((0, 0), (3, 7)):
        a, b = x.X[i] + x.P[i], x.X[j] + x.P[j]
        want = (a @ x.W_q) @ (b @ x.W_k)
        np.testing.assert_allclose(x.at_input()[i, j], want, rtol=1e-12)
        want = (x.X[i] @ x.W_q) @ (x.X[j] @ x.W_k) + x.relative[i] @ x.relative[j]
        np.testing.assert_allclose(x.at_logits()[i, j], want, rtol=1e-12)


@pytest.mark.parametrize(("n", "d", "want"), [(32, 16, 10), (8, 16, 8), (16, 10, 10), (10, 4, 10)])
def test_the_construction_reaches_the_bound(n, d, want):
    x = position_rank.construction(n, d, 4, 6)
    logits = x.at_logits()
    assert position_rank.ranks(logits)["logits"] == want
    assert position_rank.ranks(x.at_input())["logits"] == 4
    if n >= max(d, 10):  # identity blocks that do not meet
        np.testing.assert_array_equal(np.diag(logits), [1] * 4 + [0] * (n - 10) + [1] * 6)


def test_positions_that_add_nothing_or_do_not_fit():
    x = positions(d_p=0)
    np.testing.assert_array_equal(x.at_logits(), x._replace(P=0 * x.P).at_input())
    assert position_rank.ranks(x.at_logits())["logits"] == 4
    refuses("d_h must be <= 4, got 5", position_rank.construction, 8, 4, 5, 1)
    refuses("d_p must be <= 8, got 9", position_rank.construction, 8, 4, 2, 9)
    vast = np.full((2, 2), 1e308) * [[1, -1], [-1, 1]]
    refuses("must be representable in float64, got", position_rank.ranks, vast)
