"""Weighted sampling: MagicPIG, vAttention, HyperAttention and KDEformer, from the same numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.special import ndtri

from analysis.inputs import Head
from approx import Mask, parse
from approx.checks import Array
from approx.combinations.designs.collisions import Collisions
from approx.combinations.designs.design import Rest
from approx.combinations.sampled import Sampled, Sizes
from approx.sparse.sorted_lsh import SortedLSH
from studies.lm.peers import hub
from studies.lm.peers.clones import load, tensor
from studies.lm.peers.comparison import Comparison, compare, on, support_and_output

HASHES, TABLES = 4, 20
SINKS, WINDOW = 4, 16
PROMPTS = 8
DRAWN, SIGNS = 32, 7


def magicpig(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their cache answer the token after prompts, with our hyperplanes and with zeros."""
    module = load(clone / "evaluations/RULER/pred", "cache_ref")
    spec = (
        f"sampled(sparse=sink_window(k={SINKS + WINDOW + 1}, sinks={SINKS}), design='lsh', "
        f"hashes={HASHES}, tables={TABLES})"
    )
    method = parse(spec)
    assert isinstance(method, Sampled)
    planes = np.concatenate(
        [omega.T for omega in _omegas(method.streams(0)[2], x.d, TABLES, HASHES)], axis=1
    )
    supports: list[tuple[Array, Array]] = []
    outputs: list[tuple[Array, Array]] = []
    chances: list[tuple[Array, Array]] = []
    for length in np.linspace(64, x.n, PROMPTS).astype(int):
        i, rest = length - 1, slice(SINKS, length - 1 - WINDOW)
        # They subtract the mean of the hashed keys, which does not change attention.
        keys = x.K[:length] - x.K[rest].mean(axis=0)
        estimate = method.approximate(x.Q[i : i + 1], keys, mask="causal", rng=0)
        ours = np.pad(on(estimate.sparse), ((0, 0), (0, x.l - length)))
        weights = _cached(module, x, length, planes)
        theirs = np.pad(weights > 0, (0, x.l - length))[None]
        supports.append((theirs, ours))
        outputs.append((weights @ x.v[:length], estimate.attend(x.v[:length])[0]))
        none = _cached(module, x, length, np.zeros_like(planes))  # every key collides
        found = keys @ x.Q[i] - np.log(none)
        inverse = np.exp(found[rest] - found[0]) - 1e-4
        design = Collisions(x.Q[i : i + 1], keys[rest], HASHES, TABLES, 2)
        chances.append((inverse, design.probabilities(0, np.arange(len(inverse)))))
    theirs, ours = (np.concatenate(side) for side in zip(*supports))
    yield compare(
        f"`SimCache(K={HASHES}, L={TABLES})` with the same hyperplanes, {PROMPTS} prompts; "
        f"`{spec}` of centred keys",
        (theirs, np.stack([a for a, _ in outputs])),
        (ours, np.stack([b for _, b in outputs])),
        "Theirs divides by π + 1e-4.",
    )
    theirs, ours = (np.concatenate(side) for side in zip(*chances))
    yield compare(
        "π of two collisions or more, read out of `SimCache`; `Collisions(…, least=2)`",
        (None, theirs),
        (None, ours),
        "Theirs normalises in float32.",
    )


def _omegas(rng: np.random.Generator, d: int, tables: int, hashes: int) -> list[Array]:
    """Return the directions of `Collisions`, drawn in the same way."""
    return [rng.standard_normal((hashes, d)) for _ in range(tables)]


def _cached(module: ModuleType, x: Head, length: int, planes: Array) -> Array:
    """Return the weights of all keys, (length,), that their cache gives the last token."""
    cache = module.SimCache(
        HASHES, TABLES, num_qh=1, num_kh=1, head_dim=x.d, num_layers=2, device="cpu"
    )
    cache.hash_matrix = [tensor(planes)]
    q, k = tensor(x.q[:length]), tensor(x.k[:length])
    every = torch.eye(length)[None, None]
    for layer in (0, 1):  # layer 0 is exact
        cache.update(k[..., :-1, :], every[..., :-1, :], q, layer)
        cache.select_kv_cache(SINKS, layer, WINDOW)
    found = cache.update(k[..., -1:, :], every[..., -1:, :], q[..., -1:, :], 1)
    return np.asarray(found[0, 0, 0])


