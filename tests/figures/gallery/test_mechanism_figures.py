"""Figures of attention itself: what their tables must satisfy."""

import dataclasses
import math

import pytest

from analysis import inputs
from analysis.experiments.profile import Profile
from figures.gallery import FIGURES, jacobian, position_rank

NAMES = ("position_rank", "length", "jacobian", "break_even")


@pytest.fixture(scope="module")
def small():
    head = next(iter(inputs.sample().heads()))
    real = dataclasses.replace(head, q=head.q[:64], k=head.k[:64], v=head.v[:64])
    return Profile("small", (real,), (0.5, 2.0), 32.0, trials=2, draws=60)


@pytest.fixture(scope="module")
def tables(small):
    return {name: FIGURES[name].compute(small) for name in NAMES}


def test_positions_at_the_logits_reach_their_bound(tables):
    table = tables["position_rank"]
    at = table[table["where"] == "logits"].pivot_table(
        index="d_p", columns="metric", values="value", aggfunc="min"
    ).loc[list(position_rank.WIDTHS)]  # fmt: skip
    assert (at["logits"] == at["bound"]).all()
    assert (at["construction"] == at["bound"]).all()
    at_input = table[(table["where"] == "input") & (table.metric == "logits")]
    assert (at_input.value == position_rank.D_H).all()


def test_the_deficit_of_entropy_is_that_predicted(tables):
    wide = tables["length"].pivot_table(
        index=["scale", "n"], columns="metric", values=["value", "stderr"]
    )
    made = wide.drop("temperature")
    off = (made["value", "entropy"] - made["value", "predicted_entropy"]).abs()
    n = made.index.get_level_values("n")
    # the finite-n bias of log Σe^x is of order e^{β²}/n; β ≤ log 2048/log 512 = 1.22
    assert (off < 5 * made["stderr", "entropy"] + 4 * math.exp(1.5) / n).all()


def test_without_the_root_of_d_the_curve_is_shifted_by_it(tables):
    table = tables["jacobian"]
    at = table[table.metric == "jacobian_norm"].set_index(
        ["input", "scaled", "d", "temperature"]
    ).value.sort_index()  # fmt: skip
    for d in jacobian.WIDTHS:
        for t in jacobian.TEMPERATURES:
            if t / math.sqrt(d) >= min(jacobian.TEMPERATURES):
                assert at["gaussian", False, d, t] == at["gaussian", True, d, t / math.sqrt(d)]


def test_a_ratio_is_one_at_the_break_even_length(tables):
    table = tables["break_even"]
    for _, part in table[table.metric != "of_size"].groupby("kind"):
        n = part[part.metric == "break_even"].value.iloc[0]
        ratios = part[part.metric == "ratio"]
        assert (ratios[ratios.n >= n].value < 1).all()
        assert (ratios[ratios.n < n].value >= 1).all()
