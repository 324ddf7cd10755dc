"""Pages, verticals and slashes, and top-p: Quest, MInference and the hub's oracle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from analysis.inputs import Head
from approx.checks import Array
from studies.lm.peers import hub
from studies.lm.peers.clones import default, load, tensor
from studies.lm.peers.comparison import Comparison, compare, restricted, support_and_output

PAGES, SIZE = 4, 16
VERTICAL, SLASH = 40, 112
SHARE = 0.9


def quest(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their attention decode every query of the head."""
    module = load(clone / "evaluation", "quest_attention")
    support, output = np.zeros((x.n, x.l), dtype=bool), np.zeros((x.n, x.d))
    for i in range(x.n):
        weights, output[i] = _decoded(module, x, i)
        support[i, : i + 1] = weights > 0
    yield compare(
        f"`quest_attention.forward`, one token at a time, {PAGES} pages of {SIZE}; "
        f"`pages(k={PAGES * SIZE})`",
        (support, output),
        support_and_output(f"pages(k={PAGES * SIZE}, size={SIZE})", x),
        f"A row of fewer than {PAGES * SIZE} keys has ⌊keys/{SIZE}⌋ pages in theirs, and at least "
        "three; here it has all. Theirs is in float32. Its GPU kernels always keep the current "
        "page, as `quest` does.",
    )


def _decoded(module: ModuleType, x: Head, i: int) -> tuple[Array, Array]:
    """Return weights of keys 0 … i and the output of query i."""
    single = torch.float32  # the dtype of their scores
    q, k, v = (tensor(each, single) for each in (x.q[i : i + 1], x.k[: i + 1], x.v[: i + 1]))
    attention = SimpleNamespace(
        layer_id=2, layer_idx=2, num_heads=1, num_key_value_heads=1, num_key_value_groups=1,
        head_dim=x.d, hidden_size=x.d, token_budget=PAGES * SIZE, chunk_size=SIZE,
        q_proj=lambda _: q[:, 0], k_proj=lambda _: k[:, 0, -1:], v_proj=lambda _: v[:, 0, -1:],
        o_proj=lambda found: found, rotary_emb=lambda *_: (None, None),
    )  # fmt: skip
    same = mock.patch.object(module, "apply_rotary_pos_emb", lambda q, k, *_: (q, k))
    with same, default(single):  # the bundled heads are already rotated
        found, weights, _ = module.forward(
            attention,
            q[0],
            position_ids=torch.tensor([[i]]),
            past_key_value=(k[..., :-1, :], v[..., :-1, :]),
            output_attentions=True,
        )
    return weights[0, 0, 0].numpy(), found[0, 0].numpy()


def minference(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code choose lines from the last 64 queries, and record the call of their kernel."""
    arange, lines = torch.arange, {}
    modules = "flexprefill", "kvcompression", "quest", "snapkv"
    ops = "block_sparse_flash_attention", "pit_sparse_flash_attention_v2", "streaming_kernel"
    with (
        mock.patch.object(torch, "arange", lambda *a, device=None, **k: arange(*a, **k)),
        mock.patch("transformers.utils.import_utils._is_package_available", return_value=False),
    ):
        module = load(
            clone,
            "minference.modules.minference_forward",
            bare=("minference", "minference.modules"),
            absent=(
                "flash_attn",
                "minference.ops",
                *(f"minference.ops.{name}" for name in ops),
                *(f"minference.modules.{name}" for name in modules),
            ),
        )

    def noted(q: Any, k: Any, v: Any, vertical: Any, slash: Any) -> None:
        lines.update(vertical=vertical.flatten().numpy(), slash=slash.flatten().numpy())

    module.vertical_slash_sparse_attention = noted
    attention = SimpleNamespace(
        head_dim=x.d,
        best_pattern={0: ("vertical_and_slash", VERTICAL, SLASH, 1.0)},
        config=SimpleNamespace(to_dict=dict),
    )
    module.gather_last_q_vertical_slash_topk_v4(attention, *map(tensor, (x.q, x.k, x.v)), 0)
    i, j = np.ogrid[: x.n, : x.l]
    support = np.isin(i - j, lines["slash"])
    support[:, lines["vertical"]] = True
    support &= j <= i
    k, share = VERTICAL + SLASH, VERTICAL / (VERTICAL + SLASH)
    yield compare(
        f"`vertical_and_slash_kernel({VERTICAL}, {SLASH})`; `vertical_slash(k={k}, "
        f"vertical={VERTICAL}/{k}, sinks=30, recent=100)`",
        (support, restricted(support, x)),
        support_and_output(f"vertical_slash(k={k}, vertical={share!r}, sinks=30, recent=100)", x),
        "The lines that its kernel is asked for, which computes slashes in blocks of 64 × 64.",
    )


def top_p(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let the hub's oracle choose keys for all queries."""
    module = hub.masker(clone, "fixed.implementations.oracle_top_p")
    empty = hub.load_attention(clone, "utils.mask").Mask.create_empty_mask
    masker = module.OracleTopPMasker(module.OracleTopPMaskerConfig(top_p=SHARE))
    q, k, v = map(tensor, (x.q, x.k, x.v))
    hidden = torch.full((x.n, x.l), torch.finfo(q.dtype).min).triu(1)[None, None]
    shape = (1, 1, x.n, x.l)
    mask = masker.add_mask(
        k, q, v, hidden, 1 / math.sqrt(x.d), 0.0, {}, empty(shape, q.dtype, q.device)
    )
    support = mask.get_dense_mask()[0, 0].numpy() > 0
    yield compare(
        f"`OracleTopPMasker({SHARE})`; `top_p(p={SHARE})`",
        (support, restricted(support, x)),
        support_and_output(f"top_p(p={SHARE})", x),
    )
