"""Prices: formulas by hand, bytes against what is stored, and how they add and grow."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from small import SIZED

from approx import METHODS, Price, parse

N, L, D, C = 6, 10, 4, 3
SHAPE = {"n": N, "l": L, "d": D, "c": C}
KEYS, BOTH = L / N, (N + L) / N  # keys per query, queries and keys per query


def price(spec):
    return parse(spec).price(**SHAPE)


# By hand, from the definitions in approx.method.prices: a state of m features is m·(c + 1) numbers,
# for as many multiply-adds of a query and m·c of a key; a frequency is d; an exact key is d + c.
# What is done for a key is paid by l/n queries. tests/approx/method/test_counted_prices.py counts
# all of it.


@pytest.mark.parametrize(
    ("spec", "reads", "multiply_adds"),
    [
        ("positive(m=5)", 5 * 4 + 5 * 4, 40 + (5 * 3 + 5 * 4) * KEYS),
        ("trigonometric(m=6)", 6 * 4 + 3 * 4, 36 + (6 * 3 + 3 * 4) * KEYS),  # two a frequency
        ("elu", 4 * 4, 4 * 4 + 4 * 3 * KEYS),  # d features, each a function of one coordinate
        ("uniform", 4, 0),  # sums
        ("top_k(k=2)", 2 * 7, 2 * 7),
        ("sliding_window(width=3)", 3 * 7, (2 + 5 * 3) / 6 * 7),  # the first row has two keys
        ("truncated_svd(rank=2)", 2 * 4, 2 * 4 + 2 * 3 * KEYS),
        # a round reads a direction of width d + 2 and the projections of all keys
        ("smyrf(size=2, rounds=3)", 6 * 7 + 3 * (6 + 10), 6 * 7 + 3 * 6 * BOTH),
        # through 5 monomials; from the logits l·(d + c) and degree + 1 coefficients
        ("taylor(degree=1)", 5 * 4, 5 * 4 + 5 * 3 * KEYS),
        ("taylor(degree=9)", L * (D + C) + 10, L * (D + C + 9)),
        # two numbers of a key and its value, and a map of 2·d. Gram matrices; two decompositions,
        # their product and its own, and the maps
        ("logit_svd(rank=2)", 10 * 5 + 8, 10 * 5 + (8 + 16) * BOTH + (4 * 64 + 4 * 16) / 6),
        ("channels(r=2)", 10 * (2 + 3), 10 * (2 + 3)),
        ("quantised(bits=2)", 10 * 7 + 20, 10 * 7),  # two scales for each of ten keys
        ("projected_top_k(k=2, r=1)", 2 * 7 + 10 + 4, 14 + 10 + 4 + (4 + 16) * KEYS + 64 / 6),
        ("projected_top_k(k=2, r=3, by='channels')", 2 * 7 + 30, 2 * 7 + 30),
        # combined keys and values are read like exact ones; l·rank·(d + c) to combine them
        ("linformer(rank=2, combinations='gaussian')", 2 * 7, 2 * 7 + 2 * 7 * KEYS),
        ("linformer(rank=2)", 2 * 7, 2 * 7),
        ("product_sketch(m=5, degree=2)", 5 * 4 + 50, 5 * 4 + 50 + (5 * 3 + 50) * KEYS),
        # the inverse is applied to the keys; landmarks' kernels and their decomposition
        ("nystrom(rank=2)", 8 + 8, 8 + 8 + (6 + 8 + 4) * KEYS + (16 + 8) / 6),
        # logits of 2 keys and their state; for each key 2 distances and twice 2·2
        ("coreset(rank=2, tau=1.0)", 8 + 8, 8 + 8 + 6 * KEYS + 2 * (4 + 4) * KEYS),
        # nine times, with ten rows of logits of 2 keys and their weights; and ten of 10 logits
        ("coreset(rank=2)", 16, 16 + 6 * KEYS + (9 * (160 + 20 * 14) + 400) / 6),
        # two keys as they are; kernels of four buckets of 2 and of one of 4
        ("coreset(rank=2, pivots='thinning', weights='equal')", 14, 14 + 4 * (4 * 4 + 16) / 6),
        ("coreset(rank=2, tau=1.0, block=2)", 20, 20 + (6 + 12) * KEYS),
    ],
)
def test_reads_and_multiply_adds_by_hand(spec, reads, multiply_adds):
    found = price(spec)
    assert found.reads == reads
    assert math.isclose(found.multiply_adds, multiply_adds, rel_tol=1e-15)


@pytest.mark.parametrize("spec", ["random_maclaurin(m=5, law='poisson')", "godec(budget=4)"])
def test_what_follows_from_the_inputs_is_not_known_before(spec):
    assert price(spec).reads is None
    assert price(spec).multiply_adds is None
    assert price(spec).stored > 0


@pytest.mark.parametrize(
    "spec",
    ["positive(m=5)", "hyperbolic(m=6)", "trigonometric(m=6)", "nystrom(rank=3)", "elu", "relu",
     "top_k(k=2)", "random(k=4)", "scatterbrain(positive(m=5), top_k(k=2))"],
)  # fmt: skip
def test_bytes_are_those_that_are_stored(spec):
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((N, D)), rng.standard_normal((L, D))
    estimate = parse(spec).approximate(Q, K, rng=0)
    factors, correction = estimate.low.prepare(), estimate.correction
    nbytes = factors.nbytes + (0 if correction is None else correction.nbytes)
    extra = 0 if correction is None else 4  # indptr has n + 1 numbers, n are counted
    extra += 8 * N if estimate.rank == 0 else 0  # a low part without columns keeps its scales
    assert math.isclose(nbytes - extra, N * price(spec).bytes, rel_tol=1e-15)


def test_prices_add_and_what_is_unknown_stays_so():
    one = Price(1.0, 2.0, 3.0, 4.0)
    assert one + one == Price(2.0, 4.0, 6.0, 8.0)
    assert one + Price(1.0, None, 0.0, 0.0) == Price(2.0, None, 3.0, 4.0)


def test_a_method_made_of_methods_costs_what_they_do():
    both = price("scatterbrain(low_rank=positive(m=5), sparse=top_k(k=2))")
    taken_off = Price(0.0, 0.0, 2 * 5.0, 0.0)  # the products of features where keys are exact
    assert both == price("positive(m=5)") + price("top_k(k=2)") + taken_off
    assert price("true_denominator(top_k(k=2))") == price("top_k(k=2)")
    assert price("scatterbrain(low_rank=zero(), sparse=top_k(k=2))") == price("top_k(k=2)")
    held = price("sampled(k=2, low_rank=one())").reads
    assert held == price("one").reads + price("sampled(k=2)").reads
    for queries, mean in ((True, D), (False, 0)):
        spec = f"centered(positive(m=5), queries={queries})"
        assert price(spec).reads - price("positive(m=5)").reads == mean


def test_a_baseline_fits_any_budget_by_itself():
    for name in ("zero", "one", "constant", "uniform"):
        for currency in ("stored", "reads", "multiply_adds", "bytes"):
            assert parse(name).within(0.01, currency=currency, **SHAPE) == parse(name)
    # in another method it counts: c + 1 = 4 numbers are left for a key of 7
    assert parse("sampled(low_rank=one())").within(10.9, currency="reads", **SHAPE) is None
    assert parse("sampled(low_rank=one())").within(11, currency="reads", **SHAPE).k == 1


@pytest.mark.parametrize("name", SIZED)
def test_a_price_grows_with_the_size_in_every_currency(name):
    method = METHODS[name]()
    size = method.sized_by
    sizes = [size.at(steps) for steps in range(1, 5) if size.at(steps) >= method.fewest(D)]
    prices = [method.resized(count).price(**SHAPE) for count in sizes]
    for less, more in itertools.pairwise(prices):
        for a, b in zip(dataclasses.astuple(less), dataclasses.astuple(more)):
            assert (a is None and b is None) or a <= b or name == "reformer"  # more buckets, first
        assert less.stored <= more.stored


def test_the_width_of_values_counts_where_they_are_read():
    method = parse("positive(m=5)")
    narrow, wide = (method.price(n=N, l=L, d=D, c=c) for c in (1, 9))
    assert wide.reads - narrow.reads == 5 * 8
    assert wide.stored == narrow.stored
    assert method.price(n=N, l=L, d=D) == method.price(n=N, l=L, d=D, c=D)
