"""Both settings of a replaced model, against twenty lines of NumPy with hooks of their own.

They need torch and transformers, so `make lm` runs them and `make test` skips them.
"""

import numpy as np
import pytest
from test_generation import small
from test_substitute import IDS, passage
from tiny_models import build, with_torch

from approx import parse

SKIP, PROMPT, KEPT, RECENT = 16, 44, 12, 4
N = len(IDS)


def softmax(x, where):
    e = np.exp(np.where(where, x - x.max(axis=-1, keepdims=True, where=where, initial=-1e9), -1e9))
    return e / e.sum(axis=-1, keepdims=True)


def sink_window(i, logits, values, first):
    """Return what query i sees: key 0 and the last keys."""
    return [0, *range(max(i - KEPT + 2, 1), i + 1)], logits, values


class H2O:
    """Sums of attention, from rows that are exact before ``first``; the least one goes."""

    def __init__(self):
        self.kept, self.sums = [], np.zeros(N)

    def __call__(self, i, logits, values, first):
        while len(self.kept) >= KEPT and i >= first:
            free = [j for j in self.kept if j <= i - RECENT]
            self.kept.remove(min(free, key=lambda j: (self.sums[j], j)))
        self.kept.append(i)
        x = np.exp(logits[self.kept] - logits[self.kept].max())
        self.sums[self.kept] += x / x.sum()
        return list(self.kept), logits, values


class Codes:
    """Keys and values rounded by token to 3 bits, between their least and largest numbers."""

    @staticmethod
    def rounded(x):
        low, step = x.min(1, keepdims=True), np.ptp(x, axis=1, keepdims=True) / 7
        return low + step * np.round((x - low) / step)

    def __call__(self, i, logits, values, first):
        return list(range(i + 1)), None, self.rounded(values)


METHODS = {
    f"sink_window(k={KEPT})": lambda: sink_window,
    f"columns(k={KEPT}, by='h2o', recent={RECENT})": H2O,
    "rounded_values(quantised(bits=3), bits=3)": Codes,
}


def rows_by(make, q, k, v, first):
    """Return the attention of one head, (n, n), and what is multiplied with it: rows from first."""
    p, choose, values = softmax(q @ k.T, np.tri(N, dtype=bool)), make(), v
    for i in range(0 if choose is not sink_window else first, N):
        seen, logits, values = choose(i, q[i] @ k.T, v, first)
        if logits is None:
            logits = q[i] @ choose.rounded(k).T
        if i >= first:
            p[i] = softmax(logits, np.isin(np.arange(N), seen))
    return p, values


def by_hand(model, make, first, skip):
    """Return KL, tv and output error of a model whose heads attend by numpy from ``first`` on."""
    torch = pytest.importorskip("torch")
    from transformers import AttentionInterface

    tv, output = {}, {}

    def attention(module, query, key, value, mask, **_):
        y = torch.empty(1, N, query.shape[1], value.shape[-1], dtype=query.dtype)
        for head in range(query.shape[1]):
            of = head // (query.shape[1] // key.shape[1])
            q, k, v = (x.numpy() for x in (query[0, head], key[0, of], value[0, of]))
            q = q / q.shape[1] ** 0.5
            exact = softmax(q @ k.T, np.tri(N, dtype=bool))
            p, values = rows_by(make, q, k, v, first)
            y[0, :, head] = torch.from_numpy(np.vstack([p[:first] @ v, p[first:] @ values]))
            found, truth = p[skip:] @ values, exact[skip:] @ v
            tv[module.layer_idx, head] = 0.5 * np.abs(p - exact)[skip:].sum(axis=1).mean()
            output[module.layer_idx, head] = np.linalg.norm(found - truth) / np.linalg.norm(truth)
        return y, None

    ids = torch.as_tensor(IDS)[None]
    with torch.inference_mode():
        own = model(input_ids=ids).logits[0, skip:].log_softmax(-1)
        AttentionInterface.register("by_hand", attention)
        before = model.config._attn_implementation
        model.set_attn_implementation("by_hand")
        other = model(input_ids=ids).logits[0, skip:].log_softmax(-1)
        model.set_attn_implementation(before)
    return (own.exp() * (own - other)).sum(1).numpy(), tv, output


@with_torch
@pytest.mark.parametrize("setting", ["rows", "prompt"])
@pytest.mark.parametrize("spec", METHODS)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_tv_output_error_and_kl_are_those_of_numpy(spec, setting, kind):
    model = build(kind)
    first, skip = (0, SKIP) if setting == "rows" else (PROMPT, PROMPT)
    kl, tv, output = by_hand(model, METHODS[spec], first, skip)
    more = {} if setting == "rows" else {"skip": None, "setting": "prompt", "prompt_tokens": PROMPT}
    p = passage(model, **more)
    found = p.replace(p.everywhere(parse(spec)), errors=True)
    assert kl.mean() > 1e-3  # so that the test can fail
    # norms of a Llama round to float32, as in `agree`; the roundings cancel in the mean
    rounding = 10 * 3 * 90 * np.finfo(np.float32).eps
    np.testing.assert_allclose(found.kl, kl, rtol=0, atol=1e-9 if kind == "gpt2" else rounding)
    assert found.kl.mean() == pytest.approx(kl.mean(), abs=1e-6)
    for name, expected in (("attention_tv", tv), ("output_relative_error", output)):
        mine = {pair: error[name] for pair, error in found.errors.items()}
        assert mine == pytest.approx(expected, abs=1e-6)


@with_torch
@pytest.mark.parametrize("kind", ["gpt2", "gpt_oss", "llama", "mistral", "llama, which mixes"])
def test_only_rows_after_the_prompt_are_computed_again_if_only_attention_mixes_tokens(kind):
    name, _, mixes = kind.partition(", ")
    model = small(name)
    if mixes:
        mlp = next(part for where, part in model.named_modules() if where.endswith("mlp"))
        mlp.register_forward_pre_hook(lambda _, x: (x[0] + x[0].cumsum(1) / 10,))
    p = passage(model, skip=PROMPT + 2, setting="prompt", prompt_tokens=PROMPT)
    heads = {(0, 1): "sink_window(k=9)", (1, 0): "columns(k=9, by='h2o')", (1, 2): "exact()"}
    heads = {pair: parse(spec) for pair, spec in heads.items()}
    assert p._first == (0 if mixes else PROMPT)
    found = p.replace(heads, errors=True)
    p._first = 0
    whole = p.replace(heads, errors=True)
    assert found.kl.mean() > 1e-6
    rounding = float(10 * 3 * 90 * np.finfo(np.float32).eps)  # norms, as above
    np.testing.assert_allclose(found.state, whole.state, rtol=0, atol=rounding)
    np.testing.assert_allclose(found.kl, whole.kl, rtol=0, atol=rounding)
    np.testing.assert_allclose(found.residual, whole.residual, rtol=0, atol=rounding)
    for pair, errors in whole.errors.items():
        assert found.errors[pair] == pytest.approx(errors, abs=rounding)
