"""Bad files and output that cannot be written: the rows of the table about files and folders.

`tests/analysis/inputs/test_inputs.py` has what the arrays of a file may be. Where a row leaves a
choice: arrays of other names in a file are ignored, unread, but for misspelt options; a link to an
input file is followed.
"""

import io
import json
import os
import re
import resource
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from each import each
from entries import clean
from matplotlib.figure import Figure
from safetensors.numpy import save_file

from analysis.compute import output_files
from analysis.inputs import array_files, load
from analysis.inputs.array_files import InputFileError, InputFileWarning
from analysis.models import capture
from figures.command import cli
from figures.command.cli import main
from figures.document import album
from figures.drawing import style

ROOT = Path(__file__).parent.parent
X = np.arange(20.0).reshape(5, 4)


def npy(x, **changes):
    """Return the bytes of a .npy file, its header changed."""
    file = io.BytesIO()
    x = np.asarray(x)
    fields = {"descr": x.dtype.str, "fortran_order": False, "shape": x.shape} | changes
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue() + x.tobytes()


def folder(path, **content):
    path.mkdir()
    for name, raw in content.items():
        (path / f"{name}.npy").write_bytes(raw)
    return path


def npz(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, raw in members:
            archive.writestr(name, raw)
    return path


def stored(path, kind, q):
    """Write these bytes as q, and a sound k."""
    if kind == "npy":
        return folder(path / "x", q=q, k=npy(X))
    return npz(path / "x.npz", [("q.npy", q), ("k.npy", npy(X))])


def safetensors(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def write(path, kind):
    """Write q and k in one of the formats."""
    if kind in ("npz", "compressed"):
        (np.savez if kind == "npz" else np.savez_compressed)(path / "x.npz", q=X, k=X)
        return path / "x.npz"
    if kind == "npy":
        return folder(path / "x", q=npy(X), k=npy(X)) / "q.npy"
    size = X.nbytes
    header = {
        name: {"dtype": "F64", "shape": [5, 4], "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate("qk")
    }
    return safetensors(path / "x.safetensors", header, 2 * X.tobytes())


@pytest.mark.parametrize("kind", ["npz", "compressed", "npy", "safetensors"])
def test_a_file_cut_anywhere(tmp_path, kind):
    """Every length near the ends of its parts, and every 7th between: an error, one line."""
    path = write(tmp_path, kind)
    raw = path.read_bytes()
    source = path.parent if kind == "npy" else path
    assert load(source).n == 5
    cuts = {*range(0, len(raw), 7), *range(140), *range(len(raw) - 140, len(raw))}
    for cut in sorted(c for c in cuts if 0 <= c < len(raw)):
        path.write_bytes(raw[:cut])
        _, error = clean(lambda: load(source))
        assert isinstance(error, InputFileError), f"cut at {cut}: {error!r}"


@pytest.mark.parametrize(
    "shape", [(10**15,), (10**15, 4), (2**62, 2**62), (10**9, 1), (0, 4), (-1, 4)]
)
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_a_header_that_lies(tmp_path, kind, shape):
    """Compared with the bytes that are there before anything is allocated, 8 GB or 10¹⁵ numbers."""
    path = stored(tmp_path, kind, npy(X, shape=shape))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, error = clean(lambda: load(path))
    assert isinstance(error, InputFileError)
    assert "claims" in str(error)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_a_bomb_that_lies_about_its_size(tmp_path):
    path = npz(tmp_path / "x.npz", [("q.npy", npy(np.zeros(10**6))), ("k.npy", npy(X))], 8)
    raw = bytearray(path.read_bytes())
    size = struct.pack("<L", len(npy(np.zeros(10**6))))
    assert raw.count(size) == 2
    path.write_bytes(raw.replace(size, struct.pack("<L", 200)))
    _, error = clean(lambda: load(path))
    assert isinstance(error, InputFileError)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (["q", "q", "k"], "an array twice"),
        (["q", "Q", "k"], "an array twice"),
        (["../q", "k"], "no array 'q', it has ../q, k: rename ../q to q"),
        (["/elsewhere/q", "a/q", "k"], "no array 'q'"),
        (["q", "k", "scale"], "x.npz: unknown array 'scale', did you mean 'scaling'"),
        (["q", "k", "casual"], "x.npz: unknown array 'casual', did you mean 'causal'"),
        (["q", "k", "stops"], "x.npz: unknown array 'stops', did you mean 'stop'"),
        (["q", "k", "attention_mask"], "array 'attention_mask' is not read: give the mask by"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_in_an_archive(tmp_path, members, message):
    path = npz(tmp_path / "x.npz", [(f"{name}.npy", npy(X)) for name in members])
    with pytest.raises(InputFileError, match=message):
        load(path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["x.npz"]


def test_members_that_are_not_ours_are_not_read(tmp_path):
    bad = npy(np.zeros(1), shape=(10**15,))
    path = npz(
        tmp_path / "x.npz", [("q.npy", npy(X)), ("k.npy", npy(X)), ("z.npy", bad), ("r", b"")]
    )
    assert load(path).d == 4


@pytest.mark.parametrize("kind", ["npz", "npy"])
@pytest.mark.parametrize("dtype", ["O", "<U4", "<c16", "M8[s]", "V8", "<f16"])
def test_dtypes_that_are_no_numbers_of_64_bits(tmp_path, kind, dtype):
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    path = stored(tmp_path, kind, npy(np.zeros((5, 8)), descr=descr, shape=(5, 4)))
    rule = "real numbers, got|Python objects|claims|at most 64 bits a number|cannot be read"
    with pytest.raises(InputFileError, match=rule):
        load(path)


@pytest.mark.parametrize(
    ("third", "message"), [("q", "has an array twice"), (r"x\ud800", "not text|cannot be read")]
)
def test_names_in_safetensors(tmp_path, third, message):
    size, header = X.nbytes, []
    for i, name in enumerate(["q", "k", third]):
        one = {"dtype": "F64", "shape": [5, 4], "data_offsets": [i * size, (i + 1) * size]}
        header.append(f'"{name}": {json.dumps(one)}')
    raw = ("{" + ", ".join(header) + "}").encode()
    if third == "q":  # twice the same place, as the parser refuses holes
        raw = raw.replace(f"[{2 * size}, {3 * size}]".encode(), f"[0, {size}]".encode())
    path = safetensors(tmp_path / "x.safetensors", raw, (2 if third == "q" else 3) * X.tobytes())
    with pytest.raises(InputFileError, match=message):
        load(path)


@pytest.mark.parametrize("ending", [".pt", ".PTH", ".pkl", ".bin", ".ckpt"])
def test_pickles_are_refused_with_a_recipe(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    path.write_bytes(b"\x80\x04cos\nsystem\n")
    with pytest.raises(InputFileError, match=r"torch\.load\(path, weights_only=True\).*savez"):
        load(path)


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


@pytest.mark.parametrize(
    ("content", "expected"),
    [
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
    ],
)
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


def test_keys_that_are_0_up_to_the_end_are_doubted(tmp_path):
    x = np.ones((2, 7, 4))
    x[0, 5:] = x[1, 4:] = x[1, 0] = 0
    for q, k, said in (
        (x, x, "2 keys of 7 are 0 in 2 of 2 heads; if this is padding, save their q, k and v as "
               "[..., :5, :]"),
        (x[:, :1], x, "save their k and v as [..., :5, :]"),
        (x[:, :5], x[:, :5], "1 key of 5 are 0 in 1 of 2 heads; if this is padding, save their q, "
                             "k and v as [..., :4, :]"),
        (x[1:, :4], x[1:, :4], None),
        (0 * x, 0 * x, None),
    ):  # fmt: skip
        np.savez(tmp_path / "x.npz", q=q, k=k)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InputFileWarning)
            load(tmp_path / "x.npz")
        assert [said in str(one.message) for one in caught] == [True] * (said is not None)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "U8", "C64", "I8", "I16", "U16"])
def test_dtypes_of_safetensors(tmp_path, dtype):
    size = {"C64": 8, "I16": 2, "U16": 2}.get(dtype, 1)
    header = {
        name: {"dtype": dtype, "shape": [2, 2], "data_offsets": [i * 4 * size, (i + 1) * 4 * size]}
        for i, name in enumerate("qk")
    }
    path = safetensors(tmp_path / "x.safetensors", header, bytes(8 * size))
    with pytest.raises(InputFileError, match=f"dtype {dtype}( is not|, as bits of)|cannot be read"):
        load(path)


@pytest.mark.parametrize(
    "header",
    [
        b"", b"{", b"[]", b"null", b'{"q": 1}', b'{"q":{}}', b"\xff" * 20,
        b'{"q":{"dtype":"F64","shape":[-1],"data_offsets":[0,8]}}',
        b'{"q":{"dtype":"F64","shape":[1],"data_offsets":[8,0]}}',
        b'{"q":{"dtype":"F64","shape":[99999999999999999999],"data_offsets":[0,8]}}',
        b'{"__metadata__":{"a":1}}', b"[" * 10_000,
    ],
)  # fmt: skip
def test_headers_of_safetensors(tmp_path, header):
    path = safetensors(tmp_path / "x.safetensors", header, bytes(8))
    _, error = clean(lambda: load(path))
    assert isinstance(error, InputFileError)
    path.write_bytes(struct.pack("<Q", 2**63) + header)
    _, error = clean(lambda: load(path))
    assert isinstance(error, InputFileError)


@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors"])
def test_a_link_to_an_input_is_followed(tmp_path, kind):
    path = write(tmp_path, kind)
    source = path.parent if kind == "npy" else path
    link = tmp_path / f"link{source.suffix}"
    link.symlink_to(source)
    assert load(link).digest() == load(source).digest()
    link.unlink()
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load(link)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["query", "key", "value"],
            "no array 'q', it has key, query, value: rename query to q, key to k, value to v",
        ),
        (["q", "key_states"], "no array 'k', it has key_states, q: rename key_states to k"),
        (
            ["attn.hook_q", "attn.hook_k"],
            "it has attn.hook_k, attn.hook_q: rename attn.hook_q to q, attn.hook_k to k",
        ),
        (list("abcdefgh"), "no array 'q', it has a, b, c, d, e, f and 2 more$"),
        ([], "no array 'q', it has nothing$"),
        (["k", "v"], "no query follows from keys and values, so run the model: `expqk capture"),
        (["h.0.q_proj.weight", "h.0.k_proj.weight"], "it is a model: `expqk capture MODEL_DIR"),
    ],
)
@pytest.mark.parametrize("kind", ["npz", "safetensors", "folder"])
def test_a_file_without_q_or_k_says_what_it_has_and_what_to_do(tmp_path, names, message, kind):
    path = tmp_path / f"x.{kind}"
    if kind == "npz":
        np.savez(path, **dict.fromkeys(names, X))
    elif kind == "safetensors":
        save_file(dict.fromkeys(names, X), path)
    else:
        path.mkdir()
        for name in names:
            np.save(path / f"{name}.npy", X)
    with pytest.raises(InputFileError, match=f"^x.{kind}: the file has .*{message}"):
        load(path)


