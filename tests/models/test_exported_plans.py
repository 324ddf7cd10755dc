"""Exported plans run by kvpress and transformers: the same keys, and KL there beside KL here.

`make lm` runs it where kvpress and optimum-quanto are installed, with transformers 4.56. On
SmolLM2-135M the numbers are those of docs/engines.md.
"""

import contextlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from tiny_models import build, with_torch

from analysis.models.export import EXPORTERS
from analysis.models.language_model import LanguageModel
from analysis.models.plan import HeadCounts, Plan
from analysis.models.replacement import Passage
from approx import parse
from approx.compressed_logits.quantised import rounded

pytestmark = with_torch
ROOT = Path(__file__).parents[2]
LM = os.environ.get("EXPQK_LM")
TINY = HeadCounts(layers=3, heads=4, group=1, d=8)
SMOLLM2 = HeadCounts(layers=30, heads=9, group=3, d=64)
PROMPT, TOKENS = 256, 384  # of SmolLM2; the tokens after the prompt count
SNAPKV = "columns(k={k}, by='snapkv', recent=16, window=16)"
SAME = "columns(k={k}, by='key_norm')", "columns(k={k}, by='key_diff')", SNAPKV


@pytest.fixture(scope="module")
def tiny():
    pytest.importorskip("kvpress")
    model = build(num_key_value_heads=4, attn_implementation="sdpa")
    return model, np.random.default_rng(5).integers(1, 50, 60)


def everywhere(spec, counts, k=64):
    pairs = [(layer, head) for layer in range(counts.layers) for head in range(counts.heads)]
    return Plan("a model", dict.fromkeys(pairs, parse(spec.format(k=k))))


def press_of(plan, counts):
    """Return the function ``press`` of the exported script."""
    script = {}
    exec(compile(EXPORTERS["kvpress"](counts).export(plan).text, "press.py", "exec"), script)
    return script["press"]


def cache_of(plan, counts, model):
    """Return the cache of the exported JSON."""
    from transformers import QuantizedCache

    config = json.loads(EXPORTERS["transformers"](counts).export(plan).text)["cache_config"]
    return QuantizedCache(config.pop("backend"), config=model.config, **config)


def continued(model, ids, prompt, press=None, cache=None):
    """Return the logits of the tokens after a prompt, read one by one, and the cache.

    The cache holds the prompt as the engine keeps it; positions are those of the text.
    """
    import torch
    import transformers

    ids = torch.as_tensor(ids[None])
    cache = transformers.DynamicCache() if cache is None else cache
    found = []
    with torch.no_grad(), contextlib.nullcontext() if press is None else press(prompt)(model):
        model(ids[:, :prompt], past_key_values=cache, logits_to_keep=1)
        for i in range(prompt, ids.shape[1]):
            at = {"position_ids": torch.tensor([[i]])}
            said = model(ids[:, i : i + 1], past_key_values=cache, **at)
            found.append(said.logits[0, -1].double())
    return torch.stack(found), cache


def each_token(bits, group=64):
    """Return a cache that rounds each token as it comes, and the prompt at its end."""
    import torch
    import transformers

    def coded(x):
        rows = x.numpy().reshape(-1, x.shape[-1]).astype(float)
        return torch.as_tensor(rounded(rows, bits, group)[0].reshape(x.shape), dtype=x.dtype)

    class Cache(transformers.DynamicCache):
        def update(self, keys, values, layer, *args, **named):
            if keys.shape[2] == 1:
                return super().update(coded(keys), coded(values), layer, *args, **named)
            exact = super().update(keys, values, layer, *args, **named)
            mine = self.layers[layer]
            mine.keys, mine.values = coded(mine.keys), coded(mine.values)
            return exact

    return Cache()


def damage(exact, other):
    """Return KL(exact ‖ other) of the next token at each position."""
    p, q = exact.log_softmax(-1), other.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).numpy()


