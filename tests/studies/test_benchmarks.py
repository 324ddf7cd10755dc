"""The benchmarks at tiny sizes: both sides agree, and peers that are missing are named."""

import importlib
import itertools
import json

import numpy as np
import pandas as pd
import pytest

from approx import METHODS, Mask, parse
from approx.low_rank.robust_pca import inexact_alm
from approx.method.prices import Shape
from approx.registry import ALIASES
from figures.words.marked_text import insert
from studies.benchmarks import (
    __main__ as command,
    exponents,
    growth,
    measure,
    robust_pca,
    selection,
)
from studies.benchmarks.measure import Row


@pytest.mark.parametrize("name", command.names())
def test_both_sides_agree(name):
    """Each asserts it itself, before it measures."""
    module = importlib.import_module(f"studies.benchmarks.{name}")
    rows = list(module.run(1, **module.TINY))
    assert rows
    for row in rows:
        line = command.cells(row)
        assert len(line) == len(command.HEADINGS)
        assert row.peer_seconds is not None or row.peer == "" or "is not importable" in line[2]
        assert all(found in (True, False, None) for name in row.must for found in row.reached(name))


def test_a_difference_is_noticed():
    measure.agree([1.0, 2.0], [1.0, 2.0 + 1e-9], 1e-9, "two")
    with pytest.raises(AssertionError, match=r"^two: the sides differ by 0\.5, allowed is 0\.1$"):
        measure.agree([1.0, 1.0], [1.0, 2.0], 0.1, "two")
    with pytest.raises(AssertionError, match="nan"):
        measure.agree([1.0, float("nan")], [1.0, 2.0], 0.1, "two")


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


def test_peak_memory_is_that_of_the_call():
    held = bytearray(10_000_000)
    assert 1_000_000 <= measure.traced(lambda: bytearray(1_000_000)) < 1_100_000
    assert len(held) == 10_000_000


