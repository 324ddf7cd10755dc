"""Every s-th key: the long-range half of sparse transformers."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from approx.checks import Array
from approx.masks import Mask
from approx.method import Size
from approx.sparse import patterns
from approx.sparse.support import SupportMethod


@dataclasses.dataclass(frozen=True)
class Strided(SupportMethod):
    """Keys at a whole number of strides from the query, exact.

    estimate_ij = exp(q_i·k_j) where j ≡ ⌊i·l/n⌋ mod s, else 0, with the stride s = ⌈l/k⌉.

    Parameters
    ----------
    k : int, optional
        Most entries per row, 1 ≤ k ≤ l; None is a template.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it.
    Cost: 2·n·k·d operations, at most n·k numbers.

    References
    ----------
    .. [1] R. Child, S. Gray, A. Radford, I. Sutskever, "Generating long sequences with sparse
       transformers", arXiv:1904.10509, section 4.3 (A⁽²⁾, here without the causal mask).

    Examples
    --------
    >>> x = [[0.0]] * 4
    >>> Strided(k=2).approximate(x, x).to_dense()
    array([[1., 0., 1., 0.],
           [0., 1., 0., 1.],
           [1., 0., 1., 0.],
           [0., 1., 0., 1.]])
    """

    name: ClassVar[str] = "strided"
    sized_by = Size("k", counts="entries")

    k: int | None = None

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> patterns.Pattern:
        """Return the keys at whole strides from each query."""
        n, l = len(Q), len(K)
        stride = -(-l // (self.k or 1))
        first = patterns.aligned(n, l) % stride
        indptr, steps = patterns.runs(np.zeros(n, int), -((first - l) // stride))
        return indptr, np.repeat(first, np.diff(indptr)) + stride * steps
