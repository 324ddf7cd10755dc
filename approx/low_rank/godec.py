"""GoDec: a least-squares split of a matrix into low rank and sparse entries, at a budget."""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.estimate import masks
from approx.estimate.masks import Mask, MaskLike
from approx.low_rank import decomposition
from approx.low_rank.decomposition import Decomposition, Matrix, dense_matrix, filled, normalised
from approx.low_rank.exact_matrix import SPACES, DecompositionMethod
from approx.low_rank.subspace import leading, rotate
from approx.low_rank.thresholding import kth_largest, large_entries, separate
from approx.low_rank.weighted import equations
from approx.method import FROBENIUS, TV, Label
from approx.method.fields import integer, one_of, real
from approx.method.prices import Price, Shape, entries, low_rank
from approx.method.tags import BUDGETED, SPECTRAL

FRACTIONS = (0.0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8, 1.0)  # of the largest rank, in `at_budget`
MARGIN = 4  # columns of the subspace beyond the rank
AHEAD = 0.9  # share of the last change of L that is added to it again: this halves the sweeps
ASIDE = 0, 1, 4, 16  # each start sets aside this multiple of the number of entries
SWEEPS, ROUND = 120, 4  # in total, and per round of a race; half of the starts drop out per round
FINALISTS = 2  # ranks that `at_budget` follows to the end
PROMISING = 1.25  # `at_budget` tries all starts of a rank whose first error is within this factor
STALLED = 1e-5  # relative gain of a sweep at which a descent ends
COMPLETING = 40  # sweeps that complete a matrix under a mask, from the better of two starts
ALTERNATIONS, ALTERNATED = 30, 1e-2  # sweeps of least squares after these, and their least gain
FITS, FITTED = 40, 1e-4  # the same for splits with sparse entries
ALTERNATING = 64  # the largest rank of such sweeps, each of 4·n·l·rank² operations
COMPLETED = 2.0**58  # limit of |unseen|/max |seen|: seen entries lose all digits above 1/eps


Triplets = tuple[Matrix, Matrix, Matrix]  # U, s, V


class _Split(NamedTuple):
    """An unfinished split: L = left rightᵀ, S = D − L where |D − L| ≥ threshold, except ties."""

    left: Matrix
    right: Matrix
    basis: Matrix
    threshold: float
    excess: int
    error: float
    sweeps: int = 0
    worst: float = 0.0  # the largest error at which another start dropped out

    @property
    def spread(self) -> float:
        """The relative excess of the worst start's error, when it dropped out, over this error."""
        return max(self.worst / self.error - 1.0, 0.0) if self.error > 0 else 0.0


def _descend(D: Matrix, rank: int, count: int, state: _Split, sweeps: int) -> _Split:
    """Return the split after some sweeps, or when it stalls; the error never rises.

    T = D − S, with L extrapolated where S ≠ 0;  L ← T by one step of subspace iteration, truncated
    to the rank;  S ← the largest entries of D − L. A step that fails is repeated without
    extrapolation.
    """
    L, new, T = state.left @ state.right.T, np.empty_like(D), np.empty_like(D)
    work = np.empty(D.size + 1)
    separate(D, L, L, state.threshold, state.excess, 0.0, T)
    further = False
    for _ in range(sweeps):
        U, s, V = rotate(T, state.basis)
        left, right = U[:, :rank] * s[:rank], V[:, :rank]
        np.matmul(left, right.T, out=new)
        threshold, excess = kth_largest(D, new, count, work)
        error = math.sqrt(separate(D, new, L, threshold, excess, AHEAD, T))
        if error < state.error:
            gain = state.error - error
            state = _Split(left, right, V, threshold, excess, error, state.sweeps + 1, state.worst)
            L, new, further = new, L, True
            if gain < STALLED * error:
                break
        elif further:
            separate(D, L, L, state.threshold, state.excess, 0.0, T)
            further = False
        else:
            break
    return state


def _begin(D: Matrix, rank: int, count: int, L: Matrix, entries: int, basis: Matrix) -> _Split:
    """Return the split after one step from S = the `entries` largest entries of D − L."""
    T, work = np.empty_like(D), np.empty(D.size + 1)
    threshold, excess = kth_largest(D, L, entries, work)
    separate(D, L, L, threshold, excess, 0.0, T)
    U, s, V = rotate(T, basis)
    left, right = U[:, :rank] * s[:rank], V[:, :rank]
    L = left @ right.T
    threshold, excess = kth_largest(D, L, count, work)
    error = math.sqrt(separate(D, L, L, threshold, excess, 0.0, T))
    return _Split(left, right, V, threshold, excess, error)


