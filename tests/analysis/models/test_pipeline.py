"""A run over a model: what is kept and resumed; and, in `make lm`, one over a tiny model."""

import importlib.metadata
import itertools
import math
import os
import signal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from test_substitute import saved
from tiny_models import with_torch

from analysis.advice.verdict import KEEP, advice
from analysis.costs.allocation import single
from analysis.models import next_tokens, pipeline
from analysis.models.cost_curves import MOST, curves
from analysis.models.pipeline import ADVICE, Run, halves
from analysis.models.planner import allocated, beside, methods_by_head
from analysis.models.replacement import Passage, perplexity
from analysis.runs import tasks
from analysis.runs.store import Store
from analysis.sweeps.store import StoreError, SweepStore
from approx import Mask, parse
from approx.method.prices import Shape

ASKED = {
    "model": "tiny", "model_sha256": {"a.gguf": "12"}, "text": "t.txt", "text_sha256": "34",
    "held_out": None, "held_out_sha256": None, "tokens": 200, "budget": 64.0,
    "currency": "reads", "frontier": True, "diagnosed": True, "seed": 0, "code": "c0de",
    "version": "0", "torch": "2",
    "transformers": "4",
}  # fmt: skip
NOW = {"date": "2026-11-23"}
WINDOW, EXACT = "sink_window(k=4)", "exact()"


class Words:
    """A tokenizer whose token i is the word wi."""

    def decode(self, ids):
        return " ".join(f"w{i}" for i in ids)


