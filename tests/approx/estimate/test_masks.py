"""Masks: what they refuse and what they say, against loops over queries and keys."""

import copy
import pickle

import naive
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, strategies as st
from refusals import refuses
from small import hiding

from approx import Mask, parse
from approx.estimate import masks


@st.composite
def intervals(draw, ordered=False):
    """Draw a mask of at most 9 queries and 20 keys."""
    n, l = draw(st.integers(1, 9)), draw(st.integers(1, 20))
    pairs = [sorted(draw(st.tuples(*[st.integers(0, l - 1)] * 2))) for _ in range(n)]
    first, last = np.array(pairs).T
    if ordered:
        first, last = np.sort(first), np.sort(last)
    return Mask(first, last + 1, l, draw(st.sampled_from([None, True, False])))


# What is refused


@pytest.mark.parametrize(("first", "stop", "l", "message"), [
    ([0], [0], 3, "every query must see a key, first < stop, got first=0, stop=0 for query 0"),
    ([0, 2], [3, 1], 3, "see a key, first < stop, got first=2, stop=1 for query 1"),
    ([0, -1], [1, 1], 3, "first must be >= 0, got first=-1, stop=1 for query 1"),
    ([0], [4], 3, "stop must be at most l=3, got first=0, stop=4 for query 0"),
    ([3], [4], 3, "stop must be at most l=3"),
    ([0], [2**62], 3, "stop must be at most l=3"),
    ([0], np.array([2**64 - 1], np.uint64), 3, "stop must be at most l, got 18446744073709551"),
    ([0, 0], [1], 3, r"one entry per query, got shapes \(2,\) and \(1,\)"),
    ([0], [1], 0, "l must be >= 1, got 0"),
])  # fmt: skip
def test_intervals_that_no_query_can_have(first, stop, l, message):
    refuses(message, Mask, first, stop, l)


@pytest.mark.parametrize("bad", [[0.0], 0, [[0]], [], [True], ["0"], [None], [10**30], None])
def test_bounds_that_are_no_integers(bad):
    for name in ("first", "stop"):
        with pytest.raises(TypeError, match=f"{name} must be integers, one per query, got"):
            Mask(**{"first": [0], "stop": [1], "l": 3} | {name: bad})


def test_sizes_that_are_none():
    for make in (Mask.full, Mask.causal, lambda n, l: Mask.window(n, l, 1)):
        for n, l in ((0, 3), (3, 0), (-1, 3)):
            refuses("must be >= 1", make, n, l)
        with pytest.raises(TypeError, match="n must be an integer"):
            make(2.0, 3)
    for make in (Mask.causal, lambda n, l: Mask.window(n, l, 2)):
        refuses("n of l positions, so n must be <= l, got 3", make, 3, 2)
    refuses("width must be >= 1, got 0", Mask.window, 2, 3, 0)
    with pytest.raises(TypeError, match="looks_back must be True or False, got 1"):
        Mask([0], [1], 1, looks_back=1)


# What they say


def test_full_causal_and_window():
    np.testing.assert_array_equal(Mask.full(2, 3).visible(), np.ones((2, 3), bool))
    for n, l in ((1, 1), (1, 5), (3, 5), (5, 5)):
        seen = np.tri(n, l, l - n, dtype=bool)
        np.testing.assert_array_equal(Mask.causal(n, l).visible(), seen)
        for width in range(1, l + 2):
            window = seen & ~np.tri(n, l, l - n - width, dtype=bool)
            np.testing.assert_array_equal(Mask.window(n, l, width).visible(), window)
        assert Mask.window(n, l, l) == Mask.window(n, l, 99) == Mask.causal(n, l)
    assert masks.as_mask(None, 2, 3) == Mask.full(2, 3)
    assert masks.as_mask("causal", 2, 3) == Mask.causal(2, 3)
    window = Mask.window(2, 3, 2)
    assert masks.as_mask(window, 2, 3) is window


