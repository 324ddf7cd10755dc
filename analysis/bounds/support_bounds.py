"""The least attention that a support can lose, by how free the choice of its keys is.

If a row w_i is 0 off a set of keys and sums to 1, then Σ_j |w_ij − p_ij| ≥ |Σ_kept (w_ij − p_ij)| +
Σ_lost p_ij, which is twice the attention p_i that is lost. So the total variation of the row is at
least what it loses, also where entries are negative, and exactly that for softmax on the set. Where
a row need not sum to 1 it is at least half of that.

Each function returns what no choice of a kind loses less of, on average over rows under the mask of
the head, rounded down (`analysis.ranks.attention_weights.Weights.slack`).
"""

import math
from typing import Any

import numpy as np

from analysis.ranks.attention_weights import Weights
from approx import Mask, checks
from approx.checks import Array
from approx.kernels.jit import kernel
from approx.sparse import vertical_slash
from approx.supports.eviction import Blocks, Limits

ROUNDS = 80  # of prices; on 15 heads of SmolLM2 they then lose 0.2 % less than the best, at most


def entries(weights: Weights, count: int) -> float:
    """Return the attention that any support of so many entries loses, on average over rows.

    It holds the largest of all rows at most, however they are shared out among them.

    Examples
    --------
    One row attends to one key, the other to all four:

    >>> flat = Weights([[900.0], [0.0]], [[1.0], [0.0], [0.0], [0.0]])
    >>> [round(entries(flat, count), 3) for count in (0, 1, 3, 5)]
    [1.0, 0.5, 0.25, 0.0]
    """
    return weights.lost(weights.largest(checks.integer("count", count, least=0)))


def keys(weights: Weights, k: int) -> float:
    """Return the attention that any support of at most k keys in each row loses, on average.

    `top_k` loses as much.

    Examples
    --------
    >>> flat = Weights([[900.0], [0.0]], [[1.0], [0.0], [0.0], [0.0]])
    >>> [round(keys(flat, k), 3) for k in (1, 2, 4)]
    [0.375, 0.25, 0.0]
    """
    checks.integer("k", k, least=0)
    return weights.lost(sum(_best(P, k) for _, P in weights.stripes()))


def _best(P: Array, k: int) -> float:
    """Return the sum of the k largest of each row."""
    if k <= 0:
        return 0.0
    rest = P.shape[1] - k
    return float((P if rest <= 0 else np.partition(P, rest, axis=1)[:, rest:]).sum())


def columns(weights: Weights, k: int) -> float:
    """Return what any one set of keys for all queries loses, beside a window: k keys in all.

    For every r ≤ k it takes windows of the r last keys (those around the position under a mask that
    does not look back), and the k − r keys with the most attention of the queries in whose window
    they are not. The least of these losses is attained by some r. Under a mask a set of keys of
    whom some are not seen is still a set of k keys.

    Examples
    --------
    >>> flat = Weights([[0.0]] * 4, [[0.0]] * 4, mask="causal")
    >>> [round(columns(flat, k), 3) for k in (0, 1, 2)]  # 1 + 1/2 + 1/3 + 1/4 in the first column
    [1.0, 0.479, 0.208]
    """
    checks.integer("k", k, least=0)
    n, l = weights.mask.shape
    k = min(k, l)
    mass = np.zeros(l)
    places, near = _windows(weights.mask, k)
    inside = np.zeros((n, k))
    for rows, P in weights.stripes():
        mass += P.sum(axis=0)
        inside[rows] = np.where(near[rows], np.take_along_axis(P, places[rows], axis=1), 0.0)
    held, most = 0.0, 0.0
    for r in range(k + 1):
        most = max(most, held + _best(mass[None], k - r))
        if r < k:
            mass -= np.bincount(places[:, r], inside[:, r], minlength=l)
            held += float(inside[:, r].sum())
    return weights.lost(most)


