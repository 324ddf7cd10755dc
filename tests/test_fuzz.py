"""Anything at every public entry point: a clean error, or a sound result.

Clean: of a type a user expects, one line of at most 300 characters; no crash, no hang, no file
outside the output folder, inputs as they were. `make test` runs some 200 cases, always the same;
`make fuzz` (the profile ``fuzz``) at least 50 for every kind of argument, new ones each time.
"""

import contextlib
import faulthandler
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from entries import ARGUMENTS, ARRAYS, BOTH, clean
from files import KINDS, write
from hypothesis import HealthCheck, given, settings, strategies as st
from small import NAMES, dense, small

from analysis.inputs import load
from analysis.sweeps import config
from approx import METHODS, Approximation, parse
from approx.estimate import memory
from figures.command.cli import MOST_CHARACTERS

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
SECONDS = 120  # for one case, compiling included


def cases(quick, full=50):
    """Return the settings of a test: how many cases in `make test`, and in `make fuzz`."""
    return settings(
        max_examples=full if FUZZ else quick,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def tried(use, *given):
    """Call with limits of memory and time; check that what was given is what it was."""
    before = [repr(x) for x in given]
    memory.set_limit(2**28)
    faulthandler.dump_traceback_later(SECONDS, exit=True)  # a hang: every thread's stack
    try:
        found, error = clean(lambda: use(*given))
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert [repr(x) for x in given] == before
    if isinstance(found, Approximation):
        for x in (found.row_log(), dense(found)[0], found.attend(np.ones(found.shape[1]))):
            assert np.isfinite(x).all()
    return found, error


REAL = ["f8", "f4", "f2", "g", "i1", "u1", "i8", "u8", "?", ">f8", ">f4", ">i2"]
ODD = ["c16", "O", "U3", "S2", "M8[s]", "m8[s]"]
SPECIAL = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e160, 5e-324, -0.0, 1e-160, 3e38, 1e-45]
SIZES = st.sampled_from([1, 1, 2, 2, 3, 4, 5, 6, 6, 0])
LAYOUTS = [
    np.asfortranarray, lambda x: x[::-1], np.ndarray.tolist, pd.DataFrame, scipy.sparse.csr_array,
    lambda x: np.ma.masked_array(x, np.zeros(x.shape, bool)),
    lambda x: np.broadcast_to(x[:1], x.shape),
]  # fmt: skip
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.binary(max_size=3), st.complex_numbers(), st.lists(st.floats(), max_size=3),
    st.integers(-(10**400), 10**400), st.floats(0.01, 100), st.integers(-2, 9),
    st.sampled_from([np.float32(1), np.int8(3), np.array(2.0), {}, object(), 1e308, 5e-324]),
)  # fmt: skip


