"""State ranks of a causal head: the ranks of its blocks of later queries and earlier keys.

A lower triangular matrix with a positive diagonal has full rank, so its singular values tell little
about recurrences. In a recurrence, the first k keys affect later queries only through the state. So
every block P[queries after k, keys before k] has rank ≤ m for linear attention with m features,
gated or not, normalised or not, and for every state-space model with m states per channel.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import pandas as pd
import scipy.linalg

from analysis.ranks import rank as ranks
from approx import checks
from approx.checks import Array
from approx.estimate import masks
from approx.estimate.masks import Mask, MaskLike

PARTITIONS = ("dyadic", "best")
GRID = 16  # the number of places where the best partition may cut
POSITIONS = 64  # the largest number of positions of a profile, by default


def profile(
    weights: Array, mask: MaskLike = "causal", *, epsilon: float = 1e-2, positions: int = POSITIONS
) -> pd.DataFrame:
    """Return the rank measures of the block at each position of a causal head.

    The block of position k is weights[queries that see key k, keys before k]. The largest of the
    blocks' ranks is the least number of states of an exact recurrence.

    Parameters
    ----------
    weights : (n, l)
        Softmax rows, or any matrix under a mask.
    mask : "causal" or Mask
        The visible keys of every query must begin at key 0.
    epsilon : float
        The ε-rank counts the singular values above epsilon·σ₁ of the block.
    positions : int
        The largest number of positions, at equal distances.

    Returns
    -------
    DataFrame
        A row per position: ``position``; ``queries`` and ``keys`` of the block; ``norm``, the
        block's share of the Frobenius norm of all visible weights; and the columns of
        `analysis.ranks.rank.summary`.

    Raises
    ------
    ValueError
        A query does not see key 0, so that blocks are partly invisible, or the shapes differ.

    Notes
    -----
    Cost: a singular value decomposition per position, O(positions·n³/8).

    Examples
    --------
    Averages of the past need one state:

    >>> found = profile(np.tril(np.ones((8, 8))))
    >>> found.position.tolist(), set(found.numerical_rank)
    ([1, 2, 3, 4, 5, 6, 7], {1.0})
    """
    P, seen = _checked(weights, mask)
    checks.integer("positions", positions, least=1)
    checks.positive("epsilon", epsilon)
    if seen.first.any():
        raise ValueError(
            "a profile needs intervals that begin at key 0, so that its blocks are seen whole; "
            f"this mask is {seen}: use lower_bound, whose rectangles lie within the mask"
        )
    total = np.linalg.norm(P)
    last = int(seen.stop.max())
    if last < 2:
        raise ValueError("a profile needs two keys that queries see, got one")
    rows = []
    for k in np.unique(np.linspace(1, last - 1, min(positions, last - 1)).round()).astype(int):
        block = P[seen.stop > k, :k]
        found = ranks.summary(block, epsilon=epsilon)
        share = float(np.linalg.norm(block) / total)
        rows.append({"position": k, "queries": len(block), "keys": k, "norm": share, **found})
    return pd.DataFrame(rows)


@overload
def lower_bound(
    weights: Array, m: int, *, mask: MaskLike = ..., window: int = ..., partition: str = ...
) -> float: ...
@overload
def lower_bound(
    weights: Array,
    m: Sequence[int],
    *,
    mask: MaskLike = ...,
    window: int = ...,
    partition: str = ...,
) -> Array: ...
def lower_bound(
    weights: Array,
    m: int | Sequence[int],
    *,
    mask: MaskLike = "causal",
    window: int = 0,
    partition: str = "dyadic",
) -> float | Array:
    """Return a lower bound on the error of linear attention or state-space models with m states.

    bound² = Σ_R Σ_{i > m} σ_i(weights_R)² / ‖weights‖²_F over disjoint rectangles R of later
    queries and earlier keys, all within the mask.

    Parameters
    ----------
    weights : (n, l)
        Softmax rows, or any other matrix; entries outside the mask are ignored.
    m : int or sequence of int
        The number of states, or of features of a linear attention.
    mask : None, "causal" or Mask
        Without a mask the whole matrix of a linear attention has rank ≤ m, and the bound is the one
        of Eckart and Young.
    window : int
        The number of last keys that each query also sees exactly, as in hybrid models. The
        rectangles keep this distance from the diagonal.
    partition : {"dyadic", "best"}
        ``dyadic`` halves the text recursively. ``best`` first cuts it at the best of 16 equidistant
        places, by dynamic programming. It is never below ``dyadic``, and takes about 50 times as
        long.

    Returns
    -------
    float, or (len(m),)
        A *lower bound*, rounded down, on the relative Frobenius error of the weights of every such
        model, learned or not. For rows that sum to 1, the root mean square of their total variation
        is at least bound·‖weights‖_F/√(2n).

    Notes
    -----
    Within a rectangle the estimate is a product through the state, of rank ≤ m. A matrix of that
    rank has an error of at least √Σ_{i > m} σ_i² there. Rectangles are disjoint, so that their
    squared errors add. Normalising, gating or scaling rows leaves the rank.

    ``hierarchical(rank=m, basis="svd")`` truncates each dyadic rectangle separately and reaches
    this sum if its leaf is 2·m, but it has m states per level.

    Each singular value is lowered by max(shape)·eps·σ₁, more than LAPACK's error.

    Cost: ``dyadic`` O(n³/24) operations, in decompositions of n/2 × n/2 and smaller.

    References
    ----------
    .. [1] C. Eckart, G. Young, "The approximation of one matrix by another of lower rank",
       Psychometrika 1, 1936.
    .. [2] P. Dewilde, A.-J. van der Veen, "Time-varying systems and computations", Kluwer 1998,
       chapter 5: the ranks of these blocks are the numbers of states.

    Examples
    --------
    One state averages the past; the identity needs no state; a shift by 8 needs eight:

    >>> past = np.tril(np.ones((8, 8)))
    >>> lower_bound(past, 1), lower_bound(np.eye(8), 1)
    (0.0, 0.0)
    >>> lower_bound(np.eye(16, k=-8), [0, 4, 8]).round(3)
    array([1.   , 0.707, 0.   ])
    """
    P, seen = _checked(weights, mask)
    checks.one_of("partition", partition, PARTITIONS)
    checks.integer("window", window, least=0)
    several = [checks.integer("m", x, least=0) for x in np.atleast_1d(np.asarray(m, object))]
    if not several:
        raise ValueError("m must be a number of states, or several of them, got none")
    total = float(np.square(P).sum())
    if seen.is_full and not seen.looks_back and not window:
        squares = _tails(P, several)
    else:
        squares = _Staircase(P, seen, window, several).bound(partition)
    bound = np.sqrt(squares / total) * (1 - 8 * np.finfo(float).eps)
    return float(bound[0]) if isinstance(m, int | np.integer) else bound


def _checked(weights: Array, mask: MaskLike) -> tuple[Array, Mask]:
    P = np.array(checks.array("weights", weights, ndim=2), np.float64)
    seen = masks.as_mask(mask, *P.shape)
    seen.hide(P)
    if not P.any():
        raise ValueError("weights are 0 wherever a query sees a key, so that no error is relative")
    return P, seen


def _tails(block: Array, several: list[int]) -> Array:
    """Return Σ_{i > m} σ_i² for each m, rounded down."""
    if min(block.shape) <= min(several):
        return np.zeros(len(several))
    s = singular_values(block)
    after = np.append(np.cumsum(s[::-1] ** 2)[::-1], 0.0)
    return after[np.minimum(several, len(s))]


def singular_values(block: Array) -> Array:
    """Return the singular values, lowered by max(shape)·eps·σ₁, more than LAPACK's error."""
    return lowered(scipy.linalg.svdvals(block, check_finite=False), block.shape)


