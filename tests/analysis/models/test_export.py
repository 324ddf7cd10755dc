"""A plan as the configuration of an engine, without the engine; tests/models runs the engines."""

import json
import sys
import types
from dataclasses import dataclass, field

import numpy as np
import pytest
from refusals import refuses

from analysis.models.export import EXPORTERS, ONCE
from analysis.models.plan import HeadCounts, Plan
from approx import parse
from approx.compressed_logits.quantised import rounded

MODEL = HeadCounts(layers=3, heads=4, group=2, d=64)
WINDOW, SNAPKV = "sink_window(k=32, sinks=4)", "columns(k=24, by='snapkv', recent=16, window=16)"
SPARQ = "projected_top_k(k=8, r=8, by='channels')"
FOUR = "rounded_values(quantised(bits=4, group=32), bits=4, group=32)"


def plan(*layers, heads=MODEL.heads):
    """Return a plan whose layers have one method, or one of a tuple for each head."""
    each = [(x,) * heads if isinstance(x, str) else x for x in layers]
    return Plan("tiny", {(i, j): parse(x) for i, xs in enumerate(each) for j, x in enumerate(xs)})


def export(plan, engine, model):
    return EXPORTERS[engine](model).export(plan)


def nearest(plan, engine):
    return EXPORTERS[engine](MODEL).nearest(plan)


@pytest.fixture
def kvpress(monkeypatch):
    """Put presses that only hold their fields where the script imports them."""
    module = types.ModuleType("kvpress")

    def press(name):
        return dataclass(type(name, (), {
            "__annotations__": {"n_sink": int, "window_size": int, "kernel_size": int},
            "n_sink": 4, "window_size": 64, "kernel_size": 5,
        }))  # fmt: skip

    @dataclass
    class PerLayerCompressionPress:
        press: object
        compression_ratios: list

    @dataclass
    class ComposedPress:
        presses: list = field(default_factory=list)

    for one in (PerLayerCompressionPress, ComposedPress):
        setattr(module, one.__name__, one)
    for name in ("StreamingLLMPress", "SnapKVPress"):
        setattr(module, name, press(name))
    monkeypatch.setitem(sys.modules, "kvpress", module)


def test_the_press_keeps_as_many_keys_as_the_plan(kvpress):
    text = export(plan(WINDOW, SNAPKV, "exact()"), "kvpress", MODEL).text
    script = {}
    exec(compile(text, "press.py", "exec"), script)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100
    for n in (33, 50, 97, 512, 4095, 131072):
        first, second = script["press"](n).presses
        assert (type(first.press).__name__, first.press.n_sink) == ("StreamingLLMPress", 4)
        assert (second.press.window_size, second.press.kernel_size) == (16, 5)
        # kvpress keeps int(n·(1 − ratio)) keys
        kept = [[int(n * (1 - x)) for x in one.compression_ratios] for one in (first, second)]
        assert kept == [[32, n, n], [n, 24, n]]
    assert script["press"](20).presses[0].compression_ratios == [0, 0, 0]


def test_it_says_where_a_press_differs():
    assert export(plan(WINDOW, SNAPKV, WINDOW), "kvpress", MODEL).differences == (
        f"{WINDOW}: {ONCE}", f"{SNAPKV}: it keeps the same keys for 2 heads",
    )  # fmt: skip
    alone = MODEL._replace(group=1)
    assert not export(plan(SNAPKV, SNAPKV, SNAPKV), "kvpress", alone).differences
    for spec, said in {
        "columns(k=9, by='key_norm', sinks=1)": "may evict the first keys",
        "columns(k=9, by='key_diff', recent=2)": "may evict the last keys",
        "columns(k=19, by='snapkv', recent=16, window=8)": "keeps the last 8 keys",
        "columns(k=19, by='snapkv', recent=8, window=8, pooling='max')": "pools by the mean",
        "columns(k=9, by='cur', sinks=1)": "",
        "columns(k=9, by='key_norm', block=2)": "may evict the last keys",
        "columns(k=9, by='tova')": "same keys for all heads of a layer",
    }.items():
        others = [
            x for x in export(plan(*[spec] * 3), "kvpress", alone).differences if ONCE not in x
        ]
        assert [said in one for one in others] == [True] * bool(said), spec


@pytest.mark.parametrize(("layers", "engine", "reason"), [
    (((WINDOW, WINDOW, WINDOW, SNAPKV), WINDOW, WINDOW), "kvpress", "layer 0 has 2 methods"),
    (((WINDOW,), WINDOW, WINDOW), "kvpress", "layer 0 has 2 methods"),  # others are exact
    ((SPARQ, WINDOW, WINDOW), "kvpress", "no press computes projected_top_k"),
    ((FOUR, FOUR, FOUR), "kvpress", "There is no nearest plan"),
    (
        ("columns(k=9, by='h2o')", "columns(k=8, by='h2o')", "exact()"), "kvpress",
        "where all layers keep as many keys",
    ),
    (("exact()",) * 3, "kvpress", "nothing to export"),
    ((WINDOW,) * 3, "transformers", "has no other cache of a chosen size"),
    ((FOUR, FOUR, "exact()"), "transformers", "it has 2 methods, and all layers have one cache"),
    (("quantised(bits=4)",) * 3, "transformers", "keys and values to the same number of bits"),
    (
        ("rounded_values(quantised(bits=3), bits=3)",) * 3, "transformers",
        r"quanto has 2 or 4 bits. The nearest plan .* has rounded_values\(method=quantised\(\)\) "
        "for 12 heads",
    ),
    (("quantised(bits=4, levels='normal', group=32)",) * 3, "llama.cpp", "rounds to equal steps"),
    (("quantised(bits=4, by='channel', group=32)",) * 3, "llama.cpp", "rounds keys by token"),
    (("quantised(bits=3, group=32)",) * 3, "llama.cpp", "it has 4, 5 or 8 bits for each key"),
])  # fmt: skip
def test_what_an_engine_lacks_is_refused_with_the_reason(layers, engine, reason):
    refuses(reason, export, plan(*layers), engine, MODEL)


