"""Captions and the report print the numbers that they printed of the same tables."""

import functools

import as_printed
import pytest

from figures.gallery import FIGURES
from figures.words.translation import speaking

stored, said = functools.cache(as_printed.tables), functools.cache(as_printed.said)


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
