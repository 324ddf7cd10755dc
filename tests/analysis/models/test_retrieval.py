"""Facts in a text, questions about them, and what models and methods find."""

import functools
import re

import numpy as np
import pandas as pd
import pytest
from each import each
from pandas.testing import assert_frame_equal
from refusals import refuses
from test_substitute import saved
from tiny_models import with_torch

from analysis.models import attach, detach, retrieval as module
from analysis.models.attention_hook import cache_name
from analysis.models.language_model import LanguageModel
from analysis.models.replacement import Passage
from analysis.models.retrieval import (
    DEPTHS,
    KINDS,
    LEVEL,
    Question,
    comparisons,
    draw_question,
    prompt_with_facts,
    retrieval,
)
from approx import parse

FILLER = " ".join(f"w{i % 50}" for i in range(90))
TEMPLATE = "{% for m in messages %}w1 w2 {{ m['content'] }} w3{% endfor %}"
TEMPLATE += "{% if add_generation_prompt %} w4 w5 {% endif %}"
TOLERANCE = 3 * 60 * 2.0**-23  # norms of three layers round to float32
COUNTS = {"needle": 1, "needles": 4, "chain": 2, "repeated": 2}  # numbers in the text


@each("kind", KINDS)
def test_one_fact_has_the_answer_at_its_depth_and_others_are_beside_it(kind):
    seen = set()
    for trial in range(20):
        for depth in DEPTHS:
            found = draw_question(kind, depth, trial, seed=3)
            answer, numbers = found.answer.strip(), {}
            for where, fact in found.facts:
                assert 0 <= where <= 1
                numbers |= dict.fromkeys(re.findall(r"\d{4}", fact), where)
            assert len(numbers) == COUNTS[kind]
            assert numbers[answer] == depth
            assert answer not in found.question
            name = re.search(r"the (\w+ \w+) (?:is|are)", found.question)[1]
            assert f"the {name}?" in found.request
            texts = [fact for _, fact in found.facts]
            beside = [fact for fact in texts if re.search(rf"\b{name}\b", fact, re.I)]
            if kind == "chain":  # the asked-for name refers to the name beside the number
                [refers], [says] = beside, [fact for fact in texts if answer in fact]
                other = re.search(r"as the (\w+ \w+)\.", refers)[1]
                assert f"of the {other} is" in says
                assert len(re.findall("same", " ".join(texts))) == 2
            elif kind == "repeated":
                assert beside == texts
                assert (set(numbers) - {answer}) == set(re.findall(r"\d{4}", found.question))
            else:
                [says] = beside
                assert answer in says
            seen.add((answer, name, tuple(texts)))
    assert len({answer for answer, *_ in seen}) == 20  # a draw for each trial
    assert (
        draw_question(kind, 0.5, 1, seed=3)
        == draw_question(kind, 0.5, 1, seed=3)
        != draw_question(kind, 0.5, 1, seed=4)
    )


def opened(tmp_path, template=None):
    folder, _ = saved(tmp_path)
    model = LanguageModel.open(folder, dtype="float64")
    model.tokenizer.chat_template = template
    return model


@with_torch
@each("chat", [False, True])
def test_facts_stand_at_their_depths_and_the_question_after_them(tmp_path, chat):
    model = opened(tmp_path, TEMPLATE)
    some = Question(
        ((1.0, " w40 w41"), (0.25, " w42"), (0.0, " w43")), " w44 w45", " w46 w47", "w48"
    )
    ids, text, count = prompt_with_facts(model, FILLER, 60, some, chat=chat)
    around = ["w1", "w2"], ["w48", "w3", "w4", "w5"]
    before, after = around if chat else ([], [])
    filler = [f"w{i % 50}" for i in range(60 - 8 - len(before) - len(after))]
    at = round(0.25 * len(filler))
    expected = [*before, "w43", *filler[:at], "w42", *filler[at:], "w40", "w41"]
    assert (len(ids), text, count) == (60, len(expected), 2)
    words = model.tokenizer.convert_ids_to_tokens(ids)
    assert words == [*expected, *after, "w44", "w45", "w46", "w47"]
    refuses(
        "give a longer one, or lower max_tokens", prompt_with_facts, model, "w1 w2 w3", 60, some
    )
    model.tokenizer.chat_template = None
    refuses(
        "model has no chat template: leave out chat",
        prompt_with_facts,
        model,
        FILLER,
        60,
        some,
        chat=True,
    )


def own_logits(model, ids):
    """Return the logits of transformers with the model's own attention."""
    import torch

    with torch.inference_mode():
        return model.model(torch.as_tensor(ids)[None]).logits[0].double().numpy()


def judged(model, ids, count, logits=None):
    """Return the log-probability of the last tokens and their worst rank, in NumPy alone."""
    logits = own_logits(model, ids) if logits is None else logits
    total, ranks = 0.0, []
    for place in range(len(ids) - count, len(ids)):
        row = logits[place - 1]
        total += row[ids[place]] - np.log(np.exp(row - row.max()).sum()) - row.max()
        ranks.append(np.argsort(-row).tolist().index(ids[place]) + 1)
    return total, max(ranks)


def likeliest(model, monkeypatch):
    """Ask for the two tokens that the model says itself at depth 0, and for others elsewhere."""

    def asking(kind, depth, trial=0, seed=0):
        facts = ((depth, f" w{30 + trial} w31"),)
        ids, _, _ = prompt_with_facts(model, FILLER, 60, Question(facts, " w30 w29", " w7 w8"))
        words = ["w7", "w8"]
        for i in range(2 if depth == 0 else 0):
            ids[58 + i] = own_logits(model, ids[: 58 + i])[-1].argmax()
            words[i] = model.tokenizer.convert_ids_to_tokens(int(ids[58 + i]))
        return Question(facts, " w30 w29", " " + " ".join(words))

    monkeypatch.setattr(module, "draw_question", asking)
    return asking


