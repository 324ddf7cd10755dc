"""Positive features with exp(q·k) on a support, against scipy.sparse and dense attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from approx import Approximation, parse
from approx.combinations.scatterbrain import Scatterbrain
from approx.projections import Fixed
from approx.random_features.positive import Positive
from approx.sparse.support import SupportMethod
from studies.benchmarks import measure
from studies.benchmarks.measure import Row

TINY: dict[str, int] = {"n": 48, "d": 4, "m": 8, "width": 4}
GATHERED = 2**11  # entries that the peer computes at a time: some megabytes of factors
SUPPORTS: dict[str, tuple[tuple[float, float | None], tuple[float, float | None]]] = {
    "sliding_window": ((3.0, 4.4), (12.0, 17.0)),  # ratios to scipy.sparse and to dense attention
    "chunk": ((5.0, 7.5), (20.0, 30.0)),
}


def run(
    repeats: int = 9, *, n: int = 16384, d: int = 64, m: int = 256, width: int = 64
) -> Iterator[Row]:
    """Yield each support against two peers: the time of the output minus that of the features."""
    torch, rng = measure.peer("torch"), np.random.default_rng(0)
    Q, K, V, omega = (rng.standard_normal((rows, d)) for rows in (n, n, n, m))
    q, k, low = Q * d**-0.25, K * d**-0.25, Positive(projection=Fixed(omega))
    attention: Any = {}
    if torch is not None:
        tensors = [torch.from_numpy(x[None, None]) for x in (Q, K, V)]
        dense = torch.nn.functional.scaled_dot_product_attention
        attention = {"attention": lambda: dense(*tensors)}
    for name, musts in SUPPORTS.items():
        field = {"sliding_window": "width", "chunk": "size"}[name]
        support = parse(f"{name}({field}={width})")
        assert isinstance(support, SupportMethod)
        method, pattern = Scatterbrain(low, support), support.approximate(q, k).sparse
        assert pattern is not None
        # The features of each side, whose time is subtracted, run right before it. After dense
        # attention, with its gigabyte and cold caches, a run is not counted.
        sides: dict[str, Any] = {
            "not counted": lambda: features_only(q, k, V, omega),
            "scipy's features": lambda: features_only(q, k, V, omega),
            "scipy": lambda s=pattern: whole(q, k, V, omega, s),
            "features": lambda: stored(low.approximate(q, k)) @ V,
            "ours": lambda f=method: f.approximate(q, k) @ V,
        }
        # sums of n terms, from which the terms on the support are subtracted again
        tolerance = 100 * np.sqrt(n) * float(np.finfo(np.float64).eps)
        measure.agree(sides["ours"](), sides["scipy"](), tolerance, f"estimates beside {name}")
        seconds = measure.medians(attention | sides, repeats)
        ours = seconds["ours"] - seconds["features"]
        memory = measure.traced(sides["ours"])
        for peer, theirs, must in (
            ("scipy.sparse", seconds["scipy"] - seconds["scipy's features"], musts[0]),
            ("torch attention, dense", seconds.get("attention"), musts[1]),
        ):
            work = f"sparse correction, {support}, n = {n}, nnz = {pattern.nnz / n:.0f} n, float64"
            yield Row(work, ours, peer, theirs, memory=memory, must={"ratio": must})


def stored(estimate: Approximation) -> Approximation:
    """Return an estimate with stored factors, as with a support; alone it computes them again."""
    return Approximation(estimate.low.prepare())


def phi(x: Any, omega: Any) -> Any:
    """Return positive features, unscaled: the inputs are small."""
    return np.exp(x @ omega.T - np.square(x).sum(axis=1)[:, None] / 2 - np.log(len(omega)) / 2)


def features_only(q: Any, k: Any, V: Any, omega: Any) -> Any:
    """Return φ(Q) (φ(K)ᵀ V)."""
    return phi(q, omega) @ (phi(k, omega).T @ V)


def whole(q: Any, k: Any, V: Any, omega: Any, pattern: Any) -> Any:
    """Return φ(Q) (φ(K)ᵀ V) + (exp(q·k) − φ·φ on the pattern) V, with entries in chunks."""
    left, right = phi(q, omega), phi(k, omega)
    i, j = np.repeat(np.arange(len(q)), np.diff(pattern.indptr)), pattern.indices
    data = np.empty(len(j))
    for start in range(0, len(j), GATHERED):
        a, b = (x[start : start + GATHERED] for x in (i, j))
        data[start : start + GATHERED] = np.exp(np.einsum("id,id->i", q[a], k[b])) - np.einsum(
            "ir,ir->i", left[a], right[b]
        )
    correction = scipy.sparse.csr_array((data, j, pattern.indptr), shape=pattern.shape)
    return left @ (right.T @ V) + correction @ V
