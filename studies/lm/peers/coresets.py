"""Coresets of keys: WildCat and Thinformer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from analysis.inputs import Head
from approx import Mask, parse
from approx.estimate.approximation import Approximation
from approx.low_rank.thinning import thinned
from studies.lm.peers.clones import load, tensor
from studies.lm.peers.comparison import Comparison, compare, restricted

RANK = 16
THINNED = 2  # g: the coreset has 2^g·√l keys


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


def wildcat(clone: Path, x: Head) -> Iterator[Comparison]:
    """Let their code compress all keys; both sides draw pivots from the same numbers."""
    module = load(clone, "wildcat.compress_kv", bare=("wildcat",))
    centred = x.k - x.k.mean(axis=0)
    every = torch.eye(x.l)[None]  # values eᵢ, so that the output is the weights
    torch.manual_seed(0)
    keys, weights, sums = module.compress_kv(tensor(centred)[0], every, RANK, 1 / math.sqrt(x.d))
    tau = module.find_kernel_temperature(1.0, torch.ones(1), torch.ones(1), x.l).item()

    logits = x.q @ keys[0].numpy().T / math.sqrt(x.d)
    left = np.exp(logits - logits.max(axis=1, keepdims=True))
    theirs = left @ weights[0].numpy() @ x.v / (left @ sums[0].numpy())[:, None]
    chosen = np.zeros((1, x.l), dtype=bool)
    chosen[0, _places(keys[0].numpy(), centred)] = True

    method = parse(f"coreset(rank={RANK}, tau={tau!r})")
    mask = Mask.full(x.n, x.l)
    core = method._drawn(x.K, tau, Gumbels(0, RANK, x.l))  # type: ignore[attr-defined]
    ours = np.zeros((1, x.l), dtype=bool)
    ours[0, _places(core.keys, x.K)] = True
    output = Approximation(core.estimate(x.Q, mask, x.Q.dtype)).attend(x.v)
    yield compare(
        f"`compress_kv(r={RANK})`, given centred keys; `coreset(rank={RANK}, tau={tau:.4g})`",
        (chosen, theirs[None]),
        (ours, output[None]),
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
    theirs, ours = np.zeros((2, 1, x.l), dtype=bool)
    theirs[0, _places(kept[0, :, 0].numpy(), x.K)] = True
    ours[0, thinned(x.K[:count], rank, Coins(0))] = True  # type: ignore[arg-type]
    yield compare(
        f"`khcompress(g={THINNED})` of keys with equal values; `thinned`, of `coreset(rank=4√l, "
        "pivots='thinning', weights='equal')`, with the same coins",
        (theirs, restricted(theirs, x)),
        (ours, restricted(ours, x)),
        "Their kernel has a factor of values; they drop keys beyond a power of 4, which is 1024 of "
        "1024 here, and toss one coin for all buckets to take a half or the other.",
    )


def _places(some: Any, every: Any) -> Any:
    """Return the indices of some keys among all keys."""
    return [int(np.abs(every - key).sum(axis=1).argmin()) for key in some]
