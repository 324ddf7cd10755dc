"""Rank measures: definitions, the order they stand in, what leaves them alone, any scale."""

import itertools
import math

import numpy as np
import pytest
from members import member

from analysis import rank
from analysis.inputs import Inputs
from analysis.rank import exact_singular_values, measures, singular_values, summary
from approx import METHODS, Approximation, exact, memory, parse

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
    """Return every measure, by its formula in the heading of analysis.rank."""
    p = s[s > 0] / s.sum()
    energy = [sum(s[:r] ** 2) / sum(s**2) for r in range(1, len(s) + 1)]
    return {
        "numerical_rank": sum(s > s[0] * max(shape) * eps),
        "epsilon_rank": sum(s > epsilon * s[0]),
        "stable_rank": sum(s**2) / s[0] ** 2,
        "effective_rank": math.exp(-sum(p * np.log(p))),
        "energy_rank_90": next(r for r, e in enumerate(energy, 1) if e >= 0.9 * (1 - 8 * EPS)),
    }


def assert_summaries(found, expected, tolerance):
    assert list(found) == list(expected) == list(rank.MEASURES)
    for name, value in expected.items():
        if name in ("stable_rank", "effective_rank"):
            assert found[name] == pytest.approx(value, rel=tolerance), name
        else:
            assert found[name] == value, name


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 0.3])
@pytest.mark.parametrize("decay", [0.4, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("n", "l"), [(7, 12), (12, 7), (9, 9), (1, 5)])
def test_measures_are_their_definitions(n, l, decay, epsilon):
    A, s = matrix(n, l, decay=decay)
    expected = definitions(s, (n, l), epsilon, EPS)
    # singular values are good to eps·s₁ each, entropies to a few times that
    assert_summaries(summary(A, epsilon=epsilon), expected, 100 * EPS)
    assert_summaries(measures(s, (n, l), epsilon=epsilon), expected, 10 * EPS)
    np.testing.assert_allclose(singular_values(A), s, atol=20 * EPS)


def test_known_values():
    assert summary(np.diag([1.0, 1.0, 1.0, 1.0, 0.0])) == {
        "numerical_rank": 4.0,
        "epsilon_rank": 4.0,
        "stable_rank": 4.0,
        "effective_rank": pytest.approx(4.0, rel=10 * EPS),
        "energy_rank_90": 4.0,
    }
    # s = (3, 1): p = (¾, ¼); energies 0.9 and 1: the first holds 90 % exactly
    found = summary(np.diag([3.0, 1.0]), epsilon=1 / 3)
    assert found["stable_rank"] == pytest.approx(10 / 9, rel=10 * EPS)
    assert found["effective_rank"] == pytest.approx(4 / 3**0.75, rel=10 * EPS)
    assert found["energy_rank_90"] == 1
    assert summary(np.diag([3.0, 1.0]), epsilon=0.34)["epsilon_rank"] == 1
    assert summary(np.diag([3.0, 1.0]), epsilon=0.33)["epsilon_rank"] == 2


def test_thresholds():
    """Strictly above ε·s₁; above s₁·max(n, l)·eps, whichever side is the longer."""
    assert measures(np.array([2.0, 1.0]), (2, 2), epsilon=0.5)["epsilon_rank"] == 1
    s = np.array([1.0, 100 * EPS])
    assert measures(s, (99, 2))["numerical_rank"] == measures(s, (2, 99))["numerical_rank"] == 2
    assert measures(s, (101, 2))["numerical_rank"] == measures(s, (2, 101))["numerical_rank"] == 1


def test_the_order_of_the_measures():
    """1 ≤ Σs²/s₁² ≤ Σs/s₁ ≤ e^{−Σ p log p} ≤ rank: entropy is at least −log max p = log Σs/s₁."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((8, 5)) @ rng.standard_normal((5, 9)) ** 3
        s, found = singular_values(A), summary(A)
        chain = [
            1.0,
            found["stable_rank"],
            s.sum() / s[0],
            found["effective_rank"],
            found["numerical_rank"],
        ]
        assert found["numerical_rank"] == 5
        assert all(a <= b * (1 + 10 * EPS) for a, b in itertools.pairwise(chain))
        assert 1 <= found["energy_rank_90"] <= found["numerical_rank"]
        assert 1 <= found["epsilon_rank"] <= found["numerical_rank"]


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 7.0, 1e300])
def test_scale_transposition_and_permutation_change_nothing(scale):
    A, _ = matrix(8, 6, decay=0.4)
    rng, expected = np.random.default_rng(0), summary(A)
    tolerance = 100 * EPS
    assert_summaries(summary(scale * A), expected, tolerance)
    assert_summaries(summary(scale * A.T), expected, tolerance)
    assert_summaries(summary(A[rng.permutation(8)][:, rng.permutation(6)]), expected, tolerance)
    assert_summaries(summary(np.asfortranarray(A)), expected, tolerance)


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (0, 4)])
def test_the_zero_matrix_has_rank_zero(shape):
    assert summary(np.zeros(shape)) == dict.fromkeys(rank.MEASURES, 0.0)


def test_the_matrix_is_left_as_it_was():
    A, _ = matrix(5, 5)
    copy = A.copy()
    summary(A)
    np.testing.assert_array_equal(A, copy)


# Approximations


@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("rank", [1, 3])
def test_truncated_svd_keeps_the_leading_singular_values(rank, space):
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((2, 7, 3))
    exact_values = exact_singular_values(Inputs("x", Q, K, scaling=1.0), space)
    found = singular_values(parse(f"truncated_svd({rank}, space={space!r})").approximate(Q, K))
    # the approximation's common scale is the largest entry, as that of exact
    np.testing.assert_allclose(found[:rank], exact_values[:rank], rtol=100 * EPS * 7)
    assert summary(parse(f"truncated_svd({rank})").approximate(Q, K))["numerical_rank"] == rank


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_the_ranks_of_its_matrix(name, dtype):
    """The factors' route where there is no sparse part, the dense one elsewhere."""
    rng = np.random.default_rng(1)
    Q, K = (0.6 * rng.standard_normal((2, 12, 3))).astype(dtype)
    estimate = member(name, 12, 12, 3).approximate(Q, K, rng=0)
    dense = np.linalg.svd(estimate.to_dense().astype(float), compute_uv=False)
    s = singular_values(estimate)
    by_factors = estimate.part is None and estimate.rank < 12
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


def test_no_factors_at_all():
    Q = np.ones((4, 2))
    assert summary(parse("zero").approximate(Q, Q)) == dict.fromkeys(rank.MEASURES, 0.0)


def test_a_single_feature_has_rank_one_at_any_scale():
    for scale in (1.0, 100.0):
        Q = scale * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        found = summary(parse("positive(m=1)").approximate(Q, Q, rng=0))
        assert found == dict.fromkeys(rank.MEASURES, pytest.approx(1.0, rel=10 * EPS))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("sign", [1, -1])
def test_at_logits_of_ten_thousand(name, sign):
    Q = 100 * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.6, 0.8], [0.8, -0.6]])
    estimate = member(name, 5, 5, 2).approximate(Q, sign * Q, rng=0)
    found = summary(estimate)
    assert all(0 <= x <= 5 * (1 + EPS) for x in found.values())


