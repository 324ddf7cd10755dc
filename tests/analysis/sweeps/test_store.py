"""The store: the same bits, whole files only, growth, failures, leftovers."""

import errno
import hashlib
import json
import math
import os
import stat
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pandas.testing import assert_frame_equal

from analysis.errors.metrics import compare
from analysis.inputs import Head, gaussian
from analysis.runs import output_files
from analysis.runs.tasks import Failure
from analysis.sweeps import table
from analysis.sweeps.store import CellsFailed, StoreError, SweepStore, read
from analysis.sweeps.sweep import plan, sweep
from approx import parse

KEY, OTHER = "0" * 64, "f" * 64
FAILURE = Failure("ValueError", "no", "line 1")
METHODS = [parse(s) for s in ("positive(m=4)", "zero", "taylor(degree=1)")]
GRID = {"trials": 3, "seed": 0}
X = gaussian(7, 3, rng=0)


def row(value, name="gaussian", stderr=math.nan):
    return (name, -1, 3, 7, 7, 3, 0.5, "positive(m=4)", 8.0, 0, "attention_tv", value, stderr)


def bits(rows):
    """Return rows with every float as its 64 bits, so that NaN and −0.0 compare."""
    return [
        tuple(struct.pack("<d", x) if isinstance(x, float) else x for x in typed) for typed in rows
    ]


def shards(folder, pattern="*.*"):
    return sorted(p for p in (folder / "cells").glob(pattern) if not p.name.startswith(".tmp-"))


# Bits

HARD = [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308,
        0.1 + 0.2, 2 / 3, 1e16 + 2]  # fmt: skip
NAMES = ["plain", "comma, quote \" and 'both'", "line\nbreak", "Ω Gauß 注意力", "# sha256", ""]


def test_what_is_read_is_what_was_written(tmp_path):
    kept = SweepStore(tmp_path)
    kept.open([KEY])
    rows = [row(x, name, -x) for x in HARD for name in NAMES]
    kept.put(KEY, rows)
    assert [p.name for p in shards(tmp_path)] == [f"{KEY}.csv"]
    found = SweepStore(tmp_path).get(KEY)
    assert bits(found) == bits(map(table.typed, rows))
    assert [type(x) for x in found[0]] == list(table.KINDS.values())
    assert_frame_equal(read(tmp_path), table.frame(map(table.typed, rows)), check_exact=True)


@settings(max_examples=25)
@given(values=st.lists(st.binary(min_size=8, max_size=8), max_size=5))
def test_any_float_is_the_same_as_text(values):
    """All 2⁶⁴ of them; of the NaNs, one is left."""
    rows = [table.typed(row(struct.unpack("<d", x)[0])) for x in values]
    assert bits(table.parsed(table.as_csv(rows))) == bits(rows)


# Whole files


