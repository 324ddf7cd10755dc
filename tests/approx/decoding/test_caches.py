"""Caches, token by token: the rows of prefill, what they read, and what they refuse."""

import functools
import math
import re

import numpy as np
import pytest
from each import each
from small import NAMES, small

from analysis import inputs
from approx import METHODS, Mask, parse
from approx.decoding.cache import Cache, Rows, storage
from approx.decoding.keys import AllKeys, ChosenKeys, KeptChannels, KeptKeys
from approx.decoding.sums import RunningSums
from approx.estimate.low import beside_ones
from approx.hierarchical.hierarchical import States
from approx.method import generator
from approx.method.tags import AUTOREGRESSIVE
from approx.projections import Fixed
from approx.random_features.positive import Positive

EPS, SEED = float(np.finfo(float).eps), 7
KEPT = (
    "exact()",
    "sliding_window(width=32)",
    "sink_window(k=32)",
    "sink_window(k=4, sinks=4)",
    "columns(k=32, by='h2o', recent=16)",
    "columns(k=33, by='h2o', recent=8, block=5, sinks=1)",
    "columns(k=32, by='tova')",
    "columns(k=33, by='tova', recent=8, block=5, sinks=1)",
    "columns(k=32, by='output', sinks=1)",
    "columns(k=32, by='h2o', recent=16, prompt=60)",
    "columns(k=16, by='snapkv', recent=4, window=8, prompt=60)",
    "columns(k=16, by='key_norm', prompt=60)",
    "pages(k=64)",
    "pages(k=64, current=True)",
    "pages(k=48, by='mean')",
    "pages(k=24, size=8, by='mean', current=True)",
    "pages(k=24, size=8, by='deviation')",
    "projected_top_k(k=24, r=1, by='channels')",
    "think(r=3)",
    "think(r=2, window=5, group=4, recent=7)",
)
CODED = (
    "quantised(bits=3)",
    "quantised(bits=2, group=16, recent=5, levels='normal', corrected=True)",
    "kivi()",
    "quantised(bits=3, by='channel', group=8, levels='normal')",
    "qjl(m=128)",
    "qjl(m=64, sketch='gaussian', recent=3, corrected=True)",
    "turboquant(bits=3)",
    "turboquant(bits=2, form='product', group=8)",
    "turboquant(bits=1, form='product', corrected=True)",
    "eden(bits=1, rotation='hadamard', corrected=True)",
    "eden(bits=4, group=4, recent=9)",
    "turboquant(bits=2, form='norm', rotation='hadamard')",
    "rounded_values(quantised(bits=3), bits=4)",
    "rounded_values(eden(bits=3, recent=4), bits=2, group=3, levels='normal')",
)
SUMS = (
    "positive(m=32)",
    "performer(m=32)",
    "hyperbolic(m=32)",
    "generalized_exponential(m=32, a=-0.05)",
    "trigonometric(m=32)",
    "generalized_trigonometric(m=32, a=0.02)",
    "rfa(m=32)",
    "elu()",
    "relu()",
)


def cached(name):
    """Return an example for 8 keys of 4 numbers, and whether it has a cache."""
    method = small(name, 8, 8, 4)
    if AUTOREGRESSIVE not in method.tags:
        return method, False
    return method, method._cache(4, 2, generator(0), 0) is not None


CACHED = [name for name in NAMES if cached(name)[1]]


@functools.cache
def heads():
    return list(inputs.sample("smollm2").heads())


def real(index, n):
    """Return Q, K, V of the first n tokens of a head of a language model."""
    x = heads()[index].first(n)
    return x.Q, x.K, x.V


def extreme(n=48, d=6):
    """Return Q, K, V with logits of ±10⁴ among others in between."""
    Q, K, V = np.random.default_rng(2).standard_normal((3, n, d))
    Q[::3], K[::5] = -K[::3], Q[::5]
    Q, K = (100 * x / np.linalg.norm(x, axis=1, keepdims=True) for x in (Q, K))
    assert (Q @ K.T).min() < -9999
    assert (Q @ K.T).max() > 9999
    return Q, K, V


