"""The same few keys for every query, and the last ones: the best that eviction could keep."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from approx import exact
from approx._elementary import exp_rows
from approx.checks import Array
from approx.fields import one_of, whole
from approx.masks import Mask
from approx.method import Size
from approx.sparse import patterns
from approx.sparse.patterns import Pattern
from approx.sparse.sliding_window import window
from approx.sparse.support import SupportMethod

BY = ("mass",)


@dataclasses.dataclass(frozen=True)
class Columns(SupportMethod):
    """The keys that get the most attention from all queries, and a window, exact (an oracle).

    estimate_ij = exp(q_i·k_j) where j is one of the k − recent keys with the largest
    Σ_i softmax_ij, or one of the last keys that query i sees, else 0.

    Parameters
    ----------
    k : int, optional
        Most entries per row, recent ones included, recent ≤ k ≤ l; None is a template.
    by : {"mass"}
        How keys are chosen: by the attention that they get outside the window.
    recent : int
        Last keys of every query, as in `sliding_window`, ≥ 0.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. Its total
    variation from exact attention is what is off the support, so that no other k − recent columns
    beside the same window are nearer. It is an oracle, and not autoregressive: a column is chosen
    by queries that come after the one that uses it. A row has fewer entries where it does not see
    all of the columns, or where they lie in its window.
    Cost: 2·n·l·d operations to find the columns, by row stripes; at most n·k numbers.
    The heavy hitters of [1]_ are the same, but found greedily and from the past.

    References
    ----------
    .. [1] Z. Zhang et al., "H2O: heavy-hitter oracle for efficient generative inference of large
       language models", NeurIPS 2023, section 4.

    Examples
    --------
    >>> x = [[0.0], [0.0], [0.0]]
    >>> Columns(k=2, recent=1).approximate(x, x, mask="causal").to_dense()
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 0., 1.]])
    """

    name: ClassVar[str] = "columns"
    oracle = True  # choosing the keys costs what they would save

    k: int | None = None
    by: str = one_of("mass", BY)
    recent: int = whole(0, least=0)

    @property
    def sized_by(self) -> Size:
        """The keys per row, which are at least the recent ones."""
        return Size("k", least=max(self.recent, 1), counts="entries")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.k < self.recent:
            raise ValueError(
                f"k counts the recent keys too, so it must be >= {self.recent}, got {self.k}"
            )

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        """Return the columns and the window."""
        n, l = mask.shape
        first, last = window(mask, self.recent)
        mass = _mass(Q, K, mask, first, last)
        chosen = np.sort(np.argsort(-mass, kind="stable")[: (self.k or 0) - self.recent])
        columns = np.arange(n + 1) * len(chosen), np.tile(chosen, n)
        return patterns.union([patterns.runs(first, last), columns], l)


def _mass(Q: Array, K: Array, mask: Mask, first: Array, last: Array) -> Array:
    """Return the attention that each key gets, (l,), but for queries with first ≤ j < last."""
    mass = np.zeros(len(K))
    log_sums = exact.log_row_sums(Q, K, mask=mask)
    for rows in exact.stripes(*mask.shape):
        x = np.asarray(exact.seen_logits(Q, K, mask, rows), np.float64)
        exp_rows(x, log_sums[rows])
        cols = mask.span(rows)
        keys = np.arange(cols.start, cols.stop)
        x[(first[rows, None] <= keys) & (keys < last[rows, None])] = 0.0
        mass[cols] += x.sum(axis=0)
    return mass
