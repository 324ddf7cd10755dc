"""Keys near the query: the local window of sparse transformers."""

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
class SlidingWindow(SupportMethod):
    """A band of keys around the diagonal, cut at both ends, exact.

    estimate_ij = exp(q_i·k_j) where −⌊w/2⌋ ≤ j − ⌊i·l/n⌋ < ⌈w/2⌉, else 0, w = width.

    Parameters
    ----------
    width : int, optional
        Number of keys that a query sees, 1 ≤ width ≤ l; None is a template.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it.
    Cost: 2·n·width·d operations and at most n·width numbers. Rows at the ends have fewer entries,
    but the price counts width for them too.

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

    name: ClassVar[str] = "sliding_window"
    sized_by = Size("width", counts="entries")

    width: int | None = None

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> patterns.Pattern:
        """Return the keys of each query's window."""
        n, l, width = len(Q), len(K), self.width or 0
        centre = patterns.aligned(n, l)
        first = np.maximum(centre - width // 2, 0)
        return patterns.runs(first, np.minimum(centre + (width + 1) // 2, l))