def errors(method, Q, K, V, sink=-math.inf):
    """Return by how many times their rounding the answers of a cache are not rows of prefill.

    A logit, or the exponent of a feature, is off by d products of at most |x| |y| ≤ E in either
    computation; e^E by as much relative to itself, and a sum of r·n terms by one eps for each. The
    answer divides the sums by their last one, so their errors are relative to that one.
    """
    (n, d), c = Q.shape, V.shape[1]
    A = method.approximate(Q, K, mask="causal", rng=SEED, sink=sink, V=V)
    y, log = A.scaled_matmat(beside_ones(V))
    y[:, -1] += np.exp(sink - log)
    size = sizes(A, log)
    prefill = A.attend(V)
    cache = method.cache(d=d, c=c, rng=SEED)
    most = max(float(np.square(x).sum(axis=1).max()) for x in (Q, K))
    E = most + (math.sqrt(d) + 5) * math.sqrt(most)  # |ω| is below √d + 5
    unit = EPS * (d * E + A.rank + n + 64)
    found = []
    for i in range(n):
        cache.append(K[i], V[i])
        total = y[i, -1] if A.space == "kernel" else 1.0
        scale = unit * size[i] / total * np.abs(V[: i + 1]).max() if total > 0 else math.inf
        gap = np.abs(cache.attend(Q[i], sink) - prefill[i]).max()
        found.append(gap / scale if gap else 0.0)
    return max(found)


def sizes(A, log):
    """Return the sum of the sizes of all terms of each row, at a scale of the rows."""
    factors = A.low.low.keyed() if A.rank and hasattr(A.low, "low") else None
    if factors is None:
        return np.abs(A.block(slice(None), shift=log)).sum(axis=1)
    left, right, row, column = factors.left, factors.right, factors.row_logs, factors.column_logs
    size = np.abs(left) @ np.abs(right).T
    with np.errstate(over="ignore", invalid="ignore"):
        size *= np.exp(row[:, None] + (0 if column is None else column) - log[:, None])
    return np.where(A.mask.visible(), size, 0.0).sum(axis=1)


@each("name, index", [(s, j % 4) for j, s in enumerate((*KEPT, *SUMS, *CODED, *CACHED))])
def test_answers_are_the_rows_of_prefill(name, index):
    Q, K, V = real(index, 72)
    assert errors(small(name, *Q.shape[:1], *K.shape), Q, K, V) <= 1


@each("spec", [s for s in (*KEPT, *SUMS, *CODED) if parse(s).space == "kernel"])
def test_answers_with_a_sink_are_those_of_prefill(spec):
    Q, K, V = real(1, 40)
    alone = parse(spec).approximate(Q, K, mask="causal", rng=SEED, V=V)
    y, log = alone.scaled_matmat(np.ones((40, 1)))
    sink = float(np.median((log + np.log(np.abs(y[:, 0])))[y[:, 0] > 0]))
    assert errors(parse(spec), Q, K, V, sink) <= 1
    beside = parse(spec).approximate(Q, K, mask="causal", rng=SEED, sink=sink, V=V)
    assert np.abs(alone.attend(V) - beside.attend(V)).max() > 0.01


@each("spec", [s for s in (*KEPT, *SUMS) if "size=8" not in s])
def test_they_are_at_extreme_logits(spec):
    assert errors(parse(spec), *extreme()) <= 1


def test_a_small_feature_keeps_its_digits_where_prefill_has_none():
    m, n, d = 6, 12, 3
    rng = np.random.default_rng(1)
    omega, (Q, K, V) = rng.standard_normal((m, d)), rng.standard_normal((3, n, d))
    Q, K = (1500 * x / np.linalg.norm(x, axis=1, keepdims=True) for x in (Q, K))
    method = Positive(projection=Fixed(omega))
    prefill = method.approximate(Q, K, mask="causal")
    cache = method.cache(d=d, c=d)
    lost = 0
    for i in range(n):
        cache.append(K[i], V[i])
        logs = (Q[i] + K[: i + 1]) @ omega.T  # of key j and feature r, but for what all have
        logs -= (np.square(K[: i + 1]).sum(axis=1) / 2)[:, None]
        weights = np.exp(logs - logs.max()).sum(axis=1)
        found = cache.attend(Q[i])
        # exponents of 10⁶, whose rounding is 10⁶ eps and d of them
        np.testing.assert_allclose(found, weights @ V[: i + 1] / weights.sum(), atol=1e8 * EPS)
        lost += not prefill.attend(V)[i].any()
    assert lost > 1


