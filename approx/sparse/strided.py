"""Every s-th key: the long-range half of sparse transformers."""

import dataclasses

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.method import Size
from approx.sparse.support import ByPlace


@dataclasses.dataclass(frozen=True)
class Strided(ByPlace):
    """Keys at a whole number of strides from the query, exact.

    estimate_ij = exp(q_i·k_j) where j ≡ p_i mod s_i, else 0. Without a mask p_i = ⌊i·l/n⌋ and
    s_i = ⌈l/k⌉. Under a mask that looks back, p_i is the last key that query i sees. Under any mask
    s_i = ⌈seen_i/k⌉ spreads k keys over those that it sees, so a new key changes no earlier row.

    Parameters
    ----------
    k : int, optional
        Most entries per row; None is a template.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it.
    Cost: 2·n·k·d operations, at most n·k numbers.

    References
    ----------
    .. [1] R. Child, S. Gray, A. Radford, I. Sutskever, "Generating long sequences with sparse
       transformers", arXiv:1904.10509, 2019, section 4.3 (A⁽²⁾, with one stride for all rows).

    Examples
    --------
    >>> x = [[0.0]] * 4
    >>> Strided(k=2).approximate(x, x).to_dense()
    array([[1., 0., 1., 0.],
           [0., 1., 0., 1.],
           [1., 0., 1., 0.],
           [0., 1., 0., 1.]])
    """

    name = "strided"
    label = "strides"
    sized_by = Size("k", counts="entries")
    keeps_all = True

    k: int | None = None

    def reach(self, mask: Mask) -> tuple[Array, Array, Array]:
        stride = -(-mask.counts // (self.k or 1))
        return mask.first + (mask.positions - mask.first) % stride, mask.stop, stride
