"""State rank: what no recurrence is below, and what recurrences that are found reach."""

import functools
import math

import naive
import numpy as np
import pytest
from each import each
from hypothesis import given, settings, strategies as st
from refusals import refuses
from small import hiding

from analysis import inputs
from analysis.ranks import state_rank
from analysis.ranks.recurrence import recurrence, ungated
from approx import Mask, parse
from approx.estimate import exact

# Linear attentions: products of features of a query and of a key, normalised or not.
LINEAR = (
    "uniform()", "one()", "constant()", "positive(m={m})", "trigonometric(m={even})",
    "hyperbolic(m={even})", "generalized_exponential(m={m})", "shifted_positive(m={m})",
    "tensor_sketch(m={m})", "random_maclaurin(m={m})", "elu()", "relu()", "rfa(m={even})",
    "cosformer(M=128)", "lara(m={m})", "taylor(degree=1)", "tensor_power(n=1)",
    "nystrom(rank={m})", "nystrom(rank={m}, block=2)", "truncated_svd(rank={m})",
    "truncated_svd(rank={m}, space='attention')", "flowformer()",
)  # fmt: skip


def weights(n, l, mask, seed=0, scale=1.5):
    rng = np.random.default_rng(seed)
    Q, K = scale * rng.standard_normal((n, 4)), scale * rng.standard_normal((l, 4))
    return Q, K, exact.softmax(Q, K, mask)


def error(A, P):
    return np.linalg.norm(A - P) / np.linalg.norm(P)


def nearest(rows, P):
    """Relative Frobenius error after the best factor for every row, which leaves the rank."""
    size = np.square(rows).sum(axis=1)
    factor = (rows * P).sum(axis=1) / np.where(size > 0, size, 1)
    return error(factor[:, None] * rows, P)


def states_of(A):
    """How many states the estimate passes on: its rank before the mask, at most."""
    return int(getattr(A.low, "low", A.low).rank)


@pytest.mark.parametrize("spec", LINEAR)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), m=st.integers(1, 4))
def test_no_linear_attention_is_below_the_bound(spec, seed, m):
    n, l = 11, 13
    mask = hiding(n, l, seed) if seed % 4 else Mask.full(n, l)
    Q, K, P = weights(n, l, mask, seed)
    method = parse(spec.format(m=m, even=2 * m))
    A = method.approximate(Q, K, mask=mask, rng=seed)
    states, rows = min(states_of(A), l), A.block(slice(None), shift=A.row_log())
    for partition in state_rank.PARTITIONS:
        bound = state_rank.lower_bound(P, states, mask=mask, partition=partition)
        assert bound <= nearest(rows, P)  # whatever its rows are divided by


@functools.cache
def head(place, n):
    x = list(inputs.sample("smollm2").heads())[place].first(n)
    return x, exact.softmax(x.Q, x.K, x.mask)


@each("place", range(4))
def test_on_a_language_model_every_bound_is_below_what_is_found_and_above_nothing(place):
    x, P = head(place, 96)
    states = [2, 8, 16]
    dyadic, best, window = (
        state_rank.lower_bound(P, states, **options)
        for options in ({}, {"partition": "best"}, {"window": 16})
    )
    assert (window > 0).all()
    assert (window <= dyadic * (1 + 1e-9)).all()
    assert (dyadic <= best).all()
    assert (np.diff(best) < 0).all()
    for m, bound in zip(states, best):
        found = recurrence(P, m).error
        assert bound < found < 2 * bound  # what the README says of its heads
        assert bound < ungated(P, m, sweeps=5)
    estimates = [x.approximate(parse(spec.format(m=8, even=8)), rng=0) for spec in LINEAR]
    bounds = state_rank.lower_bound(P, [states_of(A) for A in estimates], partition="best")
    for A, bound in zip(estimates, bounds):
        assert x.compare(A)["attention_relative_frobenius"] > bound


def test_the_dyadic_bound_and_that_without_a_mask():
    _, _, P = weights(64, 64, "causal")
    for m in (1, 2, 5):
        expected = math.sqrt(naive.dyadic_sum(P, m, 1) / np.square(P).sum())
        assert state_rank.lower_bound(P, m) == pytest.approx(expected, rel=1e-10)
        assert state_rank.lower_bound(P, m) <= expected
    A = parse("hierarchical(rank=4, leaf=8, space='attention')")
    Q, K, P = weights(64, 64, "causal")
    reached = error(A.approximate(Q, K, mask="causal").to_dense(), P)
    assert state_rank.lower_bound(P, 4) == pytest.approx(reached, rel=1e-10)
    Q, K, P = weights(9, 7, None)
    A = parse("truncated_svd(rank=3, space='attention')").approximate(Q, K)
    expected = error(A.to_dense(), P)
    assert state_rank.lower_bound(P, 3, mask=None) == pytest.approx(expected, rel=1e-12)


