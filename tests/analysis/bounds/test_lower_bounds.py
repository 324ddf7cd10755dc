"""Lower bounds of total variation: exhaustive search, every method, real heads."""

import functools
import itertools
import math

import numpy as np
import pytest
from each import each
from hypothesis import given, strategies as st
from small import NAMES, few, made, problems, small, under

from analysis import inputs
from analysis.bounds import lower_bounds, support_bounds
from analysis.costs.budget import match
from analysis.costs.candidates import methods
from analysis.errors.metrics import compare
from analysis.ranks import attention_weights as weighing
from analysis.ranks.attention_weights import Weights
from approx import Mask, parse
from approx.estimate import exact
from approx.hierarchical.partition import partition
from approx.method.tags import ORACLE

MASKS = {
    "full": None,
    "causal": "causal",
    "window": Mask.window(4, 5, 3),
    "intervals": Mask([1, 0, 2, 0], [4, 1, 5, 3], 5),
}


def head(mask, n=4, l=5, seed=0, spread=2.0):
    x = np.random.default_rng(seed).standard_normal((n + l, 3))
    return Weights(spread * x[:n], x[n:], mask)


def lost(P, support):
    """Return the attention off a support, on average over rows."""
    return 1.0 - np.where(support, P, 0.0).sum() / len(P)


def least(P, supports):
    return min(lost(P, support) for support in supports)


def sets(count, k):
    """Yield every set of at most k of so many things, as an array of bool."""
    for size in range(min(k, count) + 1):
        for chosen in itertools.combinations(range(count), size):
            here = np.zeros(count, bool)
            here[list(chosen)] = True
            yield here


def windows(mask, r):
    """Return the window of r keys of each query."""
    n, l = mask.shape
    near = np.zeros((n, l), bool)
    for i in range(n):
        if mask.looks_back:
            low, high = mask.stop[i] - r, mask.stop[i]
        else:
            low, high = mask.positions[i] - r // 2, mask.positions[i] + (r + 1) // 2
        near[i, max(low, mask.first[i], 0) : min(high, mask.stop[i])] = True
    return near


