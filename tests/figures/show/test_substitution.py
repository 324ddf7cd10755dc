"""What ``substitute`` and ``generate`` print."""

import json
import math
import re
from dataclasses import replace

import pandas as pd
import pytest
from each import each

from analysis.costs.budget import LENGTHS
from analysis.models.generation import Generated
from analysis.models.substitute import by_run
from analysis.sweeps import table
from figures.command import generate as generation, options, substitute as substitution
from figures.show import price_figure
from figures.words.terminal_columns import COLUMNS
from figures.words.translation import speaking

RUNS = {  # label: KL, its error, heads by oracles, heads that read the future, bytes read, held
    "near()": (0.5, 0.1, 0, 0, 4096.0, 4096.0),
    "nearer()": (0.4, 0.1, 0, 0, 8192.0, 65536.0),
    "codes()": (0.005, 0.001, 0, 0, 16384.0, 16384.0),
    "dear()": (0.45, 0.1, 0, 0, 8192.0, 8192.0),
    "top()": (0.1, 0.02, 3, 0, 4096.0, 65536.0),
    "later()": (math.inf, math.inf, 0, 3, math.nan, math.nan),
}


def made_up(prompt=0):
    rows = []
    for label, (kl, stderr, oracle, future, read, held) in RUNS.items():
        whole = {
            "kl": (kl, stderr), "same_top_1": (0.75, 0.02), "perplexity": (40.0, 3.0),
            "kl_median": kl / 2, "kl_99": 3 * kl, "kl_largest": 4 * kl,
            "exact_perplexity": (30.0, 2.0), "surprisal_correlation": 0.9,
            "first_position": prompt or 16, "prompt_tokens": prompt,
            "heads": 3, "oracle_heads": oracle, "future_heads": future, "seconds": 2.0,
            "bytes_read": read, "bytes": held, "bytes_read_share": read / 65536,
            "exact_bytes_read": 65536.0, "exact_bytes": 65536.0, "bytes_of_keys": 8192,
        }  # fmt: skip
        whole |= {f"bytes_{tokens}": held * tokens for tokens in LENGTHS}
        whole |= {f"exact_bytes_{tokens}": 65536.0 * tokens for tokens in LENGTHS}
        numbers = [
            (-1, -1, name, *(x if isinstance(x, tuple) else (x, math.nan)))
            for name, x in whole.items()
        ]
        numbers += [
            (0, -1, "residual_relative_error", 0.1, math.nan),
            (1, -1, "residual_relative_error", 0.3, math.nan),
        ]
        for head in range(3):
            for name in ("attention_tv", "output_relative_error"):
                numbers += [(0, head, f"own_{name}", 0.1 * head, math.nan)]
                numbers += [(0, head, f"drifted_{name}", 0.2 * head, math.nan)]
        rows += [("tiny", *x[:2], 90, 90, 8, 1.0, label, -1.0, -1, *x[2:]) for x in numbers]
    return table.with_currency(table.frame(rows), "bytes_read")


def test_text_has_the_line_that_nothing_cheaper_beats_and_what_to_deploy():
    said = substitution._text(made_up(), "t.txt")
    lines = [line.split() for line in said.splitlines()]
    cells = ["0.5", "±0.1", "0.25", "1.5", "2", "75%", "±2%", "40", "4,096", "near()"]
    assert cells in lines
    assert ["0.100", "0.200", "0.100", "0.200", "30%", "near()"] in lines
    held = [f"{16384 * tokens / 2**20:,.0f}" for tokens in LENGTHS]
    at = lines.index(["codes()", "16,384", "25%", "16,384", "0.005", *held])
    best = [line[0] for line in lines[at - 2 : at + 2]]
    # neither what is dearer and worse, nor a reference
    assert best == ["near()", "nearer()", "codes()", "exact()"]
    whole = " ".join(said.split())
    for sentence in (
        "tiny reads the first 90 tokens of t.txt. Every number counts the positions 16 to 89",
        "perplexity is 30. Heads that were replaced: 3.",
        "Setting rows: the methods compute every row",
        "If bandwidth is scarce: nearer().",
        "If memory is scarce: dear().",
        "If neither is scarce: codes(). It reads 25%",
        "KL, 0.4. Of those that read so little, within two standard errors of nearer(): near(),",
        "all logits: a reference.",
        "future: it reads later tokens",
    ):
        assert sentence in whole, sentence
    after = " ".join(substitution._text(made_up(45), "t.txt").split())
    assert "positions 45 to 89" in after
    assert "Setting prompt: the first 45 tokens are read exactly" in after
    with speaking("zh"):
        chinese = substitution._text(made_up(), "t.txt") + substitution._text(made_up(45), "t.txt")
    assert not set(re.findall(r"[a-z]{4,}", chinese)) - {"near", "nearer", "codes", "dear",
        "exact", "later", "tiny", "setting", "rows", "prompt"}  # fmt: skip


def test_figure_has_every_run_that_can_be_run(tmp_path):
    measured = substitution.runnable(by_run(made_up()))
    drawn = price_figure.draw(measured, "kl", limit=8192.0, about="KL", log=True)
    points, *_ = drawn.axes[0].containers[0]
    assert [*points.get_ydata()] == [0.5, 0.4, 0.005, 0.45]  # exact attention has KL 0
    assert [text.get_label() for text in drawn.legends[0].legend_handles] == [
        "near()", "nearer()", "codes()"
    ]  # fmt: skip
    path = price_figure.write(drawn, tmp_path / "new")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_json_has_every_layer_and_head_and_no_infinity():
    found = options.json_value(substitution.objects(made_up()))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [one["method"] for one in found] == list(RUNS)
    assert found[5]["kl"] is None
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
