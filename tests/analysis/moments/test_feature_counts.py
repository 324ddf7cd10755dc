"""The number of features that an expected error needs: enough, and no more."""

import dataclasses
import math

import numpy as np
import pytest
from refusals import refuses

from analysis.moments.expected_errors import expected_error, features_needed
from approx import parse
from approx.estimate import exact

COUPLED = ("antithetic", "orthogonal", "simplex", "zero_mean")


@pytest.mark.parametrize(
    ("name", "projection"),
    [(name, projection) for name in ("positive", "hyperbolic") for projection in COUPLED]
    + [("trigonometric", "simplex"), ("random_phase", "antithetic")],
)
def test_features_needed_are_the_least_of_all(name, projection):
    """Against every m: where a coupling leaves a frequency alone, one more may raise the error."""
    rng = np.random.default_rng(4)
    template = parse(f"{name}(projection='{projection}')")
    rises = 0
    for size, d in ((0.05, 1), (0.4, 3), (0.9, 4)):
        Q, K = rng.standard_normal((2, d)) * size, rng.standard_normal((3, d)) * size
        sizes = np.arange(1, 9) * template.sized_by.step
        errors = [expected_error(dataclasses.replace(template, m=int(m)), Q, K) for m in sizes]
        rises += sum(np.diff(errors) > 0)
        for target in {*errors, *(e * 1.01 for e in errors)}:
            first = sizes[np.argmax(np.array(errors) <= target)]
            more = features_needed(template, target, Q, K) - first
            if projection == "simplex" and name != "positive":
                assert 0 <= more <= 2 * d * template.sized_by.step
            else:
                assert more == 0
    if projection == "antithetic" and name == "positive":
        assert rises > 2  # there is something to get wrong


def test_features_needed_of_a_method_with_a_part():
    rng = np.random.default_rng(3)
    Q, K = rng.standard_normal((4, 3)) * 0.4 + 0.3, rng.standard_normal((5, 3)) * 0.4
    centred = Q - Q.mean(axis=0), K - K.mean(axis=0)
    alone = features_needed(parse("hyperbolic"), 0.03, *centred)
    found = int(features_needed(parse("centered(hyperbolic)"), 0.03, Q, K))
    filled = (
        expected_error(parse(f"centered(hyperbolic(m={m}))"), Q, K) for m in (found, found - 2)
    )
    assert next(filled) <= 0.03 < next(filled)
    assert found != alone  # the error is relative to another matrix
    spec = "scatterbrain(positive{}, top_k(k=2))"
    found = int(features_needed(parse(spec.format("")), 0.03, Q, K))
    assert expected_error(parse(spec.format(f"(m={found})")), Q, K) <= 0.03
    assert expected_error(parse(spec.format(f"(m={found - 1})")), Q, K) > 0.03
    refuses("has no size m", features_needed, parse("centered(taylor(degree=1))"), 0.1, Q, K)


# 26.2: 1.4e300 features, nearly 2^1000; 3e302, 2e309, and e^{1600/2}: beyond floats
@pytest.mark.parametrize("length", [16.0, 26.2, 26.3, 26.6, 40.0])
def test_features_needed_are_a_float_as_far_as_floats_go_and_inf_beyond(length):
    near = [[length / 2]], [[length / 2]]
    found = features_needed(parse("positive"), 0.1, *near)
    assert isinstance(found, float)
    if length < 26.3:
        assert found == pytest.approx(math.exp(length**2) / 0.01, rel=1e-11 + length**2 * 1e-15)
    else:
        coupled = features_needed(parse("positive(projection='orthogonal')"), 0.1, *near)
        assert found == coupled == math.inf


def test_features_needed_are_refused_where_no_variance_is_known():
    with pytest.raises(ValueError, match=r"known in closed form.* give an m, .*monte_carlo"):
        features_needed(parse("positive(projection='sobol')"), 0.1, [[0.1]], [[0.1]])
    refuses("has no size m", features_needed, parse("taylor(degree=1)"), 0.1, [[0.1]], [[0.1]])


# The expected error of a whole matrix


@pytest.mark.parametrize("projection", ["iid", "orthogonal", "antithetic"])
def test_expected_error_is_the_root_of_the_mean_of_variances(projection):
    """Tests of the methods compare these with draws."""
    rng = np.random.default_rng(2)
    Q, K = rng.standard_normal((4, 3)) * 0.3, rng.standard_normal((5, 3)) * 0.3
    method = parse(f"positive(m=12, projection='{projection}')")
    squares = exact.kernel(Q, K) ** 2
    variance = np.exp(method.moments(Q, K).log_relative_variance)
    want = math.sqrt((variance * squares).sum() / squares.sum())
    assert expected_error(method, Q, K) == pytest.approx(want, rel=1e-12)


def test_expected_error_of_a_biased_method_is_its_error():
    Q, K = np.array([[0.5], [1.0]]), np.array([[0.3], [-1.0]])
    method = parse("taylor(degree=1)")
    truth = exact.kernel(Q, K)
    want = np.linalg.norm(method.approximate(Q, K).to_dense() - truth) / np.linalg.norm(truth)
    assert expected_error(method, Q, K) == pytest.approx(want, rel=1e-12)
