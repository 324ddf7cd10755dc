"""Robust PCA and GoDec beside a peer: ratios of processor time, both sides in one run.

    python benchmarks/robust_pca.py [--repeats 3]

BLAS on one thread; the two sides take turns in one process, and the best of several times counts.
The peer of pursuit is pyrpca (pip install pyrpca), a full SVD an iteration; that of GoDec is the
full-SVD form in tests/naive.py, from the two usual starts.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from approx.low_rank.decomposition import Decomposition
from approx.low_rank.godec import FRACTIONS, godec, split
from approx.low_rank.robust_pca import acc_alt_proj, inexact_alm
from tests import naive

GOLDEN = [(500, 25, 0.05), (1000, 50, 0.05)]  # n, rank, share of entries
LENGTH, TEMPERATURES = 512, (0.25, 0.5, 1.0, 2.0)
GROWTHS = (1.5, 1.2, 1.1, 1.05)  # of the peer's μ: its own, then slower until objectives agree
EQUAL = 1e-5  # relative difference up to which they do
RANK, SWEEPS = 16, 20


class Found(NamedTuple):
    objective: float
    rank: int
    nnz: int
    gap: float = math.nan


def of_parts(parts: Decomposition) -> Found:
    return Found(parts.objective, parts.rank, parts.sparse.nnz, parts.gap)


def of_sum(L: Any, S: Any) -> Found:
    """Return what pursuit minimises, at λ = 1/√n."""
    s = np.linalg.svd(L, compute_uv=False)
    value = float(s.sum() + np.abs(S).sum() / math.sqrt(len(L)))
    return Found(value, int(np.sum(s > 1e-9 * s[0])), int(np.count_nonzero(S)))


def alternate(repeats: int, *sides: Callable[[], Any]) -> list[tuple[float, Any]]:
    """Return the least seconds and the result of each side, taking turns."""
    best = [(math.inf, None)] * len(sides)
    for _ in range(repeats):
        for i, side in enumerate(sides):
            start = time.process_time()
            result = side()
            best[i] = min(best[i], (time.process_time() - start, result), key=lambda x: x[0])
    return best


def report(task: str, seconds: tuple[float, float], ours: Found, peer: Found) -> None:
    a, b = seconds
    print(
        f"{task:<46}{1e3 * a:>9.1f}{1e3 * b:>10.1f}{b / a:>7.1f}  {ours.objective:>12.7g}"
        f"{peer.objective:>13.7g}{f'{ours.rank}/{peer.rank}':>10}{f'{ours.nnz}/{peer.nnz}':>15}"
        f"{ours.gap:>9.0e}",
        flush=True,
    )


def on_golden(pyrpca: Any, repeats: int) -> None:
    for n, rank, corruption in GOLDEN:
        D = sum(naive.golden(n, rank, corruption))
        sides = (
            lambda D=D: inexact_alm(D),
            lambda D=D, rank=rank: acc_alt_proj(D, rank),
            lambda D=D, n=n: pyrpca.rpca_pcp_ialm(D, n**-0.5, verbose=False),
        )
        (a, pursued), (b, projected), (c, theirs) = alternate(repeats, *sides)
        peer = of_sum(*theirs)
        report(f"inexact_alm, golden, n = {n}", (a, c), of_parts(pursued), peer)
        same = of_sum(projected.low_rank, projected.sparse.toarray())
        report(f"acc_alt_proj, golden, n = {n}", (b, c), same, peer)


def attention(temperature: float, d: int = 64) -> Any:
    Q, K = np.random.default_rng(0).standard_normal((2, LENGTH, d))
    return np.exp(Q @ K.T / (temperature * math.sqrt(d)))


def on_attention(pyrpca: Any, repeats: int) -> None:
    """First the peer's schedule on both sides, then what a gap of 1e-4 takes, objectives equal."""
    for temperature in TEMPERATURES:
        D = attention(temperature)
        pursue = functools.partial(pyrpca.rpca_pcp_ialm, D, LENGTH**-0.5, verbose=False)
        (a, ours), (b, theirs) = alternate(
            repeats, lambda D=D: inexact_alm(D, gap_tolerance=math.inf), pursue
        )
        task = f"inexact_alm, t = {temperature:g}, rho {GROWTHS[0]}"
        report(f"{task} on both sides", (a, b), of_parts(ours), of_sum(*theirs))
        for rho in GROWTHS:
            (a, ours), (b, theirs) = alternate(
                1, lambda D=D: inexact_alm(D), functools.partial(pursue, rho=rho)
            )
            found, peer = of_parts(ours), of_sum(*theirs)
            if peer.objective <= found.objective * (1 + EQUAL):
                break
        task = f"inexact_alm, t = {temperature:g}, peer's rho {rho}"
        report(task, (a, b), found, peer)


def full_svd(D: Any, rank: int, count: int) -> float:
    starts = (np.zeros_like(D), naive.largest(D, count))
    return float(min(naive.godec(D, rank, count, S, SWEEPS) for S in starts))


def full_svd_split(D: Any, budget: int) -> float:
    """Return the error of the best of the ranks that `split` tries."""
    most, values = budget // 2, budget * LENGTH
    ranks = {round(share * most) for share in FRACTIONS} | {1, 2}
    return min(full_svd(D, r, values - 2 * LENGTH * r) for r in sorted(ranks))


def on_budgets(repeats: int) -> None:
    for temperature in TEMPERATURES:
        D = attention(temperature)
        (a, ours), (b, error) = alternate(
            repeats, lambda D=D: godec(D, RANK, RANK), lambda D=D: full_svd(D, RANK, RANK * LENGTH)
        )
        peer = Found(error, RANK, RANK * LENGTH)
        report(f"godec(rank={RANK}, k={RANK}), t = {temperature:g}", (a, b), of_parts(ours), peer)
    D, budget = attention(1.0), 2 * RANK
    (a, ours), (b, error) = alternate(
        1, lambda: split(D, budget), lambda: full_svd_split(D, budget)
    )
    report(f"split(budget={budget}), t = 1", (a, b), of_parts(ours), Found(error, -1, -1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    try:
        import pyrpca
    except ImportError:
        sys.exit("the peer is missing: pip install pyrpca (MPL-2.0; needed by nothing else)")
    inexact_alm(np.eye(40)), godec(np.eye(40), 1, 1)  # compile the kernels
    print(
        f"{'':<46}{'ours ms':>9}{'peer ms':>10}{'ratio':>7}  {'objective':>12}{'of peer':>13}"
        f"{'ranks':>10}{'entries':>15}{'gap':>9}"
    )
    with threadpool_limits(1):
        on_golden(pyrpca, repeats)
        on_attention(pyrpca, repeats)
        on_budgets(repeats)


if __name__ == "__main__":
    main()