# What is read and held


class Counted(np.ndarray):
    """An array that counts the numbers of it that a calculation takes."""

    taken = 0

    def __array_ufunc__(self, ufunc, method, *given, **options):
        return getattr(ufunc, method)(*map(self._plain, given), **options)

    def __array_function__(self, function, types, given, options):
        (arrays, *rest) = given
        return function([self._plain(x) for x in arrays], *rest, **options)

    @staticmethod
    def _plain(x):
        if not isinstance(x, Counted):
            return x
        Counted.taken += x.size
        return x.view(np.ndarray)


def counted(cache, q):
    """Return how many stored numbers the answer to a query takes."""
    for x in cache.arrays():
        if isinstance(x, Rows) and len(x):
            x._room = x._room.view(Counted)
    for name, x in vars(cache).items():
        if isinstance(x, np.ndarray):
            setattr(cache, name, x.view(Counted))
    cache._drop = lambda places: None  # what an eviction moves is not read
    Counted.taken = 0
    cache.attend(q)
    return Counted.taken


HELD = (*KEPT, *SUMS, *CODED, "hierarchical(rank=2, leaf=4, basis='mean')",
        "rounded_values(exact(), bits=4)",
        "hierarchical(rank=1, leaf=2, basis='pivots', sinks=2)")  # fmt: skip


def most(spec, n, d=8, c=4, heads=1):
    """Return the price at n tokens, and the most that caches with one mapping read and hold.

    Heads have one cache unless it depends on queries, and caches of all keys share them.
    """
    rng = np.random.default_rng(3)
    Q, K = rng.standard_normal((heads, n, d)), rng.standard_normal((n, d))
    method = parse(spec)
    caches = [method.cache(d=d, c=c, rng=SEED) for _ in range(heads)]
    caches = caches if caches[0].asks else caches[:1]
    read = held = 0
    for i in range(n):
        for cache, q in zip(caches, Q[:, i - 1]):
            if i:
                cache.attend(q)
            cache.append(K[i], K[i, :c])
        if i <= getattr(method, "prompt", 0) < n:
            continue  # the prompt is read exactly
        numbers, code_bytes = storage(caches)
        twice = sum(cache.common for cache in caches[1:])
        read = max(read, sum(cache.reads for cache in caches) - twice)
        held = max(held, 2 * (numbers - twice) + code_bytes)
    price = method.price(n=n, l=n, d=d, c=c, mask="causal", group=heads)
    # the maxima that keep states in range are no part of the price
    scales = caches[0].maps.width if isinstance(caches[0], RunningSums) else 0
    return price, read - scales, held - 2 * scales, caches[0], Q[0, -1]


@each("n", [20, 50, 96])
@each("spec", HELD)
def test_what_is_read_and_held_is_its_price(spec, n):
    if n <= getattr(parse(spec), "prompt", 0):
        return
    price, read, held, cache, q = most(spec, n)
    assert (read, held) == (price.reads, price.bytes)
    # where pages are full; ThinK also moves its last queries
    if n == 96 and not isinstance(cache, (States, KeptChannels)) and not cache.coded():
        assert counted(cache, q) + cache.parameters == cache.reads
    if isinstance(cache, KeptKeys):
        assert len(cache.places) <= cache.limits.k
        assert cache.places.array[-1] == n - 1 or "sinks=4" in spec  # which has no window


