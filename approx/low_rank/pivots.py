"""Pivoted Cholesky decompositions, which choose points to represent all points."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from approx.checks import Array

NEAR = 1e-8  # of G_jj: a point with a residual below this is within 1e-4 of the span: no pivot

Row = Callable[[int], Array]  # p → G_p, (count,)
Pick = Callable[[Array], Any]  # the residual diagonal, (count,) → the next pivot


def cholesky(
    row: Row, count: int, picks: Sequence[Pick], diagonal: Array | float = 1.0
) -> tuple[Array, Array]:
    """Return pivots S (r,) and C (count, r) with G ≈ C Cᵀ, for a positive semidefinite G.

    Parameters
    ----------
    row : callable
        Returns row p of G. Only the rows of pivots are computed.
    count : int
    picks : sequence of callables
        Each is called once, with the current diag(G − C Cᵀ), and returns a pivot. A point near the
        span of the pivots has 0 in this diagonal; if it is returned, it is skipped.
    diagonal : (count,) or float
        G_jj > 0.

    Notes
    -----
    C[S] is lower triangular, and C Cᵀ equals G in rows and columns S. The residual trace is
    Σ_j (G − C Cᵀ)_jj = Σ_j G_jj − Σ_jp C²_jp, so a pivot p reduces it by |C_·p|².

    References
    ----------
    .. [1] Y. Chen, E. Epperly, J. Tropp, R. Webber, "Randomly pivoted Cholesky: practical
       approximation of a kernel matrix with few entry evaluations", CPAM 2025, algorithm 1.
    """
    rows = np.zeros((len(picks), count))
    rest = np.full(count, diagonal, np.float64)
    near = NEAR * rest
    chosen: list[int] = []
    for pick in picks:
        p, r = int(pick(rest)), len(chosen)
        if rest[p] == 0:
            continue
        new = row(p) - rows[:r, p] @ rows[:r]
        rows[r] = new / np.sqrt(new[p])
        rows[r, chosen] = 0.0
        rest = np.maximum(rest - rows[r] ** 2, 0.0)
        rest[p] = 0.0
        rest[rest < near] = 0.0
        chosen.append(p)
    return np.array(chosen, np.intp), rows[: len(chosen)].T
