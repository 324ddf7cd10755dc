"""Bias and variance of random features in closed form, and functions of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from mpmath import mp

from analysis.moments.expected_errors import expected_error
from analysis.moments.normalised import normalised_moments
from analysis.moments.squared_errors import frobenius_error, squared_error
from approx import parse
from approx.projections.summand import (
    Entries,
    gaussian_covariance,
    gaussian_exponents,
    gaussian_log_variance,
    times,
)
from studies.accuracy.attention import arrays, dot, products, softmax
from studies.accuracy.measure import Point, measured, points

SCALES = 1e-3, 0.05, 0.4, 2.0  # of q and k


def pairs(size: int, *, n: int = 1, l: int = 2, d: int = 4) -> list[tuple]:
    """Return Q and K; also nearly opposite q and k, with small q + k."""
    found = arrays(size, np.float64, (n, d), (l, d), scales=SCALES)
    q, k = arrays(size, np.float64, (n, d), (l, d), scales=(1.0,))[0]
    away = -np.repeat(q[:1], l, axis=0) + 1e-2 * k
    return [*found, (q, away)]


def square(q: Any, k: Any, sign: int = 1) -> Any:
    return mp.fsum((a + sign * b) ** 2 for a, b in zip(q, k))


def rho(x: Any) -> Any:
    """Return the relative variance of one frequency, e^x − 1."""
    return mp.expm1(x)


def even(x: Any) -> Any:
    """Return the relative variance of a pair of frequencies, cosh x − 1."""
    return 2 * mp.sinh(x / 2) ** 2


def logs(q: Any, k: Any, variance: Any, sign: int, count: int) -> list:
    return [[mp.log(variance(square(x, y, sign)) / count) for y in k] for x in q]


def tilted(x: Any, a: float, d: int) -> Any:
    r = 1 / (1 - 8 * mp.mpf(a))
    return mp.exp(r * x) * ((1 + r) ** 2 / (4 * r)) ** (mp.mpf(d) / 2) - 1


def orthogonal(x: Any, d: int) -> Any:
    """Return the variance of a block of d orthogonal frequencies times d."""
    pair = mp.exp(-x) * mp.hyp1f1(d, mp.mpf(d) / 2, x / 2) - 1
    return rho(x) + (d - 1) * pair


FAMILIES = {
    "positive(m=8)": (rho, 1, 8),
    "trigonometric(m=8)": (even, -1, 4),
    "hyperbolic(m=8)": (even, 1, 4),
    "generalized_exponential(m=8, a=-0.1)": (lambda x: tilted(x, -0.1, 4), 1, 8),
    "positive(m=4, projection='orthogonal')": (lambda x: orthogonal(x, 4), 1, 4),
}


@measured("approx.random_features.features.RandomFeatures.entry_moments")
def relative_variances(size: int, dtype: type) -> Iterator[Point]:
    """The logarithm of the relative variance: positive, sin/cos, cosh, FAVOR++, orthogonal."""
    for spec, (variance, sign, count) in FAMILIES.items():
        method = parse(spec)
        yield from points(
            lambda q, k, method=method: method.moments(q, k).log_relative_variance,
            lambda q, k, v=variance, s=sign, c=count: logs(q, k, v, s, c),
            pairs(size),
            where=spec.replace("{", "{{").replace("}", "}}"),
        )


@measured("approx.random_features.features.RandomFeatures.key_covariance")
def covariances(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, k):
        u = [[a + b for a, b in zip(q[0], y)] for y in k]
        return [[mp.expm1(dot(a, b)) / 8 for b in u] for a in u]

    method = parse("positive(m=8)")
    few = pairs(size)[:3]
    yield from points(lambda q, k: method.covariance(q, k, row=0), truth, few)


def _summand(q: np.ndarray, k: np.ndarray, a: float) -> Entries:
    return Entries(np.full(q.shape[1], a), False, False, q, k)


@measured("approx.projections.summand.gaussian_log_variance")
def log_variances(size: int, dtype: type) -> Iterator[Point]:
    """Without a tilt, log(e^x − 1), and with a tilt of −0.1 and of −0.001."""
    for a in (0.0, -0.1, -1e-3):
        yield from points(
            lambda q, k, a=a: gaussian_log_variance(_summand(q, k, a)),
            lambda q, k, a=a: [[mp.log(tilted(square(x, y), a, 4)) for y in k] for x in q],
            pairs(size),
            where=f"A = {a:g}",
        )


@measured("approx.projections.summand.gaussian_covariance")
def gaussian_covariances(size: int, dtype: type) -> Iterator[Point]:
    """Two frequencies of correlation r without a tilt: e^{r x} − 1."""
    for r in (1.0, -1.0, 0.25):
        yield from points(
            lambda q, k, r=r: gaussian_covariance(_summand(q, k, 0.0), r),
            lambda q, k, r=r: [[mp.expm1(r * square(x, y)) for y in k] for x in q],
            pairs(size),
            where=f"r = {r:g}",
        )


@measured("approx.projections.summand.gaussian_exponents")
def exponents(size: int, dtype: type) -> Iterator[Point]:
    """The sum κ + λ; at r = 1 it is log E ρ²."""
    for a in (0.0, -0.1):
        yield from points(
            lambda q, k, a=a: sum(gaussian_exponents(_summand(q, k, a), 1.0)),
            lambda q, k, a=a: [[mp.log1p(tilted(square(x, y), a, 4)) for y in k] for x in q],
            pairs(size)[1:],
            where=f"A = {a:g}",
        )


@measured("approx.projections.summand.times")
def multiplied(size: int, dtype: type) -> Iterator[Point]:
    few = [(float(x), float(y)) for x, y in np.random.default_rng(0).normal(size=(8, 2)) * 20]
    yield from points(times, lambda x, log: x * mp.exp(log), few)


@measured("analysis.moments.squared_errors.squared_error", part="log_relative_variance")
def squares(size: int, dtype: type) -> Iterator[Point]:
    """One positive feature, whose square has the moments of a lognormal distribution."""

    def truth(q, k):
        found = []
        for y in k:
            x = square(q[0], y)
            fourth = mp.exp(6 * x) - 4 * mp.exp(3 * x) + 6 * mp.exp(x) - 3
            found.append(mp.log(fourth / mp.expm1(x) ** 2 - 1))
        return found

    yield from points(
        lambda q, k: squared_error(parse("positive(m=1)"), q, k).log_relative_variance,
        truth,
        pairs(size),
    )


def _expected(q: Any, k: Any) -> Any:
    x = products(q, k)
    over = mp.fsum(
        mp.exp(2 * y) * rho(square(a, b)) / 8 for a, row in zip(q, x) for b, y in zip(k, row)
    )
    return over / mp.fsum(mp.exp(2 * y) for row in x for y in row)


@measured("analysis.moments.expected_errors.expected_error")
def expected(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        lambda q, k: expected_error(parse("positive(m=8)"), q, k),
        lambda q, k: mp.sqrt(_expected(q, k)),
        pairs(size, n=2, l=3),
    )


@measured("analysis.moments.squared_errors.frobenius_error", part="log_mean")
def frobenius(size: int, dtype: type) -> Iterator[Point]:
    yield from points(
        lambda q, k: frobenius_error(parse("positive(m=8)"), q, k).log_mean,
        lambda q, k: mp.log(_expected(q, k)),
        pairs(size, n=2, l=3),
    )


@measured("analysis.moments.normalised.normalised_moments", part="bias, variance")
def normalised(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, k):
        p = softmax(products(q, k)[0])
        u = [[a + b for a, b in zip(q[0], y)] for y in k]
        R = [[mp.expm1(dot(a, b)) / 8 for b in u] for a in u]
        Rp = [dot(row, p) for row in R]
        total = dot(p, Rp)
        bias = [a * (total - x) for a, x in zip(p, Rp)]
        return bias, [a * a * (R[j][j] - 2 * x + total) for j, (a, x) in enumerate(zip(p, Rp))]

    def of(q, k):
        found = normalised_moments(parse("positive(m=8)"), q, k)
        return np.concatenate([found.bias[0], found.variance[0]])

    yield from points(of, truth, pairs(size)[:3])
