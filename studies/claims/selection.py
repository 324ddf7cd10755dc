"""H2O, Quest, MInference, top-k and top-p attention: which keys are read."""

from collections.abc import Iterator

import numpy as np
from scipy.stats import norm

from analysis import inputs
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
from analysis.errors import metrics
from approx import parse
from approx.checks import Array, required
from approx.estimate import exact
from approx.estimate.approximation import Approximation
from approx.sparse.vertical_slash import BY
from approx.supports import boxes
from studies.claims.heads import attended_heads, causal_heads

H2O = "H2O (arXiv 2306.14048)"
MINFERENCE = "MInference (arXiv 2407.02490)"
MINFERENCE_CODE = "microsoft/MInference fb56c91, minference_forward.py"
QUEST = "Quest (arXiv 2406.10774)"
TOP_K = "arXiv 2512.07647, abstract"


def _rows(head: inputs.Head, count: int = 4) -> Iterator[tuple[Array, Array]]:
    """Yield some queries of a causal head, each with the keys that it sees."""
    for i in np.linspace(head.n // 4, head.n - 1, count).astype(int):
        yield head.Q[i : i + 1], head.K[: i + 1]


# H2O


@claim(
    "H2O-1",
    H2O + ", abstract: a small portion of tokens contributes most; FMInference/H2O ac75c2a, "
    "utils_real_drop/modify_llama.py:271",
)
def best_columns() -> Iterator[Check]:
    """H2O keeps the columns with the most attention so far. Of the 32 best columns it keeps over
    half at token 128 of SmolLM2, but a third at token 512: an evicted key does not come back."""
    shares: dict[int, list[float]] = {127: [], 511: []}
    for head, weights in attended_heads():
        support = required(head.approximate(parse("columns(k=64, by='h2o', recent=32)")).sparse)
        far = np.tril(weights, -32)
        for place, found in shares.items():
            best = np.argsort(-far[: place + 1, : place - 31].sum(axis=0))[:32]
            row = support.indices[support.indptr[place] : support.indptr[place + 1]]
            found.append(float(np.isin(best, row).mean()))
    early, late = (float(np.mean(found)) for found in shares.values())
    yield above("share of the 32 best columns that is kept, token 128, mean of 4 heads", 0.5, early)
    yield without(above("the same, token 512", 0.5, late))


@claim("H2O-2", H2O + ", abstract: a balance of recent and heavy-hitter tokens")
def heavy_hitters() -> Iterator[Check]:
    """On three of four heads of SmolLM2, heavy hitters with recent keys hold more attention than
    recent keys alone, and than sinks with a window. On the broad head they do not. The best columns
    hold more than H2O on all four."""
    wins, gap = {"sliding_window(width=64)": 0, "sink_window(k=64)": 0}, []
    for head, weights in attended_heads():
        kept = _held(head, weights, "columns(k=64, by='h2o', recent=32)")
        gap.append(_held(head, weights, "columns(k=64, recent=32)") - kept)
        for spec in wins:
            wins[spec] += kept > _held(head, weights, spec)
    recent, sinks = wins.values()
    yield above("heads of 4, against recent keys", 2, recent)
    yield above("heads of 4, against sinks and window", 2, sinks)
    yield above("least that the best columns hold above H2O", 0.0, min(gap))
    yield without(equal("heads of 4, against sinks and window, if on all", 4, sinks))


@claim(
    "H2O-Ea",
    H2O + "; FMInference/H2O ac75c2a, utils_real_drop/modify_llama.py:317; "
    "NVIDIA/kvpress 8bb29b9, observed_attention_press.py",
)
def early_keys() -> Iterator[Check]:
    """Do not identify heavy hitters by the sum of the attention received: it favours early keys. In
    uniform causal attention key j receives 1/j + … + 1/n, and its mean over the queries falls with
    j too."""
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


@claim("DROPKV-1", "DropKV, NVIDIA/kvpress#284: the residual of one evicted key, and a score of it")
def evicted_sets() -> Iterator[Check]:
    """Without key j the output is o + p_j/(1 − p_j)·(o − v_j). Without the keys of a set it is
    o + Σ p_j (o − v_j)/(1 − Σ p_j), sums over the set, and not o plus the changes by its keys."""
    one, every, apart = 0.0, 0.0, []
    for head, weights in attended_heads():
        V, p = required(head.V), weights[-1]
        best = np.argsort(-p)

        def output(kept: Array, p: Array = p, V: Array = V) -> Array:
            return np.asarray(p[kept] @ V[kept] / p[kept].sum())

        o = p @ V
        single = (p / (1 - p))[:, None] * (o - V)
        for some in (best[:1], best[1:2], best[64:65]):
            moved = output(np.delete(best, np.flatnonzero(np.isin(best, some)))) - o
            one = max(one, difference(single[some].sum(axis=0), moved))
        some = best[1:33]  # the sink of attention stays
        moved = output(np.setdiff1d(best, some)) - o
        every = max(every, difference((p[some] @ (o - V[some])) / (1 - p[some].sum()), moved))
        apart.append(
            float(np.linalg.norm(single[some].sum(axis=0) - moved) / np.linalg.norm(moved))
        )
    few_digits = 1e-9  # a change of 1e-6 of the output keeps ten digits
    yield at_most("difference, one key", few_digits, one)
    yield at_most("difference, 32 heaviest keys but one", few_digits, every)
    yield above("relative gap of the sum of single changes, least of 4 heads", 0.01, min(apart))
    yield above("largest of 4 heads", 0.1, max(apart))


# Quest


@claim("QUEST-1", QUEST + "; mit-han-lab/Quest 01c1623, evaluation/quest_attention.py:146")
def box() -> Iterator[Check]:
    """For the keys of a page, q·k is at most Σ_c max(q_c lo_c, q_c hi_c), where lo and hi are their
    least and greatest coordinates. For a page of one key the two are equal."""
    above_it, worst = 0, 0.0
    for head in causal_heads():
        logits = exact.logits(head.Q, head.K)
        _, upper = boxes.bounds(head.Q, *boxes.page_boxes(head.K, 16))
        above_it += int((logits > np.repeat(upper, 16, axis=1)).sum())
        _, alone = boxes.bounds(head.Q, *boxes.page_boxes(head.K, 1))
        worst = max(worst, difference(alone, logits))
    yield equal("entries above the bound of their page, of 4 heads", 0, above_it)
    yield at_most("difference, pages of one key", TIGHT, worst)


@claim("QUEST-2", QUEST + ", abstract")
def critical_pages() -> Iterator[Check]:
    """The pages with the highest bounds hold more attention than as many first and last keys. This
    holds for 8 pages of 16 keys, the current page included, but not for 4. The best 4 pages hold
    more."""
    sizes = {64: 0, 128: 0}
    best = 0
    for head, weights in attended_heads():
        for k in sizes:
            least = _held(head, weights, f"sink_window(k={k})")
            sizes[k] += _held(head, weights, f"pages(k={k}, current=True)") > least
            if k == 64:
                best += _held(head, weights, "pages(k=64, by='mass')") > least
    yield equal("heads of 4, 8 pages", 4, sizes[128])
    yield equal("heads of 4, the best 4 pages", 4, best)
    yield without(equal("heads of 4, 4 pages", 4, sizes[64]))


def _held(head: inputs.Head, weights: Array, spec: str) -> float:
    """Return the mean share of attention on a support, of softmax rows."""
    support = required(head.approximate(parse(spec), rng=0).sparse)
    rows = np.repeat(np.arange(head.n), np.diff(support.indptr))
    return float(weights[rows, support.indices].sum()) / head.n


# MInference


def _lines(vertical: int, slashes: int, fields: str = "") -> str:
    """Return the spec of so many vertical lines and slashes, of a text that is 30000 tokens long.

    Counts are those of the code, cut down to 512 tokens: its search uses texts of 30000.
    """
    v, s = (max(1, round(count * 512 / 30000)) for count in (vertical, slashes))
    return f"vertical_slash(k={v + s}, vertical={v / (v + s)}{fields})"


@claim(
    "MINF-1", MINFERENCE + ", abstract: the sparse index built online; " + MINFERENCE_CODE + ":381"
)
def lines_of_the_last() -> Iterator[Check]:
    """The lines that the last 64 queries choose hold nearly as much attention as the best lines.
    They hold 85 % and more of it on heads of SmolLM2 with a sink or a window, two thirds on a broad
    head."""
    shares = {}
    for head, weights in attended_heads():
        found, best = (_held(head, weights, f"vertical_slash(k=64, by='{by}')") for by in BY)
        shares[head.name] = found / best
    broad = shares.pop("SmolLM2 broad")
    yield above("least share of the best, 3 heads", 0.85, min(shares.values()))
    yield without(above("share of the best, broad head", 0.85, broad))


@claim("MINF-Ea", MINFERENCE_CODE + ":224")
def overwritten() -> Iterator[Check]:
    """Return the pattern that the search found best. Where blocks were best, the code returns 1000
    verticals and 6096 slashes, which have more entries than the eighth of the blocks that was
    found."""
    candidates = [_lines(*sizes) for sizes in ((30, 800), (100, 750), (500, 700), (3500, 100))]
    candidates.append("sink_window(k=15, sinks=2)")
    blocks, ratios = "pages(k=64, by='mean')", []
    for head, weights in attended_heads():
        held = [_held(head, weights, spec) for spec in candidates]
        if _held(head, weights, blocks) > max(held):
            entries = [_entries(head, spec) for spec in (_lines(1000, 6096), blocks)]
            ratios.append(entries[0] / entries[1])
    yield equal("heads of 4 where blocks hold most", 2, len(ratios))
    yield printed(near("entries run over entries found, least", 1.0, min(ratios), 0.1))


def _entries(head: inputs.Head, spec: str) -> int:
    return head.approximate(parse(spec), rng=0).nnz


@claim("MINF-Ed", MINFERENCE_CODE + ":144 and :392")
def slashes_left() -> Iterator[Check]:
    """Force the same number of nearest slashes in the search and in the kernel. Of 100 slashes the
    search takes the 30 nearest and leaves 70 to attention; the kernel takes the 100 nearest and
    leaves none."""
    head = causal_heads(512)[1]
    for recent, wrap in ((30, None), (100, printed)):
        spec = f"vertical_slash(k=101, vertical={1 / 101}, recent={recent}, sinks=1)"
        support = required(head.approximate(parse(spec)).sparse)
        i = np.repeat(np.arange(head.n), np.diff(support.indptr))
        far = np.unique((i - support.indices)[(support.indices > 0) & (i - support.indices >= 100)])
        check = above(f"distances from 100 on, {recent} taken always", 0, len(far))
        yield wrap(check) if wrap else check


@claim("MINF-Ee", MINFERENCE_CODE + ":235")
def unscaled_search() -> Iterator[Check]:
    """Find lines by attention, the softmax of q·k/√d. The second search leaves out 1/√d, and its
    lines hold less on all four heads of SmolLM2."""
    no_less = 0
    for head, weights in attended_heads():
        cold = head.at_temperature(head.d**-0.5).approximate(parse("vertical_slash(k=64)"))
        held = 1 - float(_left_out(cold, weights).mean())
        no_less += held >= _held(head, weights, "vertical_slash(k=64)")
    yield printed(equal("heads of 4 where unscaled lines hold no less", 4, no_less))
    yield equal("heads of 4 where they hold less", 4, 4 - no_less)


# Top-k and top-p


@claim("TOPP-1", TOP_K)
def total_variation() -> Iterator[Check]:
    """Attention restricted to some keys and renormalised has tv = 1 − e^{−KL(restricted ‖ exact)}
    in every row. For means over rows this is only an upper bound."""
    each = []
    for head in causal_heads():
        for spec in ("top_k(k=16)", "sink_window(k=16)", "random(k=16)"):
            for Q, K in _rows(head):
                errors = metrics.compare(parse(spec).approximate(Q, K, rng=0), Q, K)
                each.append((errors["attention_tv"], errors["attention_kl_reverse"]))
    tv, kl = np.array(each).T
    yield at_most("largest difference, rows", TIGHT, float(np.abs(tv + np.expm1(-kl)).max()))
    bound = -float(np.expm1(-kl.mean()))
    yield at_most("mean tv over the bound", 1.0, float(tv.mean()) / bound)
    yield without(near("mean tv over the bound, if equal", 1.0, float(tv.mean()) / bound, 1e-3))


@claim("TOPP-2", TOP_K)
def error_of_the_output() -> Iterator[Check]:
    """The output of restricted attention is off by tv·|μ_tail − μ_head|. Here μ_tail and μ_head are
    the means of V over the omitted and the kept keys, weighted by attention."""
    worst = 0.0
    for head, weights in attended_heads(256):
        V = required(head.V)
        estimate = head.approximate(parse("top_k(k=8)"))
        on = required(estimate.sparse).toarray() != 0
        tail, kept = np.where(on, 0, weights)[8:], np.where(on, weights, 0)[8:]
        tv = tail.sum(axis=1)
        means = [part @ V / part.sum(axis=1, keepdims=True) for part in (tail, kept)]
        predicted = tv * np.linalg.norm(means[0] - means[1], axis=1)
        exactly = exact.attention(head.Q, head.K, V, mask=head.mask)
        off = np.linalg.norm(estimate.attend(V) - exactly, axis=1)[8:]
        worst = max(worst, difference(off, predicted))
    yield at_most("largest difference", 1e-10, worst)


@claim("TOPP-3", TOP_K)
def least_variation() -> Iterator[Check]:
    """Of supports of k keys, renormalised, the k largest have the least tv: the omitted mass."""
    gap, better = 0.0, 0
    for head in causal_heads():
        for Q, K in _rows(head):
            weights = np.sort(exact.softmax(Q, K)[0])[::-1]
            tail = float(weights[16:].sum())
            found = _tv("top_k(k=16)", Q, K)
            gap = max(gap, abs(found - tail))
            others = ("sink_window(k=16)", "random(k=16)", "columns(k=16, recent=8)")
            better += sum(_tv(spec, Q, K) < found - TIGHT for spec in others)
    yield at_most("largest difference of tv and the mass left out", TIGHT, gap)
    yield equal("other supports of 16 keys that are nearer, of 48", 0, better)


def _tv(spec: str, Q: Array, K: Array) -> float:
    return metrics.compare(parse(spec).approximate(Q, K, rng=0), Q, K)["attention_tv"]


@claim("TOPP-4", TOP_K)
def gaussian_law() -> Iterator[Check]:
    """For Gaussian logits of deviation σ, a tv of ε needs the share Φ_c(σ + Φ⁻¹(ε)) of the keys if
    n·e^{−σ²} is large. Many keys, n·share ≫ 1, are not enough."""
    n, rng = 2**16, np.random.default_rng(0)
    for deviation, error in ((1.0, 0.5), (2.0, 0.1), (2.0, 0.5), (3.0, 0.5)):
        logits = deviation * rng.standard_normal((n, 1))
        keys = parse(f"top_p(p={1 - error})").approximate([[1.0]], logits).nnz
        law = n * float(norm.sf(deviation + norm.ppf(error)))
        check = near(f"keys over the law, σ = {deviation:g}, ε = {error}", 1.0, keys / law, 0.1)
        if deviation < 3:
            yield check
        else:
            yield above("keys by the law, σ = 3, ε = 0.5", 50, law)
            yield without(check)


@claim("TOPP-5", "Twilight (arXiv 2502.02770), abstract: adaptive budgets")
def adaptive_budgets() -> Iterator[Check]:
    """If each row keeps as many keys as hold the share p of attention, tv ≤ 1 − p in every row. The
    same average number of keys, equal in all rows, does not ensure this and has a larger mean tv.
    """
    worst = {"top_p": 0.0, "top_k": 0.0}
    less = 0
    for head, weights in attended_heads():
        adaptive = head.approximate(parse("top_p(p=0.9)"))
        k = round(adaptive.nnz / head.n)
        rows = [_left_out(x, weights) for x in (adaptive, head.approximate(parse(f"top_k(k={k})")))]
        worst = {name: max(worst[name], float(tv.max())) for name, tv in zip(worst, rows)}
        less += rows[0].mean() < rows[1].mean()
    yield at_most("largest tv of a row, p = .9", 0.1 + TIGHT, worst["top_p"])
    yield equal("heads of 4 with less mean tv than top-k", 4, less)
    yield without(at_most("largest tv of a row, top-k", 0.1 + TIGHT, worst["top_k"]))


def _left_out(estimate: Approximation, weights: Array) -> Array:
    """Return the attention off the support of each row."""
    assert estimate.sparse is not None
    counts = np.diff(estimate.sparse.indptr)
    rows = np.repeat(np.arange(len(weights)), counts)
    held = np.bincount(rows, weights[rows, estimate.sparse.indices], len(weights))
    return np.asarray(1 - held)
