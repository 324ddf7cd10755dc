"""Low rank for total variation: the nearest rows of a rank to rows of softmax that are found.

The truncated SVD has the least Frobenius error of its rank and says nothing of total variation,
the sum of absolute differences. No algorithm for that is known which is both fast and sure: what
is found here is a local optimum, an upper bound of the least.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from approx import checks, masks, memory
from approx.low_rank import decomposition
from approx.low_rank.decomposition import Matrix, filled
from approx.low_rank.godec import godec
from approx.low_rank.subspace import leading
from approx.low_rank.weighted import equations
from approx.masks import Mask, MaskLike

RACE, SWEEPS = 8, 24  # sweeps from each start, and in all from the best of them
SHARPER, FLOOR = 0.65, 1e-3  # of the absolute differences below which a weight grows no more
ENOUGH = 1e-3  # relative gain of two sweeps at which the descent ends
RIDGE = 1e-9


class Nearest(NamedTuple):
    """The best that is found: rows left rightᵀ, their total variation, and how far starts differ.

    Attributes
    ----------
    left, right : (n, r), (l, r)
    tv : float
        Mean over rows of ½ Σ_j |left rightᵀ − P|.
    spread : float
        (most − least)/least of what the starts reach, each when it drops out; 0 for one of them.
    """

    left: Matrix
    right: Matrix
    tv: float
    spread: float


def nearest(
    P: ArrayLike,
    rank: int,
    *,
    mask: MaskLike = None,
    starts: Iterable[tuple[Matrix, Matrix]] = (),
) -> Nearest:
    """Return rows of a rank near to P in total variation, each with sum 1 over what it sees.

    min Σ_i ½ Σ_j |W_ij − P_ij| over rank W ≤ rank with Σ_j W_ij = 1, by weighted least squares:
    |x| ≤ (x²/|x₀| + |x₀|)/2, with equality at x = x₀ = ±|x₀|, so that factors that are fitted in
    turn with weights 1/|W − P| of the last W bring it down.

    Parameters
    ----------
    P : (n, l)
        Rows of softmax; what is not seen counts for nothing.
    rank : int
        1 ≤ rank ≤ min(n, l).
    mask : None, "causal" or Mask
    starts : iterable of (left (n, r), right (l, r)), r ≤ rank
        Beside the built-in ones.

    Returns
    -------
    Nearest
        Best found, and no bound. Without a mask its rows sum to 1 to rounding; under one, except
        where the factor of the keys sums to 0 over what a query sees.

    Notes
    -----
    The result is deterministic. It starts from the truncated SVD of P, under a mask from the best
    completion that `approx.low_rank.godec.godec` finds; from means of consecutive rows of P as the
    right factor, like the landmarks of Nyströmformer; and from the columns of most attention. (The
    SVD with its negative entries cut off ends where the SVD does.) Rows of each are scaled to sum
    to 1 first. Each start has 8 sweeps; the best of them goes on for 16 more, or until two of them
    gain less than 10⁻³. Weights are limited to those of a difference that falls from eight times
    the mean one to a thousandth of that. The best iterate is kept, so that the result is never
    above any start after its rows are scaled.

    The sums are kept by Lagrange multipliers: one for each row while the factor of the queries is
    fitted, and without a mask rank more for the sum of the factor of the keys. Under a mask this
    factor is fitted without regard to the sums.

    Cost: 4·n·l·rank² operations a sweep, some 40 sweeps, and two singular value decompositions.

    References
    ----------
    .. [1] E. Schlossmacher, "An iterative technique for absolute deviations curve fitting", JASA
       68, 1973, the weights.

    Examples
    --------
    Two of three different rows can be had, and the third is lost:

    >>> round(nearest(np.eye(3), 2).tv, 3)
    0.333
    """
    matrix = decomposition.dense_matrix(P)
    seen = masks.of(mask, *matrix.shape)
    known = decomposition.seen(matrix, seen)
    n, l = known.shape
    r = checks.integer("rank", rank, least=1, most=min(n, l))
    memory.reserve(8 * l * r * r + 64 * n * l, f"a fit of rank {r} to {n}×{l} weights", "rank")
    shown = None if seen.is_full else (~np.isnan(known)).astype(np.float64)
    known = filled(known)
    guesses = [_least_squares(matrix, r, seen), *_starts(known, r), *starts]
    runs = [_descended(known, shown, *guess, RACE) for guess in guesses]
    tvs = [run[2] for run in runs]
    left, right, tv = runs[int(np.argmin(tvs))]
    left, right, tv = _descended(known, shown, left, right, SWEEPS - RACE, after=RACE)
    return Nearest(left, right, tv, (max(tvs) - tv) / tv if max(tvs) > tv > 0 else 0.0)


def _least_squares(P: Matrix, rank: int, mask: Mask) -> tuple[Matrix, Matrix]:
    """Return the truncated SVD; under a mask, the best matrix of the rank that is found."""
    if not mask.is_full:
        best = godec(P, rank, 0, mask=mask)
        return best.left, best.right
    U, s, V = leading(P, rank)
    return U * s, V


def _starts(P: Matrix, rank: int) -> list[tuple[Matrix, Matrix]]:
    """Return means of consecutive rows, and the columns of most attention, as factors."""
    n, l = P.shape
    cuts = np.arange(rank) * n // rank
    means = np.add.reduceat(P, cuts, axis=0) / np.diff([*cuts, n])[:, None]
    which = np.searchsorted(cuts, np.arange(n), "right") - 1
    most = np.sort(np.argsort(-P.sum(axis=0), kind="stable")[:rank])
    return [(np.eye(rank)[which], means.T), (P[:, most], np.eye(l)[:, most])]


def _descended(
    P: Matrix, shown: Matrix | None, left: Matrix, right: Matrix, sweeps: int, after: int = 0
) -> tuple[Matrix, Matrix, float]:
    """Return the best factors of some sweeps, and their total variation.

    shown (n, l) is 1 where a query sees a key, else 0; None if all is seen.
    """
    left = _summing_to_one(left, _sums(shown, right, len(P)))
    rest, tv = _differences(P, shown, left, right)
    best, before = (left, right, tv), [tv]
    for sweep in range(after, after + sweeps):
        least = 8 * max(best[2], 1e-300) * 2 / P.shape[1] * max(SHARPER**sweep, FLOOR)
        right = _keys(P, _weights(rest, shown, least), left, right, shown is None)
        rest, _ = _differences(P, shown, left, right)
        left = _queries(P, _weights(rest, shown, least), right, _sums(shown, right, len(P)))
        rest, tv = _differences(P, shown, left, right)
        if tv < best[2]:
            best = left, right, tv
        before.append(best[2])
        if sweep > RACE and before[-3:][0] - best[2] < ENOUGH * best[2]:
            break
    return best


def _differences(
    P: Matrix, shown: Matrix | None, left: Matrix, right: Matrix
) -> tuple[Matrix, float]:
    """Return |left rightᵀ − P| where it is seen, and the total variation."""
    rest = left @ right.T
    rest -= P
    np.abs(rest, out=rest)
    if shown is not None:
        rest *= shown
    return rest, 0.5 * float(rest.sum()) / len(P)


def _weights(rest: Matrix, shown: Matrix | None, least: float) -> Matrix:
    """Return 1/difference, limited, and 0 where nothing is seen; in units that cancel."""
    weights = least / np.maximum(rest, least)
    return weights if shown is None else weights * shown


def _sums(shown: Matrix | None, right: Matrix, n: int) -> Matrix:
    """Return what the factor of the keys sums to over what each query sees, (n, r)."""
    return np.tile(right.sum(axis=0), (n, 1)) if shown is None else shown @ right


def _summing_to_one(left: Matrix, sums: Matrix) -> Matrix:
    """Return rows scaled so that those of the product sum to 1; the shortest where they cannot."""
    total = (left * sums).sum(axis=1, keepdims=True)
    size = np.square(sums).sum(axis=1, keepdims=True)
    shortest = np.divide(sums, size, out=np.zeros_like(left), where=size > 0)
    return np.asarray(np.divide(left, total, out=shortest, where=total > 0))


def _queries(P: Matrix, weights: Matrix, right: Matrix, sums: Matrix) -> Matrix:
    """Return the factor of the queries, fitted with a·sums = 1 in each row."""
    left = np.empty((len(P), right.shape[1]))
    for rows, grams, sides in equations(P, weights, right, RIDGE):
        both = np.linalg.solve(grams, np.stack([sides, sums[rows]], axis=2))
        free, way = both[:, :, 0], both[:, :, 1]
        short = 1.0 - (sums[rows] * free).sum(axis=1)
        size = (sums[rows] * way).sum(axis=1)
        step = np.divide(short, size, out=np.zeros_like(size), where=size > 0)
        left[rows] = free + way * step[:, None]
    return left


def _keys(P: Matrix, weights: Matrix, left: Matrix, right: Matrix, keep: bool) -> Matrix:
    """Return the factor of the keys, fitted; if asked, with the sum that it had."""
    parts = []
    fitted = np.empty_like(right)
    for rows, grams, sides in equations(P.T, weights.T, left, RIDGE):
        if keep:
            parts.append((rows, np.linalg.inv(grams)))
            fitted[rows] = (parts[-1][1] @ sides[:, :, None])[:, :, 0]
        else:
            fitted[rows] = np.linalg.solve(grams, sides[:, :, None])[:, :, 0]
    if keep:
        over = fitted.sum(axis=0) - right.sum(axis=0)
        price = np.linalg.solve(sum(inverse.sum(axis=0) for _, inverse in parts), over)
        for rows, inverse in parts:
            fitted[rows] -= inverse @ price
    return fitted
