"""The largest entries of a head: the least total variation of all supports of as many entries."""

import itertools

import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from test_masked_supports import attention, masked
from test_supports import support

from analysis.errors import metrics
from approx import Mask, parse
from approx.sparse.top_p import TopP

MASKS = {
    "full": Mask.full(3, 4),
    "causal": Mask.causal(3, 4),
    "intervals": Mask([0, 1, 1], [1, 4, 3], l=4),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("k", [1, 2])
def test_no_support_of_as_many_entries_is_nearer(name, k):
    """All supports are tried; so are the nearest weights on each that need not sum to 1."""
    mask = MASKS[name]
    rng = np.random.default_rng(k)
    Q, K = 3 * rng.standard_normal((3, 2)), rng.standard_normal((4, 2))
    seen = mask.visible()
    p = attention(Q, K, mask)

    def total_variation(support):
        return naive.errors(np.where(support, p, 0), p, mask=mask)["attention_tv"]

    count = int(np.minimum(seen.sum(axis=1), k).sum())
    found = parse(f"top_k(k={k}, per='head')").approximate(Q, K, mask=mask)
    support = found.to_dense() != 0
    assert found.nnz == count
    places = np.argwhere(seen)
    tries, lost = [], []
    for some in itertools.combinations(range(len(places)), count):
        one = np.zeros((3, 4), bool)
        one[tuple(places[list(some)].T)] = True
        tries.append(total_variation(one))
        lost.append(p[~one].sum() / 6)  # of w = p on the support: half of what is off it
    # sums of at most 12 terms ≤ 1
    assert total_variation(support) <= min(tries) + 1e-14
    assert p[~support].sum() / 6 <= min(lost) + 1e-14
    by_row = parse(f"top_k(k={k})").approximate(Q, K, mask=mask).to_dense() != 0
    assert total_variation(support) <= total_variation(by_row) + 1e-14


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_of_equal_weights_the_first_are_taken(n, l, data):
    k = data.draw(st.integers(1, l))
    x = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), float)
    K = np.eye(2)[np.array(data.draw(st.lists(st.integers(0, 1), min_size=l, max_size=l)))]
    Q = 700 * np.stack([x, np.zeros(n)], axis=1)  # rows are flat, or see some keys alone
    method = parse(f"top_k(k={k}, per='head')")
    indptr, indices = method.pattern(Q, K, Mask.full(n, l), np.random.default_rng(0))
    p = attention(Q, K, None)
    order = np.lexsort((np.arange(n * l), -p.ravel()))[: n * k]
    # rounding of log-sums may tell equal weights of unlike rows apart
    assert len(indices) == n * k
    chosen = np.zeros(n * l, bool)
    chosen[np.repeat(np.arange(n), np.diff(indptr)) * l + indices] = True
    assert np.isclose(p.ravel()[chosen].sum(), p.ravel()[order].sum(), atol=1e-12)
    for i in range(n):
        for value in set(p[i]):
            equal = chosen[i * l : (i + 1) * l][p[i] == value]
            assert (np.diff(equal.astype(int)) <= 0).all()


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