def lowered(s: Array, shape: tuple[int, ...]) -> Array:
    """Return the singular values of a matrix of this shape, less a bound of LAPACK's error."""
    return np.asarray(np.maximum(s - max(shape) * np.finfo(float).eps * s[0], 0.0))


def rectangles(mask: Mask, least: int = 1) -> list[tuple[Array, slice]]:
    """Return the disjoint dyadic rectangles of later queries and earlier keys.

    All queries of a rectangle see all of its keys. A stretch of ``least`` keys is not halved.

    Examples
    --------
    >>> [(rows.tolist(), keys) for rows, keys in rectangles(Mask.causal(4, 4), 2)]
    [([2, 3], slice(0, 2, None))]
    """
    found = (_rectangle(mask.first, mask.stop, *cut) for cut in _halves(mask.stop, least))
    return [one for one in found if one is not None]


def _halves(stop: Array, least: int) -> Iterator[tuple[int, int, int]]:
    """Yield begin, middle and end of each stretch of keys that is halved, first of all keys."""
    stretches = [(0, 1 << (int(stop.max()) - 1).bit_length())]
    while stretches:
        lo, hi = stretches.pop()
        if hi - lo > least and lo < stop.max():
            mid = (lo + hi) // 2
            yield lo, mid, hi
            stretches += [(mid, hi), (lo, mid)]


