"""Supports: where they are, and that the estimate there is exp(q·k)."""

import re

import naive
import numpy as np
import pytest
from hypothesis import given, strategies as st
from small import few, peak, problems

from approx import METHODS, Mask, ResourceLimitError, parse
from approx.estimate import exact, memory
from approx.method.tags import AUTOREGRESSIVE, POSITIONAL, READS_VALUES
from approx.sparse import pages, vertical_slash
from approx.sparse.eviction_scores import SCORES
from approx.sparse.reformer import Reformer
from approx.sparse.smyrf import Smyrf
from approx.sparse.support import SupportMethod
from approx.sparse.top_k import TopK
from approx.supports.hashing import xbox

SUPPORTS = [name for name, method in METHODS.items() if issubclass(method, SupportMethod)]


def filled(name, size):
    if name == "threshold":
        return parse(f"threshold(level={1 / size})")
    if parts := METHODS[name]().parts:  # a support made of one
        return METHODS[name](**{field: filled(x.name, size) for field, x in parts.items()})
    if METHODS[name]().sized_by is None:
        return METHODS[name]()
    if name == "lsh":
        return parse("lsh(hashes=1, rounds=2)")
    if name == "pages":
        return METHODS[name](size, size=min(size, 2))
    return METHODS[name](**{METHODS[name]().sized_by.field: size})


def support(A):
    on = np.zeros(A.shape, bool)
    on[A.sparse.nonzero()] = True
    return on


# Any support


SHORT = [  # every support, and rules and mixtures of others, of five keys or in pages of two
    *(str(filled(name, 5)) for name in SUPPORTS if name not in ("lsh", "pages")),
    *(f"columns(k=5, by='{by}', sinks=2, recent=1)" for by in SCORES),
    *(f"columns(k=5, by='{by}', block=2)" for by in SCORES),
    "lsh(hashes=1)",
    "pages(k=6, size=2, by='mean', current=True)",
    "sink_window(k=5, sinks=3)",
    "guarded(method=columns(k=5, by='h2o'), size=2)",
    "scatterbrain(low_rank=taylor(degree=2), sparse=top_k(k=5))",
    *(f"sampled(k=5, design='{d}')" for d in ("uniform", "systematic", "poisson", "multinomial")),
    "sampled(k=5, epsilon=0.5, delta=0.1)",
    "flash(size=5)",
    "eva(size=2, sparse=chunk(size=5))",
    "nystrom(rank=5, block=1)",
    "coreset(rank=5, tau=1.0, block=1)",
    "coreset(rank=5, pivots='uniform', weights='equal')",
    "projection(rank=5, block=2)",
]
PARTLY = (  # of few keys they need not hold all: hashes, lines, runs and draws with replacement
    "lsh", "reformer", "vertical_slash", "top_p", "threshold", "flash", "eva", "nystrom",
    "coreset(rank=5, tau",
)  # fmt: skip


