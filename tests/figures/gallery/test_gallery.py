"""Figures: tables have the tidy columns, a CSV is enough to draw one, captions compute."""

import dataclasses
import functools

import as_printed
import numpy as np
import pandas as pd
import pytest
from drawing import (
    drawn_from_its_csv,
    has_the_columns,
    nothing_overlaps,
    speaks_chinese,
    spoken,
)  # fmt: skip
from refusals import refuses

from analysis import inputs
from analysis.experiments.profile import Profile, profile, quartiles
from approx import Mask, parse
from approx.method.evaluation import obstacle
from approx.method.tags import ORACLE
from figures.document.figure_files import save, saved, wording
from figures.drawing import looks, style
from figures.fonts import FAMILY
from figures.gallery import FIGURES, error, explore
from figures.words.terminal_columns import ends
from figures.words.translation import speaking


@pytest.fixture(scope="module")
def small():
    heads = inputs.gaussian(48, 8, rng=0), next(iter(inputs.sample().heads())).first(48)
    return Profile("small", heads, (0.25, 1.0, 8.0), 32.0, trials=2, draws=60)


stored = functools.cache(as_printed.tables)


@pytest.fixture(scope="module")
def tables(small):
    return stored() | {"explore": FIGURES["explore"].compute(small)}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_that_of_its_table(name, tmp_path):
    """Drawn from its CSV, with the table's numbers in its texts, in English and Chinese."""
    table = as_printed.table_of(name, stored())
    has_the_columns(name, table)
    drawn_from_its_csv(name, table, tmp_path)
    speaks_chinese(name, table, spoken(name, table))


@pytest.mark.slow  # Chinese takes less room than English
@pytest.mark.parametrize("name", FIGURES)
def test_nothing_overlaps_in_chinese(name):
    with speaking("zh"):
        nothing_overlaps(name, as_printed.table_of(name, stored()))


def test_what_the_error_figure_draws(small):
    one = dataclasses.replace(small, inputs=small.inputs[:1], temperatures=(1.0,), trials=1)
    labels = [looks.look(spec)["label"] for spec in error.curves(FIGURES["error"].compute(one))]
    # without the split, and the low rank of total variation
    assert len(labels) == len(error.SPECS) - 2
    assert len(set(labels)) == len(labels)
    assert not any("(m=" in label or "rank=" in label for label in labels)
    drawn = [parse(spec) for spec in error.NAMED]
    causal = Mask.causal(2, 2)  # no line needs a note that it reads what comes later
    assert not any(ORACLE in one.tags or obstacle(one, causal) for one in drawn)
    orders = [module.ORDER for module in FIGURES.values()]
    assert orders == sorted(set(orders))


def test_crossings_show_a_gain_and_are_those_of_oracles_whatever_their_rank(tables):
    """Inputs of another shape have oracles of another rank."""
    table, rank = tables["error"], r"^truncated_svd\(rank=\d+"
    first = table.input == table.input.iloc[0]
    other = table.method.str.replace(rank, "truncated_svd(rank=99", regex=True)
    renamed = table.assign(method=table.method.mask(first, other))
    assert renamed.method.nunique() > table.method.nunique()
    found = error.crossings(table)
    # split contains both single classes at the same budget, so the gain is at least 1,
    # up to the rounding of the stored errors to four digits
    assert (found.gain >= 1 - 1e-3).all()
    assert found.input.tolist() == table.input.unique().tolist()
    pd.testing.assert_frame_equal(error.crossings(renamed), found)


def test_polynomials_stand_at_their_own_price(small):
    row = FIGURES["price"].compute(dataclasses.replace(small, inputs=small.inputs[:1], trials=1))
    row = row[(row.method == "taylor(degree=2)") & (row.metric == "stored")]
    assert row.value.tolist() == [2.0 * 10 * 9 // 2]  # C(d + 2, 2), both sides of n = l


def test_profiles_and_heads_of_a_file():
    small = profile("quick", seed=3)
    assert [x.name for x in small.inputs[1:]] == ["MiniLM easy", "MiniLM middling", "MiniLM hard"]
    assert all(x.n == 128 for x in small.inputs)
    assert (small.budget, small.currency) == (32.0, "stored")
    reads = profile("quick", currency="reads")
    assert (reads.budget, reads.currency) == (32 * (32 + 32), "reads")  # 32 keys of MiniLM
    refuses("profile must be one of ", profile, "huge")
    refuses("budget must be finite and > 0", profile, "quick", budget=-1)
    q = np.ones((1, 9, 4, 2)) * np.arange(9)[None, :, None, None]  # range of head h grows as h
    k = np.tile([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]], (1, 9, 1, 1))
    many = inputs.Heads("file", q[0], k[0], ids=tuple((0, head, f"0.{head}") for head in range(9)))
    assert [x.head for x in quartiles(many)] == [2, 4, 6]


def test_pictures_of_attention_hold_all_of_it_with_its_errors(tables, small):
    table, errors = tables["explore"], small.sweep(explore.SPECS, budget=small.budget)
    keys = ["input", "temperature", "method", "metric"]
    swept = errors[errors.trial <= 0].set_index(keys).value  # the first draw, or the only one
    stated = table[table.metric.isin(explore.ERRORS)].set_index(keys).value
    assert len(stated) == 2 * 3 * 2 * len(explore.SPECS)  # inputs, temperatures, metrics
    # a sweep divides one Q Kᵀ by t: logits of some tens move by roundings
    np.testing.assert_allclose(stated, swept[stated.index], rtol=1e-11)
    pixels = table[(table.metric == explore.WEIGHTS) & (table.name == "exact")]
    assert pixels["query"].nunique() == 48  # every one: there are fewer than pixels
    weights = pixels[list(explore.PIXELS)].dropna(axis=1).to_numpy()
    assert weights.shape[1] == 48
    # each to three digits: relative error 5e-3 at most
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=5e-3)


