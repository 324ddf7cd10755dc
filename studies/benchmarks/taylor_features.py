"""Compact Taylor features against scikit-learn's PolynomialFeatures: new array, `out=`, tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from approx.polynomials import monomials
from approx.polynomials.taylor import Taylor
from studies.benchmarks import measure
from studies.benchmarks.measure import Row

TINY: dict[str, Any] = {"n": 20, "cases": ((3, 2),), "tile": 8}
MUST: dict[str, dict[str, tuple[float, float | None]]] = {
    "a new array": {"ratio": (2.5, 3.0)},
    "out=": {"ratio": (3.5, 5.0)},
    "tiles of rows": {"ratio": (5.0, 7.0)},
}
LIMIT = {"a new array": "zeros"}  # the time of writing into new memory pages


def run(
    repeats: int = 7,
    *,
    n: int = 4096,
    cases: tuple[tuple[int, int], ...] = ((16, 4), (32, 3), (64, 2)),
    tile: int = 256,
) -> Iterator[Row]:
    """Yield three rows per width and precision; the peer has no weights."""
    sklearn = measure.peer("sklearn.preprocessing")
    for name in ("float64", "float32"):
        for d, degree in cases:
            X = np.random.default_rng(0).uniform(-1, 1, (n, d)).astype(name)
            agree(X[:tile], degree, sklearn)
            roots, logs = monomials.root_ratios(d, degree), np.zeros(degree + 1)
            whole = np.empty((n, monomials.width(d, degree)), X.dtype)
            part, zeros = np.empty((tile, whole.shape[1]), X.dtype), np.zeros(n)

            def write(
                rows: slice, out: Any = None, X: Any = X, w: Any = roots, a: Any = logs,
                zeros: Any = zeros,
            ) -> Any:  # fmt: skip
                return monomials.features(X[rows], w, a, zeros[rows], out=out)

            def stream(write: Any = write, part: Any = part) -> None:
                for start in range(0, n, tile):
                    write(slice(start, start + tile), part[: min(tile, n - start)])

            sides: dict[str, Any] = {
                "a new array": lambda f=write: f(slice(None)),
                "out=": lambda f=write, out=whole: f(slice(None), out),
                "tiles of rows": stream,
                "zeros": lambda like=whole: np.empty_like(like).fill(0),
            }
            if sklearn is not None:
                peer = sklearn.PolynomialFeatures(degree)
                sides["peer"] = lambda X=X, f=peer: f.fit_transform(X)
            seconds = measure.medians(sides, repeats)
            for kind, must in MUST.items():
                yield Row(
                    f"Taylor features, n = {n}, d = {d}, degree {degree}, {kind}, {name}",
                    seconds[kind],
                    "scikit-learn PolynomialFeatures",
                    seconds.get("peer"),
                    seconds.get(LIMIT.get(kind, "")),
                    memory=measure.traced(sides[kind]),
                    must=must,
                )


def agree(X: Any, degree: int, sklearn: Any) -> None:
    """Assert that the factors are the weighted columns of the peer, with product Σ xʲ/j!."""
    d, eps = X.shape[1], float(np.finfo(X.dtype).eps)
    left, right = Taylor(degree).approximate(X, X).factors()
    logits = X.astype(np.float64) @ X.T
    total = sum(logits**j / float(np.prod(np.arange(1.0, j + 1))) for j in range(degree + 1))
    # sums of a few thousand products of weights, powers and roots, each off by a few eps
    measure.agree(left @ right.T, total, 1e3 * eps, "Taylor features")
    if sklearn is not None:
        theirs = sklearn.PolynomialFeatures(degree).fit_transform(X)
        powers = sklearn.PolynomialFeatures(degree).fit(X).powers_
        factorials = np.array([float(np.prod(np.arange(1.0, j + 1))) for j in range(degree + 1)])
        weight = 1 / np.sqrt(factorials[powers].prod(axis=1))
        zeros = np.zeros(len(X))
        ours = monomials.features(X, monomials.root_ratios(d, degree), -np.log(factorials), zeros)
        measure.agree(ours, theirs * weight, 1e2 * eps, "PolynomialFeatures")