@pytest.mark.parametrize("spec", SHORT)
@pytest.mark.parametrize("mask", [None, "causal"])
def test_of_fewer_keys_than_k_all_are_read(spec, mask):
    method = parse(spec)
    if mask and method.refusal:
        return
    x = np.random.default_rng(0).uniform(-1, 1, (3, 6, 3))
    for l in range(1, 7):
        Q, K, V = x[:, :l]
        A, price = (
            method.approximate(Q, K, mask=mask, rng=1, V=V),
            method.price(n=l, l=l, d=3, mask=mask),
        )
        by_blocks = spec.startswith(("chunk", "strided", "sampl"))
        around = not mask and POSITIONAL in method.tags and not by_blocks
        if l <= 5 and not around and not spec.startswith(PARTLY) and "multinomial" not in spec:
            # sums of at most 6 positive terms e^{±3}, weights with an error of 20 eps
            want = exact.attention(Q, K, V, mask=mask)
            np.testing.assert_allclose(A.attend(V), want, rtol=0, atol=1e-14, err_msg=str(l))
        if isinstance(method, SupportMethod) and price is not None:  # its bound, or what there is
            assert A.nnz <= price.stored * l <= A.mask.entries, l
        if mask and AUTOREGRESSIVE in method.tags:  # a plan for long prompts answers short ones
            whole = method.approximate(x[0], x[1], mask=mask, rng=1, V=x[2])
            cut = whole.attend(x[2])[:l]
            np.testing.assert_allclose(cut, A.attend(V), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", SUPPORTS)
def test_too_many_entries_are_refused(name):
    x = np.ones((1000, 1))
    memory.set_limit(2**16)
    method, what = filled(name, 500), f"{name}.* would take .* lower .*n or l"
    if name == "lsh":  # no price: said when the pairs of equal vectors are counted
        method = parse("lsh(hashes=1)")
        what = "a support of 1000000 entries would take .* lower n or the keys a query meets"
    with pytest.raises(ResourceLimitError, match=what):
        method.approximate(x, x)


@pytest.mark.parametrize("spec", ["lsh(hashes=1, rounds={})", "smyrf(size=128, rounds={})"])
def test_many_rounds_hold_one_at_a_time(spec):
    Q, K = np.random.default_rng(0).standard_normal((2, 256, 4))
    few, many = (  # by the eighth nearly all pairs are found
        peak(lambda r=rounds: parse(spec.format(r)).approximate(Q, K, rng=0)) for rounds in (8, 64)
    )
    assert many <= 1.5 * few


# Ties

TIED = [
    *(f"columns(k=13, by='{by}', recent=1)" for by in SCORES),
    *(f"columns(k=13, by='{by}', block=3)" for by in SCORES),
    *(f"pages(k=12, size=4, by='{by}', current={c})" for by in pages.SCORES for c in (True, False)),
    *(f"vertical_slash(k=13, by='{by}')" for by in vertical_slash.BY),
    *(f"projection(rank=5, pivots='{by}', block=32)" for by in ("h2o", "qr", "leverage", "greedy")),
    "hierarchical(rank=3, basis='pivots', leaf=16)",
    "key_channels(r=2, window=5, group=8, recent=9)",
    "guarded(sink_window(k=2), tv=0.3, size=4, bits=1, coded=5)",
]


@pytest.mark.parametrize("spec", TIED)
def test_rounding_does_not_break_ties(spec):
    """Eight keys, each eight times: a rotation, and scales that cancel, round differently."""
    rng = np.random.default_rng(3)
    Q, K = (np.tile(x, (8, 1)) for x in rng.uniform(-1, 1, (2, 8, 5)))
    if "key_norm" in spec:
        K /= np.linalg.norm(K, axis=1, keepdims=True)  # all 64 tie
    R = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    R = np.eye(5) if re.search("box|deviation|channels", spec) else R  # of axes
    for mask in ("causal", None):
        if parse(spec).refusal and not mask:
            continue
        want, *others = (
            parse(spec).approximate(q, k, mask=mask, V=K).to_dense()
            for q, k in ((Q, K), (Q / 3, 3 * K), (Q @ R, K @ R), (Q * 7 @ R, K / 7 @ R))
        )
        for got in others:  # logits ≤ 5 with rounding errors of some 30 eps; fits amplify them
            np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)
        if mask and (cache := parse(spec)._cache(5, 5, rng, 0)) is not None:
            for i, (q, k) in enumerate(zip(Q, K)):  # a cache breaks them alike
                cache.append(3 * k, k)
                np.testing.assert_allclose(
                    cache.attend(q / 3), want[i] @ K / want[i].sum(), rtol=1e-9
                )


# A threshold


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("l", [3, 10, 50])
def test_weights_that_tie_with_the_level_reach_it(l, dtype):
    """Uniform attention at level 1/l, the level that a budget of l entries gives: all of them."""
    for c in (0.0, 0.1, 1.3):
        x, y = np.full((4, 2), c, dtype), np.full((l, 2), c, dtype)
        method = parse("threshold").within(l, n=4, l=l, d=2)
        assert method.approximate(x, y).nnz == 4 * l


# Balanced clusters


