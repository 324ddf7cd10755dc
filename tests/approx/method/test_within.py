"""Budgets: what a template becomes, and that it costs what was promised."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from refusals import refuses
from small import SIZED

from approx import ALIASES, METHODS, parse
from approx.method.filling import is_fillable, with_sizes
from approx.method.tags import ADAPTIVE
from approx.projections import Fixed
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric

SHAPE = {"n": 40, "l": 24, "d": 3}
EMPTY_SCATTERBRAIN = "scatterbrain(low_rank=positive, sparse=top_k)"

budgets = st.floats(0.5, 300)
lengths = st.integers(1, 60)


def template(name):
    return parse(EMPTY_SCATTERBRAIN if name == "scatterbrain" else name)


# What fits: that a size is the largest, the checks of every method say


@pytest.mark.parametrize(("currency", "each"), [("stored", 1), ("reads", 8)])
def test_what_is_beside_an_open_part_of_sampled_counts(currency, each):
    shape = {"n": 64, "l": 64, "d": 4, "c": 4, "currency": currency}
    for spec, filled in (
        ("sampled(sparse=top_k(), k=8)", "sampled(sparse=top_k(k=25), k=8)"),
        ("sampled(sparse=top_k())", "sampled(sparse=top_k(k=16), k=17)"),
    ):
        assert str(parse(spec).within(33 * each, **shape)) == filled
    for spec in ("sampled(k=4, low_rank=taylor())", "sampled(k=4, low_rank=positive())"):
        method = parse(spec)
        for budget in (4 * each, 5 * each, 12 * each, 33 * each, 100 * each):
            found = method.within(budget, **shape)
            alone = method.low_rank.within(max(budget - 4 * each, 1e-9), **shape)
            assert (found is None) == (alone is None)
            assert found is None or found.low_rank == alone
    assert parse("sampled(sparse=top_k(), k=40)").within(33 * each, **shape) is None


def test_memory_buys_what_is_kept_and_no_choice_among_all_keys():
    shape = {"n": 64, "l": 64, "d": 4, "mask": "causal", "currency": "bytes"}
    for budget in (350.0, 1000.0):
        for spec, each in (("sink_window()", 16), ("columns(by='h2o')", 18)):
            assert parse(spec).within(budget, **shape).k == budget // each
        for spec in ("top_k()", "sampled(sparse=top_k(), k=8)", "pages(size=4)"):
            assert parse(spec).within(budget, **shape) is None
    assert parse("top_k()").within(1024.0, **shape).k == 64
    for group in (1, 3):  # of three heads, each keeps its own keys
        assert parse("columns(by='h2o')").within(900, **shape, group=group).k == 50 // group


@pytest.mark.parametrize("spec", [
    "top_p(p=0.6)",
    "scatterbrain(sparse=top_p(), low_rank=positive(m=4))",
    "true_denominator(sparse=top_p())",
    "sampled(sparse=top_p(), k=4)",
    "centered(magicpig(sparse=sink_window(k=4)))",
])  # fmt: skip
def test_what_is_adaptive_or_holds_an_adaptive_part_fits_no_budget(spec):
    assert ADAPTIVE in parse(spec).tags
    assert parse(spec).within(100.0, n=24, l=24, d=3) is None


def test_a_budget_has_a_known_currency():
    top_k = METHODS["top_k"]()
    with pytest.raises(ValueError, match=r"currency must be .*stored.*, got 'keys'"):
        top_k.within(3, n=4, l=4, d=2, currency="keys")
    assert top_k.within(32 * 96, n=99, l=99, d=64, c=32, currency="reads").k == 32
    # an oracle of which only stored values are known before it is run
    assert METHODS["godec"]().within(99, n=9, l=9, d=2, currency="reads") is None


@pytest.mark.parametrize(("spec", "budget", "filled"), [
    ("positive", 16, "positive(m=10)"),  # m·64/40 ≤ 16
    ("positive", 1.6, "positive(m=1)"),
    ("positive", 1.5, None),
    ("trigonometric", 16, "trigonometric(m=10)"),
    ("trigonometric", 15.9, "trigonometric(m=8)"),
    ("trigonometric", 3.1, None),
    ("truncated_svd", 16, "truncated_svd(rank=10)"),
    ("truncated_svd(space='attention')", 1000, "truncated_svd(rank=24, space='attention')"),
    ("top_k", 16, "top_k(k=16)"),
    ("top_k", 16.9, "top_k(k=16)"),
    ("top_k", 1000, "top_k(k=24)"),
    ("top_k", 0.9, None),
    ("sliding_window", 16, "sliding_window(width=20)"),  # rows at the ends have fewer
    ("sliding_window", 1000, "sliding_window(width=24)"),
    ("taylor", 16, "taylor(degree=2)"),  # C(5, 2) = 10 columns
    ("taylor", 15.9, "taylor(degree=1)"),
    ("taylor", 6.3, None),
    ("tensor_power", 16, "tensor_power(n=2)"),
    ("zero", 1, "zero()"),
    ("uniform", 1, "uniform()"),
    ("scatterbrain(positive, top_k)", 32, "scatterbrain(positive(m=10), top_k(k=16))"),
    # a given size is spent first, the template has what is left
    ("scatterbrain(positive(m=10), top_k)", 20, "scatterbrain(positive(m=10), top_k(k=4))"),
    ("scatterbrain(positive, top_k(k=4))", 20, "scatterbrain(positive(m=10), top_k(k=4))"),
    ("scatterbrain(positive(m=10), top_k(k=4))", 20, "scatterbrain(positive(10), top_k(4))"),
    ("scatterbrain(positive(m=10), top_k(k=4))", 19.9, None),
    ("scatterbrain(positive(m=10), top_k)", 16, None),
    ("scatterbrain(positive, top_k(k=4))", 4, None),
    ("scatterbrain(positive, top_k)", 1.9, None),
    ("scatterbrain(zero, top_k)", 16, "scatterbrain(zero(), top_k(k=16))"),
    ("scatterbrain(taylor, top_k)", 32, "scatterbrain(taylor(2), top_k(16))"),
    ("scatterbrain(positive, top_k)", 1000, "scatterbrain(positive(m=610), top_k(k=24))"),
])  # fmt: skip
def test_by_hand(spec, budget, filled):
    found = parse(spec).within(budget, **SHAPE)
    assert found == (None if filled is None else parse(filled))


# Configuration


@pytest.mark.parametrize(("family", "columns"), [(Positive, 1), (Trigonometric, 2)])
def test_fixed_frequencies_have_a_price_and_no_size(family, columns):
    method = family(projection=Fixed(np.ones((5, 3))))
    price = 5 * columns * 64 / 40
    assert method.price(**SHAPE).stored == price
    assert method.within(price, **SHAPE) is method
    assert method.within(price - 0.1, **SHAPE) is None
    refuses("m follows from Fixed", family, m=5 * columns, projection=Fixed(np.ones((5, 3))))


# Scatterbrain


@given(budget=budgets, share=st.floats(0.01, 0.99), n=lengths, l=lengths)
def test_scatterbrain_gives_its_share_to_entries_and_the_rest_to_features(budget, share, n, l):
    shape = {"n": n, "l": l, "d": 3}
    method = parse(f"scatterbrain(low_rank=positive, sparse=top_k, share={share!r})")
    filled = method.within(budget, **shape)
    entries = min(math.floor(share * budget), l)
    features = math.floor((budget - entries) / ((n + l) / n) * (1 + 1e-15))
    if filled is None:
        assert entries == 0 or (budget - entries) < (n + l) / n
        return
    assert filled.sparse.k == entries
    assert abs(filled.low_rank.m - features) <= 1  # where the quotient is an integer, rounding
    assert filled.price(**shape).stored <= budget * (1 + 1e-12)
    assert filled.share == share


# Templates


@pytest.mark.parametrize("name", SIZED)
def test_a_template_says_what_is_missing(name):
    x = np.ones((4, 2))
    message = rf"{name}\(\) is a template: give {SIZED[name]}, or use within"
    refuses(message, template(name).approximate, x, x)
    refuses(message, template(name).moments, x, x)
    assert template(name).price(**SHAPE) is None


@pytest.mark.parametrize("spec", [
    *METHODS,
    *ALIASES,
    "sampled(epsilon=0.5, delta=0.1)",
    "scatterbrain(sparse=top_p(), low_rank=trigonometric())",
    "sampled(sparse=pages(), design='lsh', hashes=2, tables=3)",
])  # fmt: skip
def test_a_budget_fills_every_template_that_does_not_say_what_to_give_instead(spec):
    method = parse(spec)
    if not method.is_template:
        return
    x = np.random.default_rng(0).standard_normal((32, 4))
    if is_fillable(method):
        assert not method.within(2.0**20, n=32, l=32, d=4).is_template
        return
    said = r"is a template that no budget fills, .*: give its sizes, such as (.*)$"
    for use in (lambda: method.within(8, n=32, l=32, d=4), lambda: method.approximate(x, x)):
        with pytest.raises(ValueError, match=said) as found:
            use()
        instead = parse(re.search(said, str(found.value))[1])
        assert type(instead) is type(method)
        assert instead.approximate(x, x, rng=0).shape == (32, 32)
    assert spec not in METHODS
    assert "no budget fills it" in method._repr_html_()


def test_the_sizes_that_a_template_is_told_are_those_that_are_open():
    found = with_sizes(parse("vattention(sparse=sink_window(k=3))"))
    assert str(found.sparse) == "sink_window(k=3)"
    assert found.k == 16
    assert str(with_sizes(parse("trigonometric"))) == "trigonometric(m=16)"
    assert str(with_sizes(parse("pages(size=8)"))) == "pages(k=16, size=8)"