def made_up(folder):
    """Return what a run over two layers of two heads finds whose numbers are made up."""
    tiny = SimpleNamespace(name="tiny", layers=2, heads=2, tokenizer=Words())
    store = Store(folder)
    begun = pipeline.beginning(store, ASKED, NOW)
    run = Run(tiny, np.arange(200), np.arange(200), store, ASKED, begun, 1)
    every = [(layer, head) for layer in range(2) for head in range(2)]
    told = pd.DataFrame(
        [
            dict.fromkeys(ADVICE, 1.0) | {
                "input": "tiny", "layer": layer, "head": head, "spec": spec, "budget": 64.0,
                "attention_tv": (0.125 if layer else 0.75) if spec == WINDOW else 0.875,
                "oracle": False, "runnable": True, "screened": True,
                "verdict": "use" if layer else KEEP, "winner": spec == WINDOW,
            }
            for layer, head in every
            for spec in ("uniform()", WINDOW)
        ]
    )  # fmt: skip
    rows = [
        (*where, 1, *option)
        for where in every
        for option in ((WINDOW, 64.0, 0.25 + where[0]), (EXACT, 3200.0, 0.0))
    ]
    found = pd.DataFrame(rows, columns=["layer", "head", "heads", "method", "price", "damage"])
    shapes = [Shape(200, 200, 8, 8, Mask.causal(200, 200))] * 2
    shares, alone = allocated(found, 64.0), beside(found, [64.0], "reads", shapes)
    tokens, kl = zip((5, 1.0), (6, 3.0), (7, 0.5), (150, 2.0), *[(150, 1.0)] * 124)
    read = pd.DataFrame({"position": range(64, 192), "kl": kl, "plan_token": tokens})
    read = read.assign(own_token=150, own_probability=0.5, plan_probability=0.25)
    kinds = {x: (some, read) for x, some in shares.items()}
    # half a nat more than the plan at one position of four
    kinds |= {x: (some, read.assign(kl=[1 + i % 4 // 3 for i in range(128)]))
              for x, some in alone.items()}  # fmt: skip
    measured = {
        name: {
            "numbers": {"kl": 2 * some.damage, "kl_stderr": None, "same_top_1": 0.75},
            "exact_perplexity": 10.0,
            "positions": positions,
        }
        for name, (some, positions) in kinds.items()
    }
    return run.assembled(told, found, shares, alone, measured, shapes, 64.0)


def test_results_follow_from_advice_curves_and_measurements(tmp_path):
    found = made_up(tmp_path)
    advised = advice(found.advice)
    assert [(one.layer, one.head, one.verdict) for one in advised] == [
        (0, 0, KEEP), (0, 1, KEEP), (1, 0, "use"), (1, 1, "use"),
    ]  # fmt: skip
    assert [one.attention_tv for one in advised] == [0.75, 0.75, 0.125, 0.125]
    assert [one.uniform.attention_tv for one in advised] == [0.875] * 4
    facts = found.plan.facts
    assert {str(method) for method in found.plan.heads.values()} == {WINDOW}
    assert facts["predicted_kl"] == 2 * 0.25 + 2 * 1.25  # of four heads that are replaced
    assert facts["kl"] == 2 * facts["predicted_kl"]
    assert facts["kl_stderr"] is None
    assert (facts["exact_perplexity"], facts["exact_price"]) == (10.0, 3200.0)
    assert facts["chosen_on"] == ["t.txt, first half"]
    assert [one["price"] for one in facts["frontier"]] == [64.0] * 3  # a quarter buys nothing
    assert (found.best, found.diagnosed) == (WINDOW, True)
    window, exact = facts["singles"]
    assert (window["method"], window["kl"], window["price"]) == (WINDOW, 6.0, 64.0)
    assert window["bytes_read"] == 2 * 64.0  # four keys and values of width 8
    assert (exact["method"], exact["kl"], exact["perplexity"]) == (EXACT, 0.0, 10.0)
    assert (found.differing, found.positions) == (3, 128)
    assert found.gain.mean == (31 + 0.0 - 2.0 + 0.5 - 0.0) / 128
    assert [change.position for change in found.changes] == [65, 64, 66]
    assert found.about["date"] == "2026-11-23"


@pytest.mark.parametrize(("changes", "message"), [
    ({"model": "other"}, "another model, tiny and not other"),
    ({"tokens": 300}, "another tokens, 200 and not 300"),
    ({"text_sha256": "35"}, "another text sha256, 34 and not 35"),
    ({"budget": None}, "another budget, 64.0 and not None"),
    ({"code": "c1"}, "another code, c0de and not c1"),
    ({"torch": "3"}, "another torch, 2 and not 3"),
])  # fmt: skip
def test_a_run_that_was_asked_something_else_is_refused(tmp_path, changes, message):
    for now in (NOW, {"date": "later"}):
        assert pipeline.beginning(Store(tmp_path), ASKED, now) == NOW
    with pytest.raises(StoreError, match=f"holds a run with {message}: use another folder"):
        pipeline.beginning(Store(tmp_path), ASKED | changes, NOW)
    SweepStore(tmp_path / "sweep").open(["a" * 64], seed=0)
    with pytest.raises(StoreError, match="holds a sweep"):
        pipeline.beginning(Store(tmp_path / "sweep"), ASKED, NOW)


def test_a_rival_has_the_least_size_that_every_group_has():
    shapes = [Shape(200, 200, 8, 8, Mask.causal(200, 200))]
    small, large = (f"columns(k={k}, by='h2o', recent=16)" for k in (22, 30))  # 3/2 and 2 × 512
    rows = [(0, head, 1, x, 900.0, 0.5) for head in (0, 1) for x in (large, EXACT)]
    rows.append((0, 0, 1, small, 700.0, 0.5))  # which screening left to one group
    columns = ["layer", "head", "heads", "method", "price", "damage"]
    found = beside(pd.DataFrame(rows, columns=columns), [512.0], "bytes_read", shapes)
    assert large in found
    assert small not in found


def test_best_single_method_is_found_by_trying_all():
    rng = np.random.default_rng(0)
    prices = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 9.0}
    rows = [(0, head, m, p, rng.random()) for head in range(3) for m, p in prices.items()]
    rows.append((0, 0, "e", 0.5, 0.0))  # which only one head has
    table = pd.DataFrame(rows, columns=["layer", "head", "method", "price", "damage"])
    assert single(table, 0.5) is None
    for budget in (1.0, 2.5, 10.0):
        cheap = [m for m, p in prices.items() if p <= budget]
        sums = {m: sum(row[4] for row in rows if row[2] == m) for m in cheap}
        found = single(table, budget)
        assert found.chosen.method.unique().tolist() == [min(sums, key=sums.get)]
        assert found.damage == pytest.approx(min(sums.values()), rel=1e-12)


def read(tokens, kl):
    """Return what a run keeps of next words, from position 10 on; the model's own is token 1."""
    table = pd.DataFrame({"kl": kl, "plan_token": tokens}, index=range(10, 10 + len(kl)))
    return table.assign(own_token=1.0, own_probability=0.5, plan_probability=0.25)


def test_examples_are_the_largest_the_middle_and_the_least_that_can_be_shown():
    said = {1: " own", 2: " plan", 3: "\N{REPLACEMENT CHARACTER}", 4: "\n", 7: "x"}

    def decode(ids):
        return "".join(said.get(i, "x") for i in ids)

    ids = np.full(17, 7)
    table = read([2.0, 2.0, 1.0, 3.0, 2.0, 4.0, 2.0], [1.0, 5.0, 9.0, 8.0, 3.0, 7.0, 6.0])
    found = next_tokens.changed(ids, table, decode)  # 12 is the same, 13 and 15 unshowable, 16 last
    assert [(one.position, one.kl) for one in found] == [(11, 5.0), (14, 3.0), (10, 1.0)]
    assert found[0] == next_tokens.Change(11, "x" * 12, "x", " own", 0.5, " plan", 0.25, 5.0)
    assert len(next_tokens.changed(ids, table[:1], decode)) == 1
    assert next_tokens.changed(ids, read([2.0], [math.nan]), decode) == []


def test_halves_part_at_a_blank_near_the_middle():
    assert halves("one two three four") == ("one two three", "four")
    assert halves("汉字" * 5) == ("汉字汉字汉", "字汉字汉字")
    first, second = halves("word " * 100)
    assert (first + " " + second).split() == ["word"] * 100


@pytest.fixture
def tiny(tmp_path):
    """Return a saved model of three layers of four heads, and a text of 500 tokens."""
    folder, text = saved(tmp_path, max_position_embeddings=256)
    ids = np.random.default_rng(2).integers(1, 50, 500)
    text.write_text(" ".join(f"w{i}" for i in ids), encoding="utf-8")
    return folder, text, tmp_path / "store"


@with_torch
def test_a_run_is_what_its_parts_are_one_by_one(tiny, monkeypatch):
    options = {"max_tokens": 192, "budget": 512.0, "jobs": 1, "diagnosed": True}
    run = Run.open(*tiny, **options)
    assert run.settings["code"] == tasks.CODE[:12]
    assert run.settings["torch"] == importlib.metadata.version("torch")
    put, names = Store.put, []

    def killed(self, name, outcome):
        put(self, name, outcome)
        names.append(name)
        if len(names) in (5, 16, 25):  # in the advice, in the curves, in the measurements
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "put", killed)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run.results()
        run = Run.open(*tiny, **options)
    found = run.results()
    facts = found.plan.facts
    made = [one for one in facts["singles"] if "kl" in one and one["method"] != EXACT]
    assert len(set(names)) == 12 + 6 + 1 + len(made)  # curves in two steps
    kept = {path: path.read_bytes() for path in run.store.folder.iterdir()}
    for path, text in kept.items():
        path.write_bytes(text[:-9] + bytes([text[-9] ^ 1]) + text[-8:])
    again = Run.open(*tiny, **options | {"jobs": 2}).results()
    assert {path: path.read_bytes() for path in kept} == kept
    assert again.plan == found.plan
    pd.testing.assert_frame_equal(again.advice, found.advice)

    words = halves(tiny[1].read_text("utf-8"))
    first, second = (Passage(run.model, run.model.tokens_of(part, 192), jobs=1) for part in words)
    table = curves([first], 512.0, screen=True, most=MOST)
    kl = second.replace(found.plan.heads).kl
    assert facts["kl"] == kl.mean()
    assert facts["exact_perplexity"] == perplexity(second.surprisal)
    best = single(table, 512.0)
    assert found.best == best.chosen.method.iloc[0]
    row = next(one for one in made if one["method"] == found.best)
    assert row["kl"] == second.replace(methods_by_head(best.chosen)).kl.mean()
    assert found.gain.mean == pytest.approx(row["kl"] - facts["kl"], rel=1e-9)
    assert methods_by_head(best.chosen) == second.everywhere(
        next(iter(methods_by_head(best.chosen).values()))
    )
    x = first.inputs(1).at(1, 2)
    one = next(a for a in advice(found.advice) if (a.layer, a.head) == (1, 2))
    assert one.attention_tv == pytest.approx(
        x.compare(x.approximate(parse(one.winner)))["attention_tv"], rel=1e-12
    )
    largest = found.changes[0]
    place = largest.position - second.skip
    state = second.replace(found.plan.heads).state
    logits = run.model.logits(second.ids, state, [largest.position])[0].double().softmax(0)
    assert largest.kl == kl[place]
    assert largest.plan == run.model.tokenizer.decode([int(logits.argmax())])
    assert largest.plan_probability == pytest.approx(logits.max().item(), rel=1e-6)  # float32
    with pytest.raises(StoreError, match=r"another budget, 512\.0 and not 128\.0"):
        Run.open(*tiny, **options | {"budget": 128.0})


@with_torch
@pytest.mark.parametrize(("words", "options", "message"), [
    (300, {}, "the text gives 150 tokens to choose a plan on and 150 to measure it on, and"),
    (0, {}, "the text gives 0 tokens to choose a plan on and 0 to measure"),
    (500, {"max_tokens": 191}, "max_tokens must be >= 192, got 191"),
    (500, {"budget": 0}, "budget must be"),
    (500, {"currency": "gold"}, "currency must be one of"),
])  # fmt: skip
def test_bad_input_is_one_line(tiny, words, options, message):
    tiny[1].write_text(" ".join(["w3"] * words), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        Run.open(*tiny, **options)
    assert "\n" not in str(caught.value)


@with_torch
def test_a_run_on_a_cluster_writes_the_same_bytes_though_a_worker_dies(tiny, request, tmp_path):
    folder, text, _ = tiny
    client = request.getfixturevalue("client")  # not where there is no torch
    for nanny in client.cluster.workers.values():
        nanny.auto_restart = False
    pids = sorted(client.run(os.getpid).values())
    assert len(pids) == 2
    options = {"max_tokens": 192, "budget": 64.0, "jobs": 1}
    alone = Run.open(folder, text, tmp_path / "alone", **options)
    alone.results()
    run = Run.open(folder, text, tmp_path / "cluster", **options, scheduler=client)
    put, calls = Store.put, itertools.count()

    def killing(self, name, outcome):
        put(self, name, outcome)
        if next(calls) == 2:
            os.kill(pids[0], signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "put", killing)
        run.results()
    names = sorted(path.name for path in alone.store.folder.iterdir())
    assert names == sorted(path.name for path in run.store.folder.iterdir())
    for name in names:
        one, other = (each.store.folder / name for each in (alone, run))
        assert one.read_bytes() == other.read_bytes()