def test_a_file_is_synced_before_and_after_it_gets_its_name(tmp_path, monkeypatch):
    kept, calls = SweepStore(tmp_path), []
    sync, replace = os.fsync, os.replace

    def synced(descriptor):
        calls.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        sync(descriptor)

    def replaced(source, target):
        assert source.parent == target.parent
        assert source.name.startswith(".tmp-")
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    kept.open([KEY])
    assert calls == ["sync file", "replace", "sync folder"]
    calls.clear()
    kept.put(KEY, [row(1.0)])
    assert calls == ["replace"]
    shards(tmp_path)[0].write_bytes(b"")  # what the machine may leave of it
    assert SweepStore(tmp_path).get(KEY) is None


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    kept = SweepStore(tmp_path)
    kept.open([KEY])
    kept.put(KEY, [row(1.0)])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match=rf"No space left on device: '.*{KEY}\."):
            kept.put(KEY, [row(2.0)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*manifest\."):
            kept.open([KEY, OTHER])
    assert kept.manifest["cells"] == [KEY]
    assert not list(tmp_path.glob("**/.tmp-*"))
    assert SweepStore(tmp_path).get(KEY)[0][-2] == 1.0


def test_leftovers_of_the_dead_are_swept_and_only_those(tmp_path):
    kept = SweepStore(tmp_path)
    kept.open([KEY])
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host, pid = output_files._host(), os.getpid()
    swept = [f".tmp-{host}-{x}-00000000-7.{KEY}.csv" for x in (dead.pid, pid)]
    left = [
        f".tmp-{host}-{os.getppid()}-00000000-7.{KEY}.csv",  # another process, alive
        f".tmp-{host}-{pid}-{output_files.TOKEN}-7.{KEY}.csv",  # this one, in another thread
        f".tmp-elsewhere-{dead.pid}-00000000-7.{KEY}.csv",
        ".tmp-not-ours",
    ]
    for name in swept + left:
        (tmp_path / "cells" / name).write_bytes(b"half")
    SweepStore(tmp_path).open([KEY])
    assert sorted(p.name for p in (tmp_path / "cells").iterdir()) == sorted(left)
    assert not kept.done(KEY)


# What a store is of


def test_a_sweep_may_grow_and_shrink_but_not_change(tmp_path):
    small, large = [plan(METHODS, X, [1.0], trials=t, seed=0) for t in (2, 3)]
    sweep(METHODS, X, [1.0], trials=2, seed=0, store=tmp_path)
    before = {p: p.stat().st_mtime_ns for p in shards(tmp_path)}
    grown = sweep(METHODS, X, [1.0], **GRID, store=tmp_path)
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    assert len(shards(tmp_path)) == len(before) + 1
    again = sweep(METHODS, X, [1.0], trials=2, seed=0, store=tmp_path)
    assert_frame_equal(again, sweep(METHODS, X, [1.0], trials=2, seed=0), check_exact=True)
    manifest = SweepStore(tmp_path).manifest
    assert manifest["cells"] == large.keys != small.keys
    assert (manifest["seed"], manifest["versions"]["numpy"]) == (0, np.__version__)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cells", "manifest.json"]
    assert_frame_equal(read(tmp_path), grown, check_exact=True)
    for change in (
        {"temperatures": [1.0, 2.0]},
        {"seed": 1},
        {"inputs": gaussian(7, 3, rng=1)},
        {"methods": METHODS[:2]} | {"trials": 4},
        {"measure": one},
    ):
        arguments = {"methods": METHODS, "inputs": X, "temperatures": [1.0]} | GRID | change
        with pytest.raises(StoreError, match=r"holds another sweep: \d of its 5 cells are not in"):
            sweep(**arguments, store=tmp_path)
    assert_frame_equal(read(tmp_path), grown, check_exact=True)


def test_of_two_sweeps_that_begin_a_store_at_once_one_is_told(tmp_path, monkeypatch):
    def meanwhile(store, planned, **_):
        (tmp_path / "manifest.json").unlink()  # both had found none
        SweepStore(tmp_path).open([OTHER])
        return []

    monkeypatch.setattr("analysis.sweeps.sweep.fill", meanwhile)
    with pytest.raises(StoreError, match="holds another sweep: 1 of its 1 cells"):
        sweep(METHODS, X, [1.0], **GRID, store=tmp_path)


def one(approximation, inputs):
    return {"one": 1.0}


def test_a_cell_is_known_by_all_that_decides_its_numbers(monkeypatch):
    def key(methods="positive(m=4)", inputs=X, temperatures=(1.0,), **options):
        arguments = {"trials": 1, "seed": 0} | options
        return plan([parse(methods)], inputs, temperatures, **arguments).keys[-1]

    other = Head("gaussian", X.q, X.k, X.k)
    named = Head("other", X.q, X.k, X.v)
    found = [
        key(), key("positive(m=2)"), key(inputs=other), key(inputs=named), key(temperatures=(2.0,)),
        key(temperatures=(1.0, 2.0)), key(trials=2), key(seed=1), key(budget=16.0),
        key(budget=17.0), key(budget=1e3, currency="reads"), key(budget=1e3), key(measure=one),
    ]  # fmt: skip
    assert len(set(found)) == len(found)
    assert key() == key() == key(trials=1, inputs=[X])
    monkeypatch.setattr("analysis.runs.tasks.version", lambda: "9.9")
    assert key() not in found
    for nameless in (lambda a, x: {"one": 1.0}, __import__("functools").partial(one)):
        with pytest.raises(TypeError, match="a store needs a measure with a name"):
            key(measure=nameless)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 1}', '{"format": 2, "cells": []}', '{"format": 1, "cells": [1]}',
     '{"format": 1, "cells": ["../../etc/passwd"]}', "[" * 100_000, None],
)  # fmt: skip
def test_a_damaged_manifest_is_one_error(tmp_path, text):
    path = tmp_path / "manifest.json"
    os.mkfifo(path) if text is None else path.write_text(text)  # a pipe would wait for ever
    with pytest.raises(StoreError, match="manifest"):
        read(tmp_path)
    with pytest.raises(StoreError, match="manifest"):
        sweep(METHODS, X, [1.0], **GRID, store=tmp_path)


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match="is not a store, and it is not empty"):
        sweep(METHODS, X, [1.0], **GRID, store=tmp_path)
    with pytest.raises(StoreError, match="is not a folder"):
        SweepStore(tmp_path / "thesis.txt")
    with pytest.raises(FileNotFoundError, match="there is no"):
        read(tmp_path / "none")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


