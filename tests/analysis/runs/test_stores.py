"""What a stopped run keeps, and what a later one takes over."""

import math
import os

import numpy as np
import pandas as pd
import pytest

from analysis.runs import engines, output_files, tasks
from analysis.runs.store import Store
from analysis.runs.tasks import Application
from analysis.sweeps.store import SweepStore
from figures.command.cli import main

NAME = "report.md"


def test_what_is_taken_from_an_earlier_run_is_kept_in_the_new_folder(tmp_path):
    Store(tmp_path / "a").put("head", {"tv": 0.25})
    later = Store(tmp_path / "b", tmp_path / "a")
    assert later.get("other") is None
    assert later.get("head") == {"tv": 0.25}
    assert Store(tmp_path / "b").get("head") == {"tv": 0.25}  # the old folder may go
    (tmp_path / "b/head.json").write_text("{", "utf-8")  # damaged: taken from there once more
    assert later.get("head") == {"tv": 0.25}


DAMAGED = {
    "a digit": lambda text: text.replace("0.25", "0.35"),
    "a list": lambda text: "[]",
    "no pairs": lambda text: '{"pairs": []}',
    "deep": lambda text: "[" * 100_000,
    "cut": lambda text: text[:-1],
    "nothing": lambda text: "",
    "no text": lambda text: "\udcff",
}


@pytest.mark.parametrize("damage", [*DAMAGED, "another task", "a pipe", "a folder"])
def test_an_outcome_that_was_altered_is_computed_again(tmp_path, damage):
    store, path = Store(tmp_path), tmp_path / "head.json"
    store.put("head", {"tv": 0.25, "same_top_2": [1]})
    if damage in DAMAGED:
        text = DAMAGED[damage](path.read_text("utf-8"))
        path.write_bytes(text.encode(errors="surrogateescape"))
    else:
        path.unlink()
        store.put("other", {"tv": 0.5})
        how = {"a pipe": os.mkfifo, "a folder": os.mkdir}
        how.get(damage, (tmp_path / "other.json").rename)(path)
    assert store.get("head") is None
    assert store.altered("head")
    if damage != "a folder":
        store.put("head", 1.5)
        assert store.get("head") == 1.5


def test_a_store_that_leads_out_of_the_folder_is_refused(tmp_path, capsys):
    (tmp_path / "away").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/heads").symlink_to(tmp_path / "away")
    (tmp_path / "out/cells").symlink_to(tmp_path / "away")
    np.savez(tmp_path / "qk.npz", q=np.eye(4), k=np.eye(4))
    asked = ["diagnose", str(tmp_path / "qk.npz"), "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main(asked) == 1
    assert "out/heads leads out of" in capsys.readouterr().err
    (tmp_path / "out/heads").unlink()
    with pytest.raises(ValueError, match="cells leads out of"):
        SweepStore(tmp_path / "out").open([])
    assert not list((tmp_path / "away").iterdir())


def test_a_table_is_read_back_bit_for_bit(tmp_path):
    table = pd.DataFrame(
        {
            "head": np.array([1, -1]),
            "tv": [0.1 + 0.2, math.nan],
            "gap": [math.inf, 5e-324],
            "winner": [True, False],
            "verdict": ["a 表", None],
            "small": np.array([0.1, 0.2], np.float32),
        }
    )
    store = Store(tmp_path)
    for name, one in {"whole": table, "empty": table[:0]}.items():
        store.put(name, one)
        pd.testing.assert_frame_equal(store.get(name), one, check_exact=True)


def test_a_key_depends_on_the_code(tmp_path, monkeypatch):
    """A run that goes on after a change of the code takes nothing from before it."""
    asked, before = tasks.key("a head"), tasks.code("figures")
    assert tasks.key("a head") == asked != tasks.key("another")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "one_package").mkdir()
    codes = []
    for name, text in {"one.py": "x = 1", "two.py": "", "one.csv": "x", "one.pyc": "x"}.items():
        for version in (text, text + "\n"):
            (tmp_path / "one_package" / name).write_text(version, "utf-8")
            codes.append(tasks.code.__wrapped__("one_package"))
    assert len({*codes, before}) == 7  # what Python compiled decides nothing
    monkeypatch.setattr(tasks.metadata, "version", lambda name: f"{name} 99")
    assert tasks.code.__wrapped__("one_package") not in codes
    assert tasks.version.__wrapped__().endswith(tasks.CODE[:12])
    monkeypatch.setattr(tasks, "CODE", codes[0])
    assert tasks.key("a head") != asked


# What was written into a folder


def files(folder):
    return {p.name: p.read_text("utf-8") for p in folder.glob("report.md*") if p.is_file()}


def test_what_was_edited_gets_another_name_each_time(tmp_path):
    assert output_files.put(tmp_path, NAME, "one") is None
    assert output_files.put(tmp_path, NAME, "two") is None  # untouched
    (tmp_path / NAME).write_text("mine")
    assert output_files.put(tmp_path, NAME, "three") == tmp_path / "report.md.1"
    (tmp_path / NAME).write_text("two")
    assert output_files.put(tmp_path, NAME, "one") is None  # what was written long ago is ours, too
    (tmp_path / NAME).write_text("mine again")
    assert output_files.put(tmp_path, NAME, "four") == tmp_path / "report.md.2"
    assert files(tmp_path) == {NAME: "four", f"{NAME}.1": "mine", f"{NAME}.2": "mine again"}


