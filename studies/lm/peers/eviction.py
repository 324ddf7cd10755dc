"""Columns, or the keys in a cache: StreamingLLM, SnapKV, H2O and kvpress."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from analysis.inputs import Head
from approx.checks import Array
from approx.supports import key_scores
from studies.lm.peers.clones import load, tensor
from studies.lm.peers.comparison import Comparison, compare, restricted, support_and_output

KEPT, WINDOW = 32, 16
PROMPTS = 8  # prefixes of a head; the longest is the whole head
SHORTEST = 64


def streaming_llm(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their cache drop tokens one by one, and record the keys of each query."""
    with contextlib.redirect_stdout(io.StringIO()):
        cache = load(clone, "streaming_llm.kv_cache").StartRecentKVCache(4, KEPT - 4)
    support = _token_by_token(x, lambda kept, _: cache.evict_for_space([[kept, kept]], 1)[0][0])
    spec = f"sink_window(k={KEPT}, sinks=4)"
    yield compare(
        f"`StartRecentKVCache(4, {KEPT - 4})` token by token; `{spec}`",
        (support, restricted(support, x)),
        support_and_output(spec, x),
        "Theirs rotates keys by their places in the cache; here they keep those in the text, so "
        "that logits are not compared.",
    )


def h2o(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their cache drop keys by received attention, and run their mask for evaluation."""
    heavy, recent = KEPT - WINDOW, WINDOW - 1
    spec = f"columns(k={KEPT}, by='h2o', recent={WINDOW})"
    with contextlib.redirect_stdout(io.StringIO()):
        cache = load(clone / "h2o_hf/utils_real_drop", "modify_llama").H2OKVCache_LayerWise(
            heavy, recent
        )
    support = _token_by_token(x, lambda kept, weights: cache((kept, kept), weights)[0])
    ours = support_and_output(spec, x)
    yield compare(
        f"`utils_real_drop`: `H2OKVCache_LayerWise({heavy}, {recent})` token by token; `{spec}`",
        (support, restricted(support, x)),
        ours,
        "Theirs evicts after a query, whose own key comes on top of the cache: 31 + 1 is 32 here.",
    )
    cache._clean_scores()
    support = _token_by_token(x, lambda kept, weights: cache((kept, kept), weights)[0], x.n // 2)
    yield compare(
        f"the same after a prompt of half of the tokens; `{spec}`, the rows after it",
        (support[x.n // 2 :], None),
        (ours[0][x.n // 2 :], None),
        "Theirs reads the whole prompt before it evicts, ours evicts from the first key on.",
    )
    module = load(clone / "h2o_hf/utils_lm_eval", "modify_llama")
    logits = torch.as_tensor(x.Q @ x.K.T)
    hidden = ~torch.ones_like(logits, dtype=torch.bool).tril()
    logits = logits.masked_fill(hidden, torch.finfo(logits.dtype).min)
    support = module.local_heavy_hitter_mask(logits[None, None], KEPT)[0, 0].numpy()
    support &= ~hidden.numpy()
    spec = f"columns(k={KEPT}, by='h2o', recent=1)"
    yield compare(
        f"`utils_lm_eval`: `local_heavy_hitter_mask(…, {KEPT})`; `{spec}`",
        (support, restricted(support, x)),
        support_and_output(spec, x),
        "Theirs adds up attention to all keys, those that are gone among them, so that it cannot "
        "be run with the cache. Here a query attends to what is kept.",
    )


def _token_by_token(x: Head, evict: Callable[[Any, Any], Any], prompt: int = 1) -> Array:
    """Return the keys of each query, (n, l), if a cache evicts after every query.

    The queries of the prompt come at once. `evict` gets positions of keys, in the shape of keys,
    and weights; both for two equal heads, since their code would squeeze a single head.
    """
    logits = torch.as_tensor(x.Q @ x.K.T)
    kept = torch.arange(prompt).to(logits.dtype).expand(1, 2, prompt)[..., None]
    support = np.tri(x.n, x.l, dtype=bool)
    weights = torch.softmax(
        logits[:prompt, :prompt].masked_fill(torch.ones(prompt, prompt).triu(1) > 0, -torch.inf), -1
    )
    for i in range(prompt, x.n):
        kept = evict(kept, weights.expand(1, 2, -1, -1).clone())
        kept = torch.cat([kept, torch.full((1, 2, 1, 1), float(i))], dim=2)
        now = kept[0, 0, :, 0].long()
        support[i] = False
        support[i, now.numpy()] = True
        weights = torch.softmax(logits[i : i + 1, now], -1)
    return support


def snapkv(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their cluster choose the keys of prompts."""
    module = load(clone / "snapkv/monkeypatch", "snapkv_utils")
    for pooling, named in (("avgpool", "average"), ("maxpool", "max")):
        cluster = module.SnapKVCluster(WINDOW, KEPT, 5, pooling)

        def kept(prompt: Head, cluster: Any = cluster) -> Any:
            return cluster.update_kv(*map(tensor, (prompt.k, prompt.q)), _places(prompt), None, 1)[
                1
            ]

        spec = (
            f"columns(k={KEPT}, by='snapkv', recent={WINDOW}, window={WINDOW}, pooling='{named}')"
        )
        why = (
            ""
            if named == "average"
            else (
                "Neighbours have equal scores after pooling: of those at the cut theirs takes any, "
                "ours the first."
            )
        )
        yield _of_prompts(f"`SnapKVCluster({WINDOW}, {KEPT}, 5, '{pooling}')`", kept, spec, x, why)


def kvpress(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let presses compress prompts to `KEPT` keys."""

    def press(name: str, kind: str, **fields: Any) -> Callable[[Head], Any]:
        module = load(clone, f"kvpress.presses.{name}", bare=("kvpress", "kvpress.presses"))
        made = getattr(module, kind)(**fields)
        made.apply_avg_rope = lambda _, mean, covariance, __: (mean, covariance)

        def kept(prompt: Head) -> Any:
            made.compression_ratio = 1 - (KEPT + 0.5) / prompt.l
            q, k = map(tensor, (prompt.q, prompt.k))
            logits = torch.as_tensor(np.where(np.tri(prompt.n), prompt.Q @ prompt.K.T, -np.inf))
            attention = SimpleNamespace(
                head_dim=x.d,
                config=SimpleNamespace(num_attention_heads=1, num_key_value_heads=1),
                q_proj=lambda states: states,
                k_proj=lambda states: k[:, 0],
            )
            weights = torch.softmax(logits, -1)[None, None]
            return made.compress(attention, q[:, 0], k, _places(prompt), weights, {})[1]

        return kept

    spec = f"columns(k={KEPT}, by='{{}}')"
    yield _of_prompts(
        "`KnormPress`", press("knorm_press", "KnormPress"), spec.format("key_norm"), x
    )
    yield _of_prompts(
        "`KeyDiffPress`", press("keydiff_press", "KeyDiffPress"), spec.format("key_diff"), x
    )
    yield _of_prompts(
        f"`SnapKVPress(window_size={WINDOW})`",
        press("snapkv_press", "SnapKVPress", window_size=WINDOW),
        f"columns(k={KEPT}, by='snapkv', recent={WINDOW}, window={WINDOW})",
        x,
    )
    yield _of_prompts(
        "`ExpectedAttentionPress(use_vnorm=False, n_sink=0)`, its rotation left out",
        press("expected_attention_press", "ExpectedAttentionPress", use_vnorm=False, n_sink=0),
        spec.format("expected"),
        x,
        "Theirs fits the Gaussian before rotation and averages rotations over later positions; "
        "it was given rotated queries.",
    )
    yield _of_prompts(
        "`ExpectedAttentionPress()` as it is, its rotation left out",
        press("expected_attention_press", "ExpectedAttentionPress", n_sink=4),
        f"columns(k={KEPT}, by='expected', sinks=4)",
        x,
        "Theirs multiplies by the norms of values and leaves the first four queries out.",
    )
    yield _of_prompts(
        "`CURPress(leverage_type='key')`",
        press("cur_press", "CURPress", leverage_type="key"),
        f"columns(k={KEPT}, by='cur', sinks=4)",
        x,
    )
    yield _of_prompts(
        "`CURPress()` as it is",
        press("cur_press", "CURPress"),
        f"columns(k={KEPT}, by='cur', sinks=4)",
        x,
        "Theirs multiplies by the same quotient of values.",
    )
    torch.manual_seed(0)
    yield _of_prompts(
        "`LeverageScorePress()`, given rotated keys",
        press("leverage_press", "LeverageScorePress"),
        spec.format("leverage"),
        x,
        "Theirs takes centred keys in a random sketch of 48 columns and adds 0.01 to the diagonal, "
        "whatever its scale.",
    )
    yield _of_a_sketch(clone, x)
    yield _in_blocks(clone, x)


def _in_blocks(clone: Path, x: Head) -> Comparison:
    """Compare their keys after blocks of keys with the keys of our next query."""
    block, bare = 16, ("kvpress", "kvpress.presses")
    keydiff = load(clone, "kvpress.presses.keydiff_press", bare=bare).KeyDiffPress()
    module = load(clone, "kvpress.presses.block_press", bare=bare)
    with mock.patch.object(module, "ScorerPress", type(keydiff)):  # it was imported twice
        press = module.BlockPress(keydiff, block_size=block)
    spec = f"columns(k={KEPT + block}, by='key_diff', block={block})"
    theirs, ours = np.zeros((2, PROMPTS, x.l), dtype=bool)
    for row, count in enumerate(np.linspace(2, (x.n - 1 - KEPT) // block, PROMPTS).astype(int)):
        length = KEPT + block * count
        prompt = _prompt(x, length)
        press.compression_ratio = 1 - (KEPT + 0.5) / length
        attention = SimpleNamespace(head_dim=x.d)
        states = tensor(prompt.q)[:, 0]
        kept = press.compress(attention, states, tensor(prompt.k), _places(prompt), None, {})[1]
        theirs[row, kept[0, 0, :, 0].long().numpy()] = True
        ours[row, :length] = support_and_output(spec, _prompt(x, length + 1))[0][-1, :-1]
    return compare(
        f"`BlockPress(KeyDiffPress(), {block})`, {PROMPTS} prompts; `{spec}`, the next query",
        (theirs, None),
        (ours, None),
    )


def _prompt(x: Head, length: int) -> Head:
    """Return the first tokens of a head, causal."""
    return dataclasses.replace(x, q=x.q[:length], k=x.k[:length], v=x.v[:length], mask="causal")


def _of_a_sketch(clone: Path, x: Head) -> Comparison:
    """Compare leverage scores of one sketch, at a scale at which both ridges are equal."""
    module = load(clone, "kvpress.presses.leverage_press", bare=("kvpress", "kvpress.presses"))
    columns = 48
    torch.manual_seed(0)
    sketch = torch.randn(1, 1, x.d, columns)[0, 0].numpy() / math.sqrt(columns)
    scale = math.sqrt(columns) / np.linalg.norm((x.k - x.k.mean(axis=0)) @ sketch)
    torch.manual_seed(0)
    press = module.LeverageScorePress
    theirs = press.compute_leverage_scores(tensor(scale * x.k), columns)[0, 0].numpy()
    return compare(
        "`compute_leverage_scores` of keys with ‖XΦ‖² = 48; `key_scores.leverage` of XΦ",
        (None, theirs),
        (None, key_scores.leverage(scale * (x.k - x.k.mean(axis=0)) @ sketch)),
        "Theirs is computed in float32. At this scale both add the same to the diagonal.",
    )


def _places(x: Head) -> torch.Tensor:
    """Return the positions of keys, in the shape of values."""
    return torch.arange(x.l).to(torch.get_default_dtype()).expand(x.d, -1).T[None, None]


def _of_prompts(
    named: str, kept: Callable[[Head], Any], spec: str, x: Head, why: str = ""
) -> Comparison:
    """Compare the keys in their cache after prompts with the keys of our last query."""
    theirs, ours = [], []
    for length in np.linspace(SHORTEST, x.n, PROMPTS).astype(int):
        prompt = _prompt(x, length)
        support = np.zeros((1, x.l), dtype=bool)
        support[0, kept(prompt)[0, 0, :, 0].long().numpy()] = True
        theirs.append((support, restricted(support[:, :length], prompt)))
        mine, output = support_and_output(spec, prompt)
        ours.append((np.pad(mine[-1:], ((0, 0), (0, x.l - length))), output[-1:]))
    return compare(
        f"{named}, {PROMPTS} prompts; `{spec}`",
        (np.concatenate([s for s, _ in theirs]), np.concatenate([o for _, o in theirs])),
        (np.concatenate([s for s, _ in ours]), np.concatenate([o for _, o in ours])),
        why,
    )
