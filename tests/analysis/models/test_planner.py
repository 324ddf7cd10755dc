"""How a plan is made, in a tiny language model; `make lm` runs what needs torch."""

import pickle
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from each import each
from refusals import refuses
from test_substitute import IDS, passage, saved
from tiny_models import build, with_torch

from analysis.costs.allocation import allocate, hull
from analysis.models import cost_curves, planner, retrieval, sensitivity
from analysis.models.cost_curves import curves, runnable_methods
from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan
from analysis.models.planner import plan as plan_of
from analysis.models.replacement import Passage
from approx import parse
from approx.method.prices import price_at
from figures.show import plans
from figures.words.translation import speaking

HELD = {"bytes": 128.0, "memory": {"4096": 1e6, "32768": 2e6, "131072": 4e6}}
FACTS = HELD | {
    "budget": 64.0, "currency": "reads", "price": 60.0, "exact_price": 240.0, "exact_heads": 1,
    "bytes_read": 120.0, "group": 2,
    "chosen_on": ["a.txt"], "measured_on": "b.txt", "predicted_kl": 0.125,
    "least_predicted_kl": 0.1, "kl": 0.25, "kl_stderr": 0.03125, "same_top_1": 0.75,
    "perplexity": 12.5, "exact_perplexity": 10.0, "tokens": 200,
}  # fmt: skip


def test_a_plan_in_words():
    unknown = {"price": 30.0, "bytes_read": 60.0, "kl": None, "kl_stderr": None}
    frontier = [{**FACTS, **unknown, "perplexity": None}, FACTS]
    singles = [
        FACTS | {"method": "sink_window(k=4)", "bytes_read": 64.0, "kl": 0.5},
        HELD | {"method": "sink_window(k=8)", "bytes_read": 128.0, "predicted_kl": 0.3},
        FACTS | {"method": "exact()", "bytes_read": 480.0, "kl": 0.0, "kl_stderr": 0.0},
    ]
    heads = {(0, 0): parse("sink_window(k=4)"), (0, 1): parse("sink_window(k=8)")}
    plan = Plan("tiny", heads, FACTS | {"frontier": frontier, "singles": singles})
    assert Plan.from_json(plan.text()) == plan
    said = plans.text(plan)
    assert "2 heads: sink and window\n1 heads: exact attention" in said
    words = " ".join(said.split())
    assert words.startswith("If bandwidth is scarce: the plan at 60. Of the measured choices that ")
    assert "the plan at 30 60 12.5% 128 0.125 ∞ 75% 1 2 4" in words
    assert "sink and window (sink_window(k=4)) * 64 13.3% 128 0.125 0.5 ±0.031 75% 1 2 4" in words
    assert "exact attention * 480 100.0% 128 0.125 0 75% 1 2 4" in words
    assert "k=8)) *" not in words
    assert "Further single methods in the plan's file: 1." in words
    assert "25.0% of exact attention. On b.txt the model moves by a KL of 0.25" in words
    assert "its perplexity on tokens 66…200 goes from 10 to 12.5." in words
    assert "understated" not in said
    again = plans.text(Plan("tiny", heads, plan.facts | {"measured_on": "a.txt"}))
    assert "understated" in again
    assert "nothing to approximate" not in words
    rich = plans.text(Plan("tiny", heads, plan.facts | {"budget": 240.0}))
    assert "which costs 240 numbers read per new query, so there is nothing" in " ".join(
        rich.split()
    )
    with speaking("zh"):
        assert "moves" not in plans.text(plan)


ROUNDS = [
    {"aim": 0.25, "price": 40.0, "predicted_kl": 0.24, "kl": 0.5},
    {"aim": 0.125, "price": 60.0, "predicted_kl": 0.125, "kl": 0.23},
]