@each("name", MASKS)
def test_supports_are_those_of_exhaustive_search(name):
    w = head(MASKS[name])
    P, mask, (n, l) = w.matrix, w.mask, w.mask.shape
    seen = mask.visible()
    np.testing.assert_allclose(P, exact.softmax(w.Q, w.K, mask))
    for count in (0, 2, n * l):
        every = (s.reshape(n, l) for s in sets(n * l, count)) if count <= 2 else [P > -1]
        assert support_bounds.entries(w, count) == pytest.approx(least(P, every), abs=1e-12)
    for k in (0, 1, 2, 3):
        rows = sum(min(1 - P[i, s].sum() for s in sets(l, k)) for i in range(n)) / n
        assert support_bounds.keys(w, k) == pytest.approx(rows, abs=1e-12)
        beside = [s | windows(mask, r) for r in range(k + 1) for s in sets(l, k - r)]
        assert support_bounds.columns(w, k) == pytest.approx(least(P, beside), abs=1e-12)
        distances = mask.positions[:, None] - np.arange(l)
        kinds = [*(seen & (np.arange(l) == j) for j in range(l))]
        kinds += [seen & (distances == t) for t in range(1 - l, l)]
        pairs = (functools.reduce(np.logical_or, some, P < 0)
                 for some in itertools.combinations(kinds, min(k, 2)))  # fmt: skip
        assert support_bounds.lines(w, min(k, 2)) <= least(P, pairs)
    whole = [np.arange(l) // 2 == page for page in range(3)]
    rows = sum(min(1 - P[i, a | b].sum() for a in whole for b in whole) for i in range(n)) / n
    assert support_bounds.pages(w, 2, 2) == pytest.approx(rows, abs=1e-12)


def best_eviction(P, end, k):
    """Return the least loss of a cache of k keys, from every way to evict, row by row."""

    @functools.cache
    def held(i, cache):
        if i == len(P):
            return 0.0
        came = cache | set(range(end[i - 1] if i else 0, end[i]))
        stay = [frozenset(s) for size in range(k + 1) for s in itertools.combinations(came, size)]
        return max(sum(P[i, j] for j in s) + held(i + 1, s) for s in stay)

    return 1.0 - held(0, frozenset()) / len(P)


@each("name", MASKS)
def test_no_eviction_loses_less_and_the_best_prices_say_how_much(name):
    w = head(MASKS[name], seed=3, spread=4.0)
    ends = w.mask.stop if w.mask.looks_back else np.minimum(w.mask.positions + 1, w.mask.stop)
    order = np.argsort(ends, kind="stable")
    for k in (1, 2, 3):
        found = best_eviction(w.matrix[order], tuple(ends[order]), k)
        bound = support_bounds.evicting(w, k)
        assert support_bounds.keys(w, k) - 1e-12 <= bound <= found
        assert bound == pytest.approx(found, rel=0.02, abs=1e-3)


def assert_above_bound(name, Q, K, seed=0):
    method = small(name, *Q.shape[:1], *K.shape)
    for estimate in under(name, Q, K, seed):
        bound = lower_bounds.bound(method, estimate, Weights(Q, K, estimate.mask))
        found = compare(estimate, Q, K)["attention_tv"]
        assert not bound > found, f"{method} under {estimate.mask}: {bound} > {found}"


@each("name", NAMES)
def test_no_method_is_below_its_bound(name):
    rng = np.random.default_rng(len(name))
    assert_above_bound(name, 3 * rng.standard_normal((9, 3)), rng.standard_normal((12, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@few
@given(problem=problems(least=2, dtypes=[np.float64]), spread=st.sampled_from([0.1, 1.0, 20.0]))
def test_no_method_is_below_its_bound_on_any_points(name, problem, spread):
    Q, K, _, seed = problem
    assert_above_bound(name, spread * Q, K, seed)


@pytest.fixture(scope="module")
def heads():
    masked = list(inputs.sample("smollm2").first(64).heads())
    return [x.at_temperature(1.0) for x in [*inputs.sample().heads(), *masked]]


@each("place", [0, 3, 5])
def test_on_real_heads_the_bounds_are_below_what_is_found_and_some_are_attained(place, heads):
    x = heads[place]
    w = Weights.from_head(x)
    for method in match(methods(x.mask), 8.0, x).fitting:
        estimate = x.approximate(method, rng=0)
        bound = lower_bounds.bound(method, estimate, w)
        found = x.compare(estimate)["attention_tv"]
        known = estimate.rank == 0 or not (estimate.nnz and method.name != "hierarchical")
        assert math.isnan(bound) != known, method
        assert not bound > found, method
        if method.name == "pages" and ORACLE in method.tags:
            assert bound == pytest.approx(found, abs=1e-9)
    few = x.approximate(parse("top_k(k=8)"))
    assert support_bounds.keys(w, 8) == pytest.approx(x.compare(few)["attention_tv"], abs=1e-9)


def test_sets_for_blocks_are_attained_by_the_oracle(heads):
    x = heads[3]
    w = Weights.from_head(x)
    for spec, k, block in (("columns(k=8, block=3)", 8, 3), ("columns(k=5, block=5)", 5, 5)):
        found = x.compare(x.approximate(parse(spec)))["attention_tv"]
        assert support_bounds.blocks(w, k, block) <= found
        assert support_bounds.blocks(w, k, block) == pytest.approx(found, abs=1e-9)


def test_a_recurrence_of_one_state_is_not_below_the_bound():
    """Each of 16 rows moves one weight, 1/16, so that the second block of keys has rank 1."""
    n, P = 64, np.eye(64)
    W, corner = P.copy(), np.eye(16)
    P[48:] = W[48:] = 0
    P[48:, :16], P[48:, 32:48], W[48:, 32:48] = corner / 16, (1 - corner) / 16, 1 / 16
    with np.errstate(divide="ignore"):
        w = Weights(np.maximum(np.log(P), -900), np.eye(n), mask="causal")
    bound = lower_bounds.low_rank(w, 1)
    assert 0.9 / 64 < bound <= 0.5 * np.abs(W - P).sum(axis=1).mean() == 1 / 64


def test_rows_that_do_not_sum_to_1_may_halve_the_loss():
    w = head(None)
    estimate, method = made("true_denominator", w.Q, w.K)
    found = compare(estimate, w.Q, w.K)["attention_tv"]
    assert found == pytest.approx(lost(w.matrix, estimate.to_dense() > 0) / 2)
    assert lower_bounds.bound(method, estimate, w) == pytest.approx(
        support_bounds.entries(w, estimate.nnz) / 2
    )


def test_a_bound_of_the_mean_is_not_that_of_the_root_mean_square():
    # seven rows of the identity are had by rank 7, and the last one is another's: tv is 1 there
    w = Weights(900.0 * np.eye(8), np.eye(8))
    nearest = np.eye(8)
    nearest[7] = nearest[6]
    mean = np.abs(nearest - w.matrix).sum(axis=1).mean() / 2
    rms = np.linalg.norm(nearest - w.matrix) / math.sqrt(2 * 8)
    bound = lower_bounds.low_rank(w, 7)
    assert bound == pytest.approx(1 / (8 * math.sqrt(2)))
    assert bound < mean == 1 / 8 < rms


@each("name", MASKS)
def test_no_matrix_of_the_rank_is_nearer(name):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 3))
    n, l = (20, 20) if name in ("full", "causal") else (4, 5)
    w = Weights(3 * x[:n], x[20 : 20 + l], MASKS[name])
    P, seen = w.matrix, w.mask.visible()
    for m in (1, 2, 3):
        bounds = [lower_bounds.low_rank(w, m, sums_to_one=one) for one in (True, False)]
        assert bounds[0] >= bounds[1] >= bounds[0] / 2 - 1e-12
        u, s, vt = np.linalg.svd(P)
        for noise in (0.0, 0.3, 3.0):
            left = u[:, :m] * s[:m] + noise * rng.standard_normal((n, m)) / n
            W = np.where(seen, left @ vt[:m], 0.0)
            for rows, bound in ((W, bounds[1]), (W / W.sum(axis=1, keepdims=True), bounds[0])):
                # one row may be far off: tv is not at most 1
                assert bound <= np.abs(rows - P).sum(axis=1).mean() / 2
                rows[0] = P[0]


def test_blocks_of_a_hierarchy_that_have_the_rank_are_free():
    w = Weights(900.0 * np.eye(8), np.eye(8)[[4, 5, 6, 7, 0, 1, 2, 3]])
    whole = partition(w.mask, 1, 0)
    assert lower_bounds.levels(w, 4, whole) == 0
    assert lower_bounds.levels(w, 2, whole) == pytest.approx(4 / 8 / 2)


def test_stripes_say_the_same_as_the_matrix(monkeypatch, heads):
    x = heads[3]
    specs = ("top_k(k=4)", "columns(k=4)", "pages(k=16, by='mass')", "vertical_slash(k=4)")
    methods = [parse(spec) for spec in specs]

    def bounds():
        w = Weights.from_head(x)
        return [lower_bounds.bound(m, x.approximate(m), w) for m in methods]

    before, evicted = bounds(), support_bounds.evicting(Weights.from_head(x), 8)
    monkeypatch.setattr(weighing, "MOST_ENTRIES", 1)
    monkeypatch.setattr(exact, "STRIPE", 640)  # ten rows
    np.testing.assert_allclose(bounds(), before, rtol=1e-9)
    first = support_bounds.evicting(Weights.from_head(x), 8)
    assert support_bounds.keys(Weights.from_head(x), 8) - 1e-12 <= first <= evicted
    method = parse("positive(m=4)")
    estimate = x.approximate(method, rng=0)
    assert math.isnan(lower_bounds.bound(method, estimate, Weights.from_head(x)))


def test_large_logits_and_a_row_of_one_key():
    Q = np.array([[1e4], [-1e4], [1e-3]])
    for mask in (None, "causal"):
        w = Weights(Q, np.array([[1.0], [-1.0], [0.5]]), mask)
        found = [support_bounds.entries(w, 2), support_bounds.evicting(w, 1),
                 support_bounds.columns(w, 1),
                 support_bounds.lines(w, 1), lower_bounds.low_rank(w, 1)]  # fmt: skip
        assert all(0 <= bound <= 1 for bound in found)


@pytest.mark.kernel
def test_the_kernel_of_eviction():
    w = Weights([[900.0], [-900.0], [900.0]], [[1.0], [-1.0], [0.0]], mask="causal")
    assert support_bounds.evicting(w, 1) == pytest.approx(1 / 3, abs=1e-3)
