"""Least squares with a weight for every entry, row by row: the step of alternating fits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from approx.low_rank.decomposition import Matrix

RIDGE = 1e-6  # of the trace: it keeps what is free from growing where few keys are seen


def equations(
    D: Matrix, weights: Matrix, factor: Matrix, ridge: float = RIDGE
) -> Iterator[tuple[slice, Matrix, Matrix]]:
    """Yield the normal equations of the rows of X in min Σ weights·(X factorᵀ − D)² + ridge·‖X‖².

    Parameters
    ----------
    D, weights : (n, l)
    factor : (l, r)
    ridge : float
        Its share of the trace of each Gram matrix.

    Yields
    ------
    rows : slice
        Some rows, of which the Gram matrices take as much memory as D.
    grams : (rows, r, r)
        Σ_j weights_ij f_j f_jᵀ + ridge, positive definite.
    sides : (rows, r)
        Σ_j weights_ij D_ij f_j.

    Notes
    -----
    Cost: n·l·r² operations.

    Examples
    --------
    >>> _, grams, sides = next(equations(np.array([[6.0]]), np.ones((1, 1)), np.array([[2.0]]), 0))
    >>> grams.ravel(), sides.ravel()
    (array([4.]), array([12.]))
    """
    (n, l), r = D.shape, factor.shape[1]
    height = max(1, D.size // r**2)
    upper = np.triu_indices(r)  # a Gram matrix is symmetric: half of it is computed
    place = np.empty((r, r), np.intp)
    place[upper] = place.T[upper] = np.arange(len(upper[0]))
    for i in range(0, n, height):
        rows = slice(i, min(i + height, n))
        half = np.zeros((rows.stop - i, len(upper[0])))
        for j in range(0, l, height):
            part = factor[j : j + height]
            half += weights[rows, j : j + height] @ (part[:, upper[0]] * part[:, upper[1]])
        grams = half[:, place.ravel()]
        trace = grams[:, :: r + 1].sum(axis=1)
        grams[:, :: r + 1] += np.where(trace > 0, ridge * trace, 1.0)[:, None]
        yield rows, grams.reshape(-1, r, r), (weights[rows] * D[rows]) @ factor
