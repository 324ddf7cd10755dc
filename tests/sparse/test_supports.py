"""Supports: where they are, and that the estimate there is exp(q·k)."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import problems, truth

from approx import METHODS, ResourceLimitError, exact, memory, parse
from approx.parts import Support
from approx.sparse.sliding_window import SlidingWindow
from approx.sparse.support import SupportMethod
from approx.sparse.top_k import TopK

SUPPORTS = [name for name, method in METHODS.items() if issubclass(method, SupportMethod)]


def filled(name, size):
    return METHODS[name](**{METHODS[name].size_field: size})


def support(A):
    on = np.zeros(A.shape, bool)
    on[A.sparse.nonzero()] = True
    return on


def test_supports_are_found():
    assert {"top_k", "sliding_window"} <= set(SUPPORTS)


# Any support


@pytest.mark.parametrize("name", SUPPORTS)
@given(problem=problems(), data=st.data())
def test_exp_on_the_support_and_nothing_off_it(name, problem, data):
    Q, K, _, seed = problem
    size = data.draw(st.integers(1, len(K)))
    A = filled(name, size).approximate(Q, K, rng=seed)
    assert A.rank == 0
    assert A.replaces
    assert isinstance(A.part, Support)
    s = A.sparse
    assert s.has_canonical_format  # sorted, no entry twice
    assert s.dtype == A.dtype
    on, D = support(A), A.to_dense()
    assert on.sum() == A.nnz == A.parameters
    assert (D[~on] == 0).all()
    # d ≤ 4 products ≤ 1, one exponential
    exp = naive.kernel(Q.astype(float), K.astype(float))
    np.testing.assert_allclose(D[on], exp[on], rtol=22 * np.finfo(A.dtype).eps)


@pytest.mark.parametrize("name", SUPPORTS)
@given(problem=problems(dtypes=[np.float64]))
def test_all_keys_are_exact_attention(name, problem):
    Q, K, V, seed = problem
    n, l = len(Q), len(K)
    A = filled(name, l).approximate(Q, K, rng=seed)
    if name == "sliding_window":
        return  # cut at the ends: never all
    assert A.nnz == n * l
    # sums of at most 8 positive terms, e^4 apart, weights with an error of 20 eps
    np.testing.assert_allclose(A.attend(V), exact.attention(Q, K, V), rtol=0, atol=1e-14)
    assert naive.attention(Q, K, V).shape == A.attend(V).shape


@pytest.mark.parametrize("name", SUPPORTS)
@given(problem=problems())
def test_price_bounds_what_is_stored(name, problem):
    Q, K, _, seed = problem
    n, l, d = len(Q), len(K), Q.shape[1]
    size = (l + 1) // 2
    A = filled(name, size).approximate(Q, K, rng=seed)
    assert A.parameters / n <= filled(name, size).price(n=n, l=l, d=d)


@pytest.mark.parametrize("name", SUPPORTS)
def test_too_many_entries_are_refused(name):
    x = np.ones((1000, 1))
    memory.set_limit(2**16)
    with pytest.raises(ResourceLimitError, match=f"{name}.* needs .* lower n or the size"):
        filled(name, 500).approximate(x, x)


# Top k


@given(problem=problems(), data=st.data())
def test_top_k_holds_the_largest(problem, data):
    Q, K, _, _ = problem
    k = data.draw(st.integers(1, len(K)))
    on, x = support(TopK(k).approximate(Q, K)), truth(Q, K)
    assert (on.sum(axis=1) == k).all()
    # q·k rounded in another order may swap what differs by d roundings of 4
    slack = 16 * np.finfo(Q.dtype).eps
    for row, chosen in zip(x, on):
        if not chosen.all():
            assert row[chosen].min() >= row[~chosen].max() - slack


def test_top_k_of_ties_has_k_entries():
    on = support(TopK(2).approximate(np.zeros((3, 2)), np.ones((5, 2))))
    np.testing.assert_array_equal(on.sum(axis=1), 2)


def test_top_k_by_stripes_is_top_k(monkeypatch):
    Q, K = np.random.default_rng(0).standard_normal((2, 20, 3))
    whole = TopK(4).approximate(Q, K).to_dense()
    monkeypatch.setattr(exact, "STRIPE", 60)
    np.testing.assert_array_equal(TopK(4).approximate(Q, K).to_dense(), whole)


def test_top_k_minimises_the_error_of_its_size():
    Q, K = np.random.default_rng(0).standard_normal((2, 6, 3))
    D = naive.kernel(Q, K)
    best = np.linalg.norm(TopK(3).approximate(Q, K).to_dense() - D)
    for name in set(SUPPORTS) - {"top_k"}:
        assert best < np.linalg.norm(filled(name, 3).approximate(Q, K).to_dense() - D)
    error = math.sqrt(sum((np.sort(row)[:3] ** 2).sum() for row in D))
    np.testing.assert_allclose(best, error, rtol=1e-14)


# Sliding window


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_a_window_by_its_definition(n, l, data):
    width = data.draw(st.integers(1, l))
    on = support(SlidingWindow(width).approximate(np.ones((n, 1)), np.ones((l, 1))))
    for i in range(n):
        for j in range(l):
            offset = j - math.floor(i * l / n)
            assert on[i, j] == (-(width // 2) <= offset < math.ceil(width / 2))
    assert on.any(axis=1).all()


@pytest.mark.parametrize(("n", "l"), [(3, 9), (9, 3), (5, 5)])
def test_a_window_of_one_is_the_diagonal(n, l):
    on = support(SlidingWindow(1).approximate(np.ones((n, 1)), np.ones((l, 1))))
    np.testing.assert_array_equal(np.nonzero(on)[1], np.arange(n) * l // n)


# In Scatterbrain


@pytest.mark.parametrize("name", SUPPORTS)
@given(problem=problems())
def test_scatterbrain_is_exp_on_the_support_and_its_low_rank_part_off_it(name, problem):
    Q, K, _, seed = problem
    sparse = filled(name, (len(K) + 1) // 2)
    A = parse(f"scatterbrain(low_rank=taylor(degree=2), sparse={sparse})").approximate(
        Q, K, rng=seed
    )
    on = support(sparse.approximate(Q, K))
    np.testing.assert_array_equal(support(A), on)
    low = parse("taylor(degree=2)").approximate(Q, K).to_dense()
    np.testing.assert_array_equal(A.to_dense()[~on], low[~on])
    np.testing.assert_array_equal(A.to_dense()[on], sparse.approximate(Q, K).to_dense()[on])
