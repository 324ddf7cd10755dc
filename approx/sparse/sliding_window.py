"""Keys near the query: the local window of sparse transformers."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.keys import KeptKeys
from approx.estimate.masks import Mask
from approx.method import Size
from approx.sparse.support import ByPlace
from approx.supports.eviction import Limits


@dataclasses.dataclass(frozen=True)
class SlidingWindow(ByPlace):
    """A band of keys around the diagonal, or the last keys that are seen, exact.

    estimate_ij = exp(q_i·k_j) where −⌊w/2⌋ ≤ j − ⌊i·l/n⌋ < ⌈w/2⌉, else 0, w = width. Under a mask
    that looks back, −w < j − p_i ≤ 0, with p_i the last key that query i sees.

    Parameters
    ----------
    width : int, optional
        Number of keys that a query sees; None is a template.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it.
    Cost: 2·n·width·d operations and at most n·width numbers. Rows at the ends have fewer entries.

    References
    ----------
    .. [1] I. Beltagy, M. E. Peters, A. Cohan, "Longformer: the long-document transformer",
       arXiv:2004.05150, 2020, section 3.1.

    Examples
    --------
    >>> x = [[0.0]] * 4
    >>> SlidingWindow(width=3).approximate(x, x).to_dense()
    array([[1., 1., 0., 0.],
           [1., 1., 1., 0.],
           [0., 1., 1., 1.],
           [0., 0., 1., 1.]])
    """

    name = "sliding_window"
    label = "sliding window"
    sized_by = Size("width", counts="entries")

    width: int | None = None

    def reach(self, mask: Mask) -> tuple[Array, Array, int]:
        return *window(mask, self.width or 0), 1

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache:
        assert self.width is not None
        width = min(self.width, window or self.width)
        return KeptKeys(d, c, Limits(width, 1, 0, width))


def window(mask: Mask, width: int) -> tuple[Array, Array]:
    """Return first and last (exclusive) of `width` seen keys, up to the query or around it."""
    if mask.looks_back:
        return np.maximum(mask.stop - width, mask.first), mask.stop
    centre = mask.positions
    first = np.maximum(centre - width // 2, mask.first)
    return first, np.minimum(centre + (width + 1) // 2, mask.stop)
