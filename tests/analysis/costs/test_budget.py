"""Methods at equal budget: stored values per query row, or another currency."""

import pytest
from each import each

from analysis.costs.budget import WORDING, amount_text, match, price_of_keys, stored
from analysis.inputs import gaussian
from approx import METHODS, parse
from approx.baselines import Baseline
from approx.method.prices import CURRENCIES

SHAPE = (24, 5)  # n = l, d


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"lsh"}))  # its price is an expectation
@each("budget", [1.0, 7.9, 16.0, 33.3])
def test_what_is_filled_stores_no_more_than_the_budget(name, budget):
    x = gaussian(*SHAPE, rng=0)
    template = (
        "scatterbrain(low_rank=positive(), sparse=top_k())" if name == "scatterbrain" else name
    )
    fitting, absent = match([parse(template)], budget, x)
    assert len(fitting) + len(absent) == 1
    if absent:
        assert absent == [parse(template)]  # unfilled, to be named as it was given
        return
    estimate = fitting[0].approximate(x.Q, x.K, rng=0)
    price = fitting[0].price(n=x.n, l=x.l, d=x.d)
    if price is not None:
        slack = 1 + 1e-12  # the price may be a sum of floats
        assert stored(estimate) <= price.stored * slack
        assert price.stored <= budget * slack or isinstance(fitting[0], Baseline)


@pytest.mark.parametrize(
    ("template", "budget", "filled"),
    [  # n = l: a column of both factors costs two values a row
        ("positive", 33.9, "positive(m=16)"),
        ("trigonometric", 35.9, "trigonometric(m=16)"),  # in pairs
        ("top_k", 9.5, "top_k(k=9)"),
        ("top_k", 1000, "top_k(k=24)"),  # no more keys than there are
        ("sliding_window", 9.5, "sliding_window(width=10)"),  # rows at the ends have fewer
        ("truncated_svd(space='attention')", 9, "truncated_svd(rank=4, space='attention')"),
        ("taylor", 41.9, "taylor(degree=1)"),  # C(5+1, 1) = 6 and C(5+2, 2) = 21 monomials
        ("taylor", 42, "taylor(degree=2)"),
        ("tensor_power", 42, "tensor_power(n=2)"),
        ("scatterbrain(low_rank=positive(), sparse=top_k())", 32,
         "scatterbrain(low_rank=positive(m=8), sparse=top_k(k=16))"),
        ("scatterbrain(low_rank=positive(m=4), sparse=top_k())", 32,
         "scatterbrain(low_rank=positive(m=4), sparse=top_k(k=24))"),
        ("zero", 0.1, "zero()"),
    ],
)  # fmt: skip
def test_templates_are_filled(template, budget, filled):
    found = match([parse(template)], budget, gaussian(*SHAPE, rng=0))
    assert ([str(m) for m in found.fitting], found.absent) == ([filled], [])


@pytest.mark.parametrize(
    ("spec", "budget"), [("trigonometric", 3.9), ("positive(m=16)", 31), ("top_k", 0.5)]
)
def test_what_does_not_fit_is_named(spec, budget):
    found = match([parse("zero"), parse(spec)], budget, gaussian(*SHAPE, rng=0))
    assert found == ([parse("zero")], [parse(spec)])


def test_fewer_queries_than_keys_pay_more_for_factors():
    rng_inputs = gaussian(8, 5, rng=0)
    longer = type(rng_inputs)("x", rng_inputs.q[:2], rng_inputs.k)
    found = match([parse("positive"), parse("top_k")], 32, longer).fitting
    assert [str(m) for m in found] == ["positive(m=6)", "top_k(k=8)"]  # 6·(2 + 8)/2 = 30
    estimate = found[0].approximate(longer.Q, longer.K, rng=0)
    assert stored(estimate) == 30


def test_budgets_of_as_many_keys_buy_as_many_in_every_currency():
    x = gaussian(*SHAPE, rng=0)
    assert tuple(WORDING) == CURRENCIES
    for currency in CURRENCIES:
        paid = price_of_keys(9, x, currency)
        assert match([parse("top_k")], paid, x, currency).fitting == [parse("top_k(k=9)")]
        assert match([parse("top_k")], paid - 1e-9, x, currency).fitting == [parse("top_k(k=8)")]
    assert amount_text(388.0, "bytes") == "388 bytes per query row"
    assert amount_text("9–12", "stored") == "9–12 stored values per query row"
    with pytest.raises(ValueError, match="currency must be one of stored, reads"):
        amount_text(1.0, "seconds")
    with pytest.raises(ValueError, match="currency must be one of stored, reads"):
        price_of_keys(1.0, x, "seconds")