def _starts(
    D: Matrix, rank: int, count: int, V: Matrix, aside: Iterable[int] = ASIDE
) -> list[_Split]:
    """Return the starts: splits after setting aside the largest entries of D, times·count of them.

    times = 0 begins with low rank, which is best if low rank matters most; times = 1 begins with
    the largest entries, which is best if these matter most. A larger multiple keeps large entries
    out of L. V (l, rank + MARGIN) has the leading right singular vectors of D, 0 if unseen.
    """
    zero, seen = np.zeros_like(D), decomposition.entries(D)
    return [_begin(D, rank, count, zero, min(times * count, seen), V) for times in aside]


def _race(D: Matrix, rank: int, count: int, states: list[_Split], sweeps: int) -> list[_Split]:
    """Return the splits after some sweeps, best first; every ROUND sweeps half drop out."""
    while sweeps > 0:
        step = min(ROUND, sweeps) if len(states) > 1 else sweeps
        states = _better_half([_descend(D, rank, count, state, step) for state in states])
        sweeps -= step
    return states


def _better_half(states: list[_Split]) -> list[_Split]:
    """Return the better half of the splits, best first; each records the worst error of all."""
    states = sorted(states, key=attrgetter("error"))
    worst = max(state.worst for state in states)
    if len(states) > 1:
        worst = max(worst, states[-1].error)
    return [state._replace(worst=worst) for state in states[: -(-len(states) // 2)]]


def _triplets(D: Matrix, rank: int) -> Triplets:
    """Return the rank + MARGIN leading singular triplets of D, 0 if unseen."""
    return leading(filled(D), min(rank + MARGIN, *D.shape))


def _truncated(D: Matrix, rank: int, whole: Matrix) -> _Split:
    """Return the truncated SVD of a matrix without unseen entries as a split of D, with S = 0."""
    U, s, V = leading(whole, min(rank + MARGIN, *D.shape))
    left, right = U[:, :rank] * s[:rank], V[:, :rank]
    L = left @ right.T
    error = math.sqrt(separate(D, L, L, np.inf, 0, 0.0, np.empty_like(D)))
    return _Split(left, right, V, np.inf, 0, error)


class _Incomplete:
    """A matrix with unseen entries, to be completed; two are equal if their contents are."""

    def __init__(self, D: Matrix, rank: int, whole: Matrix) -> None:
        contents = (hashlib.blake2b(np.ascontiguousarray(A).data).digest() for A in (D, whole))
        self.rank, self.key, self.matrices = rank, (rank, D.shape, *contents), (D, whole)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Incomplete) and self.key == other.key


@functools.lru_cache(maxsize=1)  # several methods of one head complete the same matrix
def _completed(one: _Incomplete) -> _Split:
    """Return the best rank-r fit found to the seen entries of a matrix.

    Unseen entries are filled in by the estimate itself, repeatedly. The two starts are the
    truncated SVDs of D with 0 at unseen entries, and of the whole matrix without the mask.
    Alternating least squares follow.
    """
    rank, (D, whole) = one.rank, one.matrices
    del one.matrices  # the cache keeps the key
    states = [_truncated(D, rank, start) for start in (filled(D), whole)]
    best = _race(D, rank, 0, states, COMPLETING)[0]
    return _alternated(D, 0, best, ALTERNATIONS, ALTERNATED)


def _alternated(D: Matrix, count: int, state: _Split, most: int, least: float) -> _Split:
    """Return a split after sweeps of alternating least squares; each sweep chooses S again.

    Each row of a factor becomes the best fit to the seen entries of its row or column of D − S, for
    the fixed other factor. If few entries are seen, this improves long after subspace iteration
    has stalled.
    """
    known, T, work = filled(D), np.empty_like(D), np.empty(D.size + 1)
    L = state.left @ state.right.T
    for _ in range(most if state.left.shape[1] <= ALTERNATING else 0):
        weights = (np.abs(D - L) < state.threshold).astype(np.float64)  # 0 where D is NaN
        right = _fitted(known.T, weights.T, state.left)
        left = _fitted(known, weights, right)
        L = left @ right.T
        threshold, excess = kth_largest(D, L, count, work)
        error = math.sqrt(separate(D, L, L, threshold, excess, 0.0, T))
        if error > (1 - least) * state.error:
            break
        state = state._replace(
            left=left, right=right, threshold=threshold, excess=excess, error=error,
            sweeps=state.sweeps + 1,
        )  # fmt: skip
    return state


def _ended(D: Matrix, rank: int, count: int, states: list[_Split], sweeps: int) -> _Split:
    """Return the best split, after it stalls or has had all its sweeps.

    Under a mask, subspace iteration has not converged after all sweeps. So it runs only until one
    start is left, and least squares follow; one of their sweeps does as much as about ten of it.
    """
    if rank > ALTERNATING or not np.isnan(D).any():
        return _race(D, rank, count, states, sweeps)[0]
    raced = min(sweeps, ROUND * (len(states) - 1).bit_length())
    best = _race(D, rank, count, states, raced)[0]
    return _alternated(D, count, best, min(sweeps - raced, FITS), FITTED)


def _fitted(D: Matrix, weights: Matrix, factor: Matrix) -> Matrix:
    """Return X (n, r) with the least ‖weights · (X factorᵀ − D)‖_F² + ridge·‖X‖², row by row."""
    X = np.empty((len(D), factor.shape[1]))
    for rows, grams, sides in equations(D, weights, factor):
        X[rows] = np.linalg.solve(grams, sides[:, :, None])[:, :, 0]
    return X


def _finished(D: Matrix, count: int, state: _Split) -> Decomposition:
    L = state.left @ state.right.T
    threshold, excess = kth_largest(D, L, count, np.empty(D.size + 1))
    error = math.sqrt(separate(D, L, L, threshold, excess, 0.0, np.empty_like(D)))
    S = large_entries(D, L, threshold, excess)
    spread = state._replace(error=error).spread
    return Decomposition(state.left, state.right, S, math.nan, error, state.sweeps, spread=spread)


def _alone(
    D: Matrix, rank: int, count: int, whole: Matrix, triplets: Triplets | None = None
) -> Decomposition:
    """Return the split for rank 0, the largest entries, or for count 0, the truncated SVD.

    At least `rank` leading singular triplets of D may be given.
    """
    if rank and whole is not D:
        return _finished(D, count, _completed(_Incomplete(D, rank, whole)))
    U, s, V = triplets or leading(filled(D), rank)
    U, s, V = U[:, :rank], s[:rank], V[:, :rank]
    return _finished(D, count, _Split(U * s, V, V, 0.0, 0, math.inf))


def godec(
    D: ArrayLike,
    rank: int,
    k: float,
    *,
    mask: MaskLike = None,
    iterations: int = SWEEPS,
    starts: Iterable[ArrayLike] = (),
) -> Decomposition:
    """Return L + S ≈ D with rank L ≤ rank and ⌊k·n⌋ entries in S, by alternating minimisation.

    min ‖D − L − S‖_F:  L ← the best rank-r matrix for D − S;  S ← the largest entries of D − L.

    Parameters
    ----------
    D : (n, l)
        A finite matrix.
    rank : int
        0 ≤ rank ≤ min(n, l).
    k : float
        Entries per row on average, 0 ≤ k ≤ l. They are chosen over the whole matrix.
    mask : None, "causal" or Mask
        The seen entries of D: the norm and S are restricted to them. S has
        ⌊Σ_i min(k, keys that i sees)⌋ entries. The unseen entries of D serve one of the starts.
    iterations : int
        Maximal number of sweeps, ≥ 1; every four sweeps half of the starts drop out.
    starts : iterable of (n, l)
        Guesses of L, as further starts beside the built-in ones, such as the low-rank part of
        `inexact_alm`. S begins as the largest entries of D − guess.

    Returns
    -------
    Decomposition
        ``objective`` is ‖D − L − S‖_F, a local optimum, the best found. ``spread`` is the relative
        excess of the worst start's error, when it dropped out. ``gap`` is NaN: no lower bound.

    Raises
    ------
    ValueError
        D is not a finite matrix, or rank or k is out of range.

    Notes
    -----
    The result is deterministic. Its error is never above that of the largest entries alone or of
    the truncated SVD of the same rank, and never rises with `iterations`. Rank 0 gives the largest
    entries and k = 0 the truncated SVD; both are exact optima. Exactly ⌊k·n⌋ entries are kept, the
    first in row order among equal ones; zeros are not stored.

    There are four built-in starts. They fit L after setting aside none of the entries of D, or the
    1, 4 and 16 times ⌊k·n⌋ largest. The best start goes on until a sweep gains less than 10⁻⁵.

    In each sweep, L follows D − S by one warm-started step of subspace iteration. On the entries of
    S the last change of L is added again, which halves the number of sweeps. A step that would
    raise the error is taken back.

    Under a mask, unseen entries are always on S without being counted, and L is free there. Then
    k = 0, too, has only local optima. Its error is never above that of the truncated SVDs of D and
    of D with 0 at unseen entries. The better of these after four sweeps goes on for at most 36
    more, until one gains less than 10⁻⁵ of the error. Up to rank 64, at most 30 sweeps of
    alternating least squares follow, each of 4·nl·rank² operations, until one gains less than
    1 %. With k > 0 this L is one more start. Once a single start is left, at most 40 such sweeps
    follow, each with a new choice of entries, until one gains less than 10⁻⁴.

    Cost: O(nl·rank) per sweep, at most 136 sweeps over all starts, and one Gram matrix
    O(nl·min(n, l)). For n below about 1500, limit BLAS to one thread around it (threadpoolctl).

    References
    ----------
    .. [1] T. Zhou, D. Tao, "GoDec: Randomized low-rank & sparse matrix decomposition in noisy
       case", ICML 2011, Eq. (2), algorithm 1.

    Examples
    --------
    >>> D = np.ones((4, 4)); D[1, 2] = 9.0
    >>> parts = godec(D, 1, 0.25)
    >>> parts.sparse.toarray()[1, 2].round(9), round(parts.objective, 9)
    (np.float64(8.0), 0.0)
    """
    matrix, whole, exponent = _masked(D, mask)
    n, l = matrix.shape
    r = checks.integer("rank", rank, least=0, most=min(n, l))
    iterations = checks.integer("iterations", iterations, least=1)
    rule = f"between 0 and l = {l} entries per row"
    k = checks.number("k", k, rule)
    if not 0 <= k <= l:
        raise ValueError(f"k must be {rule}, got {k}")
    count = _whole(math.fsum(np.minimum(masks.as_mask(mask, n, l).counts, k)))
    if r == 0 or count == 0:
        return _alone(matrix, r, count, whole).measured(matrix).rescaled(exponent)
    V = _triplets(matrix, r)[2]
    states = _starts(matrix, r, count, V)
    for start in starts:
        guess = _guess(start, (n, l), exponent)
        states.append(_begin(matrix, r, count, guess, count, V))
    states += _from_completed(matrix, r, count, whole)
    best = _ended(matrix, r, count, states, iterations)
    return _finished(matrix, count, best).measured(matrix).rescaled(exponent)


def _whole(entries: float) -> int:
    """Return ⌊entries⌋ in spite of rounding, such as that of 0.29·100."""
    return math.floor(entries + 1e-9)


def _masked(D: ArrayLike, mask: MaskLike) -> tuple[Matrix, Matrix, int]:
    """Return D / 2^e with NaN at unseen entries, D / 2^e, and e, which follows from seen entries.

    Unseen entries are clipped where they would be so large that seen entries lose all digits.
    """
    matrix = dense_matrix(D)
    visible = decomposition.with_nan(matrix, masks.as_mask(mask, *matrix.shape))
    scaled, exponent = normalised(visible)
    if visible is matrix:
        return scaled, scaled, exponent
    top = np.ldexp(COMPLETED, exponent) if filled(visible).any() else 0.0
    return scaled, np.ldexp(np.clip(matrix, -top, top), -exponent), exponent


def _from_completed(D: Matrix, rank: int, count: int, whole: Matrix) -> list[_Split]:
    """Return one more start under a mask: the completed low-rank matrix and the largest entries."""
    if whole is D:
        return []
    best = _completed(_Incomplete(D, rank, whole))
    return [_begin(D, rank, count, best.left @ best.right.T, count, best.basis)]


def _guess(start: ArrayLike, shape: tuple[int, int], exponent: int) -> Matrix:
    guess = dense_matrix(start)
    if guess.shape != shape:
        raise ValueError(f"every start must have the shape {shape} of D, got {guess.shape}")
    return np.ldexp(guess, -exponent)


def at_budget(
    D: ArrayLike,
    budget: float,
    *,
    mask: MaskLike = None,
    ranks: Iterable[int] | None = None,
) -> Decomposition:
    """Return the best found division of a budget between rank and entries.

    min over r of ‖D − L − S‖_F, rank L ≤ r, with k = budget − r·(n + l)/n entries per row.

    Parameters
    ----------
    D : (n, l)
        A finite matrix.
    budget : float
        Stored values per row, > 0.
    mask : None, "causal" or Mask
        The seen entries of D, as in `godec`.
    ranks : iterable of int, optional
        The ranks to try, if the budget can pay for them. By default 0, 1, 2 and the shares ⅛, ¼,
        ½, ¾, ⅞, 1 of the largest possible rank, ⌊budget·n/(n + l)⌋.

    Returns
    -------
    Decomposition
        ``objective`` is ‖D − L − S‖_F; with the default ranks, at most that of the largest entries
        or the truncated SVD at this budget. ``gap`` is NaN; ``spread`` is over the starts of the
        chosen rank.

    Raises
    ------
    ValueError
        D is not a finite matrix, the budget is ≤ 0, or no rank fits.

    Notes
    -----
    The result is deterministic. Each rank gives a local optimum, and other ranks are not tried, so
    the error is an upper bound on the least error of a division of the budget.
    Cost: four sweeps of `godec` for each rank, from the largest entries; four from each other start
    of the ranks that are then within a quarter of the best; and all sweeps for the best two ranks.
    Under a mask, also the 70 sweeps that complete the matrix, for the largest rank only.

    Examples
    --------
    >>> D = np.ones((4, 4)); D[1, 2] = 9.0
    >>> best = at_budget(D, 2.25)
    >>> best.rank, best.sparse.nnz, round(best.objective, 9)
    (1, 1, 0.0)
    """
    matrix, whole, exponent = _masked(D, mask)
    n, l = matrix.shape
    seen = decomposition.entries(matrix)
    everything = n + 2.0 * l  # a larger budget cannot reduce the error further
    values = _whole(min(checks.positive("budget", budget), everything) * n)
    largest = min(values // (n + l), n, l)
    tried = (
        {round(share * largest) for share in FRACTIONS} | {1, 2} if ranks is None else set(ranks)
    )
    counts = {
        r: min(values - r * (n + l), seen)
        for r in sorted(tried)
        if checks.integer("every rank", r, least=0) <= largest
    }
    if not counts:
        raise ValueError(
            f"no rank of {sorted(tried)} fits a budget of {budget} values per row: "
            "raise the budget or give smaller ranks"
        )
    triplets = _, _, V = _triplets(matrix, max(counts))
    candidates = [
        _alone(matrix, r, count, whole, triplets)
        for r, count in counts.items()
        if r == 0 or count == 0
    ]
    races = {}
    led = {
        r: _race(matrix, r, count, _starts(matrix, r, count, V[:, : r + MARGIN], [1]), ROUND)[0]
        for r, count in counts.items()
        if r and count
    }
    errors = sorted(state.error for state in led.values())
    for r, state in led.items():
        if state.error > max(PROMISING * errors[0], *errors[:FINALISTS]):
            continue
        starts = _starts(matrix, r, counts[r], V[:, : r + MARGIN], [w for w in ASIDE if w != 1])
        if r == max(counts):  # for other ranks it costs more than all else, and gains little
            starts += _from_completed(matrix, r, counts[r], whole)
        others = [_descend(matrix, r, counts[r], start, ROUND) for start in starts]
        races[r] = _better_half([state, *others])
    for r in sorted(races, key=lambda r: races[r][0].error)[:FINALISTS]:
        best = _ended(matrix, r, counts[r], races[r], SWEEPS - ROUND)
        candidates.append(_finished(matrix, counts[r], best))
    return min(candidates, key=attrgetter("objective")).measured(matrix).rescaled(exponent)


@dataclasses.dataclass(frozen=True)
class GoDec(DecompositionMethod):
    """GoDec: the best found sparse + low-rank split in least squares.

    estimate = L + S, min ‖D − L − S‖_F over rank L ≤ rank and k entries per row on average, for
    D = exp(Q Kᵀ) or its row-softmax.

    Parameters
    ----------
    rank : int, optional
        The rank of L, ≥ 0; rank 0 keeps the largest entries of D.
    k : float, optional
        Entries of S per row on average, ≥ 0; a query that sees m < k keys counts as m.
    budget : float, optional
        Stored values per row, instead of rank and k; the best of several divisions is taken.
    space : {"kernel", "attention"}
        The matrix that is decomposed.

    Notes
    -----
    The estimate is deterministic: the best in Frobenius norm that is found from several starts. It
    is a local optimum without a lower bound, but never worse than the truncated SVD or the largest
    entries at the same budget. With rank 0 it is the matrix of the largest entries, the best with
    as many entries. It does not minimise total variation, and in attention space its rows need not
    sum to 1. Under a mask, only seen entries count, and L is free elsewhere.
    Cost: O(n·l·rank) operations per iteration, on the dense matrix.

    References
    ----------
    .. [1] T. Zhou, D. Tao, "GoDec: Randomized Low-rank & Sparse Matrix Decomposition in Noisy
       Case", ICML 2011, Eq. (2).

    Examples
    --------
    >>> GoDec(rank=0, k=1).approximate([[0.0], [1.0]], [[0.0], [2.0]]).to_dense().round(3)
    array([[1.   , 0.   ],
           [0.   , 7.389]])
    """

    name = "godec"
    label = Label("sparse + low rank (GoDec)", {"largest entries of the matrix": {"rank": 0}})

    rank: int | None = integer(least=0)
    k: float | None = real(zero=True)
    budget: float | None = real()
    space: str = one_of("kernel", SPACES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget is not None and (self.rank is not None or self.k is not None):
            raise ValueError("a budget excludes rank and k: give the budget, or rank and k")

    @property
    def tags(self) -> frozenset[str]:
        return super().tags | {BUDGETED, SPECTRAL}

    @property
    def is_template(self) -> bool:
        return self.budget is None and (self.rank is None or self.k is None)

    def optimal_in(self, mask: Mask | None = None) -> set[str]:
        """Return the metrics in which rank 0 is optimal, over matrices with as many entries."""
        if self.rank != 0:
            return set()
        return {FROBENIUS[self.space], TV} if self.space == "attention" else {FROBENIUS[self.space]}

    def best_found_in(self, mask: Mask | None = None) -> set[str]:
        """Return the Frobenius norm, over all splits with this rank and number of entries."""
        return {FROBENIUS[self.space]}

    def decompose(self, D: Matrix, mask: Mask) -> Decomposition:
        if self.rank is not None and self.k is not None:
            return godec(D, self.rank, self.k, mask=mask)
        return at_budget(D, checks.positive("budget", self.budget), mask=mask)

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of rank columns and k entries; for a budget, only the stored values.

        The division of a budget depends on the inputs, and so do the other prices.
        """
        if self.budget is not None:
            return Price(float(self.budget), None, None, None)
        if self.rank is None or self.k is None:
            return None
        low = low_rank(self.rank, shape, sums=self.space == "kernel")
        of_entries = entries(self.k, shape, held=shape.most)
        taken_off = Price(0.0, 0.0, self.rank * of_entries.stored, 0.0)
        return low + of_entries + taken_off

    def _fill(self, budget: float, shape: Shape, currency: str) -> Self | None:
        """Return this method with the budget, or with the k or rank that the budget still pays for.

        In a currency other than stored values the division of a budget is not known.
        """
        if currency != "stored":
            return None
        if self.rank is not None:
            left = budget - self.rank * shape.both
            return dataclasses.replace(self, k=_per_row(left, shape)) if left >= 0 else None
        if self.k is not None:
            left = (budget - shape.seen(self.k)) // shape.both
            rank = min(int(left), shape.n, shape.l)
            return dataclasses.replace(self, rank=rank) if left >= 0 else None
        return dataclasses.replace(self, budget=budget)


def _per_row(mean: float, shape: Shape) -> float:
    """Return the largest k ≤ l at which the mean of min(k, keys that a query sees) is `mean`."""
    if shape.mask is None or shape.mask.is_full:
        return min(mean, shape.l)
    counts = np.sort(shape.mask.counts)
    below = np.concatenate([[0.0], np.cumsum(counts[:-1])])  # entries of the queries with less
    shares = (mean * len(counts) - below) / np.arange(len(counts), 0, -1)
    return float(shares[np.argmax(shares < counts)]) if (shares < counts).any() else float(shape.l)
