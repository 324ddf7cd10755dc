"""Keys of the query's own chunk: block-local attention."""

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
class Chunk(SupportMethod):
    """Keys of the same chunk as the query: block-diagonal, exact.

    estimate_ij = exp(q_i·k_j) where ⌊⌊i·l/n⌋/size⌋ = ⌊j/size⌋, else 0.

    Parameters
    ----------
    size : int, optional
        Keys per chunk, 1 ≤ size ≤ l (the last chunk may have fewer); None is a template.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it.
    Cost: 2·n·size·d operations, at most n·size numbers.

    References
    ----------
    .. [1] J. Qiu et al., "Blockwise self-attention for long document understanding", EMNLP 2020.

    Examples
    --------
    >>> x = [[0.0]] * 3
    >>> Chunk(size=2).approximate(x, x).to_dense()
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.]])
    """

    name: ClassVar[str] = "chunk"
    sized_by = Size("size", counts="entries")

    size: int | None = None

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> patterns.Pattern:
        """Return the keys of each query's chunk."""
        n, l = len(Q), len(K)
        return patterns.same_chunk(patterns.aligned(n, l), l, self.size or 0)