def _rectangle(first: Array, stop: Array, lo: int, mid: int, hi: int) -> tuple[Array, slice] | None:
    """Return the queries with mid < stop ≤ hi and the keys lo … mid − 1 that all of them see."""
    rows = np.flatnonzero((mid < stop) & (stop <= hi) & (first < mid))
    return (rows, slice(max(lo, int(first[rows].max())), mid)) if len(rows) else None


class _Staircase:
    """Disjoint rectangles below the stops of a mask, and the sums of their tails."""

    def __init__(self, P: Array, mask: Mask, window: int, several: list[int]) -> None:
        self.P, self.first, self.several = P, mask.first, several
        self.stop = mask.stop - window  # keys before this one pass through the state
        self.tails = functools.cache(self._tails)

    def _tails(self, lo: int, mid: int, hi: int) -> Array:
        found = _rectangle(self.first, self.stop, lo, mid, hi)
        return np.zeros(len(self.several)) if found is None else _tails(self.P[found], self.several)

    def bound(self, partition: str) -> Array:
        """Return the sum over the rectangles of the partition, for every m."""
        top = int(self.stop.max())
        if top < 2:
            return np.zeros(len(self.several))
        size = 1 << (top - 1).bit_length()
        if partition == "dyadic" or size <= GRID:
            return self._dyadic(0, size)
        return self._best(size)

    def _dyadic(self, lo: int, hi: int) -> Array:
        if hi - lo <= max(1, min(self.several)) or lo >= self.stop.max():
            return np.zeros(len(self.several))
        mid = (lo + hi) // 2
        return self.tails(lo, mid, hi) + self._dyadic(lo, mid) + self._dyadic(mid, hi)

    def _best(self, size: int) -> Array:
        """Return the largest sum over recursive cuts at multiples of size/GRID, for every m."""
        step = size // GRID
        best = {(p, p + 1): self._dyadic(p * step, (p + 1) * step) for p in range(GRID)}
        for width in range(2, GRID + 1):
            for a in range(GRID - width + 1):
                z = a + width
                sums = [
                    self.tails(a * step, c * step, z * step) + best[a, c] + best[c, z]
                    for c in range(a + 1, z)
                ]
                best[a, z] = np.max(sums, axis=0)
        return best[0, GRID]


def least_states(
    weights: Array,
    error: float,
    *,
    mask: MaskLike = "causal",
    window: int = 0,
    partition: str = "dyadic",
) -> int:
    """Return a lower bound on the number of states of a model whose weights are within an error.

    The error is the relative Frobenius error; the other parameters are those of `lower_bound`.

    Returns
    -------
    int
        The least m with lower_bound(weights, m) ≤ error: every linear attention and every
        state-space model with fewer states has a larger error.

    Examples
    --------
    >>> least_states(np.eye(16, k=-8), 0.5)
    6
    """
    limit = checks.number("error", error)
    if not limit >= 0:
        raise ValueError(f"error must be >= 0, got {error!r}")
    several = range(min(np.shape(weights)) + 1)
    bounds = lower_bound(weights, several, mask=mask, window=window, partition=partition)
    return int(np.argmax(bounds <= limit))
