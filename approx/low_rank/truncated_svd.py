"""The best approximation of a given rank, which needs the whole matrix."""

import dataclasses
import math

import numpy as np
import scipy.linalg

from approx import checks
from approx.checks import Array
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.low_rank import exact_matrix
from approx.low_rank.decomposition import Matrix, filled, with_nan
from approx.low_rank.exact_matrix import SPACES
from approx.low_rank.godec import godec
from approx.low_rank.krylov import ACCURACY, block_krylov
from approx.low_rank.subspace import leading
from approx.low_rank.total_variation import nearest
from approx.method import FROBENIUS, TV, Label, Method, Size
from approx.method.fields import one_of, real, ruled
from approx.method.tags import ADAPTIVE, ORACLE, ROTATION, SCALE, SHIFT, SPECTRAL, collect

DENSE = 2048  # up to this min(n, l), the whole matrix is decomposed
SHARE = 1 / 8  # of min(n, l): above this rank, a block Krylov space costs more than LAPACK
START = 32  # the first rank tried for epsilon or energy; it is doubled until it is enough


@dataclasses.dataclass(frozen=True)
class TruncatedSVD(Method):
    """Truncated singular value decomposition, the best in Frobenius norm.

    estimate = Σ_{i ≤ rank} σ_i u_i v_iᵀ of exp(Q Kᵀ), or of its row-softmax.

    Parameters
    ----------
    rank : int, optional
        1 ≤ rank ≤ min(n, l). If rank, epsilon and energy are None, a budget fills the rank.
    space : {"kernel", "attention"}
        The matrix that is decomposed.
    epsilon : float, optional
        Instead of rank: take the least rank with spectral error ≤ epsilon·σ₁, 0 < epsilon < 1. Not
        defined under a mask.
    energy : float, optional
        Instead of rank: take the least rank with Σ_{i ≤ rank} σ_i² ≥ energy·Σσ², 0 < energy ≤ 1.
    refine : {"tv"}, optional
        ``tv`` starts from the SVD of the row-softmax and reduces the total variation, at the same
        rank, among matrices whose rows sum to 1.

    Notes
    -----
    The estimate is deterministic and biased. Its Frobenius error √Σ_{i > rank} σ_i² and spectral
    error σ_{rank+1} are the least of any matrix of that rank. Entries may be negative. In total
    variation it is no bound: other matrices of this rank may have less. Its rows do not sum to 1.
    With ``refine`` they do, and the estimate is the best found in total variation (see
    `approx.low_rank.total_variation.nearest`). It is an upper bound on the least total variation of
    matrices of this rank whose rows sum to 1; linear attention with as many features is one of
    these. A matrix whose rows sum to less than 1 may have less still: the zero matrix has ½.

    Up to min(n, l) = 2048 the error of the estimate is the least to rounding. Its triplets come
    from `approx.low_rank.subspace.leading`: from the Gram matrix, or from LAPACK's SVD where its
    rounding would show. Above, ranks up to min(n, l)/8 come from
    `approx.low_rank.krylov.block_krylov`, which streams stripes of rows if the matrix does not fit
    in memory. With high probability its Frobenius and spectral errors are at most 1 + ε times those
    above; ε was at most 10⁻⁵ on attention matrices. Its singular values are accurate to 10⁻⁷ σ₁ at
    best. Larger ranks of a matrix that fits, and all if epsilon or 1 − energy is below this
    accuracy, are found as for a smaller matrix.

    Under a mask, unseen entries are free, so no formula gives the best estimate; the estimate is
    the best found. From two starts, the unseen entries are filled in by the truncated SVD
    repeatedly, in at most 40 steps of subspace iteration. Alternating least squares follow (see
    `approx.low_rank.godec.godec`, at k = 0). The starts are the SVD of the matrix with 0 at unseen
    entries, and the SVD of the whole matrix at the scale of the seen entries. The Frobenius error
    over seen entries is at most that of each start, and an upper bound on the least error. The
    result is the same for the same inputs. `energy` chooses the rank that suffices for the first
    start.

    Cost: O(n·l·min(n, l)) operations and the dense matrix in float64; above 2048, about ten
    passes of 4·n·l·rank operations. Under a mask always the dense matrix, two Gram matrices,
    about 50 passes of 4·n·l·rank operations, and up to rank 64 at most 30 passes of rank times as
    many. ``refine`` adds the dense matrix and about 40 passes of 4·n·l·rank² operations.

    Raises
    ------
    ResourceLimitError
        Neither the matrix nor a wide enough Krylov space fits in memory.

    References
    ----------
    .. [1] C. Eckart, G. Young, "The approximation of one matrix by another of lower rank",
       Psychometrika 1, 1936.
    .. [2] C. Musco, C. Musco, "Randomized block Krylov methods for stronger and faster approximate
       singular value decomposition", NIPS 2015, algorithm 2 and theorem 1.

    Examples
    --------
    A constant matrix has rank 1:

    >>> TruncatedSVD(rank=1).approximate([[0.0], [0.0]], [[1.0], [1.0]]).to_dense().round(12)
    array([[1., 1.],
           [1., 1.]])
    >>> TruncatedSVD(energy=0.99).approximate([[0.0], [0.0]], [[1.0], [1.0]]).rank
    1
    >>> best = TruncatedSVD(rank=1, space="attention", refine="tv")
    >>> best.approximate(9 * np.eye(3), 9 * np.eye(3)).to_dense().sum(axis=1).round(9)
    array([1., 1., 1.])
    """

    name = "truncated_svd"
    label = Label("truncated SVD", {"low rank refined for tv": {"refine": "tv"}})
    examples = (
        "truncated_svd()",
        "truncated_svd(rank=1, space='attention')",
        "truncated_svd(rank=1, space='attention', refine='tv')",
    )
    sized_by = Size("rank", counts="rank", instead=("epsilon", "energy"))

    rank: int | None = None
    space: str = one_of("kernel", SPACES)
    epsilon: float | None = real(below=1)
    energy: float | None = real(most=1)
    refine: str | None = ruled(None, lambda name, value: checks.one_of(name, value, ("tv",)))

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [x for x in ("rank", "epsilon", "energy") if getattr(self, x) is not None]
        if len(given) > 1:
            raise ValueError(
                f"rank, epsilon and energy exclude each other, got {' and '.join(given)}: give one"
            )
        if self.refine and self.space != "attention":
            raise ValueError(
                f"refine={self.refine!r} is of rows of softmax, so space must be 'attention', "
                f"got {self.space!r}"
            )

    @property
    def tags(self) -> frozenset[str]:
        return collect(
            ORACLE,  # computing the SVD costs what the method would save
            SPECTRAL,
            ROTATION,
            SCALE,
            self.space == "attention" and SHIFT,
            (self.epsilon is not None or self.energy is not None) and ADAPTIVE,
        )

    @property
    def refusal(self) -> str | None:
        if self.epsilon is None:
            return None
        return "a matrix with free entries has no spectral norm: give rank or energy"

    def optimal_in(self, mask: Mask | None = None) -> set[str]:
        """Return the Frobenius norm, over matrices of the rank, if all entries are seen."""
        whole = mask is None or mask.is_full
        return {FROBENIUS[self.space]} if whole and not self.refine else set()

    def best_found_in(self, mask: Mask | None = None) -> set[str]:
        """Return the Frobenius norm, or with refine tv, over matrices whose rows sum to 1."""
        return {TV} if self.refine else {FROBENIUS[self.space]}

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        if self.refine:
            D, top = exact_matrix.matrix(q, k, self.space, mask)
            left, right, *_ = nearest(D, self._rank(D, mask), mask=mask)
        elif not mask.is_full:
            left, right, top = self._masked(q, k, mask)
        elif min(len(q), len(k)) <= DENSE:
            left, right, top = self._dense(q, k)
        else:
            left, right, top = self._large(q, k)
        return exact_matrix.parts(left, right, None, top, q.dtype, self.space)

    def least_rank(self, s: Array, total: float) -> int | None:
        """Return the rank for rank, epsilon or energy; None if that takes more singular values.

        It follows from the leading ones, descending, and the total Σσ² of all.
        """
        if self.rank is not None:
            return self.rank if self.rank <= len(s) else None
        if self.epsilon is not None:
            above = int(np.count_nonzero(s > self.epsilon * s[0]))
            return above if above < len(s) else None
        assert self.energy is not None
        enough = np.cumsum(s**2) >= self.energy * total * (1 - 1e-15 * len(s))
        return int(np.argmax(enough)) + 1 if enough.any() else None

    def _masked(self, q: Array, k: Array, mask: Mask) -> tuple[Matrix, Matrix, float]:
        """Return (left, right, top) with exp(Q Kᵀ) ≈ e^top left rightᵀ where it is seen."""
        D, top = exact_matrix.matrix(q, k, self.space, mask)
        best = godec(D, self._rank(D, mask), 0, mask=mask)
        return best.left, best.right, top

    def _rank(self, D: Matrix, mask: Mask) -> int:
        if self.rank is not None:
            return self.rank
        s = scipy.linalg.svdvals(filled(with_nan(D, mask)), check_finite=False)
        return self.least_rank(s, float(s @ s)) or len(s)

    def _dense(self, q: Array, k: Array) -> tuple[Matrix, Matrix, float]:
        """Return (U diag(s), V, top) from the matrix with exp(Q Kᵀ) ≈ e^top U diag(s) Vᵀ."""
        mask = Mask.full(len(q), len(k))
        D, top = exact_matrix.matrix(q, k, self.space, mask)
        U, s, V = leading(D, min(self._rank(D, mask), *D.shape))
        return U * s, V, top

    def _large(self, q: Array, k: Array) -> tuple[Matrix, Matrix, float]:
        """Return the same as `_dense`, from block Krylov spaces while these are narrow."""
        shape = len(q), len(k)
        widest = SHARE * min(shape)
        if self.rank is not None and self.rank > widest:
            return self._dense(q, k)
        if (self.epsilon or 1.0) < 10 * ACCURACY or 1 - (self.energy or 0.0) < (10 * ACCURACY) ** 2:
            return self._dense(q, k)
        stripes, top = exact_matrix.stripes(q, k, self.space)
        width = self.rank or START
        while width <= widest:
            triplets = block_krylov(stripes, shape, width)
            total = math.hypot(triplets.error, float(np.linalg.norm(triplets.values))) ** 2
            if (r := self.least_rank(triplets.values, total)) is not None:
                return triplets.left[:, :r] * triplets.values[:r], triplets.right[:, :r], top
            width *= 2
        return self._dense(q, k)