def hub_magicpig(clone: Path, x: Head) -> Iterator[Comparison]:
    """Run the hub's version with our hyperplanes."""
    module = hub.masker(clone, "sampling.implementations.magic_pig")
    config = module.MagicPigConfig(TABLES, HASHES, center=True, packing="int64", seed=0)
    masker = module.MagicPig(config)
    k, q = masker._transform_for_mips(*masker._center_KQ(tensor(x.k), tensor(x.q), {}, 0))
    planes = _omegas(np.random.default_rng(0), x.d + 1, TABLES, HASHES)
    stored = {"projections": {0: torch.as_tensor(np.concatenate([o.T for o in planes], axis=1))}}
    matches = masker._compute_lsh_matches(k, q, stored, 0)[0, 0].numpy() > 0
    design = Collisions(q[0, 0].numpy(), k[0, 0].numpy(), HASHES, TABLES, 1)
    rest = Rest.all_seen(Mask.full(x.n, x.l))
    drawn = design.draw(rest, np.random.default_rng(0))
    chances = np.stack([design.probabilities(i, np.arange(x.l)) for i in range(x.n)])
    yield compare(
        f"`MagicPig({TABLES}, {HASHES})` with the same hyperplanes; `Collisions(…, least=1)` of "
        "their vectors",
        (matches, masker._compute_probabilities(k, q)[0, 0].numpy()),
        (on(drawn), chances),
        "Theirs asks for one collision where the authors ask for two, subtracts the mean key from "
        "queries too, and makes keys equally long by another coordinate.",
    )


def vattention(clone: Path, x: Head) -> Iterator[Comparison]:
    """Compare sample sizes, and the loss from repeated draws."""
    module = hub.masker(clone, "sampling.implementations.adaptive_sampling")
    utils = hub.load_attention(clone, "utils.mask_attention_utils")
    epsilon, delta = 0.2, 0.1
    config = module.AdaptiveSamplingMaskerConfig(32, epsilon, delta / 2, 0, 0)
    masker = module.AdaptiveSamplingMasker(config)
    deviation, total, count = np.array([0.01, 0.1, 0.5]), np.array([9.0, 20.0, 80.0]), 500
    theirs = masker._compute_adaptive_budget(*map(torch.as_tensor, (deviation, total)), count)
    needed = (ndtri(1 - delta / 2) * count * deviation / (epsilon * total)) ** 2
    yield compare(
        "`_compute_adaptive_budget` at δ/2; ⌊(z·N·s/(ε·D))²⌋",
        (None, theirs.numpy()),
        (None, np.clip(np.floor(needed), 1, count)),
        "Theirs takes the 1 − δ quantile, ours that of 1 − δ/2; theirs rounds down, ours up.",
    )
    last, repeats, size = 64, 20, 64
    weights = torch.exp(torch.as_tensor(x.Q[-last:] @ x.K.T))[None, None]
    torch.manual_seed(0)
    sizes = np.zeros((2, repeats))
    ours = parse(f"sampled(k={size}, epsilon={epsilon}, delta={delta})")
    for repeat in range(repeats):
        pilot, deviations = masker._get_std_estimate_using_base_sample(
            weights, 1, 1, last, x.l, 0, x.l, size, weights.dtype
        )
        totals = utils.apply_inv_mask_sum(weights, pilot)
        budgets = masker._compute_adaptive_budget(deviations, totals, x.l).clamp(min=size)
        estimate = ours.approximate(x.Q[-last:], x.K, rng=repeat)
        sizes[:, repeat] = budgets.double().mean(), estimate.nnz / last
    yield compare(
        f"keys per row at (ε, δ) = ({epsilon}, {delta}), mean of {last * repeats} rows with pilots "
        f"of {size}: `AdaptiveSamplingMasker` at δ/2; `{ours}`",
        (None, sizes[0].mean()),
        (None, sizes[1].mean()),
        "Pilots are random, and theirs is drawn with replacement.",
    )
    empty = hub.load_attention(clone, "utils.mask").Mask.create_empty_mask(
        tuple(weights.shape), weights.dtype, weights.device
    )
    asked = mock.Mock(side_effect=masker._compute_adaptive_budget)
    with mock.patch.object(masker, "_compute_adaptive_budget", asked):
        q, k, v = map(tensor, (x.q[-last:], x.k, x.v))
        masker.add_mask(k, q, v, None, 1 / math.sqrt(x.d), 0.0, {}, empty)
    tops = weights.amax(-1, keepdim=True)
    share = asked.call_args.args[1] / (weights / tops).sum(-1, keepdim=True)
    yield compare(
        "median of D over the exact sum, of `AdaptiveSamplingMasker` that holds no key; 1",
        (None, share.median()),
        (None, 1.0),
        "Theirs takes an empty mask for a full one where it sums what is held, so that D is twice "
        "the sum and a quarter of the keys is drawn.",
    )
    rows, draws, b = 64, 200, 64
    torch.manual_seed(0)
    budgets = torch.full((1, 1, rows, 1), b)
    share = 0.0
    for _ in range(draws):
        mask = utils.create_sampling_mask_with_per_head_budget(
            budgets, torch.full(budgets.shape, b / x.l), x.l, 0, x.l, torch.float64
        )
        share += float(mask.apply_inv_mask(torch.ones(1, 1, rows, x.l)).mean()) / draws
    lost = (1 - (1 - 1 / x.l) ** b) * x.l / b
    yield compare(
        f"`create_sampling_mask_with_per_head_budget`: mean of {rows * draws} row sums of equal "
        f"entries over the exact ones, {b} drawn; the closed form (1 − (1 − 1/N)^b)·N/b",
        (None, share),
        (None, lost),
        "Theirs assigns the weight of a repeated draw instead of adding it, which loses "
        f"{100 * (1 - lost):.1f} % of N = {x.l}. Ours is unbiased.",
    )


