"""Anything at every public entry point: a clean error, or a sound result.

Clean: of a type a user expects, one line of at most 300 characters; no crash, no hang, no file
outside the output folder, inputs as they were. `make test` runs some 200 cases, always the same;
`make fuzz` (the profile ``fuzz``) at least 50 for every entry point, new ones each time.
"""

import contextlib
import faulthandler
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import entries
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from entries import BOTH, MATRICES, POINTS, VALUES, call, clean
from hypothesis import HealthCheck, given, settings, strategies as st
from small import NAMES, dense, small

from analysis.inputs import Head, Heads, load
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


@contextlib.contextmanager
def guarded():
    """Limit memory and time: a hang ends the process with every thread's stack."""
    memory.set_limit(2**28)
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


# Strategies

REAL = ["f8", "f4", "f2", "g", "i1", "u1", "i8", "u8", "?", ">f8", ">f4", ">i2"]
ODD = ["c16", "O", "U3", "S2", "M8[s]", "m8[s]"]
SPECIAL = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e160, 5e-324, -0.0, 1e-160, 3e38, 1e-45]
SIZES = st.sampled_from([1, 1, 2, 2, 3, 4, 5, 6, 6, 0])


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
    layout = draw(st.sampled_from(LAYOUTS if draw(st.booleans()) else LAYOUTS[:1]))
    with contextlib.suppress(ValueError, TypeError, IndexError):  # not every dtype has every layout
        return layout(x)
    return x


LAYOUTS = [
    lambda x: x,
    *entries.LAYOUTS.values(),
    lambda x: np.ma.masked_array(x, np.zeros(x.shape, bool)),
    scipy.sparse.csr_array,
    lambda x: np.broadcast_to(x[:1], x.shape),
]
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.binary(max_size=3),
    st.complex_numbers(), st.lists(st.floats(), max_size=3), st.integers(-(10**400), 10**400),
    st.sampled_from([np.float32(1), np.int8(3), np.array(2.0), {}, object(), 1e308, 5e-324]),
)  # fmt: skip


def digest(x):
    if scipy.sparse.issparse(x):
        x = x.toarray()
    raw = x.to_numpy() if isinstance(x, pd.DataFrame) else x
    return raw.tolist() if getattr(raw, "dtype", None) == np.dtype(object) else hashed(raw)


def hashed(x):
    with contextlib.suppress(ValueError):  # a ragged list
        return hashlib.sha256(np.ascontiguousarray(x).tobytes()).digest()


def tried(use, *given):
    """Call with a guard; check that what was given is what it was."""
    before = [digest(x) for x in given]
    with guarded():
        found, error = clean(lambda: use(*given))
    assert [digest(x) for x in given] == before
    return found, error


def assert_sound(A):
    row_log = A.row_log()
    assert np.isfinite(row_log).all()
    assert np.isfinite(dense(A)[0]).all()
    assert np.isfinite(A.attend(np.ones(A.shape[1]))).all()


# Arrays


@st.composite
def problems(draw):
    n, l, d = draw(SIZES), draw(SIZES), draw(SIZES)
    return draw(arrays((n, d))), draw(arrays((l, d)))


@pytest.mark.parametrize("name", sorted(METHODS) if FUZZ else [None])
@cases(25)
@given(st.data())
def test_methods(name, data):
    name = name or data.draw(st.sampled_from(NAMES))
    Q, K = data.draw(problems())
    shape = [max(1, x) for x in (*np.shape(Q)[:1], *np.shape(K)[:1], *np.shape(Q)[1:2])]
    shape += [1] * (3 - len(shape))
    method = small(name, *shape)
    if data.draw(st.integers(0, 5)) == 0:
        method = type(method)()
    rng = data.draw(st.one_of(st.integers(0, 9), JUNK))
    A, error = tried(lambda Q, K: method.approximate(Q, K, rng=rng), Q, K)
    if error is None:
        assert_sound(A)
    for use in (method.moments, lambda Q, K: method.covariance(Q, K, row=0)):
        found, _ = tried(use, Q, K)
        if found is not None:
            assert not np.isnan(found).any()
    sizes = {x: data.draw(st.one_of(st.integers(1, 2**40), JUNK)) for x in "nld"}
    budget = data.draw(st.one_of(st.floats(0.1, 1e6), JUNK))
    found, _ = tried(lambda: method.within(budget, **sizes))
    assert found is None or not found.is_template


@pytest.mark.parametrize("name", sorted(POINTS.keys() - {x for x in POINTS if "Method" in x}))
@cases(3)
@given(problems())
def test_points(name, QK):
    found, error = tried(POINTS[name], *QK)
    if error is None and name.startswith("exact."):
        assert np.isfinite(found).all()
    if error is None and name == "metrics.compare":
        assert not np.isnan(list(found.values())).any()


