"""Boxes around the keys of a page, and the lower and upper bounds of q·k in a box."""

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array


def page_boxes(K: ArrayLike, size: int) -> tuple[Array, Array]:
    """Return lo and hi, (pages, d) each, with lo ≤ k ≤ hi for the keys of each page.

    Page p holds the keys size·p ≤ j < size·(p + 1); the last page may be shorter.
    """
    keys = checks.array("K", K, ndim=2)
    starts = np.arange(0, len(keys), checks.integer("size", size, least=1))
    return np.minimum.reduceat(keys, starts), np.maximum.reduceat(keys, starts)


def highest(Q: Array, lo: Array, hi: Array) -> Array:
    """Return max q·x over each box, Σ_c max(q_c lo_c, q_c hi_c), (n, boxes), up to rounding.

    For −Q it is minus the minimum.
    """
    return np.asarray(np.maximum(Q, 0) @ hi.T + np.minimum(Q, 0) @ lo.T)


def bounds(Q: ArrayLike, lo: ArrayLike, hi: ArrayLike) -> tuple[Array, Array]:
    """Return lower and upper bounds of q·k for all k with lo ≤ k ≤ hi, (n, boxes) each.

    Parameters
    ----------
    Q : (n, d)
    lo, hi : (boxes, d)
        Boxes as `page_boxes` returns them, lo ≤ hi.

    Returns
    -------
    lower, upper : (n, boxes) float64
        Σ_c min(q_c lo_c, q_c hi_c) and Σ_c max(q_c lo_c, q_c hi_c), rounded outwards.

    Raises
    ------
    ValueError
        The shapes do not fit, or an entry of lo is above hi.

    Notes
    -----
    The bounds hold for the exact q·k. They also hold for q·k computed in the precision of the
    inputs (float32 if all are), with its products added in any order. Corners of the box attain
    both, up to rounding; a corner need not be a key.

    References
    ----------
    .. [1] J. Tang et al., "Quest: query-aware sparsity for efficient long-context LLM inference",
       ICML 2024, Algorithm 1: the upper bound.
    .. [2] N. J. Higham, "Accuracy and stability of numerical algorithms", SIAM 2002, section 3.1.
    """
    q, low = checks.queries_keys(Q, lo)
    _, high = checks.queries_keys(Q, hi)
    if low.shape != high.shape or (low > high).any():
        raise ValueError(
            f"lo and hi must have one shape and lo <= hi, got {low.shape} and {high.shape}"
        )
    dtype = np.finfo(np.result_type(q, low, high))
    q, low, high = (x.astype(np.float64) for x in (q, low, high))
    size = np.abs(q) @ np.maximum(np.abs(low), np.abs(high)).T
    # Let S = Σ_c max(|q_c lo_c|, |q_c hi_c|) and u = eps/2. A sum of d products in any order is off
    # by at most γ_d S, γ_d = d·u/(1 − d·u) [2]. `highest` adds two such sums of d products, half of
    # which are 0: γ_{d+1} S. A computed q·k exceeds the exact one by at most γ_d S. The last sum
    # rounds by u·(S + margin), and `size` is S up to γ_d S. Together this is
    # (2d + 2)·u·S·(1 + O(d·u)), below (2d + 6)·u·S = (d + 3)·eps·S for d·d·u < 1/2. A product that
    # underflows is off by less than the smallest normal number.
    margin = (q.shape[1] + 3) * (float(dtype.eps) * size + float(dtype.tiny))
    return -(highest(-q, low, high) + margin), highest(q, low, high) + margin
