"""Collision probabilities: golden values, quadrature by another route, frequencies, (1 − p)."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import integrate, stats

from approx import Mask, parse
from approx.estimate import exact
from approx.sparse import lsh
from approx.sparse.lsh import LSH
from approx.supports import hashing

ANGLES = np.array([0.02, 0.3, 1.0, math.pi / 2, 2.2, 3.0])


def pairs(angles, d=4, length=1.0):
    """Return one query and unit keys at these angles from it."""
    K = np.zeros((len(angles), d))
    K[:, 0], K[:, 1] = np.cos(angles), np.sin(angles)
    return np.eye(1, d), length * K


DRAWS = 400


def frequencies(method, Q, K, mask=None):
    """Return in which share of the draws each pair is in the support."""
    rng, count = np.random.default_rng(0), np.zeros((len(Q), len(K)))
    for _ in range(DRAWS):
        count[method.approximate(Q, K, mask=mask, rng=rng).sparse.nonzero()] += 1
    return count / DRAWS


def z_scores(frequency, p):
    """Return (frequency − p)/√(p(1 − p)/draws) where p is not 0 or 1, checked there exactly."""
    sure = (p <= 0) | (p >= 1)
    np.testing.assert_array_equal(frequency[sure], p[sure])
    return (frequency - p)[~sure] / np.sqrt((p * (1 - p))[~sure] / DRAWS)


# Collision of one hash


@pytest.mark.parametrize(("theta", "buckets"), [(1.4, 4), (0.7, 6), (2.3, 64)])
def test_cross_polytope_collision_by_another_route(buckets, theta):
    """Rectangles from scipy's bivariate normal (1e-5), a product rule to 7 deviations: 2e-5."""
    rho = math.cos(theta)
    normal = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]])
    nodes, weights = np.polynomial.legendre.leggauss(24)
    x, w = 3.5 * (nodes + 1), 3.5 * weights
    total = sum(
        u * v * normal.pdf([a, b]) * normal.cdf([a, b], lower_limit=[-a, -b]) ** (buckets // 2 - 1)
        for a, u in zip(x, w)
        for b, v in zip(x, w)
    )
    assert abs(buckets * total - hashing.cross_polytope_collision(theta, buckets)) < 2e-5


def test_cross_polytope_collision_of_four_buckets_and_at_its_ends():
    """The quadrature, which has a kink there, against the closed form."""
    theta = np.array([0.3, 1.0, 2.0])
    known = hashing.cross_polytope_collision(theta, 4)
    np.testing.assert_allclose(known, (1 - theta / math.pi) ** 2, rtol=1e-15)
    found = [hashing._collision(x, 4) for x in theta]
    np.testing.assert_allclose(found, known, rtol=0, atol=1e-6)
    for buckets in (4, 16, 128):
        p = hashing.cross_polytope_collision(np.array([0.0, math.pi / 2, math.pi]), buckets)
        # equal vectors always collide, independent ones in one bucket of all, opposite ones never
        np.testing.assert_allclose(p, [1, 1 / buckets, 0], rtol=0, atol=1e-8)


def test_e2_collision_by_quadrature():
    """p = ∫_0^r f(t)(1 − t/r) dt, f the density of |w·(x − y)|."""
    for c in (0.1, 1.0, 7.0):
        for width in (0.5, 2.0):
            known, _ = integrate.quad(
                lambda t, c=c, r=width: 2 / c * stats.norm.pdf(t / c) * (1 - t / r), 0, width
            )
            found = hashing.e2_collision(np.array(c), width)
            np.testing.assert_allclose(found, known, rtol=1e-10)


def test_the_unit_of_an_e2_bucket_is_the_root_mean_squared_distance():
    """Every pair one by one, and the probability of [0, width) by quadrature: q̄·k̄ = 3."""
    Q, K = np.array([[1.0, 2.0], [3.0, 1.0]]), np.array([[0.5, 0.0], [1.0, 3.0], [0.0, 1.0]])
    distance = np.array([[math.dist(q, k) for k in K] for q in Q])
    r = 1.5 * math.sqrt(sum(c * c for c in distance.ravel()) / 6)
    want = [
        integrate.quad(lambda t, c=c: 2 / c * stats.norm.pdf(t / c) * (1 - t / r), 0, r)[0]
        for c in distance.ravel()
    ]
    found = parse("lsh('e2', hashes=1, width=1.5)").probability(Q, K)
    np.testing.assert_allclose(found.ravel(), want, rtol=1e-10)


def test_xbox_puts_all_on_one_sphere_and_keeps_products():
    Q, K = np.random.default_rng(0).standard_normal((2, 7, 3))
    q, k = hashing.xbox(Q, K[:4])
    np.testing.assert_allclose(q @ k.T, Q @ K[:4].T, rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.ptp((np.vstack([q, k]) ** 2).sum(1)), 0, atol=1e-13)


# Collision of a support


@pytest.mark.parametrize(
    "spec",
    [
        "lsh(hashes=1)",
        "lsh(hashes=3, rounds=2)",
        "lsh(hashes=2, rounds=3, transform='xbox')",
        "lsh(family='cross_polytope', hashes=2, rounds=3, buckets=4, transform='xbox')",
        "lsh(family='e2', hashes=2, rounds=2, width=2.5, transform='xbox')",
    ],
)
def test_frequencies_are_the_probability(spec):
    """|z| ≤ 5 over 6 to 24 pairs whose p is between 0.01 and 0.99; 0 for what is not seen."""
    Q, K = pairs(ANGLES, length=0.8)
    Q = np.vstack([Q, 1.7 * Q, K[:2]])
    method = parse(spec)
    for mask in (None, Mask.window(4, 6, 4)):
        p = method.probability(Q, K, mask=mask)
        assert mask is None or not p[~mask.visible()].any()
        assert np.abs(z_scores(frequencies(method, Q, K, mask), p)).max() <= 5


@pytest.mark.parametrize("spec", ["lsh(rounds=3)", "lsh('e2', transform='xbox')"])
@pytest.mark.parametrize(
    ("entries", "mask"),
    [(0.5, None), (3.0, None), (11.0, None), (20.0, None), (1.0, Mask.window(20, 20, 7))],
)
def test_the_least_number_of_hashes_for_so_many_entries(spec, entries, mask):
    Q, K = np.random.default_rng(3).standard_normal((2, 20, 6))
    shape = {"n": 20, "l": 20, "d": 6, "mask": mask}
    method = parse(spec).within(entries, **shape)
    assert method.price(**shape).stored == entries
    hashes = method.fitted(Q, K, mask=mask)
    assert method.probability(Q, K, mask=mask).sum() / 20 <= entries
    assert mask is None or hashes < method.fitted(Q, K)
    if hashes > 1:
        fewer = dataclasses.replace(method, entries=None, hashes=hashes - 1)
        assert fewer.probability(Q, K, mask=mask).sum() / 20 > entries
    same = dataclasses.replace(method, entries=None, hashes=hashes)
    np.testing.assert_array_equal(
        method.approximate(Q, K, mask=mask, rng=5).to_dense(),
        same.approximate(Q, K, mask=mask, rng=5).to_dense(),
    )


def test_vectors_of_length_zero():
    Q, K = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 0.0], [0.0, 2.0]])
    for family in hashing.FAMILIES:
        method = LSH(family, hashes=1)
        z = z_scores(frequencies(method, Q, K), method.probability(Q, K))
        assert np.abs(z).max() <= 5


