"""Random features: golden values, exact moments of every coupling, planted bugs, optima."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from analysis.moments import monte_carlo
from approx import parse
from approx.projections import PROJECTIONS, Antithetic, Fixed, Halton, Orthogonal, Sobol
from approx.projections.summand import Entries, gaussian_log_variance
from approx.random_features.features import Frame
from approx.random_features.generalized_exponential import (
    GeneralizedExponential,
    optimal_tilt,
    second_moments,
)
from approx.random_features.hyperbolic import Hyperbolic
from approx.random_features.positive import Positive
from approx.random_features.shifted_positive import ShiftedPositive
from approx.random_features.trigonometric import Trigonometric

q = np.array([[0.5, 0.3, 0.4, 0.2]])
k = np.array([[0.4, 0.6, -0.2, 0.3]])
EXACT = 1.4333294145603403
FAMILIES = (Positive, Trigonometric, Hyperbolic, GeneralizedExponential, ShiftedPositive)


def summand(x, d, *, paired=False, A=0.0, imaginary=False):
    """Return the summand of one pair with u·u = ±x."""
    a = np.zeros((1, d))
    a[0, 0] = math.sqrt(x)
    return Entries(np.full(d, A), paired, imaginary, a, np.zeros((1, d)))


def variance(method, Q=q, K=k):
    return np.exp(method.moments(Q, K).log_relative_variance)


@pytest.mark.parametrize(
    ("method", "golden"),
    [
        (Positive(m=1), 5.753088798531287),
        (Hyperbolic(m=2), 2.4505845925633746),
        (Trigonometric(m=2), 0.11249823075003052),
        (GeneralizedExponential(m=1), 2.2129000032907866),
        (Positive(m=4), 2.954834172872 / EXACT**2),
        (Positive(m=4, projection="orthogonal"), 2.663311320548 / EXACT**2),
    ],
)
def test_golden_variances(method, golden):
    # given to 12 digits and more; the sums have fewer than 100 roundings
    assert variance(method)[0, 0] == pytest.approx(golden, rel=1e-12)


def test_golden_covariances_of_orthogonal_frequencies():
    for x, imaginary, golden in (
        (1.91, False, -0.18919920804293857),
        (0.47, True, -0.02070236079379215),
    ):
        found = Orthogonal().pair(summand(x, 4, paired=imaginary, imaginary=imaginary), 4)
        assert found[0, 0] == pytest.approx(golden, rel=1e-12)


@given(d=st.integers(1, 128), x=st.floats(-20, 60))
def test_orthogonal_covariance_is_the_hypergeometric_function(d, x):
    with mpmath.workdps(60):
        want = float(mpmath.exp(-x) * mpmath.hyp1f1(d, mpmath.mpf(d) / 2, mpmath.mpf(x) / 2) - 1)
    rho = summand(abs(x), d, paired=x < 0, imaginary=x < 0)
    found = Orthogonal().pair(rho, d)[0, 0]
    # the polynomial alternates for x > 0: |1F1(−d/2; d/2; −x/2)| ≤ e^{|x|/2}, and for x > 0 the
    # factor e^{−x/2} undoes that; for x < 0 both factors are positive
    assert found == pytest.approx(want, rel=1e-10, abs=1e-11)


def directions(d, rng):
    ones = np.ones(d) / math.sqrt(d)
    free = rng.standard_normal(d)
    return [np.eye(d)[0], ones, -ones, free / np.linalg.norm(free)]


@pytest.mark.parametrize("projection", ["iid", "orthogonal", "antithetic"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("d", [1, 2, 4, 16])
def test_mean_and_variance_are_the_closed_form(family, projection, d):
    """|z| ≤ 5, mean with the closed-form standard error, at |q + k| ≤ 1 and |q − k| ≤ 1."""
    rng = np.random.default_rng(d)
    Q = np.array([u * 0.45 for u in directions(d, rng)])
    K = np.array([u * 0.5 for u in directions(d, rng)])
    method = family(m=12, projection=projection)
    if family is ShiftedPositive:  # a mean far from some pairs
        K = K + 0.1
    known = method.moments(Q, K)
    found = monte_carlo(method, Q, K, draws=1500, rng=d)
    assert np.abs(found.z).max() <= 5
    varies = known.log_relative_variance > -40
    z = (found.variance - np.exp(known.log_relative_variance))[varies]
    assert np.abs(z / found.variance_stderr[varies]).max() <= 5


@pytest.mark.parametrize("projection", ["sobol", "halton"])
@pytest.mark.parametrize("family", [Positive, Trigonometric])
def test_scrambled_points_are_unbiased_and_below_iid(family, projection):
    method = family(m=64, projection=projection)
    assert method.moments(q, k) is None
    draws = 300
    found = monte_carlo(method, q / 2, k / 2, draws=draws, rng=0)
    iid = variance(family(m=64), q / 2, k / 2)
    # the sample's variance is at most that of iid draws, which gives a standard error on its side
    assert abs(found.mean[0, 0] - 1) <= 5 * math.sqrt(iid[0, 0] / draws)
    assert found.variance[0, 0] < iid[0, 0] / 2


def test_unscrambled_points_are_refused():
    for projection in (Sobol, Halton):
        with pytest.raises(ValueError, match="no error bar"):
            projection(scramble=False)


@pytest.mark.parametrize(("count", "d"), [(7, 3), (3, 7), (6, 3), (1, 1)])
def test_orthogonal_blocks(count, d):
    omega, _ = Orthogonal().draw(count, d, np.random.default_rng(0))
    for start in range(0, count, d):
        block = omega[start : start + d]
        gram = block @ block.T
        assert np.abs(gram - np.diag(np.diag(gram))).max() < 1e-12 * (1 + np.diag(gram).max())
    sizes = Orthogonal().blocks(count, d)
    assert sum(size * number for size, number in sizes) == count


@dataclasses.dataclass(frozen=True)
class RawQR(Orthogonal):
    """QR without the sign of R: not Haar."""

    def draw(self, count, d, rng):
        g, _ = np.linalg.qr(rng.standard_normal((d, d)))
        return g.T[:count] * np.sqrt(rng.chisquare(d, count))[:, None], np.full(count, 1 / count)


@dataclasses.dataclass(frozen=True)
class OneLength(Orthogonal):
    """All lengths √d."""

    def draw(self, count, d, rng):
        omega, weights = super().draw(count, d, rng)
        return omega * math.sqrt(d) / np.linalg.norm(omega, axis=1, keepdims=True), weights


@pytest.mark.parametrize("bug", [RawQR(), OneLength()])
def test_planted_bugs_of_orthogonal_features_are_noticed(bug):
    d = 4
    rng = np.random.default_rng(0)
    Q = np.array([u * 0.5 for u in directions(d, rng)])
    right, wrong = Positive(m=4, projection="orthogonal"), Positive(m=4, projection=bug)
    z = [np.abs(monte_carlo(m, Q, Q, draws=12_000, rng=1).z).max() for m in (right, wrong)]
    assert z[0] <= 5 < z[1]


def test_identities():
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((3, 4)) / 2, rng.standard_normal((5, 4)) / 2
    plain = Positive(m=6).approximate(Q, K, rng=0).to_dense()
    same = GeneralizedExponential(m=6, a=0.0).approximate(Q, K, rng=0).to_dense()
    np.testing.assert_allclose(same, plain, rtol=1e-13)
    half = Positive(m=12, projection="antithetic").approximate(Q, K, rng=0).to_dense()
    both = Hyperbolic(m=12).approximate(Q, K, rng=0).to_dense()
    np.testing.assert_allclose(half, both, rtol=1e-13)
    centred = (x - x.mean(axis=0) for x in (Q, K))
    Q, K = centred
    shifted = ShiftedPositive(m=6).approximate(Q, K, rng=0).to_dense()
    plain = Positive(m=6).approximate(Q, K, rng=0).to_dense()
    np.testing.assert_allclose(shifted, plain, rtol=1e-12)


def test_variances_of_equal_methods_are_equal():
    antithetic = variance(Positive(m=12, projection="antithetic"))
    np.testing.assert_allclose(antithetic, variance(Hyperbolic(m=12)), rtol=1e-13)
    twice = variance(Hyperbolic(m=24, projection="antithetic"))  # cosh takes each value twice
    np.testing.assert_allclose(twice, variance(Hyperbolic(m=12)), rtol=1e-13)


@given(phi=st.floats(0.01, 30), d=st.integers(1, 128))
def test_the_tilt_is_the_minimum_of_the_mean_log_second_moment(phi, d):
    def mean_log(A):
        y = 2 * phi * d * (1 - 4 * A) / (1 - 8 * A)
        return d * math.log(1 - 4 * A) - d / 2 * math.log(1 - 8 * A) - phi * d + y

    best = optimal_tilt(phi)
    found = scipy.optimize.minimize_scalar(
        mean_log, bounds=(3 * best - 0.01, 0.1), method="bounded", options={"xatol": 1e-10}
    )
    # a minimiser of values with relative error eps is known to √eps of its scale
    assert abs(found.x - best) < 1e-6 * (1 + abs(best))


def test_the_mean_squared_sum_is_the_mean():
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((3, 4)), rng.standard_normal((5, 4)) + 1
    every = [float(np.sum((a + b) ** 2)) for a in Q for b in K]
    assert second_moments(Frame(Q, K)).sum() == pytest.approx(np.mean(every), rel=1e-13)


@pytest.mark.parametrize("family", [Hyperbolic, GeneralizedExponential, ShiftedPositive])
@pytest.mark.parametrize("length", [0.5, 2.0, 3.0])
def test_with_quadrature_nodes_nothing_is_left_to_chance(family, length):
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    fixed = Fixed(nodes[:, None], weights / weights.sum())
    Q, K = np.array([[length * 0.7], [0.1]]), np.array([[length * 0.3], [-0.2]])
    method = family(projection=fixed)
    # 180 nodes are exact to rounding for e^{aω² + bω} at these sizes: reference, 150 and more
    assert np.abs(method.moments(Q, K).relative_bias).max() < 1e-12


def test_hyperbolic_beats_sines_exactly_where_logits_are_negative():
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((20, 3)) / 2, rng.standard_normal((20, 3)) / 2
    hyperbolic, sines = variance(Hyperbolic(m=2), Q, K), variance(Trigonometric(m=2), Q, K)
    assert ((sines < hyperbolic) == (Q @ K.T > 0)).all()


@given(x=st.floats(1e-12, 40), A=st.floats(-3, 0.1), d=st.integers(1, 64), paired=st.booleans())
def test_log_variance_against_mpmath(x, A, d, paired):
    with mpmath.workdps(60):
        X, a = mpmath.mpf(x), mpmath.mpf(A)
        y = 2 * X * (1 - 4 * a) / (1 - 8 * a)
        factor = (1 + mpmath.exp(y)) / 2 if paired else mpmath.exp(y)
        moment = (1 - 4 * a) ** d * (1 - 8 * a) ** (-mpmath.mpf(d) / 2) * mpmath.exp(-X) * factor
        want = float(mpmath.log(moment - 1)) if moment > 1 else -math.inf
    found = gaussian_log_variance(summand(x, d, paired=paired, A=A))[0, 0]
    # log E ρ² is a sum of terms up to d·log(25) and 9x: what rounding leaves of E ρ² − 1
    noise = math.log(4e-15 * (4 * d + 10 * x + 1))
    if want < noise + 1:
        assert found <= noise + 2
    else:  # |log(1 + e)| ≤ 2|e| for |e| ≤ 1/e
        assert abs(found - want) <= 2 * math.exp(noise - want) + 1e-13


def test_projections_are_named():
    for name, projection in PROJECTIONS.items():
        assert Positive(projection=projection).projection == name
    method = parse("positive(m=8, projection='orthogonal')")
    assert method == Positive(m=8, projection=Orthogonal())
    assert Antithetic().blocks(5, 2) == [(2, 2), (1, 1)]
    with pytest.raises(ValueError, match="a must be finite and < 1/8"):
        GeneralizedExponential(m=2, a=0.2)
