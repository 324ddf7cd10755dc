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
    Check,
    above,
    at_most,
    claim,
    equal,
    without,
)
from approx import exact, parse

PERFORMER = "arXiv 2009.14794"


def _heads(n: int = 256) -> list[inputs.Inputs]:
    """Return the four causal heads of SmolLM2 on the first n tokens of their text."""
    return [head.first(n) for head in inputs.sample("smollm2").heads()]


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