@each("kl, rounds, said", [
    (0.25, ROUNDS, "0.23, at most the target of 0.25: in round 2 of 2 a prediction of 0.125"),
    (0.25, ROUNDS, "not used for choosing, the KL is 1.00 times the target"),
    (0.375, ROUNDS, "not used for choosing, the KL is 1.50 times the target"),
    (None, ROUNDS, "not used for choosing, the KL is ∞ times the target"),
    (0.375, [ROUNDS[1] | {"kl": 0.26}], "of 0.25, in 1 rounds. The nearest is 0.26"),
])  # fmt: skip
def test_what_is_said_of_a_target(kl, rounds, said):
    facts = {name: value for name, value in FACTS.items() if name != "budget"}
    facts |= {"kl": kl, "target_kl": 0.25, "rounds": rounds, "frontier": [FACTS], "singles": []}
    plan = Plan("tiny", {(0, 0): parse("sink_window(k=4)")}, facts)
    assert said in " ".join(plans.text(plan).split())
    with speaking("zh"):
        assert "target" not in plans.text(plan)


class Doubled:
    """A passage that is moved by twice, and a bit, what the curves predict, as damages add up."""

    def __init__(self, table, factor):
        self.table, self.factor, self.runs = table, factor, 0

    def replace(self, heads):
        self.runs += 1
        rows = self.table.set_index(["layer", "head", "method"])
        sum_ = sum(rows.damage[i, j, str(method)] for (i, j), method in heads.items())
        return SimpleNamespace(kl=np.array([0.0, 2.0]) * self.factor * sum_)


def made_up():
    keys = 2.0 ** np.arange(1, 9)
    rows = [
        {"layer": 0, "head": head, "heads": 1, "method": f"sink_window(k={k:g})", "price": k,
         "damage": (head + 1) / k}
        for head in range(20) for k in keys
    ]  # fmt: skip
    exact = [{"layer": 0, "head": h, "heads": 1, "method": "exact()", "price": 1e3, "damage": 0.0}
             for h in range(20)]  # fmt: skip
    return pd.DataFrame(rows + exact)


def test_a_target_is_met_by_what_is_measured():
    table = made_up()
    text, other = Doubled(table, 3.0), Doubled(table, 1.0)
    some, rounds = planner.aimed([text, other], table, 2.0)
    assert rounds[0]["predicted_kl"] <= rounds[0]["aim"] == 2.0
    assert rounds[0]["kl"] == pytest.approx(2 * rounds[0]["predicted_kl"])
    assert rounds[1]["aim"] == pytest.approx(2 * 2 / rounds[0]["kl"])
    mine = next(one for one in rounds if one["price"] == some.price)
    assert 0.9 * 2 <= mine["kl"] <= 2
    assert mine["kl"] == pytest.approx(2 * some.damage)
    assert text.runs == len(rounds) == 2
    # a prediction that is right is not corrected, one too large is used up, and none is tried twice
    assert len(planner.aimed([other], table, 2.0)[1]) == 1
    some, rounds = planner.aimed([Doubled(table, 0.25)], table, 1.0)
    assert rounds[-1]["kl"] > 0.9
    assert some.price < rounds[0]["price"]
    assert len(planner.aimed([Doubled(table, 1e-9)], table, 1e3)[1]) == 1
    # what no round meets: the least damage that was measured
    some, rounds = planner.aimed([Doubled(table, 1e3)], table, 4.0)
    assert len(rounds) == planner.ROUNDS
    assert some.price == rounds[-1]["price"] < 1e3
    assert rounds[-1]["kl"] > 4.0
    # an early round that meets it stays the choice where no later one does
    kls = iter([0.5, 1.6, 0.8, 1.5])
    uneven = SimpleNamespace(replace=lambda heads: SimpleNamespace(kl=np.array([next(kls)])))
    some, rounds = planner.aimed([uneven], table, 1.0)
    met = [one["price"] for one in rounds if one["kl"] in (0.5, 0.8)]
    assert some.price == min(met) < max(met)
    more = SimpleNamespace(replace=lambda heads: SimpleNamespace(kl=np.array([2.0])))
    assert len(planner.aimed([more], table.assign(damage=0.0), 1.0)[1]) == 1  # predicted: none
    endless = SimpleNamespace(replace=lambda heads: SimpleNamespace(kl=np.array([1.0, np.inf])))
    some, rounds = planner.aimed([endless], table, 1.0)
    assert [one["kl"] for one in rounds] == [None] * planner.ROUNDS


