"""Robust PCA against pyrpca and tensorly, GoDec against a full SVD per sweep."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from approx.low_rank.decomposition import Decomposition
from approx.low_rank.godec import FRACTIONS, SWEEPS, at_budget, godec
from approx.low_rank.robust_pca import acc_alt_proj, inexact_alm
from studies.benchmarks import measure
from studies.benchmarks.measure import Row
from tests import naive

TINY: dict[str, int] = {"n": 60, "larger": 80, "length": 64, "rank": 2}
TEMPERATURES = (0.25, 0.5, 1.0, 2.0)
GROWTHS = (1.5, 1.2, 1.1, 1.05)  # ρ of pyrpca: its default, then slower until objectives agree
EQUAL = 1e-5  # relative difference up to which objectives agree
GAP = 1e-4
ENOUGH = 3.0  # seconds after which a side is not run again
GOLDEN = {"inexact_alm": {"ratio": (15.0, 25.0)}, "acc_alt_proj": {"ratio": (20.0, 35.0)}}
PURSUIT = {"ratio": (2.0, 3.0)}
BUDGETED = {"ratio": (20.0, 30.0)}


def run(
    repeats: int = 3, *, n: int = 500, larger: int = 1000, length: int = 512, rank: int = 16
) -> Iterator[Row]:
    """Yield instances of exact recovery, pursuit of attention matrices, and splits at a budget."""
    small = np.eye(40)
    inexact_alm(small), acc_alt_proj(small, 1), godec(small, 1, 1)  # compile the kernels
    yield from on_golden(n, repeats, "pyrpca", GOLDEN)
    yield from on_golden(n, repeats, "tensorly", {"inexact_alm": {}})
    yield from on_golden(larger, repeats, "pyrpca", GOLDEN)
    matrices = {t: attention(t, length) for t in TEMPERATURES}
    for t, D in matrices.items():
        yield from on_attention(f"exp(q·k), n = l = {length}, t = {t:g}", D, repeats)
    for t, D in matrices.items():
        yield on_budget(
            f"godec(rank={rank}, k={rank}), n = l = {length}, t = {t:g}",
            D,
            3 * rank,
            {
                "ours": functools.partial(godec, D, rank, rank),
                "theirs": functools.partial(full_svd, D, rank, rank * length),
            },
            repeats,
        )
    D, budget = matrices[1.0], 2 * rank
    yield on_budget(
        f"split(budget={budget}), n = l = {length}, t = 1",
        D,
        budget,
        {
            "ours": functools.partial(at_budget, D, budget),
            "theirs": functools.partial(full_svd_split, D, budget),
        },
        repeats,
    )


def turns(
    sides: Mapping[str, Callable[[], Any]], repeats: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the median seconds and the results of sides that take turns, without a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    results = {}
    for _ in range(repeats):
        for name, side in sides.items():
            if sum(seconds[name]) < ENOUGH:
                start = time.perf_counter()
                results[name] = side()
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}, results


class Found(NamedTuple):
    """‖L‖_* + λ‖S‖₁ at λ = 1/√n, the rank of L and the entries of S."""

    objective: float
    rank: int
    entries: int


def found(result: Any) -> Found:
    """Return the result of a side; singular values below its residual of D, 1e-7, count as 0."""
    L, S = dense(result) if isinstance(result, Decomposition) else result
    s = np.linalg.svd(L, compute_uv=False)
    value = float(s.sum() + np.abs(S).sum() / math.sqrt(len(L)))
    return Found(value, int(np.sum(s > 1e-6 * s[0])), int(np.count_nonzero(S)))


def dense(parts: Decomposition) -> tuple[Any, Any]:
    return parts.low_rank, parts.sparse.toarray()


def pursuits() -> dict[str, Callable[..., Any]]:
    """Return the importable peers, D → (L, S), all to ‖D − L − S‖_F ≤ 1e-7 ‖D‖_F."""
    peers: dict[str, Callable[..., Any]] = {}
    if (pyrpca := measure.peer("pyrpca")) is not None:
        peers["pyrpca"] = lambda D, rho=GROWTHS[0]: pyrpca.rpca_pcp_ialm(
            D, len(D) ** -0.5, rho=rho, tol=1e-7, verbose=False
        )
    if (tensorly := measure.peer("tensorly.decomposition")) is not None:
        # It counts ‖L‖_* once for each of two unfoldings, and its tolerance is absolute. With its
        # default growth of μ, 1.1 per iteration, it takes more; with 1.3, it has other entries.
        peers["tensorly"] = lambda D: tensorly.robust_pca(
            D,
            reg_J=0.5,
            reg_E=len(D) ** -0.5,
            tol=1e-7 * np.linalg.norm(D),
            mu_init=1.25 / np.linalg.norm(D, 2),
            learning_rate=1.2,
            n_iter_max=1000,
            verbose=0,
        )
    return peers


def on_golden(
    n: int, repeats: int, peer: str, musts: Mapping[str, dict[str, tuple[float, float | None]]]
) -> Iterator[Row]:
    """Yield our solvers named in ``musts``, on matrices with exact recovery and known optimum."""
    rank, pursue = n // 20, pursuits()
    L, S = naive.golden(n, rank, 0.05)
    D, optimum = L + S, found((L, S))
    solvers: dict[str, Callable[[], Any]] = {
        "inexact_alm": lambda: inexact_alm(D),
        "acc_alt_proj": lambda: acc_alt_proj(D, rank),
    }
    sides = {name: solvers[name] for name in musts}
    if peer in pursue:
        sides[peer] = functools.partial(pursue[peer], D)
    seconds, results = turns(sides, repeats)
    for name, result in results.items():
        reached, what = found(result), f"{name}, exact recovery, n = {n}"
        # L + S = D holds to 1e-7
        measure.agree(reached.objective, optimum.objective, 1e-6, f"objectives of {what}")
        measure.agree(reached[1:], optimum[1:], 0.0, f"rank and entries of {what}")
    for name, must in musts.items():
        work = f"{name}, exact recovery, n = {n}, rank {rank}, 5% of entries"
        yield Row(work, seconds[name], peer, seconds.get(peer), must=must)


def attention(temperature: float, length: int, d: int = 64) -> Any:
    Q, K = np.random.default_rng(0).standard_normal((2, length, d))
    return np.exp(Q @ K.T / (temperature * math.sqrt(d)))


def on_attention(work: str, D: Any, repeats: int) -> Iterator[Row]:
    """Yield pursuit at the peer's default ρ, where both miss the optimum, and to a gap of 1e-4.

    For the gap, the peer has the first ρ with which it reaches our objective.
    """
    pursue = pursuits().get("pyrpca")

    @functools.cache
    def slowed(rho: float) -> tuple[float, float]:
        seconds, results = turns({"theirs": lambda: pursue(D, rho)}, repeats)
        return seconds["theirs"], found(results["theirs"]).objective

    for text, gap, growths, tolerance in (
        (f"ρ = {GROWTHS[0]:g} on both sides", math.inf, GROWTHS[:1], 1e-3),
        (f"gap ≤ {GAP:g}", GAP, GROWTHS, EQUAL),
    ):
        seconds, results = turns({"ours": lambda g=gap: inexact_alm(D, gap_tolerance=g)}, repeats)
        ours = found(results["ours"]).objective
        if not results["ours"].gap <= gap:
            raise AssertionError(
                f"{work}: the gap is {results['ours'].gap:.2g}, allowed is {gap:g}"
            )
        peer, theirs = "pyrpca", None
        for rho in growths if pursue else ():
            peer = f"pyrpca, ρ = {rho:g}"
            theirs, objective = slowed(rho)
            if objective <= ours * (1 + tolerance):
                break
        if pursue:
            measure.agree(ours, objective, tolerance, f"objectives of pursuit, {work}")
        yield Row(f"inexact_alm, {work}, {text}", seconds["ours"], peer, theirs, must=PURSUIT)


def on_budget(
    work: str, D: Any, budget: int, sides: Mapping[str, Callable[[], Any]], repeats: int
) -> Row:
    """Return one split at a budget, in values per row, beside its twin."""
    seconds, results = turns(sides, repeats)
    parts, (L, S) = results["ours"], dense(results["ours"])
    stored = parts.left.size + parts.right.size + parts.sparse.nnz
    measure.agree(stored, budget * len(D), 0.0, f"stored values of {work}")
    # ours stops at a gain of 1e-4 per sweep, before the twin, or in another local optimum
    measure.agree(np.linalg.norm(D - L - S), results["theirs"], 1e-3, f"errors of {work}")
    return Row(work, seconds["ours"], "full SVD a sweep", seconds["theirs"], must=BUDGETED)


def full_svd(D: Any, rank: int, count: int) -> float:
    """Return the error from the two usual starts; a single part needs one sweep only."""
    starts = (np.zeros_like(D), naive.largest(D, count))
    sweeps = SWEEPS if rank and count else 1
    return float(min(naive.godec(D, rank, count, S, sweeps) for S in starts))


def full_svd_split(D: Any, budget: int) -> float:
    """Return the error of the best rank of those that `at_budget` tries."""
    most, values = budget // 2, budget * len(D)
    ranks = {round(share * most) for share in FRACTIONS} | {1, 2}
    return min(full_svd(D, r, values - 2 * len(D) * r) for r in sorted(ranks) if r <= most)