@pytest.mark.parametrize("spec", [*SAME, "sink_window(k={k}, sinks=4)"])
def test_the_press_keeps_the_keys_of_the_plan(tiny, spec):
    """The keys in the cache of kvpress after the prompt, by our columns on the same keys."""
    model, ids = tiny
    passage = Passage(LanguageModel(model), ids[:50], skip=0)
    plan = everywhere(spec, TINY, k=20)
    # without a token after the prompt there are no logits: one more
    _, cache = continued(model, ids[:51], 50, press_of(plan, TINY))
    for layer in range(TINY.layers):
        heads = passage.inputs(layer)
        for h in range(TINY.heads):
            head = heads.at(layer, h)
            there = cache.layers[layer].keys[0, h, :-1].numpy()
            distances = np.abs(there[:, None] / 8**0.25 - head.K[None]).max(axis=2)
            assert distances.min(axis=1).max() < 1e-9
            last = np.flatnonzero(head.approximate(plan.heads[layer, h]).to_dense()[-1])
            assert sorted(distances.argmin(axis=1)) == sorted(last)


@pytest.mark.parametrize("spec", SAME)
def test_after_a_prompt_both_give_the_same_logits(tiny, spec):
    model, ids = tiny
    plan = everywhere(spec, TINY, k=20)
    exact, _ = continued(model, ids, 40)
    other, _ = continued(model, ids, 40, press_of(plan, TINY))
    passage = Passage(LanguageModel(model), ids, setting="prompt", prompt_tokens=40)
    here = passage.replace(plan.heads).kl
    assert here.min() > 1e-6
    np.testing.assert_allclose(damage(exact, other), here, rtol=1e-6)


@pytest.mark.parametrize("bits", [2, 4])
def test_codes_of_each_token_as_it_comes_give_the_same_logits(tiny, bits):
    """What differs in transformers is only that later tokens stay exact."""
    model, ids = tiny
    plan = everywhere(f"rounded_values(quantised(bits={bits}), bits={bits})", TINY)
    exact, _ = continued(model, ids, 40)
    other, _ = continued(model, ids, 40, cache=each_token(bits, 8))
    passage = Passage(LanguageModel(model), ids, setting="prompt", prompt_tokens=40)
    np.testing.assert_allclose(damage(exact, other), passage.replace(plan.heads).kl, rtol=1e-6)


def test_layers_may_have_other_presses_and_sizes(tiny):
    model, ids = tiny
    mixed = ["columns(k=20, by='key_norm')", SNAPKV.format(k=24), "columns(k=9, by='key_diff')"]
    plan = Plan("a model", {(i, j): parse(x) for i, x in enumerate(mixed) for j in range(4)})
    exact, _ = continued(model, ids, 40)
    other, _ = continued(model, ids, 40, press_of(plan, TINY))
    passage = Passage(LanguageModel(model), ids, setting="prompt", prompt_tokens=40)
    np.testing.assert_allclose(damage(exact, other), passage.replace(plan.heads).kl, rtol=1e-6)


def test_a_group_of_a_channel_must_divide_the_prompt(tiny):
    pytest.importorskip("optimum.quanto")
    model, ids = tiny
    ids = np.tile(ids, 2)
    channel = "rounded_values(quantised(bits=2, by='channel', group=8), bits=2, group=8)"
    plan = everywhere(channel, TINY)
    _, exact = continued(model, ids[:65], 64)
    _, cache = continued(model, ids[:65], 64, cache=cache_of(plan, TINY, model))
    there = cache.layers[1]._dequantize(cache.layers[1]._quantized_keys)[0].numpy()
    for head, one in zip(exact.layers[1].keys[0, :, :64].numpy(), there):
        np.testing.assert_allclose(one, rounded(head.T, 2, 8)[0].T, atol=1e-6)
    with pytest.raises(ValueError, match="must be a divisor"):
        continued(model, ids[:52], 51, cache=cache_of(plan, TINY, model))


