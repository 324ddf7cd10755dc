"""Fourth moments of the error: against nodes and draws."""

import dataclasses

import numpy as np
import pytest

from analysis.advice.pitfalls import LargestEstimates, OneStream
from analysis.moments import monte_carlo, squared_errors as module
from analysis.moments.squared_errors import squared_error
from approx import parse
from approx.estimate import exact
from approx.projections import Fixed
from approx.random_features.hyperbolic import Hyperbolic
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric

FEATURES = ("positive", "hyperbolic", "generalized_exponential", "trigonometric")
SAMPLED = (  # features are held at quadrature nodes
    "lsh(hashes=2, rounds=2)",
    "scatterbrain(low_rank=positive(m=8), sparse=random(k=1))",
)
DRAWS = 1000


def pairs():
    return np.random.default_rng(0).uniform(-0.3, 0.3, (2, 3, 4))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", FEATURES)
def test_fourth_moments_at_quadrature_nodes(name, count):
    """With `count` frequencies in d = 1 at all of their nodes: no chance."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    width = 2 if name in ("hyperbolic", "trigonometric") else 1
    Q, K = np.array([[0.5]]), np.array([[0.3], [0.9], [-0.2]])
    truth = exact.kernel(Q, K)[0]
    one = parse(f"{name}(m={width})")
    held = (
        dataclasses.replace(one, m=None, projection=Fixed(node)) for node in nodes[:, None, None]
    )
    errors = np.array([method.approximate(Q, K).to_dense()[0] / truth - 1 for method in held])
    of_mean, chances = errors, weights
    for _ in range(count - 1):  # sums over every further node
        of_mean = (of_mean[:, None] + errors).reshape(-1, 3)
        chances = np.outer(chances, weights).ravel()
    second, fourth = (chances @ (of_mean / count) ** p for p in (2, 4))
    known = squared_error(parse(f"{name}(m={count * width})"), Q, K)
    # 60 nodes: exponents of 4·√(1 − 4A)|u| ≤ 8, remainder 8^120/120! of e^{32}; errors near 0.1
    np.testing.assert_allclose(np.exp(known.log_mean[0]), second, rtol=1e-9)
    np.testing.assert_allclose(
        np.exp(known.log_relative_variance[0]), fourth / second**2 - 1, rtol=1e-6
    )


def test_a_support_is_an_event_of_probability_one_minus_p():
    p = np.array([[0.25, 0.0, 1.0]])
    found = module._off(p, np.log([[2.0, 2.0, 2.0]]), np.log([[3.0, 3.0, 3.0]]))
    # E e² = 2(1 − p), E e⁴ = (3 + 1)·4·(1 − p): Var/(E e²)² = 4/(1 − p) − 1
    np.testing.assert_allclose(np.exp(found.log_mean), [[1.5, 2.0, 0.0]])
    np.testing.assert_allclose(np.exp(found.log_relative_variance), [[13 / 3, 3.0, 0.0]])


@pytest.mark.parametrize("spec", SAMPLED)
def test_the_mean_of_the_square_is_that_of_draws(spec):
    """To five standard errors of what is known."""
    (Q, K), method, truth = pairs(), parse(spec), exact.kernel(*pairs())
    known, children = squared_error(method, Q, K), np.random.default_rng(1).spawn(DRAWS)
    errors = [method.approximate(Q, K, rng=child).to_dense() / truth - 1 for child in children]
    ratio = np.square(errors).mean(axis=0) / np.exp(known.log_mean)
    z = (ratio - 1) / np.sqrt(np.exp(known.log_relative_variance) / DRAWS)
    assert np.abs(z).max() <= 5


def test_what_is_exact_has_no_error_and_what_is_unknown_none():
    zero = squared_error(Positive(m=4), [[0.0]], [[0.0]])
    assert zero.log_mean[0, 0] == zero.log_relative_variance[0, 0] == -np.inf
    for spec in ("positive(m=4, projection='orthogonal')", "smyrf(size=1)", "taylor(degree=1)"):
        assert squared_error(parse(spec), *pairs()) is None


def test_dependent_supports_have_no_closed_form_and_are_exact_where_they_say():
    Q, K = pairs()
    largest = LargestEstimates(Positive(m=4), parse("top_k(k=2)"))
    A = largest.approximate(Q, K, rng=0)
    assert A.nnz == 6
    low = Positive(m=4).approximate(Q, K, rng=0).to_dense()
    on = A.sparse.toarray() > 0
    assert (np.where(on, low, np.inf).min(axis=1) >= np.where(on, 0, low).max(axis=1)).all()
    np.testing.assert_allclose(A.to_dense()[on], exact.kernel(Q, K)[on], rtol=1e-14)
    np.testing.assert_allclose(A.to_dense()[~on], low[~on], rtol=1e-14)
    assert largest.moments(Q, K) is None
    stream = OneStream(Positive(m=4), parse("lsh(hashes=1, transform='none')"))
    assert stream.moments(Q, K) is None
    assert monte_carlo(stream, Q, K, draws=500, rng=0).mean.max() < 1.05


@pytest.mark.parametrize(
    ("method", "limit"),  # (E e⁴ + 3(N − 1))/N − 1 at N frequencies, E e⁴ = 3 or, of pairs, 15
    [(Positive(m=1), 2.0), (Positive(m=4), 2.0), (Hyperbolic(m=2), 14.0),
     (Hyperbolic(m=8), (15 + 9) / 4 - 1), (Trigonometric(m=2), 14.0)],
)  # fmt: skip
def test_the_variance_of_a_square_has_a_limit_where_nothing_varies_much(method, limit):
    """Never less than it is: at |q ± k| = h the difference to the limit is O(h²) of it."""
    sign = 1.0 if isinstance(method, Trigonometric) else -1.0
    for h in (1e-2, 1e-4, 1e-6):
        found = squared_error(method, [[0.5]], [[sign * (0.5 - h)]])
        value = float(np.exp(found.log_relative_variance[0, 0]))
        assert value == pytest.approx(limit, rel=30 * h**2 + 1e-3)