@pytest.mark.parametrize("n", [12, 24, 7])
def test_smyrf_clusters_are_balanced_and_sorted(n):
    """One round cuts both sorted lists alike: the clusters are intervals of the projections."""
    Q, K = np.random.default_rng(0).standard_normal((2, 24, 3))
    Q = Q[:n]
    on = support(Smyrf(size=6).approximate(Q, K, rng=1))
    np.testing.assert_array_equal(on.sum(axis=1), 6)
    clusters = np.unique(on, axis=0)
    np.testing.assert_array_equal(clusters.sum(axis=0), 1)  # a partition of the keys
    omega = np.random.default_rng(1).standard_normal((1, 5))[0]
    q, k = (x @ omega for x in xbox(Q, K))
    rank = np.argsort(np.argsort(q))
    for i in range(n):
        cluster = (rank[i] * 24 // n) // 6
        np.testing.assert_array_equal(
            np.sort(np.argsort(k)[6 * cluster : 6 * cluster + 6]), np.flatnonzero(on[i])
        )


@given(seed=st.integers(0, 99), size=st.integers(1, 12), length=st.floats(0.1, 10))
def test_reformer_by_its_definition(seed, size, length):
    """Shared queries and keys: own chunk and the one before, same bucket, as loops say."""
    Q = np.random.default_rng(seed).standard_normal((12, 3))
    on = support(Reformer(size).approximate(Q, length * Q, rng=seed))
    half = max(1, round(12 / size / 2))
    vertices = np.random.default_rng(seed).standard_normal((1, half, 3))[0]
    np.testing.assert_array_equal(on, naive.reformer(Q, vertices, size))


def test_rounds_are_joined_without_duplicates():
    Q, K = np.random.default_rng(0).standard_normal((2, 40, 4))
    for name in (
        "smyrf(size=8, rounds={})",
        "reformer(size=8, rounds={})",
        "lsh(hashes=1, rounds={})",
    ):
        one, many = (
            np.mean([parse(name.format(r)).approximate(Q, K, rng=s).nnz for s in range(20)])
            for r in (1, 4)
        )
        assert one < many < 4 * one
        A = parse(name.format(4)).approximate(Q, K, rng=0)
        assert A.sparse.has_canonical_format
        assert A.nnz == np.count_nonzero(A.to_dense())


# Stripes


@pytest.mark.parametrize(
    "spec",
    ["top_k(k=5)", "top_k(k=5, per='head')", "top_p(p=0.7)", "vertical_slash(8, 0.3)",
     "vertical_slash(8, 0.3, 'mass')", "pages(k=8, size=4)", "pages(k=8, size=4, by='mass')",
     "pages(k=8, size=4, by='mean')"],
)  # fmt: skip
@pytest.mark.parametrize("mask", [None, "causal"])
def test_stripes_find_the_same_keys(spec, mask, monkeypatch):
    Q, K = np.random.default_rng(0).standard_normal((2, 23, 3))
    if "top_k" in spec:
        Q, K = Q.round(), K.round()  # with ties
    whole = parse(spec).approximate(Q, K, mask=mask).to_dense()
    monkeypatch.setattr(exact, "STRIPE", 60)
    np.testing.assert_array_equal(parse(spec).approximate(Q, K, mask=mask).to_dense(), whole)


# The true denominator


@pytest.mark.parametrize("name", SUPPORTS)
@few
@given(problem=problems(dtypes=[np.float64]))
def test_true_denominator_keeps_the_weights_of_exact_attention(name, problem):
    Q, K, V, seed = problem
    sparse = filled(name, (len(K) + 1) // 2)
    A = parse(f"true_denominator({sparse})").approximate(Q, K, rng=seed)
    alone = sparse.approximate(Q, K, rng=seed)
    on = support(alone)
    weights = naive.kernel(Q, K)
    weights /= weights.sum(axis=1, keepdims=True)
    # logits ≤ 4 and sums of 8 terms, each to a rounding
    np.testing.assert_allclose(A.to_dense(), np.where(on, weights, 0), rtol=64 * 2.3e-16, atol=0)
    np.testing.assert_allclose(A.attend(V), np.where(on, weights, 0) @ V, rtol=0, atol=1e-14)
    assert (A.nnz, A.space, alone.space) == (alone.nnz, "attention", "kernel")
    kept = np.where(on, weights, 0).sum(axis=1, keepdims=True)  # the other convention: 1/mass
    np.testing.assert_allclose(kept * alone.attend(V), A.attend(V), rtol=0, atol=1e-14)


def test_how_many_keys_a_row_has_where_it_is_not_known_before_a_run():
    mask = Mask.causal(6, 6)
    assert parse("sliding_window()").held(mask) is None
    assert parse("guarded(method=top_k(k=2), tv=0.1, size=2, bits=1)").held(mask) is None
    assert parse("sliding_window(width=2)").held(mask).tolist() == [1, 2, 2, 2, 2, 2]


def test_a_support_of_ones_own_reads_values_unless_it_says_more():
    own = type("Own", (SupportMethod,), {"name": "own", "pattern": TopK.pattern})
    assert own().tags == {READS_VALUES}
