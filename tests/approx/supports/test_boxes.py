"""Bounds of q·k in a box: never violated by the exact product, nor by a computed one, and tight."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from approx.supports import boxes


@st.composite
def pages(draw):
    """Draw q (1, d), the keys of a page (≤ 4, d) and a dtype; |q·k| reaches 10⁴ and underflows."""
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    d, count = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    if draw(st.booleans()):  # full mantissas, whose products round
        seed, scale = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([1e-22, 1.0, 30.0]))
        x = scale * np.random.default_rng(seed).standard_normal((1 + count, d))
        return x[:1].astype(dtype), x[1:].astype(dtype)
    width = 64 if dtype is np.float64 else 32
    numbers = st.floats(-100, 100, width=width)
    x = draw(arrays.arrays(dtype, (1 + count, d), elements=numbers))
    return x[:1], x[1:]


def exactly(q, k):
    return sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(q, k)), Fraction(0))


def computed(q, k):
    """Yield q·k in the precision of the inputs, added in several orders."""
    terms = q * k
    yield q @ k
    for order in (terms, terms[::-1], np.sort(terms), np.sort(terms)[::-1]):
        total = q.dtype.type(0)
        for term in order:
            total += term
        yield total


@given(page=pages())
def test_no_key_of_a_page_is_beyond_its_bounds(page):
    q, K = page
    lower, upper = boxes.bounds(q, *boxes.page_boxes(K, len(K)))
    assert lower.shape == upper.shape == (1, 1)
    for k in K:
        assert lower[0, 0] <= exactly(q[0], k) <= upper[0, 0]
        for product in computed(q[0], k):
            assert lower[0, 0] <= product <= upper[0, 0]


@given(page=pages())
def test_the_bounds_are_those_of_the_corners(page):
    """They exceed the least and the greatest corner by less than twice the roundings they allow."""
    q, K = page
    lo, hi = K.min(axis=0), K.max(axis=0)
    terms = [(exactly([a], [b]), exactly([a], [c])) for a, b, c in zip(q[0], lo, hi)]
    lower, upper = boxes.bounds(q, lo[None], hi[None])
    size = float(sum(max(abs(x), abs(y)) for x, y in terms))
    info, d = np.finfo(q.dtype), len(lo)
    slack = 2 * (d + 3) * (float(info.eps) * size + float(info.tiny))
    assert 0 <= upper[0, 0] - sum(max(pair) for pair in terms) <= slack
    assert 0 <= sum(min(pair) for pair in terms) - lower[0, 0] <= slack


@given(l=st.integers(1, 9), size=st.integers(1, 10), seed=st.integers(0, 99))
def test_boxes_of_pages_by_their_definition(l, size, seed):
    K = np.random.default_rng(seed).standard_normal((l, 2))
    cut = [K[start : start + size] for start in range(0, l, size)]
    lo, hi = boxes.page_boxes(K, size)
    np.testing.assert_array_equal(lo, [page.min(axis=0) for page in cut])
    np.testing.assert_array_equal(hi, [page.max(axis=0) for page in cut])


def test_what_is_no_box_is_refused():
    with pytest.raises(ValueError, match="lo and hi must have one shape and lo <= hi, got"):
        boxes.bounds([[1.0]], [[1.0]], [[0.0]])
    with pytest.raises(ValueError, match="lo and hi must have one shape and lo <= hi, got"):
        boxes.bounds([[1.0]], [[1.0]], [[1.0], [2.0]])
    with pytest.raises(ValueError, match="size must be >= 1"):
        boxes.page_boxes([[1.0]], 0)
