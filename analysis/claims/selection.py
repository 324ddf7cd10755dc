"""H2O, Quest, MInference, top-k and top-p attention: which keys are read.

The papers are of 2023 to 2026. A source is quoted as far as it could be read: an abstract, or a
file of public code, its line and commit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis import inputs, metrics
from analysis.claims.evidence import (
    TIGHT,
    Check,
    above,
    at_most,
    claim,
    difference,
    equal,
    near,
    printed,
    without,
)
from approx import exact, parse
from approx.checks import Array
from approx.sparse import boxes

H2O = "H2O (arXiv 2306.14048)"
QUEST = "Quest (arXiv 2406.10774)"
TOP_K = "arXiv 2512.07647, abstract"


def _heads(n: int = 256) -> list[inputs.Inputs]:
    """Return the four causal heads of SmolLM2 on the first n tokens of their text."""
    return [head.first(n) for head in inputs.sample("smollm2").heads()]


def _rows(head: inputs.Inputs, count: int = 4) -> Iterator[tuple[Array, Array]]:
    """Yield some queries of a causal head, each with the keys that it sees."""
    for i in np.linspace(head.n // 4, head.n - 1, count).astype(int):
        yield head.Q[i : i + 1], head.K[: i + 1]


# H2O


@claim(
    "H2O-Ea",
    "Sums of the attention received do not tell heavy hitters from early keys: in uniform causal "
    "attention key j receives 1/j + … + 1/n, most for the first. Means over the queries that see "
    "it fall with j too.",
    H2O + "; FMInference/H2O ac75c2a, utils_real_drop/modify_llama.py:317; "
    "NVIDIA/kvpress 8bb29b9, observed_attention_press.py",
)
def early_keys() -> Iterator[Check]:
    """Take the column sums of attention that prefers no key, and their means."""
    l = 512
    zeros = np.zeros((l, 1))
    sums = exact.softmax(zeros, zeros, "causal").sum(axis=0)
    harmonic = np.cumsum(1 / np.arange(l, 0, -1))[::-1]
    yield at_most("difference of sums and 1/j + … + 1/n", TIGHT, difference(sums, harmonic))
    means = sums / np.arange(l, 0, -1)
    yield equal(
        "steps in j at which the mean falls, n = 512", l - 1, int((np.diff(means) < 0).sum())
    )
    kept = np.argsort(-sums)[:32]
    yield printed(above("last of the 32 heaviest keys", 32, int(kept.max()) + 1))


# Quest


@claim(
    "QUEST-1",
    "q·k is nowhere above Σ_c max(q_c lo_c, q_c hi_c) for the keys of a page, lo and hi their "
    "least and greatest coordinates; for a page of one key the two are equal.",
    QUEST + "; mit-han-lab/Quest 01c1623, evaluation/quest_attention.py:146",
)
def box() -> Iterator[Check]:
    """Count violations on heads of SmolLM2, rounding included, and take pages of one key."""
    above_it, worst = 0, 0.0
    for head in _heads():
        logits = exact.logits(head.Q, head.K)
        _, upper = boxes.bounds(head.Q, *boxes.of_pages(head.K, 16))
        above_it += int((logits > np.repeat(upper, 16, axis=1)).sum())
        _, alone = boxes.bounds(head.Q, *boxes.of_pages(head.K, 1))
        worst = max(worst, difference(alone, logits))
    yield equal("entries above the bound of their page, of 4 heads", 0, above_it)
    yield at_most("difference, pages of one key", TIGHT, worst)


@claim(
    "QUEST-2",
    "The pages with the highest bounds hold more attention than as many first and last keys: with "
    "8 pages of 16 keys, the current one among them, not with 4. The best 4 pages do.",
    QUEST + ", abstract",
)
def critical_pages() -> Iterator[Check]:
    """Count heads of SmolLM2, 512 tokens, where pages hold more than sink and window."""
    sizes = {64: 0, 128: 0}
    best = 0
    for head in _heads(512):
        weights = exact.softmax(head.Q, head.K, head.mask)
        for k in sizes:
            least = _held(head, weights, f"sink_window(k={k})")
            sizes[k] += _held(head, weights, f"pages(k={k}, current=True)") > least
            if k == 64:
                best += _held(head, weights, "pages(k=64, by='mass')") > least
    yield equal("heads of 4, 8 pages", 4, sizes[128])
    yield equal("heads of 4, the best 4 pages", 4, best)
    yield without(equal("heads of 4, 4 pages", 4, sizes[64]))


def _held(head: inputs.Inputs, weights: Array, spec: str) -> float:
    """Return the mean share of attention on a support, of softmax rows."""
    support = head.approximate(parse(spec), rng=0).sparse
    assert support is not None
    rows = np.repeat(np.arange(head.n), np.diff(support.indptr))
    return float(weights[rows, support.indices].sum()) / head.n


@claim(
    "QUEST-Ea",
    "A budget of two pages reads two pages; the evaluation in public code reads at least three.",
    "mit-han-lab/Quest 01c1623, evaluation/quest_attention.py:56",
)
def least_pages() -> Iterator[Check]:
    """Count the entries of a row at a budget of 32 keys, and what the code asks for."""
    head, budget = _heads()[0], 32
    method = parse(f"pages(k={budget})")
    estimate = head.approximate(method, rng=0)
    assert estimate.sparse is not None
    rows = np.diff(estimate.sparse.indptr)
    yield equal("most keys a row at a budget of 32", budget, int(rows.max()))
    size = method.size  # type: ignore[attr-defined]
    coded = size * max(3, budget // size)
    yield printed(equal("keys a row at a budget of 32, as coded", budget, coded))


# Top-k and top-p


@claim(
    "TOPP-1",
    "Attention restricted to some keys and renormalised has tv = 1 − e^{−KL(restricted ‖ exact)} "
    "in every row; of means over rows it is a bound only.",
    TOP_K,
)
def total_variation() -> Iterator[Check]:
    """Compare both sides on rows of SmolLM2, for three supports of 16 keys, and their means."""
    each = []
    for head in _heads():
        for spec in ("top_k(k=16)", "sink_window(k=16)", "random(k=16)"):
            for Q, K in _rows(head):
                errors = metrics.compare(parse(spec).approximate(Q, K, rng=0), Q, K)
                each.append((errors["attention_tv"], errors["attention_kl_reverse"]))
    tv, kl = np.array(each).T
    yield at_most("largest difference, rows", TIGHT, float(np.abs(tv + np.expm1(-kl)).max()))
    bound = -float(np.expm1(-kl.mean()))
    yield at_most("mean tv over the bound", 1.0, float(tv.mean()) / bound)
    yield without(near("mean tv over the bound, if equal", 1.0, float(tv.mean()) / bound, 1e-3))


@claim(
    "TOPP-2",
    "The output of restricted attention is off by tv·|μ_tail − μ_head|, the means of V over what "
    "is left out and over what is kept, each weighted by attention.",
    TOP_K,
)
def error_of_the_output() -> Iterator[Check]:
    """Compare with outputs of the four heads of SmolLM2, the 8 largest keys kept."""
    worst = 0.0
    for head in _heads():
        assert head.V is not None
        estimate = parse("top_k(k=8)").approximate(head.Q, head.K, mask=head.mask)
        assert estimate.sparse is not None
        weights = exact.softmax(head.Q, head.K, head.mask)
        on = estimate.sparse.toarray() != 0
        tail, kept = np.where(on, 0, weights)[8:], np.where(on, weights, 0)[8:]
        tv = tail.sum(axis=1)
        means = [part @ head.V / part.sum(axis=1, keepdims=True) for part in (tail, kept)]
        predicted = tv * np.linalg.norm(means[0] - means[1], axis=1)
        exactly = exact.attention(head.Q, head.K, head.V, mask=head.mask)
        off = np.linalg.norm(estimate.attend(head.V) - exactly, axis=1)[8:]
        worst = max(worst, difference(off, predicted))
    yield at_most("largest difference", 1e-10, worst)


@claim(
    "TOPP-3",
    "Of all weights on k keys that sum to 1, those of the k largest, renormalised, have the least "
    "tv: the mass left out. Weights that need not sum to 1 may come within half of it.",
    TOP_K,
)
def least_variation() -> Iterator[Check]:
    """Compare with the mass off the support, other supports, and exact weights not renormalised."""
    gap, better, halves = 0.0, 0, []
    for head in _heads():
        for Q, K in _rows(head):
            weights = np.sort(exact.softmax(Q, K)[0])[::-1]
            tail = float(weights[16:].sum())
            found = _tv("top_k(k=16)", Q, K)
            gap = max(gap, abs(found - tail))
            others = ("sink_window(k=16)", "random(k=16)", "columns(k=16, recent=8)")
            better += sum(_tv(spec, Q, K) < found - TIGHT for spec in others)
            halves.append(float(np.abs(weights[16:]).sum()) / 2 / found)
    yield at_most("largest difference of tv and the mass left out", TIGHT, gap)
    yield equal("other supports of 16 keys that are nearer, of 48", 0, better)
    yield near("tv without renormalising, over it", 0.5, float(np.mean(halves)), TIGHT)


def _tv(spec: str, Q: Array, K: Array) -> float:
    return metrics.compare(parse(spec).approximate(Q, K, rng=0), Q, K)["attention_tv"]
