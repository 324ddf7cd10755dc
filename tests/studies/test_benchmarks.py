"""The benchmarks at tiny sizes: both sides agree, and peers that are missing are named."""

import itertools
import json

import numpy as np
import pytest

from approx import METHODS, Mask, parse
from approx.low_rank.robust_pca import inexact_alm
from approx.method.prices import Shape, price_at
from approx.method.tags import ORACLE
from approx.registry import ALIASES
from figures.words.markdown import insert
from studies.benchmarks import __main__ as command, cases, measure, selection
from studies.benchmarks.cases import BENCHMARKS, Benchmark
from studies.benchmarks.measure import Bench, Line, Row


@pytest.mark.parametrize("name", BENCHMARKS)
def test_both_sides_agree(name):
    """Each asserts it itself, before it measures."""
    rows = list(BENCHMARKS[name].rows(1, **BENCHMARKS[name].tiny))
    assert rows
    for row in rows:
        line = command.cells(row)
        assert len(line) == len(command.HEADINGS)
        assert row.peer_seconds is not None or row.peer == "" or "is not importable" in line[2]
        assert all(found in (True, False, None) for name in row.must for found in row.reached(name))


def test_differences_errors_and_memory_are_noticed(capsys):
    measure.agree([1.0, 2.0], [1.0, 2.0 + 1e-9], 1e-9, "two")
    for x, message in ((1.0, r"^two: the sides differ by 0\.5, allowed is 0\.1$"), (np.nan, "nan")):
        with pytest.raises(AssertionError, match=message):
            measure.agree([1.0, x], [1.0, 2.0], 0.1, "two")
    held = bytearray(10_000_000)
    assert 1_000_000 <= measure.traced(lambda: bytearray(1_000_000)) < 1_100_000
    assert len(held) == 10_000_000
    with pytest.raises(ZeroDivisionError):
        measure.traced(lambda: 1 // 0)
    with pytest.raises(SystemExit, match="2"):
        command.main(["nothing"])
    assert "unknown benchmark nothing: choose from " in capsys.readouterr().err


def test_what_is_reached():
    row = Row("", 2.0, "other", 8.0, 1.0, 5_000_000, must={"ratio": (4, 5), "share": (0.6, None)})
    assert (row.ratio, row.share, row.megabytes) == (4.0, 0.5, 5.0)
    assert (row.reached("ratio"), row.reached("share")) == ((True, False), (False, None))
    assert command.cells(row)[-1] == "ratio ≥ 4: met, aim ≥ 5: missed; of limit ≥ 60%: missed"
    late = Row("", 2.0, must={"seconds": (None, 1.0)})
    assert command.cells(late)[-1] == "seconds of ours aim ≤ 1: missed"
    missing = Row("", 2.0, "other", must={"ratio": (4, None), "seconds": (3, None)})
    assert missing.reached("ratio") == (None, None)
    assert missing.reached("seconds") == (True, None)
    assert command.cells(missing)[-1].startswith("ratio ≥ 4: not measured; ")
    assert "skipped: other is not importable" in command.cells(missing)


def test_times_of_other_sides_are_subtracted(monkeypatch):
    found = {"ours": 3.0, "part": 1.0, "theirs": 9.0, "limit": 0.5}
    monkeypatch.setattr(measure, "medians", lambda sides, repeats: found)
    lines = [Line("a", "peer", less=("part", "")), Line("b"), Line("c", "other", theirs="gone")]
    first, alone, missing = Bench(dict.fromkeys(found, list), lines).measured(1)
    assert (first.seconds, first.peer_seconds, first.share) == (2.0, 9.0, 0.25)
    assert (alone.seconds, alone.peer_seconds, alone.memory is None) == (3.0, None, False)
    assert missing.peer_seconds is None


def test_all_benchmarks_leave_results_and_a_table(monkeypatch, tmp_path):
    (tmp_path / "README.md").write_text(command.README.read_text("utf-8"), "utf-8")
    rows = [Row("alone", 0.5), Row("work", 0.5, "peer", 1.0)]
    monkeypatch.setattr(command, "BENCHMARKS", {"exp": Benchmark(lambda: rows, {})})
    monkeypatch.setattr(command, "README", tmp_path / "README.md")
    monkeypatch.setattr(command, "HERE", tmp_path)
    command.main(["exp"])
    with pytest.raises(SystemExit, match="2"):
        command.main(["exp", "--readme"])
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    command.main(["--readme"])
    text = (tmp_path / "README.md").read_text("utf-8")
    assert "| work | 500 ms | peer | 1.00 s | 2.00 |" in text
    found = json.loads((tmp_path / "results.json").read_text("utf-8"))
    about = {name: value for name, value in found.items() if name != "rows"}
    table = command.markdown(about, [Row(**row) for row in found["rows"]])
    assert insert(text, command.BEGIN, command.END, table) == text


def test_the_readme_has_the_results_and_the_selection_that_were_measured():
    found, selected = (json.loads((command.HERE / f"{name}.json").read_text("utf-8"))
                       for name in ("results", "selection"))  # fmt: skip
    table = command.markdown(found, [Row(**row) for row in found.pop("rows")])
    readme = command.README.read_text("utf-8")
    assert insert(readme, command.BEGIN, command.END, table) == readme
    table = selection.markdown(selected)
    assert insert(readme, selection.BEGIN, selection.END, table) == readme


@pytest.mark.parametrize("error", [1e-3, 0.1])
def test_a_peer_of_pursuit_slows_down_until_it_finds_our_objective(monkeypatch, error):
    def pursue(D, rho=1.5):
        L, S = cases.parts(inexact_alm(D))
        return L, S * (1 + error * (rho == 1.5 or error == 0.1))

    monkeypatch.setattr(cases, "pursuits", lambda: {"pyrpca": pursue})
    D = np.exp(np.random.default_rng(0).standard_normal((48, 48)) / 4)
    if error == 0.1:
        for bench, *given in ((cases.on_attention, "work", D), (cases.on_golden, 40, "pyrpca")):
            with pytest.raises(AssertionError, match=r"^objectives of .* differ by"):
                bench(*given)
        return
    (line,) = cases.on_attention("work", D).lines
    assert line.peer == "pyrpca, ρ = 1.2"


SHAPE = Shape(8192, 8192, 64, 64, Mask.causal(8192, 8192))


@pytest.mark.listed
def test_selection_times_every_method_that_can_be_run_at_a_size():
    found = selection.methods(SHAPE)
    names = {method.name for method in found}
    assert not any(ORACLE in one.tags or one.is_template or one.refusal for one in found)
    for name, method in METHODS.items():
        runs = ORACLE not in method().tags and method().refusal is None
        assert (name in names) == runs or name in ("columns", "hierarchical", "scatterbrain"), (
            f"no size of {name} is filled: give one in studies.benchmarks.selection.MORE"
        )
    given = {str(parse(spec)) for spec in (*METHODS, *ALIASES, *selection.MORE)}
    for method in found:  # what reads more than 32 keys stores 32 values, or has no budget
        price = price_at(method, SHAPE)
        if price is not None and price.reads is not None and price.reads > 32 * 128:
            assert str(method) in given or price.stored <= 32
    named = ", ".join(found.values()).split(", ")
    refused = {name for name in ALIASES if parse(name).refusal is not None}
    assert {*named} - {""} == {*ALIASES} - refused


def test_selection_is_what_answering_leaves(monkeypatch, capsys):
    clock = itertools.count()  # every side takes one second
    monkeypatch.setattr(selection.time, "process_time", lambda: float(next(clock)))
    found = selection.compute(48, 1, ["positive(m=4)", "sink_window(k=4)", "exact()"])
    features, window, whole = (selection.Row(**row) for row in found["rows"])
    assert (features.selection, features.answer, features.total) == (1.0, 1.0, 2.0)
    assert (window.selection, window.answer, window.total) == (0.0, 2.0, 2.0)
    assert (whole.price, whole.reads, window.reads) == (1.0, 48.0, 4.0)
    assert whole.error < 1e-12 < window.error  # sums of 48 terms, each within some eps
    text = selection.markdown(found)
    assert "Of 3 methods 3 take no less time than that, and in 0 the selection takes" in text
    assert "| `positive(m=4)` |  | 1.00 | 0 | 2.00 |" in text
    assert "positive(m=4)" in capsys.readouterr().out