def test_a_model_is_no_file_of_queries(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    for path in (tmp_path, tmp_path / "x.gguf"):
        with pytest.raises(InputFileError, match=r"is a model: `expqk capture MODEL_DIR TEXT"):
            load(path)


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors", "x.pt"])
def test_what_is_no_file(tmp_path, name):
    os.mkfifo(tmp_path / name)  # opened, it would wait for ever
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in/q.npy")
    for path in (tmp_path / name, tmp_path / "in"):
        with pytest.raises(InputFileError, match=r"not a regular file|is a pickle"):
            load(path)
    (tmp_path / "dir.npz").mkdir()
    with pytest.raises(InputFileError, match="no array 'q', it has nothing"):
        load(tmp_path / "dir.npz")
    (tmp_path / "empty.npz").touch()
    (tmp_path / "empty.safetensors").touch()
    for ending in ("npz", "safetensors"):
        with pytest.raises(InputFileError, match="cannot be read"):
            load(tmp_path / f"empty.{ending}")


@pytest.mark.parametrize("path", ["a\nb", "x" * 5000, "\0", "\x1b[31m", 3, None, b"x"])
def test_paths_that_are_none(path):
    _, error = clean(lambda: load(path))
    assert isinstance(error, OSError | TypeError | ValueError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"causal": np.array("False")}, "must hold real numbers"),
        ({"causal": np.array(2)}, "causal must be 0 or 1, got 2"),
        ({"first": np.zeros(3, int)}, "first needs stop"),
        ({"stop": np.arange(3)}, "every query must see a key.* got first=0, stop=0 for query 0"),
        ({"stop": np.full(3, 9)}, "stop must be at most l=3, got first=0, stop=9 for query 0"),
        ({"stop": np.ones(4, int)}, r"one entry per query, \(3,\)|got shapes \(3,\) and \(4,\)"),
        ({"stop": np.ones(4, int), "first": np.zeros(4, int)}, r"per query, \(3,\)"),
        ({"stop": np.ones(3)}, "stop must hold integers, got dtype float64"),
        ({"stop": np.ones(3, int), "first": np.ones(3, int)}, "every query must see a key"),
        ({"stop": np.ones(3, int), "causal": np.array(1)}, "the mask must be given once"),
        ({"window": np.array(3)}, "window is the keys that a causal query sees: it needs causal"),
        ({"window": np.array(6), "causal": np.array(1)}, r"between 0 \(none\) and l=3, got \[6\]"),
        ({"window": np.array(-1), "causal": np.array(1)}, r"between 0 \(none\) and l=3"),
        ({"window": np.array(2.5), "causal": np.array(1)}, "window must hold integers"),
        ({"window": np.array([1, 2, 3]), "causal": np.array(1)}, r"one width.*got 3"),
        ({"window": np.zeros(0, int), "causal": np.array(1)}, "one width.*got 0"),
        ({"scaling": np.array(0.0)}, "scaling must be finite and > 0"),
        ({"scaling": np.zeros(0)}, "scaling must be one value"),
        ({"layers": np.zeros(2)}, "layers and heads must be integers"),
        ({"layers": np.array([0, -1])}, "layers and heads must be integers"),
        ({"heads": np.array([1, 1])}, "must not name a head twice"),
    ],
)
def test_facts_of_a_file(tmp_path, change, message):
    facts = {"layers": np.array([0, 0]), "heads": np.array([1, 2])} | change
    np.savez(tmp_path / "x.npz", q=np.ones((2, 3, 4)), k=np.ones((2, 3, 4)), **facts)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "x.npz")


