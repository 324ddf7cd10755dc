"""Heads replaced in a whole model, with NumPy alone; test_settings does the same with torch."""

import numpy as np
from each import each
from transformer import Transformer, divergence

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
    text, decoded = list(TOKENS[:16]), []
    for place in range(22):
        decoded.append(step(text[place]))
        if place + 1 == len(text):
            text.append(int(decoded[-1].argmax()))  # it goes on by itself
    logits = MODEL.prefill(text[:22], dict.fromkeys(EVERY, method), seed=3)[0]
    np.testing.assert_allclose(decoded, logits, rtol=0, atol=ROUNDING)
    assert logits[15:21].argmax(axis=1).tolist() == text[16:22]
