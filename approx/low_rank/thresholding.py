"""Selection of the entries where D and a low-rank L differ most, and the passes over D and L.

Alternating methods move between "S = the large entries of D − L" and "L = the best low-rank
matrix for D − S". D − S is D off the support and L on it, so one pass reads D and L and writes
the next matrix to approximate; S itself is needed only at the end. What is not seen, where D is
NaN, is treated as on the support, but is counted and kept nowhere.
"""

import math

import numpy as np

from approx.kernels.jit import kernel
from approx.low_rank.decomposition import CSR, Indices, Matrix, sparse_entries

# If the last threshold is a good guess, only entries above this share of it are examined.
GUESS = 0.75
SAMPLED, MORE = 61, 1.3  # without a guess every 61st entry gives one that lets through 1.3 as many


@kernel
def _separate(
    D: Matrix, L: Matrix, P: Matrix, threshold: float, ahead: float, out: Matrix
) -> float:
    """Write L + ahead·(L − P) where |D − L| ≥ threshold, else D; return Σ (D − L)² of the rest.

    Where D is NaN, L is written, too.

    There is one sum per column, so that the loop is vectorised without reordering a sum.
    """
    n, l = D.shape
    squares = np.zeros(l)
    for i in range(n):
        for j in range(l):
            low = L[i, j]
            difference = D[i, j] - low
            large = not abs(difference) < threshold  # and so is NaN
            out[i, j] = low + ahead * (low - P[i, j]) if large else D[i, j]
            squares[j] += 0.0 if large else difference * difference
    total = 0.0
    for j in range(l):
        total += squares[j]
    return total


@kernel
def _gather(D: Matrix, L: Matrix, floor: float, out: Matrix) -> int:
    """Write every |D − L| ≥ floor to the front of out (n·l + 1,), row by row; return the count.

    NaN is not among them.
    """
    n, l = D.shape
    found = 0
    for i in range(n):
        for j in range(l):
            size = abs(D[i, j] - L[i, j])
            out[found] = size  # always written but kept only if large, which avoids a branch
            found += size >= floor
    return found


def kth_largest(D: Matrix, L: Matrix, count: int, guess: float, work: Matrix) -> tuple[float, int]:
    """Return the count-th largest |D − L|, the threshold, and how many entries exceed the count.

    So count + excess entries have |D − L| ≥ threshold, and excess > 0 only where entries tie with
    it. `guess` is a threshold that was right for a similar L, or 0; work has n·l + 1 places. The
    result is exact for any guess; a good guess needs only one pass.
    """
    if count == 0:
        return np.inf, 0
    found = _gather(D, L, GUESS * guess, work)
    if found < count:
        found = _gather(D, L, 0.0, work)
    sizes = work[:found]
    place = found - count
    sizes.partition(place)
    threshold = float(sizes[place])
    return threshold, int(np.count_nonzero(sizes[:place] == threshold))


def without_largest(A: Matrix, count: int) -> float:
    """Return ‖A − S‖_F, where S holds the `count` largest entries |a| of A (n, l): the least error.

    The threshold is guessed from every 61st entry, so that two passes and a partial sort of little
    more than `count` entries find it; a wrong guess costs a sort of all. The result is exact for
    any guess, but for the rounding of the sum.

    Examples
    --------
    >>> without_largest(np.array([[3.0, 0.0], [4.0, 5.0]]), 1)
    5.0
    """
    if count >= A.size:
        return 0.0
    nothing, some = np.zeros_like(A), np.abs(A.ravel()[::SAMPLED])
    place = len(some) - max(math.ceil(MORE * count * len(some) / A.size), 1)
    guess = float(np.partition(some, place)[place]) / GUESS if place >= 0 else 0.0
    threshold, excess = kth_largest(A, nothing, count, guess, np.empty(A.size + 1))
    return math.sqrt(separate(A, nothing, nothing, threshold, excess, 0.0, np.empty_like(A)))


def _excess_ties(D: Matrix, L: Matrix, threshold: float, excess: int) -> Indices:
    """Return the flat places of the last `excess` entries with |D − L| = threshold."""
    return np.flatnonzero(np.abs(D - L) == threshold)[-excess:]


def separate(
    D: Matrix, L: Matrix, P: Matrix, threshold: float, excess: int, ahead: float, out: Matrix
) -> float:
    """Write D − S to out, where S = D − L at the large entries; return ‖D − L − S‖_F².

    At the large entries, where D − S = L, out holds L + ahead·(L − P): P is the previous L, and
    ahead > 0 continues its change.
    """
    rest = _separate(D, L, P, threshold, ahead, out)
    if excess:
        ties = _excess_ties(D, L, threshold, excess)
        out.ravel()[ties] = D.ravel()[ties]
        rest += excess * threshold**2
    return rest


def large_entries(D: Matrix, L: Matrix, threshold: float, excess: int = 0) -> CSR:
    """Return D − L where |D − L| ≥ threshold, without the last `excess` ties, as a CSR array."""
    S = (D - L).ravel()
    places = np.flatnonzero(np.abs(S) >= threshold)
    if excess:
        places = np.setdiff1d(places, _excess_ties(D, L, threshold, excess), assume_unique=True)
    return sparse_entries(S[places], places, D.shape)
