"""Methods at equal budget: stored values per query row, or another currency."""

import dataclasses
import math

import pytest
from each import each
from refusals import refuses
from small import TEMPLATES

from analysis.costs.budget import WORDING, amount_text, cost, match, price_of_keys, stored
from analysis.inputs import gaussian
from approx import METHODS, parse
from approx.baselines import Baseline
from approx.method.prices import CURRENCIES

SHAPE = (24, 5)  # n = l, d


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"lsh"}))  # its price is an expectation
@each("budget", [1.0, 7.9, 16.0, 33.3])
def test_what_is_filled_stores_no_more_than_the_budget(name, budget):
    x = gaussian(*SHAPE, rng=0)
    template = parse(TEMPLATES["scatterbrain"] if name == "scatterbrain" else name)
    fitting, absent = match([template], budget, x)
    assert len(fitting) + len(absent) == 1
    if absent:
        assert absent == [template]  # unfilled, to be named as it was given
        return
    estimate = fitting[0].approximate(x.Q, x.K, rng=0)
    price = fitting[0].price(n=x.n, l=x.l, d=x.d)
    if price is not None:
        slack = 1 + 1e-12  # the price may be a sum of floats
        assert stored(estimate) <= price.stored * slack
        assert price.stored <= budget * slack or isinstance(fitting[0], Baseline)


def test_fewer_queries_than_keys_pay_more_for_factors_and_what_does_not_fit_is_named():
    x = gaussian(8, 5, rng=0)
    longer = dataclasses.replace(x, q=x.q[:2])
    found = match([parse("positive"), parse("top_k")], 32, longer).fitting
    assert [str(m) for m in found] == ["positive(m=6)", "top_k(k=8)"]  # 6·(2 + 8)/2 = 30
    estimate = found[0].approximate(longer.Q, longer.K, rng=0)
    assert stored(estimate) == 30
    specs = (
        "zero",
        "trigonometric",
        "top_k",
        "positive(m=16)",
        "top_k(k=2)",
        "sampled(epsilon=0.5, delta=0.1)",
    )
    given = [parse(spec) for spec in specs]
    expected = [given[0], parse("top_k(3)"), given[4]], given[1::2]
    assert match(given, 3.9, gaussian(*SHAPE, rng=0)) == expected


def test_budgets_of_as_many_keys_buy_as_many_in_every_currency():
    x = gaussian(*SHAPE, rng=0)
    assert tuple(WORDING) == CURRENCIES
    for currency in CURRENCIES:
        paid = price_of_keys(9, x, currency)
        nine, eight = (parse(f"columns(k={k}, by='key_diff')") for k in (9, 8))
        template = parse("columns(by='key_diff')")
        if currency == "multiply_adds":  # also those of the choice
            nine, eight, template = (parse(f"top_k{x}") for x in ("(k=9)", "(k=8)", "()"))
        assert match([template], paid, x, currency).fitting == [nine]
        assert match([template], paid - 1e-9, x, currency).fitting == [eight]
        assert cost(nine, x.shape, currency) == paid
    assert math.isnan(cost(parse("top_k"), x.shape, "stored"))
    assert price_of_keys(30.5, x) == 30.5  # of more keys than there are
    assert amount_text(388.0, "bytes") == "388 bytes held in the cache"
    assert amount_text("9–12", "stored") == "9–12 stored values per query row"
    refuses("currency must be one of stored, reads", amount_text, 1.0, "seconds")
    refuses("currency must be one of stored, reads", price_of_keys, 1.0, x, "seconds")
