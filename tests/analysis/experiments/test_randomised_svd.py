"""The range finder against scikit-learn's; its bounds against Gaussian matrices and quadrature."""

import math

import numpy as np
import pytest
import scipy.optimize
from sklearn.utils.extmath import randomized_range_finder

from analysis import inputs
from analysis.experiments import randomised_svd as study
from analysis.experiments.profile import Profile
from approx.estimate import exact

S = np.concatenate([[1.0, 0.7, 0.5, 0.4], 0.3 * np.arange(1, 60) ** -0.7])


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_the_range_is_that_of_scikit_learn(steps):
    A = np.random.default_rng(0).standard_normal((40, 30)) @ np.diag(0.8 ** np.arange(30))
    asked = {"power_iteration_normalizer": "QR", "random_state": 3}
    peer = randomized_range_finder(A, size=9, n_iter=steps, **asked)
    omega = np.random.RandomState(3).normal(size=(30, 9))
    for columns in (9, 5):  # nested
        Q = study.range_basis(A, omega, steps)[:, :columns]
        if columns == 9:
            # both span one space, with a condition below 1e6 of what is orthonormalised
            np.testing.assert_allclose(Q @ (Q.T @ peer), peer, atol=1e-9)
        alone = study.range_basis(A, omega[:, :columns], steps)
        np.testing.assert_allclose(Q @ (Q.T @ alone), alone, atol=1e-9)


def test_the_factors_are_those_of_a_gaussian_pseudo_inverse():
    """E‖G⁺‖_F² = k/(p − 1), and E‖G⁺‖₂ ≤ e√(k + p)/p, for G (k, k + p)."""
    k, p, trials = 4, 9, 4000
    G = np.random.default_rng(1).standard_normal((trials, k, k + p))
    inverse = 1 / np.linalg.svd(G, compute_uv=False)
    squares = np.square(inverse).sum(axis=1)
    mean, stderr = squares.mean(), squares.std() / math.sqrt(trials)
    tail = float(np.linalg.norm(S[k:]))
    first = (study.spectral_bound(S, k, p) - math.e * math.sqrt(k + p) / p * tail) / S[k] - 1
    assert abs(first**2 - mean) < 5 * stderr
    assert inverse[:, -1].mean() < math.e * math.sqrt(k + p) / p


def test_the_norm_of_a_pseudo_inverse_is_the_integral_of_its_tail():
    """P(‖G⁺‖ > t) ≤ (2π(p + 1))^(−½) (e√(k + p)/(p + 1))^(p+1) t^(−p−1), integrated from 0."""
    k, p = 4, 9
    a = math.e * math.sqrt(k + p) / (p + 1)

    def mean(start):
        return start + a * (a / start) ** p / p / math.sqrt(2 * math.pi * (p + 1))

    least = scipy.optimize.minimize_scalar(mean, (a / 2, a)).fun
    without = study.spectral_bound(np.append(np.ones(k), 0.0), k, p)
    assert without == 0
    lone = np.append(np.ones(k), [1e-3] * 10_000)  # the tail's norm is 0.1
    first = (1 + math.sqrt(k / (p - 1))) * 1e-3
    second = (study.spectral_bound(lone, k, p) - first) / 0.1
    left_out = (2 * math.pi * (p + 1)) ** (1 / (2 * (p + 1)))  # 1.23, which the theorem rounds up
    assert second / least == pytest.approx(left_out, rel=1e-6)


def test_a_power_step_is_the_theorem_for_the_powered_matrix():
    for steps in (1, 2):
        e = 2 * steps + 1
        expected = study.spectral_bound(S**e, 5, 6) ** (1 / e)
        assert study.spectral_bound(S, 5, 6, steps) == pytest.approx(expected, rel=1e-13)


def test_errors_are_between_the_best_and_the_bound():
    x = next(iter(inputs.sample().heads())).first(128)
    table = study.compute(Profile("small", (x,), (0.5, 4.0), 32.0, trials=3, draws=10))
    assert [*table] == [*study.COLUMNS]
    index, columns = ["temperature", "oversampling"], ["metric", "steps"]
    wide = table.pivot_table(index=index, columns=columns, values="value")
    for steps in study.STEPS:  # six draws, and factors above 1.3
        mean, least = wide["spectral", steps], wide["spectral_least", -1]
        assert (mean.dropna() > 0.999 * least.dropna()).all()
        assert (mean.dropna() < wide["spectral_bound", steps].dropna()).all()
    at = x.at_temperature(4.0)
    s = np.linalg.svd(exact.softmax(at.Q, at.K), compute_uv=False)
    least = s[study.K + 8] / s[0]
    assert wide.loc[(4.0, 8), ("spectral_least", -1)] == pytest.approx(least, rel=1e-9)
