"""Positions at the input and at the logits: ranks before and after exp."""

import numpy as np
import pytest

from analysis.ranks import position_rank


def head(n=32, d=16, d_h=4, d_p=6, seed=0, heads=None):
    return position_rank.generic(n, d, d_h, d_p, rng=np.random.default_rng(seed), heads=heads)


def test_generic_inputs_reach_both_bounds_and_exp_has_full_rank():
    x = head()
    assert position_rank.ranks(x.at_input()) == {"logits": 4, "exp": 32, "softmax": 32}
    assert position_rank.ranks(x.at_logits()) == {"logits": 10, "exp": 32, "softmax": 32}


def test_logits_are_their_definition():
    x = head()
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


def test_without_positions_nothing_is_gained():
    x = head(d_p=0)
    np.testing.assert_array_equal(x.at_logits(), x._replace(P=0 * x.P).at_input())
    assert position_rank.ranks(x.at_logits())["logits"] == 4


def test_refusals():
    with pytest.raises(ValueError, match="d_h must be <= 4, got 5"):
        position_rank.construction(8, 4, 5, 1)
    with pytest.raises(ValueError, match="d_p must be <= 8, got 9"):
        position_rank.construction(8, 4, 2, 9)


def test_logits_without_ranks():
    vast = np.full((2, 2), 1e308) * [[1, -1], [-1, 1]]
    with pytest.raises(ValueError, match="must be representable in float64, got"):
        position_rank.ranks(vast)