# Scatterbrain on it


def test_golden_values_of_the_theorem():
    """Unit vectors, 4 sign bits, one table, 44 positive features."""
    q, k = pairs(np.arccos([-0.5, 0.0, 0.5]))
    sparse = "lsh(hashes=4)"
    p = parse(sparse).probability(q, k)[0]
    np.testing.assert_allclose(p, [1 / 81, 1 / 16, 16 / 81], rtol=1e-12)
    unit = np.exp(2 * exact.logits(q, k)[0])

    def squared_error(spec):
        bias, log_variance = parse(spec).moments(q, k)
        return unit * (bias[0] ** 2 + np.exp(log_variance[0]))

    both = squared_error(f"scatterbrain(low_rank=positive(m=44), sparse={sparse})")
    np.testing.assert_allclose(both, [0.014189, 0.136130, 0.946182], atol=5e-7)
    np.testing.assert_allclose(both, (1 - p) * squared_error("positive(m=44)"), rtol=1e-12)
    np.testing.assert_allclose(squared_error(sparse), [0.363338, 0.937500, 2.181337], atol=5e-7)


@pytest.mark.parametrize("hashes", [1, 21, 40, 63, 64])
def test_labels_are_equal_where_all_codes_are(hashes):
    few = np.random.default_rng(0).integers(-3, 4, (6, hashes))  # 7^21 < 2^63 < 7^40
    codes = np.concatenate([few[:, :1] * np.ones(hashes, int), few, few, few % 2])
    queries, keys = lsh._labels(codes[:10], codes[10:])
    labels = np.concatenate([queries, keys])
    want = (codes[:, None] == codes).all(axis=2)
    np.testing.assert_array_equal(labels[:, None] == labels, want)
