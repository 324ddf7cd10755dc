"""Sizes by a rule: PyramidKV's line, AdaKV's threshold, and plans within a budget."""

import argparse
import math
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refuses
from test_substitute import saved
from tiny_models import with_torch

from analysis.inputs import Heads
from analysis.models.plan import Plan, misfits
from analysis.models.size_rules import RULES, adaptive, attention, pyramid, sized_plan, whole_sizes
from approx import Mask, parse
from approx.method.prices import Shape, price_at
from figures.command import plan as command
from figures.show import plans
from figures.words.translation import speaking


@pytest.mark.parametrize(("mean", "most"), [(16.0, 400.0), (16.0, 25.0), (16.0, 16.0), (0.0, 9.0)])
def test_a_pyramid_falls_in_equal_steps_and_keeps_its_mean(mean, most):
    found = pyramid(5, mean, most)
    last = mean / 20  # as the authors' min_num, beta 20
    first = 2 * mean - last
    if first >= most:
        first, last = most, 2 * mean - most
    want = [first - i * (first - last) / 4 for i in range(5)]
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-13)
    assert math.isclose(found.mean(), mean, abs_tol=1e-13)


def test_one_threshold_counts_the_keys_of_each_group_above_it():
    scores = np.random.default_rng(0).random((3, 20)) * [[1.0], [0.5], [0.1]]
    for mean in (1, 4, 9):
        level = sorted(scores.ravel())[-3 * mean]
        counts = [sum(x >= level for x in row) for row in scores]
        want = [0.8 * count + 0.2 * mean for count in counts]
        np.testing.assert_allclose(adaptive(scores, mean), want, rtol=1e-14)
        assert len(set(counts)) > 1
    alike = adaptive(np.ones((2, 6)), 3.0)  # of equal scores the first: a tie, not a half
    np.testing.assert_allclose(alike, [0.8 * 6 + 0.6, 0.6])


def test_whole_sizes_keep_the_sum():
    x = np.random.default_rng(0).uniform(0, 9, (7, 3))
    assert whole_sizes(x).sum() == round(x.sum())
    assert np.abs(whole_sizes(x) - x).max() < 1


def test_attention_is_snapkvs_score_in_the_mean_of_a_group():
    rng = np.random.default_rng(3)
    q, k, v = rng.standard_normal((4, 40, 3)), *rng.standard_normal((2, 2, 40, 3))
    ids = tuple((0, i, "") for i in range(4))
    heads = Heads("h", q, k, v, mask="causal", ids=ids)
    template = parse("columns(by='h2o', sinks=2, recent=5, block=2)")
    found = attention(SimpleNamespace(inputs=lambda layer: heads), 0, template)
    for group in range(2):
        want = np.zeros(40)
        for head in (2 * group, 2 * group + 1):
            x = heads.at(0, head)
            got = np.zeros(40)
            for i in range(8, 40):  # the last 32 queries
                p = np.exp(x.Q[i] @ x.K[: i + 1].T)
                got[: i + 1] += p / p.sum()
            got[:2], got[35:] = 0, 0
            pooled = [got[max(j - 2, 0) : j + 3].sum() / 5 for j in range(40)]
            want += [x if 2 <= j < 35 else 0 for j, x in enumerate(pooled)]
        np.testing.assert_allclose(found[group], want / 2, rtol=1e-12)


def test_the_command_sizes_its_one_method_and_none_beside_it(monkeypatch):
    parser = argparse.ArgumentParser()
    command.add(parser)
    asked = ["model", "text", "--sizes", "ada", "--method", "h2o", "--budget", "900"]
    monkeypatch.setattr(command, "sized_plan", lambda *_, **named: named["method"])
    assert command._sized(parser.parse_args(asked)) == parse("h2o")


@with_torch
def test_a_rule_spends_its_budget_and_no_more(tmp_path):
    model, text = saved(tmp_path, num_hidden_layers=4)
    shape = Shape(90, 90, 8, 8, Mask.causal(90, 90), group=2)
    made, asked = {}, {"method": parse("h2o(recent=2)"), "budget": 900.0, "jobs": 1}
    for rule in RULES:
        plan = made[rule] = sized_plan(model, text, rule=rule, **asked)
        sizes = np.array([plan.heads[i, j].k for i in range(4) for j in (0, 2)]).reshape(4, 2)
        assert all(plan.heads[i, j] == plan.heads[i, j + 1] for i in range(4) for j in (0, 2))
        cost = np.mean(
            [price_at(parse(f"h2o(k={k}, recent=2)"), shape).bytes_read for k in sizes.ravel()]
        )
        assert plan.facts["price"] == plan.facts["bytes_read"] == cost <= 900
        assert [*plan.facts["text_sha256"]] == ["text.txt"]
        more = np.mean(
            [price_at(parse(f"h2o(k={k}, recent=2)"), shape).bytes_read for k in sizes.ravel() + 1]
        )
        assert more > 900  # a key more everywhere; a rule may spend a fraction of it
        assert misfits(Plan.from_json(plan.text()), model) == []
        assert plan.facts["kl"] > 0
        said = plans.sizes(plan)
        assert "heavy hitters (H2O) in every head" in " ".join(said.split())
        with speaking("zh"):
            assert "所有头都用" in plans.sizes(plan)
    uniform = asked["method"].within(900.0, **shape.given, currency="bytes_read")
    assert set(map(str, made["uniform"].heads.values())) == {str(uniform)}
    layers = [made["pyramid"].heads[i, 0].k for i in range(4)]
    assert layers == sorted(layers, reverse=True)
    assert layers[0] > layers[-1]
    ada = np.array([[made["ada"].heads[i, j].k for j in (0, 2)] for i in range(4)])
    assert (ada[:, 0] != ada[:, 1]).any()
    assert np.ptp(ada.sum(axis=1)) <= 2  # a layer's total but for rounding


@with_torch
def test_what_no_rule_can_size(tmp_path):
    model, text = saved(tmp_path)

    def made(spec, rule="ada", budget=900.0):
        return sized_plan(model, text, rule=rule, method=parse(spec), budget=budget)

    refuses("a template whose size counts keys", made, "h2o(k=20)")
    refuses("a template whose size counts keys", made, "performer")
    refuses("ada is a rule for columns", made, "sink_window")
    refuses("no model can run columns.*hides", made, "snapkv")
    refuses("the smallest sizes cost .* raise the budget", made, "h2o", budget=9.0)
    refuses("rule must be one of", made, "h2o", rule="adakv")
