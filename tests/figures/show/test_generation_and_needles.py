"""What `expqk generate` and `expqk substitute --needle` print of what they found."""

import json
import math
from dataclasses import replace

import pandas as pd
from each import each

from analysis.models.generation import Generated
from figures.show import generation, needles
from figures.words.terminal_columns import COLUMNS
from figures.words.translation import speaking

LAYERS = pd.DataFrame([
    {"layer": 0, "reads": 1500, "exact_reads": 6000, "bytes": 3000, "exact_bytes": 4000},
    {"layer": 1, "reads": 4500, "exact_reads": 6000, "bytes": 6000, "exact_bytes": 4000},
])  # fmt: skip
EXACT = Generated("a blue house", (7, 8, 9), 40, LAYERS, 0.5)
SAID = Generated("a blue hat", (7, 8, 6), 40, LAYERS, 1.0, EXACT, 2 / 3)


def test_generation_in_words():
    said = generation.text(SAID)
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
        assert "token" not in generation.text(SAID)


def test_generation_alone_and_of_equal_texts():
    alone = generation.text(replace(SAID, exact=None, agreement=math.nan))
    assert alone.startswith("a blue hat\n\nlayer")
    assert "exact attention" not in alone
    same = " ".join(
        generation.text(replace(SAID, exact=replace(EXACT, tokens=SAID.tokens))).split()
    )
    assert "Both texts are the same. Given the text so far" in same


@each("said, agreement, speed", [
    (SAID, 2 / 3, 2.0),
    (replace(SAID, seconds=0.0, agreement=math.nan), None, None),  # one token: JSON has no NaN
])  # fmt: skip
def test_generation_as_json(said, agreement, speed):
    found = json.loads(json.dumps(generation.facts(said), allow_nan=False))
    assert found["tokens_per_second"] == speed
    assert found["agreement"] == agreement
    assert found["parts_at"] == 2
    assert (found["tokens"], found["prompt_tokens"]) == ([7, 8, 6], 40)
    assert found["layers"][1]["bytes"] == 6000
    assert found["exact"] == {
        "text": "a blue house", "tokens": [7, 8, 9], "tokens_per_second": 4.0,
    }  # fmt: skip
    assert "exact" not in generation.facts(replace(said, exact=None))


FOUND = pd.DataFrame(
    [
        ("exact", 512, 0.5, -0.9, 1), ("exact", 512, 0.0, -1.25, 1),
        ("near()", 512, 0.0, -15.0, 11), ("near()", 512, 0.5, -math.inf, 50),
        ("exact", 1024, 0.0, -2.0, 1), ("exact", 1024, 0.5, -3.0, 2),
        ("exact", 2048, 0.0, -4.0, 1),
    ],
    columns=["method", "tokens", "depth", "log_probability", "rank"],
)  # fmt: skip


def test_needles_have_a_row_a_length_and_method_by_depth():
    assert list(needles.cells(FOUND)) == [
        ("tokens", "depth 0.5", "depth 0", "method"),
        ("512", "-0.9 (1)", "-1.2 (1)", "exact"),
        ("512", "-inf (50)", "-15.0 (11)", "near()"),
        ("1024", "-3.0 (2)", "-2.0 (1)", "exact"),
        ("2048", "", "-4.0 (1)", "exact"),
    ]
    said = needles.text(FOUND)
    assert "contains “The secret number of the blue house is 4917.” At depth 0" in " ".join(
        said.split()
    )
    assert max(map(len, said.splitlines())) <= COLUMNS
    with speaking("zh"):
        assert "contains" not in needles.text(FOUND)