# Three heads choose 9 of 8 channels by think(r=3): the price counts no more than there are.
@each("spec", [spec for spec in HELD if spec != "think(r=3)"])
def test_what_a_group_holds_is_its_price(spec):
    heads, n = 3, 120  # three caches of H2O hold at most 99 keys, fewer than there are
    price, read, held, cache, _ = most(spec, n, heads=heads)
    assert held == price.bytes
    if not isinstance(cache, AllKeys) or isinstance(cache, ChosenKeys) or spec == "exact()":
        assert cache.asks or read <= price.reads <= heads * read
        assert not cache.asks or read == price.reads


# What is refused


def test_who_has_a_cache_and_who_says_why_not():
    for name in METHODS:
        method, has_one = cached(name)
        if has_one:
            assert isinstance(method.cache(d=4, c=2, rng=0), Cache)
            continue
        why = "the last row" if AUTOREGRESSIVE in method.tags else "depends on what comes after it"
        with pytest.raises(ValueError, match=re.escape(f"{method} has no cache: ") + f".*{why}"):
            method.cache(d=4, c=2)
    for spec in ("columns(k=4, by='key_norm', block=2)", "pages(k=16, by='mass')"):
        with pytest.raises(ValueError, match="has no cache: decode with the last row"):
            parse(spec).cache(d=2, c=2)
    with pytest.raises(ValueError, match=r"sink_window\(\) is a template: give k"):
        parse("sink_window").cache(d=2, c=2)
    with pytest.raises(ValueError, match="c must be >= 1, got 0"):
        parse("exact").cache(d=2, c=0)


def test_a_query_before_the_first_key_and_other_shapes_are_refused():
    cache = parse("exact").cache(d=2, c=1)
    with pytest.raises(ValueError, match="no key to attend to: append one first"):
        cache.attend([0.0, 0.0])
    with pytest.raises(ValueError, match=r"k must have shape \(2,\), got \(3,\)"):
        cache.append([0.0] * 3, [0.0])
    cache.append([0.0] * 2, [4.0])
    with pytest.raises(ValueError, match=r"q must have shape \(2,\), got \(1,\)"):
        cache.attend([0.0])


WINDOWED = (
    "exact()",
    "sliding_window(width=9)",
    "sink_window(k=9, sinks=4)",
    "columns(k=12, by='h2o', recent=4)",
    "columns(k=30, by='h2o', recent=4, block=3)",
    "columns(k=12, by='tova')",
    "columns(k=19, by='output', recent=2, block=3)",
    "columns(k=12, by='h2o', recent=4, prompt=40)",
    "columns(k=12, by='snapkv', recent=4, window=8, prompt=40)",
    "pages(k=16, size=4)",
    "projected_top_k(k=9, r=4, by='channels')",
    "hierarchical(rank=1, leaf=4, basis='mean', sinks=1)",
    "hierarchical(rank=2, leaf=4, basis='pivots', sinks=2)",
    "quantised(bits=3)",
    "quantised(bits=3, by='channel', group=8)",
    "qjl(m=64)",
    "turboquant(bits=3)",
)


@each("spec", WINDOWED)
def test_answers_under_a_window_are_the_rows_of_prefill(spec):
    n, window = 96, 21
    Q, K, V = real(1, n)
    method = parse(spec)
    mask = Mask.window(n, n, window)
    rows = method.approximate(Q, K, mask=mask, rng=SEED, V=V).attend(V)
    cache = method.cache(d=Q.shape[1], c=V.shape[1], rng=SEED, window=window)
    for q, k, v, row in zip(Q, K, V, rows):
        cache.append(k, v)
        # sums of at most 32 terms, exponents of at most 100: as in `errors`, with room
        np.testing.assert_allclose(cache.attend(q), row, rtol=0, atol=1e-11)
    if isinstance(cache, KeptKeys):
        price = method.price(n=n, l=n, d=Q.shape[1], c=V.shape[1], mask=mask)
        assert cache.reads <= price.reads
        assert 2 * storage([cache])[0] <= price.bytes
    assert storage([cache])[0] <= 64 * sum((Q.shape[1], V.shape[1])) + Q.shape[1] ** 2 + n * 64


def test_a_method_without_a_cache_under_a_window_says_so():
    with pytest.raises(ValueError, match=r"performer|positive.* has no cache under a window"):
        parse("performer(m=4)").cache(d=4, c=2, window=8)
