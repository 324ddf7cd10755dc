"""WildCat, Thinformer, KQ-SVD, linear attention on real heads: fewer numbers a key.

The papers are of 2020 to 2026. A source is quoted as far as it could be read: an abstract, or a
file of public code, its line and commit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from analysis import features_needed, inputs, metrics, state_rank
from analysis.claims.evidence import (
    TIGHT,
    Check,
    above,
    at_most,
    claim,
    equal,
    without,
)
from approx import exact, parse
from approx.checks import Array
from approx.compressed_logits.method import CompressedLogits

KQ_SVD = "KQ-SVD (arXiv 2512.05916)"
PERFORMER = "arXiv 2009.14794"


def _heads(n: int = 256) -> list[inputs.Inputs]:
    """Return the four causal heads of SmolLM2 on the first n tokens of their text."""
    return [head.first(n) for head in inputs.sample("smollm2").heads()]


# KQ-SVD


@claim(
    "KQ-1",
    "No map of queries and keys to r numbers is nearer to all logits than the SVD of K Qᵀ, key PCA "
    "among them; to the logits that a causal mask shows it need not be the nearest.",
    KQ_SVD + ", abstract; DamienLesens/KQ-SVD e51b440, process_cache.py:313",
)
def best_logits() -> Iterator[Check]:
    """Count where key PCA is nearer: 200 Gaussian pairs, 4 heads of SmolLM2 at four ranks."""
    all_pairs = seen_pairs = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        q, k = rng.standard_normal((2, 24, 6))
        k = k * rng.uniform(0.3, 1.5, 6)
        errors = [_errors_of_logits(spec, q, k) for spec in _compressions(3)]
        all_pairs += errors[1][0] < errors[0][0] * (1 - TIGHT)
        seen_pairs += errors[1][1] < errors[0][1]
    on_heads = 0
    for x in _heads():
        for rank in (4, 8, 16, 32):
            errors = [_errors_of_logits(spec, x.Q, x.K) for spec in _compressions(rank)]
            on_heads += errors[1][0] < errors[0][0]
    yield equal("of 200 Gaussian Q and K, where PCA is nearer, all logits", 0, all_pairs)
    yield equal("of 16 heads and ranks, where PCA is nearer, all logits", 0, on_heads)
    yield without(equal("of 200 Gaussian Q and K, where PCA is nearer, seen logits", 0, seen_pairs))


def _compressions(rank: int) -> tuple[str, str]:
    return f"logit_svd(rank={rank})", f"key_pca(rank={rank}, centred=False)"


def _errors_of_logits(spec: str, Q: Array, K: Array) -> tuple[float, float]:
    """Return the Frobenius errors of compressed logits, of all and of those on or below."""
    method = parse(spec)
    assert isinstance(method, CompressedLogits)
    left, right = method.compressed(Q, K)
    off = left @ right.T - exact.logits(Q, K)
    return float(np.linalg.norm(off)), float(np.linalg.norm(np.tril(off)))


@claim(
    "KQ-2",
    "The nearer the logits, the nearer is attention: on heads of SmolLM2 the SVD beats key PCA at "
    "ranks 16 and 32. At ranks 4 and 8 centred axes of the keys may be nearer to attention.",
    KQ_SVD + ", abstract: higher fidelity of attention outputs",
)
def fidelity() -> Iterator[Check]:
    """Count where the SVD has the lower tv, and where centred PCA has with logits farther off."""
    high = low = 0
    farther = []
    for x in _heads():
        for rank in (4, 8, 16, 32):
            specs = f"logit_svd(rank={rank})", f"key_pca(rank={rank})"
            tv = [x.compare(x.approximate(parse(spec), rng=0))["attention_tv"] for spec in specs]
            if rank > 8:
                high += tv[0] < tv[1]
            elif tv[1] < tv[0]:
                low += 1
                errors = [_errors_of_logits(spec, x.Q, x.K)[1] for spec in specs]
                farther.append(errors[1] / errors[0])
    yield equal("of 8 heads and ranks 16 and 32, where the SVD has less tv", 8, high)
    yield without(equal("of 8 heads and ranks 4 and 8, where PCA has less tv", 0, low))
    yield above("its logits are off by more than those of the SVD, times", 1.0, min(farther))


# Linear attention on real heads


@claim(
    "LIN-1",
    "For an error ε of exp(q·k) some d·ln d/ε² positive features suffice, whatever the length: for "
    "queries and keys of norm 1. On heads of SmolLM2 no number that can be drawn does.",
    PERFORMER + ", abstract; its theorem 4 as it is cited",
)
def features_on_real_heads() -> Iterator[Check]:
    """Take the features that the expected error needs for 10 %, d = 64."""
    d, method = 64, parse("positive")
    limit = d * math.log(d) / 0.1**2
    q, k = np.random.default_rng(0).standard_normal((2, 128, d))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, k)]
    needed = features_needed.features_needed(method, 0.1, *unit)
    assert needed is not None
    yield at_most("features for 10 %, norm 1", limit, needed)
    found = [
        features_needed.features_needed(method, 0.1, x.Q, x.K, mask=x.mask, most=2**1000)
        for x in _heads(128)
    ]
    yield without(at_most("features for 10 %, SmolLM2's easiest head", limit, float(min(found))))  # type: ignore[type-var,arg-type]


@claim(
    "LIN-2",
    "Positive features are nearer to attention than sines and cosines on real heads; but to "
    "exp(q·k) in the Frobenius norm, which large entries rule, sines and cosines are nearer.",
    PERFORMER + ", lemma 2",
)
def positive_or_trigonometric() -> Iterator[Check]:
    """Count heads of SmolLM2 where positive features win, by tv at m = 64 and by features."""
    near_attention = near_kernel = 0
    for x in _heads():
        tv, needed = [], []
        for name in ("positive", "trigonometric"):
            estimate = parse(f"{name}(m=64)").approximate(x.Q, x.K, mask=x.mask, rng=0)
            tv.append(metrics.compare(estimate, x.Q, x.K, mask=x.mask)["attention_tv"])
            needed.append(
                features_needed.features_needed(
                    parse(name), 0.1, x.Q, x.K, mask=x.mask, most=2**1000
                )
            )
        near_attention += tv[0] < tv[1]
        near_kernel += needed[0] < needed[1]  # type: ignore[operator]
    yield equal("heads of 4 where they have less tv, m = 64", 4, near_attention)
    yield without(above("heads of 4 where they need fewer features for 10 %", 0, near_kernel))


@claim(
    "LIN-3",
    "The size of the state is not what keeps linear attention from these heads: the bound on any "
    "state of 64 allows an error below 1 %, where 64 positive features have above 30 %.",
    "the low-rank problem, kexue.fm 8601; the bound: analysis.state_rank",
)
def states_or_features() -> Iterator[Check]:
    """Take the dyadic lower bound of softmax rows, and errors of positive features, m = 64."""
    bounds, errors = [], []
    for x in _heads():
        weights = exact.softmax(x.Q, x.K, x.mask)
        bounds.append(state_rank.lower_bound(weights, 64))
        estimate = parse("positive(m=64)").approximate(x.Q, x.K, mask=x.mask, rng=0)
        error = metrics.compare(estimate, x.Q, x.K, mask=x.mask)["attention_relative_frobenius"]
        errors.append(error)
    yield at_most("largest lower bound, 64 states", 0.01, max(bounds))
    yield above("least error, 64 positive features", 0.3, min(errors))
