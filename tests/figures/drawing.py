"""What every figure must do, checked where its table is made: tables are dear."""

import hashlib

import numpy as np
import pandas as pd

from analysis.sweep import COLUMNS
from figures import style
from figures.gallery import CORE, FIGURES

THEORY = (
    "coupling_gain", "eps_collapse", "inverse_temperature", "log_variance", "performer_error",
    "performer_ratio", "predicted_error", "ratio_bias", "raw_qr", "recall",
)  # fmt: skip
THEOREM = ("entry_error", "collision")
REGIMES = ("regime_map", "crossings", "entropy", "oracle_gap", "budget_table", "combinations")
POLYNOMIALS = ("minimum_degree", "polynomial_error", "polynomial_rank", "rounding")
ELSEWHERE = {*THEORY, *THEOREM, *REGIMES, *POLYNOMIALS, "sketches"}
REST = sorted(set(FIGURES) - ELSEWHERE)  # in test_gallery


def drawn_the_same_from_its_csv(name, table, folder):
    """Check columns, and that the table read from its CSV draws the same bytes."""
    module = FIGURES[name]
    assert tuple(table.columns) == getattr(module, "COLUMNS", COLUMNS)
    formats = style.FORMATS if name in CORE else ("svg",)  # one way is enough for the others
    first = style.save(name, table, module.draw(table), folder / "a", formats)
    again = pd.read_csv(first[0])
    pd.testing.assert_frame_equal(again, table, check_exact=True)
    second = style.save(name, again, module.draw(again), folder / "b", formats)
    for one, other in zip(first, second):
        digests = [hashlib.sha256(p.read_bytes()).hexdigest() for p in (one, other)]
        assert digests[0] == digests[1], one.name


def caption_states_numbers(name, table):
    """Check that no number is missing, and that others stand in the caption of another table."""
    before = FIGURES[name].caption(table)
    assert "nan" not in before
    assert "none of these" not in before
    other = table.copy()
    other["value"] = np.sign(other.value) * other.value.abs() ** 1.3  # ratios change too
    assert FIGURES[name].caption(other) != before
