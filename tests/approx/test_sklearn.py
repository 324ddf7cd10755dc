"""The transformer of scikit-learn: its own checks, and ours."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from approx.projections import Fixed
from approx.random_features.positive import Positive
from approx.sklearn import SoftmaxKernelSampler


@parametrize_with_checks(
    [SoftmaxKernelSampler(), SoftmaxKernelSampler(64, projection="antithetic")]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def pairs():
    rng = np.random.default_rng(0)
    return 0.4 * rng.standard_normal((2, 5, 3))


def test_it_is_unbiased_with_the_variance_it_states():
    X, Y = pairs()
    scale, m = 0.5, 40_000
    sampler = SoftmaxKernelSampler(m, scale=scale, random_state=1).fit(X)
    mean = np.sum(sampler.transform(X) * sampler.transform(Y), axis=1)
    truth = np.exp(scale * np.sum(X * Y, axis=1))
    spread = np.expm1(scale * np.square(X + Y).sum(axis=1)) / m
    assert (np.abs(mean / truth - 1) <= 5 * np.sqrt(spread)).all()
    half = np.sum(sampler.transform(X / 2**0.5) * sampler.transform(Y / 2**0.5), axis=1)
    assert (np.abs(half / truth - 1) > 5 * np.sqrt(spread)).any()  # another scale is noticed


def test_it_is_the_method_positive():
    X, Y = pairs()
    sampler = SoftmaxKernelSampler(7, random_state=0).fit(X)
    root = 3**-0.25  # of the scale 1/√d
    method = Positive(projection=Fixed(sampler.random_weights_))
    estimate = method.approximate(X * root, Y * root).to_dense()
    np.testing.assert_allclose(sampler.transform(X) @ sampler.transform(Y).T, estimate, rtol=1e-12)


def test_names_and_errors():
    X, _ = pairs()
    sampler = SoftmaxKernelSampler(2).fit(X)
    assert sampler.get_feature_names_out().tolist() == [
        "softmaxkernelsampler0", "softmaxkernelsampler1",
    ]  # fmt: skip
    for parameters, match in [
        ({"n_components": 0}, "n_components must be >= 1, got 0"),
        ({"scale": -1}, "scale must be finite and > 0, got -1"),
        ({"projection": "square"}, "projection"),
        ({"projection": "moment_matched", "n_components": 3}, "needs n_components >= 4 at d=3"),
    ]:
        with pytest.raises(ValueError, match=match):
            SoftmaxKernelSampler(**parameters).fit(X)
    wide = SoftmaxKernelSampler(4, scale=1.0, random_state=0).fit(np.ones((1, 3000)))
    with pytest.raises(ValueError, match="is not representable in float64"):
        wide.transform(wide.random_weights_[:1])  # e^{|ω|²/2}
