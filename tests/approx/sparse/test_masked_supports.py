"""Supports under masks: what they choose among what is seen, what it costs, and what they need."""

import itertools
import math

import naive
import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from small import few
from test_supports import filled, support

from analysis.errors import metrics
from approx import Mask, parse
from approx.sparse.random import Random
from approx.sparse.threshold import Threshold
from approx.sparse.top_k import TopK
from approx.testing import assert_moments

some = settings(max_examples=max(1, settings().max_examples // 3))


@st.composite
def masked(draw, most=8, back=None):
    """Draw Q, K, a mask and a seed: any intervals, in order or in none, that look back or not.

    Half of the inputs are integers, so that logits tie.
    """
    n, l = draw(st.integers(1, most)), draw(st.integers(1, most))
    bounds = [sorted(draw(st.tuples(*[st.integers(0, l - 1)] * 2))) for _ in range(n)]
    first, last = np.array(bounds).T
    if draw(st.booleans()):
        first, last = np.sort(first), np.sort(last)
    mask = Mask(first, last + 1, l, draw(st.booleans()) if back is None else back)
    seed = draw(st.integers(0, 2**32 - 1))
    if seed % 6 == 0 and not mask.looks_back:
        mask = Mask.full(n, l)
    Q, K = np.split(np.random.default_rng(seed).uniform(-1.5, 1.5, (n + l, 2)), [n])
    if draw(st.booleans()):
        Q, K = np.round(Q), np.round(K)
    return Q, K, mask, seed


def attention(Q, K, mask):
    """Return exact attention under a mask, (n, l)."""
    return naive.attention(Q, K, np.eye(len(K)), mask)


def choices(mask, k):
    """Yield, for each row, every support of min(k, seen) keys that it sees, (supports, l) bool."""
    for first, stop in zip(mask.first, mask.stop):
        sets = list(itertools.combinations(range(first, stop), min(k, stop - first)))
        on = np.zeros((len(sets), mask.l), bool)
        np.put_along_axis(on, np.array(sets), True, axis=1)
        yield on


# Oracles


@few
@given(problem=masked(most=12), data=st.data())
def test_no_support_of_its_size_is_nearer_than_top_k(problem, data):
    """Both errors are sums over rows, so all supports of a row after another are all supports."""
    Q, K, mask, _ = problem
    k = data.draw(st.integers(1, min(6, mask.l)))
    A = TopK(k).approximate(Q, K, mask=mask)
    np.testing.assert_array_equal(support(A).sum(axis=1), np.minimum(k, mask.counts))
    if (np.round(Q) == Q).all() and mask.key != "full":  # logits are exact in float32, too
        narrow = TopK(k).approximate(Q.astype(np.float32), K.astype(np.float32), mask=mask)
        np.testing.assert_array_equal(support(narrow), support(A))
    exp, p = naive.kernel(Q, K) * mask.visible(), attention(Q, K, mask)
    tv, squares = np.zeros(mask.n), np.zeros(mask.n)
    for i, on in enumerate(choices(mask, k)):
        kept = np.where(on, exp[i], 0)
        rows = kept / kept.sum(axis=1, keepdims=True)
        tv[i] = (np.abs(rows - p[i]).sum(axis=1) / 2).min()
        squares[i] = ((kept - exp[i]) ** 2).sum(axis=1).min()
    found = metrics.compare(A, Q, K)
    error = math.sqrt(squares.sum() / (exp**2).sum())
    # sums of at most 144 terms below 1, of weights with 20 roundings; √ of a sum at its rounding
    np.testing.assert_allclose(found["attention_tv"], tv.mean(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(found["kernel_relative_frobenius"], error, rtol=1e-12, atol=1e-7)
    # the proof: 1 − mass; half of that if the weights need not sum to 1
    mass = np.where(support(A), p, 0).sum(axis=1)
    np.testing.assert_allclose(tv, 1 - mass, rtol=0, atol=1e-14)
    whole = parse(f"true_denominator(top_k(k={k}))").approximate(Q, K, mask=mask).to_dense()
    np.testing.assert_allclose(
        np.abs(whole - p).sum(axis=1) / 2, (1 - mass) / 2, rtol=0, atol=1e-14
    )


@some
@given(problem=masked(most=4), level=st.floats(0.02, 1))
def test_no_support_with_as_many_entries_in_all_holds_more_than_a_threshold(problem, level):
    Q, K, mask, _ = problem
    A = Threshold(level).approximate(Q, K, mask=mask)
    weights = attention(Q, K, mask)[mask.visible()]
    if math.comb(len(weights), A.nnz) > 2000:
        return
    sets = itertools.combinations(weights, A.nnz)
    best = max((sum(s) for s in sets), default=0.0)
    kept = attention(Q, K, mask)[support(A)].sum()
    # a weight that ties with the level is kept; sums of at most 16 terms
    np.testing.assert_allclose(kept, best, rtol=0, atol=1e-14)


# Slow twins


def twin(name, size, sinks, Q, K, mask):
    """Return the support of a method under a mask, by loops."""
    n, l = mask.shape
    on = np.zeros((n, l), bool)
    p = attention(Q, K, mask)
    for i in range(n):
        seen = range(mask.first[i], mask.stop[i])
        back = mask.looks_back
        place = seen[-1] if back else i * l // n
        half = size // 2
        if name == "top_k":
            kept = sorted(seen, key=lambda j, i=i: (-float(Q[i] @ K[j]), j))[:size]
        elif name == "threshold":
            kept = [j for j in seen if p[i, j] >= 1 / size]
        elif name == "chunk":
            kept = [j for j in seen if j // size == place // size]
        elif name == "strided":
            stride = math.ceil(len(seen) / size)
            kept = [j for j in seen if (j - place) % stride == 0]
        elif name == "exact":
            kept = seen
        elif name == "sliding_window":
            kept = seen[-size:] if back else range(place - half, place + size - half)
        else:
            assert name == "sink_window"
            width, half = size - sinks, (size - sinks) // 2
            near = seen[-width:] if back else range(place - half, place + width - half)
            kept = {*seen[:sinks], *(near if width else ())}
        on[i, [j for j in kept if j in seen]] = True
    return on


@pytest.mark.parametrize(
    "name",
    ["top_k", "threshold", "chunk", "strided", "exact", "sliding_window", "sink_window"],
)
@some
@given(problem=masked(), data=st.data())
def test_by_definition(name, problem, data):
    Q, K, mask, _ = problem
    assume(name != "top_k" or mask.key != "full")  # where any of equal logits may be taken
    size = data.draw(st.integers(1, mask.l))
    sinks = data.draw(st.integers(1, size))
    sunk = parse(f"sink_window(k={size}, sinks={sinks})")
    A = (sunk if name == "sink_window" else filled(name, size)).approximate(Q, K, mask=mask)
    assert A.sparse.has_canonical_format
    want = twin(name, size, sinks, Q, K, mask)
    if name == "threshold":  # weights within rounding of the level count as reaching it
        close = np.abs(attention(Q, K, mask) * size - 1) < 1e-12
        want = np.where(close & mask.visible(), support(A), want)
    np.testing.assert_array_equal(support(A), want)


def test_a_window_has_keys_beside_its_sinks():
    template = parse("sink_window(sinks=3)")
    assert template.within(2.9, n=9, l=9, d=2) is None
    assert template.within(3, n=9, l=9, d=2) == parse("sink_window(k=3, sinks=3)")


@pytest.mark.parametrize("cut", ["list", "bucket"])
@some
@given(seed=st.integers(0, 99), size=st.integers(1, 6))
def test_reformer_by_its_definition_under_a_causal_mask(cut, seed, size):
    Q = np.random.default_rng(seed).standard_normal((12, 3))
    method = parse(f"reformer(size={size}, buckets=4, cut={cut!r})")
    on = support(method.approximate(Q, 2 * Q, mask="causal", rng=seed))
    vertices = np.random.default_rng(seed).standard_normal((1, 2, 3))[0]
    if cut == "list":
        want = naive.reformer(Q, vertices, size)
    else:
        bucket = [int(np.argmax([*(vertices @ x), *(-vertices @ x)])) for x in Q]
        rank = [bucket[:i].count(b) for i, b in enumerate(bucket)]
        want = np.array([
            [bucket[i] == bucket[j] and rank[i] // size - rank[j] // size in (0, 1)
             for j in range(12)] for i in range(12)
        ])  # fmt: skip
    np.testing.assert_array_equal(on, np.tril(want))


# Draws


@pytest.mark.kernel
def test_random_keys_are_drawn_among_what_is_seen():
    """Every seen key of every row, and every pair of a row's, by z-scores of variance p(1 − p)."""
    mask, draws = Mask([0, 2, 1, 3], [7, 5, 2, 6], 7), 500
    rng, x, y = np.random.default_rng(0), np.ones((4, 1)), np.ones((7, 1))
    for k in (1, 2, 4):
        found = [support(Random(k).approximate(x, y, mask=mask, rng=rng)) for _ in range(draws)]
        for on in found:
            np.testing.assert_array_equal(on.sum(axis=1), np.minimum(k, mask.counts))
            assert not on[~mask.visible()].any()
        p = np.minimum(1.0, k / mask.counts)[:, None] * mask.visible()
        np.testing.assert_array_equal(Random(k).probability(x, y, mask=mask), p)
        both = np.einsum("tij,til->ijl", found, found, dtype=float) / draws
        for i, seen in enumerate(mask.counts):
            if seen <= k:
                continue
            pair = k * (k - 1) / (seen * (seen - 1))
            want = np.where(np.eye(7), p[i], pair)
            cells = np.ix_(mask.visible()[i], mask.visible()[i])
            if pair:
                z = (both[i] - want)[cells] / np.sqrt((want * (1 - want))[cells] / draws)
                assert np.abs(z).max() <= 5
            z = (np.diag(both[i]) - p[i])[mask.visible()[i]]
            assert np.abs(z).max() <= 5 * math.sqrt(k / seen * (1 - k / seen) / draws)


# What a row needs


@pytest.mark.parametrize("name", ["top_k", "top_p", "threshold", "lsh", "random"])
@few
@given(seed=st.integers(0, 999), i=st.integers(1, 3))
def test_ties_are_broken_by_what_a_query_sees(name, seed, i):
    """Integers, whose logits often tie exactly: later keys are other ones, or are cut off."""
    method = filled(name, 2)
    Q, K = np.split(np.random.default_rng(seed).integers(-1, 2, (14, 3)).astype(float), [5])
    mask = Mask.causal(5, 9)
    whole, stop = method.approximate(Q, K, mask=mask, rng=seed).to_dense()[i], mask.stop[i]
    other = np.concatenate([K[:stop], K[: 9 - stop]])
    cut = Mask(mask.first[: i + 1], mask.stop[: i + 1], stop)
    for q, k, sees in ((Q, other, mask), (Q[: i + 1], K[:stop], cut)):
        row = method.approximate(q, k, mask=sees, rng=seed).to_dense()[i]
        np.testing.assert_array_equal(row, whole[: len(row)])


# Columns


@pytest.mark.parametrize("recent", [0, 1])
@some
@given(problem=masked(most=5), data=st.data())
def test_no_other_columns_hold_more_attention(recent, problem, data):
    Q, K, mask, _ = problem
    n, l = mask.shape
    k = data.draw(st.integers(max(recent, 1), l))
    A = parse(f"columns(k={k}, recent={recent})").approximate(Q, K, mask=mask)
    window = np.zeros((n, l), bool)
    if recent:
        window = support(parse("sliding_window(width=1)").approximate(Q, K, mask=mask))
    p = attention(Q, K, mask)
    held = []
    for chosen in itertools.combinations(range(l), k - recent):
        on = window.copy()
        on[:, list(chosen)] = True
        held.append(p[on].sum())
    assert p[support(A)].sum() >= max(held) - 1e-13 * n  # sums of up to 25 weights
    assert np.diff(A.sparse.indptr).max(initial=0) <= k
    on = support(A) & ~window
    assert len(np.flatnonzero(on.any(axis=0))) <= k - recent


# In Scatterbrain, and moments


@pytest.mark.parametrize("mask", [None, Mask([0, 0, 0, 2], [1, 3, 5, 5], 5)], ids=str)
@pytest.mark.parametrize(
    "spec",
    [
        "random(k=1)",
        "lsh(hashes=2, rounds=2)",
        "scatterbrain(low_rank=positive(m=8), sparse=lsh(hashes=2))",
        "scatterbrain(low_rank=positive(m=8), sparse=random(k=2))",
        "scatterbrain(low_rank=taylor(degree=1), sparse=random(k=1))",
        "scatterbrain(low_rank=regularized(m=8, projection='regularized'), sparse=lsh(hashes=1))",
    ],
)
def test_moments_by_monte_carlo(spec, mask):
    """Of supports and of what stands on them, |q + k| ≤ 1; nothing where a key is not seen."""
    Q, K = np.split(np.random.default_rng(5).uniform(-0.25, 0.25, (9, 4)), [4])
    K = K[:4] if mask is None and spec.startswith("lsh") else K  # the last collides in few draws
    method = parse(spec)
    assert_moments(method, Q, K, mask=mask, draws=700 if "lsh" in spec else 400)
    if mask is not None:
        bias, log_variance = method.moments(Q, K, mask=mask)
        assert not bias[~mask.visible()].any()
        assert np.isneginf(log_variance[~mask.visible()]).all()
        # a row that sees one key has it, whereas among all it is drawn
        assert np.isneginf(log_variance[0, 0]) or "lsh" in spec


def test_covariance_under_a_mask_is_that_off_the_support():
    Q, K = np.random.default_rng(0).uniform(-0.5, 0.5, (2, 6, 3))
    mask = Mask.window(6, 6, 4)
    method = parse("scatterbrain(positive(m=4), sliding_window(width=2))")
    found = method.covariance(Q, K, row=4, mask=mask)
    want = parse("positive(m=4)").covariance(Q[4], K)
    off = np.isin(np.arange(6), [1, 2])  # query 4 sees 1, …, 4, and its window is 3, 4
    np.testing.assert_allclose(found[np.ix_(off, off)], want[np.ix_(off, off)], rtol=1e-12)
    assert not found[~off].any()
    assert not found[:, ~off].any()


@pytest.mark.parametrize("low", ["positive()", "zero()"])
@pytest.mark.parametrize(("n", "l"), [(12, 12), (6, 20), (1, 9)])
def test_half_of_a_budget_under_a_mask_goes_to_entries(low, n, l):
    mask, d = Mask.causal(n, l), 3
    for budget in (5, 8, 13):
        half = budget / 2 if low == "positive()" else budget  # a baseline may cost nothing
        alone = TopK().within(half, n=n, l=l, d=d, mask=mask)
        method = parse(f"scatterbrain({low}, top_k())").within(budget, n=n, l=l, d=d, mask=mask)
        if method is None:
            assert low == "positive()"  # no feature fits a half
            continue
        assert method.sparse == alone
        Q, K = np.random.default_rng(0).uniform(-1, 1, (2, 20, d))
        A = method.approximate(Q[:n], K[:l], mask=mask, rng=0)
        assert A.parameters / n <= budget * (1 + 1e-12)
