"""Squared norms of rows and squared distances between rows."""

import numpy as np

from approx.checks import Array
from approx.estimate import exact


def half_square(X: Array) -> Array:
    """Return |x|²/2 of each row."""
    return np.asarray(0.5 * np.einsum("id,id->i", X, X))


def squared_distances(X: Array, Y: Array) -> Array:
    """Return |x − y|², (n, l), also accurate near 0, where |x|² − 2x·y + |y|² would cancel.

    Accuracy: 1000 eps·κ, where squares are expanded; 10 elsewhere, as docs/accuracy.md defines it.
    """
    squares = 2 * (half_square(X)[:, None] + half_square(Y))
    out = np.maximum(squares - 2 * X @ Y.T, 0.0)
    i, j = np.nonzero(out < 1e-6 * squares)
    for part in exact.stripes(len(i), X.shape[1]):
        out[i[part], j[part]] = np.square(X[i[part]] - Y[j[part]]).sum(axis=1)
    return np.asarray(out)
