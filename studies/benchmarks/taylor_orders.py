"""Taylor estimates of every order, elementwise from the logits, against features and a product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from analysis.errors.orders import order_errors
from approx.polynomials.taylor import Taylor
from studies.benchmarks import measure
from studies.benchmarks.measure import Row

TINY: dict[str, int] = {"n": 20, "d": 3, "degree": 2}


def run(repeats: int = 9, *, n: int = 2048, d: int = 16, degree: int = 4) -> Iterator[Row]:
    """Yield one row: kernel errors of orders 0 … degree."""
    sklearn = measure.peer("sklearn.preprocessing")
    rng = np.random.default_rng(0)
    Q, K = rng.standard_normal((2, n, d)) * d**-0.25
    polynomial = Taylor(degree).polynomial()

    def ours() -> list[float]:
        return list(order_errors(polynomial, Q, K)[0])

    def theirs() -> list[float]:
        errors, truth = [], np.exp(Q @ K.T)
        for order in range(degree + 1):
            features = sklearn.PolynomialFeatures(order)
            left, right = features.fit_transform(Q), features.fit_transform(K)
            factorials = np.array([float(np.prod(np.arange(1.0, j + 1))) for j in range(order + 1)])
            left = left / factorials[features.powers_].prod(axis=1)
            errors.append(float(np.linalg.norm(left @ right.T - truth) / np.linalg.norm(truth)))
        return errors

    sides: dict[str, Any] = {"ours": ours}
    if sklearn is not None:
        sides["theirs"] = theirs
        # estimates of order e^|q·k|, n² of them, and a difference
        measure.agree(ours(), theirs(), 1e-9, "Taylor orders")
    seconds = measure.medians(sides, repeats)
    yield Row(
        f"errors of Taylor orders 0…{degree}, n = l = {n}, d = {d}, float64",
        seconds["ours"],
        "PolynomialFeatures and a product",
        seconds.get("theirs"),
        memory=measure.traced(ours),
        must={"ratio": (50.0, 100.0)},
    )
