"""Nyströmformer: softmax attention through landmarks."""

import dataclasses

import numpy as np
import scipy.linalg

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.mechanisms import segments
from approx.method import Label, Method, Size
from approx.method.fields import integer
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import INVARIANT, SPECTRAL


@dataclasses.dataclass(frozen=True)
class Nystromformer(Method):
    """Nyströmformer: three softmax matrices through segment means; biased, of either sign.

    estimate = softmax(Q K̃ᵀ) softmax(Q̃ K̃ᵀ)⁺ softmax(Q̃ Kᵀ),  Q̃, K̃ (rank, d).

    Parameters
    ----------
    rank : int, optional
        Number of landmarks, which are means of consecutive segments of queries and of keys,
        1 ≤ rank ≤ min(n, l); None is a template.
    iterations : int, optional
        Steps of the paper's third-order iteration for the pseudo-inverse (the paper takes 6). By
        default the pseudo-inverse is exact, with singular values below rank·eps·σ₁ cut off.

    Notes
    -----
    The rows are in attention space, unlike those of `nystrom`, which takes one kernel on queries
    and keys together and approximates exp(q·k). The estimate is exact if landmarks are all queries
    and all keys (rank = n = l) and the softmax matrix is regular. Rows sum to 1 if the middle
    matrix is regular. The estimate is deterministic and biased, and nothing bounds its entries: the
    pseudo-inverse amplifies if the middle matrix is nearly singular. In that case the iteration has
    not converged and acts as a regulariser.
    Cost: 2·rank·(n + l)·d operations and O(rank³). Landmarks depend on all queries and keys, so
    there is no causal form, and a mask is refused.

    References
    ----------
    .. [1] Y. Xiong et al., "Nyströmformer: a Nyström-based algorithm for approximating
       self-attention", AAAI 2021, section 3; without its convolution.

    Examples
    --------
    >>> Nystromformer(rank=1).approximate([[0.0]], [[1.0], [2.0]]).to_dense()
    array([[0.5, 0.5]])
    """

    name = "nystromformer"
    label = Label("Nyströmformer", {"Nyströmformer, iterated": {"iterations": ...}})
    tags = INVARIANT | {SPECTRAL}
    space = "attention"
    refusal = "the means of segments hold later queries and keys"
    sized_by = Size("rank", counts="rank")

    rank: int | None = None
    iterations: int | None = integer(least=0)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        rank = self.rank or 0
        a, b = q.astype(np.float64), k.astype(np.float64)
        queries, keys = segments.means(a, rank), segments.means(b, rank)
        middle = pseudo_inverse(exact.softmax(queries, keys), self.iterations)
        left, right = exact.softmax(a, keys) @ middle, exact.softmax(queries, b).T
        scale = np.zeros(len(q), q.dtype)
        factors = Factors(left.astype(q.dtype), right.astype(q.dtype), scale)
        return Parts(factors, space="attention")

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of rank columns, of the landmarks and of their pseudo-inverse.

        The pseudo-inverse is multiplied with the state, which has rank rows and no sums.
        """
        if self.rank is None:
            return None
        r, d, c = self.rank, shape.d, shape.c
        inverse = r**3 * (1 if self.iterations is None else 4 * self.iterations)
        once = r * r * (d + c) + inverse
        return low_rank(r, shape, mapped=r * d, once=once, sums=False)

    def _workspace(self, shape: Shape) -> int:
        rank = self.rank or 0
        return 8 * rank * (2 * shape.n + shape.l + 4 * rank)


def pseudo_inverse(A: Array, iterations: int | None = None) -> Array:
    """Return A⁺, or the result of `iterations` steps Z ← ¼Z(13I − AZ(15I − AZ(7I − AZ))).

    The iteration starts at Z = Aᵀ/(‖A‖₁‖A‖_∞).
    """
    if iterations is None:
        return np.asarray(scipy.linalg.pinv(A, rtol=len(A) * np.finfo(np.float64).eps))
    size = np.abs(A)
    Z, I = A.T / (size.sum(axis=0).max() * size.sum(axis=1).max()), np.eye(len(A))
    for _ in range(iterations):
        AZ = A @ Z
        Z = 0.25 * Z @ (13 * I - AZ @ (15 * I - AZ @ (7 * I - AZ)))
    return np.asarray(Z)
