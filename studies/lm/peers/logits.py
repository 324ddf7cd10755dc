"""Compressed logits: Loki, SparQ, KQ-SVD, KIVI, QJL and EDEN."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from analysis.inputs import Head
from approx import parse
from approx.checks import Array
from approx.compressed_logits.method import CompressedLogits
from approx.compressed_logits.normal_levels import rotated
from approx.compressed_logits.sign_sketch import SignSketch
from studies.lm.peers.clones import load, tensor
from studies.lm.peers.comparison import Comparison, compare, restricted, support_and_output

KEPT, BITS, GROUP = 32, 2, 32


def _compressed(spec: str, q: Array, k: Array) -> tuple[Array, Array]:
    """Return compressed queries and keys; their products are the logits."""
    method = parse(spec)
    assert isinstance(method, CompressedLogits)
    return method.factors(q, k)


def loki(clone: Path, x: Head) -> Iterator[Comparison]:
    """Run their selection with the principal axes of the keys."""
    module = load(clone, "methods.pca_topk.utils", bare=("methods", "methods.pca_topk"))
    module.methods.LOGGER = None
    r = x.d // 4
    centred = x.k - x.k.mean(axis=0)
    axes = tensor(np.linalg.svd(centred, full_matrices=False)[2].T)  # as scikit-learn's PCA
    q, k = map(tensor, (x.q, x.k))
    least = torch.finfo(q.dtype).min
    seen = torch.where(torch.ones(x.n, x.l).tril() > 0, 0.0, least)[None, None]
    logits = q @ k.mT / math.sqrt(x.d) + seen
    kept, _ = module.mask_attn_pca_topk(
        SimpleNamespace(), 0, logits, seen, q, k, axes, axes[..., :r], r, KEPT
    )
    support = kept[0, 0].numpy() > least / 2
    spec = f"projected_top_k(k={KEPT}, r={r})"
    yield compare(
        f"`mask_attn_pca_topk(top_r=d/4, top_k={KEPT})`; `projected_top_k(k={KEPT}, r=d/4)`",
        (support, restricted(support, x)),
        support_and_output(spec, x),
        "Theirs takes the axes from another text; it was given those of these keys.",
    )


def sparq(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their attention decode every query."""
    models = [f"llminference.models.{name}_attention" for name in ("gemma", "llama", "mistral")]
    module = load(
        clone,
        "llminference.methods.ann_attention",
        bare=("llminference", "llminference.methods"),
        absent=("llminference.utility", "llminference.models", *models),
    )
    # The heads have float16 numbers, which tie: noise decides the order of channels.
    noise = np.random.default_rng(0).standard_normal(x.q.shape)
    x = dataclasses.replace(x, q=x.q * (1 + 1e-9 * noise))
    r = x.d // 4
    settings = module.Settings(
        k=KEPT - 1, local_k=-1, reallocate_to_mean_value=False, score="sparse_q", rank=r
    )
    attention = module.AnnAttention(settings, 1, x.d)
    support, output = np.zeros((x.n, x.l), dtype=bool), np.zeros((x.n, x.d))
    scores = np.zeros((x.n, x.l))
    for i in range(x.n):
        q, k, v = map(tensor, (x.q[i : i + 1], x.k[: i + 1], x.v[: i + 1]))
        attention.debug_indices = []
        found, _ = attention(q, k, v, torch.zeros(1, 1, 1, i + 1))
        output[i] = found[0, 0, 0].detach().numpy()
        support[i, attention.debug_indices[0].flatten().numpy()] = True
        scores[i, : i + 1] = attention.score(q[:, :, None], k[:, :, None]).flatten().numpy()
    yield compare(
        f"`AnnAttention(k={KEPT - 1}, local_k=-1, rank=d/4)`, one token at a time; "
        f"`projected_top_k(k={KEPT}, r=d/4, by='channels')`",
        (support, output),
        support_and_output(f"projected_top_k(k={KEPT}, r={r}, by='channels')", x),
        "Theirs keeps the last keys too and gives the rest of the weight to the mean value, if "
        "asked to.",
    )
    left, right = _compressed(f"channels(r={r}, scaled=True)", x.Q, x.K)
    yield compare(
        "`SparseQ(rank=d/4)`; logits of `channels(r=d/4, scaled=True)`",
        (None, scores),
        (None, np.tril(left @ right.T)),
    )


