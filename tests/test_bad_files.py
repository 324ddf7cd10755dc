"""Bad files, and output that cannot be written.

Where there is a choice: arrays of other names in a file are ignored, unread, but for misspelt
options; a link to an input file is followed.
"""

import io
import json
import math
import os
import re
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from each import each
from entries import clean
from files import KINDS, archive, npy, safetensors, write
from matplotlib.figure import Figure
from refusals import refuses

from analysis.inputs import array_files, load, text_files
from analysis.inputs.array_files import InputFileError, InputFileWarning
from analysis.models import capture
from analysis.runs import output_files
from approx.estimate import memory
from figures.command import cli
from figures.command.cli import main
from figures.document import figure_files
from figures.drawing import style

ROOT = Path(__file__).parent.parent
X = np.arange(20.0).reshape(5, 4)
SOUND = {"q": X, "k": X}
HEADS3, HEADS2 = ({x: np.ones((h, 5, 4)) for x in "qkv"} for h in (3, 2))
FACTS = {x: np.ones((2, 3, 4)) for x in "qk"} | {"layers": np.zeros(2, int), "heads": np.arange(2)}
CAUSAL, ONES = {"causal": np.array(1)}, np.ones(3, int)


def members(*names):
    return lambda path: archive(path / "data.npz", [(f"{name}.npy", npy(X)) for name in names])


def named(name, content=b""):
    def put(path):
        (path / name).write_bytes(content)
        return path / name

    return put


def headed(header):
    return lambda path: safetensors(path / "data.safetensors", {"x": np.zeros(1)}, header=header)


def fifo(name, folder=""):
    def put(path):
        (path / folder).mkdir(exist_ok=True)
        os.mkfifo(path / folder / name)  # opened, it would wait for ever
        return path / (folder or name)

    return put


def bomb(path):
    """Return an archive whose member is larger than it says."""
    whole = write(path, {"q": np.zeros(10**6), "k": X}, "compressed")
    size = len(npy(np.zeros(10**6))).to_bytes(4, "little")
    assert whole.read_bytes().count(size) == 2
    whole.write_bytes(whole.read_bytes().replace(size, (200).to_bytes(4, "little")))
    return whole


def twice(third, size=X.nbytes):
    starts = (("q", 0), ("k", size), (third, 0 if third == "q" else 2 * size))
    of = '"{}":{{"dtype":"F64","shape":[5,4],"data_offsets":[{},{}]}}'.format
    one = [of(name, start, start + size) for name, start in starts]
    content = dict.fromkeys("ab" if third == "q" else "abc", X)  # the parser refuses holes
    header = ("{" + ", ".join(one) + "}").encode()
    return lambda path: safetensors(path / "data.safetensors", content, header=header)


