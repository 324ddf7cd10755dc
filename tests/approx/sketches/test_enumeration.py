"""Means, variances and covariances of sketches by enumeration of every draw: no chance."""

import itertools
import math

import numpy as np
import pytest

from approx.estimate import exact
from approx.sketches.product_sketch import ProductSketch
from approx.sketches.random_maclaurin import RandomMaclaurin, monomials
from approx.sketches.squared_sketch import SquaredSketch
from approx.sketches.tensor_sketch import Hashes, TensorSketch

# Gauss–Hermite nodes of N(0, 1): exact for powers up to 5 and up to 9
HERMITE = {3: ([-math.sqrt(3), 0.0, math.sqrt(3)], [1 / 6, 2 / 3, 1 / 6])}
x, w = np.polynomial.hermite_e.hermegauss(5)
HERMITE[5] = (x.tolist(), (w / w.sum()).tolist())
SIGNS = ([-1.0, 1.0], [0.5, 0.5])
ROUNDING = 1e-12  # thousands of terms of size up to 10³ of the result, each with 10 roundings


def points(d, size=0.8, n=2, l=3):
    rng = np.random.default_rng(d)
    return rng.uniform(-size, size, (n, d)), rng.uniform(-size, size, (l, d))


def arrays(law, shape):
    """Yield (probability, array) for every array of independent entries of a law."""
    values, weights = law
    count = math.prod(shape)
    for places in itertools.product(range(len(values)), repeat=count):
        probability = math.prod(weights[i] for i in places)
        yield probability, np.array([values[i] for i in places]).reshape(shape)


def enumerated(draws, Q, K):
    """Return total probability, mean, variance and covariance of row 0, relative to exp(q·k)."""
    truth = exact.kernel(Q, K)
    mass, first, second = 0.0, np.zeros_like(truth), np.zeros((len(Q), len(K), len(K)))
    for probability, factors in draws:
        ratio = np.exp(factors.row_logs)[:, None] * (factors.left @ factors.right.T) / truth
        mass += probability
        first += probability * ratio
        second += probability * ratio[:, :, None] * ratio[:, None, :]
    covariance = second - first[:, :, None] * first[:, None, :]
    return mass, first, np.einsum("ijj->ij", covariance), covariance[0]


def check(method, draws, Q, K):
    """Compare with what the method says of itself; return the mean."""
    mass, mean, variance, covariance = enumerated(draws, Q, K)
    assert mass == pytest.approx(1, rel=ROUNDING)
    known = method.moments(Q, K)
    scale = 1 + mean**2
    assert (np.abs(mean - 1 - known.relative_bias) <= ROUNDING * scale).all()
    said = np.exp(known.log_relative_variance)
    assert (np.abs(variance - said) <= ROUNDING * (scale + said)).all()
    assert said.max() > 1e-3  # there was something to find
    if (told := method.covariance(Q, K, row=0)) is not None:
        size = ROUNDING * (scale[0].max() + np.diag(told).max())
        assert (np.abs(covariance - told) <= size).all()
    return mean


def power_ratio(Q, K, p):
    return (1 + Q @ K.T / p) ** p / np.exp(Q @ K.T)


@pytest.mark.parametrize(("law", "m", "degree", "d"), [
    ("rademacher", 1, 1, 4), ("rademacher", 1, 2, 2), ("rademacher", 1, 3, 1),
    ("rademacher", 2, 2, 1), ("rademacher", 3, 1, 2), ("rademacher", 2, 3, 1),
    ("gaussian", 1, 1, 3), ("gaussian", 1, 2, 1), ("gaussian", 2, 1, 2), ("gaussian", 1, 3, 1),
])  # fmt: skip
def test_products(law, m, degree, d):
    """Each Gaussian w enters with power 4: three nodes are exact."""
    Q, K = points(d)
    method = ProductSketch(m=m, degree=degree, law=law)
    each = SIGNS if law == "rademacher" else HERMITE[3]
    draws = ((p, method.features(Q, K, levels)) for p, levels in arrays(each, (degree, m, d + 1)))
    mean = check(method, draws, Q, K)
    np.testing.assert_allclose(mean, power_ratio(Q, K, degree), rtol=ROUNDING)


@pytest.mark.parametrize(("m", "degree", "d"), [
    (1, 2, 1),
    (2, 2, 1),
    (3, 2, 1),
    (4, 1, 2),
    (2, 1, 3),
    (4, 1, 1),
    pytest.param(5, 1, 2, marks=pytest.mark.slow),
    pytest.param(2, 3, 1, marks=pytest.mark.slow),
])  # fmt: skip
def test_tensor_sketch_over_every_hash_and_sign(m, degree, d):
    Q, K = points(d)
    method = TensorSketch(m=m, degree=degree)
    shape = degree, d + 1
    buckets = (list(range(m)), [1 / m] * m)
    draws = (
        (p * s, method.features(Q, K, Hashes(bucket.astype(int), signs)))
        for p, bucket in arrays(buckets, shape)
        for s, signs in arrays(SIGNS, shape)
    )
    mean = check(method, draws, Q, K)
    np.testing.assert_allclose(mean, power_ratio(Q, K, degree), rtol=ROUNDING)


