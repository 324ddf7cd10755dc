"""Mean and variance by Monte Carlo, against a plain loop over draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from analysis.moments import monte_carlo
from approx import Method, parse
from studies.benchmarks import measure
from studies.benchmarks.measure import Row

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
    """Yield one and many temperatures: for pairs (q_i, k_i), then for all pairs of a square.

    The ratio estimate/exact of a pair depends on q + k alone, so pairs are computed as the query 0
    with the keys q_i + k_i; the loop computes features of both. For a square the factors are so
    small that random numbers and the products of the factors take most of the time of a draw. They
    bound the gain at one temperature, so squares have a row with both in the limit. The loop always
    uses float64.
    """
    side, ladder = math.isqrt(pairs), np.geomspace(0.5, 4.0, temperatures)
    for name, n, ts, must in (
        ("float64", pairs, ladder[:1], ONE),
        ("float64", pairs, ladder, EVERY),
        ("float32", pairs, ladder[:1], {"ratio": (4.0, 5.2)}),
        ("float64", side, ladder[:1], {}),
        ("float64", side, ladder, {}),
    ):
        yield from _rows(repeats, name, (n, d, m), n == pairs, draws, ts, must)


def _rows(
    repeats: int, name: str, shape: Any, matched: bool, draws: int, ts: Any, must: Any
) -> Iterator[Row]:
    n, d, m = shape
    rng, dtype, method = np.random.default_rng(0), np.dtype(name), parse(f"positive(m={m})")
    size = 0.5 / math.sqrt(d)  # |q + k|² ≈ ½: variances of order 1
    Q, K = (size * rng.standard_normal((n, d)) for _ in range(2))
    asked = (np.zeros((1, d)), Q + K) if matched else (Q, K)
    q, k = (x.astype(dtype) for x in asked)

    def ours() -> Any:
        return monte_carlo(method, q, k, draws=draws, rng=0, temperatures=ts)

    def loop() -> list[Any]:
        return naive(Q, K, m, draws, ts, matched=matched)

    def estimates() -> list[Any]:
        return by_estimates(method, q, k, draws, ts)

    # q, k and exponents of order 10 round; the loop's variance is a difference
    tolerance = 1e3 * float(np.finfo(dtype).eps)
    for one, *others in zip(ours(), loop(), estimates()):
        for mean, variance in others:
            measure.agree(one.mean, mean, tolerance, f"means, {name}")
            measure.agree(one.variance, variance, 10 * tolerance, f"variances, {name}")
    tile, factors = measure.TILE, draws * m * (n + (1 if matched else n))
    limit = measure.limit(
        ((tile, d, tile), math.ceil(factors / tile**2)),
        exponentials=factors * len(ts),
        dtype=dtype,
    )
    sides = {"ours": ours, "loop": loop, "estimates": estimates, "limit": limit}
    if not matched:

        def numbers() -> None:
            for rng in np.random.default_rng(0).spawn(draws):
                rng.standard_normal((m, d))

        sides["numbers"] = numbers
        sides["products"] = measure.limit(((n, m, n), draws * len(ts)), exponentials=0, dtype=dtype)
    seconds = measure.medians(sides, repeats)
    memory = measure.traced(ours)
    for peer, key, musts in (
        ("NumPy, draw by draw", "loop", must),
        ("`approximate`, draw by draw", "estimates", {}),
    ):
        yield Row(
            f"Monte Carlo, {n if matched else f'{n} × {n}'} pairs, d = {d}, m = {m}, "
            f"{draws} draws, t: {len(ts)}, {name}",
            seconds["ours"],
            peer,
            seconds[key],
            seconds["limit"],
            memory,
            must=musts,
        )

    if not matched:
        yield Row(
            f"Monte Carlo, {n} × {n} pairs, t: {len(ts)}, {name}; the limit with random numbers "
            "and the products of the factors",
            seconds["ours"],
            limit_seconds=seconds["limit"] + seconds["numbers"] + seconds["products"],
        )


def naive(
    Q: Any, K: Any, m: int, draws: int, temperatures: Sequence[float], *, matched: bool
) -> list[Any]:
    """Return mean and variance of estimate/exact at each temperature: two factors per draw."""

    def estimate(q: Any, k: Any, rng: np.random.Generator) -> Any:
        omega = rng.standard_normal((m, Q.shape[1]))
        left, right = (np.exp(x @ omega.T - (x * x).sum(axis=1)[:, None] / 2) for x in (q, k))
        return (np.einsum("ir,ir->i", left, right)[None] if matched else left @ right.T) / m

    def exact(q: Any, k: Any) -> Any:
        return np.exp(np.einsum("id,id->i", q, k)[None] if matched else q @ k.T)

    return _accumulated(estimate, exact, Q, K, draws, temperatures)


def by_estimates(
    method: Method, Q: Any, K: Any, draws: int, temperatures: Sequence[float]
) -> list[Any]:
    """Return the same by the library, without its Monte Carlo."""

    def estimate(q: Any, k: Any, rng: np.random.Generator) -> Any:
        return method.approximate(q, k, rng=rng).to_dense()

    def exact(q: Any, k: Any) -> Any:
        return np.exp(q.astype(np.float64) @ k.T)

    return _accumulated(estimate, exact, Q, K, draws, temperatures)


def _accumulated(
    estimate: Callable[[Any, Any, np.random.Generator], Any],
    exact: Callable[[Any, Any], Any],
    Q: Any,
    K: Any,
    draws: int,
    temperatures: Sequence[float],
) -> list[Any]:
    found = []
    for t in temperatures:
        q, k = ((x / math.sqrt(t)).astype(x.dtype) for x in (Q, K))
        truth, total, squares = exact(q, k), 0.0, 0.0
        for rng in np.random.default_rng(0).spawn(draws):
            ratio = estimate(q, k, rng) / truth
            total, squares = total + ratio, squares + ratio**2
        mean = total / draws
        found.append((mean, (squares - draws * mean**2) / (draws - 1)))
    return found