def hyper_attention(clone: Path, x: Head) -> Iterator[Comparison]:
    """Run their module with our directions and draws, without a mask."""
    module = load(
        clone,
        "models.attention.hyper_attn",
        bare=("models", "models.attention"),
        absent=("flash_attn", "models.attention.flash_attn_triton_for_hyper"),
    )
    size = x.l // 16
    q, k, v = map(tensor, (x.q, x.k, x.v))
    ours = parse(
        f"sampled(sparse=sorted_lsh(size={size}, hashes={SIGNS}), design='multinomial', "
        f"k={DRAWN}, shared=True)"
    )
    assert isinstance(ours, Sampled)
    omega, keys = _replayed(ours, x.d, lambda u: np.floor(u * x.l).astype(int))
    theirs = module.HyperAttention(x.d, SIGNS, size, DRAWN, min_seq_len=0)
    theirs.lsh.proj_dir = tensor(omega.T)

    def run() -> tuple[Array, Array]:
        order = torch.sort(theirs.lsh.hash(k), dim=2, stable=True)[1]
        drawn = torch.argsort(order)[..., torch.as_tensor(keys)]
        with mock.patch.object(torch, "randint", return_value=drawn):
            found = theirs(q, k, v)
        theirs.sample_size = 0
        every = torch.eye(x.l)[None, None].split(x.d, dim=-1)  # values must be as wide as keys
        blocks = torch.cat([theirs(q, k, some)[0, 0] for some in every], dim=-1)
        theirs.sample_size = DRAWN
        return blocks.numpy() > 0, found[0, 0].numpy()

    support, output = support_and_output(str(ours.sparse), x, mask=False, rng=ours.streams(0)[0])
    estimate = ours.approximate(x.Q, x.K, rng=0).attend(x.v)
    named = f"`HyperAttention(lsh_num_projs={SIGNS})` with the same directions"
    spec = f"`sorted_lsh(size=l/16, hashes={SIGNS})`"
    yield compare(
        f"{named}; blocks of {spec}",
        (run()[0], None),
        (support, None),
        "Theirs looks words up in the Gray code where its inverse sorts them: neighbours in its "
        "order differ in up to 4 of 7 signs.",
    )
    theirs.lsh.perm = torch.argsort(theirs.lsh.perm)
    blocks, output = run()
    yield compare(
        f"{named} and the inverse table; blocks of {spec}", (blocks, None), (support, None)
    )
    whole = f"`hyper_attention`, {DRAWN} drawn columns"
    yield compare(
        f"{named}, the inverse table and the same draws, in float64; {whole}",
        (None, output),
        (None, estimate),
        "On the CPU in float32 or float64, and with flash-attn, theirs ignores the mask of the "
        "block: drawn keys of it count twice.",
    )
    plain = module.exact_attention

    def masked(q: Any, k: Any, v: Any, softmax_scale: float, causal: bool, bias: Any = None) -> Any:
        if bias is None:
            return plain(q, k, v, softmax_scale, causal)
        logits = q @ k.mT * softmax_scale + bias
        return logits.softmax(-1) @ v, torch.logsumexp(logits, -1, keepdim=True)

    with mock.patch.object(module, "exact_attention", masked):
        yield compare(
            f"as before, with the mask of the block that its 16-bit kernel takes; {whole}",
            (None, run()[1]),
            (None, estimate),
        )


def kdeformer(clone: Path, x: Head) -> Iterator[Comparison]:
    """Run their module with our directions, draws and largest eigenvalue, without a mask."""
    module = load(clone, "KDEformer")
    size = x.l // 16
    one = np.column_stack([x.v, np.ones(x.l)])
    largest = float(np.linalg.eigvalsh(one.T @ one)[-1])
    sizes = Sizes(np.linalg.norm(one, axis=1) / largest + 1 / x.l)
    ours = Sampled(
        sparse=SortedLSH(size=size, hashes=SIGNS),
        design="multinomial",
        k=DRAWN,
        shared=True,
        sizes=sizes,
    )
    ends = np.cumsum(sizes.values / sizes.values.sum())
    omega, keys = _replayed(ours, x.d, lambda u: np.searchsorted(ends, u * ends[-1], "right"))
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
    yield compare(
        f"`KDEformer({DRAWN}, {SIGNS})` with the same directions and draws and the inverse table; "
        "`kdeformer` with their sizes",
        (None, theirs.numpy()),
        (None, ours.approximate(x.Q, x.K, rng=0).attend(x.v)),
        "Theirs looks words up in the Gray code where its inverse sorts them, leaves equal hashes "
        "in any order, and finds the largest eigenvalue by 20 power iterations.",
    )


def _replayed(method: Sampled, d: int, drawn: Any) -> tuple[Array, Array]:
    """Return the directions and the keys that a method draws with rng=0."""
    of_support, _, of_draw, _ = method.streams(0)
    omega = of_support.standard_normal((SIGNS, d))
    return omega, drawn(of_draw.random(DRAWN))