# Exact


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("space", ["kernel", "attention"])
def test_exact_singular_values(space, causal):
    rng = np.random.default_rng(2)
    q, k = rng.standard_normal((2, 8, 4))
    x = Inputs("x", q, k, causal=causal).at_temperature(0.5)
    A = exact.kernel(x.Q, x.K) * (np.tri(8) if causal else 1)
    A /= A.max() if space == "kernel" else A.sum(axis=1, keepdims=True)
    expected = np.linalg.svd(A, compute_uv=False)
    np.testing.assert_allclose(
        exact_singular_values(x, space), expected, atol=50 * EPS * expected[0]
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("space", ["kernel", "attention"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exact_at_logits_of_ten_thousand(space, causal, dtype):
    q = 100 * np.array([[1, 0], [0, 1], [-1, 0]], dtype)
    s = exact_singular_values(Inputs("x", q, q, scaling=1.0, causal=causal), space)
    # softmax rows: each sees itself alone. Kernel: the largest entries, e^{10⁴}, on the diagonal.
    np.testing.assert_allclose(s, [1, 1, 1], rtol=10 * EPS)
    s = exact_singular_values(Inputs("x", q, -q, scaling=1.0, causal=causal), space)
    # −q sees no other key as well as its opposite, which the future holds or is
    assert np.isfinite(s).all()
    assert s[0] >= 1 - 10 * EPS


def test_refusals():
    with pytest.raises(ValueError, match="dimensions"):
        summary(np.ones(3))
    with pytest.raises(ValueError, match="finite"):
        summary([[np.nan]])
    with pytest.raises(ValueError, match="epsilon must be finite and > 0"):
        summary(np.eye(2), epsilon=0)
    x = Inputs("x", np.ones((4, 1)), np.ones((4, 1)))
    with pytest.raises(ValueError, match="space must be one of"):
        exact_singular_values(x, "softmax")
    estimate = parse("top_k(1)").approximate(x.q, x.k)
    memory.set_limit(100)
    with pytest.raises(memory.ResourceLimitError, match="singular values"):
        exact_singular_values(x)
    with pytest.raises(memory.ResourceLimitError, match="singular values"):
        summary(estimate)
