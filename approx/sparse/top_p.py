"""The fewest keys of each row that hold a given share of its attention."""

import dataclasses
import math

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.kernels.elementary import exp_rows
from approx.method import FROBENIUS, TV
from approx.method.fields import real
from approx.method.prices import Shape
from approx.method.tags import ADAPTIVE, BY_ROW, ORACLE, SUPPORT
from approx.sparse.support import SupportMethod
from approx.supports.patterns import Pattern, by_stripes


@dataclasses.dataclass(frozen=True)
class TopP(SupportMethod):
    """The fewest keys of a row whose attention sums to p or more, exact.

    estimate_ij = exp(q_i·k_j) where key j is among the m_i largest that query i sees, else 0; m_i
    is the least number of keys whose softmax weights sum to p or more.

    Parameters
    ----------
    p : float
        Share of the attention, 0 < p ≤ 1.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. Its total
    variation from exact attention is the attention off the support [2]_. So it is at most 1 − p in
    every row, with as few keys as any support that achieves this. Both hold up to rounding: a sum
    that misses p by rounding counts as reaching it. Of equal weights the first are taken, so that
    later keys do not matter. A row has from 1 to ⌈p·seen⌉ entries, depending on its attention: the
    price is not known before it is run, and no budget fills it.
    Cost: 2·n·l·d operations and a sort of every row to find the support, by row stripes.

    The authors' code [3]_ prunes the keys that another method chose, by weights from quantised
    keys. It finds a level by bisection to 1e-5, so that keys of equal weight stay or go together.
    The level is never above the weight of the first key: too many keys may stay if others are
    larger.

    References
    ----------
    .. [1] C. Lin et al., "Twilight: adaptive attention sparsity with hierarchical top-p pruning",
       NeurIPS 2025, arXiv:2502.02770; read in its abstract and code.
    .. [2] G. Tzachristas et al., "A mathematical theory of top-k sparse attention via total
       variation distance", arXiv:2512.07647; read in its abstract.
    .. [3] github.com/tsinghua-ideal/Twilight, commit 843ebcc: csrc/include/sampling.cuh.

    Examples
    --------
    >>> TopP(p=0.5).approximate([[1.0]], [[0.0], [2.0]]).to_dense().round(3)
    array([[0.   , 7.389]])
    """

    name = "top_p"
    label = "top-p of each row"
    examples = ("top_p(p=0.6)",)

    p: float = real(0.9, most=1.0)

    tags = SUPPORT | BY_ROW | {ORACLE, ADAPTIVE}

    def optimal_in(self, mask: Mask | None = None) -> set[str]:
        """Return the metrics of `top_k`, over supports with as many keys in each row."""
        return {TV, FROBENIUS["kernel"]}

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        return by_stripes(Q, K, mask, lambda x, rows: _fewest(x, self.p))

    def _workspace(self, shape: Shape) -> int:
        return int(16 * shape.n * shape.seen(math.ceil(self.p * shape.l)))


def _fewest(x: Array, p: float) -> Array:
    """Return which entries are the fewest of their row whose softmax sums to p or more."""
    weights = x.astype(np.float64)
    exp_rows(weights, weights.max(axis=1))
    ordered = np.sort(weights, axis=1)[:, ::-1]
    sums = np.cumsum(ordered, axis=1)
    # a sum of l terms has a rounding error of at most l·eps
    reached = sums[:, -1:] * (p - x.shape[1] * float(np.finfo(np.float64).eps))
    last = np.argmax(sums >= reached, axis=1)[:, None]
    least = np.take_along_axis(ordered, last, axis=1)
    above, equal = weights > least, weights == least
    room = last + 1 - above.sum(axis=1, keepdims=True)
    return np.asarray(above | (equal & (equal.cumsum(axis=1) <= room)))
