"""Heads replaced in a whole model, with NumPy alone, and the same with torch where it is there."""

import numpy as np
import pytest
from each import each
from tiny_models import build, with_torch
from transformer import Transformer, divergence

from analysis.models.language_model import LanguageModel
from analysis.models.replacement import Passage
from approx import parse

EPS = float(np.finfo(float).eps)
MODEL = Transformer.random()
TOKENS = np.random.default_rng(1).integers(0, 50, 40)
EVERY = [(i, head) for i in range(MODEL.layers) for head in range(MODEL.heads)]
# Logits of order 10 behind two layers, with sums of at most 40 keys, 32 channels and 24 more; what
# a layer rounds is amplified by the norms and weights of the next by less than 100.
ROUNDING = 100 * 10 * 100 * EPS


def everywhere(spec):
    return dict.fromkeys(EVERY, parse(spec))


@each("head", [(0, 1), (1, 3)])
def test_a_head_changes_what_comes_after_its_layer_only(head):
    own, other = (MODEL.prefill(TOKENS, x)[1] for x in ({}, {head: parse("sink_window(k=3)")}))
    for i, (x, y) in enumerate(zip(own, other)):
        changed = np.abs(x - y).max(axis=1)
        if i <= head[0]:
            assert not changed.any()
        else:
            assert changed[:3].max() < ROUNDING  # they see no more than three keys
            assert changed[3:].min() > 1e-6


def test_windows_everywhere_are_a_model_with_windows():
    own = MODEL.prefill(TOKENS)[0]
    other = MODEL.prefill(TOKENS, everywhere("sliding_window(width=7)"))[0]
    np.testing.assert_allclose(other, MODEL.prefill(TOKENS, window=7)[0], atol=ROUNDING)
    assert divergence(own, other).max() > 0.01


CACHED = (
    "exact()",
    "sink_window(k=8)",
    "columns(k=8, by='h2o', recent=4)",
    "pages(k=8, size=4, current=True)",
    "positive(m=16)",
    "hierarchical(rank=2, leaf=4, basis='pivots')",
)


@each("spec", CACHED)
def test_a_model_decodes_to_the_logits_of_prefill(spec):
    step, method = MODEL.decoder(parse(spec), seed=3), parse(spec)
    text, decoded = list(TOKENS[:24]), []
    for place in range(32):
        decoded.append(step(text[place]))
        if place + 1 == len(text):
            text.append(int(decoded[-1].argmax()))  # it goes on by itself
    logits = MODEL.prefill(text[:32], dict.fromkeys(EVERY, method), seed=3)[0]
    np.testing.assert_allclose(decoded, logits, rtol=0, atol=ROUNDING)
    assert logits[23:31].argmax(axis=1).tolist() == text[24:32]


# With torch, where it is there

PARTS = {"q": "self_attn", "k": "self_attn", "v": "self_attn", "o": "self_attn"}
NORMS = {"before": "input_layernorm", "after": "post_attention_layernorm"}
# transformers computes norms in float32 whatever the dtype: five of them, each of which the norms
# and weights after it amplify by less than 10, in logits of order 10.
ROUNDING_32 = 5 * 10 * 10 * float(np.finfo(np.float32).eps)


def llama():
    """Return the model of transformers with the weights of ours."""
    torch = pytest.importorskip("torch")
    weights = {}
    for name, x in MODEL.weights.items():
        layer, _, part = name.rpartition(".")
        full = {"embed": "model.embed_tokens", "norm": "model.norm"}.get(name, name)
        if layer:
            inner = NORMS.get(part, f"{PARTS.get(part[0], 'mlp')}.{part}")
            full = f"model.layers.{layer}.{inner}"
        weights[f"{full}.weight"] = torch.from_numpy(x)
    model = build(num_hidden_layers=2, intermediate_size=24, rms_norm_eps=1e-6)
    model.load_state_dict(weights)
    return LanguageModel(model, name="llama")


@with_torch
@each("spec", ["exact()", "sink_window(k=4)", "columns(k=6, by='h2o')", "pages(k=8, size=4)"])
def test_a_passage_is_what_numpy_makes_of_it(spec):
    passage = Passage(llama(), TOKENS, skip=0, jobs=1)
    found = passage.replace(everywhere(spec))
    own, other = MODEL.prefill(TOKENS)[0], MODEL.prefill(TOKENS, everywhere(spec))[0]
    size = np.abs(other - own).max() + ROUNDING_32  # KL is quadratic in it
    np.testing.assert_allclose(found.kl, divergence(own, other), atol=2 * ROUNDING_32 * size)
    np.testing.assert_array_equal(found.same_top, own.argmax(1) == other.argmax(1))
    for logits, surprisal in ((own, passage.surprisal), (other, found.surprisal)):
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        following = p[np.arange(39), TOKENS[1:]]
        np.testing.assert_allclose(surprisal, -np.log(following), atol=2 * ROUNDING_32)
    assert spec == "exact()" or found.kl.mean() > 0.01