def test_an_error_while_memory_is_measured_is_an_error():
    with pytest.raises(ZeroDivisionError):
        measure.traced(lambda: 1 // 0)


def test_the_table_goes_between_the_marks():
    about = {"date": "1900-01-01", "processor": "p", "cores": 2, "blas": "b", "python": "3"}
    block = command.markdown(about | {"versions": {}}, [Row("work", 0.5)])
    text = f"before\n{command.BEGIN}\nold\n{command.END}\nafter\n"
    marks = command.BEGIN, command.END
    new = insert(text, *marks, block)
    assert new == f"before\n{command.BEGIN}\n{block}\n{command.END}\nafter\n"
    assert insert(new, *marks, block) == new
    assert "| work | 500 ms |" in block
    with pytest.raises(ValueError, match="the page must have one line"):
        insert("nothing", *marks, block)


def test_an_unknown_name_is_a_usage_error(capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["nothing"])
    assert "unknown benchmark nothing: choose from " in capsys.readouterr().err


def test_the_table_goes_into_the_readme(monkeypatch, tmp_path):
    text, copy = command.README.read_text("utf-8"), tmp_path / "README.md"
    copy.write_text(text, "utf-8")
    monkeypatch.setattr(command, "README", copy)
    rows = [Row("alone", 0.5), Row("work", 0.5, "peer", 1.0)]
    monkeypatch.setattr("studies.benchmarks.exp.run", lambda repeats: rows)
    monkeypatch.setattr(command, "names", lambda: ["exp"])
    results = ["--json", str(tmp_path / "results.json")]
    with pytest.raises(SystemExit, match="2"):
        command.main(["exp", "--readme", *results])
    command.main(["--readme", *results])
    for line in ("| work | 500 ms | peer |", "| alone | 500 ms |", text.split(command.BEGIN)[0]):
        assert line in copy.read_text("utf-8")


def test_some_benchmarks_leave_the_results_of_all(monkeypatch, tmp_path):
    monkeypatch.setattr("studies.benchmarks.exp.run", lambda repeats: [Row("work", 0.5)])
    monkeypatch.setattr(command, "names", lambda: ["exp"])
    monkeypatch.setattr(command, "HERE", tmp_path)
    command.main(["exp"])
    assert not list(tmp_path.iterdir())
    command.main(["exp", "--json", str(tmp_path / "one.json")])
    command.main([])
    assert {path.name for path in tmp_path.iterdir()} == {"one.json", "results.json"}


def pursuit_off_by(error):
    """Return a peer that finds ours, and (1 + error) times its entries with ρ at its fastest."""

    def pursue(D, rho=1.5):
        L, S = robust_pca.dense(inexact_alm(D))
        return L, S * (1 + error * (rho == 1.5))

    return lambda: {"pyrpca": pursue}


def test_a_peer_of_pursuit_slows_down_until_it_finds_our_objective(monkeypatch):
    monkeypatch.setattr(robust_pca, "pursuits", pursuit_off_by(1e-3))
    fast, certified = robust_pca.on_attention("work", robust_pca.attention(1.0, 48), 1)
    assert (fast.peer, certified.peer) == ("pyrpca, ρ = 1.5", "pyrpca, ρ = 1.2")
    assert fast.ratio is not None
    assert certified.ratio is not None


@pytest.mark.parametrize("rows", [
    lambda: robust_pca.on_golden(40, 1, "pyrpca", robust_pca.GOLDEN),
    lambda: robust_pca.on_attention("work", robust_pca.attention(1.0, 48), 1),
])  # fmt: skip
def test_a_peer_of_pursuit_with_another_objective_is_an_error(monkeypatch, rows):
    monkeypatch.setattr(robust_pca, "pursuits", pursuit_off_by(0.1))
    with pytest.raises(AssertionError, match=r"^objectives of .* differ by"):
        list(rows())


def grown():
    """Return a table of growth whose slopes are known: size^1.5 seconds, 8·size bytes."""
    rows = [
        (task, axis, size, threads, size**1.5 / threads, 8.0 * size)
        for axis in growth.TITLES
        for task in ("attend", "compare")
        for size in (1, 2, 4, 8)
        for threads in (1, 2)
    ]
    return pd.DataFrame(rows, columns=growth.COLUMNS)


def test_slopes_of_growth_are_those_of_a_power():
    # logarithms of powers of 2, fitted: a few roundings
    np.testing.assert_allclose(growth.slopes(grown(), "seconds"), 1.5, rtol=1e-12)
    np.testing.assert_allclose(growth.slopes(grown(), "bytes"), 1.0, rtol=1e-12)
    text = growth.caption(grown())
    assert "attend against n = l 1.50 in time and 1.00 in memory" in text
    assert "One thread over two at the largest size: attend against features m 2.00" in text
    assert [len(ax.lines) for ax in growth.draw(grown()).axes] == [4, 4, 4, 2, 2, 2]


def test_growth_is_measured(monkeypatch):
    tiny = [("attend", "n", 16, lambda: growth.attend(16, 4)),
            ("compare", "m", 4, lambda: growth.errors(16, 4)),
            ("monte_carlo", "temperatures", 2, lambda: growth.sample(2))]  # fmt: skip
    monkeypatch.setattr(growth, "cases", lambda largest: tiny)
    monkeypatch.setattr(growth, "THREADS", {task: (1,) for task in growth.THREADS})
    table = growth.compute(repeats=1)
    assert table.columns.tolist() == growth.COLUMNS
    assert len(table) == 3
    assert (table[["seconds", "bytes"]] > 0).all(axis=None)


def test_exponents_above_those_of_their_formulas_are_bold(monkeypatch):
    sizes = (1, 2, 4, 8)
    assert exponents.slope(sizes, [9.0, 4.0, 16.0, 64.0]) == pytest.approx(2.0)  # the last three
    case = exponents.Case("work", "n", sizes, lambda n: lambda: bytearray(10**6 * n), 1, 1, "n")
    assert exponents.row(case, (1.16, 1.1)) == "| work | n = 2 … 8 | **1.16** | 1 | 1.10 | 1 | n |"
    monkeypatch.setattr(exponents, "seconds", lambda side: len(side()) ** 1.5)
    time, memory = exponents.measured(case)
    assert (time, memory) == (pytest.approx(1.5), pytest.approx(1.0, abs=0.1))
    assert exponents.seconds(lambda: [0]) == 1.0
    every = list(exponents.cases())
    assert len({(case.work, case.axis) for case in every}) == len(every)
    assert all(len(case.sizes) >= 3 and min(case.time, case.memory) >= 0 for case in every)


SHAPE = Shape(8192, 8192, 64, 64, Mask.causal(8192, 8192))


@pytest.mark.listed
def test_selection_times_every_method_that_can_be_run_at_a_size():
    found = selection.methods(SHAPE)
    names = {method.name for method in found}
    assert not any(method.oracle or method.is_template or method.refusal for method in found)
    for name, method in METHODS.items():
        runs = not method().oracle and method().refusal is None
        assert (name in names) == runs or name in ("columns", "hierarchical", "scatterbrain"), (
            f"no size of {name} is filled: give one in studies.benchmarks.selection.MORE"
        )
    given = {str(parse(spec)) for spec in (*METHODS, *ALIASES, *selection.MORE)}
    for method in found:  # what reads more than 32 keys stores 32 values, or has no budget
        price = method.priced(SHAPE)
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
    assert found["share"] == 1.0
    assert (whole.price, whole.reads, window.reads) == (1.0, 48.0, 4.0)
    assert whole.error < 1e-12 < window.error  # sums of 48 terms, each within some eps
    text = selection.markdown(found)
    assert "Of 3 methods 3 take no less time than that, and in 0 the selection takes" in text
    assert "| `positive(m=4)` |  | 1.00 | 0 | 2.00 |" in text
    assert "positive(m=4)" in capsys.readouterr().out


def test_the_readme_has_the_selection_that_was_measured():
    found = json.loads((command.HERE / "selection.json").read_text("utf-8"))
    readme = (command.HERE / "README.md").read_text("utf-8")
    assert insert(readme, selection.BEGIN, selection.END, selection.markdown(found)) == readme
