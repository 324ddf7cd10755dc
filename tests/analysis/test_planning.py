"""How a plan is made, in a tiny language model; `make lm` runs what needs torch."""

import pytest
from test_substitute import build, passage, with_torch

from analysis import damage, planning
from analysis.allocation import allocate
from analysis.curves import curves
from analysis.passage import Passage
from analysis.plan import Plan
from approx import parse
from figures import planned
from figures.language import speaking

FACTS = {
    "budget": 64.0, "currency": "reads", "price": 60.0, "exact_price": 240.0, "exact_heads": 1,
    "chosen_on": ["a.txt"], "measured_on": "b.txt", "predicted_kl": 0.125,
    "least_predicted_kl": 0.1, "kl": 0.25, "kl_stderr": 0.03125, "same_top_1": 0.75,
    "perplexity": 12.5, "exact_perplexity": 10.0,
}  # fmt: skip


def test_a_plan_in_words():
    frontier = [{**FACTS, "price": 30.0, "kl": None, "kl_stderr": None, "perplexity": None}, FACTS]
    heads = {(0, 0): parse("sink_window(k=4)"), (0, 1): parse("sink_window(k=8)")}
    plan = Plan("tiny", heads, FACTS | {"frontier": frontier})
    assert Plan.of(plan.text()) == plan
    said = planned.text(plan)
    assert "2 heads: sink and window\n1 heads: exact attention" in said
    assert "30     0.125         ∞            75%   ∞" in said
    assert "60     0.125         0.25 ±0.031  75%   12.5" in said
    words = " ".join(said.split())
    assert "25.0% of exact attention. On b.txt the model moves by a KL of 0.25" in words
    assert "understated" not in said
    again = planned.text(Plan("tiny", heads, plan.facts | {"measured_on": "a.txt"}))
    assert "understated" in again
    assert "nothing has to be approximated" not in words
    rich = planned.text(Plan("tiny", heads, plan.facts | {"budget": 240.0}))
    assert "which costs 240 numbers read per new query: nothing has" in " ".join(rich.split())
    with speaking("zh"):
        assert "moves" not in planned.text(plan)


@with_torch
def test_curves_have_the_damage_that_single_heads_predict():
    p = passage(build())
    methods = [parse("sink_window()"), parse("positive(m=16)")]
    found = curves([p], 64.0, methods=methods, samples=2).set_index(["layer", "head", "method"])
    single = damage.singles(p, [parse("sink_window(k=4)"), methods[1]], heads=[(1, 2)], samples=2)
    (part,) = single
    for row in part.itertuples():
        assert found.damage[1, 2, row.method] == pytest.approx(row.fisher, rel=1e-9)
    assert found.price[1, 2, "sink_window(k=4)"] == 4 * 16
    assert (found.damage.xs("exact()", level="method") == 0).all()
    assert found.price.xs("exact()", level="method").eq(90 * 16).all()
    two = curves([p, p], 64.0, methods=methods[:1], samples=2)
    assert two.damage.tolist() == found.damage.xs("sink_window(k=4)", level="method").tolist() or (
        two.set_index(["layer", "head", "method"]).damage[1, 2, "sink_window(k=4)"]
        == pytest.approx(found.damage[1, 2, "sink_window(k=4)"])
    )


@with_torch
def test_passages_of_one_length_only():
    p = passage(build())
    other = Passage(p.model, p.ids[:60], skip=16)
    with pytest.raises(ValueError, match=r"must have one length.*got \[60, 90\]"):
        curves([p, other], 64.0, methods=[parse("sink_window()")], samples=1)


@with_torch
def test_more_price_buys_less_damage_and_in_the_end_the_model_itself():
    p = passage(build())
    found = curves([p], 128.0, methods=[parse("sink_window()")], samples=2)
    measured = [planning.measured(p, allocate(found, price)) for price in (16.0, 128.0, 1440.0)]
    predicted = [one["predicted_kl"] for one in measured]
    assert sorted(predicted, reverse=True) == predicted
    assert measured[0]["kl"] > measured[1]["kl"] > measured[2]["kl"]
    assert measured[2]["exact_heads"] == 12
    assert measured[2]["kl"] == 0.0
    one = allocate(found, 128.0)
    kl = p.replace(planning.heads(one.chosen)).kl.mean()
    assert measured[1]["kl"] == kl


@with_torch
@pytest.mark.parametrize("spec", ["top_k()", "nystromformer()", "linformer(rank=2)"])
def test_what_no_model_can_run_is_refused(spec):
    with pytest.raises(ValueError, match=r"no model can run .*: leave it out"):
        curves([passage(build())], 64.0, methods=[parse(spec)])
