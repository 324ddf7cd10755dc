"""Pages: which are chosen, and from which keys."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from test_masked_supports import masked
from test_supports import support

from analysis.bounds.certificates import row_bounds
from analysis.metrics import compare
from approx import Mask, parse
from approx.method.tags import ORACLE
from approx.sparse.pages import SCORES, Pages


def rows(method, Q, K, mask):
    """Yield, for each row, the scores of what it sees, its current page if kept, and its pages."""
    on = support(method.approximate(Q, K, mask=mask))
    for i, (first, stop) in enumerate(zip(mask.first, mask.stop)):
        scores = naive.page_scores(Q[i], K, method.size, first, stop, method.by)
        place = stop - 1 if mask.looks_back else i * mask.l // mask.n
        kept = {place // method.size} & {*scores} if method.current else set()
        chosen = {j // method.size for j in np.flatnonzero(on[i])}
        want = [j for j in range(first, stop) if j // method.size in chosen]
        np.testing.assert_array_equal(np.flatnonzero(on[i]), want)  # all that is seen of a page
        yield scores, kept, chosen


@pytest.mark.kernel
@pytest.mark.parametrize("by", SCORES)
@given(problem=masked(most=10), size=st.integers(1, 4), data=st.data())
def test_pages_by_their_definition(by, problem, size, data):
    """The highest scores; of boxes of integers, which do not round, the first of equal ones."""
    Q, K, mask, _ = problem
    count, current = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    method = Pages(count * size + size // 2, size, by, current)
    for scores, kept, chosen in rows(method, Q, K, mask):
        order = sorted(scores, key=lambda page: (page not in kept, -scores[page], page))
        want = set(order[:count])
        if by == "box" and all(float(score).is_integer() for score in scores.values()):
            assert chosen == want
        else:
            assert len(chosen) == len(want)
            assert kept <= chosen
            left, right = (sorted(scores[page] for page in pages) for pages in (chosen, want))
            np.testing.assert_allclose(left, right, rtol=1e-13, atol=1e-13)


@pytest.mark.kernel
@pytest.mark.parametrize("by", SCORES)
def test_scores_of_whole_pages_and_of_parts(by):
    Q, K = np.random.default_rng(0).standard_normal((2, 11, 3))
    mask = Mask.window(11, 11, 6)
    x = SCORES[by].scorer(Q, K, mask, 4)(slice(None))
    for i, (first, stop) in enumerate(zip(mask.first, mask.stop)):
        want = naive.page_scores(Q[i], K, 4, first, stop, by)
        found = x[i, list(want)]
        if by == "mass":  # at the scale of a row
            found, want = (a / np.max(a) for a in (found, [*want.values()]))
        else:
            want = [*want.values()]
        np.testing.assert_allclose(found, want, rtol=1e-12)


def test_scores_are_made_of_what_is_seen():
    """Key 3 would win for page 1 by its box and its mean, and query 0 does not see it."""
    K = np.array([[1.0], [1.0], [0.0], [9.0]])
    for by in SCORES:
        on = support(Pages(2, 2, by).approximate(np.ones((2, 1)), K, mask="causal"))
        np.testing.assert_array_equal(on, [[1, 1, 0, 0], [0, 0, 1, 1]])
    K = np.array([[1.0], [1.0], [1.5], [0.0]])  # 1.5 > 1, and e^1.5 < 2e¹
    for by, want in (("box", [2]), ("mean", [2]), ("deviation", [2]), ("mass", [0, 1])):
        on = support(Pages(2, 2, by).approximate(np.ones((2, 1)), K, mask="causal"))
        np.testing.assert_array_equal(np.flatnonzero(on[0]), want)
    K = np.array([[0.0], [1.0], [1.2], [0.5]])  # e¹ < e^1.2 + e^0.5, of keys 1 to 3
    on = support(Pages(2, 2, "mass").approximate(np.ones((1, 1)), K, mask=Mask([1], [4], 4)))
    np.testing.assert_array_equal(np.flatnonzero(on[0]), [2, 3])
    K = np.array([[9.0], [0.0], [1.0], [1.0]])
    window = Mask.window(4, 4, 2)
    on = support(Pages(2, 2, "box").approximate(np.ones((4, 1)), K, mask=window))
    np.testing.assert_array_equal(np.flatnonzero(on[2]), [2])  # not page 0, of which it sees key 1


def test_mean_and_deviation_bound_no_logit():
    """One outlier of 16 keys: √15/16 of it in the deviation, all of it in the box."""
    K = np.zeros((32, 1))
    K[3], K[16:] = 16.0, 6.0
    q = np.ones((1, 1))
    assert naive.page_scores(q[0], K, 16, 0, 32, "deviation") == {
        0: pytest.approx(1 + math.sqrt(15)), 1: pytest.approx(6)
    }  # fmt: skip
    for by, page in (("deviation", 1), ("box", 0)):
        estimate = Pages(16, 16, by).approximate(q, K)
        assert estimate.sparse.indices[0] // 16 == page
        found = compare(estimate, q, K)["attention_tv"]
        bound = row_bounds(estimate, q, K)  # from boxes, which are read in addition
        assert (found, 1) <= (bound.attention_tv[0], bound.pages[0])


def test_whole_pages_are_bought_and_paid_for():
    assert parse("pages").within(40, n=10, l=40, d=4) == Pages(32)
    assert parse("pages").within(15, n=10, l=40, d=4) is None
    assert parse("pages(size=4)").within(15, n=10, l=40, d=4) == Pages(12, 4)
    tags = {by: ORACLE in parse(f"pages(by={by!r})").tags for by in SCORES}
    assert tags == {"box": False, "mean": False, "deviation": False, "mass": True}


@pytest.mark.parametrize("by", ["box", "mean", "deviation"])
@pytest.mark.parametrize(("gap", "best"), [(2**-6, 2), (2**-9, 0)])  # below 8 eps·4096 is a tie
def test_an_offset_of_all_scores_chooses_no_other_pages(by, gap, best):
    K = np.array([[0, 4096], [-1, 4096], [gap, 4096], [0, 4096]], np.float32)
    cache, Q = Pages(1, 1, by).cache(d=2, c=4, dtype=np.float32), np.ones((1, 2), np.float32)
    cache.extend(K, np.eye(4))
    indices = Pages(1, 1, by).support(Q, K, Mask.full(1, 4), None).matrix.indices
    assert [*indices, cache.attend(Q[0]).argmax()] == [best, best]
