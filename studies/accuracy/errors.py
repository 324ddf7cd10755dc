"""Errors of estimates against exact attention, rank measures, and bounds of estimates."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpmath import mp

from analysis.bounds import certificates, residuals
from analysis.errors import metrics
from analysis.errors.spectral import kernel_relative_spectral
from analysis.ranks import rank, state_rank
from analysis.ranks.attention_weights import Weights
from approx import Approximation, parse
from approx.supports import key_boxes
from studies.accuracy.attention import arrays, dot, products, softmax, times
from studies.accuracy.measure import Point, exact as digits, measured, points

METRICS = (
    "attention_tv",
    "attention_kl",
    "attention_kl_reverse",
    "attention_relative_frobenius",
    "kernel_relative_frobenius",
    "kernel_relative_max",
    "output_relative_error",
)
DISTANCES = 0.3, 1e-3, 1e-6, 1e-10  # relative errors of the entries of an estimate


def estimates(size: int, dtype: type) -> list[tuple]:
    """Return Q, K, an estimate with given relative errors of its entries, and V."""
    found = []
    for q, k, noise, v in arrays(size, dtype, (2, 3), (5, 3), (2, 5), (5, 2), scales=(0.3, 1.5)):
        for distance in DISTANCES:
            found.append((q, k, (1 + distance * np.tanh(noise)) * np.exp(q @ k.T), v))
    return found


def truth_of(name: str, q: Any, k: Any, e: Any, v: Any) -> Any:
    """Return a metric by its definition."""
    kernel = [[mp.exp(x) for x in row] for row in products(q, k)]
    p = [[x / mp.fsum(row) for x in row] for row in kernel]
    w = [[x / mp.fsum(row) for x in row] for row in e]

    def square(rows: Any, other: Any = None) -> Any:
        return mp.fsum(
            (a - b) ** 2
            for row, zero in zip(rows, other or [[0] * len(r) for r in rows])
            for a, b in zip(row, zero)
        )

    pairs = [(a, b) for one, two in zip(p, w) for a, b in zip(one, two)]
    n = len(p)
    if name == "attention_tv":
        return mp.fsum(abs(a - b) for a, b in pairs) / 2 / n
    if name == "attention_kl":
        return mp.fsum(a * mp.log(a / b) for a, b in pairs) / n
    if name == "attention_kl_reverse":
        return mp.fsum(b * mp.log(b / a) for a, b in pairs) / n
    if name == "attention_relative_frobenius":
        return mp.sqrt(square(w, p) / square(p))
    if name == "kernel_relative_frobenius":
        return mp.sqrt(square(e, kernel) / square(kernel))
    if name == "kernel_relative_max":
        most = max(abs(a - b) for one, two in zip(kernel, e) for a, b in zip(one, two))
        return most / max(map(max, kernel))
    out = times(p, v)
    return mp.sqrt(square(times(w, v), out) / square(out))


def compared(name: str):
    """Return a metric of a dense estimate, as `compare` computes it."""

    def of(q, k, e, v):
        with_zeros = np.eye(len(k), dtype=e.dtype)
        return metrics.compare(Approximation.from_factors(e, with_zeros), q, k, v)[name]

    return of


for _name in METRICS:

    @measured("analysis.errors.metrics.compare", part=_name)
    def metric(size: int, dtype: type, name: str = _name) -> Iterator[Point]:
        """Relative errors of an estimate, down to 1e-10."""
        few = estimates(size, dtype)
        if size < 100:
            few = few[2:3]
        for q, k, e, v in few:
            distance = np.abs(e / np.exp(q @ k.T) - 1).max()
            yield from points(
                compared(name),
                lambda q, k, e, v: truth_of(name, q, k, e, v),
                [(q, k, e, v)],
                where=f"{distance:.0e} from exact",
            )


@measured("analysis.errors.spectral.kernel_relative_spectral")
def spectral(size: int, dtype: type) -> Iterator[Point]:
    """Two columns: the largest singular values are roots of a quadratic."""

    def norm(rows):
        a, b, c = (mp.fsum(x[i] * x[j] for x in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
        return mp.sqrt((a + c + mp.sqrt((a - c) ** 2 + 4 * b * b)) / 2)

    def truth(q, k, e):
        kernel = [[mp.exp(x) for x in row] for row in products(q, k)]
        gap = [[x - y for x, y in zip(one, two)] for one, two in zip(e, kernel)]
        return norm(gap) / norm(kernel)

    few = [(q, k, e) for q, k, e in arrays(size, dtype, (4, 3), (2, 3), (4, 2), scales=(0.3, 1.0))]
    yield from points(
        lambda q, k, e: kernel_relative_spectral(Approximation.from_factors(e, np.eye(2)), q, k),
        truth,
        few,
    )


# Ranks and spectra


def _measures(s):
    x = [y / s[0] for y in s]
    square = [y * y for y in x]

    def perplexity(w):
        p = [y / mp.fsum(w) for y in w]
        return mp.exp(-mp.fsum(y * mp.log(y) for y in p))

    total = mp.fsum(square)
    return [
        total,
        mp.fsum(x),
        mp.fsum(x) ** 2 / total,
        perplexity(x),
        perplexity(square),
        total**2 / mp.fsum(y * y for y in square),
    ]


@measured("analysis.ranks.rank.measures")
def rank_measures(size: int, dtype: type) -> Iterator[Point]:
    """Spectra that decay slowly and fast, down to 1e-12."""
    names = (
        "stable_rank",
        "intrinsic_dimension",
        "nuclear_ratio",
        "effective_rank",
        "energy_effective_rank",
        "participation_ratio",
    )

    def of(s):
        found = rank.measures(s, (len(s), len(s)))
        return [found[name] for name in names]

    few = [(np.exp(-fall * np.arange(12.0)),) for fall in (0.0, 0.2, 1.0, 2.5)]
    yield from points(of, _measures, few[1:])


@measured("analysis.ranks.rank.singular_values")
def singular_values(size: int, dtype: type) -> Iterator[Point]:
    """By definition; reach is s₁, the scale of the errors of backward stable values."""
    for n in (3, 5) if size < 100 else (3, 6, 9):
        A = np.random.default_rng(n).standard_normal((n, n)) @ np.diag(10.0 ** -np.arange(n))
        values = rank.singular_values(A)
        truth = mp.svd_r(mp.matrix(A.tolist()), compute_uv=False)
        for i, value in enumerate(values):
            yield Point(f"{n}×{n}, σ_{i + 1}", value, truth[i], truth[0])


@measured("analysis.ranks.state_rank.lower_bound")
def bounds_of_states(size: int, dtype: type) -> Iterator[Point]:
    """One 2×2 rectangle of a causal matrix, with known singular values; rounded down."""
    rng = np.random.default_rng(8)
    for scale in (1.0, 1e-2, 1e-4):
        P = np.tril(rng.uniform(0.1, 1.0, (4, 4)))
        P[2:, :2] = [[1.0, 1.0], [1.0, 1.0 + scale]]
        P[1, 0] = P[3, 2] = 0.0

        def truth(P=P):
            a, b, c, d = (digits(x) for x in P[2:, :2].ravel())
            total = a * a + b * b + c * c + d * d
            root = mp.sqrt(total**2 - 4 * (a * d - b * c) ** 2)
            return mp.sqrt((total - root) / 2), mp.sqrt((total + root) / 2)

        least, most = truth()
        size_of = mp.sqrt(mp.fsum(digits(x) ** 2 for x in P.ravel()))
        value = state_rank.lower_bound(P, 1)
        yield Point(f"σ₂ = {float(least):.1e}", value, least / size_of, most / size_of)


# Bounds of estimates: above the exact value, and close to it


@measured("analysis.bounds.certificates.row_bounds", part="attention_tv")
def certified(size: int, dtype: type) -> Iterator[Point]:
    """Pages of one key, for which the bound is the unread share; it is rounded outwards."""
    from approx.supports.key_boxes import PageBoxes

    for q, k in arrays(size, dtype, (2, 4), (6, 4), scales=(0.1, 0.5, 1.0)):
        estimate = parse("top_k(k=3)").approximate(q, k)
        held = estimate.correction.matrix.toarray() != 0
        value = certificates.row_bounds(
            estimate, q, k, known=PageBoxes.from_keys(k, size=1)
        ).attention_tv
        for i in range(2):
            x = [dot(digits(q[i]), digits(y)) for y in k]
            moves = [2 * mp.fsum(abs(digits(a) * digits(b)) for a, b in zip(q[i], y)) for y in k]
            p = softmax(x)
            lost = mp.fsum(a for a, kept in zip(p, held[i]) if not kept)
            mean = dot(p, moves)
            reach = mp.fsum(a * (m + mean) for a, m, kept in zip(p, moves, held[i]) if not kept)
            if value[i] < lost:
                reach = mp.mpf(0)  # rounding is no excuse for a bound that fails
                value[i] = -1.0
            yield Point(f"row {i}, {float(lost):.1e} unread", value[i], lost, reach)


@measured("approx.supports.key_boxes.lengths")
def lengths(size: int, dtype: type) -> Iterator[Point]:
    """An upper bound: never below the norm."""
    for (x,) in arrays(size, dtype, (3, 16)):
        for row, value in zip(x, key_boxes.lengths(x)):
            truth = mp.sqrt(mp.fsum(digits(y) ** 2 for y in row))
            yield Point("3×16", value if value >= truth else -value, truth, truth)


@measured("analysis.bounds.residuals.off_support")
def left_out(size: int, dtype: type) -> Iterator[Point]:
    """½(√l ‖row of exact − estimate‖ + |difference of sums|)/sum, for two factors."""

    def truth(q, k, e):
        found = []
        for x, row in zip(products(q, k), e):
            kernel = [mp.exp(y) for y in x]
            gap = mp.sqrt(mp.fsum((a - b) ** 2 for a, b in zip(kernel, row)))
            sums = mp.fsum(kernel), mp.fsum(row)
            found.append((mp.sqrt(len(row)) * gap + abs(sums[0] - sums[1])) / sums[1] / 2)
        return found

    few = [(q, k, e) for q, k, e, _ in estimates(size, dtype)[:6:2]]
    yield from points(
        lambda q, k, e: (
            residuals.off_support(Approximation.from_factors(e, np.eye(len(k))), q, k).tv
        ),
        truth,
        few,
    )


@measured("analysis.ranks.attention_weights.Weights.lost")
def attention_lost(size: int, dtype: type) -> Iterator[Point]:
    """The loss of the best k keys of each row: a lower bound, rounded down by `Weights.slack`."""
    for q, k in arrays(size, dtype, (2, 4), (6, 4), scales=(0.1, 1.0)):
        weights = Weights(q, k)
        held = np.sort(weights.matrix, axis=1)[:, -2:].sum()
        rows = [sorted(softmax(x)) for x in products(digits(q), digits(k))]
        truth = mp.fsum(mp.fsum(row[:-2]) for row in rows) / 2
        moves = mp.mpf(4 * math.sqrt((q**2).sum(axis=1).max() * (k**2).sum(axis=1).max()))
        yield Point("2×6", min(weights.lost(held), float(truth)), truth, 1 + moves)
