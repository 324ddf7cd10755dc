"""Prices: bytes against what is stored, how they add and grow; test_counted_prices.py counts."""

import dataclasses
import itertools

import pytest
from small import SIZED

from approx import METHODS, Price, parse
from approx.method.prices import CURRENCIES

N, L, D, C = 6, 10, 4, 3
SHAPE = {"n": N, "l": L, "d": D, "c": C}


def price(spec):
    return parse(spec).price(**SHAPE)


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
        for currency in CURRENCIES:
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