@pytest.mark.parametrize(("law", "inner", "degree", "d"), [
    ("rademacher", 1, 2, 3), ("rademacher", 2, 4, 1), ("rademacher", 3, 2, 2),
    ("rademacher", 4, 2, 2), ("rademacher", 1, 6, 2), ("gaussian", 1, 2, 2),
    ("gaussian", 2, 2, 1), ("gaussian", 1, 4, 1),
])  # fmt: skip
def test_squared_sketch(law, inner, degree, d):
    """Each w enters with power 8: five nodes are exact."""
    Q, K = points(d)
    method = SquaredSketch(inner=inner, degree=degree, law=law)
    each = SIGNS if law == "rademacher" else HERMITE[5]
    draws = (
        (p, method.features(Q, K, levels))
        for p, levels in arrays(each, (degree // 2, inner, d + 1))
    )
    mean = check(method, draws, Q, K)
    # above the power by the variance of the inner sketch of its root
    inside = ProductSketch(m=inner, degree=degree // 2, law=law)
    scale = math.sqrt((degree // 2) / degree)  # (1 + q·k/p)^{p/2}: logits half as large
    known = inside.moments(Q * scale, K * scale)
    more = np.exp(known.log_relative_variance)
    np.testing.assert_allclose(mean, power_ratio(Q, K, degree) + more, rtol=1e-11)


def law_of(name, j, first, rate):
    """P(N = j), by its definition."""
    if name == "geometric":
        return 0.5 ** (j - first + 1)
    below = sum(rate**i / math.factorial(i) for i in range(first))
    return rate**j / math.factorial(j) / (math.exp(rate) - below)


def degree_draws(method, Q, K, count, last):
    """Yield every draw of count features with degrees up to last, with its probability.

    Then what is left of it, in which the random features are 0: exact degrees still count.
    """
    d, first, rate = Q.shape[1], method.exact, method.rate(Q, K)
    for N in itertools.product(range(last, first - 1, -1), repeat=count):
        if list(N) != sorted(N, reverse=True):
            continue
        orders = math.factorial(count) / math.prod(math.factorial(N.count(i)) for i in set(N))
        each = orders * math.prod(law_of(method.law, j, first, rate) for j in N)
        for p, flat in arrays(SIGNS, (sum(N), d)):
            levels, start = [], 0
            for i in range(N[0]):
                active = sum(n > i for n in N)
                levels.append(flat[start : start + active])
                start += active
            yield each * p, method.features(Q, K, np.array(N), levels, rate)
    mass = sum(law_of(method.law, j, first, rate) for j in range(first, last + 1))
    if first:
        yield 1 - mass**count, monomials(Q, K, first - 1)


@pytest.mark.parametrize("law", ["geometric", "poisson"])
@pytest.mark.parametrize(("last", "d", "first"), [
    (8, 1, 3),
    (3, 2, 0),
    (4, 2, 2),
    pytest.param(5, 2, 1, marks=pytest.mark.slow),
    pytest.param(5, 2, 3, marks=pytest.mark.slow),
])  # fmt: skip
def test_random_maclaurin_over_every_degree_and_sign(law, last, d, first):
    """What degrees above ``last`` add falls faster than geometrically: at most twice the first."""
    Q, K = points(d, 0.6 if d == 1 else 0.3)
    low = math.comb(d + first - 1, d) if first else 0
    method = RandomMaclaurin(m=low + 1, law=law, exact=first)
    _, mean, variance, covariance = enumerated(degree_draws(method, Q, K, 1, last), Q, K)
    rate, j, c = method.rate(Q, K), last + 1, np.abs(Q @ K.T).max()
    of_mean = 2 * c**j / math.factorial(j) * math.exp(c)
    M = max((q @ q) * (k @ k) + 2 * (q @ k) ** 2 - 2 * q**2 @ k**2 for q in Q for k in K)
    of_square = 2 * M**j / math.factorial(j) ** 2 / law_of(law, j, first, rate) * math.exp(2 * c)
    assert np.abs(mean - 1).max() <= ROUNDING + of_mean
    known = method.moments(Q, K)
    assert not known.relative_bias.any()
    said = np.exp(known.log_relative_variance)
    of_rest = c**first / math.factorial(first) * math.exp(2 * c)  # bounds the random part's mean
    slack = ROUNDING * (1 + said.max()) + of_square + 4 * of_mean * of_rest
    assert slack < 1e-2 * said.max()  # tight enough to see every term
    assert np.abs(variance - said).max() <= slack
    assert np.abs(covariance - method.covariance(Q, K, row=0)).max() <= slack


@pytest.mark.parametrize("law", ["geometric", "poisson"])
@pytest.mark.parametrize(("last", "d", "first"), [(3, 1, 2), (2, 2, 1)])
def test_two_random_features_have_half_the_variance(law, last, d, first):
    """Given degrees up to ``last`` both are independent copies of one."""
    Q, K = points(d)
    low = math.comb(d + first - 1, d) if first else 0
    found = []
    for count in (1, 2):
        method = RandomMaclaurin(m=low + count, law=law, exact=first)
        draws = list(degree_draws(method, Q, K, count, last))[: -1 if first else None]
        mass = sum(p for p, _ in draws)
        found.append(enumerated(((p / mass, factors) for p, factors in draws), Q, K))
    (_, mean, one, covariance), (_, again, two, half) = found
    np.testing.assert_allclose(again, mean, rtol=ROUNDING)
    atol = ROUNDING * one.max()
    np.testing.assert_allclose(two, one / 2, atol=atol)
    np.testing.assert_allclose(half, covariance / 2, atol=atol)


def test_the_rate_of_degrees_is_the_root_of_the_mean_of_m():
    Q, K = points(3, n=5, l=4)
    M = [(q @ q) * (k @ k) + 2 * (q @ k) ** 2 - 2 * np.sum(q**2 * k**2) for q in Q for k in K]
    assert RandomMaclaurin().rate(Q, K) == pytest.approx(math.sqrt(np.mean(M)), rel=1e-13)
    assert RandomMaclaurin().rate(0 * Q, K) > 0
