"""Every error of a low-rank estimate of exp(Q Kᵀ), streamed; and of a long one, with bounds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from analysis.errors.metrics import compare
from analysis.errors.row_sums import LEAST_HEIGHT, ahead
from approx import Approximation, parse
from studies.benchmarks import measure
from studies.benchmarks.measure import Row

TINY: dict[str, int] = {"n": 40, "d": 4, "m": 8, "length": 0, "small": 16}
KERNEL = {"float64": (0.8, 0.95), "float32": (0.6, 0.75)}  # shares of the limit
EVERY = {"float64": (0.7, 0.8), "float32": (0.5, 0.65)}


def run(
    repeats: int = 5,
    *,
    n: int = 8192,
    d: int = 64,
    m: int = 256,
    length: int = 65536,
    small: int = 512,
) -> Iterator[Row]:
    """Yield n × n on one thread, float64 and float32, a small one, and a long one on two threads.

    The exact matrix is computed in float64 for any dtype of the estimate. So the limit of a float32
    row has its products q·k and exponentials in float64.
    """
    for name in ("float64", "float32"):
        Q, K = inputs(n, d, name)
        estimate = parse(f"positive(m={m})").approximate(Q, K, rng=0)
        tile = min(n, measure.TILE)

        def ours(given: Any = (estimate, Q, K)) -> dict[str, float]:
            return compare(*given)

        def kernel(given: Any = (estimate, Q, K)) -> dict[str, float]:
            return compare(*given, attention=False)

        def dense(given: Any = (estimate, Q, K)) -> float:
            return numpy_error(*given)

        found = ours()["kernel_relative_frobenius"]
        # sums of n² terms with exponents of about 10, in the dtype of the estimate
        measure.agree(found, dense(), 1e3 * float(np.finfo(name).eps), f"errors, {name}")
        products = [((tile, width, tile), (n // tile) ** 2) for width in (d, m)]
        heights = (ahead() // n, m), (LEAST_HEIGHT, d)
        stripes = [((min(n, h), w, n), -(-n // h)) for h, w in heights]
        dtype = np.dtype(name)
        sides: dict[str, Any] = {
            "ours": ours,
            "kernel": kernel,
            "dense": dense,
            "limit": measure.limit(*products, exponentials=n * n, dtype=dtype),
            "stripes": measure.limit(*stripes, exponentials=n * n, dtype=dtype),
            "truth": measure.limit(products[0], exponentials=n * n, dtype=np.float64),
            "estimate": measure.limit(products[1], exponentials=0, dtype=dtype),
        }
        seconds = measure.medians(sides, repeats)
        yield Row(
            f"compare, kernel errors, n = l = {n}, d = {d}, rank {m}, {name}",
            seconds["kernel"],
            "NumPy, n × n",
            seconds["dense"],
            seconds["limit"],
            measure.traced(kernel),
            must={"share": KERNEL[name], "megabytes": (24.0, None)},
        )
        yield Row(
            f"compare, every error, n = l = {n}, d = {d}, rank {m}, {name}",
            seconds["ours"],
            "NumPy, n × n",
            seconds["dense"],
            seconds["limit"],
            measure.traced(ours),
            must={"share": EVERY[name], "megabytes": (24.0, None)},
        )
        yield Row(
            f"compare, every error, n = l = {n}, {name}; the limit in stripes of whole rows",
            seconds["ours"],
            limit_seconds=seconds["stripes"],
        )
        if name == "float32":
            yield Row(
                f"compare, kernel errors, n = l = {n}, {name}; the limit with q·k and its "
                "exponential in float64",
                seconds["kernel"],
                limit_seconds=seconds["estimate"] + seconds["truth"],
            )
            yield Row(
                f"compare, every error, n = l = {n}, {name}; the limit with q·k and its "
                "exponential in float64",
                seconds["ours"],
                limit_seconds=seconds["estimate"] + seconds["truth"],
            )
    yield one_of_many(repeats, small, d)
    if length:
        yield long(length, d, m)


def one_of_many(repeats: int, n: int, d: int, m: int = 16) -> Row:
    """Return the small comparison that a sweep makes thousands of times, with Python's overhead."""
    Q, K = inputs(n, d, "float64")
    estimate = parse(f"positive(m={m})").approximate(Q, K, rng=0)
    products = (((n, d, n), 1), ((n, m, n), 1))
    sides = {
        "ours": lambda: compare(estimate, Q, K),
        "limit": measure.limit(*products, exponentials=n * n, dtype=np.dtype("float64")),
    }
    seconds = measure.medians(sides, 20 * repeats)  # a side takes some milliseconds
    return Row(
        f"compare, every error, n = l = {n}, d = {d}, rank {m}, float64",
        seconds["ours"],
        limit_seconds=seconds["limit"],
        must={"share": (0.5, 0.6)},
    )


def long(n: int, d: int, m: int) -> Row:
    """Return the time and resident memory of one comparison in float32 on two threads."""
    Q, K = inputs(n, d, "float32")
    estimate = parse(f"positive(m={m})").approximate(Q, K, rng=0)
    found: list[float] = []

    def side() -> None:
        start = time.perf_counter()
        errors = compare(estimate, Q, K, jobs=2)
        found.append(time.perf_counter() - start)
        assert 0 < errors["kernel_relative_frobenius"] < np.inf

    memory = measure.resident(side)
    return Row(
        f"compare, every error, n = l = {n}, d = {d}, rank {m}, float32, two threads",
        found[0],
        memory=memory,
        must={"megabytes": (256.0, None), "seconds": (None, 60.0)},
    )


def inputs(n: int, d: int, dtype: str) -> list[Any]:
    """Return Gaussian Q and K at temperature 1."""
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((n, d)) * d**-0.25).astype(dtype) for _ in range(2)]


def numpy_error(estimate: Approximation, Q: Any, K: Any) -> float:
    """Return ‖estimate − exact‖_F/‖exact‖_F from dense matrices."""
    left, right = estimate.factors()
    exact = np.exp(Q.astype(np.float64) @ K.T.astype(np.float64))
    return float(np.linalg.norm(left @ right.T - exact) / np.linalg.norm(exact))