@given(seed=st.integers(0, 2**32 - 1), m=st.integers(1, 3), window=st.integers(0, 4))
def test_gated_recurrences_with_a_window_attain_0_and_their_rank(seed, m, window):
    """A random time-varying recurrence of m states, and anything within the window."""
    n, rng = 17, np.random.default_rng(seed)
    P = np.zeros((n, n))
    gates = rng.uniform(0.5, 1, (n, m, m)) * rng.choice([-1, 1], (n, m, m))
    state = np.zeros((m, n))
    for i in range(n):
        P[i] = rng.standard_normal(m) @ state
        state = gates[i] @ state
        state[:, i] = rng.standard_normal(m)
    size = np.abs(P).max()
    near = np.tril(rng.standard_normal((n, n))) * np.triu(np.ones((n, n)), 1 - max(window, 1))
    P = np.where(near != 0, size * near, P)  # the key of the query itself is always apart
    assert state_rank.lower_bound(P, m, window=max(window, 1)) == 0
    if window <= 1:
        found = state_rank.profile(P)
        assert found.numerical_rank.max() <= m
        assert found.position.tolist() == list(range(1, n))
        assert recurrence(P, m).error < 1e-6


def test_bounds_of_windows_use_rectangles_that_far_away():
    P = np.tril(np.ones((32, 32))) * np.random.default_rng(0).random((32, 32))
    bounds = [state_rank.lower_bound(P, 1, window=w) for w in range(32)]
    assert (np.array(bounds)[:-1] >= 0).all()
    assert bounds[0] > bounds[8] > bounds[20] > 0
    assert bounds[31] == 0
    far = np.tril(P, -8)  # what is nearer does not count
    share = np.linalg.norm(P) / np.linalg.norm(far)
    assert state_rank.lower_bound(far, 1, window=8) == pytest.approx(bounds[8] * share, rel=1e-12)
    for mask in (Mask.window(24, 24, 9), Mask.causal(10, 24)):
        _, _, P = weights(mask.n, 24, mask)
        hidden = np.where(mask.visible(), P, 1e3)  # is not looked at
        bound = state_rank.lower_bound(hidden, 1, mask=mask)
        assert bound == state_rank.lower_bound(P, 1, mask=mask) > 0.01
        low = np.random.default_rng(1).random((mask.n, 1)) * np.ones(24)
        assert state_rank.lower_bound(low, 1, mask=mask) == 0


def test_fewer_states_than_the_least_are_not_as_near():
    _, P = head(2, 64)
    for error in (0.5, 0.1, 0.02):
        m = state_rank.least_states(P, error, partition="best")
        assert state_rank.lower_bound(P, m, partition="best") <= error
        assert state_rank.lower_bound(P, m - 1, partition="best") > error
    assert state_rank.least_states(np.eye(8), 0.0) == 0
    refuses("error must be >= 0, got -1", state_rank.least_states, P, -1)


# Found


@each("m", [1, 3, 9])
def test_a_recurrence_is_what_it_says_and_sweeps_do_not_harm(m):
    _, P = head(3, 64)
    errors = []
    for sweeps in (0, 1, 4):
        found = recurrence(P, m, sweeps=sweeps)
        estimate = found.to_dense()
        assert found.states == m
        assert (np.triu(estimate, 1) == 0).all()
        np.testing.assert_array_equal(np.diag(estimate), np.diag(P))
        assert error(estimate, P) == pytest.approx(found.error)
        blocks = [np.linalg.matrix_rank(estimate[k:, :k], tol=1e-9) for k in range(1, 64)]
        assert max(blocks) <= m
        errors.append(found.error)
    assert errors[0] >= errors[1] >= errors[2]
    assert errors[2] < errors[0]


def test_features_are_fitted_to_what_is_seen():
    rng = np.random.default_rng(0)
    phi, psi = rng.standard_normal((30, 3)), rng.standard_normal((30, 3))
    P = np.tril(phi @ psi.T, -1) + np.diag(rng.random(30))
    errors = [ungated(P, m, sweeps=40) for m in (1, 2, 3)]
    assert errors[0] > errors[1] > 10 * errors[2]
    s = np.linalg.svd(P, compute_uv=False)
    assert errors[2] < 0.05 * np.linalg.norm(s[3:]) / np.linalg.norm(s)


# Refused


def test_what_has_no_state_is_refused():
    P = np.tril(np.ones((4, 4)))
    with pytest.raises(ValueError, match="a profile needs intervals that begin at key 0"):
        state_rank.profile(P, Mask.window(4, 4, 2))
    refuses("weights are 0 wherever a query sees a key", state_rank.lower_bound, np.triu(P.T, 1), 1)
    refuses("a profile needs two keys that queries see, got one", state_rank.profile, P[:1, :1])
    refuses("m must be a number of states, or several of them", state_rank.lower_bound, P, [])
    refuses("partition must be one of", state_rank.lower_bound, P, 1, partition="all")
    refuses("the mask is for 3 queries", state_rank.lower_bound, P, 1, mask=Mask.causal(3, 4))
    for bad in (np.ones((3, 3)), np.tril(np.ones((4, 3)))):
        refuses("weights must be square and 0 above the diagonal", recurrence, bad, 1)
    refuses("weights must have at most 1024 rows, got 1025", recurrence, np.eye(1025), 1)
