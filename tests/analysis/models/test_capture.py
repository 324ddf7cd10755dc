"""Capture of a model's Q, K, V: the files, the bundled sample, and the model's own attention."""

import dataclasses
import hashlib
import math
import os
import re
import socket
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from each import each
from refusals import refuses
from tiny_models import build, save_tokenizer, with_torch

from analysis.advice.diagnose import diagnose
from analysis.bounds.theory import predictions
from analysis.inputs import load, sample
from analysis.inputs.array_files import InputFileWarning
from analysis.models import attention_hook, capture as module, checkpoints
from analysis.models.attention_hook import Seen
from analysis.models.capture import Capture, capture, save
from analysis.models.checkpoints import Place
from analysis.models.language_model import LanguageModel
from approx import parse
from approx.estimate import memory
from studies.lm import head_kinds

SAMPLE = Path(module.__file__).parents[1] / "data" / "minilm.npz"
SMOLLM2 = SAMPLE.with_name("smollm2.npz")
ENDINGS = [".npz", ".safetensors"]


def made_up(layers=3, heads=4, kv_heads=2, n=5, d=3, c=2, **facts):
    draw = np.random.default_rng(0).standard_normal
    return Capture(
        q=draw((layers, heads, n, d)).astype(np.float32),
        k=draw((layers, kv_heads, n, d)).astype(np.float32),
        v=draw((layers, kv_heads, n, c)).astype(np.float32),
        scaling=0.3,
        causal=True,
        token_ids=np.arange(n),
        model="made up",
        **facts,
    )


def strided(x):
    """Return x as a transposed view, as attention layers hand theirs out."""
    return np.ascontiguousarray(np.swapaxes(x, 1, 2)).swapaxes(1, 2)


def read(path):
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    return pytest.importorskip("safetensors.numpy").load_file(path)


# Files


