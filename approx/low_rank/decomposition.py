"""The result of a sparse + low-rank decomposition, and the first and last steps of its solvers.

Under a mask, unseen entries are free: they are in no objective, and the low-rank part may have any
value there. Solvers get a matrix that is NaN at these entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from approx import checks
from approx.estimate.masks import Mask

Matrix: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
CSR: TypeAlias = "csr_array[np.float64, tuple[int, int]]"


@dataclass(frozen=True)
class Decomposition:
    """A matrix D (n, l) written as low-rank + sparse: D ≈ left rightᵀ + sparse.

    Parameters
    ----------
    left, right : arrays (n, r), (l, r)
        Factors of the low-rank part.
    sparse : csr_array (n, l)
        The sparse part, without stored zeros; under a mask, on seen entries only.
    gap : float
        The relative duality gap, an upper bound on (objective − optimum)/objective; NaN if the
        problem is not convex and no bound is known.
    objective : float
        The value that the solver minimised, in the units of D; under a mask, over seen entries.
    iterations : int
        The number of sweeps.
    residual : float
        ‖D − L − S‖_F / ‖D‖_F of the result, under a mask over seen entries; NaN if not measured.
    spread : float
        (worst − objective)/objective, with the worst error at which another start dropped out; 0
        for a single start.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> spike = csr_array(np.array([[0.0, 3.0], [0.0, 0.0]]))
    >>> parts = Decomposition(np.ones((2, 1)), np.ones((2, 1)), spike, np.nan, 0.0, 1)
    >>> parts.rank, (parts.low_rank + parts.sparse.toarray()).tolist()
    (1, [[1.0, 4.0], [1.0, 1.0]])
    """

    left: Matrix
    right: Matrix
    sparse: CSR
    gap: float
    objective: float
    iterations: int
    residual: float = math.nan
    spread: float = 0.0

    @property
    def rank(self) -> int:
        """The number of columns of the factors: an upper bound on the rank of the low-rank part."""
        return int(self.left.shape[1])

    @property
    def low_rank(self) -> Matrix:
        """The low-rank part as an array (n, l)."""
        return self.left @ self.right.T

    def rescaled(self, exponent: int) -> Decomposition:
        """Return the decomposition of 2^exponent D; each factor takes half of the scale."""
        half = exponent // 2
        sparse = self.sparse.copy()
        sparse.data = np.ldexp(sparse.data, exponent)
        return replace(
            self,
            left=np.ldexp(self.left, half),
            right=np.ldexp(self.right, exponent - half),
            sparse=sparse,
            objective=self.objective * 2.0**half * 2.0 ** (exponent - half),
        )

    def measured(self, D: Matrix) -> Decomposition:
        """Return this decomposition with its residual for D, which is NaN at unseen entries."""
        size = float(np.linalg.norm(filled(D)))
        rest = float(np.linalg.norm(filled(D - self.low_rank - self.sparse.toarray())))
        return replace(self, residual=rest / size if rest else 0.0)

    def transposed(self) -> Decomposition:
        """Return the decomposition of Dᵀ."""
        return replace(self, left=self.right, right=self.left, sparse=csr_array(self.sparse.T))


def dense_matrix(D: ArrayLike) -> Matrix:
    """Return D as a C-contiguous float64 array (n, l); an error names the first bad entry."""
    matrix = checks.array("D", D, ndim=2).astype(np.float64, copy=False)
    if matrix.size == 0:
        raise ValueError(f"D must have rows and columns, got shape {matrix.shape}")
    return matrix


def with_nan(D: Matrix, mask: Mask) -> Matrix:
    """Return D with NaN where a query does not see a key; D itself if all entries are seen."""
    if mask.is_full:
        return D
    D = D.copy()
    mask.hide(D, fill=np.nan)
    return D


def hidden(D: Matrix) -> NDArray[np.bool_] | None:
    """Return where D is NaN, that is, unseen; None if all entries are seen."""
    unseen = np.isnan(D)
    return unseen if unseen.any() else None


def filled(D: Matrix) -> Matrix:
    """Return D with 0 at unseen entries; D itself if all entries are seen."""
    unseen = hidden(D)
    return D if unseen is None else np.where(unseen, 0.0, D)


def entries(D: Matrix) -> int:
    """Return the number of seen entries."""
    return D.size - int(np.count_nonzero(np.isnan(D)))


def balanced(D: Matrix) -> float:
    """Return λ = 1/√(share·max(n, l)), the usual weight of ‖S‖₁, for the share of seen entries.

    Source: Candès et al., see `robust_pca`, theorems 1.1 (all are seen) and 1.2 (a share of them).
    """
    share = entries(D) / D.size
    return float((share * max(D.shape)) ** -0.5)


def normalised(D: Matrix) -> tuple[Matrix, int]:
    """Return D / 2^e and e with ½ ≤ max |D| / 2^e < 1, where e = 0 for D = 0.

    Division by a power of two does not round, so solvers see the same digits at every scale, and
    neither squares nor sums of squares leave the range of float64.
    """
    exponent = math.frexp(float(np.fmax.reduce(np.abs(D), axis=None, initial=0.0)))[1]
    return np.ldexp(D, -exponent), exponent


def at_unit_scale(D: Matrix, solve: Callable[[Matrix], Decomposition]) -> Decomposition:
    """Return the decomposition of D; ``solve`` gets `normalised` D, transposed if n < l."""
    if not filled(D).any():
        return zeros(D.shape, 0.0)
    scaled, exponent = normalised(D)
    if D.shape[0] < D.shape[1]:
        tall = np.ascontiguousarray(scaled.T)
        return solve(tall).measured(tall).transposed().rescaled(exponent)
    return solve(scaled).measured(scaled).rescaled(exponent)


def sparse_entries(values: Matrix, places: Indices, shape: tuple[int, ...]) -> CSR:
    """Return the CSR array (n, l) with `values` at `places`, which are ascending flat indices."""
    n, l = shape
    rows = np.searchsorted(places, np.arange(n + 1) * l)
    sparse = cast(CSR, csr_array((values, places % l, rows), shape=(n, l)))
    sparse.eliminate_zeros()
    return sparse


def zeros(shape: tuple[int, ...], gap: float) -> Decomposition:
    """Return the decomposition of the zero matrix."""
    n, l = shape
    return Decomposition(np.zeros((n, 0)), np.zeros((l, 0)), csr_array((n, l)), gap, 0.0, 0, 0.0)
