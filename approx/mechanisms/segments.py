"""Consecutive segments of rows, of nearly equal length, and their means: landmarks."""

import numpy as np

from approx.checks import Array


def labels(rows: int, count: int) -> Array:
    """Return ⌊i·count/rows⌋, the segment of each row; the lengths differ by at most 1."""
    return np.arange(rows) * count // rows


def means(X: Array, count: int) -> Array:
    """Return the mean of each of ``count`` ≤ rows segments, (count, d)."""
    segment = labels(len(X), count)
    first = np.searchsorted(segment, np.arange(count))
    sizes = np.bincount(segment, minlength=count)
    return np.asarray(np.add.reduceat(X / sizes[segment, None], first, axis=0))


def group_means(X: Array, label: Array, count: int) -> Array:
    """Return the mean of the rows of each label < count, (count, d); 0 for a label without rows."""
    sums = np.zeros((count, X.shape[1]))
    np.add.at(sums, label, X)
    return np.asarray(sums / np.maximum(np.bincount(label, minlength=count), 1)[:, None])