def test_each_panel_is_the_figure_of_its_temperature(tables):
    table, places = tables["explore"], []
    for t, panel in explore.panels(table):
        alone = explore.draw(table[table.temperature == t])
        assert panel.texts[0].get_text() == alone.texts[0].get_text()
        for ax, own in zip(panel.axes, alone.axes, strict=True):
            assert ax.get_title() == own.get_title()
            for image, same in zip(ax.images, own.images, strict=True):
                np.testing.assert_array_equal(image.get_array(), same.get_array())
        places.append(t)
    assert places == [0.25, 1, 8]


def test_pictures_of_long_sequences_and_without_estimates(small):
    groups = explore._groups(130)
    assert groups.shape == (130, 44)  # by threes, the last one alone
    assert set(groups.sum(axis=0)[:-1]) == {3.0}
    assert (groups.sum(axis=1) == 1).all()
    rows = explore._picture((), np.ones((130, 44)))
    assert [row[1] for row in rows] == list(range(0, 130, 3))
    table = explore.compute(dataclasses.replace(small, budget=0.5))
    assert len([ax for ax in explore.draw(table).axes if ax.get_title()]) == 1
    assert explore.finding(table) == "No estimate fits the budget."


def test_panels_of_an_earlier_run_are_removed(tables, tmp_path):
    table, place = tables["explore"], tmp_path / "figures" / "explore"
    table = table[table.name.isin(["exact", "Performer"]) & (table.input == "gaussian")]
    save("explore", table[table.temperature < 8], tmp_path, ())
    first = (place / "t=1.svg").read_bytes()
    assert f"<title>{FIGURES['explore'].TITLE}, t = 1</title>".encode() in first
    assert sorted(path.name for path in place.iterdir()) == ["t=0.25.svg", "t=1.svg"]
    save("explore", table[table.temperature > 0.25], tmp_path, ())
    assert sorted(path.name for path in place.iterdir()) == ["t=1.svg", "t=8.svg"]
    assert (place / "t=1.svg").read_bytes() == first


@pytest.mark.filterwarnings("error")
def test_names_of_inputs_are_drawn_as_they_are(tables, tmp_path):
    """Chinese in the font of this project, an emoji as a box; without them the same bytes."""
    table = tables["rank"]
    name = "最终 \N{PILL} {b} $e^x$ "
    named = table.assign(input=name + table.input.astype(str))
    pdf = save("rank", named, tmp_path, ("pdf",))[1].read_bytes()
    assert FAMILY.replace(" ", "").encode() in pdf
    drawn = FIGURES["rank"].draw(style.drawable(named, style.NAME))
    titles = [ax.get_title() for ax in drawn.axes[: named.input.nunique()]]
    assert titles == [ends(one, style.NAME).replace("$", r"\$") for one in named.input.unique()]
    said = wording("moments", tables["moments"].assign(input=name))
    assert f" {name} " in said.replace(r"\$", "$")
    plain = save("rank", table, tmp_path / "plain", ("pdf",))[1].read_bytes()
    assert FAMILY.replace(" ", "").encode() not in plain


def test_names_of_inputs_stay_apart(tables, tmp_path):
    table = tables["error"][tables["error"].input == "gaussian"]
    for name in ("1.10", "NA", "nan"):
        style.save_table("error", table.assign(input=name), tmp_path)
        assert set(saved("error", tmp_path).input) == {name}
    table = pd.DataFrame({"input": ["the first half 1 of it", "the first half 2 of it"]})
    assert style.drawable(table, 12).equals(table)


def test_what_a_figure_shows_is_written_as_plain_text(tmp_path):
    """Captions are pandoc's Markdown, for the report; a .txt is read as it is."""
    figure, _ = style.panels(1, 1)
    said = r"above 10^4.5^, at $|z|$ ≤ $10^{-2}$ on \$x\$"
    written = style.save("x", pd.DataFrame({"a": [1]}), figure, tmp_path, ("svg",), said)
    text = next(path for path in written if path.suffix == ".txt").read_text("utf-8")
    assert text == "above 10^4.5, at |z| ≤ 10^-2 on $x$\n"


@pytest.mark.parametrize("best", explore.SPECS.values())
def test_no_sentence_calls_nearest_what_another_picture_is_nearer_than(best, tables):
    """Each picture in turn has the least tv, or as little as another that prints the same."""
    table, module = tables["explore"], FIGURES["explore"]
    tv = table.metric == "attention_tv"
    table = table.assign(value=table.value.where(~(tv & (table.name == best)), 1e-9))
    assert f", {best} has the least total variation, 1e-09;" in module.finding(table)
    alike = table.assign(value=table.value.where(~tv, 0.5))
    assert f"{' or '.join(explore.SPECS.values())} has the least" in module.finding(alike)


def test_a_legend_names_a_method_once_and_says_that_a_decomposition_sees_all_logits():
    one = Profile("quick", (inputs.gaussian(32, 2, rng=0),), (1.0,), 4.0, trials=1, draws=2)
    figure = FIGURES["error"].draw(FIGURES["error"].compute(one))
    texts = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    names = [" ".join(text.split()) for text in texts]
    assert len({*names}) == len(names)
    assert "largest entries of the matrix (sees all logits)" in names
