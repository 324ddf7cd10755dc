"""StreamingLLM: the first keys (attention sinks) and a window of the last keys."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.keys import KeptKeys, WindowKeys
from approx.estimate.masks import Mask
from approx.method import Size
from approx.method.fields import integer
from approx.sparse.sliding_window import window
from approx.sparse.support import ByPlace
from approx.supports.eviction import Limits


@dataclasses.dataclass(frozen=True)
class SinkWindow(ByPlace):
    """The first keys that a query sees and a window of others, exact: StreamingLLM's cache.

    estimate_ij = exp(q_i·k_j) where j − first_i < s or −w < j − p_i ≤ 0, else 0, with s = sinks,
    w = k − s and p_i the last key that query i sees. Without a mask first_i = 0, and the window is
    −⌊w/2⌋ ≤ j − ⌊i·l/n⌋ < ⌈w/2⌉, as in `sliding_window`.

    Parameters
    ----------
    k : int, optional
        Most entries per row, sinks included, sinks ≤ k; None is a template.
    sinks : int
        First keys that every query keeps.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. Many heads
    of language models give much attention to the first token, whatever it is. Under a mask that
    looks back a row has min(k, seen) entries. Elsewhere it has fewer where sinks and window overlap
    or the window ends at a border. Longformer's window and global keys are the same support,
    without its global queries, which see every key. Keys keep their positions in the text; the
    source gives them positions within the cache.
    Cost: 2·n·k·d operations and at most n·k numbers.

    References
    ----------
    .. [1] G. Xiao, Y. Tian, B. Chen, S. Han, M. Lewis, "Efficient streaming language models with
       attention sinks", ICLR 2024, section 3.2.

    Examples
    --------
    >>> x = [[0.0]] * 4
    >>> SinkWindow(k=2).approximate(x, x, mask="causal").to_dense()
    array([[1., 0., 0., 0.],
           [1., 1., 0., 0.],
           [1., 0., 1., 0.],
           [1., 0., 0., 1.]])
    """

    name = "sink_window"
    label = "sink and window"

    k: int | None = None
    sinks: int = integer(1)

    @property
    def sized_by(self) -> Size:
        return Size("k", least=self.sinks, counts="entries")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.k < self.sinks:
            raise ValueError(f"k counts the sinks too, so it must be >= {self.sinks}, got {self.k}")

    def reach(self, mask: Mask) -> tuple[Array, Array, int]:
        sinks = np.minimum(mask.first + self.sinks, mask.stop)
        first, last = window(mask, (self.k or 0) - self.sinks)
        return np.stack([mask.first, np.maximum(first, sinks)], 1), np.stack([sinks, last], 1), 1

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        if window:  # whose first keys are the sinks
            return WindowKeys(d, c, window, self, rng)
        assert self.k is not None
        return KeptKeys(d, c, Limits(self.k, 1, self.sinks, self.k - self.sinks))
