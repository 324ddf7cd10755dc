"""Legends say of a decomposition what is proved under the mask of their heads."""

import dataclasses

from analysis import inputs
from analysis.experiments.profile import Profile
from approx import Mask
from figures.gallery import FIGURES


def legend(figure):
    texts = [text for legend in figure.legends for text in legend.get_texts()]
    return [" ".join(text.get_text().split()) for text in texts]


def computed(name, x):
    return FIGURES[name].compute(Profile("quick", (x,), (1.0,), 4.0, trials=1, draws=2))


def test_a_truncated_svd_is_a_bound_without_a_mask_only():
    table = computed("error", inputs.gaussian(32, 2, rng=0))
    assert "truncated SVD: bound" in legend(FIGURES["error"].draw(table))
    for other in (table.assign(masked=True), table.drop(columns="masked")):
        assert "truncated SVD: best found" in legend(FIGURES["error"].draw(other))


def test_a_legend_names_a_method_once_and_claims_no_more_than_every_panel():
    figure = FIGURES["error"].draw(computed("error", inputs.gaussian(32, 2, rng=0)))
    names = legend(figure)
    assert len({name.partition(":")[0] for name in names}) == len(names)
    assert "largest entries of the matrix: bound" in names


def test_the_table_says_that_there_is_a_mask():
    x = dataclasses.replace(inputs.gaussian(32, 2, rng=0), mask=Mask.causal(32, 32))
    assert computed("error", x).masked.all()
