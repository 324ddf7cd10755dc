"""The tables of targets and lengths that ``make lm-study`` makes of whole models."""

import numpy as np
import pandas as pd

from analysis import inputs
from analysis.advice.target import needed
from analysis.inputs.head_kinds import KINDS
from approx import parse
from studies.lm import lengths as reads_by_length, needed as targets, sample, scaling


def test_what_a_target_needs_is_summarised_over_heads():
    heads = [x.first(64) for x in inputs.sample("smollm2").heads()]
    methods = [parse(spec) for spec in ("sink_window()", "sliding_window()", "top_k()")]
    table = needed(heads, 0.1, currency="reads", methods=methods)
    kinds = pd.Series(
        ["sink", "local", "broad", "sink"],
        index=pd.MultiIndex.from_tuples([(x.layer, x.head) for x in heads]),
    )
    lines = targets.markdown(table, kinds, "Title").splitlines()
    first = [table[(table.layer == x.layer) & table.reached & table.runnable] for x in heads]
    share = np.median([part.share.min() for part in first])
    assert f"costs a median of {share:.1%} of exact attention" in lines[2]
    assert "sink (2)" in lines[2]
    rows = {line.split("|")[1].strip(" `"): line.split("|")[2:-1] for line in lines[6:]}
    assert set(rows) == {"sink_window()", "sliding_window()", "top_k()", "exact()"}
    found = table[(table.method == "sink_window()") & table.reached]
    assert int(rows["sink_window()"][1]) == len(found)
    assert float(rows["sink_window()"][3]) == found["size"].median()
    assert rows["top_k()"][0].strip() == "bound"


def test_heads_and_text_for_lengths(tmp_path):
    shares = pd.read_csv(sample.DATA / "smollm2.csv")
    some = scaling.chosen(shares)
    assert some.kind.value_counts().to_dict() == dict.fromkeys(KINDS, scaling.EACH)
    assert (some.effective_keys >= 2).all()
    module = tmp_path / "text.py"
    module.write_text('bible = Bible("""\nIn the [very] beginning\n""")')
    assert scaling.words(module) == "In the very beginning"


def test_reads_by_length_are_a_table(tmp_path):
    """The whole study, as ``make lm-study`` runs it, on files of two lengths."""
    files = []
    for l in (64, 128):
        heads = [x.first(l) for x in inputs.sample("smollm2").heads()]
        arrays = {name: np.stack([getattr(x, name)[None] for x in heads], 1) for name in "qkv"}
        files.append(tmp_path / f"last 16 of {l}.npz")
        np.savez(files[-1], **arrays | {"q": arrays["q"][:, :, -16:]}, causal=1)
    page = tmp_path / "lengths.md"
    reads_by_length.main([*map(str, files), "--jobs", "1", "--summary", str(page)])
    rows = [line.split("|")[1:-1] for line in page.read_text("utf-8").splitlines() if "|" in line]
    assert [int(row[0]) for row in rows[2:]] == [64, 128]
    for row in rows[2:]:
        assert sum(map(int, row[1:7])) == 4  # each head has one cheapest method