def test_a_plan_is_for_a_budget_or_for_a_kl():
    for asked in ({}, {"budget": 1.0, "kl": 1.0}):
        refuses("for a budget or for a KL: give one of them", plan_of, "model", "text", **asked)
    refuses("kl must be", plan_of, "model", "text", kl=0.0)


@with_torch
def test_curves_have_the_damage_that_single_heads_predict():
    p = passage(build())
    methods = [parse("sink_window()"), parse("positive(m=16)")]
    found = curves([p], 64.0, currency="reads", methods=methods, samples=2)
    found = found.set_index(["layer", "head", "method"])
    assert sorted({where[:2] for where in found.index}) == [
        (i, j) for i in range(3) for j in (0, 2)
    ]
    assert (found.heads == 2).all()
    drawn = sensitivity.gradients(p, 2)
    for method in (parse("sink_window(k=4)"), methods[1]):  # of a group: the sum over its heads
        predicted = 0.0
        for head in (2, 3):
            x = p.inputs(1).at(1, head)
            change = sensitivity.moved(x, x.approximate(method, rng=p.draws(1, head)))
            predicted += sensitivity.fisher(change, [g[1][head] for g in drawn]) / len(p.positions)
        assert found.damage[1, 2, str(method)] == pytest.approx(predicted, rel=1e-9)
    assert found.price[1, 2, "sink_window(k=4)"] == 4 * 16  # which its heads share
    assert found.price[1, 2, "positive(m=16)"] == price_at(methods[1], p.shapes[1]).reads
    assert (found.damage.xs("exact()", level="method") == 0).all()
    assert found.price.xs("exact()", level="method").eq(90 * 16).all()
    two = curves([p, p], 64.0, currency="reads", methods=methods[:1], samples=2)
    two = two.set_index(["layer", "head", "method"]).damage
    assert two[1, 2, "sink_window(k=4)"] == pytest.approx(found.damage[1, 2, "sink_window(k=4)"])


@with_torch
def test_curves_are_the_same_from_processes_and_from_threads_that_share_a_model(monkeypatch):
    methods = [parse("sink_window()"), parse("positive()")]
    alone = curves([passage(build(), jobs=1)], 64.0, methods=methods)
    two = passage(build(), jobs=2)
    for entries in (0.0, cost_curves.HERE):  # in processes, and in threads of this one
        monkeypatch.setattr(cost_curves, "HERE", entries)
        pd.testing.assert_frame_equal(curves([two], 64.0, methods=methods), alone, check_exact=True)
    choices = [two.everywhere(method) for method in (parse("sink_window(k=4)"), parse("uniform()"))]
    expected = [two.replace(some).kl for some in choices]
    with ThreadPoolExecutor(4) as threads:
        told = threads.map(lambda i: two.replace(choices[i % 2]).kl, range(8))
    for i, kl in enumerate(told):
        np.testing.assert_array_equal(kl, expected[i % 2])


@with_torch
def test_a_model_travels_without_the_hooks_of_a_pass():
    """A worker that joins a cluster gets the model from one that is in the middle of a pass."""
    p = passage(build(), jobs=1)
    model = p.model
    assert sys.getsizeof(p) > sum(x.nbytes for x in (*p.states, *model.model.parameters()))
    inside, go_on = threading.Event(), threading.Event()

    def attention(call):
        inside.set()
        assert go_on.wait(60)
        return call.output()

    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(model.states, IDS, attention)
        assert inside.wait(60)
        sent = threads.submit(pickle.dumps, model)
        time.sleep(0.3)
        assert not sent.done()
        go_on.set()
        other = pickle.loads(sent.result())
        expected = running.result()
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in other.model.modules())
    assert other.model.config._attn_implementation == model.model.config._attn_implementation
    assert (other.states(IDS) == expected).all()