LIES = [(10**15,), (10**15, 4), (2**62, 2**62), (10**9, 1), (0, 4), (-1, 4)]
NO_NUMBERS = "real numbers, got|Python objects|claims|at most 64 bits a number|cannot be read"
# what is written: arrays by name, in every format that has them, or a function of a folder
BAD = [
    *(({"q": npy(X, shape=shape), "k": X}, "claims") for shape in LIES),
    *(({"q": npy(np.zeros((5, 8)), descr=np.lib.format.dtype_to_descr(np.dtype(x)), shape=(5, 4)),
        "k": X}, NO_NUMBERS) for x in ("O", "<U4", "<c16", "M8[s]", "V8", "<f16")),
    (bomb, ""),
    (members("q", "q", "k"), "an array twice"),
    (members("q", "Q", "k"), "an array twice"),
    (members("../q", "k"), "no array 'q', it has ../q, k: rename ../q to q"),
    (members("/elsewhere/q", "a/q", "k"), "no array 'q'"),
    (lambda path: archive(path / "data.npz", [("q", "x"), ("k.npy", "x")]), "cannot be|not an arr"),
    (lambda path: archive(path / "data.npz", [("q", "x"), ("k", "x")]), "not an array"),
    *((SOUND | {wrong: X}, f"data.*: unknown array '{wrong}', did you mean '{right}'")
      for wrong, right in (("scale", "scaling"), ("casual", "causal"), ("stops", "stop"),
                           ("sink", "sinks"))),
    (SOUND | {"attention_mask": X}, "array 'attention_mask' is not read: give the mask by"),
    *((dict.fromkeys(names.split(), X), message) for names, message in (
        ("query key value", "no array 'q', it has key, query, value: rename query to q, key to k, "
                            "value to v"),
        ("q key_states", "no array 'k', it has key_states, q: rename key_states to k"),
        ("attn.hook_q attn.hook_k", "it has attn.hook_k, attn.hook_q: rename attn.hook_q to q, "
                                    "attn.hook_k to k"),
        ("a b c d e f g h", "no array 'q', it has a, b, c, d, e, f and 2 more$"),
        ("", "no array 'q', it has nothing$"),
        ("k v", "no query follows from keys and values, so run the model: `expqk capture"),
        ("h.0.q_proj.weight h.0.k_proj.weight", "it is a model: `expqk capture MODEL_DIR"))),
    # what does not go together
    *(({x: y for x, y in ({"q": X, "k": X, "v": X} | change).items() if y is not None}, message)
      for change, message in (
        ({"q": np.ones(4)}, "2-, 3- or 4-dimensional"),
        ({"q": np.ones((1, 1, 1, 5, 4))}, "2-, 3- or 4-dimensional"),
        ({"k": np.ones((2, 5, 4))}, r"dimensional, got q \(5, 4\), k \(2, 5, 4\)"),
        ({"k": np.ones((5, 3))}, "one width"),
        ({"v": np.ones((6, 4))}, "one length"),
        ({"q": np.ones((0, 4))}, "empty|claims"),
        ({"v": np.ones((5, 0))}, "empty|claims"),
        ({"scaling": np.array([0.1, 0.2])}, "scaling must be one value"),
        ({"causal": np.array([True, False])}, "causal must be one value"),
        ({"sinks": np.array([0.1, 0.2])}, r"sinks must be one logit, or one per head, \(\), got"),
        ({"sinks": np.array(np.inf)}, "sinks must be finite"),
        ({"causal": np.array(True), "k": np.ones((4, 4)), "v": None}, "so n must be <= l, got 5"),
        ({"scaling": np.array(np.nan)}, "scaling must be finite and > 0"),
        ({"q": np.array([[1.0, np.nan, np.inf, 0.0]])}, "q must be finite, got 2 NaN or inf"),
        ({"v": np.full((5, 1), np.nan)}, "v must be finite, got 5 NaN"))),
    *((HEADS3 | change, message) for change, message in (
        ({"k": HEADS2["k"]}, "multiple of those of k"),
        ({"k": np.ones((6, 5, 4))}, "multiple of those of k"),
        ({"v": HEADS2["v"]}, "multiple of those of v"),
        ({"v": np.ones((0, 5, 4))}, "must not be empty|claims"),
        ({"layers": np.zeros(2, int), "heads": np.arange(3)}, "one index for each of 3 heads"),
        ({"layers": np.zeros(3, int), "heads": np.arange(4)}, "one index for each of 3 heads"),
        ({x: np.ones((2 + (x != "q"), 3, 5, 4)) for x in "qkv"}, "must have one number of layers"),
        ({"Q": HEADS3["q"]}, "an array twice"))),
    *((FACTS | change, message) for change, message in (
        ({"causal": np.array(2)}, "causal must be 0 or 1, got 2"),
        ({"first": 0 * ONES}, "first needs stop"),
        ({"stop": np.arange(3)}, "every query must see a key.* got first=0, stop=0 for query 0"),
        ({"stop": 9 * ONES}, "stop must be at most l=3, got first=0, stop=9 for query 0"),
        ({"stop": np.ones(4, int)}, r"one entry per query, \(3,\)|got shapes \(3,\) and \(4,\)"),
        ({"stop": np.ones(4, int), "first": np.zeros(4, int)}, r"per query, \(3,\)"),
        ({"stop": np.ones(3)}, "stop must hold integers, got dtype float64"),
        ({"stop": ONES, "first": ONES}, "every query must see a key"),
        ({"stop": ONES} | CAUSAL, "the mask must be given once"),
        ({"window": np.array(3)}, "window is the keys that a causal query sees: it needs causal"),
        ({"window": np.array(6)} | CAUSAL, r"between 0 \(none\) and l=3, got \[6\]"),
        ({"window": np.array(-1)} | CAUSAL, r"between 0 \(none\) and l=3"),
        ({"window": np.array(2.5)} | CAUSAL, "window must hold integers"),
        ({"window": np.arange(3)} | CAUSAL, r"one width.*got 3"),
        ({"window": np.zeros(0, int)} | CAUSAL, "one width.*got 0|claims"),
        ({"scaling": np.array(0.0)}, "scaling must be finite and > 0"),
        ({"scaling": np.zeros(0)}, "scaling must be one value|claims"),
        ({"layers": np.zeros(2)}, "layers and heads must be integers"),
        ({"layers": np.array([0, -1])}, "layers and heads must be integers"),
        ({"heads": np.array([1, 1])}, "must not name a head twice"))),
    (lambda path: write(path, FACTS | {"causal": np.array("False")}), "hold real numbers"),
    (lambda path: write(path, SOUND | {"q": X.astype("i2")}), r"or q\.astype\('f4'\) if"),
    # safetensors
    (twice("q"), "has an array twice"),
    (twice(r"x\ud800"), "not text|cannot be read"),
    *((lambda path, x=x: safetensors(path / "x.safetensors", dict.fromkeys(
        "qk", np.zeros((2, 2), f"V{ {'C64': 8, 'I16': 2, 'U16': 2}.get(x, 1)}")),
        dict.fromkeys("qk", x)), f"dtype {x}( is not|, as bits of)|cannot be read")
      for x in ("F8_E4M3", "F8_E5M2", "U8", "C64", "I8", "I16", "U16")),
    *((headed(x), "") for x in (
        b"", b"{", b"[]", b"null", b'{"q": 1}', b'{"q":{}}', b"\xff" * 20,
        b'{"q":{"dtype":"F64","shape":[-1],"data_offsets":[0,8]}}',
        b'{"q":{"dtype":"F64","shape":[1],"data_offsets":[8,0]}}',
        b'{"q":{"dtype":"F64","shape":[99999999999999999999],"data_offsets":[0,8]}}',
        b'{"__metadata__":{"a":1}}', b"[" * 10_000)),
    (named("x.safetensors", (2**63).to_bytes(8, "little") + b"{}"), ""),
    # no such files
    *((named(f"x{ending}", b"\x80\x04cos\nsystem\n"), r"torch\.load\(path, weights_only=True\).*ve")
      for ending in (".pt", ".PTH", ".pkl", ".bin", ".ckpt")),
    (named("x.gguf", b"GGUF"), "is a model: `expqk capture MODEL_DIR TEXT"),
    (lambda path: named("config.json", b"{}")(path).parent, "is a model: `expqk capture MODEL_DI"),
    (named("data.csv", b"1,2"), "must be a folder of"),
    (named("empty.npz"), "cannot be read"),
    (named("empty.safetensors"), "cannot be read"),
    *((fifo(*x), "not a regular file|is a pickle")
      for x in (("x.npz",), ("x.safetensors",), ("x.pt",), ("q.npy", "in"))),
]  # fmt: skip


