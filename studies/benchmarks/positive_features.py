"""Positive features φ(Q): share of the limit, and against two libraries."""

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
MUST = {"share": (0.8, 0.92)}
PERFORMER = {"float64": {"ratio": (5.0, 7.0)}, "float32": {"ratio": (2.0, 2.8)}}
SAMPLER = {"float64": {"ratio": (4.0, 5.5)}, "float32": {"ratio": (1.2, 1.45)}}


def run(repeats: int = 15, *, n: int = 16384, d: int = 64, m: int = 256) -> Iterator[Row]:
    """Yield six rows per precision; our time includes drawing the frequencies, and one key."""
    torch, performer = measure.peer("torch"), measure.peer("performer_pytorch.performer_pytorch")
    sklearn = measure.peer("sklearn.kernel_approximation")
    for name in ("float64", "float32"):
        dtype = np.dtype(name)
        rng = np.random.default_rng(0)
        Q, omega = (rng.standard_normal(shape).astype(dtype) for shape in ((n, d), (m, d)))
        scaled = Q * dtype.type(d**-0.25)
        method = parse(f"positive(m={m})")
        tiles = ((min(n, 256), d, m), n // min(n, 256))
        there = np.empty((n, m), dtype)
        sides: dict[str, Any] = {
            "ours": lambda Q=scaled, f=method: f.approximate(Q, Q[:1], rng=0).scaled_factors(),
            "limit": measure.limit(tiles, exponentials=n * m, dtype=dtype),
            "pages": lambda dtype=dtype: np.empty((n, m), dtype).fill(0),
            "out": lambda Q=scaled, f=method, out=there: f.approximate(
                Q, Q[:1], rng=0
            ).low.query_features(out),
        }
        if performer is not None:
            tensors = torch.from_numpy(Q[None, None]), torch.from_numpy(omega)
            sides["performer"] = lambda x=tensors: performer.softmax_kernel(
                x[0], projection_matrix=x[1], is_query=True
            )
            found = sides["performer"]().numpy()[0, 0] * np.sqrt(m) - 1e-4
            agree_with_performer(found, scaled, omega, dtype)
        if sklearn is not None:
            sampler = sklearn.RBFSampler(gamma=0.5, n_components=m, random_state=0).fit(scaled)
            sides["sampler"] = lambda Q=scaled, f=sampler: f.transform(Q)
        sides["store"] = lambda out=there: out.fill(0)  # last: `there` has left the cache
        seconds = measure.medians(sides, repeats)
        limit, work = seconds["limit"], f"φ(Q), n = {n}, d = {d}, m = {m}, {name}"
        for kind, side, beside in (
            ("out=", "out", ("store", "writing to it")),
            ("a new array", "ours", ("pages", "new pages for it")),
        ):
            held = side == "out"  # the targets exclude the system's new pages
            memory = measure.traced(sides[side])
            for peer, key, must in (
                ("torch performer", "performer", PERFORMER[name] | MUST),
                ("scikit-learn RBFSampler", "sampler", SAMPLER[name]),
            ):
                yield Row(
                    f"{work}, {kind}",
                    seconds[side],
                    peer,
                    seconds.get(key),
                    limit,
                    memory,
                    must=must if held else {},
                )
            yield Row(
                f"{work}, {kind}; the limit with {beside[1]}",
                seconds[side],
                limit_seconds=limit + seconds[beside[0]],
            )


def agree_with_performer(theirs: Any, Q: Any, omega: Any, dtype: Any) -> None:
    """Assert that each row equals ours up to a scale, which both sides remove in their own way.

    Their code adds 1e-4 to every feature. An exponent of about 30 rounds by 30 eps. After its
    scale, a row has the size e^{−|x|²/2} ≈ e^{−4}, at which the added 1e-4 counts 50 times as much.
    """
    factors = Positive(projection=Fixed(omega)).approximate(Q, Q[:1])
    ours = factors.scaled_factors().left
    theirs = theirs / theirs.max(axis=1, keepdims=True)
    measure.agree(ours, theirs, 2000 * np.finfo(dtype).eps, "positive features")