def _windows(mask: Mask, k: int) -> tuple[Array, Array]:
    """Return the key by which a window of r keys grows to r + 1, (n, k), and whether it is seen."""
    r = np.arange(k)
    steps = -r if mask.looks_back else np.where(r % 2, -(r + 1) // 2, r // 2)
    start = mask.stop - 1 if mask.looks_back else mask.positions
    places = start[:, None] + steps
    seen = (mask.first[:, None] <= places) & (places < mask.stop[:, None])
    return np.where(seen, places, 0), seen


def blocks(weights: Weights, k: int, block: int) -> float:
    """Return what any sets of keys lose that are chosen anew whenever `block` more keys have come.

    A query reads k − block of the keys before its block, whichever they are, and those of its block
    up to its own. ``columns(by="mass", block=block)`` loses as much without sinks. A set may hold
    keys that the one before has not, so that it need not be what a cache still has (`evicting`).

    Examples
    --------
    >>> q = [[900.0], [-900.0], [900.0]]
    >>> ask = Weights(q, [[1.0], [-1.0], [0.0]], mask="causal")
    >>> round(blocks(ask, 2, 1), 3), round(evicting(ask, 2), 3)
    (0.0, 0.0)
    """
    checks.integer("k", k, least=1)
    checks.integer("block", block, least=1, most=k)
    limits, held = Limits(k, block, 0, 1), 0.0
    cut = Blocks.from_mask(weights.mask, limits)
    for b in map(int, cut.filled()):
        mine, start = slice(cut.bounds[b], cut.bounds[b + 1]), limits.start(b)
        P = weights.rows(cut.order[mine])
        held += _best(P[:, :start].sum(axis=0)[None], k - block) if start else 0.0
        held += sum(float(row[start:end].sum()) for row, end in zip(P, cut.end[mine]))
    return weights.lost(held)


def evicting(weights: Weights, k: int) -> float:
    """Return what any cache of k keys loses, even of one who knows all later queries.

    Keys come in the order of their places, a query reads the cache, its own key included, and what
    is evicted does not come back. Let λ_i ≥ 0 be a price for a place in the cache while query i is
    answered. A key that stays for the queries i ≤ e earns Σ_{i ≤ e} (p_ij − λ_i), and so

        attention that is held ≤ k·Σ_i λ_i + Σ_j max(0, max_e Σ_{i ≤ e} (p_ij − λ_i))

    for all prices, by weak duality. With all prices at the k-th largest weight of a row this is not
    above what `keys` holds; subgradient steps towards a level that is hoped for improve them. The
    intervals make the linear program integral, so that the best prices give what the best eviction
    holds.

    Notes
    -----
    Cost: 80 passes over the weights; one, with the first prices, where they are not kept.

    Examples
    --------
    The first key is asked for again at the end; a cache of one key, which is always the query's
    own, has it once:

    >>> q = [[900.0], [-900.0], [900.0]]
    >>> ask = Weights(q, [[1.0], [-1.0], [0.0]], mask="causal")
    >>> round(keys(ask, 1), 3), round(evicting(ask, 1), 3)
    (0.0, 0.333)
    """
    checks.integer("k", k, least=1)
    mask = weights.mask
    end = mask.stop if mask.looks_back else np.minimum(mask.positions + 1, mask.stop)
    order = np.argsort(end, kind="stable")
    came, end = weights if (np.diff(order) == 1).all() else weights.take(order), end[order]
    price = np.zeros(mask.n)
    for rows, P in came.stripes():
        _kth_largest(P, end[rows], k, price[rows])
    least, failed, way = math.inf, 0, np.zeros(mask.n)
    hope = 0.0  # how much less the best prices are thought to give
    for step in range(ROUNDS if weights.is_stored else 1):
        held, stay = _earned(came, end, price)
        held += k * float(price.sum())
        if not step:
            hope = 0.05 * abs(mask.n - held) + 1e-3 * mask.n
        elif held < least - hope / 2:
            hope, failed = 2 * hope, 0
        elif held >= least:
            failed += 1
            if failed == 2:
                hope, failed = 0.7 * hope, 0
        least = min(least, held)
        way = np.where((price > 0) | (stay > k), stay - k, 0.0) + way / 2
        price = np.maximum(price + way * ((held - least + hope) / max(float(way @ way), 1.0)), 0.0)
    return weights.lost(least)


def _earned(weights: Weights, end: Array, price: Array) -> tuple[float, Array]:
    """Return what all keys earn at their best, and how many of them are in the cache of a query."""
    n, l = weights.mask.shape
    running, best, until = np.zeros(l), np.zeros(l), np.full(l, -1)
    for rows, P in weights.stripes():
        _stay(P, end[rows], price[rows], rows.start, running, best, until)
    begin = np.searchsorted(end, np.arange(l), "right")
    stays = until >= 0
    change = np.bincount(begin[stays], minlength=n + 1)
    change -= np.bincount(until[stays] + 1, minlength=n + 1)
    return float(best.sum()), np.cumsum(change)[:n]


@kernel
def _stay(P: Any, end: Any, price: Any, start: int, running: Any, best: Any, until: Any) -> None:
    for i in range(P.shape[0]):
        for j in range(end[i]):
            running[j] += P[i, j] - price[i]
            if running[j] > best[j]:
                best[j] = running[j]
                until[j] = start + i


def _kth_largest(P: Array, end: Array, k: int, out: Array) -> None:
    """Write the k-th largest weight of each row before its end; 0 where there are fewer."""
    for i, stop in enumerate(end):
        out[i] = np.partition(P[i, :stop], stop - k)[stop - k] if stop > k else 0.0


def pages(weights: Weights, count: int, size: int) -> float:
    """Return what any support of so many whole pages of keys in each row loses, on average.

    ``pages(by="mass")`` loses as much.

    Examples
    --------
    >>> flat = Weights([[0.0]], [[0.0]] * 8)
    >>> round(pages(flat, 1, 2), 3)
    0.75
    """
    checks.integer("count", count, least=0)
    checks.integer("size", size, least=1)
    starts = np.arange(0, weights.mask.l, size)
    sums = (np.add.reduceat(P, starts, axis=1) for _, P in weights.stripes())
    return weights.lost(sum(_best(page_boxes, count) for page_boxes in sums))


def lines(weights: Weights, k: int) -> float:
    """Return what any k lines, which are keys for all queries or diagonals, lose on average.

    Together they hold no more than the sums of the k lines with the most attention, and a row holds
    no more than its k largest weights. Neither is attained where lines cross.

    Examples
    --------
    >>> flat = Weights([[0.0]] * 3, [[0.0]] * 3, mask="causal")
    >>> [round(lines(flat, k), 3) for k in (1, 2)]  # the first key holds 1 + 1/2 + 1/3
    [0.389, 0.111]
    """
    checks.integer("k", k, least=0)
    nothing = np.zeros(0, int)
    sums = vertical_slash.sums(weights.Q, weights.K, weights.mask, nothing, nothing)
    return max(weights.lost(_best(np.concatenate(sums)[None], k)), keys(weights, k))
