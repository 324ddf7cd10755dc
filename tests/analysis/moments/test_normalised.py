"""Bias and variance of normalised attention by the delta method, against draws."""

import numpy as np
import pytest

from analysis.moments.normalised import normalised_moments
from approx import parse
from approx.estimate import exact


@pytest.mark.parametrize("spec", [
    "positive(m=400)",
    "scatterbrain(positive(m=200), top_k(k=1))",
    pytest.param("trigonometric(m=800)", marks=pytest.mark.slow),
    pytest.param("positive(m=400, projection='orthogonal')", marks=pytest.mark.slow),
])  # fmt: skip
def test_the_delta_method(spec):
    """Bias and variance of a ratio to first order: 20 % of the largest, at m ≥ 200 where R ≪ 1."""
    rng = np.random.default_rng(6)
    Q, K = rng.standard_normal((3, 4)) * 0.3, rng.standard_normal((5, 4)) * 0.3
    method = parse(spec)
    found = normalised_moments(method, Q, K)
    assert found.row_variance.max() < 0.06
    attention = exact.softmax(Q, K)
    T = 1000
    draws = np.empty((T, 3, 5))
    for t in range(T):
        estimate = method.approximate(Q, K, rng=t).to_dense()
        draws[t] = estimate / estimate.sum(axis=1, keepdims=True) - attention
    bias, variance = draws.mean(axis=0), draws.var(axis=0)
    stderr = np.sqrt(variance / T)
    assert (np.abs(bias - found.bias) <= 5 * stderr + 0.2 * np.abs(found.bias).max()).all()
    assert (np.abs(variance - found.variance) <= 0.2 * found.variance.max()).all()
    # rows sum to one, exact ones too
    np.testing.assert_allclose(found.bias.sum(axis=1), 0, atol=1e-12)


@pytest.mark.parametrize(("q", "keys", "m", "lower"), [
    (0.6, (0.4, 0.3), 6, 0.56), (1.2, (0.36, 0.3), 35, 0.79),
    *(pytest.param(*case, marks=pytest.mark.slow)
      for case in ((0.6, (0.4, 0.3), 86, 0.14), (1.2, (0.36, 0.3), 520, 0.36))),
])  # fmt: skip
def test_the_true_variance_is_lower_than_the_delta_method_says(q, keys, m, lower):
    """The numbers of the docstring, at R_jj = .02 and .3."""
    K = np.array(keys)
    method, rng = parse(f"positive(m={m})"), np.random.default_rng(0)
    found = normalised_moments(method, [[q]], K[:, None])
    largest = np.exp(method.moments([[q]], K[:, None]).log_relative_variance).max()
    assert largest == pytest.approx(0.02 if m > 50 else 0.3, rel=0.05)
    omega = rng.standard_normal((min(8_000_000 // m, 100_000), m))
    one, other = (np.exp(omega * (q + k) - k * k / 2).mean(axis=1) for k in keys)
    share = one / (one + other)
    ratio = share.var() / found.variance[0, 0]
    fourth = np.mean((share - share.mean()) ** 4) / share.var() ** 2
    spread = ratio * np.sqrt((fourth - 1) / len(share))  # of a sample variance
    assert abs(1 - ratio - lower) < 5 * spread + 0.005  # which is printed to two digits


def test_the_delta_method_of_biased_and_unknown_methods():
    Q, K = np.array([[0.5], [1.0]]), np.array([[0.3], [-1.0]])
    taylor = parse("taylor(degree=2)")
    found = normalised_moments(taylor, Q, K)
    dense = taylor.approximate(Q, K).to_dense()
    want = dense / dense.sum(axis=1, keepdims=True) - exact.softmax(Q, K)
    np.testing.assert_allclose(found.bias, want, atol=1e-14)
    assert not found.variance.any()
    assert normalised_moments(parse("positive(m=4, projection='simplex')"), Q, K) is not None
    wide = np.eye(3)
    assert normalised_moments(parse("positive(m=4, projection='simplex')"), wide, wide) is None
    assert normalised_moments(parse("leverage(m=2)"), Q, K) is None
