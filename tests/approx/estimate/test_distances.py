"""Distances keep their digits where points are near each other."""

import numpy as np

from approx.estimate.distances import squared_distances


def test_squared_distances_of_equal_rows_are_zero():
    X = np.full((300, 2), 1 / 3)
    assert (squared_distances(X, X) == 0).all()


def test_squared_distances_of_near_points_keep_their_digits():
    rng = np.random.default_rng(0)
    X = 1 + 1e-9 * rng.standard_normal((5, 3))
    Y = 1 + 1e-9 * rng.standard_normal((4, 3))
    want = np.square(X[:, None] - Y).sum(axis=2)  # 10⁻¹⁸: what |x|² + |y|² − 2x·y has lost
    np.testing.assert_allclose(squared_distances(X, Y), want, rtol=1e-12)