# Output


@each(
    ("shape", "keys", "also", "read", "transpose"),  # of q, of k; arrays beside; None: no doubt
    [
        ((64, 4, 8), (64, 4, 8), (), "64 heads of 4 queries; if it is 4 heads of 64", (1, 0, 2)),
        ((64, 4, 8), (64, 2, 8), (), "64 heads of 4 queries; if it is 4 heads of 64", (1, 0, 2)),
        ((2, 9, 4, 8), (2, 9, 4, 8), (), "2 layers of 9 heads of 4 queries;", (0, 2, 1, 3)),
        (
            (1, 9, 1, 8),
            (1, 9, 1, 8),
            (),
            "1 layer of 9 heads of 1 queries; if it is 1 head of 9",
            (0, 2, 1, 3),
        ),
        ((4, 64, 8), (4, 64, 8), (), None, None),
        ((4, 4, 8), (4, 4, 8), (), None, None),
        ((64, 4, 8), (64, 70, 8), (), None, None),  # decoding: few queries after a long text
        ((64, 4, 8), (64, 4, 8), ("layers", "heads"), None, None),  # which count the heads
        ((64, 4, 8), (64, 4, 8), ("stop",), None, None),  # which counts the queries
        ((4, 8), (4, 8), (), None, None),
    ],
)
def test_axes_that_may_be_in_another_order(tmp_path, shape, keys, also, read, transpose):
    beside = {"layers": np.zeros(64, int), "heads": np.arange(64), "stop": np.full(4, 4)}
    path = tmp_path / "heads.npz"
    np.savez(path, q=np.ones(shape), k=np.ones(keys), **{name: beside[name] for name in also})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        whole = load(path)
    assert whole.q.shape == (
        shape if len(shape) < 4 else (shape[0] * shape[1], *shape[2:])
    )  # as given
    if read is None:
        assert caught == []
        return
    (one,) = caught
    assert (one.category, one.filename) == (InputFileWarning, __file__)
    assert str(one.message).startswith(f"heads.npz: q {shape} is read as {read}")
    assert f"save q.transpose{transpose}," in str(one.message)
    q, k = (np.ones(x).transpose(transpose) for x in (shape, keys))
    np.savez(path, q=q, k=k)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(path)  # what it says to do leaves no doubt