# Failures

broken = set()


def fragile(approximation, inputs):
    if approximation.rank in broken:
        raise ZeroDivisionError(f"rank {approximation.rank} is broken\nin two lines")
    return compare(approximation, inputs.Q, inputs.K)


def test_a_failing_cell_is_recorded_and_stops_nothing(tmp_path):
    def run(**options):
        return sweep(METHODS, X, [1.0], **GRID, measure=fragile, **options)

    whole = run()
    broken.add(4)  # positive(m=4) in three trials, and taylor(degree=1)
    with pytest.raises(ZeroDivisionError):
        run()
    message = r"4 of 5 cells failed, the others are in .*; the first: positive\(m=4\) on gaussian"
    with pytest.raises(CellsFailed, match=message):
        run(store=tmp_path)
    assert len(shards(tmp_path, "*.error.json")) == 4
    found = [json.loads(p.read_text("utf-8")) for p in shards(tmp_path, "*.error.json")]
    assert {f["kind"] for f in found} == {"ZeroDivisionError"}
    assert {f["method"] for f in found} == {"positive(m=4)", "taylor(degree=1)"}
    assert all("rank 4 is broken" in f["message"] and "fragile" in f["trace"] for f in found)
    assert set(read(tmp_path).method) == {"zero()"}
    broken.clear()
    with pytest.raises(CellsFailed):  # not tried again unless asked
        run(store=tmp_path)
    found = run(store=tmp_path, retry_failed=True)
    assert_frame_equal(found, whole, check_exact=True)
    assert not shards(tmp_path, "*.error.json")


def test_a_cell_that_is_done_has_not_failed(tmp_path):
    kept = SweepStore(tmp_path)
    kept.open([KEY])
    kept.fail(KEY, FAILURE, method="zero()")
    assert kept.failure(KEY).message == "no"
    error = kept._error(KEY).read_bytes()
    kept.put(KEY, [row(1.0)])
    assert not kept._error(KEY).exists()
    kept._error(KEY).write_bytes(error)  # killed between the two
    assert SweepStore(tmp_path).failure(KEY) is None
    for damaged in (b"{", b"5", b"[1]", b"\xff", b"[" * 100_000):
        kept._error(OTHER).write_bytes(damaged)
        assert SweepStore(tmp_path).failure(OTHER) is None, damaged


def test_a_shard_with_a_true_checksum_of_no_rows_is_altered(tmp_path):
    kept = SweepStore(tmp_path)
    kept.open([KEY])
    for body in ("1,2\n", table.as_csv([row(1.0)]).replace("1.0", "one"), '"', "a\0b\n"):
        whole = hashlib.sha256(f"{KEY}\n{body}".encode()).hexdigest()
        text = f"# sha256 {whole}\n{','.join(table.KINDS)}\n{body}"
        (tmp_path / "cells" / f"{KEY}.csv").write_text(text)
        assert SweepStore(tmp_path).altered(KEY), body


def test_an_empty_sweep_leaves_a_store_that_may_grow(tmp_path):
    taylor = [parse("taylor(degree=9)")]
    assert sweep(taylor, X, [1.0], **GRID, budget=4.0, store=tmp_path).empty
    assert read(tmp_path).empty
    grown = sweep([*taylor, parse("zero")], X, [1.0], **GRID, budget=4.0, store=tmp_path)
    assert_frame_equal(read(tmp_path), grown, check_exact=True)
