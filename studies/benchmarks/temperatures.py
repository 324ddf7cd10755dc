"""The kernel error of an elementwise estimate at many temperatures, against NumPy at each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from analysis.errors.orders import order_errors
from approx.polynomials.taylor import Taylor
from studies.benchmarks import measure
from studies.benchmarks.measure import Row

TINY: dict[str, int] = {"n": 24, "d": 3, "count": 2}


def run(repeats: int = 5, *, n: int = 4096, d: int = 64, count: int = 8) -> Iterator[Row]:
    """Yield one row: degree 2 against exp(q·k/t) for ``count`` temperatures."""
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((2, n, d)) * d**-0.25
    ladder, polynomial = np.geomspace(0.5, 8.0, count), Taylor(2).polynomial()

    def ours() -> list[float]:
        return list(order_errors(polynomial, Q, K, temperatures=ladder)[:, -1])

    def theirs() -> list[float]:
        errors = []
        for t in ladder:
            logits = Q @ K.T / t
            exact = np.exp(logits)
            difference = 1 + logits + logits**2 / 2 - exact
            errors.append(float(np.linalg.norm(difference) / np.linalg.norm(exact)))
        return errors

    measure.agree(ours(), theirs(), 1e-10, "errors")  # n² terms, exponents of some 30
    tile = min(n, measure.TILE)
    products: Any = ((tile, d, tile), (n // tile) ** 2)
    sides = {
        "ours": ours,
        "theirs": theirs,
        "limit": measure.limit(products, exponentials=count * n * n, dtype=np.dtype("float64")),
    }
    seconds = measure.medians(sides, repeats)
    yield Row(
        f"errors at {count} temperatures, n = l = {n}, d = {d}, float64",
        seconds["ours"],
        "NumPy at each",
        seconds["theirs"],
        seconds["limit"],
        measure.traced(ours),
        must={"ratio": (6.0, 8.0)},
    )