@with_torch
def test_a_size_is_on_no_hull_if_it_is_left_out_and_not_far_better_than_a_larger_one(monkeypatch):
    p = passage(build())
    methods = [parse(s) for s in ("sink_window()", "columns(by='h2o', recent=4)")]
    asked = {"methods": methods, "samples": 1, "currency": "reads"}
    found = curves([p], 64.0, **asked, screen=True)
    assert len(curves([p, p], 64.0, **asked, screen=True)) > len(found)
    monkeypatch.setattr(cost_curves, "LEAST_DAMAGE", 0.0)  # every size may be useful
    whole = curves([p], 64.0, **asked)
    both = whole.merge(found, how="left", indicator=True)
    both["kept"], both["kind"] = both._merge == "both", both.method.str.split("(").str[0]
    assert both.kept.sum() == len(found)
    for _, part in both.groupby(["layer", "head"]):
        for row in part.iloc[hull(part.price.to_numpy(), part.damage.to_numpy())].itertuples():
            larger = part[(part.kind == row.kind) & (part.price > row.price) & part.kept]
            assert row.kept or row.damage < 0.7 * larger.damage.max()


@with_torch
def test_passages_of_one_length_only():
    p = passage(build())
    other = Passage(p.model, p.ids[:60], skip=16)
    with pytest.raises(ValueError, match=r"must have one length.*got \[60, 90\]"):
        curves([p, other], 64.0, methods=[parse("sink_window()")], samples=1)


@with_torch
def test_more_price_buys_less_damage_and_in_the_end_the_model_itself():
    p = passage(build())
    found = curves([p], 128.0, currency="reads", methods=[parse("sink_window()")], samples=2)
    choices = {price: allocate(found, price) for price in (16.0, 128.0, 1440.0)}
    outcomes = planner.measured(p, choices)
    measured = [planner.numbers(some, outcomes[price], p.shapes) for price, some in choices.items()]
    predicted = [one["predicted_kl"] for one in measured]
    assert sorted(predicted, reverse=True) == predicted
    assert measured[0]["kl"] > measured[1]["kl"] > measured[2]["kl"]
    assert measured[2]["exact_heads"] == 12
    assert measured[2]["kl"] == 0.0
    one = allocate(found, 128.0)
    kl = p.replace(planner.methods_by_head(one.chosen)).kl.mean()
    assert measured[1]["kl"] == kl
    # and the cheapest plan for a KL
    some, rounds = planner.aimed([p], found, 0.05)
    kl = p.replace(planner.methods_by_head(some.chosen)).kl.mean()
    assert kl <= 0.05
    assert kl in [one["kl"] for one in rounds]
    assert some.price < 1440


@with_torch
@pytest.mark.parametrize("spec", ["top_k()", "nystromformer()", "linformer(rank=2)"])
def test_what_no_model_can_run_is_refused(spec):
    with pytest.raises(ValueError, match=r"no model can run .*; leave it out"):
        curves([passage(build())], 64.0, methods=[parse(spec)])


def test_no_head_reads_more_channels_than_it_has():
    def channels(width):
        return [m.r for m in runnable_methods(None, "reads", width) if hasattr(m, "r")]

    assert channels(16) == [2, 4, 8, 16]
    assert channels(8) == [2, 4, 8]


@with_torch
def test_a_plan_starts_from_a_plan(tmp_path):
    folder, text = saved(tmp_path)
    asked = {"max_tokens": 90, "methods": [parse("sink_window()")], "jobs": 1, "currency": "reads"}
    first, second, third = (tmp_path / f"{name}.json" for name in "abc")

    def made(budget, path, **options):
        kept = path.with_name(f"{path.name}.heads")
        done = plan_of(folder, text, **asked | options, budget=budget, finished=kept)
        done.write(path)
        return done

    kept = made(64.0, first)
    # twice the budget: sizes of the old curves, and the two larger ones that these lack
    computed, moved = [], cost_curves.moved
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            cost_curves, "moved", lambda x, e, y: computed.append(e.nnz) or moved(x, e, y)
        )
        more = made(128.0, second, start=first)
        assert len(computed) == 12 * 2
        # and the choice, its curves and what was measured, once more
        computed.clear()
        again = made(64.0, third, start=second)
        assert not computed
    assert more.facts["started_from"] == "a.json"
    assert more.facts["predicted_kl"] < kept.facts["predicted_kl"]
    assert again.heads == kept.heads
    # a choice that the curves lack is one of its head's all the same
    good = parse("sink_window(k=63)")
    Plan(kept.model, {(0, 0): good}).write(first)
    shutil.rmtree(tmp_path / "a.json.heads")
    free = made(1440.0 / 6, tmp_path / "d.json", start=first, methods=[parse("sink_window(k=1)")])
    assert free.heads[0, 0] == good
    Plan("other", {}).write(first)
    with pytest.raises(ValueError, match=r"a\.json cannot be started from: the plan is for"):
        plan_of(folder, text, budget=64.0, start=first)


