"""Keys at random: the baseline of every support."""

import dataclasses
from typing import Any

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.kernels.jit import kernel
from approx.method import Size
from approx.method.tags import BY_ROW, DRAWS_BY_ROW, POSITIONAL, RANDOM, SUPPORT
from approx.sparse.support import SupportMethod
from approx.supports.patterns import Pattern


@kernel
def choose(uniform: Any, starts: Any, first: Any, seen: Any, indptr: Any, out: Any) -> None:
    """Choose from first, …, first + seen − 1 in each row without replacement (Floyd).

    Row i uses the numbers from uniform[starts[i]] on, in O(1) per chosen key.
    """
    taken = np.zeros(seen.max(), np.bool_)
    for i in range(seen.size):
        row = out[indptr[i] : indptr[i + 1]]
        for c in range(row.size):
            last = seen[i] - row.size + c
            j = min(int(uniform[starts[i] + c] * (last + 1)), last)
            row[c] = last if taken[j] else j
            taken[row[c]] = True
        for c in range(row.size):
            taken[row[c]] = False
            row[c] += first[i]


@dataclasses.dataclass(frozen=True)
class Random(SupportMethod):
    """Keys drawn uniformly without replacement, exact: BigBird's random part.

    estimate_ij = exp(q_i·k_j) where j is among k keys drawn for query i, else 0.

    Parameters
    ----------
    k : int, optional
        Entries per row; None is a template.

    Notes
    -----
    Query i draws from the seen_i keys that it sees, and takes all of them if they are fewer than k;
    without a mask seen_i = l. P[(i, j) in the support] = p = min(1, k/seen_i), so the relative bias
    is p − 1 and the relative variance p(1 − p). Each row has its own random numbers, whatever other
    rows see.
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

    name = "random"
    label = "random keys"
    tags = SUPPORT | BY_ROW | {RANDOM, DRAWS_BY_ROW, POSITIONAL}
    sized_by = Size("k", counts="entries")

    k: int | None = None

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        k = min(self.k or 0, mask.l)  # a row of at most k keys takes all, whatever its numbers
        indptr = np.concatenate([[0], np.cumsum(np.minimum(mask.counts, k))])
        indices = np.empty(int(indptr[-1]), np.int64)
        # k numbers for each row, in order: those of a row do not depend on n, l or other rows
        starts = k * np.arange(mask.n)
        choose(rng.random(mask.n * k), starts, mask.first, mask.counts, indptr, indices)
        return indptr, indices

    def inclusion(self, q: Array, k: Array, mask: Mask) -> Array:
        p = np.minimum((self.k or 0) / mask.counts, 1.0)
        return np.repeat(p[:, None], mask.l, axis=1)
