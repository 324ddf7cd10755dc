"""The figures whose tables a language model gave, as they are stored."""

import pytest
from drawing import MODELS, drawn_from_its_csv, numbers, speaks_chinese

from analysis import damage
from analysis.experiments.profile import profile
from figures.gallery import FIGURES


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    monkeypatch.setattr(
        damage, "RESAMPLES", 40
    )  # intervals take most of the time, and are not read


@pytest.mark.parametrize("name", MODELS)
def test_the_figure_is_that_of_its_csv_and_caption(name, tmp_path):
    table = FIGURES[name].compute(profile("quick"))
    drawn_from_its_csv(name, table, tmp_path)
    speaks_chinese(name, table)


def test_the_caption_of_damage_has_the_numbers_of_its_table():
    table = FIGURES["damage"].compute(profile("quick"))
    assert len(table) == table.groupby(["layer", "head"]).ngroups * table.method.nunique() == 1620
    said = numbers(FIGURES["damage"].caption(table))
    for name in ("fisher", "attention_tv", "projected_error"):
        assert said[f"{damage.spearman(table[name].to_numpy(), table.kl.to_numpy()):.2f}"]
    assert said[f"{table.kl.max():.2f}"]
    off = table[table.kl > 0.1]
    assert said[f"{(off.kl / off.fisher).max():.0f}"]
