"""The commands sweep and verify: exit codes, resumption, parts, nothing else written."""

import dataclasses
import os
import re

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from analysis.experiments.profile import profile  # noqa: F401  (loaded before a test looks at the folder)
from analysis.sweeps.config import loads
from analysis.sweeps.store import SweepStore, read
from analysis.sweeps.sweep import COLUMNS, sweep
from approx import METHODS, Method
from figures.command.cli import main

CONFIG = """
seed = 1
trials = 2
temperatures = [0.5, 1.0]
budgets = [6.0, 8.0]
methods = ["positive", "top_k", "zero", "taylor(degree=9)"]
[[inputs]]
kind = "gaussian"
n = 8
d = 3
"""
CELLS = 2 * (2 + 1 + 1)  # budgets × (trials of positive + top_k + zero); taylor does not fit


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(CONFIG)
    return tmp_path


def run(*arguments):
    return main([str(a) for a in arguments])


def start(*more, config="own.toml"):
    return run("sweep", config, *OUT, *more)


OUT = "--store", "out", "--jobs", 1


def tree(folder):
    return {
        str(p.relative_to(folder)): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()
    }


def test_a_sweep_writes_its_store_and_nothing_else(here, capsys):
    assert start() == 0
    captured = capsys.readouterr()
    assert captured.out == f"{CELLS} cells: {CELLS} done, 0 failed\nout/table.csv\n"
    assert captured.err.splitlines() == [
        f"absent: nothing of taylor(degree=9) fits {b} stored values per query row on gaussian"
        for b in (6, 8)
    ]
    written = tree(here)
    names = {name.split("/")[0] for name in written}
    assert names == {"own.toml", "out"}
    assert sum(name.startswith("out/cells/") for name in written) == CELLS
    planned = loads(CONFIG).plan()
    expected = sweep([c for c in map(METHODS.get, ("zero",)) for c in [c()]], planned.heads, [0.5],
                     trials=1, seed=1)  # fmt: skip
    found = read("out")
    zero = found[(found.method == "zero()") & (found.temperature == 0.5) & (found.budget == 6)]
    assert zero.value.tolist() == expected.value.tolist()
    assert (here / "out/table.csv").read_text() == found.to_csv(index=False, lineterminator="\n")
    assert start() == 0  # nothing is computed again
    again = tree(here)
    again["out/table.csv"] = written["out/table.csv"]
    assert again == written


def test_a_currency_is_in_the_manifest_and_in_the_table(here, capsys):
    (here / "reads.toml").write_text("currency = 'reads'\n" + CONFIG.replace("8.0", "60.0"))
    assert start(config="reads.toml") == 0
    assert "fits 6 numbers read per new query" in capsys.readouterr().err
    found = read("out")
    assert SweepStore("out").manifest["currency"] == "reads"
    assert list(found.columns) == [*COLUMNS[:9], "currency", *COLUMNS[9:]]
    assert (found.currency == "reads").all()
    # a feature reads ω and a state of c + 1 numbers, an exact key d + c: 60 = 8·7 + 4 = 10·6
    assert {"positive(m=8)", "top_k(k=8)"} < set(found.method)
    assert (here / "out/table.csv").read_text() == found.to_csv(index=False, lineterminator="\n")
    assert run("verify", "out", "--part", 1, "--jobs", 1) == 0
    assert start() == 1  # of another currency, so of other cells
    assert "holds another sweep" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(here, printed):
    text = printed("sweep", "own.toml", *OUT, "--dry-run")
    assert re.search(rf"^cells   {CELLS}: 0 done, 0 failed, {CELLS} to do$", text, re.MULTILINE)
    # 52 multiply-adds for each query, 48 of all eight keys
    said = r"^time    about \d+ s with --jobs 1, by the time of one cell, positive\(m=4\)$"
    assert re.search(said, text, re.MULTILINE)
    assert set(tree(here)) == {"own.toml"}
    assert start() == 0
    text = printed("sweep", "own.toml", *OUT, "--dry-run")
    assert text == f"cells   {CELLS}: {CELLS} done, 0 failed, 0 to do\n"


def test_parts_make_the_whole(here, capsys):
    for part in ("2/3", "3/3", "1/3"):
        assert not (here / "out/table.csv").exists()
        assert start("--shard", part) == 0
        done = len(list((here / "out/cells").iterdir()))
        assert done == {"2/3": 3, "3/3": 5, "1/3": 8}[part]
    assert "in this part: 8 done, 0 failed" in capsys.readouterr().out.splitlines()[-2]
    parts = read("out")
    assert run("sweep", "own.toml", "--store", "whole", "--jobs", 2) == 0
    assert_frame_equal(parts, read("whole"), check_exact=True)
    assert (here / "out/table.csv").read_bytes() == (here / "whole/table.csv").read_bytes()


@dataclasses.dataclass(frozen=True)
class Fragile(Method):
    """Fails until it is repaired."""

    name = "fragile"
    broken = True
    m: int = 1

    def evaluate(self, q, k, mask, rng):
        if Fragile.broken:
            raise ArithmeticError("it is broken")
        return METHODS["zero"]().evaluate(q, k, mask, rng)


def test_a_failing_cell_gives_exit_1_until_it_is_repaired(here, capsys, printed, monkeypatch):
    monkeypatch.setitem(METHODS, "fragile", Fragile)
    monkeypatch.setattr(Fragile, "broken", True)
    (here / "own.toml").write_text(CONFIG.replace('"top_k"', '"top_k", "fragile(m=2)"'))
    assert start() == 1
    captured = capsys.readouterr()
    assert captured.out == f"{CELLS + 2} cells: {CELLS} done, 2 failed\n"
    failed = "failed: fragile(m=2) on gaussian, trial -1: ArithmeticError: it is"
    assert captured.err.count(failed) == 2
    assert not (here / "out/table.csv").exists()
    assert start("--retry-failed") == 1
    Fragile.broken = False
    assert start() == 1  # unless asked, it is not tried again
    for more, left in (((), 0), (("--retry-failed",), 2)):
        text = printed("sweep", "own.toml", *OUT, "--dry-run", *more)
        assert f"2 failed, {left} to do" in text
    assert start("--retry-failed") == 0
    assert (here / "out/table.csv").exists()


