"""Keys of the query's own chunk: block-local attention."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.method import Size
from approx.sparse.support import ByPlace


@dataclasses.dataclass(frozen=True)
class Chunk(ByPlace):
    """Keys of the same chunk as the query: block-diagonal, exact.

    estimate_ij = exp(q_i·k_j) where ⌊p_i/size⌋ = ⌊j/size⌋, else 0. Here p_i = ⌊i·l/n⌋, or the last
    key that query i sees under a mask that looks back.

    Parameters
    ----------
    size : int, optional
        Keys per chunk (the last chunk may have fewer); None is a template.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it.
    Cost: 2·n·size·d operations, at most n·size numbers; under a causal mask about half of both.

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

    name = "chunk"
    label = "chunks"
    sized_by = Size("size", counts="entries")

    size: int | None = None

    def reach(self, mask: Mask) -> tuple[Array, Array, int]:
        size = self.size or 0
        first = mask.positions // size * size
        return np.maximum(first, mask.first), np.minimum(first + size, mask.stop), 1
