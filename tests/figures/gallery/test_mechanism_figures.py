"""Figures of attention itself: what their tables must satisfy."""

import dataclasses
import math

import numpy as np
import pytest

from analysis import inputs
from analysis.experiments import jacobian, position_rank
from analysis.experiments.profile import Profile
from approx import parse
from figures.drawing import style
from figures.gallery import FIGURES, mechanisms

NAMES = ("mechanisms", "position_rank", "length", "jacobian", "break_even")


@pytest.fixture(scope="module")
def small():
    head = next(iter(inputs.sample().heads()))
    real = dataclasses.replace(head, q=head.q[:64], k=head.k[:64], v=head.v[:64])
    return Profile("small", (real,), (0.5, 2.0), 32.0, trials=2, draws=60)


@pytest.fixture(scope="module")
def tables(small):
    return {name: FIGURES[name].compute(small) for name in NAMES}


def test_every_named_method_is_drawn_once_an_input(tables):
    wide = mechanisms.medians(tables["mechanisms"])
    assert len(wide) == len(mechanisms.SPECS)
    assert wide.name.nunique() == len(mechanisms.SPECS)  # every one has a label of its own
    assert not any("(m=" in name or name.endswith("()") for name in wide.name)
    assert (wide[wide.fits].values_per_row <= 64 / mechanisms.SHARE).all()
    assert set(wide[~wide.fits].name) >= {style.label("elu()"), "randomized attention"}
    assert np.isfinite(wide[mechanisms.ERROR]).all()


def test_what_no_causal_model_can_run_is_named_and_not_the_best(small):
    causal = dataclasses.replace(small.inputs[0].first(24), name="causal", mask="causal")
    both = dataclasses.replace(small, inputs=(small.inputs[0].first(24), causal), trials=1)
    table = mechanisms.compute(both)
    assert set(table[table.metric.isin([mechanisms.REFUSED, mechanisms.AHEAD])].input) == {"causal"}
    refused = table[table.metric == mechanisms.REFUSED].method.tolist()
    assert refused == [str(m) for m in map(parse, mechanisms.SPECS) if m.refusal is not None]
    assert "linformer()" in refused
    ahead = table[table.metric == mechanisms.AHEAD].method.unique()
    assert not any(parse(spec).autoregressive for spec in ahead)
    rest = table[(table.input == "causal") & (table.metric == mechanisms.ERROR)].method.unique()
    others = [parse(spec) for spec in rest if spec not in ahead]
    assert all(method.autoregressive or method.oracle for method in others)
    wide = mechanisms.medians(table)
    budgets = wide[wide.fits].groupby("input").budget.max() * mechanisms.SHARE
    assert dict(budgets) == {"causal": (24 + 1) / 2, small.inputs[0].name: 24.0}
    mechanisms.draw(table)


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
