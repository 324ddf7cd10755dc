"""Causal linear attention and errors of a causal head against those without a mask; blocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from analysis.errors.metrics import compare
from approx import Mask, parse
from approx.estimate import exact
from approx.projections import Fixed
from approx.random_features.positive import Positive
from studies.benchmarks import measure
from studies.benchmarks.measure import Row

TINY: dict[str, int] = {"n": 160, "d": 4, "m": 8, "l": 96, "longest": 256}
UNMASKED = 1 / 1.6, None  # at most 1.6 times the time of all keys
HALF = 1 / 0.6, None  # at most 0.6 times the time of all keys
DEEP = 1e-3  # relative: the peer adds eps to every sum


def run(
    repeats: int = 7,
    *,
    n: int = 16384,
    d: int = 64,
    m: int = 256,
    l: int = 4096,
    longest: int = 65536,
) -> Iterator[Row]:
    """Yield linear attention at n by precision, every error at l, and blocks up to ``longest``."""
    torch, performer = measure.peer("torch"), measure.peer("performer_pytorch.performer_pytorch")
    for name in ("float64", "float32"):
        dtype, rng = np.dtype(name), np.random.default_rng(0)
        Q, K, V = (rng.standard_normal((n, d)).astype(dtype) for _ in range(3))
        root = dtype.type(d**-0.25)
        q, k, method = Q * root, K * root, parse(f"positive(m={m})")

        def ours(mask: Any, given: Any = (method, q, k, V)) -> Any:
            method, q, k, V = given
            return method.approximate(q, k, mask=mask, rng=0).attend(V)

        width = max(n // 16, 1)
        window = Mask.window(n, n, width)
        sides: dict[str, Any] = {
            "ours": lambda f=ours: f("causal"),
            "window": lambda f=ours, w=window: f(w),
            "all": lambda f=ours: f(None),
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
                causal = performer.causal_linear_attention_noncuda
                return causal(phi_q, phi_k, x[2], eps=0.0).numpy()[0, 0]

            sides["theirs"] = theirs
            fixed = Positive(projection=Fixed(omega)).approximate(q, k, mask="causal").attend(V)
            measure.agree(fixed, theirs(eps=0.0), DEEP, f"causal linear attention, {name}")
        seconds = measure.medians(sides, repeats)
        about = f"n = {n}, d = {d}, m = {m}, {name}"
        yield Row(
            f"causal linear attention, {about}",
            seconds["ours"],
            "torch performer, causal",
            seconds.get("theirs"),
            memory=measure.traced(sides["ours"]),
        )
        for side, what in (("ours", "causal"), ("window", f"window of {width}")):
            yield Row(
                f"linear attention, {what}, {about}",
                seconds[side],
                "ours without a mask",
                seconds["all"],
                must={"ratio": UNMASKED} if side == "ours" else {},
            )
    yield errors(repeats, l, d, m)
    yield from blocks(repeats, longest, d)


def blocks(repeats: int, longest: int, d: int) -> Iterator[Row]:
    """Yield hierarchical attention of a causal head, for a text and for a quarter of it."""
    rng = np.random.default_rng(0)
    Q, K, V = (rng.standard_normal((longest, d)) * d**-0.25 for _ in range(3))
    for basis in ("mean", "pivots"):
        method = parse(f"hierarchical(rank=4, basis={basis!r}, sinks=1)")

        def attend(n: int, method: Any = method) -> Any:
            return method.approximate(Q[:n], K[:n], mask="causal").attend(V[:n])

        cache = method.cache(d=d, c=d)
        for key, value in zip(K[:64], V[:64]):
            cache.append(key, value)
        measure.agree(attend(64)[-1], cache.attend(Q[63]), 1e-9, f"{method}, token by token")
        sizes = [longest >> shift for shift in (6, 4, 2, 0)]
        seconds = measure.medians({str(n): lambda n=n, f=attend: f(n) for n in sizes}, repeats)
        for shorter, n in itertools.pairwise(sizes):
            yield Row(
                f"{method}, approximate and attend, causal, n = l = {n}",
                seconds[str(n)],
                f"ours, n = l = {shorter}",
                seconds[str(shorter)],
                memory=measure.traced(lambda n=n, f=attend: f(n)),
            )


def errors(repeats: int, l: int, d: int, m: int) -> Row:
    """Return the time of every error of a causal head, beside the time for all pairs."""
    rng = np.random.default_rng(0)
    Q, K, V = (rng.standard_normal((l, d)) * d**-0.25 for _ in range(3))
    method = parse(f"positive(m={m})")
    estimates = {mask: method.approximate(Q, K, mask=mask, rng=0) for mask in (None, "causal")}
    truth = exact.attention(Q, K, V, mask="causal")
    ratio = np.linalg.norm(estimates["causal"].attend(V) - truth) / np.linalg.norm(truth)
    found = compare(estimates["causal"], Q, K, V)["output_relative_error"]
    measure.agree(found, ratio, 1e-9, "the error of the output")  # sums of l terms, l·eps
    seconds = measure.medians(
        {str(mask): lambda e=estimate: compare(e, Q, K, V) for mask, estimate in estimates.items()},
        repeats,
    )
    return Row(
        f"compare, every error, causal, n = l = {l}, d = {d}, rank {m}",
        seconds["causal"],
        "ours without a mask",
        seconds["None"],
        memory=measure.traced(lambda: compare(estimates["causal"], Q, K, V)),
        must={"ratio": HALF},
    )
