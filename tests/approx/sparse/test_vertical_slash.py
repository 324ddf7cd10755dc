"""Vertical lines and slashes: which are chosen, from which queries, and how good the oracle is."""

import itertools

import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from test_masked_supports import attention, masked
from test_supports import support

from approx import Mask
from approx.method.tags import ORACLE
from approx.sparse.vertical_slash import BY, VerticalSlash


@st.composite
def untied(draw, most=8):
    """Draw Q, K and a mask; sums of softmax are equal only where they are the same numbers."""
    _, _, mask, seed = draw(masked(most=most))
    x = np.random.default_rng(seed).uniform(-2, 2, (sum(mask.shape), 2))
    return x[: mask.n], x[mask.n :], mask


def on_lines(mask, keys, distances):
    """Return whether each seen entry is on a line, (n, l)."""
    on = np.zeros(mask.shape, bool)
    for i, j in itertools.product(*map(range, mask.shape)):
        on[i, j] = j in keys or mask.positions[i] - j in distances
    return on & mask.visible()


@pytest.mark.kernel
@given(problem=untied(), data=st.data())
def test_lines_of_the_last_queries_by_their_definition(problem, data):
    Q, K, mask = problem
    k = data.draw(st.integers(1, mask.l))
    v, queries = data.draw(st.integers(0, k)), data.draw(st.integers(1, 9))
    sinks, recent = data.draw(st.integers(0, v)), data.draw(st.integers(0, k - v))
    method = VerticalSlash(k, v / k, queries=queries, sinks=sinks, recent=recent)
    P, last = attention(Q, K, mask), slice(max(mask.n - queries, 0), None)
    places = mask.positions[last]
    want = naive.lines(P[last], places, v, k - v, sinks=sinks, recent=recent)
    found = method.lines(Q, K, mask)
    for lines, twins in zip(found, want):
        assert {*lines.tolist()} == {*twins}
    on = support(method.approximate(Q, K, mask=mask))
    np.testing.assert_array_equal(on, on_lines(mask, *want))
    assert on.sum(axis=1).max() <= k


@given(problem=untied(), data=st.data())
def test_lines_by_turns_by_their_definition(problem, data):
    Q, K, mask = problem
    k = data.draw(st.integers(1, mask.l))
    v, P = data.draw(st.integers(0, k)), attention(Q, K, mask)
    keys, distances = [], []
    for _ in range(8):
        on = {(i, place - x) for i, place in enumerate(mask.positions) for x in distances}
        keys, _ = naive.lines(P, mask.positions, v, 0, on)
        on = {(i, j) for i in range(mask.n) for j in keys}
        _, distances = naive.lines(P, mask.positions, 0, k - v, on)
    A = VerticalSlash(k, v / k, "mass").approximate(Q, K, mask=mask)
    np.testing.assert_array_equal(support(A), on_lines(mask, keys, distances))


@given(problem=masked(most=5), data=st.data())
def test_no_other_lines_of_one_kind_hold_more_attention(problem, data):
    """All choices of verticals beside the slashes, and of slashes beside the verticals."""
    Q, K, mask, _ = problem
    l = mask.l
    k = data.draw(st.integers(1, l))
    v, P = data.draw(st.integers(0, k)), attention(Q, K, mask)
    keys, distances = VerticalSlash(k, v / k, "mass").lines(Q, K, mask)
    held = P[on_lines(mask, keys, distances)].sum()
    for other in itertools.combinations(range(l), v):
        assert held >= P[on_lines(mask, other, distances)].sum() - 1e-13
    for other in itertools.combinations(range(1 - l, l), k - v):
        assert held >= P[on_lines(mask, keys, other)].sum() - 1e-13


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("mask", [Mask.causal(6, 9), Mask.window(9, 9, 4), Mask.full(4, 8)])
def test_a_diagonal_is_at_one_distance_from_the_positions(by, mask):
    """Each query points at the key two before its position, or at the first of all."""
    K = 9 * np.eye(mask.l)
    Q = np.eye(mask.l)[np.maximum(mask.positions - 2, 0)]
    method = VerticalSlash(1, 0.0, by)
    np.testing.assert_array_equal(method.lines(Q, K, mask)[1], [2])
    want = mask.visible() & (mask.positions[:, None] - np.arange(mask.l) == 2)
    np.testing.assert_array_equal(support(method.approximate(Q, K, mask=mask)), want)


def test_lines_by_turns_leave_to_each_other_what_both_hold():
    """Key 0 comes first, of two queries; a slash holds one of these, and key 5 has two others."""
    Q, K = 30 * np.eye(6)[[0, 5, 5, 3, 0, 4]], np.eye(6)
    method = VerticalSlash(2, by="mass")
    np.testing.assert_array_equal(method.lines(Q, K, Mask.full(6, 6)), [[5], [0]])
    assert support(method.approximate(Q, K))[[0, 1, 2, 3], [0, 5, 5, 3]].all()
    assert [ORACLE in VerticalSlash(by=by).tags for by in BY] == [False, True]
    assert VerticalSlash(4, 0.0, sinks=1, recent=3).verticals == 1
    assert VerticalSlash(4, 1.0, recent=3).verticals == 1