@with_torch
def test_answers_count_as_transformers_itself_would_and_unknown_ones_judge_nobody(
    tmp_path, monkeypatch
):
    model = opened(tmp_path)
    asking = likeliest(model, monkeypatch)
    choices = {
        "all": parse("exact()"),
        "few": parse("sink_window()"),
        "one": parse("sliding_window(width=1)"),
    }
    call = functools.partial(
        retrieval, model, FILLER, choices, kinds=["needle"], tokens=[60], depths=[0.0, 1.0],
        trials=2, budget=2 * 2 * 16 * 8.0, finished=tmp_path / "kept",
    )  # fmt: skip
    found = call()
    with pytest.MonkeyPatch.context() as patch:  # a stopped call goes on: nothing is left to do
        patch.setattr(Passage, "replace", None)
        assert_frame_equal(call(), found, check_exact=True)
    exact = found[found.method == "exact"]
    assert [*zip(exact.depth, exact.trial)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row in exact.itertuples():
        ids, _, count = prompt_with_facts(model, FILLER, 60, asking("needle", row.depth, row.trial))
        total, rank = judged(model, ids, count)
        assert row.log_probability == pytest.approx(total, abs=TOLERANCE)
        assert row.rank == rank
        assert (rank == 1) == (row.depth == 0)
    others = found[found.method != "exact"]
    assert set(others.depth) == {0.0}
    assert [*others.method[:4]] == ["all", "few", "one", "top_k()"]
    wide = found[found.depth == 0].pivot(index="trial", columns="method", values="log_probability")
    np.testing.assert_allclose(wide["all"], wide["exact"], atol=TOLERANCE)
    assert (abs(wide["one"] - wide["exact"]) > 0.01).all()
    assert (wide["exact"] > wide["one"]).all()
    assert (others[others.method.isin(["few", "top_k()"])].price <= others.budget.iloc[0]).all()
    refuses("kind must be", call, kinds=["needles", "words"])
    refuses("trials must be", call, trials=0)


@with_torch
def test_after_a_prompt_answers_are_those_of_decoding_from_caches(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from transformers import DynamicCache

    model = opened(tmp_path)
    asking = likeliest(model, monkeypatch)
    method = parse("sink_window(k=4)")
    how = {"kinds": ["needle"], "tokens": [60], "depths": [0.0], "setting": "prompt"}
    found = retrieval(model, FILLER, {"few": method}, **how)
    rows = retrieval(model, FILLER, {"few": method}, **how | {"setting": "rows"})
    ids, text, count = prompt_with_facts(model, FILLER, 60, asking("needle", 0.0))
    attach(model.model, method, setting="prompt", prompt_tokens=text)
    try:
        cache = DynamicCache(config=model.model.config)
        past = {cache_name(model.model): cache, "use_cache": True}
        with torch.inference_mode():
            parts = torch.as_tensor(ids[:text])[None], *(torch.as_tensor([[x]]) for x in ids[text:])
            logits = [model.model(input_ids=part, **past).logits[0] for part in parts]
    finally:
        detach(model.model)
    few = found[found.method == "few"].iloc[0]
    total, rank = judged(model, ids, count, torch.cat(logits).double().numpy())
    assert few.log_probability == pytest.approx(total, abs=TOLERANCE)
    assert few["rank"] == rank
    assert abs(rows[rows.method == "few"].log_probability.iloc[0] - total) > 0.01
    exact = [x[x.method == "exact"].log_probability.iloc[0] for x in (found, rows)]
    assert exact[0] == exact[1]


def made_up(cells, prices):
    """Return a table of `retrieval`: a log-probability per method in each cell."""
    rows = []
    for trial, values in enumerate(cells):
        for method, value in values.items():
            rows.append(("needle", 512, 0.5, trial, method, value, 1, prices[method], 64.0))
    columns = ["kind", "tokens", "depth", "trial", "method", "log_probability", "rank", "price"]
    return pd.DataFrame(rows, columns=[*columns, "budget"])


def test_the_line_of_a_benchmark_is_tested_in_pairs():
    prices = {"exact": 999.0, "top_k()": 60.0, "cheap": 64.0, "dear": 65.0, "plan": np.nan}
    cells = [
        {"exact": -1.0, "top_k()": -1.5, "cheap": -2.0 if i else -0.5, "dear": -0.1, "plan": -1.0}
        for i in range(10)
    ]
    cells += [{"exact": -9.0}] * 7  # cells that judge nobody
    found = comparisons(made_up(cells, prices)).set_index(["first", "second"])
    by_hand = {1: 2 * (1 + 10) / 2**10, 0: 2 / 2**10}  # 2·P(at most so many of ten)
    expected = {
        ("exact", "top_k()"): (10, 0, by_hand[0], "holds"),
        ("exact", "cheap"): (9, 1, by_hand[1], "holds"),
        ("exact", "dear"): (0, 10, by_hand[0], "broken"),
        ("exact", "plan"): (0, 0, 1.0, "open"),
        ("top_k()", "cheap"): (9, 1, by_hand[1], "holds"),
    }
    assert set(found.index) == set(expected)
    for pair, (higher, lower, p, line) in expected.items():
        row = found.loc[pair]
        assert (row.cells, row.first_higher, row.second_higher) == (10, higher, lower)
        assert (row.p, row.line) == (pytest.approx(p), line)
    assert 2 * sum((1, 10, 45)) / 2**10 > LEVEL  # 8 of 10 would not do
    assert comparisons(made_up([{"exact": -1.0}], prices)).empty
