"""The fewest keys that hold a share of the attention: how few, how near, and what ties do."""

import itertools

import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from test_masked_supports import attention, masked
from test_supports import support

from analysis.errors import metrics
from approx.sparse.top_p import TopP


@given(problem=masked(), p=st.floats(0.01, 1))
def test_the_fewest_keys_that_hold_p(problem, p):
    """The twin's keys, p apart from its sums; no fewer keys of a row hold p; tv ≤ 1 − p."""
    Q, K, mask, _ = problem
    A = TopP(p).approximate(Q, K, mask=mask)
    for i, (row, on) in enumerate(zip(attention(Q, K, mask), support(A))):
        held = np.cumsum(np.sort(row)[::-1])
        assert row[on].sum() >= p - 1e-13  # sums of at most 8 weights
        if np.abs(held - p).min() > 1e-13 and len({*row.round(12)} - {0}) == mask.counts[i]:
            assert {*np.flatnonzero(on)} == naive.fewest(row, p)
        if on.sum() > 1:
            fewer = itertools.combinations(row, on.sum() - 1)
            assert max(map(sum, fewer)) < p + 1e-13
    assert metrics.compare(A, Q, K)["attention_tv"] <= 1 - p + 1e-13


@pytest.mark.parametrize("l", [3, 7, 10, 50])
def test_ties_are_kept_from_the_first_on_until_they_reach_p(l):
    """Weights of 1/l each: p = c/l asks for c keys, though the sums round."""
    for c, x in itertools.product(range(1, l + 1), [0.0, 0.1, 1.3]):
        on = support(TopP(c / l).approximate(np.full((1, 2), x), np.full((l, 2), x)))
        np.testing.assert_array_equal(on[0], np.arange(l) < c)


def test_more_than_all_of_the_attention_is_refused():
    with pytest.raises(ValueError, match=r"p must be <= 1, got 1.5"):
        TopP(1.5)
