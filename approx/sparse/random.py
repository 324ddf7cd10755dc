"""Keys at random, the support that every other must beat."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from approx._jit import kernel
from approx.checks import Array
from approx.masks import Mask
from approx.method import Size
from approx.sparse.patterns import Pattern
from approx.sparse.support import SupportMethod


@kernel
def _choose(uniform: Any, l: int, out: Any) -> None:
    """Choose k of l in every row without replacement (Floyd), in O(k) per row."""
    n, k = uniform.shape
    taken = np.zeros(l, np.bool_)
    for i in range(n):
        for c in range(k):
            last = l - k + c
            j = min(int(uniform[i, c] * (last + 1)), last)
            out[i, c] = last if taken[j] else j
            taken[out[i, c]] = True
        for c in range(k):
            taken[out[i, c]] = False


@dataclasses.dataclass(frozen=True)
class Random(SupportMethod):
    """Keys drawn uniformly without replacement, exact: BigBird's random part.

    estimate_ij = exp(q_i·k_j) where j is among k keys drawn for query i, else 0.

    Parameters
    ----------
    k : int, optional
        Entries per row, 1 ≤ k ≤ l; None is a template.

    Notes
    -----
    P[(i, j) in the support] = k/l, so the relative bias is k/l − 1 and the relative variance
    (k/l)(1 − k/l).
    Cost: O(n·k·d).

    References
    ----------
    .. [1] R. W. Floyd, in J. Bentley, "Programming pearls: a sample of brilliance", CACM 30,
       1987, algorithm F2.
    .. [2] M. Zaheer et al., "Big Bird: transformers for longer sequences", NeurIPS 2020.

    Examples
    --------
    >>> Random(k=2).approximate([[0.0]], [[0.0]] * 5, rng=0).nnz
    2
    """

    name: ClassVar[str] = "random"
    deterministic: ClassVar[bool] = False
    sized_by = Size("k", counts="entries")

    k: int | None = None

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        n, l, k = len(Q), len(K), self.k or 0
        indices = np.empty((n, k), np.int64)
        _choose(rng.random((n, k)), l, indices)
        return np.arange(0, n * k + 1, k), indices.ravel()

    def inclusion(self, q: Array, k: Array, mask: Mask) -> Array:
        """Return k/l."""
        return np.full((len(q), len(k)), (self.k or 0) / len(k))
