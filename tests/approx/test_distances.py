"""Distances keep their digits where points are near each other."""

import numpy as np

from approx.distances import squared_distances


def test_squared_distances_of_equal_rows_are_zero():
    X = np.full((300, 2), 1 / 3)
    assert (squared_distances(X, X) == 0).all()
