"""The file of a plan: a method for every head of a model."""

import json

import pytest
from refusals import refuses

from analysis.models.plan import Plan
from approx import parse

GOOD = {"model": "tiny", "kl": 0.25, "heads": {"10.0": "exact()", "2.3": "performer(m=8)"}}


def test_file_reads_back_with_heads_in_order_and_facts_kept(tmp_path):
    plan = Plan.from_json(json.dumps(GOOD))
    assert plan.heads[2, 3] == parse("positive(m=8, projection='orthogonal')")
    plan.write(tmp_path / "new" / "plan.json")
    assert Plan.read(tmp_path / "new" / "plan.json") == plan
    written = json.loads((tmp_path / "new" / "plan.json").read_text("utf-8"))
    assert list(written) == ["model", "kl", "heads"]
    assert list(written["heads"]) == ["2.3", "10.0"]


@pytest.mark.parametrize(("changed", "message"), [
    ("[1]", "one JSON object"),
    ("{", "one JSON object: Expecting"),
    ("[" * 100_000, "one JSON object: maximum"),
    (GOOD | {"heads": [1]}, "one JSON object"),
    (GOOD | {"heads": {"3": "exact()"}}, "LAYER.HEAD such as 3.1, got '3'"),
    (GOOD | {"heads": {"03.1": "exact()"}}, "LAYER.HEAD such as 3.1, got '03.1'"),
    (GOOD | {"heads": {"3.1": 7}}, "head 3.1: a spec must be text, got 7"),
    (GOOD | {"heads": {"3.1": "sink_windw(k=2)"}}, "head 3.1: unknown method 'sink_windw'"),
    (GOOD | {"heads": {"3.1": "top_k()"}}, r"head 3.1: top_k\(\) is a template"),
    (
        GOOD | {"heads": {"3.1": f"sink_window(k={10**24})"}},
        "head 3.1: k must be <= 2147483647",
    ),
    (GOOD | {"model": 3}, "model must be a name, got 3"),
    (GOOD | {"budget": -1}, "budget must be finite and > 0, got -1"),
    (GOOD | {"budget": float("nan")}, "budget must be finite and > 0, got nan"),
    (GOOD | {"target_kl": "x"}, "target_kl must be finite and > 0, got 'x'"),
    (GOOD | {"currency": "dollars"}, "currency must be one of stored, reads"),
    (GOOD | {"model_sha256": "ab"}, "model_sha256 must be a mapping of files to their SHA-256"),
    (GOOD | {"model_sha256": {"a.gguf": 7}}, "model_sha256 of a.gguf must be text, got 7"),
    ('{"model": "a", "heads": {"0.1": "exact()", "0.1": "one()"}}', "0.1 is there twice"),
])  # fmt: skip
def test_bad_file_is_one_line_that_names_it(tmp_path, changed, message):
    path = tmp_path / "plan.json"
    path.write_text(changed if isinstance(changed, str) else json.dumps(changed), "utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        Plan.read(path)
    assert "plan.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read_back_is_not_written(tmp_path):
    for facts in ({"price": float("nan")}, {"price": object()}):
        refuses("what JSON holds", Plan("tiny", {}, facts).write, tmp_path / "plan.json")
    refuses("other names than heads", Plan, "tiny", {}, {"heads": 1})
    with pytest.raises(TypeError, match=r"a head must be \(layer, head\), got 3"):
        Plan("tiny", {3: parse("exact()")})
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    refuses("UTF-8", Plan.read, tmp_path / "binary")
    assert not (tmp_path / "plan.json").exists()