@each(("content", "message"), BAD, ids=[message for _, message in BAD])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_refused(tmp_path_factory, kind, content, message):
    folder = tmp_path_factory.mktemp("bad")
    as_bytes = callable(content) or any(isinstance(x, bytes) for x in content.values())
    if (callable(content) and kind != "npz") or (as_bytes and kind == "safetensors"):
        return  # a file of one format
    path = content(folder) if callable(content) else write(folder, content, kind)
    before, names = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, set(folder.rglob("*"))
    _, error = clean(lambda: load(path))
    assert isinstance(error, InputFileError if callable(content) else ValueError), error
    assert re.search(message, str(error)), error
    # compared with the bytes that are there before anything is allocated; in kB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert set(folder.rglob("*")) == names


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_anywhere(tmp_path, kind):
    """Every length near the ends of its parts, and every 7th between: an error, one line."""
    source = write(tmp_path, SOUND, kind)
    path = source / "q.npy" if kind == "npy" else source
    whole = path.read_bytes()
    assert load(source).n == 5
    cuts = {*range(0, len(whole), 7), *range(140), *range(len(whole) - 140, len(whole))}
    for cut in sorted(c for c in cuts if 0 <= c < len(whole)):
        path.write_bytes(whole[:cut])
        _, error = clean(lambda: load(source))
        assert isinstance(error, InputFileError), f"cut at {cut}: {error!r}"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_all_the_same(tmp_path, kind):
    """A link to a file; members that are no arrays of ours."""
    path = write(tmp_path, SOUND, kind)
    link = tmp_path / f"link{path.suffix}"
    link.symlink_to(path)
    assert load(link).digest() == load(path).digest()
    link.unlink()
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load(link)
    if kind != "safetensors":
        strange = {"z": npy(np.zeros(1), shape=(10**15,)), "r": b""}
        assert load(write(tmp_path, SOUND | strange, kind, "strange")).d == 4


