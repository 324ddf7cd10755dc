"""Mean and variance by Monte Carlo against the loop over draws anyone would write."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analysis.moments import monte_carlo
from approx import parse
from benchmarks import measure
from benchmarks.measure import Row

TINY: dict[str, int] = {"pairs": 16, "d": 4, "m": 8, "draws": 4, "temperatures": 2}
EVERY: dict[str, tuple[float, float | None]] = {"ratio": (5.0, 7.0)}
ONE: dict[str, tuple[float, float | None]] = {"ratio": (2.2, 2.5)}


def run(
    repeats: int = 7,
    *,
    pairs: int = 4096,
    d: int = 64,
    m: int = 64,
    draws: int = 200,
    temperatures: int = 8,
) -> Iterator[Row]:
    """Yield one temperature and many: of one query with every key, then of a square.

    Of a square the factors are so small that random numbers are most of a draw; they bound what
    one temperature can gain. The loop is in float64 throughout.
    """
    side, ladder = math.isqrt(pairs), np.geomspace(0.5, 4.0, temperatures)
    for name, n, ts, must in (
        ("float64", 1, ladder[:1], ONE),
        ("float64", 1, ladder, EVERY),
        ("float32", 1, ladder[:1], {"ratio": (4.0, 5.2)}),
        ("float64", side, ladder[:1], {}),
        ("float64", side, ladder, {}),
    ):
        yield _row(repeats, name, (n, pairs // n, d, m), draws, ts, must)


def _row(
    repeats: int, name: str, shape: tuple[int, int, int, int], draws: int, ts: Any, must: Any
) -> Row:
    n, l, d, m = shape
    rng, dtype, method = np.random.default_rng(0), np.dtype(name), parse(f"positive(m={m})")
    size = 0.5 / math.sqrt(d)  # |q + k|² ≈ ½: variances are of order 1
    Q, K = (size * rng.standard_normal((rows, d)) for rows in (n, l))
    q, k = Q.astype(dtype), K.astype(dtype)

    def ours() -> Any:
        return monte_carlo(method, q, k, draws=draws, rng=0, temperatures=ts)

    def loop() -> list[Any]:
        return naive(Q, K, m, draws, ts)

    # q, k and exponents of order 10 are rounded; the loop's variance is a difference
    tolerance = 1e3 * float(np.finfo(dtype).eps)
    for one, (mean, variance) in zip(ours(), loop()):
        measure.agree(one.mean, mean, tolerance, f"means, {name}")
        measure.agree(one.variance, variance, 10 * tolerance, f"variances, {name}")
    tile, factors = measure.TILE, draws * m * (n + l)
    limit = measure.limit(
        ((tile, d, tile), math.ceil(factors / tile**2)),
        exponentials=factors * len(ts),
        dtype=dtype,
    )
    seconds = measure.medians({"ours": ours, "loop": loop, "limit": limit}, repeats)
    return Row(
        f"Monte Carlo, {n} × {l} pairs, d = {d}, m = {m}, {draws} draws, t: {len(ts)}, {name}",
        seconds["ours"],
        "NumPy, draw by draw",
        seconds["loop"],
        seconds["limit"],
        measure.traced(ours),
        must=must,
    )


def naive(Q: Any, K: Any, m: int, draws: int, temperatures: Sequence[float]) -> list[Any]:
    """Return mean and variance of estimate/exact at each temperature: two factors a draw."""
    found = []
    for t in temperatures:
        q, k = (x / math.sqrt(t) for x in (Q, K))
        exact, total, squares = np.exp(q @ k.T), 0.0, 0.0
        for rng in np.random.default_rng(0).spawn(draws):
            omega = rng.standard_normal((m, Q.shape[1]))
            left, right = (np.exp(x @ omega.T - (x * x).sum(axis=1)[:, None] / 2) for x in (q, k))
            ratio = left @ right.T / m / exact
            total, squares = total + ratio, squares + ratio**2
        mean = total / draws
        found.append((mean, (squares - draws * mean**2) / (draws - 1)))
    return found