# verify


def test_verify_names_what_differs_and_what_was_altered(here, capsys):
    def verified(status, *more):
        capsys.readouterr()
        assert run("verify", "out", *more) == status
        return "".join(capsys.readouterr())

    assert start() == 0
    said = verified(0, "--part", 1, "--jobs", 1)
    assert said == "8 cells: 8 computed again, 0 differ; 0 altered, 0 not done\n"
    assert "8 cells: 3 computed again" in verified(0)
    manifest, table = here / "out/manifest.json", here / "out/table.csv"  # which people read
    written, shown = (path.read_text("utf-8") for path in (manifest, table))
    manifest.write_text(re.sub(r'"numpy": "[^"]*"', '"numpy": "1.0"', written))
    assert "\nnote: written with numpy 1.0, now " in verified(0)
    manifest.write_text(written)
    table.write_text(shown.replace("0.", "1.", 1), "utf-8")
    said = verified(1, "--part", 0)
    assert said.endswith("\naltered: out/table.csv is not the table of the cells\n")
    table.write_text(shown, "utf-8")
    kept = SweepStore("out")
    keys = kept.manifest["cells"]
    rows = kept.get(keys[2])
    *rest, value, stderr = rows[0]
    wrong = (*rest, value * (1 + 2**-52), stderr)  # in one bit, with its checksum
    kept.put(keys[2], [wrong, *rows[1:]])
    said = verified(1, "--part", 1, "--jobs", 1)
    assert "8 computed again, 1 differ; 0 altered" in said
    assert "\ndiffers: top_k(k=6) on gaussian, trial -1, budget 6, " in said
    assert keys[2] in said
    (path,) = (here / "out/cells").glob(f"{keys[0]}.*")
    path.write_bytes(path.read_bytes()[:-1])
    said = verified(1, "--part", 0)
    assert "1 altered, 0 not done" in said
    assert f"altered: positive(m=3) on gaussian, trial 0, budget 6, {keys[0]}" in said
    for path in (here / "out/cells").iterdir():
        path.unlink()
    # of nothing, nothing is verified
    assert "0 computed again, 0 differ; 0 altered, 8 not done" in verified(1)


def test_verify_chooses_by_its_seed_and_needs_a_config(here, refused, monkeypatch):
    assert start() == 0
    chosen = []
    monkeypatch.setattr(
        "analysis.sweeps.sweep.Cell.run", lambda cell, x: chosen.append(cell.key) or []
    )
    for seed in (0, 0, 1):
        assert run("verify", "out", "--seed", seed, "--jobs", 1) == 1  # no rows: all differ
    assert chosen[:3] == chosen[3:6] != chosen[6:]
    monkeypatch.undo()
    os.chdir(here)
    sweep([METHODS["zero"]()], loads(CONFIG).plan().heads, [1.0], trials=1, seed=0, store="python")
    for arguments, message in (
        (("python",), "was not written by `expqk sweep`: verify it where its methods are"),
        (("nowhere",), "there is no nowhere"),
        ((".",), "is not a store, and it is not empty"),
        (("out", "--part", "2"), "part must be in [0, 1], got 2"),
        (("out", "--seed", "-1"), "seed must be >= 0"),
        (("out", "--jobs", "0"), "jobs must be >= 1"),
    ):
        assert message in refused("verify", *arguments)


def test_verify_says_when_the_inputs_have_changed(here, refused):
    q, k = np.random.default_rng(0).standard_normal((2, 8, 3))
    np.savez(here / "qk.npz", q=q, k=k)
    text = re.sub(r"kind.*", 'kind = "file"\npath = "qk.npz"', CONFIG, flags=re.DOTALL)
    (here / "own.toml").write_text(text)
    assert start() == 0
    os.chdir("/")
    assert run("verify", here / "out") == 0  # from anywhere
    np.savez(here / "qk.npz", q=q + 1, k=k)
    said = refused("verify", here / "out")
    assert "its inputs, the methods or the version of expqk have changed" in said


@pytest.mark.parametrize(("line", "message"), [
    ("none.toml", "expqk: none.toml: No such file or directory"),
    (".", "is not a file of at most"),
    ("own.toml --jobs 0", "jobs must be >= 1"),
    ("own.toml --store own.toml", "the store own.toml is not a folder"),
    ("own.toml --store .", "is not a store, and it is not empty"),
    ("own.toml --max-memory 4K", "a sweep of 16 cells would take"),
    ("bad.toml", "bad.toml: unknown key 'trails', did you mean 'trials'?"),
])  # fmt: skip
def test_errors_exit_1_and_write_nothing(here, capsys, line, message):
    (here / "bad.toml").write_text(CONFIG.replace("trials", "trails"))
    before = tree(here)
    assert run("sweep", "--store", "out", *line.split()) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.splitlines()[-1].startswith("expqk: ")
    assert "Traceback" not in said
    assert tree(here) == before


def test_bundled_configs_go_by_their_names(here, printed):
    assert "cells   " in printed("sweep", "report.toml", *OUT, "--dry-run", "--shard", "1/100")
    (here / "quick.toml").write_text(CONFIG)  # the user's own comes first
    assert f"cells   {CELLS}:" in printed("sweep", "quick.toml", *OUT, "--dry-run")