@pytest.mark.parametrize("bits", [2, 4])
def test_a_quantised_cache_holds_our_codes(tiny, bits):
    pytest.importorskip("optimum.quanto")
    model, ids = tiny
    plan = everywhere(f"rounded_values(quantised(bits={bits}), bits={bits})", TINY)
    _, exact = continued(model, ids[:51], 50)
    _, cache = continued(model, ids[:51], 50, cache=cache_of(plan, TINY, model))
    for mine, theirs in zip(exact.layers, cache.layers):
        pairs = (
            (mine.keys, theirs._quantized_keys), (mine.values, theirs._quantized_values)
        )  # fmt: skip
        for x, coded in pairs:
            there = theirs._dequantize(coded)[0].numpy()
            for head, one in zip(x[0, :, :50].numpy(), there):
                np.testing.assert_allclose(one, rounded(head, bits, 8)[0], atol=1e-6)


# On the page: what its rows are called, the spec, and how attention is computed there.
ROWS = {
    "first 4 keys and the last 60": ("sink_window(k=64, sinks=4)", "sdpa"),
    "SnapKV, window of 16": (SNAPKV, "sdpa"),
    "KeyDiff": ("columns(k=64, by='key_diff')", "sdpa"),
    "Knorm": ("columns(k=64, by='key_norm')", "sdpa"),
    "TOVA": ("columns(k=64, by='tova')", "sdpa"),
    "H2O": ("columns(k=64, by='h2o', recent=16)", "eager"),
    "4 bits by token": ("rounded_values(quantised(bits=4), bits=4)", "sdpa"),
    "4 bits by token, later tokens, too": ("rounded_values(quantised(bits=4), bits=4)", "sdpa"),
    "2 bits by token": ("rounded_values(quantised(bits=2), bits=2)", "sdpa"),
    "2 bits, keys by channel": (
        "rounded_values(quantised(bits=2, by='channel', group=32), bits=2)", "sdpa"
    ),
}  # fmt: skip
PLAN = "a plan of 32 keys"  # studies/lm/plans; there the nearest plan that kvpress can express


@pytest.fixture(scope="module")
def smollm2():
    """Return the model, the tokens, the passage here, and exact logits by kind of attention."""
    if LM is None:
        pytest.skip("EXPQK_LM names no folder with SmolLM2-135M")
    for package in ("kvpress", "optimum.quanto"):
        pytest.importorskip(package)
    ours = LanguageModel.open(LM)
    ids = ours.tokens(ROOT / "analysis/data/persuasion.txt", TOKENS)
    return ours, ids, Passage(ours, ids, setting="prompt", prompt_tokens=PROMPT), {}


def measured(smollm2, name):
    """Return KL there and KL here of a row of the page."""
    ours, ids, passage, exact = smollm2
    model = ours.model
    if name == PLAN:
        plan, how = Plan.read(ROOT / "studies/lm/plans/smollm2-32-keys.json"), "sdpa"
        sent = EXPORTERS["kvpress"](SMOLLM2).nearest(plan)
    else:
        spec, how = ROWS[name]
        plan = sent = everywhere(spec, SMOLLM2)
    here = float(passage.replace(plan.heads).kl.mean())
    before = model.config._attn_implementation
    model.set_attn_implementation(how)
    try:
        if how not in exact:
            exact[how], _ = continued(model, ids, PROMPT)
        if "later" in name:
            there, _ = continued(model, ids, PROMPT, cache=each_token(4))
        elif "bits" in name:
            there, _ = continued(model, ids, PROMPT, cache=cache_of(plan, SMOLLM2, model))
        else:
            there, _ = continued(model, ids, PROMPT, press_of(sent, SMOLLM2))
    finally:
        model.set_attn_implementation(before)
    return float(damage(exact[how], there).mean()), here


@pytest.mark.parametrize("name", [*ROWS, PLAN])
def test_the_page_has_what_both_measure(smollm2, name):
    page = (ROOT / "docs/engines.md").read_text("utf-8")
    row = re.search(rf"^\| {re.escape(name)} \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    there, here = measured(smollm2, name)
    print(f"| {name} | {there:.4g} | {here:.4g} |")
    # float32 sums in another order, which may turn a tie of scores
    assert row, f"| {name} | {there:.4g} | {here:.4g} |"
    assert (there, here) == pytest.approx([float(x) for x in row.groups()], rel=0.03)