@st.composite
def arrays(draw, shape):
    """Draw an array, mostly of the shape asked for, mostly of numbers."""
    if draw(st.integers(0, 9)) == 0:
        shape = tuple(draw(st.lists(SIZES, max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    size = 10.0 ** draw(st.sampled_from([0, 0, 0, -1, 1, 2, 4, 20, 100, 154, 300, -20, -160]))
    ones = draw(st.booleans())
    x = np.asarray(size * (np.ones(shape) if ones else rng.standard_normal(shape)))
    if x.size and draw(st.integers(0, 3)) == 0:
        x.flat[draw(st.integers(0, x.size - 1))] = draw(st.sampled_from(SPECIAL))
    dtype = draw(st.sampled_from(REAL if draw(st.integers(0, 5)) else ODD))
    with np.errstate(all="ignore"):
        if np.dtype(dtype).kind in "iuMm":
            x = np.nan_to_num(x, posinf=0, neginf=0)
        x = x.astype(dtype)
    with contextlib.suppress(ValueError, TypeError, IndexError):  # not every dtype has every layout
        return draw(st.sampled_from(LAYOUTS))(x) if draw(st.booleans()) else x
    return x


@pytest.mark.parametrize("kind", ARGUMENTS)
@cases(8, 2000)
@given(st.data())
def test_entries(kind, data):
    entry, argument = data.draw(st.sampled_from(ARGUMENTS[kind]))
    shape = np.shape(entry.good[argument]) if kind in ARRAYS else None
    value = data.draw(JUNK if shape is None else st.one_of(arrays(shape), JUNK))
    if argument in ("draws", "trials", "jobs") and isinstance(value, int) and value > 9:
        value %= 10  # that long a run is what was asked for
    tried(lambda x: entry.given(argument, x), value)


@pytest.mark.parametrize("name", sorted(METHODS) if FUZZ else [None])
@cases(25)
@given(st.data(), SIZES, SIZES, SIZES)
def test_methods(name, data, n, l, d):
    Q, K = data.draw(arrays((n, d))), data.draw(arrays((l, d)))
    method = small(name or data.draw(st.sampled_from(NAMES)), *(max(1, x) for x in (n, l, d)))
    if data.draw(st.integers(0, 5)) == 0:
        method = type(method)()
    rng = data.draw(st.one_of(st.integers(0, 9), JUNK))
    tried(lambda Q, K: method.approximate(Q, K, rng=rng), Q, K)
    for use in (method.moments, lambda Q, K: method.covariance(Q, K, row=0)):
        found, _ = tried(use, Q, K)
        assert found is None or not np.isnan(found).any()
    sizes = {x: data.draw(st.one_of(st.integers(1, 2**40), JUNK)) for x in "nld"}
    budget = data.draw(st.one_of(st.floats(0.1, 1e6), JUNK))
    found, _ = tried(lambda: method.within(budget, **sizes))
    assert found is None or not found.is_template


PLACES = st.one_of(
    JUNK,
    st.lists(st.integers(-7, 7), max_size=5),
    st.builds(slice, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([1, 2, -1, None, 0])),
)


@cases(10)
@given(PLACES, PLACES, st.sampled_from(["positive(m=2)", BOTH, "taylor(degree=2)", "top_k(k=2)"]))
def test_blocks(rows, cols, spec):
    x = np.random.default_rng(0).standard_normal((9, 3))
    A = parse(spec).approximate(x[:5], x[5:], rng=0)
    found, error = tried(lambda: A.block(rows, cols))
    assert error is not None or np.isfinite(found).all()


PIECES = [
    "(", ")", "=", ",", "()", "m=3", "k=1e9", "None", "nan", "-1", "10**9", "True", "[" * 300, "*x",
    "**{}", "lambda: 0", "__import__('os')", "x.y", "inf", "1e999", "top_k(k=2)", "degree=",
    "9" * 5000, "'a'", "\x00", "\n", "{1: 2}", "1j",
]  # fmt: skip


@st.composite
def specs(draw):
    """Draw a spec: a known one with pieces of it changed, or text."""
    text = str(small(draw(st.sampled_from(NAMES[:-2])), 5, 4, 3))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        piece = draw(st.one_of(st.text(max_size=3), st.sampled_from(PIECES)))
        text = text[:at] + piece + text[at + draw(st.integers(0, 4)) :]
    return text


@cases(30, 500)
@given(specs())
def test_specs(text):
    method, error = tried(parse, text)
    if error is None:
        assert parse(str(method)) == method
        x = np.random.default_rng(0).standard_normal((9, 3))
        tried(lambda: method.approximate(x[:5], x[5:], rng=0))


# Files and commands


def written(folder, kind):
    """Write heads; return the file, or the folder, and the file whose bytes are to be changed."""
    x = np.arange(12.0, dtype="f4").reshape(2, 3, 2)
    facts = {"scaling": np.array(0.5, "f4"), "causal": np.array(1.0, "f4")}
    facts |= {"layers": np.zeros(2, int), "heads": np.array([3, 4])}
    path = write(folder, {"q": x, "k": x} | facts, kind)
    return path, path / "q.npy" if kind == "npy" else path


@st.composite
def mutated(draw, raw):
    """Draw the bytes of a file with up to six places changed; half of them in what is text."""
    for _ in range(draw(st.integers(1, 6))):
        text = [i for i, b in enumerate(raw) if 48 <= b < 126] or [0]
        at = draw(st.one_of(st.sampled_from(text), st.integers(0, max(len(raw) - 1, 0))))
        width = draw(st.integers(0, 8))
        known = [b"9", b"-", b"99999999", b"\xff" * 8, b"\0" * 8, b"O", b"<f8", b"("]
        known += [raw[at : at + width] * 2]
        piece = draw(st.one_of(st.binary(max_size=8), st.sampled_from(known)))
        raw = raw[:at] + piece + raw[at + width :]
        if draw(st.integers(0, 7)) == 0:
            raw = raw[: draw(st.integers(0, len(raw)))]
    return raw


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.filterwarnings("ignore::analysis.inputs.array_files.InputFileWarning")
@cases(12, 250)
@given(st.data())
def test_files(kind, data):
    with tempfile.TemporaryDirectory() as name:
        path, held = written(Path(name), kind)
        held.write_bytes(data.draw(mutated(held.read_bytes())))
        before = set(Path(name).rglob("*"))
        found, error = tried(lambda: load(path, dtype=data.draw(st.sampled_from(["float64", "x"]))))
        assert set(Path(name).rglob("*")) == before
        for head in [] if error else found.heads():
            clean(lambda: (head.Q, head.K, head.digest()))  # noqa: B023


CONFIG = b"""seed = 3
trials = 2
temperatures = [0.5, 1]
budgets = [4, 8.0]
methods = ["positive", "zero"]
[[inputs]]
kind = "clustered"
n = 8
d = 3
spread = 0.5
shared = true
[[inputs]]
kind = "file"
path = "data.npz"
heads = ["0.4"]
dtype = "float32"
"""
CONFIG_VALUES = [
    "nan", "-inf", "-1", "0", "1e400", "9" * 400, "9" * 20, "true", '"8"', "[]", "{}", "[[1]]",
    '["zero", "zero"]', '["\\u0000"]', '"../x.npz"', '"/dev/zero"', '"."', "1979-05-27", "\xff",
    '["' + "x" * 999 + '"]', '"gaussian"', '"sample"', "[1, 1.0]", "[5e-324]",
]  # fmt: skip


@st.composite
def configs(draw):
    """Draw the bytes of a config: keys left out, twice, renamed, of other values; then of any."""
    lines = CONFIG.splitlines()
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        key, equals, _ = lines[at].partition(b" = ")
        other = key + (equals or b" = ") + draw(st.sampled_from(CONFIG_VALUES)).encode("latin-1")
        changes = [[], [lines[at]] * 2, [key + b"s = 1"], [other], [other], [other]]
        lines[at : at + 1] = draw(st.sampled_from(changes))
        lines = lines or [b""]
    raw = b"\n".join(lines)
    return draw(mutated(raw)) if draw(st.integers(0, 3)) == 0 else raw


@cases(40, 1000)
@given(configs())
def test_configs(raw):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, "npz")
        (folder / "own.toml").write_bytes(raw)
        found, _ = tried(lambda: config.load(folder / "own.toml").plan(folder))
        assert sorted(p.name for p in folder.iterdir()) == ["data.npz", "own.toml"]
    assert found is None or 0 < len(found.cells) == len(set(found.keys))


TOKENS = st.sampled_from([
    "--qk", "--heads", "--budget", "--seed", "--jobs", "--max-memory", "--format", "--profile", "0",
    "-1", "nan", "1e400", "0.3", "9.9", "9" * 5000, "10K", "1e9G", "4G", "quick", "png", "spectrum",
    "rank", "../x", "/", "\x1b[31m", "é", "", "--json", "--rebuild", "--out", "in", "in/data/q.npy",
    "x.pt", "positive", "nonsense(", "--help", "a\nb",
])  # fmt: skip
FROM_FILE = ["--profile", "quick", "--jobs", "1", "--out", "out", "--qk"]


@cases(3, 20)
@given(st.sampled_from(KINDS), st.lists(TOKENS, max_size=5), st.data())
def test_commands(kind, more, data):
    """Real processes; a figure that could be drawn is drawn from a small file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        (folder / "in").mkdir(parents=True)
        path, held = written(folder / "in", kind)
        held.write_bytes(data.draw(mutated(held.read_bytes())))
        (folder / "in/own.toml").write_bytes(data.draw(configs()))
        qk = [*FROM_FILE, str(path.relative_to(folder))]
        start, end = data.draw(st.sampled_from([
            (["figures", "spectrum"], qk), (["report", "--budget", "nan"], qk),
            (["figures", "spectrum"], [*qk, "--seed", "-1"]), (["verify"], []), (["methods"], []),
            (["sweep", "in/own.toml", "--store", "out/store"], []), (["capture"], []), (["x"], []),
        ]))  # fmt: skip
        before = set(Path(name).rglob("*"))
        done = subprocess.run(
            [sys.executable, "-m", "figures", *start, *more, *end],
            capture_output=True, text=True, timeout=SECONDS, cwd=folder, check=False,
        )  # fmt: skip
        new = [p for p in set(Path(name).rglob("*")) - before if p.is_file()]
    said = f"{start} {more}: {done.stderr[-1500:]}"
    assert done.returncode in (0, 1, 2), said
    assert "Traceback" not in done.stderr, said
    assert done.returncode == 2 or len(done.stderr) <= MOST_CHARACTERS + 100, said
    assert all(p.is_relative_to(folder / "out") for p in new), said