@each("path", ["a\nb", "x" * 5000, "\0", "\x1b[31m", 3, None, b"x"])
def test_paths_that_are_none(path):
    _, error = clean(lambda: load(path))
    assert isinstance(error, OSError | TypeError | ValueError)
    refuses("dtype must be one of float64, float32", load, "x.npz", dtype="float16")


def test_what_is_larger_than_memory_is_refused_before_it_is_read(tmp_path):
    zeros = {"q": np.zeros((2000, 100)), "k": np.zeros((2000, 100))}
    path = write(tmp_path, zeros, "compressed")  # 3.2 MB in a few kB
    assert path.stat().st_size < 20_000
    memory.set_limit(10**6)
    with pytest.raises(memory.ResourceLimitError, match=r"data\.npz would .* limit is 977 KiB"):
        load(path)
    load(write(tmp_path, zeros, "safetensors"))  # which is mapped
    memory.set_limit(10**7)
    for q, k in (((2, 10**5, 50), (2, 10**5, 50)), ((4, 10**5, 50), (1, 10**5, 50))):
        for name, shape in (("q", q), ("k", k)):
            header = npy(np.zeros(0, "f4"), shape=shape)
            with (tmp_path / f"{name}.npy").open("wb") as file:
                file.write(header)
                file.truncate(len(header) + 4 * math.prod(shape))  # a hole: not on the disk
        with pytest.raises(memory.ResourceLimitError, match=r"would take 85\.8 MiB.*tokens"):
            load(tmp_path)


# What a message says to do is right


