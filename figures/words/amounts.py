"""Budgets and prices in words, in the language in force: every amount says what is counted."""

from collections.abc import Iterable

import pandas as pd

from analysis.costs import budget as budgets
from figures.words.translation import mark, tr

NAMES = {  # titles of figures with a panel a currency
    "stored": mark("stored values"),
    "reads": mark("reads"),
    "multiply_adds": mark("multiply-adds"),
    "bytes": mark("bytes"),
}
UNITS = {
    "stored": mark("stored values per query row"),
    "reads": mark("numbers read per new query"),
    "multiply_adds": mark("multiply-adds per query row"),
    "bytes": mark("bytes held in the cache"),
    "bytes_read": mark("bytes read per new query"),
}


def amount_text(amount: float | str, currency: str) -> str:
    """Return an amount in a currency, such as "32 stored values per query row".

    The amount is a number, or a range of numbers in words.
    """
    number = amount if isinstance(amount, str) else f"{amount:g}"
    return tr(budgets.WORDING[currency], amount=number)


def currency(table: pd.DataFrame) -> str:
    """Return the currency of the budgets of a table, which has no such column for stored values."""
    return str(table.currency.dropna().iloc[0]) if "currency" in table else "stored"


def budget(table: pd.DataFrame) -> str:
    """Return the budget of a table that has one, in its currency."""
    return amount_text(float(table.budget.max()), currency(table))


def span(sizes: Iterable[int]) -> str:
    """Return the range of sizes, one number where they agree.

    Examples
    --------
    >>> span([128, 128]), span([128, 40, 56])
    ('128', '40–128')
    """
    distinct = sorted(set(sizes))
    return f"{distinct[0]}" if len(distinct) == 1 else f"{distinct[0]}–{distinct[-1]}"


def range_of(least: float, most: float) -> str:
    """Return two numbers to two digits as a range, one number where they agree.

    Examples
    --------
    >>> range_of(0.453, 0.964), range_of(1.13, 1.13)
    ('0.45–0.96', '1.13')
    """
    return "–".join(dict.fromkeys(f"{x:.2f}" for x in (least, most)))
