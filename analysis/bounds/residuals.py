"""Residuals of a decomposition in each row, and the bound on total variation that they give."""

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from approx import Approximation, checks
from approx.checks import Array
from approx.estimate import exact
from approx.hierarchical.levels import Levels
from approx.supports.key_boxes import EPS, EXP, TINY, lengths


@dataclasses.dataclass(frozen=True, eq=False)
class OffSupport:
    """The residual of a decomposition in each row. It needs all logits.

    Attributes
    ----------
    tv : (n,)
        ½(Σ_B √|B|·‖residual row of block B‖₂ + |difference of the row sums|)/row sum, an upper
        bound of total variation; inf if the row sum may be ≤ 0, and ≥ 1 for a row of zeros.
    difference : (n,)
        An upper bound of ½ Σ_j |estimate − exact| of the row that multiplies the values: tv in
        kernel space, ½ Σ_B √|B|·‖residual row of block B‖₂ of rows that are not divided.
    blocks : (n,)
        The number of norms and sums that the bound uses: one for each block of the row, and one
        for the row sum.
    """

    tv: Array
    difference: Array
    blocks: Array


def off_support(estimate: Approximation, Q: ArrayLike, K: ArrayLike) -> OffSupport:
    """Return the residual of an estimate in each row, from all logits.

    Whoever makes a decomposition knows the norms of the residual's rows and the row sums at that
    time. The blocks are those of a hierarchical estimate; otherwise a whole row is one block.

    Notes
    -----
    ‖row of exact − estimate‖₁ ≤ Δ = Σ_B √|B|·‖row in block B‖₂ by the Cauchy–Schwarz inequality,
    with |B| the number of the block's visible keys. A truncated SVD knows these norms from its
    residual singular values and left vectors. If A and B > 0 are the row sums of the exact row and
    of the estimate, whose entries may be negative, then tv ≤ ½(Δ + |A − B|)/B. Of a mechanism,
    whose rows are used as they are, tv ≤ Δ/2. Cost: O(n·l·d), by row stripes.

    Examples
    --------
    >>> from approx import parse
    >>> x = [[0.0], [1.0]]
    >>> estimate = parse("truncated_svd(rank=1, space='attention')").approximate(x, x)
    >>> off_support(estimate, x, x).tv.round(3)
    array([0.155, 0.125])
    """
    q, k = (x.astype(np.float64) for x in queries_keys(estimate, Q, K))
    parts = [_dropped(estimate, q, k, rows) for rows in exact.stripes(len(q), len(k))]
    return OffSupport(*(np.concatenate(x) for x in zip(*parts)))


def queries_keys(estimate: Approximation, Q: ArrayLike, K: ArrayLike) -> tuple[Array, Array]:
    """Return Q and K, checked; raise ValueError if their numbers are not the estimate's shape."""
    checks.instance("estimate", estimate, Approximation, "an Approximation")
    q, k = checks.queries_keys(Q, K)
    if estimate.shape != (len(q), len(k)):
        raise ValueError(
            f"the estimate has shape {estimate.shape}, Q and K give {(len(q), len(k))}"
        )
    if estimate.sink > -np.inf:
        raise ValueError("these bounds do not know attention sinks: make the estimate without sink")
    return q, k


def _dropped(
    estimate: Approximation, q: Array, k: Array, rows: slice
) -> tuple[Array, Array, Array]:
    mask, l = estimate.mask.take(rows), len(k)
    x = q[rows] @ k.T
    e = (q.shape[1] + 4) * (EPS * (np.abs(q[rows]) @ np.abs(k).T) + TINY)
    mask.hide(x, fill=-np.inf)
    shift = np.asarray(estimate.row_log(rows), np.float64)
    near = EXP + (l + 16) * EPS
    if estimate.space == "attention":
        top = x.max(axis=1)
        log = top + np.log(np.exp(x - top[:, None]).sum(axis=1))
        # the error of a softmax entry: its logit's, the largest logit error in the sum, roundings
        mask.hide(e)
        e += e.max(axis=1, keepdims=True) + near + 4 * EPS * np.abs(log)[:, None]
        x, scale = x - log[:, None], np.zeros(len(x))
    else:
        scale = np.maximum(x.max(axis=1), shift)
    a = np.exp(x - scale[:, None])
    b = estimate.block(rows, shift=estimate.row_log(rows)).astype(np.float64)
    b *= np.exp(np.minimum(shift - scale, 709.0))[:, None]
    off = a * (2 * np.expm1(np.minimum(e, 700.0)) + EXP) + np.abs(b) * EXP + TINY
    mask.hide(off)
    residual = np.abs(a - b) + off
    delta, blocks = np.zeros(len(x)), np.zeros(len(x), int)
    for taken, keys in _blocks(estimate, rows):
        part = residual[taken, keys] if isinstance(keys, slice) else residual * keys
        size = part.shape[1] if isinstance(keys, slice) else keys.sum(axis=1)
        delta[taken] += np.sqrt(size) * lengths(part) * (1 + near)
        blocks[taken] += size > 0
    spread, half = off.sum(axis=1), delta / 2 * (1 + near)
    if estimate.space == "attention" and not estimate.fitted:
        return np.where(b.any(axis=1), half, np.maximum(half, 1.0)), half, blocks
    A, B = a.sum(axis=1), b.sum(axis=1)
    slack = near * np.abs(b).sum(axis=1)
    least = B - slack
    over = (delta + np.abs(A - B) + spread + slack + near * A) / 2 * (1 + near)
    with np.errstate(over="ignore"):  # a sum that rounding could make 0
        tv = np.where(least > 0, over / np.where(least > 0, least, 1), np.inf)
    if estimate.fitted:
        return np.where(b.any(axis=1), tv, np.maximum(half, 1.0)), half, blocks + 1
    return tv, tv, blocks + 1


def _blocks(estimate: Approximation, rows: slice) -> Iterator[tuple[Array | slice, Array | slice]]:
    """Yield blocks as (rows of a stripe, keys); the last has all rows and the remaining keys."""
    rest = estimate.mask.take(rows).visible()
    if isinstance(estimate.low, Levels):
        partition = estimate.low.partition
        for level in partition.levels:
            for block, pairs in level.groups:
                taken = level.rows[pairs]
                taken = taken[(rows.start <= taken) & (taken < rows.stop)] - rows.start
                keys = partition.keys(level, block)
                rest[taken, keys] = False
                if len(taken):
                    yield taken, keys
    yield slice(None), rest