@pytest.mark.kernel
@given(mask=intervals(), data=st.data())
def test_what_is_seen(mask, data):
    n, l = mask.shape
    seen = naive.seen(mask, n, l)
    np.testing.assert_array_equal(mask.visible(), seen)
    np.testing.assert_array_equal(mask.counts, seen.sum(axis=1))
    assert mask.entries == seen.sum()
    assert mask.is_full == seen.all()
    back = mask.looks_back
    at = [np.flatnonzero(row)[-1] if back else i * l // n for i, row in enumerate(seen)]
    np.testing.assert_array_equal(mask.positions, at)
    assert mask.looks_back or mask.is_full or mask.key.endswith("centred")

    def places(size):
        as_array = st.lists(st.integers(0, size - 1), max_size=6).map(lambda x: np.array(x, int))
        return data.draw(st.one_of(st.slices(size), as_array))

    rows, cols = places(n), places(l)
    part = seen[rows][:, cols]
    np.testing.assert_array_equal(mask.visible(rows, cols), part)
    span = mask.span(rows)
    on = np.flatnonzero(seen[rows].any(axis=0))
    assert (span.start, span.stop) == ((on[0], on[-1] + 1) if len(on) else (l, 0))
    x = np.arange(1.0, part.size + 1).reshape(part.shape)
    for fill in (0.0, -np.inf, -np.arange(1.0, len(x) + 1)):
        y = x.copy()
        mask.hide(y, rows, cols, fill=fill)
        np.testing.assert_array_equal(y, np.where(part, x, np.reshape(fill, (-1, 1))))
    if len(part):
        some = mask.take(rows)
        np.testing.assert_array_equal(some.visible(), seen[rows])
        assert some.looks_back == mask.looks_back
        if mask.looks_back:
            np.testing.assert_array_equal(some.positions, mask.positions[rows])


@given(mask=intervals(), seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(["f4", "f8"]))
def test_the_largest_of_what_is_seen(mask, seed, dtype):
    x = np.random.default_rng(seed).standard_normal(mask.l).astype(dtype)
    want = [x[row].max() for row in naive.seen(mask, *mask.shape)]
    np.testing.assert_array_equal(mask.maximum(x), np.array(want, dtype), strict=True)
    from_zero = Mask(0 * mask.first, mask.stop, mask.l)
    want = [x[row].max() for row in naive.seen(from_zero, *mask.shape)]
    np.testing.assert_array_equal(from_zero.maximum(x), want)


@given(mask=intervals(ordered=True))
def test_which_queries_see_a_key(mask):
    assert mask.is_ordered
    first, stop = mask.transposed()
    queries = np.arange(mask.n)[:, None]
    seen = naive.seen(mask, *mask.shape)
    np.testing.assert_array_equal((first <= queries) & (queries < stop), seen)
    assert (np.diff(first) >= 0).all()
    assert (np.diff(stop) >= 0).all()


def test_order():
    assert Mask([0, 0, 2], [1, 3, 3], 3).is_ordered
    assert not Mask([1, 0], [3, 3], 3).is_ordered
    assert not Mask([0, 0], [3, 2], 3).is_ordered
    with pytest.raises(AssertionError):
        Mask([1, 0], [3, 3], 3).transposed()


@pytest.mark.kernel
@given(mask=intervals())
def test_a_sparse_part_is_cut_to_what_is_seen(mask):
    rng = np.random.default_rng(0)
    whole = scipy.sparse.csr_array(np.where(rng.random(mask.shape) < 0.5, 1.5, 0.0))
    found = masks.cut(whole, mask)
    seen = naive.seen(mask, *mask.shape)
    np.testing.assert_array_equal(found.toarray(), np.where(seen, whole.toarray(), 0.0))
    assert found.nnz == (whole.toarray() * seen > 0).sum()
    assert found.indptr.dtype == whole.indptr.dtype
    assert masks.cut(found, mask) is found


def test_names():
    named = {
        "full": Mask.full(3, 4),
        "causal": Mask.causal(3, 4),
        "window(1)": Mask.window(3, 4, 1),
        "window(3)": Mask.window(3, 4, 3),
        "intervals": Mask([0, 1, 1], [2, 3, 4], 4),
    }
    for name, mask in named.items():
        assert str(mask) == name
    assert str(Mask.causal(1, 4)) == "causal"  # a decoding query, which sees every key
    assert str(Mask([0, 0], [2, 3], 9)) == "intervals"  # causal, but not of the last positions
    assert str(Mask([0], [4], 4)) == "full"
    assert str(Mask([0, 0], [1, 2], 2, looks_back=False)) == "intervals"  # windows lie elsewhere
    assert str(Mask.full(4, 2)) == "full"


def test_equal_masks_are_the_same_intervals_of_the_same_positions():
    every = [
        Mask.full(2, 3), Mask.full(3, 3), Mask.full(2, 4), Mask.causal(2, 3), Mask.causal(3, 3),
        Mask.causal(1, 3), Mask.full(1, 3), Mask.window(2, 3, 2), Mask.window(2, 3, 1),
        Mask([0, 0], [2, 3], 4), Mask([0, 0], [2, 3], 3, looks_back=False), hiding(9, 5, 3),
    ]  # fmt: skip
    for i, mask in enumerate(every):
        again = Mask(mask.first.tolist(), mask.stop.astype(np.uint8), mask.l, mask.looks_back)
        for same in (again, copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
            assert same == mask
            assert hash(same) == hash(mask)
            assert same.key == mask.key
        assert [j for j, other in enumerate(every) if other == mask] == [i]
    assert len(set(every)) == len(every)
    assert Mask.full(2, 3) != "full"


def test_a_mask_keeps_its_bounds_and_its_place():
    first, stop = np.zeros(2, int), np.array([1, 2])
    mask = Mask(first, stop, 3)
    first[:], stop[:] = 9, 9
    np.testing.assert_array_equal(mask.visible(), np.tri(2, 3, dtype=bool))
    for bounds in (mask.first, mask.stop):
        with pytest.raises(ValueError, match="read-only"):
            bounds[0] = 1
    # it sees every key, but from the last position: such an estimate is not one without a mask
    x = np.linspace(-1, 1, 12).reshape(6, 2)
    mask = Mask.causal(1, 6)
    for spec in ("positive(m=4)", "uniform()", "taylor(degree=2)", "top_k(k=2)"):
        assert parse(spec).approximate(x[:1], x, mask=mask, rng=0).mask == mask


def test_queries_that_are_taken_keep_their_positions():
    picked = np.array([3, 7, 20, 39])
    for mask in (Mask.full(40, 60), Mask.causal(40, 60), Mask.window(40, 60, 5)):
        np.testing.assert_array_equal(mask.take(picked).positions, mask.positions[picked])
        np.testing.assert_array_equal(mask.take(picked).take([1]).positions, mask.positions[[7]])
        assert mask.take(slice(None)) == mask
    part = Mask.full(40, 60).take(picked)
    assert part.is_full
    assert part != Mask.full(4, 60)
    q, k = np.random.default_rng(0).standard_normal((2, 40, 3))
    for spec in ("sliding_window(width=3)", "sink_window(k=4)", "strided(k=3)", "chunk(size=5)"):
        method = parse(spec)
        whole = method.approximate(q, k).to_dense()
        alone = method.approximate(q[picked], k, mask=Mask.full(40, 40).take(picked))
        np.testing.assert_array_equal(alone.to_dense(), whole[picked])
    for places, match in (([1, 2, 3], "one entry per query"), ([0, 60, 1, 2], "must lie in")):
        refuses(match, Mask, part.first, part.stop, 60, places=places)