def test_models_with_other_layers_or_widths_are_refused():
    other = MODEL._replace(other_kinds=("sliding_attention",))
    for engine in EXPORTERS:
        refuses("layers of the kind sliding_attention", export, plan(FOUR), engine, other)
    refuses("blocks of 32 do not divide d = 80", export, plan(*[FOUR] * 3), "llama.cpp",
            MODEL._replace(d=80))  # fmt: skip


def test_a_quantised_cache():
    found = json.loads(export(plan(*[FOUR] * 3), "transformers", MODEL).text)
    assert found["cache_implementation"] == "quantized"
    assert found["cache_config"] == {
        "backend": "quanto", "nbits": 4, "q_group_size": 32, "axis_key": 0, "axis_value": 0,
        "residual_length": 128,
    }  # fmt: skip
    kivi = "rounded_values(quantised(bits=2, by='channel', group=32), bits=2)"
    text, differences = export(plan(*[kivi] * 3), "transformers", MODEL)
    assert json.loads(text)["cache_config"]["axis_key"] == -1
    assert [one.rpartition(": ")[2] for one in differences[1:]] == [
        "values have groups of 32", "the prompt must be a multiple of 32 tokens",
        "it rounds the last keys of the prompt, too",
    ]  # fmt: skip


def test_types_of_keys_and_values():
    for spec, types_ in {
        FOUR: ("q4_1", "q4_1"),
        "quantised(bits=5, group=32)": ("q5_1", "f16"),
        "rounded_values(exact(), bits=8, group=32)": ("f16", "q8_0"),
    }.items():
        found = export(plan(*[spec] * 3), "llama.cpp", MODEL)
        keys, values = types_
        assert found.text == f"--flash-attn on --cache-type-k {keys} --cache-type-v {values}\n"
        assert any("around 0" in x for x in found.differences) == ("q8_0" in types_)


def test_nearest_plan_has_what_most_heads_of_a_layer_have():
    mixed = plan((WINDOW, SNAPKV, SNAPKV, SPARQ), (WINDOW, WINDOW, SNAPKV, SPARQ), SPARQ)
    found = nearest(mixed, "kvpress")
    assert [str(found.heads[layer, 0]) for layer in range(3)] == [SNAPKV, WINDOW, SNAPKV]
    assert len({str(found.heads[0, head]) for head in range(4)}) == 1
    export(found, "kvpress", MODEL)
    # a layer that is exact stays so; a layer that has nothing to say takes what most heads have
    found = nearest(plan("exact()", WINDOW, SPARQ), "kvpress")
    assert {layer for layer, _ in found.heads} == {1, 2}


def test_nearest_plan_has_no_press_that_its_other_layers_exclude():
    h2o = "columns(k=9, by='h2o')"
    alike = nearest(plan((h2o, h2o, h2o, WINDOW), h2o, h2o), "kvpress")
    assert {str(method) for method in alike.heads.values()} == {h2o}
    mixed = nearest(plan((h2o, h2o, h2o, WINDOW), SNAPKV, h2o), "kvpress")
    assert [str(mixed.heads[layer, 0]) for layer in range(3)] == [WINDOW, SNAPKV, SNAPKV]
    export(mixed, "kvpress", MODEL)


def test_nearest_code_has_as_many_bits_or_more():
    eden = "turboquant(bits=3, form='eden')"
    mixed = plan(f"rounded_values({eden}, bits=3)", eden, WINDOW)
    assert {str(m) for m in nearest(mixed, "llama.cpp").heads.values()} == {"quantised(group=32)"}
    both = plan(*[f"rounded_values({eden}, bits=3)"] * 3)
    assert {str(m) for m in nearest(both, "transformers").heads.values()} == {
        "rounded_values(method=quantised())"
    }
    refuses("no method of the plan has a counterpart", nearest, plan(WINDOW), "transformers")


@pytest.mark.parametrize(("name", "bits"), [("Q4_1", 4), ("Q5_1", 5)])
def test_types_round_as_our_codes_do(name, bits):
    gguf = pytest.importorskip("gguf")
    x = np.random.default_rng(bits).standard_normal((500, 64)).astype(np.float32)
    kind = getattr(gguf.GGMLQuantizationType, name)
    theirs = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)
    ours, step = rounded(x.astype(float), bits, 32)
    # The minimum m and the step s have 16 bits, so a number moves by 2^-11·(|m| + (2^bits − 1)·s);
    # half a step more where their place between two levels is a tie in single precision.
    least = np.repeat(np.abs(x.reshape(-1, 2, 32).min(axis=2)), 32, axis=1).reshape(x.shape)
    bound = 2.0**-11 * (least + (2**bits - 1) * step) + 1e-6
    moved = np.abs(theirs - ours)
    assert (moved <= bound).mean() > 0.999
    assert (moved <= bound + step).all()
    bytes_ = gguf.quants.quantize(x, kind).nbytes
    assert 8 * bytes_ / x.size == bits + 2 * 16 / 32


def test_eight_bits_there_are_steps_around_zero():
    gguf = pytest.importorskip("gguf")
    x = np.random.default_rng(8).standard_normal((100, 64)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    theirs = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind).reshape(-1, 32)
    step = np.abs(x.reshape(-1, 32)).max(axis=1, keepdims=True) / 127
    codes = np.round(x.reshape(-1, 32) / step)
    assert np.abs(theirs - codes * step.astype(np.float16).astype(np.float32)).max() < 1e-6
