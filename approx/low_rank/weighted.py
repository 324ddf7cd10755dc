"""Least squares with a weight per entry, row by row: one step of alternating fits."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from approx.kernels.jit import kernel
from approx.low_rank.decomposition import Matrix

RIDGE = 1e-6  # of the trace: it keeps free entries from growing where few keys are seen
BATCHED = 24  # up to this rank, one product computes the Gram matrices of many rows
LANES = 16  # number of systems that are solved side by side


def equations(
    D: Matrix, weights: Matrix, factor: Matrix, ridge: float = RIDGE
) -> Iterator[tuple[slice, Matrix, Matrix]]:
    """Yield the normal equations of the rows of X in min Σ weights·(X factorᵀ − D)² + ridge·‖X‖².

    Parameters
    ----------
    D, weights : (n, l)
        Weights in float32 give Gram matrices in float32 up to rank 24.
    factor : (l, r)
    ridge : float
        The ridge, as a share of the trace of each Gram matrix.

    Yields
    ------
    rows : slice
        A stripe of rows. Its Gram matrices take as much memory as D.
    grams : (rows, r, r)
        Σ_j weights_ij f_j f_jᵀ + ridge, positive definite.
    sides : (rows, r)
        Σ_j weights_ij D_ij f_j.

    Notes
    -----
    Cost: n·l·r² operations, for r > 24 only over the keys from the first to the last with a weight.
    """
    n, r = len(D), factor.shape[1]
    height = max(1, D.size // r**2)
    of_rows = _of_many_rows(factor, weights.dtype) if r <= BATCHED else _of_each_row(factor)
    for i in range(0, n, height):
        rows = slice(i, min(i + height, n))
        grams = of_rows(weights[rows])
        trace = grams.trace(axis1=1, axis2=2)
        kept = trace >= np.finfo(trace.dtype).tiny  # else products underflow, and the ridge
        grams[:, range(r), range(r)] += np.where(kept, ridge * trace, 1.0)[:, None]
        yield rows, grams, (weights[rows] * D[rows]) @ factor


def _of_many_rows(factor: Matrix, dtype: np.dtype[Any]) -> Callable[[Matrix], Matrix]:
    """Return weights (h, l) → Gram matrices (h, r, r), by one product of h·l·r²/2 operations."""
    r = factor.shape[1]
    upper = np.triu_indices(r)  # a Gram matrix is symmetric: half of it is computed
    place = np.empty((r, r), np.intp)
    place[upper] = place.T[upper] = np.arange(len(upper[0]))
    pairs = (factor[:, upper[0]] * factor[:, upper[1]]).astype(dtype, copy=False)
    # C-contiguous like those of `_of_each_row`: `solve` is compiled for one layout
    return lambda weights: np.take(weights @ pairs, place, axis=1)


def _of_each_row(factor: Matrix) -> Callable[[Matrix], Matrix]:
    """Return the same map, row by row: for a large r, one row is enough work for BLAS."""
    r = factor.shape[1]

    def grams(weights: Matrix) -> Matrix:
        found = np.zeros((len(weights), r, r))
        for gram, root in zip(found, np.sqrt(weights)):
            used = np.flatnonzero(root)
            keys = slice(used[0], used[-1] + 1) if len(used) else slice(0)
            part = factor[keys] * root[keys, None]
            np.dot(part.T, part, out=gram)
        return found

    return grams


@kernel
def solve(grams: Any, sides: Any) -> None:
    """Replace sides_i (r, k) by grams_i⁻¹ sides_i, for positive definite grams_i, by Cholesky.

    Only lower triangles are read. An unknown whose pivot is lost to rounding becomes 0.
    """
    # One loop does the same step of sixteen systems: a small system alone cannot be vectorised.
    count, r = grams.shape[0], grams.shape[1]
    A, B = np.empty((r, r, LANES)), np.empty((r, LANES))
    for start in range(0, count, LANES):
        for h in range(LANES):
            i = min(start + h, count - 1)
            for a in range(r):
                for b in range(a + 1):
                    A[a, b, h] = grams[i, a, b]
        for b in range(r):
            for a in range(b, r):
                y = A[a, b]
                for c in range(b):
                    u, v = A[a, c], A[b, c]
                    for h in range(LANES):
                        y[h] -= u[h] * v[h]
                v = A[b, b]
                for h in range(LANES):
                    if a > b:
                        y[h] *= v[h]
                    else:  # its inverse
                        y[h] = 1.0 / np.sqrt(y[h]) if y[h] > 0.0 else 0.0
        for k in range(sides.shape[2]):
            for h in range(LANES):
                i = min(start + h, count - 1)
                for a in range(r):
                    B[a, h] = sides[i, a, k]
            for a in range(r):
                y, v = B[a], A[a, a]
                for c in range(a):
                    u, w = A[a, c], B[c]
                    for h in range(LANES):
                        y[h] -= u[h] * w[h]
                for h in range(LANES):
                    y[h] *= v[h]
            for a in range(r - 1, -1, -1):
                y, v = B[a], A[a, a]
                for c in range(a + 1, r):
                    u, w = A[c, a], B[c]
                    for h in range(LANES):
                        y[h] -= u[h] * w[h]
                for h in range(LANES):
                    y[h] *= v[h]
            for h in range(min(LANES, count - start)):
                for a in range(r):
                    sides[start + h, a, k] = B[a, h]
