"""The systems: their code and ours on one head, a function each."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.special import ndtri

from analysis.inputs import Head, Heads
from analysis.models.size_rules import adaptive, attention, pyramid
from approx import Mask, parse
from approx.checks import Array
from approx.combinations.sampled import Sampled, Sizes
from approx.compressed_logits.normal_levels import lloyd_max, rotated
from approx.compressed_logits.sign_sketch import SignSketch
from approx.estimate.approximation import Approximation
from approx.low_rank.thinning import thinned
from approx.sparse.columns import Columns
from approx.sparse.sorted_lsh import SortedLSH
from studies.lm.peers.clones import default, load, load_attention, masker, tensor
from studies.lm.peers.comparison import Comparison, compare, on, restricted, support_and_output

KEPT, WINDOW = 32, 16
PROMPTS = 8  # prefixes of a head; the longest is the whole head
PAGES, SIZE = 4, 16  # of Quest
VERTICAL, SLASH = 40, 112  # of MInference
BITS, GROUP = 2, 32  # of codes
HASHES, TABLES, SINKS = 4, 20, 4  # of MagicPIG
DRAWN, SIGNS = 32, 7  # of samples, and of hashes that sort them
RANK, THINNED = 16, 2  # coresets; the second has 2^THINNED·√l keys
quiet = functools.partial(contextlib.redirect_stdout, io.StringIO())


def supports(named: str, spec: str, support: Array, x: Head, why: str = "") -> Comparison:
    """Compare the keys of each row with those of our method, and attention to them."""
    ours = support_and_output(spec, x)
    return compare(f"{named}; `{spec}`", (support, restricted(support, x)), ours, why)


def numbers(compared: str, theirs: Any, ours: Any, why: str = "") -> Comparison:
    return compare(compared, (None, theirs), (None, ours), why)


# Columns, or the keys in a cache


def streaming_llm(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their cache drop tokens one by one, and record the keys of each query."""
    with quiet():
        cache = load(clone, "streaming_llm.kv_cache").StartRecentKVCache(4, KEPT - 4)
    support = token_by_token(x, lambda kept, _: cache.evict_for_space([[kept, kept]], 1)[0][0])
    named = f"`StartRecentKVCache(4, {KEPT - 4})` token by token"
    why = (
        "Theirs rotates keys by their places in the cache; here they keep those in the text, so "
        "that logits are not compared."
    )
    yield supports(named, f"sink_window(k={KEPT}, sinks=4)", support, x, why)


