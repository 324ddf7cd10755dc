"""What ``substitute`` and ``generate`` print."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
from each import each

from analysis.models.generation import Generated
from analysis.models.substitute import by_run
from analysis.sweeps import table
from figures.command import generate as generation, options, substitute as substitution
from figures.words.terminal_columns import COLUMNS
from figures.words.translation import speaking

RUNS = {  # label: KL, its standard error, heads by oracles, heads that read the future
    "near()": (0.5, 0.1, 0, 0),
    "nearer()": (0.4, 0.1, 0, 0),
    "top()": (0.1, 0.02, 3, 0),
    "later()": (math.inf, math.inf, 0, 3),
}


def made_up():
    rows = []
    for label, (kl, stderr, oracle, future) in RUNS.items():
        numbers = [
            (-1, -1, "kl", kl, stderr), (-1, -1, "same_top_1", 0.75, 0.02),
            (-1, -1, "perplexity", 40.0, 3.0), (-1, -1, "exact_perplexity", 30.0, 2.0),
            (-1, -1, "heads", 3, math.nan), (-1, -1, "oracle_heads", oracle, math.nan),
            (-1, -1, "future_heads", future, math.nan),
            (-1, -1, "reads_share", math.nan if future else 0.0625, math.nan),
            (-1, -1, "seconds", 2.0, math.nan),
            (0, -1, "residual_relative_error", 0.1, math.nan),
            (1, -1, "residual_relative_error", 0.3, math.nan),
        ]  # fmt: skip
        for head in range(3):
            numbers += [(0, head, "own_attention_tv", 0.1 * head, math.nan)]
            numbers += [(0, head, "drifted_attention_tv", 0.2 * head, math.nan)]
        rows += [("tiny", *x[:2], 90, 90, 8, 1.0, label, -1.0, -1, *x[2:]) for x in numbers]
    return table.frame(rows)


def test_summary_has_a_row_a_run_in_order():
    rows = by_run(made_up())
    assert rows.method.tolist() == list(RUNS)
    assert rows.kl_stderr.tolist() == [0.1, 0.1, 0.02, math.inf]
    assert rows.own_attention_tv.tolist() == pytest.approx([0.1] * 4)
    assert rows.residual_relative_error.tolist() == [0.3] * 4  # behind the last layer


def test_text_names_the_nearest_that_can_be_run():
    said = substitution._text(made_up(), "t.txt", 16)
    lines = said.splitlines()
    assert lines[1].split() == (
        ["0.5", "±0.1", "40", "75%", "0.100", "0.200", "6%", "runnable", "near()"]
    )
    assert lines[4].split()[-3:] == ["0.200", "future", "later()"]
    assert max(map(len, lines)) <= COLUMNS
    whole = " ".join(lines)
    for sentence in (
        "tiny reads the first 90 tokens of t.txt. Perplexity is that of tokens 18…90",
        "KL and same leave out the first 16 positions, tv does not.",
        ", its own 30. Heads that were replaced: 3.",
        "The best method that can be run is nearer(): the likeliest next token stays the same",
        "Within two standard errors of it: near().",
        "all logits: a reference.",
        "future: it reads later tokens",
    ):
        assert sentence in whole, sentence
    with speaking("zh"):
        assert "能运行的方法中" in substitution._text(made_up(), "t.txt")


def test_json_has_every_layer_and_head_and_no_infinity():
    found = options.json_value(substitution.objects(made_up()))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [one["method"] for one in found] == list(RUNS)
    assert found[3]["kl"] is None
    assert found[0]["layers"] == [0.1, 0.3]
    assert [one["head"] for one in found[0]["replaced"]] == [0, 1, 2]
    assert found[0]["replaced"][2]["drifted_attention_tv"] == pytest.approx(0.4)


# Generation

LAYERS = pd.DataFrame([
    {"layer": 0, "bytes_read": 1500, "exact_bytes_read": 6000, "bytes": 3000, "exact_bytes": 4000},
    {"layer": 1, "bytes_read": 4500, "exact_bytes_read": 6000, "bytes": 6000, "exact_bytes": 4000},
])  # fmt: skip
EXACT = Generated("a blue house", (7, 8, 9), 40, LAYERS, 0.5)
SAID = Generated("a blue hat", (7, 8, 6), 40, LAYERS, 1.0, EXACT, 2 / 3)


def test_generation_in_words():
    said = generation._text(SAID)
    assert said.startswith("with the plan:\na blue hat\n\nwith exact attention:\na blue house\n\n")
    rows = [line.split() for line in said.splitlines()]
    assert ["0", "1,500", "25%", "3,000", "75%"] in rows
    assert ["1", "4,500", "75%", "6,000", "150%"] in rows
    assert ["all", "6,000", "50%", "9,000", "112%"] in rows
    words = " ".join(said.split())
    assert "The prompt has 40 tokens. The model writes 3 more, 2.0 per second" in words
    assert "The two texts differ from token 3 on." in words
    assert "the same next token at 67% of the positions. It writes 4.0 tokens per second" in words
    assert max(map(len, said.splitlines())) <= COLUMNS
    with speaking("zh"):
        assert "token" not in generation._text(SAID)

    alone = generation._text(replace(SAID, exact=None, agreement=math.nan))
    assert alone.startswith("a blue hat\n\nlayer")
    assert "exact attention" not in alone
    same = generation._text(replace(SAID, exact=replace(EXACT, tokens=SAID.tokens)))
    assert "Both texts are the same. Given the text so far" in " ".join(same.split())


@each("said, agreement, speed", [
    (SAID, 2 / 3, 2.0),
    (replace(SAID, seconds=0.0, agreement=math.nan), None, None),  # one token: JSON has no NaN
])  # fmt: skip
def test_generation_as_json(said, agreement, speed):
    found = json.loads(options.as_json(generation.facts(said)))
    assert found["tokens_per_second"] == speed
    assert found["agreement"] == agreement
    assert found["parts_at"] == 2
    assert (found["tokens"], found["prompt_tokens"]) == ([7, 8, 6], 40)
    assert found["layers"][1]["bytes"] == 6000
    assert found["exact"] == {
        "text": "a blue house", "tokens": [7, 8, 9], "tokens_per_second": 4.0,
    }  # fmt: skip
    assert "exact" not in generation.facts(replace(said, exact=None))
