"""TensorSketch beside scikit-learn's PolynomialCountSketch, which is the same map."""

import numpy as np
import pytest

from approx import Approximation
from approx.sketches.tensor_sketch import Hashes, TensorSketch

kernel_approximation = pytest.importorskip("sklearn.kernel_approximation")


def points(d=4):
    """Return Q, K with |x| = 1/2."""
    u = np.random.default_rng(0).standard_normal((7, d))
    u *= 0.5 / np.linalg.norm(u, axis=1, keepdims=True)
    return u[:3], u[3:]


def fitted(m, degree, seed):
    """Return its sketch of (1 + x/degree)^degree."""
    return kernel_approximation.PolynomialCountSketch(
        gamma=1 / degree, degree=degree, coef0=1, n_components=m, random_state=seed
    ).fit(points()[0])


@pytest.mark.parametrize(("m", "degree"), [(4, 2), (5, 3), (64, 4)])
def test_the_same_hashes_give_the_sketch_of_scikit_learn(m, degree):
    Q, K = points()
    found = fitted(m, degree, 0)
    hashes = Hashes(found.indexHash_, found.bitHash_.astype(float))
    left, right, log = Approximation(
        TensorSketch(m=m, degree=degree).features(Q, K, hashes)
    ).scaled_factors()
    want = found.transform(Q), found.transform(K)
    # both are sums of products of degree·m numbers of size ≤ 1, through three transforms
    np.testing.assert_allclose(
        np.exp(log)[:, None] * left @ right.T, want[0] @ want[1].T, atol=1e-12
    )
    ratio = np.exp(log)[:, None] * left / want[0]
    np.testing.assert_allclose(ratio / ratio[:1, :1], 1, rtol=1e-6)  # equal up to the key scale
