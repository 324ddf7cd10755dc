"""The largest entries of each row, an oracle: finding them costs what they would save."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from approx import exact
from approx.checks import Array
from approx.masks import Mask
from approx.method import Size
from approx.sparse.patterns import Pattern
from approx.sparse.support import SupportMethod, by_stripes


@dataclasses.dataclass(frozen=True)
class TopK(SupportMethod):
    """The k largest entries of each row, exact; the best support of its size (an oracle).

    estimate_ij = exp(q_i·k_j) where q_i·k_j is among the k largest that query i sees, else 0.

    Parameters
    ----------
    k : int, optional
        Entries per row, 1 ≤ k ≤ l; None is a template.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. It
    minimises the Frobenius error of each row among supports of k entries, and its total variation
    from exact attention, which is the attention off the support: among weights on k keys that sum
    to 1 none is nearer. A row that sees fewer than k keys has all of them. Of equal logits under a
    mask the first are taken, so that later keys do not matter.
    Cost: 2·n·l·d operations to find the support, by row stripes; n·k numbers.

    References
    ----------
    .. [1] A. Gupta, G. Dar, S. Goodman, D. Ciprut, J. Berant, "Memory-efficient transformers via
       top-k attention", SustaiNLP 2021.

    Examples
    --------
    >>> TopK(k=1).approximate([[1.0]], [[0.0], [2.0]]).to_dense().round(3)
    array([[0.   , 7.389]])
    """

    name: ClassVar[str] = "top_k"
    sized_by = Size("k", counts="entries")
    oracle = True  # finding the entries costs what they would save

    k: int | None = None

    autoregressive = True
    row_local = True

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        """Return the k largest logits of each row."""
        n, l, k = len(Q), len(K), self.k or 0
        if mask.looks_back or not mask.is_full:
            return by_stripes(Q, K, mask, lambda x, rows: largest(x, k))
        indices = np.empty((n, k), np.int32)
        for rows in exact.stripes(n, l):
            logits = Q[rows] @ K.T
            indices[rows] = np.argpartition(logits, l - k, axis=1)[:, l - k :]
        return np.arange(0, n * k + 1, k), indices.ravel()


def largest(x: Array, k: int) -> Array:
    """Return whether each entry is among the k largest of its row, −inf apart; of equals the first.

    Examples
    --------
    >>> largest(np.array([[1.0, 2.0, 1.0, 1.0], [0.0, -np.inf, -np.inf, -np.inf]]), 2).astype(int)
    array([[1, 1, 0, 0],
           [1, 0, 0, 0]])
    """
    place = max(x.shape[1] - k, 0)
    level = np.partition(x, place, axis=1)[:, place, None]
    chosen = np.asarray(x >= level)
    # Few rows have equals for which there is no room, or see fewer than k.
    odd = np.flatnonzero((np.count_nonzero(chosen, axis=1) > k) | ~np.isfinite(level[:, 0]))
    y, level = x[odd], level[odd]
    above = y > level
    equal = (y == level) & np.isfinite(level)
    room = k - above.sum(axis=1, keepdims=True)
    chosen[odd] = above | (equal & (equal.cumsum(axis=1) <= room))
    return chosen
