"""Entries of estimates by methods with a short formula: given frequencies, powers."""

from collections.abc import Iterator

import numpy as np
from mpmath import mp

from approx import parse, projections
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric
from approx.sketches import signed
from studies.accuracy.attention import arrays, dot, products
from studies.accuracy.measure import Point, measured, points

BOTH = (np.float64, np.float32)
NAME = "approx.estimate.approximation.Approximation.to_dense"


def half(x):
    return dot(x, x) / 2


@measured(NAME, dtypes=BOTH, part="positive features")
def positive(size: int, dtype: type) -> Iterator[Point]:
    """Four given frequencies, each with weight 1/4."""

    def truth(q, k, w):
        return [
            [mp.fsum(mp.exp(dot(v, x) + dot(v, y) - half(x) - half(y)) for v in w) / 4 for y in k]
            for x in q
        ]

    def of(q, k, w):
        return Positive(projection=projections.Fixed(w)).approximate(q, k).to_dense()

    few = arrays(size, dtype, (2, 3), (3, 3), (4, 3), scales=(0.1, 1.0, 2.5))
    yield from points(of, truth, few)


@measured(NAME, dtypes=BOTH, part="sines and cosines")
def trigonometric(size: int, dtype: type) -> Iterator[Point]:
    def truth(q, k, w):
        return [
            [
                mp.exp(half(x) + half(y)) * mp.fsum(mp.cos(dot(v, x) - dot(v, y)) for v in w) / 4
                for y in k
            ]
            for x in q
        ]

    def of(q, k, w):
        return Trigonometric(projection=projections.Fixed(w)).approximate(q, k).to_dense()

    few = arrays(size, dtype, (2, 3), (3, 3), (4, 3), scales=(0.1, 1.0, 2.5))
    yield from points(of, truth, few)


def _series(spec, coefficients):
    def of(q, k):
        return parse(spec).approximate(q, k).to_dense()

    def truth(q, k):
        rows = products(q, k)
        return [
            [mp.fsum(c * x**j for j, c in enumerate(coefficients)) for x in row] for row in rows
        ]

    return of, truth


@measured(NAME, dtypes=BOTH, part="polynomials")
def polynomials(size: int, dtype: type) -> Iterator[Point]:
    """(1 + x/3)³ and the Taylor polynomial of degree 4, which cancel for x < 0."""
    few = arrays(size, dtype, (2, 3), (3, 3), scales=(0.1, 1.0))
    taylor = [1 / mp.factorial(j) for j in range(5)]
    power = [mp.binomial(3, j) / mp.mpf(3) ** j for j in range(4)]
    yield from points(*_series("taylor(degree=4)", taylor), few)
    yield from points(*_series("tensor_power(n=3)", power), few)


@measured(NAME, dtypes=BOTH, part="exact keys")
def exact_keys(size: int, dtype: type) -> Iterator[Point]:
    few = arrays(size, dtype, (2, 3), (3, 3), scales=(0.1, 1.0, 3.0))
    yield from points(
        lambda q, k: parse("top_k(k=3)").approximate(q, k).to_dense(),
        lambda q, k: [[mp.exp(x) for x in row] for row in products(q, k)],
        few,
    )


@measured("approx.sketches.signed.tail")
def tails(size: int, dtype: type) -> Iterator[Point]:
    """The tail of e^y, from the second and from the fifth term on."""
    y = np.exp(np.random.default_rng(0).uniform(-6, 4, max(size // 8, 4)))
    for first in (2, 5):
        yield from points(
            lambda x, first=first: signed.value(signed.tail(signed.signed(x), first, 1)),
            lambda x, first=first: mp.nsum(
                lambda j: x ** int(j) / mp.factorial(j), [first, mp.inf]
            ) if x < 0 else mp.exp(x) * mp.gammainc(first, 0, x, regularized=True),
            [(float(x),) for x in y],
        )  # fmt: skip


@measured("approx.sketches.signed.excess")
def excesses(size: int, dtype: type) -> Iterator[Point]:
    rng = np.random.default_rng(0)
    few = [
        (float(b), float(m))
        for b, m in zip(rng.normal(size=8), rng.normal(size=8) * 10.0 ** -np.arange(0, 16, 2))
    ]
    yield from points(
        lambda b, m: signed.value(signed.excess(np.array(b), np.array(m), 3)),
        lambda b, m: m * (3 * b * b + 3 * b * m + m * m),
        few,
    )