@each("layout", [np.asfortranarray, strided, lambda x: x[..., ::-1, :]])
@pytest.mark.parametrize("ending", ENDINGS)
def test_file_holds_the_capture_exactly(tmp_path, ending, layout):
    c = made_up()
    c = Capture(layout(c.q), layout(c.k), layout(c.v), c.scaling, c.causal, c.token_ids, c.model)
    save(c, tmp_path / f"x{ending}")
    found = read(tmp_path / f"x{ending}")
    assert sorted(found) == ["causal", "k", "q", "scaling", "token_ids", "v"]
    for name, array in found.items():
        np.testing.assert_array_equal(array, getattr(c, name), strict=name in "qkv")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("heads", "sources"), [  # heads 0 and 1 share keys, and 2 and 3 do
    ([(2, 3), (0, 1), (1, 2)], [(2, 1), (0, 0), (1, 1)]),
    ([(2, 3), (2, 2), (0, 0), (0, 1)], [(2, 1), (0, 0)]),
    ([(0, 0), (0, 1), (1, 2)], [(0, 0), (0, 0), (1, 1)]),
    ([(0, 0), (0, 2), (0, 1), (0, 3)], [(0, 0), (0, 1), (0, 0), (0, 1)]),
    ([(1, 1)], [(1, 0)]),
])  # fmt: skip
def test_chosen_heads_come_in_order_and_groups_of_one_length_store_their_keys_once(
    tmp_path, ending, heads, sources
):
    c, path = made_up(), tmp_path / "a" / "b" / f"x{ending}"  # in folders that are made
    save(c, path, heads=heads)
    found, whole = read(path), load(path, dtype="float32")
    assert [*zip(found["layers"].tolist(), found["heads"].tolist())] == heads
    for name, places in (("q", heads), ("k", sources), ("v", sources)):
        expected = [getattr(c, name)[place] for place in places]
        np.testing.assert_array_equal(found[name], expected, strict=True)
    for layer, head in heads:
        np.testing.assert_array_equal(whole.at(layer, head).k, c.k[layer, head // 2])


def test_some_layers_say_which(tmp_path):
    c = made_up(layers=2, kv_heads=1, heads=2)
    save(dataclasses.replace(c, layers=(3, 7)), tmp_path / "x.npz")
    whole = load(tmp_path / "x.npz", dtype="float32")
    assert [x[:2] for x in whole.ids] == [(3, 0), (3, 1), (7, 0), (7, 1)]
    np.testing.assert_array_equal(whole.at(7, 1).q, c.q[1, 1])


@pytest.mark.parametrize(("windows", "heads", "expected"), [
    ((), None, None),
    ((0, 3, 2), None, [0, 3, 2]),
    ((3, 3, 3), None, 3),
    ((0, 3, 2), [(2, 0), (0, 1)], [2, 0]),
    ((0, 3, 2), [(1, 0), (1, 3)], 3),
    ((0, 3, 2), [(0, 0)], None),
])  # fmt: skip
def test_windows_are_one_for_all_or_one_a_row(tmp_path, windows, heads, expected):
    save(made_up(windows=windows), tmp_path / "x.npz", heads=heads)
    found = read(tmp_path / "x.npz")
    assert ("window" in found) == (expected is not None)
    if expected is not None:
        np.testing.assert_array_equal(found["window"], np.array(expected), strict=True)


@pytest.mark.parametrize(("heads", "changes", "message"), [
    ([], {}, "at least one"),
    ([(3, 0)], {}, "layer must be <= 2, got 3"),
    ([(0, 4)], {}, "head must be <= 3, got 4"),
    ([(5, 0)], {"layers": (0, 4, 9)}, r"one of those captured, \(0, 4, 9\), got 5"),
])  # fmt: skip
def test_heads_that_are_not_there_are_refused(tmp_path, heads, changes, message):
    with pytest.raises(ValueError, match=message):
        save(dataclasses.replace(made_up(), **changes), tmp_path / "x.npz", heads=heads)
    refuses(r"\.npz, \.safetensors, got '\.pt'", save, made_up(), tmp_path / "x.pt")


def test_scrambled_safetensors_is_noticed(tmp_path, monkeypatch):
    backend = pytest.importorskip("safetensors.numpy")
    load = backend.load_file
    monkeypatch.setattr(backend, "load_file", lambda path: load(path) | {"k": made_up().k + 1})
    with pytest.raises(OSError, match="does not read back as it was written"):
        save(made_up(), tmp_path / "x.safetensors")
    assert not os.listdir(tmp_path)


# Arguments


@pytest.fixture
def folder(tmp_path):
    """Return a folder that looks like a model, with a text in it."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "text.txt").write_text("we the people", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_missing_library_is_named_with_its_install_line(folder, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"install -c constraints.txt -e '\.\[model"):
        capture(folder, folder / "text.txt")


def test_missing_safetensors_is_named_with_its_install_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=re.escape("pip install -e '.[qk]'")):
        save(made_up(), tmp_path / "x.safetensors")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"max_tokens": 1}, ValueError, "max_tokens must be >= 2, got 1"),
    ({"max_tokens": 8.0}, TypeError, "max_tokens must be an integer"),
    ({"dtype": "float8"}, ValueError, "dtype must be one of float16, float32, float64"),
    ({"layers": []}, ValueError, "layers must name at least one layer"),
    ({"layers": [0, -1]}, ValueError, "layer must be >= 0, got -1"),
    ({"check": "no"}, TypeError, "check must be True or False"),
    ({"layers": [0], "heads": [(0, 1)]}, ValueError, "layers follow from heads: leave them"),
])  # fmt: skip
def test_bad_options_are_refused(folder, options, error, message):
    with pytest.raises(error, match=message):
        capture(folder, folder / "text.txt", **options)


def test_model_may_be_one_gguf_file(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    refuses("holds 2 GGUF files: name one", Place.from_path, tmp_path)
    folder, name, told = Place.from_path(tmp_path / "b.gguf")
    assert (folder, name, told["gguf_file"]) == (tmp_path, "b", "b.gguf")
    (tmp_path / "a.gguf").unlink()
    assert Place.from_path(tmp_path) == (folder, name, told)
    (tmp_path / "config.json").touch()  # a model, with a smaller copy beside it
    assert "gguf_file" not in Place.from_path(tmp_path)[2]


@pytest.mark.parametrize(("given", "name"), [
    (".", "my model (最终)"),
    ("../my model (最终)/", "my model (最终)"),
    ("../link", "my model (最终)"),
    ("../models--org--SmolLM2-135M/snapshots/93efa2f097d5", "SmolLM2-135M"),
])  # fmt: skip
def test_a_model_has_the_name_of_its_folder_or_repository(given, name, tmp_path, monkeypatch):
    own = tmp_path / "my model (最终)"
    for folder in (own, tmp_path / "models--org--SmolLM2-135M/snapshots/93efa2f097d5"):
        folder.mkdir(parents=True)
        (folder / "config.json").touch()
    (tmp_path / "link").symlink_to(own)
    monkeypatch.chdir(own)
    assert Place.from_path(given).name == name


# The bundled sample


def test_sample_of_a_language_model_is_what_its_readme_says():
    found = read(SMOLLM2)
    for name in "qkv":
        assert found[name].shape == (4, 1024, 64)
        assert found[name].dtype == np.float16
        assert np.isfinite(found[name]).all()
    assert found["scaling"] == 1 / 8
    assert found["causal"]
    assert found["token_ids"].shape == (1024,)
    readme = (SMOLLM2.parent / "README.md").read_text(encoding="utf-8")
    for file in (SMOLLM2, SMOLLM2.parent / "persuasion.txt"):
        assert hashlib.sha256(file.read_bytes()).hexdigest() in readme
    assert SMOLLM2.stat().st_size <= 3e6

    table = pd.read_csv(SMOLLM2.with_suffix(".csv"))
    assert len(table) == 270
    for x in sample("smollm2").heads():
        weights = np.exp(x.logits())
        weights /= weights.sum(axis=1, keepdims=True)
        shares = head_kinds.shares(weights, found["token_ids"])
        listed = table[(table.layer == x.layer) & (table["head"] == x.head)].iloc[0]
        # the table has four decimals
        assert all(abs(listed[name] - value) < 6e-5 for name, value in shares.items())
        row = "| {} | {} | {} | {sink:.3f} | {recent:.3f} | {far:.3f} | {effective_keys:.1f} |"
        label = x.name.removeprefix("SmolLM2 ")
        assert row.format(label, x.layer, x.head, **shares) in readme


# Models


def small(kind, **changes):
    """Return a model of two layers without its logits."""
    sizes = {"num_hidden_layers": 2, "max_position_embeddings": 64}
    return build(kind, "float32", "AutoModel", **sizes | changes)


IDS = np.random.default_rng(1).integers(1, 50, 23)
LOCAL_FIRST = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7}
KINDS = {  # what a configuration says, and the windows of both layers
    "llama": ({}, ()),
    "gpt2": ({}, ()),
    "mistral": ({"sliding_window": 7}, (7, 7)),
    "gemma3_text": (LOCAL_FIRST, (7, 0)),
    "gpt_oss": ({"sliding_window": 7}, (7, 0)),
}


def own_attention(model):
    """Return the eager weights (layers, heads, n, n) and what goes into the output projections."""
    import torch

    outputs = []
    for name, part in model.named_modules():
        if name.endswith(("attention.output.dense", "o_proj", "attn.c_proj")):
            part.register_forward_pre_hook(lambda _, x: outputs.append(x[0][0].numpy()))
    with torch.inference_mode():
        weights = model(input_ids=torch.tensor(IDS)[None], output_attentions=True).attentions
    return np.stack([w[0].numpy() for w in weights]), np.stack(outputs)


def attention(c):
    """Return weights (layers, heads, n, l) and output (layers, n, heads * c), in float64."""
    q, k, v = (x.astype(np.float64) for x in (c.q, c.k, c.v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    logits = c.scaling * q @ np.swapaxes(k, 2, 3)
    n, l = logits.shape[2:]
    i, j = np.arange(n)[:, None] + l - n, np.arange(l)
    for layer, window in zip(logits, c.windows or (0,) * len(logits)):
        if c.causal:
            layer[:, j > i] = -np.inf
        if window:
            layer[:, j <= i - window] = -np.inf
    sinks = np.full(logits.shape[:2], -np.inf) if c.sinks is None else c.sinks
    every = np.concatenate([logits, np.repeat(sinks[..., None, None], n, axis=2)], axis=-1)
    weights = np.exp(every - every.max(axis=-1, keepdims=True))
    weights = (weights / weights.sum(axis=-1, keepdims=True))[..., :-1]
    return weights, np.swapaxes(weights @ v, 1, 2).reshape(q.shape[0], n, -1)


@with_torch
@pytest.mark.parametrize("kind", [*KINDS, "esm"])
def test_capture_reproduces_the_attention_of_the_model(kind):
    changes, windows = KINDS.get(kind, ({}, ()))
    kv_heads, causal = 4 if kind in ("esm", "gpt2") else 2, kind != "esm"
    model = small(kind, **changes)
    c = module._forward(model, IDS, name=kind, check=True)
    assert (c.q.shape, c.k.shape) == ((2, 4, 23, 8), (2, kv_heads, 23, 8))
    scaling = {"gemma3_text": 256**-0.5, "esm": 1.0}.get(kind, 8**-0.5)
    assert (c.scaling, c.causal, c.windows, c.model) == (scaling, causal, windows, kind)
    assert c.q.flags.c_contiguous
    assert c.q.dtype == np.float32
    np.testing.assert_array_equal(c.token_ids, IDS)

    weights, outputs = attention(c)
    expected_weights, expected_outputs = own_attention(model)
    # far from uniform, so the test can fail
    assert expected_weights.max(axis=-1).mean() > 0.2
    np.testing.assert_array_equal(weights > 0, expected_weights > 0)
    # a logit, a sum of 8 products, is off by 8 eps |q| |k| scaling at most, a row's sum by 23 eps;
    # the second layer starts from what the first one rounded, through norms and maps of width 48
    norms = [np.linalg.norm(x, axis=-1).max() for x in (c.q, c.k)]
    relative = 48 * (2 * 8 * math.prod(norms) * c.scaling + 23) * np.finfo(np.float32).eps
    np.testing.assert_allclose(weights, expected_weights, rtol=relative, atol=1e-30)
    np.testing.assert_allclose(
        outputs, expected_outputs, rtol=0, atol=2 * relative * np.abs(c.v).max()
    )


@with_torch
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_read_in_pieces_has_the_last_queries_and_all_keys_of_the_whole(kind, monkeypatch):
    model = small(kind, **KINDS[kind][0])
    whole = module._forward(model, IDS)
    monkeypatch.setattr(module, "PIECE", 8)
    part = module._forward(model, IDS, queries=4, check=True)  # pieces of 8, 8, 3 and 4 tokens
    assert part.q.shape[2] == 4
    assert (part.windows, part.causal, part.scaling) == (whole.windows, True, whole.scaling)
    np.testing.assert_array_equal(part.token_ids, IDS)
    for own, other in ((part.q, whole.q[:, :, -4:]), (part.k, whole.k), (part.v, whole.v)):
        np.testing.assert_allclose(own, other, rtol=0, atol=1e-5 * np.abs(other).max())
    for queries in (1, 6, len(IDS) + 3):  # also where a piece has one token
        other = module._forward(model, IDS, queries=queries)
        last = whole.q[:, :, -queries:]
        np.testing.assert_allclose(other.q, last, rtol=0, atol=1e-5 * np.abs(whole.q).max())
        assert (other.windows, other.causal) == (whole.windows, True)
    monkeypatch.setattr(module, "PIECE", 64)
    short = module._forward(model, IDS, queries=4)  # read at once
    np.testing.assert_array_equal(short.q, whole.q[:, :, -4:])
    np.testing.assert_array_equal(short.k, whole.k)


@with_torch
def test_what_reads_the_whole_text_at_once_is_not_read_in_pieces(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 8)
    with pytest.raises(ValueError, match=r"not causal, so .* lower max_tokens to 8"):
        module._forward(small("esm"), IDS, queries=4)


@with_torch
def test_layers_that_are_kept_are_those_of_the_whole_capture():
    model = small("gemma3_text", **LOCAL_FIRST)
    whole, part = module._forward(model, IDS), module._forward(model, IDS, (1,))
    assert (part.layers, part.windows, whole.windows) == ((1,), (), (7, 0))
    np.testing.assert_array_equal(part.q, whole.q[1:])
    refuses("layers 0 to 1, got 2", module._forward, model, IDS, (0, 2))


@with_torch
@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_sinks_and_windows_of_a_file_give_the_outputs_of_the_model(kind, tmp_path):
    model = small("gpt_oss", sliding_window=7)
    c = module._forward(model, IDS, dtype="float32")
    _, expected = own_attention(model)
    some = [(1, 3), (0, 1), (0, 0)]
    module.save(c, tmp_path / f"all.{kind}")
    module.save(c, tmp_path / f"some.{kind}", heads=some)
    whole, part = (load(tmp_path / f"{name}.{kind}") for name in ("all", "some"))
    for x in [*whole, *(part.at(*pair) for pair in some)]:
        assert float(x.sinks) == [3.0, -2.0, 0.0, 1.0][x.head]
        own = expected[x.layer][:, 8 * x.head : 8 * x.head + 8]
        output = x.approximate(parse("exact()")).attend(x.V)
        # sums of 23 products of float32, twice
        np.testing.assert_allclose(output, own, rtol=0, atol=2 * 23 * 1.2e-7 * np.abs(x.V).max())
    methods = [parse(spec) for spec in ("exact()", "uniform()", "truncated_svd(2, 'attention')")]
    found = diagnose(whole, budget=64.0, methods=methods)
    exact, uniform = (found[found.spec == spec].attention_tv for spec in ("exact()", "uniform()"))
    assert (exact < 1e-6).all()
    assert (uniform > 0.05).all()
    assert found.bound.isna().all()  # no bound of a class knows a sink
    assert "no place for an attention sink" in found.left_out[0][0]
    refuses("theory would leave out the attention sinks of all", predictions, whole, keys=4)


@with_torch
def test_float16_is_the_rounded_capture_or_refused():
    model = small("llama")
    exact, half = module._forward(model, IDS), module._forward(model, IDS, dtype="float16")
    np.testing.assert_array_equal(half.k, exact.k.astype(np.float16))
    model.layers[1].self_attn.v_proj.weight.data *= 1e6
    with pytest.raises(ValueError, match="layer 1 has values beyond float16, up to"):
        module._forward(model, IDS, dtype="float16")


@with_torch
@pytest.mark.parametrize(("kind", "changes", "message"), [
    ("gemma2", {"attn_logit_softcapping": 50.0}, "soft-cap"),
    ("bloom", {}, "ALiBi"),
    ("mpnet", {}, "cannot be taken"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "in scaling|output differs"),  # 4.56
])  # fmt: skip
def test_attention_that_q_k_v_cannot_represent_is_refused(kind, changes, message):
    model = small(kind, **changes)
    refuses(message, module._forward, model, IDS, check=True)
    known = pytest.importorskip("transformers").AttentionInterface()
    assert not any(name.startswith("expqk") for name in known)


@with_torch
def test_t5_is_refused_by_its_configuration(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=50, d_model=32, d_kv=8, d_ff=48, num_heads=4, num_layers=2
    )
    with pytest.raises(ValueError, match=r"relative position bias|models with ALiBi"):  # 4.56
        module._forward(transformers.T5EncoderModel(config), IDS)
    transformers.T5Config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="an encoder and a decoder"):
        Place.from_path(tmp_path).config()  # before weights are read


@with_torch
def test_mask_is_full_or_causal_or_a_window_or_refused():
    torch = pytest.importorskip("torch")
    past = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    hidden = torch.zeros(1, 1, 5, 5)
    for value in (-torch.inf, torch.finfo(torch.float32).min, -1e4):
        assert Seen.from_mask(hidden.masked_fill(~past, value), 5, 5)[1:] == (True, 0)
    assert Seen.from_mask(past, 5, 5)[1:] == (True, 0)
    for width in range(1, 5):
        assert Seen.from_mask(past.triu(1 - width), 5, 5)[1:] == (True, width)
    late = torch.ones(2, 5, dtype=torch.bool).tril(3)  # two queries behind three keys
    for mask, width in ((late, 0), (late.triu(2), 2)):
        seen = Seen.from_mask(mask[None, None], 2, 5)
        assert seen[1:] == (True, width)
        assert (seen.visible == mask).all()
    assert Seen.from_mask(None, 5, 5) == (None, False, 0)
    assert Seen.from_mask(hidden, 5, 5) == (None, False, 0)
    assert Seen.from_mask(hidden[:, :, :1], 5, 5) == (None, False, 0)  # one row for all
    chunks = past & (torch.arange(5)[:, None] // 3 == torch.arange(5) // 3)
    both_sides = past.triu(-1) | past.triu(-1).mT
    for mask in (past.flip(-1), chunks, both_sides, past.mT):
        refuses("neither full nor causal nor a window", Seen.from_mask, mask, 5, 5)
    refuses("ALiBi", Seen.from_mask, hidden - 0.5, 5, 5)


@with_torch
def test_sliding_window_wider_than_the_text_is_causal_attention():
    for width in (23, 24):
        found = module._forward(small("mistral", sliding_window=width), IDS)
        assert (found.causal, found.windows) == (True, ())
    assert module._forward(small("mistral", sliding_window=22), IDS).windows == (22, 22)


@with_torch
def test_attention_changed_behind_our_back_is_noticed_by_the_check(monkeypatch):
    model = small("esm")
    output = attention_hook.Call.output

    def changed(call):
        return output(dataclasses.replace(call, v=call.v * 1.01))

    monkeypatch.setattr(attention_hook.Call, "output", changed)
    module._forward(model, IDS)
    refuses("output differs", module._forward, model, IDS, check=True)


@with_torch
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_capture_reads_a_folder_without_the_network(tmp_path, monkeypatch, dtype):
    model_dir, text = saved(tmp_path, "llama")
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("network"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("network"))
    c = capture(model_dir, text, max_tokens=16, dtype=dtype, check=True)
    assert (c.q.shape, c.q.dtype, c.model, c.tokens) == ((2, 4, 16, 8), dtype, "model", 90)
    assert c.token_ids.tolist() == [1 + i % 3 for i in range(16)]


@with_torch
def test_a_model_computes_on_a_device_that_torch_has(tmp_path):
    model_dir, text = saved(tmp_path, "llama")
    named = {"device": "cpu:0"}
    first, second = (capture(model_dir, text, max_tokens=16, **x) for x in ({}, named))
    assert all(np.array_equal(getattr(first, x), getattr(second, x)) for x in "qkv")
    for device in ("meta", "vulkan", "no such"):
        for dtype in ("float32", "float64"):
            said = f"torch cannot compute {dtype} on the device {device} here: give cpu"
            refuses(said, capture, model_dir, text, dtype=dtype, device=device)
            refuses(said, LanguageModel.open, model_dir, dtype=dtype, device=device)


@with_torch
def test_what_a_model_has_not_is_refused_before_it_is_read(tmp_path, monkeypatch):
    model_dir, text = saved(tmp_path, "llama")
    auto = pytest.importorskip("transformers").AutoModel
    monkeypatch.setattr(auto, "from_pretrained", lambda *_, **__: pytest.fail("it is read"))
    said = "the model has 64 positions, and the text more tokens: lower max_"
    refuses(said, capture, model_dir, text, max_tokens=100)
    refuses("head must be <= 3, got 4", capture, model_dir, text, heads=[(0, 1), (1, 4)])
    refuses("layer must be <= 1, got 2", capture, model_dir, text, heads=[(2, 0)])
    text.write_text("", encoding="utf-8")
    refuses("at least 2 tokens, got 0: give a longer one", capture, model_dir, text)


@with_torch
@pytest.mark.parametrize(("name", "change", "message"), [
    ("config.json", (b'_layers": 2', b'_layers": 3'), r"9 arrays .* as layers\.2\."),
    ("config.json", (b'_size": 48', b'_size": 40'), "6 arrays .* in another shape"),
    ("config.json", (b'_size": 32', b'_size": "32"'), r"config\.json cannot be .*hidden"),
    ("config.json", (b'_heads": 4', b'_heads": 3'), "cannot be read: .*mult|another shape"),
    ("config.json", (b'_layers": 2', b'_layers": -2'), r"json cannot be .* -2"),
    ("tokenizer.json", (b'"version"', b"version"), r"read: .+; tokenizer\.json is no JSON$"),
    ("tokenizer.json", (b'"people": 3', b'"people": 300'), "gives token 300, .* has only 50"),
    ("model.safetensors", (b"\0" * 4, b""), r"model\.safetensors cannot be read: "),
    ("model.safetensors.index.json", (b"", b'{"weight_map": {"": "b.bin"}}'), "b.bin, which"),
    ("model.safetensors.index.json", (b"", b'{"weight_map": []}'), r"json cannot be read"),
    ("model.gguf", (b"", b"GGUF\3\0\0\0" + bytes(12)), r"model\.gguf cannot be read: "),
])  # fmt: skip
def test_a_damaged_model_is_one_sentence_that_names_the_file(tmp_path, name, change, message):
    model_dir, text = saved(tmp_path, "llama")
    path = model_dir / name
    if not path.exists():
        (model_dir / "model.safetensors").rename(model_dir / "b.bin")
        path.touch()
    path.write_bytes(path.read_bytes().replace(*change, 1))
    with pytest.raises(ValueError, match=message) as caught:
        capture(path if name == "model.gguf" else model_dir, text, max_tokens=16)
    assert "model" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "reason"), [(KeyError("x"), "KeyError: 'x'"), (OSError("gone"), "gone")]
)
def test_a_failure_is_not_blamed_on_other_files(tmp_path, error, reason):
    (tmp_path / "notes.json").write_text("odd", encoding="utf-8")
    said = re.escape(f"{tmp_path.name} cannot be read: {reason}")
    with pytest.raises(ValueError, match=f"{said}$"), checkpoints.reading(tmp_path):
        raise error


@with_torch
def test_arrays_that_no_configuration_asks_for_are_named_but_not_heads(tmp_path):
    model_dir, text = saved(tmp_path, "llama")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(model_dir)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(model_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputFileWarning)
        capture(model_dir, text, max_tokens=16)
    config.num_hidden_layers = 1
    config.save_pretrained(model_dir)
    with pytest.warns(InputFileWarning, match=r"9 arrays that .* not ask for, .*layers\.1"):
        assert len(capture(model_dir, text, max_tokens=16).q) == 1


@with_torch
def test_memory_is_reserved_for_the_model_and_the_arrays_before_either_is_made(tmp_path):
    model_dir, text = saved(tmp_path, "llama")
    c = capture(model_dir, text, max_tokens=16)
    files, path = pytest.importorskip("safetensors.numpy"), model_dir / "model.safetensors"
    weights = files.load_file(path)
    head = {"lm_head.weight": np.ones((50, 32), np.float32)}  # which capture does not load
    files.save_file(weights | head, path, {"format": "pt"})
    # weights in float32; each layer's arrays, and all of them in one
    held = sum(x.nbytes for x in weights.values()) + 2 * (c.q.nbytes + c.k.nbytes + c.v.nbytes)
    memory.set_limit(held)
    capture(model_dir, text, max_tokens=16)
    memory.set_limit(held - 1)
    with pytest.MonkeyPatch.context() as patch:
        auto = pytest.importorskip("transformers").AutoModel
        patch.setattr(auto, "from_pretrained", lambda *_, **__: pytest.fail("it is read"))
        with pytest.raises(
            memory.ResourceLimitError, match=r"model would take .* lower max_tokens"
        ):
            capture(model_dir, text, max_tokens=16)


def test_of_a_long_text_only_the_beginning_is_tokenised(monkeypatch):
    def tokenizer(text, truncation, max_length, add_special_tokens):
        lengths.append(len(text))
        return {"input_ids": [len(word) for word in text.split()][:max_length]}

    monkeypatch.setattr(checkpoints, "WHOLE", 40)
    tokenizer.model_max_length, tokenizer.name_or_path = 10**6, "words"
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=9))
    words, lengths = "we the people of " * 1000, []
    for most in (2, 9, 10, 500, 9999):
        ids = checkpoints.token_ids(words, tokenizer, config, most)
        assert ids == ([2, 3, 6, 2] * 1000)[:most]
        # a beginning of at most twice the needed characters, and then one twice as long
        assert max(lengths) <= max(2 * 40, 4 * len(words) * most / 4000 + 4 * 6)
    for text, message in (
        ("we \ud800", "lone surrogate"),
        ("we weweweweww", "token 10, .* only 9"),
    ):
        refuses(message, checkpoints.token_ids, text, tokenizer, config, 8)


@with_torch
def test_code_in_the_folder_is_not_run(folder):
    pytest.importorskip("transformers")
    (folder / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoConfig": "code_of_theirs.Config"}}'
    )
    ran = folder / "ran"
    (folder / "code_of_theirs.py").write_text(f"open({str(ran)!r}, 'w').close()")
    refuses("auto_map", capture, folder, folder / "text.txt")
    assert not ran.exists()


def saved(tmp_path, kind):
    """Return the folder of a tiny model with a tokenizer of three words, and a text of 90."""
    small(kind).save_pretrained(tmp_path / "model")
    words = ["[UNK]", "we", "the", "people"]
    save_tokenizer(tmp_path / "model", words, unk_token="[UNK]")
    text = tmp_path / "text.txt"
    text.write_text("we the people\n" * 30, encoding="utf-8-sig")
    return tmp_path / "model", text