def test_the_recipe_for_a_pickle_saves_what_it_holds(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    torch.save({"q": torch.ones(5, 4).bfloat16(), "k": torch.ones(5, 4)}, "x.pt")
    exec(array_files.RECIPE.split(": ")[1], {"torch": torch, "numpy": np, "path": "x.pt"})
    assert load("qk.npz").n == 5


HEADS = np.random.default_rng(0).integers(-99, 99, (12, 2, 16, 260)).astype("f4")  # of 12 layers
SIDE = HEADS.swapaxes(1, 2).reshape(12, 16, 520)
BY_HEAD = np.stack([HEADS[0], -HEADS[0], HEADS[0]], 2).swapaxes(0, 1)  # (16, 2, 3, 260)
BITS = (HEADS[0].view("u4") >> 16).astype("u2")  # which have no further bits


@pytest.mark.parametrize(("content", "expected"), [
    ({"q": BITS, "k": BITS}, HEADS[0]),
    ({"q": BITS.view("i2"), "k": BITS}, HEADS[0]),
    ({"q": BITS.view("V2"), "k": BITS.view("V2")}, HEADS[0]),
    ({"q": SIDE, "k": SIDE}, HEADS),
    ({"q": SIDE[0], "k": SIDE[0]}, HEADS[0]),
    ({"q": SIDE[0], "k": SIDE[0, :, :260]}, HEADS[0]),  # grouped queries
    ({"q": HEADS[0].ravel(), "k": HEADS[0].ravel()}, HEADS[0]),
    ({"x.bin": HEADS[0]}, HEADS[0]),
    ({f"layer_{i}_{x}": HEADS[i] for x in "qk" for i in range(12)}, HEADS),
    ({f"l[{i // 2}].h{i % 2 * 8 + 2}_{x}": HEADS[i] for x in "qk" for i in range(12)}, HEADS),
    ({"blocks.3.attn.Wqkv": np.concatenate([SIDE, -SIDE, SIDE], -1)}, SIDE),
    ({"c.qkv": np.concatenate([SIDE, -SIDE[..., :260], SIDE[..., :260]], -1)}, SIDE),
    ({"query_key_value": BY_HEAD.reshape(16, -1)}, HEADS[0]),
    ({"query_key_value": np.stack([HEADS, -HEADS, HEADS], 1)}, HEADS),
])  # fmt: skip
def test_what_a_message_says_to_save_is_right(tmp_path, content, expected):
    [*names], [first, *_] = content, content.values()
    path = tmp_path / ("x.bin" if names == ["x.bin"] else "x.npz")
    first.tofile(path) if names == ["x.bin"] else np.savez(path, **content)
    with pytest.raises((InputFileError, InputFileWarning)) as caught:
        load(path)
    sizes = {"heads": 2, "groups": 1, "n": 16, "d": 260, "axis": 1}
    given = {"numpy": np, "re": re, "path": path} | sizes
    said = re.search(r"save (.*?)(, with .* x)?, and k and v likewise", str(caught.value))[1]
    line = said.split(" or, where an axis has length 3, ")[-(3 in first.shape)]
    found = eval(line, given | content | {"x": content, "qkv": first})
    np.testing.assert_array_equal(found, expected, strict=True)


def doubts(path, **content):
    """Return what is said of sound arrays."""
    np.savez(path / "heads.npz", **content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputFileWarning)
        load(path / "heads.npz")
    assert {(x.category, x.filename) for x in caught} <= {(InputFileWarning, __file__)}
    return [str(x.message) for x in caught]


def test_keys_that_are_0_up_to_the_end_are_doubted(tmp_path):
    x = np.ones((2, 7, 4))
    x[0, 5:] = x[1, 4:] = x[1, 0] = 0
    for q, k, said in (
        (x, x, "2 keys of 7 are 0 in 2 of 2 heads; if this is padding, save their q, k and v as "
               "[..., :5, :]"),
        (x[:, :1], x, "save their k and v as [..., :5, :]"),
        (x[:, :5], x[:, :5], "1 key of 5 are 0 in 1 of 2 heads; if this is padding, save their q, "
                             "k and v as [..., :4, :]"),
    ):  # fmt: skip
        (one,) = doubts(tmp_path, q=q, k=k)
        assert said in one
    for sound in (x[1:, :4], 0 * x):
        assert not doubts(tmp_path, q=sound, k=sound)


@each(("shape", "keys", "read", "axes"), [  # of q, of k
    ((64, 4, 8), (64, 4, 8), "64 heads of 4 queries; if it is 4 heads of 64", (1, 0, 2)),
    ((64, 4, 8), (64, 2, 8), "64 heads of 4 queries; if it is 4 heads of 64", (1, 0, 2)),
    ((2, 9, 4, 8), (2, 9, 4, 8), "2 layers of 9 heads of 4 queries;", (0, 2, 1, 3)),
    ((1, 9, 1, 8), (1, 9, 1, 8), "1 layer of 9 heads of 1 queries; if it is 1 head of 9",
     (0, 2, 1, 3)),
])  # fmt: skip
def test_axes_that_may_be_in_another_order(tmp_path, shape, keys, read, axes):
    q, k = np.ones(shape), np.ones(keys)
    (one,) = doubts(tmp_path, q=q, k=k)
    assert one.startswith(f"heads.npz: q {shape} is read as {read}")
    assert f"save q.transpose{axes}," in one
    assert not doubts(tmp_path, q=q.transpose(axes), k=k.transpose(axes))


@each(("shape", "beside"), [
    ((4, 64, 8), {}), ((4, 4, 8), {}), ((4, 8), {}),
    ((64, 4, 8), {"k": np.ones((64, 70, 8))}),  # decoding: few queries after a long text
    ((64, 4, 8), {"layers": np.zeros(64, int), "heads": np.arange(64)}),  # which count the heads
    ((64, 4, 8), {"stop": np.full(4, 4)}),  # which counts the queries
])  # fmt: skip
def test_axes_that_are_in_order(tmp_path, shape, beside):
    assert not doubts(tmp_path, **{"q": np.ones(shape), "k": np.ones(shape)} | beside)


# The command


@pytest.mark.filterwarnings("default::analysis.inputs.array_files.InputFileWarning")
@pytest.mark.filterwarnings("default::RuntimeWarning")
def test_what_the_command_says_of_a_warning_and_of_an_interruption(tmp_path, monkeypatch, capsys):
    path, shown = write(tmp_path, dict.fromkeys("qk", np.ones((9, 4, 2)))), warnings.showwarning
    command = "diagnose", str(path), "--heads", "0.0", "--method", "uniform()"
    assert main([*command, "--jobs", "1"]) == 0
    assert capsys.readouterr().err == (
        "expqk: data.npz: q (9, 4, 2) is read as 9 heads of 4 queries; if it is 4 heads of 9 "
        "queries, save q.transpose(1, 0, 2), and k and v likewise\n"
    )
    assert warnings.showwarning is shown
    for error, code, said in (
        (None, 0, rf"{re.escape(__file__)}:\d+: RuntimeWarning: odd\n.*\n"),
        (KeyboardInterrupt(), 130, "expqk: interrupted\n"),
    ):

        def run(arguments, error=error):
            if error:
                raise error
            warnings.warn("odd", RuntimeWarning, stacklevel=1)
            return 0

        monkeypatch.setattr("figures.command.methods.run", run)
        assert main(["methods"]) == code
        assert re.fullmatch(said, capsys.readouterr().err)


def ran(command, **options):
    return subprocess.run(command, cwd=ROOT, capture_output="stdout" not in options, **options)


@pytest.mark.parametrize("given", [["methods", "--json"], [], ["--version"]])
@pytest.mark.parametrize("target", ["/dev/full", "closed"])
def test_a_standard_output_that_is_full_or_closed(target, given):
    read, out = os.pipe() if target == "closed" else (None, os.open(target, os.O_WRONLY))
    if read is not None:
        os.close(read)
    command = [sys.executable, "-m", "figures", *given]
    done = ran(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    os.close(out)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == done.stderr.count("standard output") == (target != "closed")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_standard_streams_that_the_shell_closed(closed):
    command = ["sh", "-c", f'"$0" -m figures {closed}', sys.executable]
    done = ran(command, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["gbk", "cp1252", "ascii"])
def test_a_terminal_that_lacks_letters_shows_others(encoding, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert [main(["methods", "eden", *more]) for more in ([], ["--json"])] == [0, 0]
    text, _, written = sys.stdout.buffer.getvalue().decode(encoding).partition("{\n")
    assert capsys.readouterr().err == ""
    assert "estimate_ij = exp(q_i" in text
    assert "?" in text
    assert "k\u0302" in json.loads("{" + written)["description"]  # which gbk lacks


# Output


def figure(x=(1.0,)):
    drawn = Figure()
    drawn.subplots().plot([0, 1])
    return pd.DataFrame({"x": x}), drawn


def test_a_link_out_of_the_output_folder_is_not_followed(tmp_path):
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("keep")
    for place in ("data", "figures"):
        out.mkdir(exist_ok=True)
        (out / place).symlink_to(outside)
        refuses("leads out .* remove the link", style.save, "error", *figure(), out, ("svg",), "x")
        (out / place).unlink()
    (out / "data").mkdir(exist_ok=True)
    (out / "data/error.csv").unlink(missing_ok=True)
    (out / "data/error.csv").symlink_to(outside / "secret")
    with pytest.raises(FileExistsError, match="was edited, or is not of expqk"):
        style.save("error", *figure(), out, ("svg",))
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("secret", "keep")]


def test_output_that_is_no_folder_of_ours(tmp_path, monkeypatch, capsys):
    for name in ("../x", "/elsewhere/x", "a/../../../x"):
        refuses("must be letters, digits", style.save, name, *figure(), tmp_path / "out", ("svg",))
        assert main(["figures", name, "--out", str(tmp_path / "out")]) == 1
    assert not list(tmp_path.rglob("*.*"))
    capsys.readouterr()
    (tmp_path / "file").touch()
    for command in (["figures", "spectrum"], ["report"]):
        for out in (tmp_path / "file", tmp_path / "file/below", Path("/proc/x"), Path("x" * 5000)):
            assert main([*command, "--profile", "quick", "--jobs", "1", "--out", str(out)]) == 1
            text = capsys.readouterr().err
            assert re.fullmatch("expqk: .*\n", text)
            assert len(text) <= len("expqk: \n") + cli.MOST_CHARACTERS
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(PermissionError, match="is not writable"):
        output_files.usable(tmp_path)


def test_the_name_of_a_file_is_no_formula_of_a_spreadsheet(tmp_path, monkeypatch):
    names = ["=1+1", "@x", "-a", "+b", "-1.5", "a=b", "'q"]
    table = pd.DataFrame({"input": names, "value": -1.5})
    shown = style.save_table("error", table, tmp_path).read_text().splitlines()
    assert [line[0] for line in shown[1:]] == ["'"] * 4 + ["-", "a", "'"]
    assert all(line.endswith(",-1.5") for line in shown[1:])
    monkeypatch.setattr(figure_files, "wording", lambda *_: "")
    pd.testing.assert_frame_equal(figure_files.saved("error", tmp_path), table)


def test_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch):
    style.save_table("x", pd.DataFrame({"x": [1]}), tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # half of it would be read later
    q = np.random.default_rng(0).standard_normal((1, 1, 50, 50))
    found = capture.Capture(q, q, q, 0.5, False, np.arange(50))
    table, drawn = figure(np.random.default_rng(0).random(1000))
    drawn.axes[0].plot(table.x)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for save, *given in (
        (capture.save, found, tmp_path / "x.npz"),
        (capture.save, found, tmp_path / "x.safetensors"),
        (style.save, "x", table, drawn, tmp_path),
        (style.save, "y", table[:1], drawn, tmp_path, ("png",)),
        (style.save, "z", table[:1], drawn, tmp_path, ("pdf",)),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        try:
            _, error = clean(lambda: save(*given))  # noqa: B023
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert isinstance(error, OSError)
    written = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert written == {"data/x.csv", "data/y.csv", "data/z.csv", output_files.RECORD}
    assert (tmp_path / "data/x.csv").read_text() == "x\n1\n"


def test_a_text_is_a_file_and_not_endless(tmp_path):
    (tmp_path / "long.md").write_text("long")
    for name in ("none.md", "long.md", "."):
        with pytest.raises((FileNotFoundError, ValueError), match=r"there is no|is not a file of"):
            text_files.read_text(tmp_path / name, most=3)
