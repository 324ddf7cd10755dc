"""Low rank for total variation: the nearest rows of a rank to rows of softmax that are found.

The truncated SVD has the least Frobenius error of its rank and says nothing of total variation,
the sum of absolute differences. No algorithm for that is known which is both fast and sure: what
is found here is a local optimum, an upper bound of the least.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.estimate import masks, memory
from approx.estimate.masks import Mask, MaskLike
from approx.low_rank import decomposition
from approx.low_rank.decomposition import Matrix, filled
from approx.low_rank.godec import godec
from approx.low_rank.subspace import leading
from approx.low_rank.weighted import equations, solve

RACE, SWEEPS = 8, 24  # sweeps from each start, and in all from the best of them
SHARPER, FLOOR = 0.65, 1e-3  # of the absolute differences below which a weight grows no more
ENOUGH = 1e-3  # relative gain of two sweeps at which the descent ends
RIDGE = {np.float32: 1e-7, np.float64: 1e-9}  # by the precision of the Gram matrices


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
    turn with weights 1/|W − P| of the last W bring it down. What is solved for is the step from the
    last factor, so that rounding and a ridge shorten steps and move no optimum.

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

    Without a mask the Gram matrices of weights are made in single precision, up to rank 24.
    Residuals, gradients and total variations always are double.

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
    seen = masks.as_mask(mask, *matrix.shape)
    known = decomposition.seen(matrix, seen)
    n, l = known.shape
    r = checks.integer("rank", rank, least=1, most=min(n, l))
    memory.reserve(8 * l * r * r + 64 * n * l, f"a fit of rank {r} to {n}×{l} weights", "rank")
    shown = None if seen.is_full else (~np.isnan(known)).astype(np.float64)
    known = filled(known)
    guesses = [_least_squares(matrix, r, seen), *_starts(known, r), *starts]
    runs = [_Run.from_pair(known, shown, *guess) for guess in guesses]
    for run in runs:
        run.descend(RACE)
    tvs = [run.best.tv for run in runs]
    first = runs[int(np.argmin(tvs))]
    first.descend(SWEEPS, enough=ENOUGH)
    left, right, tv = first.best
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


class _Best(NamedTuple):
    """The best factors of a run, and their total variation."""

    left: Matrix
    right: Matrix
    tv: float


@dataclasses.dataclass(eq=False)
class _Run:
    """A descent from one start.

    Attributes
    ----------
    shown : (n, l) or None
        1 where a query sees a key, else 0; None if all is seen.
    left, right, rest : (n, r), (l, r), (n, l)
        Factors, and P − left rightᵀ where it is seen.
    best : _Best
    reached : list of float
        The best total variation so far, at the start and after each sweep.
    """

    P: Matrix
    shown: Matrix | None
    left: Matrix
    right: Matrix
    rest: Matrix
    best: _Best
    reached: list[float]

    @classmethod
    def from_pair(cls, P: Matrix, shown: Matrix | None, left: Matrix, right: Matrix) -> Self:
        """Return a start, with rows scaled to sum to 1."""
        left = _summing_to_one(left, _sums(shown, right, len(P)))
        rest, tv = _differences(P, shown, left, right)
        return cls(P, shown, left, right, rest, _Best(left, right, tv), [tv])

    def descend(self, sweeps: int, enough: float = -math.inf) -> None:
        """Go on to so many sweeps in all, or until two of them gain a share less than `enough`."""
        P, shown = self.P, self.shown
        for sweep in range(len(self.reached) - 1, sweeps):
            least = 8 * max(self.best.tv, 1e-300) * 2 / P.shape[1] * max(SHARPER**sweep, FLOOR)
            weights = _weights(self.rest, shown, least)
            self.right = _keys(self.rest, weights, self.left, self.right, shown is None)
            self.rest, _ = _differences(P, shown, self.left, self.right)
            weights, sums = _weights(self.rest, shown, least), _sums(shown, self.right, len(P))
            self.left = _queries(self.rest, weights, self.left, self.right, sums)
            self.rest, tv = _differences(P, shown, self.left, self.right)
            if tv < self.best.tv:
                self.best = _Best(self.left, self.right, tv)
            self.reached.append(self.best.tv)
            if sweep > RACE and self.reached[-3] - self.best.tv < enough * self.best.tv:
                break


def _differences(
    P: Matrix, shown: Matrix | None, left: Matrix, right: Matrix
) -> tuple[Matrix, float]:
    """Return P − left rightᵀ where it is seen, and the total variation."""
    rest = left @ right.T
    np.subtract(P, rest, out=rest)
    if shown is not None:
        rest *= shown
    return rest, 0.5 * float(np.abs(rest).sum()) / len(P)


def _weights(rest: Matrix, shown: Matrix | None, least: float) -> Matrix:
    """Return 1/|difference|, limited, and 0 where nothing is seen; in units that cancel.

    Under a mask a key that few queries see has Gram matrices of which single precision leaves
    nothing.
    """
    weights = np.abs(rest)
    np.maximum(weights, least, out=weights)
    np.divide(least, weights, out=weights)
    return weights.astype(np.float32) if shown is None else weights * shown


def _sums(shown: Matrix | None, right: Matrix, n: int) -> Matrix:
    """Return what the factor of the keys sums to over what each query sees, (n, r)."""
    return np.tile(right.sum(axis=0), (n, 1)) if shown is None else shown @ right


def _summing_to_one(left: Matrix, sums: Matrix) -> Matrix:
    """Return rows scaled so that those of the product sum to 1; the shortest where they cannot."""
    total = (left * sums).sum(axis=1, keepdims=True)
    size = np.square(sums).sum(axis=1, keepdims=True)
    shortest = np.divide(sums, size, out=np.zeros_like(left), where=size > 0)
    return np.asarray(np.divide(left, total, out=shortest, where=total > 0))


def _queries(rest: Matrix, weights: Matrix, left: Matrix, right: Matrix, sums: Matrix) -> Matrix:
    """Return the factor of the queries, fitted with a·sums = 1 in each row."""
    fitted = np.empty_like(left)
    for rows, grams, sides in equations(rest, weights, right, RIDGE[weights.dtype.type]):
        both = np.stack([sides, sums[rows]], axis=2)
        solve(grams, both)
        free, way = left[rows] + both[:, :, 0], both[:, :, 1]
        short = 1.0 - (sums[rows] * free).sum(axis=1)
        size = (sums[rows] * way).sum(axis=1)
        step = np.divide(short, size, out=np.zeros_like(size), where=size > 0)
        fitted[rows] = free + way * step[:, None]
    return fitted


def _keys(rest: Matrix, weights: Matrix, left: Matrix, right: Matrix, keep: bool) -> Matrix:
    """Return the factor of the keys, fitted; if asked, with the sum that it had."""
    parts = []
    steps = np.empty_like(right)
    units = np.eye(right.shape[1])[None, :, : right.shape[1] if keep else 0]
    for rows, grams, sides in equations(rest.T, weights.T, left, RIDGE[weights.dtype.type]):
        solved = np.concatenate([sides[:, :, None], np.tile(units, (len(sides), 1, 1))], axis=2)
        solve(grams, solved)
        steps[rows] = solved[:, :, 0]
        parts.append((rows, solved[:, :, 1:]))
    if keep:
        total = sum(inverse.sum(axis=0) for _, inverse in parts)
        price = np.linalg.solve(total, steps.sum(axis=0))
        for rows, inverse in parts:
            steps[rows] -= inverse @ price
    return right + steps
