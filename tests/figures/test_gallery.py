"""Figures: tables have the tidy columns, drawing twice gives the same bytes, captions compute."""

import dataclasses
import hashlib

import numpy as np
import pandas as pd
import pytest

from analysis import inputs
from analysis.sweep import COLUMNS
from figures import error, price, style
from figures.gallery import FIGURES
from figures.profile import Profile, profile, quartiles
from figures.report.build import SHOWN


@pytest.fixture(scope="module")
def small():
    heads = inputs.gaussian(48, 8, rng=0), next(iter(inputs.sample().heads()))
    cut = tuple(dataclasses.replace(x, q=x.q[:48], k=x.k[:48], v=x.v[:48]) for x in heads)
    return Profile("small", cut, (0.25, 1.0, 8.0), 32.0, trials=2, draws=60)


@pytest.fixture(scope="module")
def tables(small):
    return {name: module.compute(small) for name, module in FIGURES.items()}


@pytest.mark.parametrize("name", FIGURES)
def test_table_is_tidy_and_drawn_the_same_from_its_csv(name, tables, tmp_path):
    table, module = tables[name], FIGURES[name]
    own = COLUMNS if name in SHOWN else getattr(module, "COLUMNS", COLUMNS)
    assert tuple(table.columns) == own
    if name in SHOWN:  # the others make their own inputs
        assert set(table.input) == {"gaussian", "MiniLM easy"}
    formats = style.FORMATS if name in SHOWN else ("svg",)  # one way is enough for the others
    first = style.save(name, table, module.draw(table), tmp_path / "a", formats)
    again = pd.read_csv(first[0])
    pd.testing.assert_frame_equal(again, table, check_exact=True)
    second = style.save(name, again, module.draw(again), tmp_path / "b", formats)
    for one, other in zip(first, second):
        digests = [hashlib.sha256(p.read_bytes()).hexdigest() for p in (one, other)]
        assert digests[0] == digests[1], one.name


@pytest.mark.parametrize("name", FIGURES)
def test_caption_states_numbers_of_the_table(name, tables):
    table = tables[name].copy()
    before = FIGURES[name].caption(table)
    table["value"] = np.sign(table.value) * table.value.abs() ** 1.3  # ratios change too
    assert FIGURES[name].caption(table) != before


def test_every_curve_of_the_error_figure_has_a_name(tables):
    table = tables["error"]
    for space in error.SPACES:
        labels = [style.look(spec)["label"] for spec in error.shown(table, space)]
        assert len(set(labels)) == len(labels)
        assert not any("(m=" in label or "rank=" in label for label in labels)


def test_sparse_plus_low_rank_is_never_above_the_better_of_the_two(tables):
    for space in error.SPACES:
        found = error.crossings(tables["error"], space)
        # split contains both single classes at the same budget, so the gain is at least 1,
        # up to the rounding of an error of 1e-16 of the norm
        assert (found.gain >= 1 - 1e-9).all()


def test_polynomials_stand_at_their_own_price(tables, small):
    table = tables["price"]
    x = small.inputs[0]
    row = table[(table.method == "taylor(degree=2)") & (table.metric == "values_per_row")]
    width = (x.d + 2) * (x.d + 1) // 2  # C(d + 2, 2), both sides of n = l
    assert row[row.input == "gaussian"].value.tolist() == [2.0 * width]
    assert set(price.own_price()) & {"taylor(1)", "tensor_power(3)", "robust_pca()"}


def test_unknown_methods_get_a_look_of_their_own():
    look = style.look("mine(m=3)")
    assert look["label"] == "mine(m=3)"
    assert style.order(["mine(m=3)", "zero()"]) == ["zero()", "mine(m=3)"]


def test_profiles():
    small = profile("quick", seed=3)
    assert [x.name for x in small.inputs[1:]] == ["MiniLM easy", "MiniLM middling", "MiniLM hard"]
    assert all(x.n == 128 for x in small.inputs)
    with pytest.raises(ValueError, match="profile must be one of quick, default, full"):
        profile("huge")
    with pytest.raises(ValueError, match="budget must be finite and > 0"):
        profile("quick", budget=-1)


def test_heads_of_a_file_are_the_quartiles_of_logit_range():
    q = np.ones((1, 9, 4, 2)) * np.arange(9)[None, :, None, None]  # range of head h grows as h
    k = np.tile([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]], (1, 9, 1, 1))
    many = inputs.Inputs("file", q[0], k[0], ids=tuple((0, head, f"0.{head}") for head in range(9)))
    assert [x.head for x in quartiles(many)] == [2, 4, 6]