def h2o(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their cache drop keys by received attention."""
    heavy, recent = KEPT - WINDOW, WINDOW - 1
    with quiet():
        module = load(clone / "h2o_hf/utils_real_drop", "modify_llama")
        cache = module.H2OKVCache_LayerWise(heavy, recent)
    support = token_by_token(x, lambda kept, weights: cache((kept, kept), weights)[0])
    named = f"`utils_real_drop`: `H2OKVCache_LayerWise({heavy}, {recent})` token by token"
    why = "Theirs evicts after a query, whose own key comes on top of the cache: 31 + 1 is 32 here."
    yield supports(named, f"columns(k={KEPT}, by='h2o', recent={WINDOW})", support, x, why)


def tova(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their cache drop the keys with the least attention of the last query."""
    reduce = load(clone / "src", "tova_cache").TOVACache.reduce

    def evict(kept: Any, weights: Any) -> Any:
        cache = SimpleNamespace(cache_size=KEPT - 1, key_cache=[kept], value_cache=[kept])
        reduce(cache, 0, weights)
        return cache.key_cache[0]

    support = token_by_token(x, evict)
    named = f"`TOVACache({KEPT - 1})` token by token"
    why = (
        "Theirs evicts after a query, whose own key comes on top of the cache: 31 + 1 is 32 here. "
        "It averages the attention of all heads of a layer; it was given one head."
    )
    yield supports(named, f"columns(k={KEPT}, by='tova')", support, x, why)


def token_by_token(x: Head, evict: Callable[[Any, Any], Any]) -> Array:
    """Return the keys of each query, (n, l), if a cache evicts after every query.

    `evict` gets positions of keys, in the shape of keys, and weights; both for two equal heads,
    since their code would squeeze a single head.
    """
    logits = torch.as_tensor(x.Q @ x.K.T)
    kept = torch.zeros(1, 2, 1, 1, dtype=logits.dtype)
    support, weights = np.tri(x.n, x.l, dtype=bool), torch.ones(1, 1, dtype=logits.dtype)
    for i in range(1, x.n):
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
    cluster = module.SnapKVCluster(WINDOW, KEPT, 5, "avgpool")
    yield of_prompts(
        f"`SnapKVCluster({WINDOW}, {KEPT}, 5, 'avgpool')`",
        lambda y: cluster.update_kv(*map(tensor, (y.k, y.q)), places(y), None, 1)[1],
        f"columns(k={KEPT}, by='snapkv', recent={WINDOW}, window={WINDOW}, pooling='average')",
        x,
    )


def kvpress(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let presses compress prompts to `KEPT` keys."""
    rotation = (
        "Theirs fits the Gaussian before rotation and averages rotations over later positions; it "
        "was given rotated queries."
    )
    recent = f"'snapkv', recent={WINDOW}, window={WINDOW}"
    for name, kind, fields, shown, by, why in (
        ("knorm", "KnormPress", {}, "`KnormPress`", "'key_norm'", ""),
        ("keydiff", "KeyDiffPress", {}, "`KeyDiffPress`", "'key_diff'", ""),
        ("snapkv", "SnapKVPress", {"window_size": WINDOW}, f"`SnapKVPress(window_size={WINDOW})`",
         recent, ""),
        ("expected_attention", "ExpectedAttentionPress", {"use_vnorm": False, "n_sink": 0},
         "`ExpectedAttentionPress(use_vnorm=False, n_sink=0)`, its rotation left out",
         "'expected'", rotation),
        ("cur", "CURPress", {"leverage_type": "key"}, "`CURPress(leverage_type='key')`",
         "'cur', sinks=4", ""),
        ("tova", "TOVAPress", {}, "`TOVAPress`", "'snapkv', recent=1, window=1, kernel_size=1",
         "Theirs evicts once, after the prompt; `tova` evicts after each token."),
        ("criticalkv", "CriticalKVPress", {}, f"`CriticalKVPress(SnapKVPress({WINDOW}))`, W = I",
         recent.replace("snapkv", "critical"), "Theirs has the output projection W."),
    ):  # fmt: skip
        bare = "kvpress", "kvpress.presses"
        module = load(clone, f"kvpress.presses.{name}_press", bare=bare)
        if name == "criticalkv":
            scores = load(clone, "kvpress.presses.snapkv_press", bare=bare)
            fields, module.ScorerPress = {"press": scores.SnapKVPress(0.0, WINDOW)}, object
        press = getattr(module, kind)(**fields)
        press.apply_avg_rope = lambda _, mean, covariance, __: (mean, covariance)

        def kept(prompt: Head, press: Any = press, name: str = name) -> Any:
            press.compression_ratio = 1 - (KEPT + 0.5) / prompt.l
            q, k = map(tensor, (prompt.q, prompt.k))
            logits = torch.as_tensor(np.where(np.tri(prompt.n), prompt.Q @ prompt.K.T, -np.inf))
            attention = SimpleNamespace(
                head_dim=x.d,
                num_key_value_groups=1,
                o_proj=SimpleNamespace(weight=torch.eye(x.d)),
                config=SimpleNamespace(
                    num_attention_heads=1, num_key_value_heads=1, head_dim=x.d, hidden_size=x.d
                ),
                q_proj=lambda states: states,
                k_proj=lambda states: k[:, 0],
            )
            weights = torch.softmax(logits, -1)[None, None]
            if name == "criticalkv":  # values are scored, so that they cannot be positions
                values = tensor(prompt.v)
                best = press.score(attention, q[:, 0], k, values, weights, {})[0, 0]
                return best.topk(KEPT).indices[None, None, :, None]
            return press.compress(attention, q[:, 0], k, places(prompt), weights, {})[1]

        yield of_prompts(shown, kept, f"columns(k={KEPT}, by={by})", x, why)


def pyramidkv(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their clusters choose how many keys each of 30 layers keeps."""
    module, layers = load(clone / "pyramidkv", "pyramidkv_utils"), 30
    for capacity in (KEPT, 2 * KEPT):
        kept = [
            module.PyramidKVCluster(layers, 1, capacity, layer_idx=layer).update_kv(
                *map(tensor, (x.k, x.q, x.v)), None, 1
            )[0].shape[2]
            for layer in range(layers)
        ]  # fmt: skip
        most = x.l - 1.0
        first, *_, last = pyramid(layers, capacity - 1.0, most)
        step = (math.ceil(first) - math.floor(last)) // (layers - 1)
        ours = 1 + math.ceil(first) - step * np.arange(layers)
        yield numbers(
            f"`PyramidKVCluster(30, 1, {capacity})`, sizes of layers; `pyramid` with its step "
            "rounded down", kept, ours,
            "Theirs rounds the step between layers down, so that their mean is above the "
            "capacity; ours keeps the mean.",
        )  # fmt: skip


def adakv(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their cluster share keys among a layer of three heads, at three temperatures."""
    module = load(
        clone / "adaptive_snapkv/monkeypatch",
        "snapkv_utils",
        absent=("flash_attn", "tiny_api_cuda"),
    )
    q, capacity = np.array([x.q, x.q / 2, x.q / 4]), WINDOW + 110  # a fifth of 110 is whole
    cluster = module.AdaptiveSnapKVCluster(
        WINDOW, 7, "maxpool", capacity, 0.2, 0, False, 0, 1, gqa_support=True, gqa_func="mean"
    )
    k, v = (torch.as_tensor(np.array([each] * 3))[None] for each in (x.k, x.v))
    cluster.update_kv(k, torch.as_tensor(q)[None], v)
    template = parse(
        f"columns(by='snapkv', recent={WINDOW}, window={WINDOW}, kernel_size=7, pooling='max')"
    )
    assert isinstance(template, Columns)
    ids = tuple((0, i, "") for i in range(3))
    heads = Heads(x.name, q, np.array([x.k] * 3), np.array([x.v] * 3), mask="causal", ids=ids)
    layer: Any = SimpleNamespace(inputs=lambda _: heads)
    scores = attention(layer, 0, template)[:, : x.l - WINDOW]
    ours = WINDOW + np.round(adaptive(scores, capacity - WINDOW))
    yield numbers(
        f"`AdaptiveSnapKVCluster({WINDOW}, 7, 'maxpool', {capacity}, 0.2)`, sizes of a layer's "
        "heads, q at three scales; `adaptive`", cluster.head_lens.numpy(), ours,
    )  # fmt: skip


def places(x: Head) -> torch.Tensor:
    """Return the positions of keys, in the shape of values."""
    return torch.arange(x.l).to(torch.get_default_dtype()).expand(x.d, -1).T[None, None]


def of_prompts(
    named: str, kept: Callable[[Head], Any], spec: str, x: Head, why: str = ""
) -> Comparison:
    """Compare the keys in their cache after prompts with the keys of our last query."""
    theirs, ours = [], []
    for length in np.linspace(64, x.n, PROMPTS).astype(int):
        prompt = dataclasses.replace(
            x, q=x.q[:length], k=x.k[:length], v=x.v[:length], mask="causal"
        )
        support = np.zeros((1, x.l), dtype=bool)
        support[0, kept(prompt)[0, 0, :, 0].long().numpy()] = True
        theirs.append((support, restricted(support[:, :length], prompt)))
        mine, output = support_and_output(spec, prompt)
        ours.append((np.pad(mine[-1:], ((0, 0), (0, x.l - length))), output[-1:]))
    sides = ([np.concatenate(part) for part in zip(*side)] for side in (theirs, ours))
    return compare(f"{named}, {PROMPTS} prompts; `{spec}`", *map(tuple, sides), why)


# Pages, lines, top-p


def quest(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their attention decode every query of the head."""
    module, single = load(clone / "evaluation", "quest_attention"), torch.float32
    support, output = np.zeros((x.n, x.l), dtype=bool), np.zeros((x.n, x.d))
    for i in range(x.n):
        q, k, v = (tensor(each, single) for each in (x.q[i : i + 1], x.k[: i + 1], x.v[: i + 1]))
        attention = SimpleNamespace(
            layer_id=2, layer_idx=2, num_heads=1, num_key_value_heads=1, num_key_value_groups=1,
            head_dim=x.d, hidden_size=x.d, token_budget=PAGES * SIZE, chunk_size=SIZE,
            q_proj=lambda _, q=q: q[:, 0], k_proj=lambda _, k=k: k[:, 0, -1:],
            v_proj=lambda _, v=v: v[:, 0, -1:], o_proj=lambda found: found,
            rotary_emb=lambda *_: (None, None),
        )  # fmt: skip
        same = mock.patch.object(module, "apply_rotary_pos_emb", lambda q, k, *_: (q, k))
        past = k[..., :-1, :], v[..., :-1, :]
        with same, default(single):  # the bundled heads are already rotated
            found, weights, _ = module.forward(
                attention, q[0], position_ids=torch.tensor([[i]]), past_key_value=past,
                output_attentions=True,
            )  # fmt: skip
        support[i, : i + 1], output[i] = weights[0, 0, 0].numpy() > 0, found[0, 0].numpy()
    yield compare(
        f"`quest_attention.forward`, one token at a time, {PAGES} pages of {SIZE}; "
        f"`pages(k={PAGES * SIZE})`",
        (support, output),
        support_and_output(f"pages(k={PAGES * SIZE}, size={SIZE})", x),
        f"A row of fewer than {PAGES * SIZE} keys has ⌊keys/{SIZE}⌋ pages in theirs, and at least "
        "three; here it has all. Theirs is in float32. Its GPU kernels always keep the current "
        "page, as `quest` does.",
    )


def minference(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code choose lines from the last 64 queries, and record the call of their kernel."""
    arange, lines = torch.arange, {}
    ops = "block_sparse_flash_attention", "pit_sparse_flash_attention_v2", "streaming_kernel"
    modules = "flexprefill", "kvcompression", "quest", "snapkv"
    absent = [f"minference.ops.{name}" for name in ops]
    absent += [f"minference.modules.{name}" for name in modules]
    with (
        mock.patch.object(torch, "arange", lambda *a, device=None, **k: arange(*a, **k)),
        mock.patch("transformers.utils.import_utils._is_package_available", return_value=False),
    ):
        module = load(
            clone, "minference.modules.minference_forward",
            bare=("minference", "minference.modules"),
            absent=("flash_attn", "minference.ops", *absent),
        )  # fmt: skip

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
    module = masker(clone, "fixed.implementations.oracle_top_p")
    empty = load_attention(clone, "utils.mask").Mask.create_empty_mask
    oracle = module.OracleTopPMasker(module.OracleTopPMaskerConfig(top_p=0.9))
    q, k, v = map(tensor, (x.q, x.k, x.v))
    hidden = torch.full((x.n, x.l), torch.finfo(q.dtype).min).triu(1)[None, None]
    mask = empty((1, 1, x.n, x.l), q.dtype, q.device)
    mask = oracle.add_mask(k, q, v, hidden, 1 / math.sqrt(x.d), 0.0, {}, mask)
    support = mask.get_dense_mask()[0, 0].numpy() > 0
    yield supports("`OracleTopPMasker(0.9)`", "top_p(p=0.9)", support, x)


# Weighted sampling, from the same numbers


def magicpig(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their cache answer the token after prompts, with our hyperplanes."""
    module = load(clone / "evaluations/RULER/pred", "cache_ref")
    spec = (
        f"sampled(sparse=sink_window(k={SINKS + WINDOW + 1}, sinks={SINKS}), design='lsh', "
        f"hashes={HASHES}, tables={TABLES})"
    )
    method: Any = parse(spec)
    rng = method.streams(0)[2]
    planes = np.concatenate([rng.standard_normal((HASHES, x.d)).T for _ in range(TABLES)], axis=1)
    theirs, ours = [], []
    for length in np.linspace(64, x.n, PROMPTS).astype(int):
        # They subtract the mean of the hashed keys, which does not change attention.
        keys = x.K[:length] - x.K[SINKS : length - 1 - WINDOW].mean(axis=0)
        estimate = method.approximate(x.Q[length - 1 : length], keys, mask="causal", rng=0)
        cache = module.SimCache(
            HASHES, TABLES, num_qh=1, num_kh=1, head_dim=x.d, num_layers=2, device="cpu"
        )
        cache.hash_matrix = [tensor(planes)]
        q, k, every = tensor(x.q[:length]), tensor(x.k[:length]), torch.eye(length)[None, None]
        for layer in (0, 1):  # layer 0 is exact
            cache.update(k[..., :-1, :], every[..., :-1, :], q, layer)
            cache.select_kv_cache(SINKS, layer, WINDOW)
        found = cache.update(k[..., -1:, :], every[..., -1:, :], q[..., -1:, :], 1)
        weights, rest = np.asarray(found[0, 0, 0]), ((0, 0), (0, x.l - length))
        theirs.append((np.pad(weights[None] > 0, rest), (weights @ x.v[:length])[None]))
        ours.append((np.pad(on(estimate.sparse), rest), estimate.attend(x.v[:length])))
    sides = ([np.concatenate(part) for part in zip(*side)] for side in (theirs, ours))
    yield compare(
        f"`SimCache(K={HASHES}, L={TABLES})` with the same hyperplanes, {PROMPTS} prompts; "
        f"`{spec}` of centred keys",
        *map(tuple, sides),
        "Theirs divides by π + 1e-4.",
    )


def vattention(clone: Path, x: Head) -> Iterator[Comparison]:
    """Compare sample sizes."""
    module = masker(clone, "sampling.implementations.adaptive_sampling")
    epsilon, delta = 0.2, 0.1
    config = module.AdaptiveSamplingMaskerConfig(32, epsilon, delta / 2, 0, 0)
    theirs = module.AdaptiveSamplingMasker(config)
    deviation, total, count = np.array([0.01, 0.1, 0.5]), np.array([9.0, 20.0, 80.0]), 500
    budgets = theirs._compute_adaptive_budget(*map(torch.as_tensor, (deviation, total)), count)
    needed = (ndtri(1 - delta / 2) * count * deviation / (epsilon * total)) ** 2
    yield numbers(
        "`_compute_adaptive_budget` at δ/2; ⌊(z·N·s/(ε·D))²⌋",
        budgets.numpy(),
        np.clip(np.floor(needed), 1, count),
        "Theirs takes the 1 − δ quantile, ours that of 1 − δ/2; theirs rounds down, ours up.",
    )


def hyper_attention(clone: Path, x: Head) -> Iterator[Comparison]:
    """Run their module with our directions, draws and inverse table, without a mask."""
    module = load(
        clone, "models.attention.hyper_attn", bare=("models", "models.attention"),
        absent=("flash_attn", "models.attention.flash_attn_triton_for_hyper"),
    )  # fmt: skip
    size = x.l // 16
    q, k, v = map(tensor, (x.q, x.k, x.v))
    ours: Any = parse(
        f"sampled(sparse=sorted_lsh(size={size}, hashes={SIGNS}), design='multinomial', "
        f"k={DRAWN}, shared=True)"
    )
    omega, keys = replayed(ours, x.d, lambda u: np.floor(u * x.l).astype(int))
    theirs = module.HyperAttention(x.d, SIGNS, size, DRAWN, min_seq_len=0)
    theirs.lsh.proj_dir, theirs.lsh.perm = tensor(omega.T), torch.argsort(theirs.lsh.perm)
    plain = module.exact_attention

    def masked(q: Any, k: Any, v: Any, softmax_scale: float, causal: bool, bias: Any = None) -> Any:
        if bias is None:
            return plain(q, k, v, softmax_scale, causal)
        logits = q @ k.mT * softmax_scale + bias
        return logits.softmax(-1) @ v, torch.logsumexp(logits, -1, keepdim=True)

    order = torch.sort(theirs.lsh.hash(k), dim=2, stable=True)[1]
    drawn = torch.argsort(order)[..., torch.as_tensor(keys)]
    with (
        mock.patch.object(torch, "randint", return_value=drawn),
        mock.patch.object(module, "exact_attention", masked),
    ):
        output = theirs(q, k, v)[0, 0].numpy()
    theirs.sample_size = 0
    every = torch.eye(x.l)[None, None].split(x.d, dim=-1)  # values must be as wide as keys
    blocks = torch.cat([theirs(q, k, some)[0, 0] for some in every], dim=-1).numpy() > 0
    support, _ = support_and_output(str(ours.sparse), x, mask=False, rng=ours.streams(0)[0])
    named = f"`HyperAttention(lsh_num_projs={SIGNS})` with the same directions"
    yield compare(
        f"{named} and the inverse table; blocks of `sorted_lsh(size=l/16, hashes={SIGNS})`",
        (blocks, None),
        (support, None),
        "Theirs looks words up in the Gray code where its inverse sorts them.",
    )
    yield numbers(
        f"{named}, the inverse table, the same draws, and the mask of the block that its 16-bit "
        f"kernel takes; `hyper_attention`, {DRAWN} drawn columns",
        output,
        ours.approximate(x.Q, x.K, rng=0).attend(x.v),
        "On the CPU in float32 or float64, and with flash-attn, theirs ignores this mask: drawn "
        "keys of the block count twice.",
    )


def kdeformer(clone: Path, x: Head) -> Iterator[Comparison]:
    """Run their module with our directions, draws and largest eigenvalue, without a mask."""
    module = load(clone, "KDEformer")
    size, one = x.l // 16, np.column_stack([x.v, np.ones(x.l)])
    largest = float(np.linalg.eigvalsh(one.T @ one)[-1])
    sizes = Sizes(np.linalg.norm(one, axis=1) / largest + 1 / x.l)
    lsh = SortedLSH(size=size, hashes=SIGNS)
    ours = Sampled(sparse=lsh, design="multinomial", k=DRAWN, shared=True, sizes=sizes)
    ends = np.cumsum(sizes.values / sizes.values.sum())
    omega, keys = replayed(ours, x.d, lambda u: np.searchsorted(ends, u * ends[-1], "right"))
    table = torch.argsort(module.unit_hamming_distance_array(SIGNS))

    class Lsh(module.Angular_LSH):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.proj_dir, self.perm = tensor(omega.T), table

    q, k, v = (tensor(each).transpose(1, 2) for each in (x.Q, x.K, x.v))
    hashed = Lsh(SIGNS, (1, 1, x.d), "cpu", torch.float64).hash(tensor(x.K))
    stable = functools.partial(torch.sort, stable=True)
    drawn = torch.argsort(stable(hashed, dim=2)[1])[0, 0, torch.as_tensor(keys)][None]
    with (
        mock.patch.object(torch, "sort", stable),
        mock.patch.object(module, "Angular_LSH", Lsh),
        mock.patch.object(module, "power_method", return_value=torch.full((1, 1), largest)),
        mock.patch.object(torch.Tensor, "multinomial", return_value=drawn),
    ):
        theirs = module.KDEformer(DRAWN, SIGNS, size)(q, k, v)[0, 0]
    yield numbers(
        f"`KDEformer({DRAWN}, {SIGNS})` with the same directions and draws and the inverse table; "
        "`kdeformer` with their sizes",
        theirs.numpy(),
        ours.approximate(x.Q, x.K, rng=0).attend(x.v),
        "Theirs looks words up in the Gray code where its inverse sorts them, leaves equal hashes "
        "in any order, and finds the largest eigenvalue by 20 power iterations.",
    )


def replayed(method: Sampled, d: int, drawn: Any) -> tuple[Array, Array]:
    """Return the directions and the keys that a method draws with rng=0."""
    of_support, _, of_draw, _ = method.streams(0)
    omega = of_support.standard_normal((SIGNS, d))
    return omega, drawn(of_draw.random(DRAWN))


# Coresets of keys


class Gumbels:
    """The numbers that torch draws from a seed, with the interface of a NumPy generator."""

    def __init__(self, seed: int, count: int, size: int) -> None:
        torch.manual_seed(seed)
        drawn = [torch.empty(1, size).uniform_()[0].numpy() for _ in range(count)]
        self.gumbels = iter([-np.log(-np.log(uniform)) for uniform in drawn])

    def gumbel(self, size: int) -> Any:
        return next(self.gumbels)


class Coins:
    """The numbers that torch draws for halving after a seed, in the same order."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)

    def random(self) -> float:
        return 0.0  # they start at key 0

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> Any:
        return torch.empty(shape).uniform_(low, high).numpy()

    def choice(self, _: Any, shape: tuple[int, ...]) -> Any:
        other = torch.empty(1, dtype=torch.bool).bernoulli_().item()  # one for all buckets
        return np.full(shape, -1.0 if other else 1.0)


def chosen(some: Any, every: Any) -> Array:
    """Return a row of a support: the keys of ``every`` that are nearest to some keys."""
    support = np.zeros((1, len(every)), dtype=bool)
    support[0, [int(np.abs(every - key).sum(axis=1).argmin()) for key in some]] = True
    return support


def wildcat(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code compress all keys; both sides draw pivots from the same numbers."""
    module = load(clone, "wildcat.compress_kv", bare=("wildcat",))
    centred, every = x.k - x.k.mean(axis=0), torch.eye(x.l)[None]  # values eᵢ give the weights
    torch.manual_seed(0)
    keys, weights, sums = module.compress_kv(tensor(centred)[0], every, RANK, 1 / math.sqrt(x.d))
    tau = module.find_kernel_temperature(1.0, torch.ones(1), torch.ones(1), x.l).item()
    logits = x.q @ keys[0].numpy().T / math.sqrt(x.d)
    left = np.exp(logits - logits.max(axis=1, keepdims=True))
    theirs = left @ weights[0].numpy() @ x.v / (left @ sums[0].numpy())[:, None]
    method: Any = parse(f"coreset(rank={RANK}, tau={tau!r})")
    core = method._drawn(x.K, tau, Gumbels(0, RANK, x.l))
    output = Approximation(core.estimate(x.Q, Mask.full(x.n, x.l), x.Q.dtype)).attend(x.v)
    yield compare(
        f"`compress_kv(r={RANK})`, given centred keys; `coreset(rank={RANK}, tau={tau:.4g})`",
        (chosen(keys[0].numpy(), centred), theirs[None]),
        (chosen(core.keys, x.K), output[None]),
        "Theirs centres keys one function earlier. τ² is 3.94582 if queries are as long as keys; "
        "the rule of the paper is tau='radii'.",
    )


def thinformer(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code halve keys with equal values; both sides toss the same coins."""
    with mock.patch.object(torch, "compile", return_value=lambda function: function):
        module = load(clone, "thinformer.thinformer")
    rounds = module.log4_largest_power_of_four(x.l)
    count, rank = 4**rounds, 2 ** (rounds + THINNED)
    keys = tensor(x.K[:count]).transpose(1, 2)
    torch.manual_seed(0)
    kept, _ = module.khcompress(keys, torch.ones(1, count, 1, 1), rounds, THINNED)
    theirs, ours = chosen(kept[0, :, 0].numpy(), x.K), np.zeros((1, x.l), dtype=bool)
    ours[0, thinned(x.K[:count], rank, Coins(0))] = True  # type: ignore[arg-type]
    yield compare(
        f"`khcompress(g={THINNED})` of keys with equal values; `thinned`, of `coreset(rank=4√l, "
        "pivots='thinning', weights='equal')`, with the same coins",
        (theirs, restricted(theirs, x)),
        (ours, restricted(ours, x)),
        "Their kernel has a factor of values; they drop keys beyond a power of 4, which is 1024 of "
        "1024 here, and toss one coin for all buckets to take a half or the other.",
    )


# Compressed logits


def compressed(spec: str, q: Array, k: Array) -> tuple[Array, Array]:
    """Return compressed queries and keys; their products are the logits."""
    method: Any = parse(spec)
    return method.factors(q, k)


def loki(clone: Path, x: Head) -> Iterator[Comparison]:
    """Run their selection with the principal axes of the keys."""
    module = load(clone, "methods.pca_topk.utils", bare=("methods", "methods.pca_topk"))
    module.methods.LOGGER = None
    r, centred = x.d // 4, x.k - x.k.mean(axis=0)
    axes = tensor(np.linalg.svd(centred, full_matrices=False)[2].T)  # as scikit-learn's PCA
    q, k = map(tensor, (x.q, x.k))
    least = torch.finfo(q.dtype).min
    seen = torch.where(torch.ones(x.n, x.l).tril() > 0, 0.0, least)[None, None]
    logits = q @ k.mT / math.sqrt(x.d) + seen
    kept, _ = module.mask_attn_pca_topk(
        SimpleNamespace(), 0, logits, seen, q, k, axes, axes[..., :r], r, KEPT
    )
    support = kept[0, 0].numpy() > least / 2
    yield compare(
        f"`mask_attn_pca_topk(top_r=d/4, top_k={KEPT})`; `projected_top_k(k={KEPT}, r=d/4)`",
        (support, restricted(support, x)),
        support_and_output(f"projected_top_k(k={KEPT}, r={r})", x),
        "Theirs takes the axes from another text; it was given those of these keys.",
    )


def sparq(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their attention decode every query."""
    models = [f"llminference.models.{name}_attention" for name in ("gemma", "llama", "mistral")]
    module = load(
        clone, "llminference.methods.ann_attention", bare=("llminference", "llminference.methods"),
        absent=("llminference.utility", "llminference.models", *models),
    )  # fmt: skip
    # The heads have float16 numbers, which tie: noise decides the order of channels.
    noise = np.random.default_rng(0).standard_normal(x.q.shape)
    x, r = dataclasses.replace(x, q=x.q * (1 + 1e-9 * noise)), x.d // 4
    settings = module.Settings(
        k=KEPT - 1, local_k=-1, reallocate_to_mean_value=False, score="sparse_q", rank=r
    )
    attention = module.AnnAttention(settings, 1, x.d)
    support, output = np.zeros((x.n, x.l), dtype=bool), np.zeros((x.n, x.d))
    for i in range(x.n):
        q, k, v = map(tensor, (x.q[i : i + 1], x.k[: i + 1], x.v[: i + 1]))
        attention.debug_indices = []
        found, _ = attention(q, k, v, torch.zeros(1, 1, 1, i + 1))
        output[i] = found[0, 0, 0].detach().numpy()
        support[i, attention.debug_indices[0].flatten().numpy()] = True
    yield compare(
        f"`AnnAttention(k={KEPT - 1}, local_k=-1, rank=d/4)`, one token at a time; "
        f"`projected_top_k(k={KEPT}, r=d/4, by='channels')`",
        (support, output),
        support_and_output(f"projected_top_k(k={KEPT}, r={r}, by='channels')", x),
        "Theirs keeps the last keys too and gives the rest of the weight to the mean value, if "
        "asked to.",
    )


def kq_svd(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code fit the projections, from files."""
    module, r = load(clone, "process_cache", absent=("custom_cache_query",)), x.d // 4
    config = SimpleNamespace(
        num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, hidden_size=x.d,
        head_dim=x.d,
    )  # fmt: skip
    layer = SimpleNamespace(self_attn=SimpleNamespace(o_proj=torch.nn.Linear(x.d, x.d)))
    model = SimpleNamespace(config=config, layers=[layer])
    with tempfile.TemporaryDirectory() as folder, quiet():
        for name in "qkv":
            (Path(folder) / name / "0").mkdir(parents=True)
            torch.save(tensor(getattr(x, name))[0], Path(folder) / name / "0" / "0.pt")
        module.compute_proj_KQT_mem(model, folder, 1, folder)
        key, query = (
            torch.load(Path(folder) / "0" / f"proj{name}.pt")[0, :, :r].double().detach().numpy()
            for name in "kq"
        )
    left, right = compressed(f"logit_svd(rank={r})", x.Q, x.K)
    yield numbers(
        "`compute_proj_KQT_mem`, the first d/4 columns; logits of `logit_svd(rank=d/4)`",
        (x.q @ query) @ (x.k @ key).T / math.sqrt(x.d),
        left @ right.T,
        "Theirs is computed in float32.",
    )


def kivi(clone: Path, x: Head) -> Iterator[Comparison]:
    """Compare rounded keys with their simulation, and with the keys unpacked from their cache."""
    simulated = load(clone, "models.utils_quant", bare=("models",))
    packed = load(clone, "quant.new_pack", bare=("quant",), absent=("triton", "triton.language"))
    keys = tensor(x.k)
    code = packed.quant_and_pack_kcache(keys, GROUP, BITS)
    for named, theirs, spec in (
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
    ):
        ours = compressed(spec, x.q, x.k)[1]
        yield numbers(f"{named}; keys of `{spec}`", theirs.reshape(x.l, x.d).numpy(), ours)


def qjl(clone: Path, x: Head) -> Iterator[Comparison]:
    """Use the rows of their sketch in ours, and sum their signs as their kernel does."""
    absent = "qjl_kernel", "qjl_kernel.qjl_kernel"
    module = load(clone, "models.llama3_utils_qjl", bare=("models",), absent=absent)
    m = 2 * x.d
    sketch = module.QJLSketch((x.d, m), m, device="cpu", rng=torch.Generator().manual_seed(0))
    S = sketch.proj_dir_score.double().numpy().T
    signs, norms = np.where(x.K @ S.T > 0, 1.0, -1.0), np.linalg.norm(x.K, axis=1)
    theirs = math.sqrt(math.pi / 2) / m * (x.Q @ S.T) @ signs.T * norms  # qjl_score_kernel.cu:153
    ours = SignSketch(m, "orthogonal")
    large = math.sqrt(math.pi / 2) * ours.unit(x.d)
    yield numbers(
        "rows of `QJLSketch` and the sum of qjl_score_kernel.cu:153; logits of `qjl(m=2d)` from "
        "the same rows",
        theirs / large,
        x.Q @ ours.decoded(S, x.K).T,
        f"Theirs are {large:.5f} times as large, and so biased; they were divided by it.",
    )


def eden(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code round each rotated key, and rotate it back."""
    module = load(clone / "torch", "eden")
    rotation = rotated(x.d, "orthogonal", np.random.default_rng(0))
    for bits in (1, BITS, 4):
        codec = module.EdenQuantization(bits)
        rows = [codec.forward(row) for row in tensor(x.K @ rotation.T)[0, 0]]
        decoded = np.array([codec.backward(*row)[0].numpy() for row in rows])
        spec = f"turboquant(bits={bits}, form='eden')"
        yield numbers(
            f"`EdenQuantization({bits})` of rotated keys, rotated back; keys of `{spec}`",
            decoded @ rotation,
            compressed(spec, x.Q, x.K)[1],
            "Theirs was given our rotation: its own is Hadamard's.",
        )


def norm_kept(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code round keys and correct the norm, with our rotation and levels."""
    module = load(clone, "turboquant.polar_quant", bare=("turboquant",))
    rotation = rotated(x.d, "orthogonal", np.random.default_rng(0))
    for bits in (1, BITS, 4):
        codec = module.PolarQuant(x.d, bits)
        codec.rotation, codec.centroids = rotation, lloyd_max(bits).levels / math.sqrt(x.d)
        spec = f"turboquant(bits={bits}, form='norm')"
        yield numbers(
            f"`PolarQuant(bit_width={bits})` with `norm_correction`; keys of `{spec}`",
            codec.dequantize(*codec.quantize(x.K)),
            compressed(spec, x.Q, x.K)[1],
            "Theirs was given our rotation and levels: its levels of 2 bits have three digits.",
        )


def think(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code prune the keys of a prompt, and put the kept channels back in place."""
    module, recent = load(clone / "ThinK_eager/src", "kv_pruning_utils"), 2 * GROUP
    for share in (0.25, 0.5):
        pruned, _, kept = module.key_pruner_query_driven(
            tensor(x.K), tensor(x.Q), recent_size=recent, ratio=share
        )
        theirs = np.zeros((x.l - recent, x.d))
        theirs[:, kept[0, 0].numpy()] = pruned[0, 0].numpy()
        spec = f"key_channels(r={x.d - int(x.d * share)}, recent={recent})"
        yield numbers(
            f"`key_pruner_query_driven(recent_size={recent}, ratio={share})`; keys of "
            f"`key_channels(r={1 - share:g}·d, recent={recent})`",
            theirs,
            compressed(spec, x.Q, x.K)[1][:-recent],
        )


def think_press(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let the press of kvpress set channels of the keys of a prompt to 0."""
    module = load(clone, "kvpress.presses.think_press", bare=("kvpress", "kvpress.presses"))
    press = module.ThinKPress(key_channel_compression_ratio=0.5, window_size=GROUP)
    press.compute_window_queries = lambda *_: tensor(x.Q[-GROUP:])
    config = SimpleNamespace(num_attention_heads=1)
    attention = SimpleNamespace(head_dim=x.d, config=config)
    named = {"hidden_states": None, "position_embeddings": None}
    keys, _ = press.compress(attention, None, tensor(x.K).clone(), tensor(x.v), None, named)
    yield numbers(
        "`ThinKPress(0.5)`, given rotated queries; keys of `key_channels(r=d/2)`",
        keys[0, 0].numpy(),
        compressed(f"key_channels(r={x.d // 2})", x.Q, x.K)[1],
    )


Compared = Callable[[Path, Head], Iterator[Comparison]]
SYSTEMS: dict[str, tuple[str, Compared]] = {
    "StreamingLLM": ("mit-han-lab/streaming-llm", streaming_llm),
    "H2O": ("FMInference/H2O", h2o),
    "TOVA": ("schwartz-lab-NLP/TOVA", tova),
    "SnapKV": ("FasterDecoding/SnapKV", snapkv),
    "kvpress": ("NVIDIA/kvpress", kvpress),
    "PyramidKV": ("Zefan-Cai/KVCache-Factory", pyramidkv),
    "AdaKV": ("FFY0/AdaKV", adakv),
    "Quest": ("mit-han-lab/Quest", quest),
    "MInference": ("microsoft/MInference", minference),
    "top-p": ("skylight-org/sparse-attention-hub", top_p),
    "MagicPIG": ("Infini-AI-Lab/MagicPIG", magicpig),
    "vAttention": ("skylight-org/sparse-attention-hub", vattention),
    "HyperAttention": ("insuhan/hyper-attn", hyper_attention),
    "KDEformer": ("majid-daliri/kdeformer", kdeformer),
    "WildCat": ("microsoft/wildcat", wildcat),
    "Thinformer": ("microsoft/thinformer", thinformer),
    "Loki": ("hpcgroup/loki", loki),
    "SparQ": ("graphcore-research/llm-inference-research", sparq),
    "KQ-SVD": ("DamienLesens/KQ-SVD", kq_svd),
    "KIVI": ("jy-yuan/KIVI", kivi),
    "QJL": ("amirzandieh/QJL", qjl),
    "EDEN": ("amitport/EDEN-Distributed-Mean-Estimation", eden),
    "norm kept": ("TheTom/turboquant_plus", norm_kept),
    "ThinK": ("SalesforceAIResearch/ThinK", think),
    "ThinK in kvpress": ("NVIDIA/kvpress", think_press),
}
