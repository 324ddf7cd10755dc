"""Nyströmformer: softmax through landmarks."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from approx import checks, exact, memory
from approx.approximation import Approximation
from approx.checks import Array
from approx.mechanisms import segments
from approx.method import Method, Rng
from approx.parts import Factors


@dataclasses.dataclass(frozen=True)
class Nystromformer(Method):
    """Nyströmformer: three softmax matrices through segment means; biased, of either sign.

    estimate = softmax(Q K̃ᵀ) softmax(Q̃ K̃ᵀ)⁺ softmax(Q̃ Kᵀ),  Q̃, K̃ (rank, d).

    Parameters
    ----------
    rank : int, optional
        Landmarks: means of that many consecutive segments of queries and of keys,
        1 ≤ rank ≤ min(n, l); None is a template.
    iterations : int, optional
        Steps of the paper's third-order iteration for the pseudo-inverse (it takes 6); by
        default the pseudo-inverse itself, singular values below rank·eps·σ₁ cut off.

    Notes
    -----
    In attention space; unlike `nystrom`, which takes one kernel on queries and keys together and
    approximates exp(q·k). Exact where landmarks are all queries and all keys (rank = n = l) and
    the softmax matrix is regular. Rows sum to 1 where the middle matrix is regular. Deterministic,
    biased; nothing bounds the entries: the middle matrix may be nearly singular, and the
    pseudo-inverse then amplifies. The iteration, which has not converged then, is a regulariser.
    Cost: 2·rank·(n + l)·d operations and O(rank³). Landmarks hold all queries and keys: under a
    causal mask they have seen the future.

    References
    ----------
    .. [1] Y. Xiong et al., "Nyströmformer: a Nyström-based algorithm for approximating
       self-attention", AAAI 2021, section 3; without its convolution.

    Examples
    --------
    >>> Nystromformer(rank=1).approximate([[0.0]], [[1.0], [2.0]]).to_dense()
    array([[0.5, 0.5]])
    """

    name: ClassVar[str] = "nystromformer"
    deterministic: ClassVar[bool] = True
    size_field: ClassVar[str | None] = "rank"

    rank: int | None = None
    iterations: int | None = None

    def __post_init__(self) -> None:
        for field, least in (("rank", 1), ("iterations", 0)):
            if (value := getattr(self, field)) is not None:
                object.__setattr__(self, field, checks.integer(field, value, least=least))

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return the factors through the landmarks."""
        q, k = self.checked(Q, K)
        rank = checks.integer("rank", self.rank, least=1, most=min(len(q), len(k)))
        memory.reserve(8 * rank * (2 * len(q) + len(k) + 4 * rank), f"{self}", "rank")
        a, b = q.astype(np.float64), k.astype(np.float64)
        queries, keys = segments.means(a, rank), segments.means(b, rank)
        middle = pseudo_inverse(exact.softmax(queries, keys), self.iterations)
        left, right = exact.softmax(a, keys) @ middle, exact.softmax(queries, b).T
        scale = np.zeros(len(q), q.dtype)
        factors = Factors(left.astype(q.dtype), right.astype(q.dtype), scale)
        return Approximation(factors, space="attention")


def pseudo_inverse(A: Array, iterations: int | None = None) -> Array:
    """Return A⁺, or where that many iterations of Z ← ¼Z(13I − AZ(15I − AZ(7I − AZ))) lead.

    Z starts at Aᵀ/(‖A‖₁‖A‖_∞).

    Examples
    --------
    >>> A = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> bool(np.allclose(pseudo_inverse(A, 6), pseudo_inverse(A)))
    True
    """
    if iterations is None:
        return np.asarray(scipy.linalg.pinv(A, rtol=len(A) * np.finfo(np.float64).eps))
    size = np.abs(A)
    Z, I = A.T / (size.sum(axis=0).max() * size.sum(axis=1).max()), np.eye(len(A))
    for _ in range(iterations):
        AZ = A @ Z
        Z = 0.25 * Z @ (13 * I - AZ @ (15 * I - AZ @ (7 * I - AZ)))
    return np.asarray(Z)
