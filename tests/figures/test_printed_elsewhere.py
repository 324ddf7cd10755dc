"""What captions and the report print of tables that no stored one is: each other branch, by hand.

Numbers stand just below the next digit, so that one that is 5 % too large is another text.
"""

import functools
from types import SimpleNamespace

import as_printed
import numpy as np
import pandas as pd
import pytest

from analysis import inputs
from figures.gallery import FIGURES, explore
from figures.report import sentences
from figures.words import numbers
from figures.words.translation import speaking

stored = functools.cache(as_printed.tables)


def to_use(**changed):
    return sentences.to_use(stored()["advice"].assign(**changed))


def as_dear_as_exact():
    table = stored()["advice"]
    same = {x: table[f"exact_{x}"] for x in ("reads", "multiply_adds", "bytes")}
    return to_use(**same, verdict="keep exact")


def taken(heads, queries):
    x = inputs.gaussian(8, 2, rng=0)
    named = [SimpleNamespace(name=name, n=x.n) for name in ("a", "b")]
    asked = SimpleNamespace(given=(heads, queries), inputs=named, advised=named * 3)
    return sentences.rows_taken(asked)


def summary(change):
    """Return the finding of a table that is changed, given it and its first input's entries."""
    table = stored()["summary"]
    first = table.input == table.input.iloc[0]
    return FIGURES["summary"].finding(change(table, first, first & (table.role == "sparse")))


def many_crossings(table, first, entries):
    one = table[table.input == "gaussian"]
    return pd.concat([one.assign(input=f"head {i}") for i in range(7)], ignore_index=True)


def never(table, first, entries):
    """Return the table with entries nearer than a low rank everywhere on the first input."""
    value = table.value.mask(entries, 1e-6)
    return table.assign(value=value.mask(first & (table.role == "crossing")))


def thrice(table, first, entries):
    """Return the table with a first input whose curves change places at every temperature."""
    sign = (-1.0) ** table.temperature.rank(method="dense")
    return table.assign(value=table.value.mask(entries, np.where(sign > 0, 1.0, 1e-6)))


def without_classes(table, first, entries):
    return table[table.role.isin(["best", "uniform"])]


MEDIAN = SimpleNamespace(attention_tv=0.2194, attention_tv_least=0.2134, attention_tv_most=0.2244,
                         attention_tv_stderr=0.0148)  # fmt: skip
PRINTED = {
    "bought": (lambda: to_use(budget=stored()["advice"].exact_price),
               "keep exact attention on gaussian, where the budget buys every entry."),
    "dearer than exact": (
        lambda: to_use(multiply_adds=2.1364 * stored()["advice"].exact_multiply_adds),
        "use hierarchical, pivot keys (costs 2.14 times exact attention's multiply-adds) on "
        "MiniLM"),
    "saves stored values only": (
        as_dear_as_exact, "keep exact attention on gaussian and MiniLM easy, where the best method "
        "saves storage only, and none of the other known costs."),
    "a few names": (lambda: sentences._listed(list("abc")), "a, b and c"),
    "many names": (lambda: sentences._listed(["x"] * 13), "13 heads"),
    "median ± stderr": (lambda: sentences._drawn(MEDIAN), "0.219 (0.213 to 0.224) ± 0.01"),
    "heads and queries left out": (
        lambda: taken(9, 40),
        "The file has 9 heads. This report shows a and b; the advice covers six. The report "
        "measures the first 8 of 40 queries of each head, with the keys that they see. It says "
        "nothing about the others."),
    "nothing left out": (lambda: taken(2, 8), ""),
    "a tv that is too small": (lambda: numbers.three_decimals(1e-5), "< 0.001"),
    "finding of many": (lambda: summary(many_crossings),
                        "t ≈ 0.80, and lose above, on all seven inputs"),
    "finding of many changes": (
        lambda: summary(thrice),
        "t ≈ 0.78 (MiniLM easy), and lose above. On one of the two inputs, the entries win at a "
        "temperature above one at which they lose."),
    "finding of one that crosses": (
        lambda: summary(never), "beat the best low rank found below t ≈ 0.78 (MiniLM easy), and"),
    "finding without classes": (lambda: summary(without_classes),
                                "A method is worth its price in"),
    "a title with an exponent": (lambda: explore._short(14_444.0), "1.4e+04"),
    "a title without one": (lambda: explore._short(0.144), "0.14"),
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_elsewhere(name):
    said, expected = PRINTED[name]
    assert expected in said() if expected else said() == ""


# Of stored tables


said = functools.cache(as_printed.said)


@pytest.mark.parametrize("name", said())
def test_what_is_printed_of_a_stored_table(name):
    assert as_printed.printed(name, stored()) == said()[name], (
        f"if these numbers are right: python tests/figures/as_printed.py --text {name} "
        "(without --text where the table has other columns now)"
    )


@pytest.mark.parametrize("name", ["summary", "error"])
def test_a_crossover_comes_with_the_name_of_its_error(name):
    table = as_printed.table_of(name, stored())
    for language, error in (
        ("en", "otal variation" if name == "summary" else "elative Frobenius error"),
        ("zh", "总变差" if name == "summary" else "相对 Frobenius 误差"),
    ):
        with speaking(language):
            assert error in FIGURES[name].finding(table)