def kq_svd(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code fit the projections, from files."""
    module = load(clone, "process_cache", absent=("custom_cache_query",))
    model = SimpleNamespace(
        config=SimpleNamespace(
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            hidden_size=x.d,
            head_dim=x.d,
        ),
        layers=[SimpleNamespace(self_attn=SimpleNamespace(o_proj=torch.nn.Linear(x.d, x.d)))],
    )
    r = x.d // 4
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        for name in "qkv":
            (Path(folder) / name / "0").mkdir(parents=True)
            torch.save(tensor(getattr(x, name))[0], Path(folder) / name / "0" / "0.pt")
        module.compute_proj_KQT_mem(model, folder, 1, folder)
        key, query = (
            torch.load(Path(folder) / "0" / f"proj{name}.pt")[0, :, :r].double().detach().numpy()
            for name in "kq"
        )
    left, right = _compressed(f"logit_svd(rank={r})", x.Q, x.K)
    yield compare(
        "`compute_proj_KQT_mem`, the first d/4 columns; logits of `logit_svd(rank=d/4)`",
        (None, (x.q @ query) @ (x.k @ key).T / math.sqrt(x.d)),
        (None, left @ right.T),
        "Theirs is computed in float32.",
    )


def kivi(clone: Path, x: Head) -> Iterator[Comparison]:
    """Compare rounded keys with their simulation, and with the keys unpacked from their cache."""
    simulated = load(clone, "models.utils_quant", bare=("models",))
    packed = load(clone, "quant.new_pack", bare=("quant",), absent=("triton", "triton.language"))
    keys = tensor(x.k)
    code = packed.quant_and_pack_kcache(keys, GROUP, BITS)
    cases: tuple[tuple[str, Any, str], ...] = (
        (
            f"`AsymGroupedQuantizerByChannel`, {BITS} bits",
            simulated.AsymGroupedQuantizerByChannel.apply(keys[0], None, BITS, x.l),
            f"quantised(bits={BITS}, by='channel', group=9999, recent=0)",
        ),
        (
            f"`AsymGroupedQuantizer`, {BITS} bits in groups of 8 channels",
            simulated.AsymGroupedQuantizer.apply(keys[0], None, BITS, 8),
            f"quantised(bits={BITS}, group=8)",
        ),
        (
            f"`quant_and_pack_kcache`, {BITS} bits in groups of {GROUP} tokens, unpacked again",
            packed.unpack_and_dequant_kcache(*code, GROUP, BITS),
            f"quantised(bits={BITS}, by='channel', group={GROUP}, recent=0)",
        ),
    )
    for named, theirs, spec in cases:
        ours = _compressed(spec, x.q, x.k)[1]
        yield compare(
            f"{named}; keys of `{spec}`", (None, theirs.reshape(x.l, x.d).numpy()), (None, ours)
        )


def qjl(clone: Path, x: Head) -> Iterator[Comparison]:
    """Use the rows of their sketch in ours, and sum their signs as their kernel does."""
    module = load(
        clone,
        "models.llama3_utils_qjl",
        bare=("models",),
        absent=("qjl_kernel", "qjl_kernel.qjl_kernel"),
    )
    m = 2 * x.d
    sketch = module.QJLSketch((x.d, m), m, device="cpu", rng=torch.Generator().manual_seed(0))
    S = sketch.proj_dir_score.double().numpy().T
    signs = np.where(x.K @ S.T > 0, 1.0, -1.0)
    norms = np.linalg.norm(x.K, axis=1)
    theirs = math.sqrt(math.pi / 2) / m * (x.Q @ S.T) @ signs.T * norms  # qjl_score_kernel.cu:153
    ours = x.Q @ SignSketch(m, "orthogonal").decoded(S, x.K).T
    unit = SignSketch(m, "orthogonal").unit(x.d)
    yield compare(
        "rows of `QJLSketch` and the sum of qjl_score_kernel.cu:153; logits of `qjl(m=2d)` from "
        "the same rows",
        (None, theirs / (math.sqrt(math.pi / 2) * unit)),
        (None, ours),
        f"Theirs are {math.sqrt(math.pi / 2) * unit:.5f} times as large, and so biased; "
        "they were divided by it.",
    )


def eden(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code round each rotated key, and rotate it back."""
    module = load(clone / "torch", "eden")
    rotation = rotated(x.d, "orthogonal", np.random.default_rng(0))
    for bits in (1, BITS, 4):
        codec = module.EdenQuantization(bits)
        rows = [codec.forward(row) for row in tensor(x.K @ rotation.T)[0, 0]]
        decoded = np.array([codec.backward(*each)[0].numpy() for each in rows])
        spec = f"turboquant(bits={bits}, form='eden')"
        _, ours = _compressed(spec, x.Q, x.K)
        yield compare(
            f"`EdenQuantization({bits})` of rotated keys, rotated back; keys of `{spec}`",
            (None, decoded @ rotation),
            (None, ours),
            "Theirs was given our rotation: its own is Hadamard's.",
        )