@pytest.mark.parametrize("name", sorted(MATRICES))
@cases(3)
@given(st.tuples(SIZES, SIZES).flatmap(arrays))
def test_matrices(name, D):
    found, error = tried(MATRICES[name], D)
    if error is None and hasattr(found, "sparse"):
        assert np.isfinite(found.low_rank).all()
        assert np.isfinite(found.sparse.data).all()
    if error is None and name.startswith("rank."):
        assert np.isfinite(list(found.values()) if isinstance(found, dict) else found).all()


@pytest.mark.parametrize("name", sorted(VALUES))
@cases(3)
@given(st.integers(0, 3).flatmap(lambda c: arrays((4, c))))
def test_values(name, V):
    found, error = tried(VALUES[name], V)
    if error is None:
        assert np.isfinite(list(found.values()) if isinstance(found, dict) else found).all()


@cases(10)
@given(JUNK, st.data())
def test_junk_instead_of_arrays(value, data):
    entry, side = data.draw(
        st.sampled_from(
            [*((x, s) for x in POINTS.values() for s in "QK")]
            + [(x, "V") for x in [*MATRICES.values(), *VALUES.values()]]
        )
    )
    tried(lambda: call(entry, side, value))


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


# Numbers, specs


@pytest.mark.parametrize("kind", entries.ARGUMENTS)
@cases(4, 2000)
@given(st.data())
def test_arguments(kind, data):
    name = data.draw(st.sampled_from(sorted(entries.ARGUMENTS[kind])))
    value = data.draw(st.one_of(JUNK, st.floats(0.01, 100), st.integers(-2, 9)))
    if name in ("draws", "trials", "jobs") and isinstance(value, int) and value > 9:
        value %= 10  # that long a run is what was asked for
    if value is not None:  # often the default
        tried(lambda: entries.ARGUMENTS[kind][name](value))


@st.composite
def specs(draw):
    """Draw a spec: a known one with pieces of it changed, or text."""
    text = str(small(draw(st.sampled_from(NAMES[:-2])), 5, 4, 3))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        piece = draw(
            st.one_of(
                st.text(max_size=3),
                st.sampled_from([
                    "(", ")", "=", ",", "()", "m=3", "k=1e9", "None", "nan", "-1", "10**9", "True",
                    "[" * 300, "*x", "**{}", "lambda: 0", "__import__('os')", "x.y", "inf", "1e999",
                    "top_k(k=2)", "degree=", "9" * 5000, "'a'", "\x00", "\n", "{1: 2}", "1j",
                ]),
            )
        )  # fmt: skip
        text = text[:at] + piece + text[at + draw(st.integers(0, 4)) :]
    return text


@cases(30, 500)
@given(specs())
def test_specs(text):
    method, error = tried(parse, text)
    if error is not None:
        return
    assert parse(str(method)) == method
    x = np.random.default_rng(0).standard_normal((9, 3))
    A, error = tried(lambda: method.approximate(x[:5], x[5:], rng=0))
    if error is None:
        assert isinstance(A, Approximation)
        assert_sound(A)


# Files


def written(kind):
    x = np.arange(12.0).reshape(2, 3, 2)
    content = {"q": x, "k": x.astype("f4"), "scaling": np.array(0.5), "causal": np.array(True)}
    file = io.BytesIO()
    if kind == "npz":
        np.savez(file, **content, layers=np.array([0, 0]), heads=np.array([3, 4]))
    elif kind == "compressed":
        np.savez_compressed(file, **content)
    elif kind == "npy":
        np.save(file, x)
    else:
        header, data = {}, b""
        for name, y in content.items():
            y = y.astype("f4")
            ends = [len(data), len(data) + y.nbytes]
            header[name] = {"dtype": "F32", "shape": list(y.shape), "data_offsets": ends}
            data += y.tobytes()
        text = json.dumps(header).encode()
        file.write(len(text).to_bytes(8, "little") + text + data)
    return file.getvalue()


@st.composite
def mutated(draw, raw):
    """Draw the bytes of a file with up to six places changed; half of them in what is text."""
    for _ in range(draw(st.integers(1, 6))):
        text = [i for i, b in enumerate(raw) if 48 <= b < 126] or [0]
        at = draw(st.one_of(st.sampled_from(text), st.integers(0, max(len(raw) - 1, 0))))
        width = draw(st.integers(0, 8))
        piece = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from(
                    [b"9", b"-", b"99999999", b"\xff" * 8, b"\0" * 8, b"O", b"<f8", b"("]
                ),
                st.just(raw[at : at + width] * 2),
            )
        )
        raw = raw[:at] + piece + raw[at + width :]
        if draw(st.integers(0, 7)) == 0:
            raw = raw[: draw(st.integers(0, len(raw)))]
    return raw


