"""Legends say of a decomposition that it sees all logits."""

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


def test_a_legend_names_a_method_once():
    figure = FIGURES["error"].draw(computed("error", inputs.gaussian(32, 2, rng=0)))
    names = legend(figure)
    assert len({*names}) == len(names)
    assert "largest entries of the matrix (sees all logits)" in names


def test_the_table_says_that_there_is_a_mask():
    x = dataclasses.replace(inputs.gaussian(32, 2, rng=0), mask=Mask.causal(32, 32))
    assert computed("error", x).masked.all()
