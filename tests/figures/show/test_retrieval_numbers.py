"""What ``substitute --retrieval`` prints."""

import math

import pandas as pd

from figures.show import retrieval
from figures.words.terminal_columns import COLUMNS
from figures.words.translation import speaking


def made_up():
    """Return the table of two draws: exact attention finds seven of eight answers."""
    rows = []
    for trial in range(2):
        for kind in ("needle", "chain"):
            for depth in (0.5, 0.0):
                known = not (kind == "chain" and depth == 0.5 and trial)
                cell = kind, 512, depth, trial
                rows.append((*cell, "exact", -1.25 - trial, 1 if known else 3, 999.0, 64.0))
                if known:
                    rows.append((*cell, "near()", -15.0, 11 + trial, 64.0, 64.0))
                    rows.append((*cell, "top_k()", -math.inf if trial else -2.0, 2, 60.0, 64.0))
    columns = ["kind", "tokens", "depth", "trial", "method", "log_probability", "rank", "price"]
    return pd.DataFrame(rows, columns=[*columns, "budget"])


def test_facts_have_a_row_a_kind_length_and_method_by_depth():
    found = made_up()
    assert list(retrieval.cells(found)) == [
        ("kind", "tokens", "depth 0.5", "depth 0", "method"),
        ("needle", "512", "-1.8 (1)", "-1.8 (1)", "exact"),
        ("needle", "512", "-15.0 (12)", "-15.0 (12)", "near()"),
        ("needle", "512", "-inf (2)", "-inf (2)", "top_k()"),
        ("chain", "512", "-1.8 (3)", "-1.8 (1)", "exact"),
        ("chain", "512", "-15.0 (11)", "-15.0 (12)", "near()"),
        ("chain", "512", "-2.0 (2)", "-inf (2)", "top_k()"),
    ]
    assert list(retrieval.tests(found)) == [
        ("first", "second", "first higher", "second higher", "p", "line"),
        ("exact", "near()", "7", "0", "0.016", "holds"),
        ("exact", "top_k()", "7", "0", "0.016", "holds"),
        ("top_k()", "near()", "4", "3", "1", "open"),
    ]
    text = retrieval.text(found)
    assert "in 7 of 8 cells" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= COLUMNS
    with speaking("zh"):
        assert "cells" not in retrieval.text(found)
    alone = found[found.method == "exact"]
    assert "Hypothesis" not in retrieval.text(alone)
