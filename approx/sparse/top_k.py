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
from approx.sparse.support import SupportMethod


@dataclasses.dataclass(frozen=True)
class TopK(SupportMethod):
    """The k largest entries of each row, exact; the best support of its size (an oracle).

    estimate_ij = exp(q_i·k_j) where q_i·k_j is among the k largest of row i, else 0.

    Parameters
    ----------
    k : int, optional
        Entries per row, 1 ≤ k ≤ l; None is a template.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. It
    minimises the Frobenius error of each row among supports of k entries.
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

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        """Return the k largest logits of each row."""
        n, l, k = len(Q), len(K), self.k or 0
        indices = np.empty((n, k), np.int32)
        for rows in exact.stripes(n, l):
            logits = Q[rows] @ K.T
            indices[rows] = np.argpartition(logits, l - k, axis=1)[:, l - k :]
        return np.arange(0, n * k + 1, k), indices.ravel()