@with_torch
def test_a_fact_counts_beside_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(retrieval, "FACT", " w4 w5")
    monkeypatch.setattr(retrieval, "ANSWER", " w6 w7")
    folder, text = saved(tmp_path)
    asked = {"max_tokens": 80, "methods": [parse("sink_window()")], "budget": 64.0, "jobs": 1,
             "currency": "reads"}  # fmt: skip
    plain = plan_of(folder, text, **asked)
    some = {w: plan_of(folder, text, **asked, needle=w) for w in (1e-9, 1.0, 1e9)}
    assert some[1e-9].heads == plain.heads
    assert "needle" not in plain.facts
    facts = [plan.facts for plan in some.values()]
    assert [one["needle"]["weight"] for one in facts] == [1e-9, 1.0, 1e9]
    predicted = [one["needle"]["predicted_kl"] for one in facts]
    assert predicted[0] > max(predicted[1:])  # each is within one step of the least
    assert facts[0]["predicted_kl"] == pytest.approx(plain.facts["predicted_kl"])
    assert facts[0]["predicted_kl"] < facts[-1]["predicted_kl"]
    # the KL of the answer is that of the two texts, read anew
    model = LanguageModel.open(folder)
    kls = []
    for depth in planner.NEEDLES:
        fact = retrieval.Question(((depth, " w4 w5 w6 w7."),), " w4 w5", " w6 w7")
        ids, _, count = retrieval.prompt_with_facts(model, text.read_text(), 81, fact)
        p = Passage(model, ids, skip=len(ids) - count - 1, jobs=1)
        kls.append(p.replace(some[1.0].heads).kl[:-1].mean())
    # the logits of a text that is one token longer, in float32
    assert facts[1]["needle"]["kl"] == pytest.approx(np.mean(kls), rel=1e-4)
    said = " ".join(plans.text(some[1.0]).split())
    assert "which counts 1 times in the choice, the KL is" in said
    refuses("a KL says nothing of a fact", plan_of, folder, text, kl=0.1, needle=1.0)
    refuses("needle must be", plan_of, folder, text, budget=64.0, needle=-1.0)


@with_torch
def test_curves_with_a_choice_in_place(tmp_path):
    folder, text = saved(tmp_path)
    methods = [parse("sink_window()"), parse("columns(by='h2o', recent=2)")]
    asked = {"max_tokens": 90, "methods": methods, "jobs": 1, "budget": 48.0, "currency": "reads"}
    model = LanguageModel.open(folder)
    p = Passage(model, model.tokens(text, 90), skip=planner.SKIP, jobs=1)

    def look(some):
        return curves([p.with_heads(some)], 48.0, methods=methods, currency="reads", most=4.0)

    def chosen(*tables):
        damage = np.mean([table.damage for table in tables], axis=0)
        return planner.methods_by_head(allocate(tables[0].assign(damage=damage), 48.0).chosen)

    first = chosen(look({}))
    second = chosen(look(first))
    third = chosen(look(first), look(second))
    assert first != second != third  # so the test can fail
    found = plan_of(folder, text, **asked, in_place=1)
    assert found.heads == second
    assert found.facts["in_place"] == 1
    assert found.facts["kl"] == p.replace(second).kl.mean()
    assert plan_of(folder, text, **asked, in_place=2).heads == third
    found.write(tmp_path / "a.json")
    again = plan_of(folder, text, **asked, in_place=1, start=tmp_path / "a.json")
    assert again.heads == chosen(look(second))