@pytest.mark.filterwarnings("default::analysis.inputs.array_files.InputFileWarning")
def test_axes_that_may_be_in_another_order_are_one_line_of_the_command(tmp_path, capsys):
    path = tmp_path / "heads.npz"
    np.savez(path, q=np.ones((9, 4, 2)), k=np.ones((9, 4, 2)))
    command = "diagnose", str(path), "--heads", "0.0", "--method", "uniform()", "--jobs", "1"
    shown = warnings.showwarning
    assert main([*command]) == 0
    assert capsys.readouterr().err == (
        "expqk: heads.npz: q (9, 4, 2) is read as 9 heads of 4 queries; if it is 4 heads of 9 "
        "queries, save q.transpose(1, 0, 2), and k and v likewise\n"
    )
    assert warnings.showwarning is shown


@pytest.mark.filterwarnings("default::RuntimeWarning")
def test_another_warning_of_the_command_is_that_of_python(monkeypatch, capsys):
    def warns(arguments):
        warnings.warn("odd", RuntimeWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("figures.command.methods.run", warns)
    assert main(["methods"]) == 0
    assert re.fullmatch(
        rf"{re.escape(__file__)}:\d+: RuntimeWarning: odd\n.*\n", capsys.readouterr().err
    )


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize(
    "layout", [np.asfortranarray, lambda x: x[..., ::-1, :], lambda x: x.swapaxes(0, 1)]
)
def test_arrays_that_are_not_contiguous_are_saved_as_they_are(tmp_path, ending, layout):
    q = layout(np.random.default_rng(0).standard_normal((2, 2, 5, 4)).astype(np.float32))
    found = capture.Capture(q, q, q, 0.5, False, np.arange(5))
    capture.save(found, tmp_path / f"x.{ending}")
    heads = load(tmp_path / f"x.{ending}", dtype="float32")
    np.testing.assert_array_equal(heads.q, q.reshape(heads.q.shape))


def figure():
    drawn = Figure()
    drawn.subplots().plot([0, 1])
    return pd.DataFrame({"x": [1.0]}), drawn


def test_a_link_out_of_the_output_folder_is_not_followed(tmp_path):
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("keep")
    for place in ("data", "figures"):
        out.mkdir(exist_ok=True)
        (out / place).symlink_to(outside)
        with pytest.raises(ValueError, match=r"leads out of .*: remove the link"):
            style.save("error", *figure(), out, ("svg",), "caption")
        if place == "data":
            with pytest.raises(ValueError, match=r"leads out of .*: remove the link"):
                style.save_table("claims", figure()[0], out)
        (out / place).unlink()
    (out / "data").mkdir(exist_ok=True)
    (out / "data/error.csv").unlink(missing_ok=True)
    (out / "data/error.csv").symlink_to(outside / "secret")
    with pytest.raises(FileExistsError, match="was edited, or is not of expqk"):
        style.save("error", *figure(), out, ("svg",))
    assert [p.name for p in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "keep"


@pytest.mark.parametrize("name", ["../x", "/elsewhere/x", "a/../../../x"])
def test_names_cannot_leave_the_output_folder(tmp_path, name):
    with pytest.raises(ValueError, match="must be letters, digits"):
        style.save(name, *figure(), tmp_path / "out", ("svg",))
    assert main(["figures", name, "--out", str(tmp_path / "out")]) == 1
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.parametrize("command", [["figures", "spectrum"], ["report"]])
def test_output_that_is_no_folder(tmp_path, command, capsys):
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file/below", Path("/proc/x"), Path("x" * 5000)):
        assert main([*command, "--profile", "quick", "--jobs", "1", "--out", str(out)]) == 1
        text = capsys.readouterr().err
        assert text.startswith("expqk: ")
        assert text.count("\n") == 1
        assert len(text) <= len("expqk: \n") + cli.MOST_CHARACTERS


def test_a_folder_that_is_not_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(PermissionError, match="is not writable"):
        output_files.usable(tmp_path)


def test_the_name_of_a_file_is_no_formula_of_a_spreadsheet(tmp_path, monkeypatch):
    names = ["=1+1", "@x", "-a", "+b", "-1.5", "a=b", "'q"]
    table = pd.DataFrame({"input": names, "value": -1.5})
    shown = style.save_table("error", table, tmp_path).read_text().splitlines()
    assert [line[0] for line in shown[1:]] == ["'"] * 4 + ["-", "a", "'"]
    assert all(line.endswith(",-1.5") for line in shown[1:])
    monkeypatch.setattr(album, "told", lambda *_: "")
    pd.testing.assert_frame_equal(album.saved("error", tmp_path), table)


def test_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch):
    style.save_table("x", pd.DataFrame({"x": [1]}), tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # half of it would be read later
    q = np.random.default_rng(0).standard_normal((1, 1, 50, 50))
    found = capture.Capture(q, q, q, 0.5, False, np.arange(50))
    table = pd.DataFrame({"x": np.random.default_rng(0).random(1000)})
    drawn = Figure()
    drawn.subplots().plot(table.x)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for write in (
        lambda: capture.save(found, tmp_path / "x.npz"),
        lambda: capture.save(found, tmp_path / "x.safetensors"),
        lambda: style.save("x", table, drawn, tmp_path),
        lambda: style.save("y", table[:1], drawn, tmp_path, ("png",)),
        lambda: style.save("z", table[:1], drawn, tmp_path, ("pdf",)),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        try:
            _, error = clean(write)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert isinstance(error, OSError)
    written = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert written == {"data/x.csv", "data/y.csv", "data/z.csv", output_files.RECORD}
    assert (tmp_path / "data/x.csv").read_text() == "x\n1\n"


@pytest.mark.parametrize("given", [["methods", "--json"], [], ["--version"]])
@pytest.mark.parametrize("target", ["/dev/full", "closed"])
def test_a_standard_output_that_is_full_or_closed(target, given):
    command = [sys.executable, "-m", "figures", *given]
    if target == "closed":
        read, out = os.pipe()
        os.close(read)
    else:
        out = os.open(target, os.O_WRONLY)
    done = subprocess.run(
        command, stdout=out, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False
    )
    os.close(out)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == done.stderr.count("standard output") == (target != "closed")


@pytest.mark.parametrize("encoding", ["gbk", "cp1252", "ascii"])
def test_a_terminal_that_lacks_letters_shows_others(encoding):
    env = os.environ | {"PYTHONUTF8": "0", "PYTHONIOENCODING": encoding}
    about = [sys.executable, "-m", "figures", "methods", "eden"]
    command = ["sh", "-c", '"$@" && "$@" --json', "sh", *about]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=env, check=True)
    text, _, written = done.stdout.decode(encoding).partition("{\n")
    assert done.stderr == b""
    assert "estimate_ij = exp(q_i" in text
    assert "?" in text
    assert "k\u0302" in json.loads("{" + written)["description"]  # which gbk lacks


def test_an_interrupted_command_says_so(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.methods, "run", interrupted)
    assert main(["methods"]) == 130
    assert capsys.readouterr().err == "expqk: interrupted\n"


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_standard_streams_that_the_shell_closed(closed):
    command = ["sh", "-c", f'"$0" -m figures methods zero {closed}', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
