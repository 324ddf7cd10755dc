"""Heads whose winner depends on the currency, at the price of the same number of exact keys."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import pandas as pd

from analysis.advice.diagnose import winners
from analysis.advice.measurement import amounts
from analysis.costs import candidates
from analysis.costs.budget import amount_text, match, price_of_keys
from analysis.inputs import Head
from approx import Method, parse
from approx.method.prices import CURRENCIES, entries
from studies.lm import pages
from studies.lm.pages import HEAD

SPARQ = "projected_top_k(by='channels')"
FEWER = tuple(f"projected_top_k(r={r}, by='channels')" for r in (2, 4, 6))


def compared(heads: Sequence[Head], keys: int = 32, jobs: int = 1) -> pd.DataFrame:
    """Return the winner of every head at the price of ``keys`` exact keys, in each currency.

    Returns
    -------
    DataFrame
        A row per head and currency: ``budget``, ``winner``, ``attention_tv`` and ``verdict`` as in
        `analysis.advice.diagnose.winners`, and ``asked``, the winner without its size.
    """
    first = heads[0]
    parts = []
    for currency in CURRENCIES:
        budget = price_of_keys(keys, first, currency)
        found = winners(heads, budget=budget, currency=currency, temperatures=[1.0], jobs=jobs)
        names = _names(first, budget, currency)
        parts.append(found.assign(currency=currency, asked=found.winner.map(names)))
    return pd.concat(parts, ignore_index=True)


def _names(x: Head, budget: float, currency: str) -> dict[str, str]:
    """Return {spec filled to a budget: candidate without its size}."""
    templates = candidates.methods(x.mask)
    matched = [match([template], budget, x, currency).fitting for template in templates]
    return {str(m): str(template) for template, some in zip(templates, matched) for m in some}


def changes(table: pd.DataFrame) -> pd.Series:
    """Return for each head whether its winner differs between currencies."""
    return table.groupby(HEAD, sort=False).asked.nunique() > 1


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """Return the number of heads that a method wins, a column per currency, most wins first."""
    wide = table.groupby(["asked", "currency"]).size().unstack(fill_value=0)
    wide = wide.reindex(columns=list(CURRENCIES), fill_value=0)
    return wide.loc[wide.sum(axis=1).sort_values(ascending=False, kind="stable").index]


def agreement(table: pd.DataFrame) -> pd.Series:
    """Return the number of heads on which two currencies have the same winner, by pairs."""
    wide = table.pivot(index=HEAD, columns="currency", values="asked")
    pairs = itertools.combinations(CURRENCIES, 2)
    return pd.Series({pair: int((wide[pair[0]] == wide[pair[1]]).sum()) for pair in pairs})


def _agreement(table: pd.DataFrame) -> str:
    same = [
        f"{first} and {second} on {count}".replace("_", "-")
        for (first, second), count in agreement(table).items()
    ]
    return f"Two of them name the same method: {', '.join(same)}."


def example(table: pd.DataFrame) -> tuple[int, int]:
    """Return a typical head among those where stored values and reads have different winners.

    It is the head with the median ratio of the two winners' errors.
    """
    wide = table.pivot(index=HEAD, columns="currency", values=["asked", "attention_tv"])
    differ = wide[wide["asked", "stored"] != wide["asked", "reads"]]
    ratio = (differ["attention_tv", "reads"] / differ["attention_tv", "stored"]).astype(float)
    layer, head = ratio.sort_values(kind="stable").index[len(ratio) // 2]
    return int(layer), int(head)


def _read(method: Method, x: Head, budget: float) -> str:
    """Return a sentence with the numbers that a method reads for a new query, if known."""
    price = method.price(**x.shape.given)
    if price is None or price.reads is None:
        return ""
    said = (
        f" For a new query it reads {price.reads:.0f} numbers, {price.reads / budget:.2f} times "
        "the budget in reads"
    )
    if k := vars(method).get("k"):
        kept = entries(k, dataclasses.replace(x.shape, mask=None)).reads or 0.0
        said += f": {kept:.0f} of the {k} keys that it keeps and of their values"
        if price.reads > kept:
            said += f", {price.reads - kept:.0f} to choose them"
    return said + "."


def fewer_channels(heads: Sequence[Head], table: pd.DataFrame) -> tuple[int, list[Method]]:
    """Return the number of heads that SparQ with fewer channels would win in reads."""
    at = table[table.currency == "reads"].set_index(HEAD)
    best, filled = 0, dict[str, Method]()
    for x in heads:
        one = x.at_temperature(1.0)
        tv = float("inf")
        for method in match(map(parse, FEWER), at.budget.iloc[0], x, "reads").fitting:
            filled[str(method)] = method
            tv = min(tv, one.compare(one.approximate(method))["attention_tv"])
        best += tv < at.attention_tv[x.layer, x.head]
    return best, list(filled.values())


def section(heads: Sequence[Head], table: pd.DataFrame) -> str:
    """Return the tables of `compared` in Markdown, with one head explained."""
    first = heads[0]
    budgets = table.drop_duplicates("currency").set_index("currency").budget
    words = {currency: amount_text(budgets[currency], currency) for currency in CURRENCIES}
    change = changes(table)
    lines = [
        "Where the currency changes the winner: the nearest that can be run at the price of "
        f"{budgets['stored'] / price_of_keys(1, first):g} exact keys, by what is counted. It is "
        f"not the same method in every currency on {change.sum()} of {len(change)} heads. "
        f"{_agreement(table)} Heads won at",
        "",
        pages.table(
            ["method", *words.values()],
            ([f"`{asked}`", *map("{:.0f}".format, row)] for asked, row in counts(table).iterrows()),
        ),
        "",
        *_explained(heads, table, words),
    ]
    return "\n".join(lines)


def _explained(heads: Sequence[Head], table: pd.DataFrame, words: dict[str, str]) -> list[str]:
    """Return one head and its winners, with the cost of each winner in every currency."""
    layer, head = example(table)
    x = next(x for x in heads if (x.layer, x.head) == (layer, head))
    won = table[(table.layer == layer) & (table["head"] == head)].set_index("currency")
    stored = parse(won.winner["stored"])
    lines = [
        f"Head {layer}.{head} is an example, the median of those that differ between stored values "
        f"and reads. `{stored}` wins by stored values, with a tv of "
        f"{won.attention_tv['stored']:.3f}.{_read(stored, x, won.budget['reads'])} By reads "
        f"`{won.winner['reads']}` wins, with a tv of {won.attention_tv['reads']:.3f}.",
        "",
    ]
    rows = []
    for spec, part in won.groupby("winner", sort=False):
        paid = amounts(parse(str(spec)).price(**x.shape.given)).values()
        cells = ("" if math.isnan(p) else f"{p:.0f}" for p in paid)
        rows.append(
            (", ".join(part.index), f"`{spec}`", f"{part.attention_tv.iloc[0]:.3f}", *cells)
        )
    lines.append(pages.table(["wins by", "method", "tv", *CURRENCIES], rows))
    best, filled = fewer_channels(heads, table)
    if filled:
        lines += [
            "",
            f"No size of `{SPARQ}`, which reads a quarter of the channels of all keys, fits "
            f"{words['reads']}; with fewer channels, "
            f"{', '.join(f'`{method}`' for method in filled)}, it would be nearer than the winner "
            f"on {best} of {len(heads)} heads.",
        ]
    return lines
