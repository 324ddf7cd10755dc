"""The best approximation of a given rank: an oracle, since it needs the whole matrix."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import scipy.linalg
from numpy.typing import ArrayLike

from approx import checks
from approx.base import Approximation, Method, Rng
from approx.low_rank import target


@dataclasses.dataclass(frozen=True)
class TruncatedSVD(Method):
    """Truncated singular value decomposition, the best estimate of its rank (an oracle).

    estimate = Σ_{i ≤ rank} σ_i u_i v_iᵀ, of exp(Q Kᵀ) or of its row-softmax.

    Parameters
    ----------
    rank : int, optional
        1 ≤ rank ≤ min(n, l); None is a template.
    space : {"kernel", "attention"}
        Which matrix is decomposed.

    Notes
    -----
    Deterministic; Frobenius error √Σ_{i > rank} σ_i², spectral error σ_{rank+1}: the least of any
    matrix of that rank. Entries may be negative.
    Cost: O(n·l·min(n, l)) operations and the dense matrix in float64.

    References
    ----------
    .. [1] C. Eckart, G. Young, "The approximation of one matrix by another of lower rank",
       Psychometrika 1, 1936.

    Examples
    --------
    A constant matrix has rank 1:

    >>> TruncatedSVD(rank=1).approximate([[0.0], [0.0]], [[1.0], [1.0]]).to_dense().round(12)
    array([[1., 1.],
           [1., 1.]])
    """

    name: ClassVar[str] = "truncated_svd"
    deterministic: ClassVar[bool] = True
    size_field: ClassVar[str | None] = "rank"

    rank: int | None = None
    space: str = "kernel"

    def __post_init__(self) -> None:
        if self.rank is not None:
            rank = checks.integer("rank", self.rank, least=1)
            object.__setattr__(self, "rank", rank)
        checks.one_of("space", self.space, ("kernel", "attention"))

    @property
    def oracle(self) -> bool:
        """Finding it costs what it would save."""
        return True

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return the rank leading terms."""
        q, k = self.checked(Q, K)
        rank = checks.integer("rank", self.rank, least=1, most=min(len(q), len(k)))
        D, top = target.matrix(q, k, self.space)
        u, s, vt = scipy.linalg.svd(D, full_matrices=False, check_finite=False, overwrite_a=True)
        left, right = u[:, :rank] * s[:rank], vt[:rank].T
        return target.approximation(left, right, None, top, q.dtype, self.space)
