"""The result of a sparse + low-rank decomposition, and the first and last steps of its solvers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from approx import checks

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
        The entries that are kept beside it, without stored zeros.
    gap : float
        The relative duality gap, an upper bound on (objective − optimum)/objective; NaN if the
        problem is not convex and no bound is known.
    objective : float
        The value that the solver minimised, in the units of D.
    iterations : int
        The number of sweeps.

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

    @property
    def rank(self) -> int:
        """The columns of the factors: an upper bound on the rank of the low-rank part."""
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

    def transposed(self) -> Decomposition:
        """Return the decomposition of Dᵀ."""
        return replace(self, left=self.right, right=self.left, sparse=csr_array(self.sparse.T))


def dense_matrix(D: ArrayLike) -> Matrix:
    """Return D as a C-contiguous float64 array (n, l); an error names the first bad entry."""
    matrix = checks.array("D", D, ndim=2).astype(np.float64, copy=False)
    if matrix.size == 0:
        raise ValueError(f"D must have rows and columns, got shape {matrix.shape}")
    return matrix


def normalised(D: Matrix) -> tuple[Matrix, int]:
    """Return D / 2^e and e with ½ ≤ max |D| / 2^e < 1, where e = 0 for D = 0.

    Division by a power of two does not round, so solvers see the same digits at every scale, and
    neither squares nor sums of squares leave the range of float64.
    """
    exponent = math.frexp(float(np.abs(D).max(initial=0.0)))[1]
    return np.ldexp(D, -exponent), exponent


def at_unit_scale(D: Matrix, solve: Callable[[Matrix], Decomposition]) -> Decomposition:
    """Return the decomposition of D, solved for `normalised` D or its transpose, with n ≥ l."""
    if not D.any():
        return zeros(D.shape, 0.0)
    scaled, exponent = normalised(D)
    if D.shape[0] < D.shape[1]:
        return solve(np.ascontiguousarray(scaled.T)).transposed().rescaled(exponent)
    return solve(scaled).rescaled(exponent)


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
    return Decomposition(np.zeros((n, 0)), np.zeros((l, 0)), csr_array((n, l)), gap, 0.0, 0)
