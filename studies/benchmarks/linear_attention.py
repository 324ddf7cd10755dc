"""Attention by positive features against the Performer in torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from approx import parse
from approx.projections import Fixed
from approx.random_features.positive import Positive
from studies.benchmarks import measure
from studies.benchmarks.measure import Row

TINY: dict[str, int] = {"n": 48, "d": 4, "m": 8}
MUST: dict[str, dict[str, tuple[float, float | None]]] = {
    "float64": {"ratio": (3.5, 5.0)},
    "float32": {"ratio": (2.0, 2.6)},
}


def run(repeats: int = 15, *, n: int = 16384, d: int = 64, m: int = 256) -> Iterator[Row]:
    """Yield one row per precision: features of both sides, and their product with V."""
    torch, performer = measure.peer("torch"), measure.peer("performer_pytorch.performer_pytorch")
    for name in ("float64", "float32"):
        dtype, rng = np.dtype(name), np.random.default_rng(0)
        Q, K, V = (rng.standard_normal((n, d)).astype(dtype) for _ in range(3))
        root = dtype.type(d**-0.25)
        q, k, method = Q * root, K * root, parse(f"positive(m={m})")
        height = min(n, measure.TILE)
        sides: dict[str, Any] = {
            "ours": lambda q=q, k=k, V=V, f=method: f.approximate(q, k, rng=0).attend(V),
            "limit": measure.limit(
                ((height, d, m), 2 * n // height),
                ((m, height, d + 1), n // height),
                ((height, m, d + 1), n // height),
                exponentials=2 * n * m,
                dtype=dtype,
            ),
        }
        if performer is not None:
            omega = rng.standard_normal((m, d)).astype(dtype)
            projection = torch.from_numpy(omega)
            tensors = [torch.from_numpy(x[None, None]) for x in (Q, K, V)]

            def theirs(x: Any = tensors, W: Any = projection, eps: float = 1e-4) -> Any:
                phi_q, phi_k = (
                    performer.softmax_kernel(y, projection_matrix=W, is_query=query, eps=eps)
                    for y, query in ((x[0], True), (x[1], False))
                )
                return performer.linear_attention(phi_q, phi_k, x[2]).numpy()[0, 0]

            sides["theirs"] = theirs
            # averages of V over n terms: errors of at most n·eps, and exponents of about 30
            fixed = Positive(projection=Fixed(omega)).approximate(q, k).attend(V)
            tolerance = 30 * np.sqrt(n) * float(np.finfo(dtype).eps)
            measure.agree(fixed, theirs(eps=0.0), tolerance, f"linear attention, {name}")
        seconds = measure.medians(sides, repeats)
        yield Row(
            f"linear attention, n = {n}, d = {d}, m = {m}, {name}",
            seconds["ours"],
            "torch performer",
            seconds.get("theirs"),
            seconds["limit"],
            measure.traced(sides["ours"]),
            must=MUST[name],
        )