def place(kind, folder, raw):
    """Write the bytes where `load` takes them; return that path."""
    if kind == "npy":
        np.save(folder / "k.npy", np.arange(12.0).reshape(2, 3, 2))
        (folder / "q.npy").write_bytes(raw)
        return folder
    path = folder / ("x.safetensors" if kind == "safetensors" else "x.npz")
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("kind", ["npz", "compressed", "npy", "safetensors"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.filterwarnings("ignore::analysis.inputs.array_files.InputFileWarning")
@cases(12, 250)
@given(st.data())
def test_files(kind, data):
    raw = data.draw(mutated(written(kind)))
    with tempfile.TemporaryDirectory() as name:
        path = place(kind, Path(name), raw)
        before = sorted(p.name for p in Path(name).iterdir())
        found, error = tried(lambda: load(path, dtype=data.draw(st.sampled_from(["float64", "x"]))))
        assert sorted(p.name for p in Path(name).iterdir()) == before
        if error is None:
            assert isinstance(found, Head | Heads)
            for head in found.heads():
                clean(lambda: (head.Q, head.K, head.digest()))  # noqa: B023
        del found


# Configs of sweeps

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
path = "x.npz"
heads = ["0.4"]
dtype = "float32"
"""
CONFIG_VALUES = [
    "nan", "-inf", "-1", "0", "1e400", "9" * 400, "9" * 20, "true", '"8"', "[]", "{}", "[[1]]",
    '["zero", "zero"]', '["\\u0000"]', '"../x.npz"', '"/dev/zero"', '"."', "1979-05-27", "\xff",
    '["' + "x" * 999 + '"]', '"' + "x" * 999 + '"', '"gaussian"', '"sample"', "[1, 1.0]",
    "[5e-324]",
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
        place("npz", folder, written("npz"))
        (folder / "own.toml").write_bytes(raw)
        found, _ = tried(lambda: config.load(folder / "own.toml").plan(folder))
        assert sorted(p.name for p in folder.iterdir()) == ["own.toml", "x.npz"]
    assert found is None or 0 < len(found.cells) == len(set(found.keys))


# Commands

TOKENS = st.sampled_from([
    "--qk", "--heads", "--budget", "--seed", "--jobs", "--max-memory", "--format", "--profile", "0",
    "-1", "nan", "1e400", "0.3", "9.9", "9" * 5000, "10K", "1e9G", "4G", "quick", "png", "spectrum",
    "rank", "../x", "/", "\x1b[31m", "é", "", "--json", "--rebuild", "--out", "in",
    "in/q.npy", "x.pt",    "positive", "nonsense(", "--help", "a\nb",
])  # fmt: skip


@cases(3, 20)
@given(st.data())
def test_commands(data):
    """Real processes; a figure that could be drawn is drawn from a small file."""
    command = data.draw(
        st.sampled_from(["figures", "report", "methods", "capture", "sweep", "verify", "x"])
    )
    arguments = [command, *data.draw(st.lists(TOKENS, max_size=5))]
    if command in ("figures", "report"):
        kind = data.draw(st.sampled_from(["npz", "npy", "safetensors"]))
        more = ["--profile", "quick", "--jobs", "1", "--qk", "in" if kind == "npy" else "in/x"]
        arguments += data.draw(st.sampled_from([more, [*more, "--seed", "-1"]]))
        if kind != "npy":
            arguments[-1 if arguments[-1] == "in/x" else -3] += f".{kind}"
        arguments[1:1] = ["spectrum"] if command == "figures" else ["--budget", "nan"]
    if command == "sweep":
        arguments[1:1] = ["in/own.toml", "--store", "out/store"]
    output = [] if command in ("sweep", "verify") else ["--out", "out"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        (folder / "in").mkdir(parents=True)
        if command in ("figures", "report"):
            place(kind, folder / "in", data.draw(mutated(written(kind))))
        if command == "sweep":
            place("npz", folder / "in", written("npz"))
            (folder / "in/own.toml").write_bytes(data.draw(configs()))
        before = {p for p in Path(name).rglob("*") if p.is_file()}
        done = subprocess.run(
            [sys.executable, "-m", "figures", *arguments, *output],
            capture_output=True, text=True, timeout=SECONDS, cwd=folder, check=False,
        )  # fmt: skip
        after = {p for p in Path(name).rglob("*") if p.is_file()}
    said = f"{arguments}: {done.stderr[-1500:]}"
    assert done.returncode in (0, 1, 2), said
    assert "Traceback" not in done.stderr, said
    assert done.returncode == 2 or len(done.stderr) <= MOST_CHARACTERS + 100, said
    assert all(p.is_relative_to(folder / "out") for p in after - before), said
