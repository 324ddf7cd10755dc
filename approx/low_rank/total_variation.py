"""Low rank for total variation: the best found matrix of a rank near rows of softmax.

The truncated SVD has the least Frobenius error of its rank, but no guarantee in total variation,
half the sum of absolute differences. For total variation no fast algorithm is known that surely
finds the optimum. The result here is a local optimum, an upper bound of the least.
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
from approx.supports.patterns import ranked

RACE, SWEEPS = 8, 24  # sweeps from each start, and in total from the best start
SHARPER, FLOOR = 0.65, 1e-3  # factor per sweep, and floor, of the difference that limits weights
ENOUGH = 1e-3  # relative gain of two sweeps at which the descent ends
RIDGE = {np.float32: 1e-7, np.float64: 1e-9}  # by the dtype of the Gram matrices


class Nearest(NamedTuple):
    """The best found rows left rightᵀ, and their total variation.

    Attributes
    ----------
    left, right : (n, r), (l, r)
    tv : float
        Mean over rows of ½ Σ_j |left rightᵀ − P|.
    """

    left: Matrix
    right: Matrix
    tv: float


def nearest(
    P: ArrayLike,
    rank: int,
    *,
    mask: MaskLike = None,
    starts: Iterable[tuple[Matrix, Matrix]] = (),
) -> Nearest:
    """Return a matrix of a rank near P in total variation, whose rows sum to 1 under the mask.

    min Σ_i ½ Σ_j |W_ij − P_ij| over rank W ≤ rank with Σ_j W_ij = 1, by weighted least squares:
    |x| ≤ (x²/|x₀| + |x₀|)/2, with equality at x = x₀ = ±|x₀|. So factors that are fitted in turn,
    with weights 1/|W − P| of the last W, reduce the total variation. The unknown of each fit is the
    step from the last factor, so that rounding and a ridge shorten steps but move no optimum.

    Parameters
    ----------
    P : (n, l)
        Rows of softmax; unseen entries do not count.
    rank : int
        1 ≤ rank ≤ min(n, l).
    mask : None, "causal" or Mask
    starts : iterable of (left (n, r), right (l, r)), r ≤ rank
        Further starts beside the built-in ones.

    Returns
    -------
    Nearest
        The best found, not a lower bound. Without a mask its rows sum to 1 up to rounding. Under a
        mask, rows in which the factor of the keys sums to 0 over the seen keys are excepted.

    Notes
    -----
    The result is deterministic. There are three built-in starts. The first is the truncated SVD of
    P, or under a mask the best completion that `approx.low_rank.godec.godec` finds. The second has
    means of consecutive rows of P as the right factor, like the landmarks of Nyströmformer. The
    third has the columns with the most attention. Rows of each start are scaled to sum to 1. Each
    start has 8 sweeps; the best one goes on for 16 more, or until two sweeps gain less than 10⁻³.
    Weights are at most 1/δ, where δ falls from eight times the mean difference to a thousandth of
    that. The best iterate is returned, so the result is never above any scaled start.

    Lagrange multipliers keep the row sums: one for each row in the fit of the queries' factor, and
    without a mask rank more for the sum of the keys' factor. Under a mask, the fit of the keys'
    factor ignores the row sums.

    Without a mask the weighted Gram matrices are in single precision, up to rank 24. Residuals,
    gradients and total variations are always in double precision.

    Cost: 4·n·l·rank² operations a sweep, about 40 sweeps, and two singular value decompositions.

    References
    ----------
    .. [1] E. Schlossmacher, "An iterative technique for absolute deviations curve fitting", JASA
       68, 1973, the weights.

    Examples
    --------
    Rank 2 reproduces two of three rows; the third is lost:

    >>> round(nearest(np.eye(3), 2).tv, 3)
    0.333
    """
    matrix = decomposition.dense_matrix(P)
    seen = masks.as_mask(mask, *matrix.shape)
    known = decomposition.with_nan(matrix, seen)
    n, l = known.shape
    r = checks.integer("rank", rank, least=1, most=min(n, l))
    memory.reserve(8 * l * r * r + 64 * n * l, f"a fit of rank {r} to {n}×{l} weights", "rank")
    shown = None if seen.is_full else (~np.isnan(known)).astype(np.float64)
    known = filled(known)
    guesses = [_least_squares(matrix, r, seen), *_starts(known, r), *starts]
    runs = [_Descent.from_pair(known, shown, *guess) for guess in guesses]
    for run in runs:
        run.descend(RACE)
    first = min(runs, key=lambda run: run.best.tv)
    first.descend(SWEEPS, enough=ENOUGH)
    return first.best


def _least_squares(P: Matrix, rank: int, mask: Mask) -> tuple[Matrix, Matrix]:
    """Return the truncated SVD; under a mask, the best found matrix of the rank."""
    if not mask.is_full:
        best = godec(P, rank, 0, mask=mask)
        return best.left, best.right
    U, s, V = leading(P, rank)
    return U * s, V


def _starts(P: Matrix, rank: int) -> list[tuple[Matrix, Matrix]]:
    """Return two starts as factors: means of consecutive rows, and columns of most attention."""
    n, l = P.shape
    cuts = np.arange(rank) * n // rank
    means = np.add.reduceat(P, cuts, axis=0) / np.diff([*cuts, n])[:, None]
    which = np.searchsorted(cuts, np.arange(n), "right") - 1
    most = np.sort(ranked(P.sum(axis=0))[:rank])
    return [(np.eye(rank)[which], means.T), (P[:, most], np.eye(l)[:, most])]


@dataclasses.dataclass(eq=False)
class _Descent:
    """A descent from one start.

    Attributes
    ----------
    shown : (n, l) or None
        1 where a query sees a key, else 0; None if all entries are seen.
    left, right, rest : (n, r), (l, r), (n, l)
        The factors, and P − left rightᵀ on seen entries.
    best : Nearest
    reached : list of float
        The best total variation so far, at the start and after each sweep.
    """

    P: Matrix
    shown: Matrix | None
    left: Matrix
    right: Matrix
    rest: Matrix
    best: Nearest
    reached: list[float]

    @classmethod
    def from_pair(cls, P: Matrix, shown: Matrix | None, left: Matrix, right: Matrix) -> Self:
        """Return the run that starts from two factors, with rows scaled to sum to 1."""
        left = _summing_to_one(left, _sums(shown, right, len(P)))
        rest, tv = _differences(P, shown, left, right)
        return cls(P, shown, left, right, rest, Nearest(left, right, tv), [tv])

    def descend(self, sweeps: int, enough: float = -math.inf) -> None:
        """Continue to ``sweeps`` sweeps in total, or until two gain a share less than `enough`."""
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
                self.best = Nearest(self.left, self.right, tv)
            self.reached.append(self.best.tv)
            if sweep > RACE and self.reached[-3] - self.best.tv < enough * self.best.tv:
                break


def _differences(
    P: Matrix, shown: Matrix | None, left: Matrix, right: Matrix
) -> tuple[Matrix, float]:
    """Return P − left rightᵀ on seen entries, else 0, and the total variation."""
    rest = left @ right.T
    np.subtract(P, rest, out=rest)
    if shown is not None:
        rest *= shown
    return rest, 0.5 * float(np.abs(rest).sum()) / len(P)


def _weights(rest: Matrix, shown: Matrix | None, least: float) -> Matrix:
    """Return 1/|difference|, limited, up to a common factor; 0 at unseen entries.

    Under a mask weights are double: the Gram matrix of a key that few queries see would lose all
    its digits in single precision.
    """
    weights = np.abs(rest)
    np.maximum(weights, least, out=weights)
    np.divide(least, weights, out=weights)
    return weights.astype(np.float32) if shown is None else weights * shown


def _sums(shown: Matrix | None, right: Matrix, n: int) -> Matrix:
    """Return the sums of the keys' factor over the keys that each query sees, (n, r)."""
    return np.tile(right.sum(axis=0), (n, 1)) if shown is None else shown @ right


def _summing_to_one(left: Matrix, sums: Matrix) -> Matrix:
    """Return left, scaled so that rows of the product sum to 1.

    A row whose sum is not positive becomes the shortest vector that gives the sum 1.
    """
    total = (left * sums).sum(axis=1, keepdims=True)
    size = np.square(sums).sum(axis=1, keepdims=True)
    shortest = np.divide(sums, size, out=np.zeros_like(left), where=size > 0)
    return np.asarray(np.divide(left, total, out=shortest, where=total > 0))


def _queries(rest: Matrix, weights: Matrix, left: Matrix, right: Matrix, sums: Matrix) -> Matrix:
    """Return the fitted factor of the queries, with a·sums = 1 for each row a."""
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
    """Return the fitted factor of the keys; if ``keep``, its column sums do not change."""
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
