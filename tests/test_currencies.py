"""Where the currency of a budget changes the winner of a head."""

import pandas as pd

from analysis import inputs
from analysis.advice.diagnose import diagnose
from analysis.costs.budget import price_of_keys
from approx import parse
from approx.method.prices import CURRENCIES
from studies.lm import currencies


def won():
    """Return made-up winners of four heads in each currency."""
    names = {  # the method without its size, by currency
        0: ("top", "top", "top", "top", "top"),
        1: ("top", "sink", "top", "top", "sink"),
        2: ("top", "sink", "sink", "top", "sink"),
        3: ("top", "page", "top", "top", "page"),
    }
    tv = {0: (0.1, 0.2), 1: (0.1, 0.2), 2: (0.1, 0.9), 3: (0.1, 0.4)}
    return pd.DataFrame(
        {
            "layer": 2, "head": head, "currency": currency, "asked": asked, "budget": 1.0,
            "attention_tv": tv[head][currency == "reads"],
        }
        for head, methods in names.items()
        for currency, asked in zip(CURRENCIES, methods)
    )  # fmt: skip


def test_winners_are_counted_by_currency():
    assert currencies.changes(won()).tolist() == [False, True, True, True]
    found = currencies.counts(won())
    assert list(found.columns) == list(CURRENCIES)
    assert found.loc["top"].tolist() == [4, 1, 3, 4, 1]
    assert found.loc["sink"].tolist() == [0, 2, 1, 0, 2]
    assert found.index.tolist() == ["top", "sink", "page"]
    assert currencies.example(won()) == (2, 3)  # ratios 2, 4 and 9
    assert currencies.agreement(won()).tolist() == [1, 3, 4, 1, 2, 1, 4, 3, 2, 1]


def test_the_winner_of_a_currency_is_the_advisors_and_is_explained():
    heads = [x.first(64) for x in inputs.sample("smollm2").heads()][2:]
    table = currencies.compared(heads, keys=12)
    for currency, each in table.groupby("currency", sort=False):
        budget = price_of_keys(12, heads[0], str(currency))
        assert (each.budget == budget).all()
        for asked, spec in zip(each.asked, each.winner):
            filled = parse(asked).within(budget, currency=currency, **heads[0].shape.given)
            assert str(filled) == spec
    found = diagnose(heads[0], budget=12 * 128, currency="reads")
    first = table[(table["head"] == heads[0].head) & (table.currency == "reads")]
    assert first.winner.tolist() == found.spec[found.winner].tolist()
    said = currencies.section(heads, table)
    count = currencies.changes(table).sum()
    assert "price of 12 exact keys, by what is counted. It is not the same method in every " in said
    assert f"currency on {count} of 2 heads" in said
    lines = said.splitlines()
    titles = "| method | 12 stored values per query row | 1536 numbers read per new query |"
    assert titles in lines[2]
    layer, head = currencies.example(table)
    assert f"Head {layer}.{head} is an example" in said
    one = next(x for x in heads if (x.layer, x.head) == (layer, head))
    mine = table[(table.layer == layer) & (table["head"] == head)].set_index("currency")
    reads = parse(mine.winner["stored"]).price(**one.shape.given).reads
    assert f"{reads / 1536:.2f} times the budget in reads" in said
    blocks = [part.splitlines() for part in said.split("\n\n") if part.startswith("|")]
    assert all(len({line.count("|") for line in block}) == 1 for block in blocks)
