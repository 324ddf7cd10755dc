"""The expected error of a whole matrix, against its mean over draws."""

import math

import numpy as np
import pytest

from analysis.moments.expected_errors import expected_error
from approx import parse
from approx.estimate import exact


@pytest.mark.parametrize("projection", ["orthogonal", "antithetic"])
def test_expected_error_is_the_mean_over_draws(projection):
    rng = np.random.default_rng(2)
    Q, K = rng.standard_normal((4, 3)) * 0.3, rng.standard_normal((5, 3)) * 0.3
    method = parse(f"positive(m=12, projection='{projection}')")
    truth = exact.kernel(Q, K)
    squares = [
        np.sum((method.approximate(Q, K, rng=seed).to_dense() - truth) ** 2) for seed in range(800)
    ]
    want = expected_error(method, Q, K) ** 2 * np.sum(truth**2)
    error = np.std(squares) / math.sqrt(len(squares))
    assert abs(np.mean(squares) - want) <= 5 * error


def test_expected_error_of_a_biased_method_is_its_error():
    Q, K = np.array([[0.5], [1.0]]), np.array([[0.3], [-1.0]])
    method = parse("taylor(degree=1)")
    truth = exact.kernel(Q, K)
    want = np.linalg.norm(method.approximate(Q, K).to_dense() - truth) / np.linalg.norm(truth)
    assert expected_error(method, Q, K) == pytest.approx(want, rel=1e-12)
