"""Lower bounds on the attention that a support loses, for each way to choose its keys.

If a row w_i is 0 off a set of keys and sums to 1, then Σ_j |w_ij − p_ij| ≥ |Σ_kept (w_ij − p_ij)| +
Σ_lost p_ij, which is twice the lost attention of p_i. So the total variation of the row is at least
the lost attention, also if entries are negative, and equal to it for softmax on the set. If a row
need not sum to 1, it is at least half the lost attention.

Each function returns a lower bound of the lost attention over all supports of one kind: the mean
over rows, under the mask of the head, rounded down
(`analysis.ranks.attention_weights.Weights.slack`).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.ranks.attention_weights import Weights
from approx import Mask, checks
from approx.checks import Array
from approx.kernels.jit import kernel
from approx.sparse import vertical_slash
from approx.supports.eviction import Blocks, Limits

# steps of the prices; on 15 heads of SmolLM2 80 steps come within 0.2 % of the best bound
ROUNDS = 80


def entries(weights: Weights, count: int) -> float:
    """Return the least mean attention lost by a support with `count` entries in all rows together.

    The best such support holds the largest entries of the whole matrix.

    Examples
    --------
    One row attends to one key, the other to all four:

    >>> flat = Weights([[900.0], [0.0]], [[1.0], [0.0], [0.0], [0.0]])
    >>> [round(entries(flat, count), 3) for count in (0, 1, 3, 5)]
    [1.0, 0.5, 0.25, 0.0]
    """
    return weights.lost(weights.largest(checks.integer("count", count, least=0)))


def keys(weights: Weights, k: int) -> float:
    """Return the least mean attention lost by a support of at most k keys per row.

    `top_k` attains it.

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
    """Return the least mean attention lost by one set of keys for all queries plus a window.

    The set and the window have k keys together. For every r ≤ k the window holds the last r keys
    (those around the position if the mask does not look back). The set holds the k − r keys with
    the most attention from queries whose window does not contain them. The function returns the
    least loss over r. Keys of the set that a query does not see still count.

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
    """Return the key that extends a window from r to r + 1 keys, (n, k), and whether it is seen."""
    r = np.arange(k)
    steps = -r if mask.looks_back else np.where(r % 2, -(r + 1) // 2, r // 2)
    start = mask.stop - 1 if mask.looks_back else mask.positions
    places = start[:, None] + steps
    seen = (mask.first[:, None] <= places) & (places < mask.stop[:, None])
    return np.where(seen, places, 0), seen


def blocks(weights: Weights, k: int, block: int) -> float:
    """Return the least mean attention lost by sets of keys that are chosen anew for each block.

    A query reads any k − block of the keys before its block, and the keys of its block up to its
    own. ``columns(by="mass", block=block)`` without sinks attains it. A set may hold keys that the
    set before did not hold, so that a cache could not always provide it (`evicting` has that).

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
    """Return a lower bound on the mean attention lost by any cache of k keys with eviction.

    The bound holds even if the eviction knows all later queries. Keys enter the cache in order, a
    query reads the cache, its own key included, and an evicted key does not come back. Let λ_i ≥ 0
    be a price for a slot of the cache during query i. A key that stays for the queries i ≤ e earns
    Σ_{i ≤ e} (p_ij − λ_i). By weak duality, for all prices,

        held attention ≤ k·Σ_i λ_i + Σ_j max(0, max_e Σ_{i ≤ e} (p_ij − λ_i)).

    If each λ_i is the k-th largest weight of its row, the right side is at most the attention that
    `keys` holds. Subgradient steps towards a target level improve the prices. Each key stays for an
    interval of queries, so that the linear program is integral: with the best prices the bound is
    the attention that the best eviction holds.

    Notes
    -----
    Cost: 80 passes over the weights, or one pass, with the first prices, if the weights are not
    stored.

    Examples
    --------
    The last query attends to the first key again. A cache of one key always holds the query's own
    key, so that only the first query finds the first key:

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
    hope = 0.0  # the guess of how much lower the best prices are
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
    """Return the sum of the keys' best earnings, and the number of keys in each query's cache."""
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
    """Write the k-th largest weight of each row before its end; 0 if there are at most k."""
    for i, stop in enumerate(end):
        out[i] = np.partition(P[i, :stop], stop - k)[stop - k] if stop > k else 0.0


def pages(weights: Weights, count: int, size: int) -> float:
    """Return the least mean attention lost by a support of `count` whole pages of keys per row.

    ``pages(by="mass")`` attains it.

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
    """Return a lower bound on the mean attention lost by any k lines.

    A line is a key for all queries or a diagonal. Together, k lines hold at most the sum of the k
    lines with the most attention, and in each row at most its k largest weights. If lines cross,
    neither bound is attained.

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


BOUNDS: dict[str, Callable[..., float]] = {  # by the kind of `approx.sparse.support.Rivals`
    "columns": columns,
    "blocks": blocks,
    "evicting": evicting,
    "pages": pages,
    "lines": lines,
}