@pytest.mark.parametrize("record", [None, b"", b"0" * 64 + b"  report.md", b"  report.md", b"\xff"])
def test_without_a_record_everything_counts_as_edited(tmp_path, record):
    output_files.put(tmp_path, NAME, "one")
    (tmp_path / output_files.RECORD).unlink()
    if record is not None:
        (tmp_path / output_files.RECORD).write_bytes(record)
    (tmp_path / "report.md.1").symlink_to("nowhere")  # a name that is taken
    said = r"report\.md was edited, or is not of expqk, and is never overwritten: move it"
    with pytest.raises(FileExistsError, match=said), output_files.recorded(tmp_path, NAME) as path:
        path.write_text("two")
    assert files(tmp_path) == {NAME: "one"}
    assert output_files.put(tmp_path, NAME, "two") == tmp_path / "report.md.2"
    assert files(tmp_path) == {NAME: "two", f"{NAME}.2": "one"}
    assert not output_files.edited(tmp_path, NAME)


def test_a_pipe_is_not_waited_for_and_a_link_is_not_followed(tmp_path):
    os.mkfifo(tmp_path / NAME)
    (tmp_path / output_files.MANIFEST).symlink_to(tmp_path / "away")
    with pytest.raises(FileExistsError, match=r"manifest\.json was edited"):
        output_files.describe(tmp_path, {})
    assert output_files.put(tmp_path, NAME, "one") == tmp_path / "report.md.1"
    (tmp_path / output_files.RECORD).unlink()
    os.mkfifo(tmp_path / output_files.RECORD)
    with pytest.raises(FileExistsError, match=r"written\.sha256 is not a file of expqk"):
        output_files.put(tmp_path, NAME, "two")
    assert (tmp_path / NAME).read_text() == "one"
    assert not (tmp_path / "away").exists()


@pytest.mark.parametrize("moment", ["_line", "_record", "os"])
def test_a_run_that_is_killed_loses_nothing_and_leaves_nothing_edited(
    tmp_path, monkeypatch, moment
):
    """While the file is written, before its line in the record, and between that and the file."""
    output_files.put(tmp_path, NAME, "one")
    patched, what = (output_files.os, "replace") if moment == "os" else (output_files, moment)
    before = getattr(patched, what)

    def killed(path, *arguments):
        if path == tmp_path or path.name.startswith(".tmp-"):
            raise KeyboardInterrupt
        return before(path, *arguments)

    for text in ("one", "mine"):
        with monkeypatch.context() as patch:
            patch.setattr(patched, what, killed)
            (tmp_path / NAME).write_text(text)
            with pytest.raises(KeyboardInterrupt):
                output_files.put(tmp_path, NAME, "two")
        assert text in files(tmp_path).values()
        assert text == "mine" or not output_files.edited(tmp_path, NAME)
        assert not list(tmp_path.glob(".tmp-*"))


def test_a_folder_holds_one_result(tmp_path):
    output_files.refuse_another(tmp_path, "report")
    output_files.describe(tmp_path, {"holds": "report", "seed": 3})
    output_files.describe(tmp_path, {"holds": "report", "seed": 4})
    assert output_files.manifest(tmp_path)["seed"] == 4
    output_files.refuse_another(tmp_path, "report")
    with pytest.raises(FileExistsError, match="holds report, which report-zh does not"):
        output_files.refuse_another(tmp_path, "report-zh")


def write_many(folder, start):
    for i in range(start, start + 40):
        output_files.put(folder, f"data/{i}.csv", f"{i}")


def test_processes_that_write_at_once_are_all_recorded(tmp_path):
    engines.results([Application(write_many, (tmp_path, i)) for i in (0, 40)], jobs=2)
    names = [f"data/{i}.csv" for i in range(80)]
    assert all((tmp_path / name).is_file() for name in names)
    output_files.refuse_edited(tmp_path, names)


CONFIG = """
temperatures = [1.0]
methods = ["zero", "taylor(degree=1)", "top_k(k=2)"]
inputs = [{kind = "gaussian", n = 8, d = 4}]
"""
COMMANDS = {
    "target": ["target", "qk.npz", "--tv", "0.5", "--method", "top_k", "--json", "--out"],
    "sweep": ["sweep", "own.toml", "--store"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_stopped_continues_and_repairs(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("qk.npz", **{name: rng.standard_normal((3, 16, 4)) for name in "qk"})
    (tmp_path / "own.toml").write_text(CONFIG)
    put, puts = Store.put, []

    def stopped(self, key, outcome):
        put(self, key, outcome)
        puts.append(key)
        if len(puts) == 2:
            raise KeyboardInterrupt

    def run(folder):
        status = main([*COMMANDS[command], folder, "--jobs", "1"])
        return status, capsys.readouterr().out.replace(folder, "")

    whole = run("whole")
    monkeypatch.setattr(Store, "put", stopped)
    assert run("mine")[0] == 130
    assert run("mine") == whole
    assert len(puts) == len({*puts}) == 3  # each once
    (path,) = (tmp_path / "mine").rglob(f"{puts[0]}.*")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert run("mine") == whole
    assert puts[3:] == puts[:1]
