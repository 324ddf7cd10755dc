"""Selection of the entries where D and a low-rank L differ most, and the passes over D and L.

Alternating methods alternate between "S = the large entries of D − L" and "L = the best low-rank
matrix for D − S". D − S is D off the support and L on it, so one pass over D and L writes the next
matrix to approximate; S is needed only at the end. Unseen entries, where D is NaN, are treated as
on the support, but are neither counted nor stored.
"""

import math

import numpy as np

from approx.kernels.jit import kernel
from approx.low_rank.decomposition import CSR, Indices, Matrix, sparse_entries

SAMPLED = 61  # one entry of as many tells where the threshold is


@kernel
def _separate(
    D: Matrix, L: Matrix, P: Matrix, threshold: float, ahead: float, out: Matrix
) -> float:
    """Write L + ahead·(L − P) where |D − L| ≥ threshold or D is NaN, else D.

    Return Σ (D − L)² over the entries where D is written. There is one sum per column, so that the
    loop is vectorised without reordering a sum.
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
def _gather(D: Matrix, L: Matrix, low: float, high: float, out: Matrix) -> tuple[int, int]:
    """Write every |D − L| from low to high, row by row, to the front of out (n·l + 1,).

    Return how many |D − L| are higher, and how many are written. NaN is neither.
    """
    n, l = D.shape
    above, found = 0, 0
    for i in range(n):
        for j in range(l):
            size = abs(D[i, j] - L[i, j])
            out[found] = size  # always written but kept only if inside, which avoids a branch
            found += (size >= low) & (size <= high)
            above += size > high
    return above, found


def kth_largest(D: Matrix, L: Matrix, count: int, work: Matrix) -> tuple[float, int]:
    """Return the threshold, which is the count-th largest |D − L|, and the excess.

    count + excess entries have |D − L| ≥ threshold; excess > 0 only if entries tie with it. work
    has shape (n·l + 1,). The result is exact: a sample only says which entries are partitioned.
    """
    if count == 0:
        return np.inf, 0
    sample = np.sort(np.abs(D.ravel()[::SAMPLED] - L.ravel()[::SAMPLED]))
    seen = int(np.searchsorted(sample, np.inf))  # NaN comes last
    share = min(count * len(sample) / (D.size * max(seen, 1)), 1.0)
    place, margin = seen * (1 - share), 1 + 4 * math.sqrt(seen * share * (1 - share))
    low, high = sample[max(int(place - margin), 0)], sample[min(int(place + margin), seen - 1)]
    above, found = _gather(D, L, low, high, work)
    if not above < count <= above + found:
        above, found = _gather(D, L, 0.0, np.inf, work)
    sizes = work[:found]
    place = above + found - count
    sizes.partition(place)
    threshold = float(sizes[place])
    return threshold, int(np.count_nonzero(sizes[:place] == threshold))


def _excess_ties(D: Matrix, L: Matrix, threshold: float, excess: int) -> Indices:
    """Return the flat indices of the last `excess` entries with |D − L| = threshold."""
    return np.flatnonzero(np.abs(D - L) == threshold)[-excess:]


def separate(
    D: Matrix, L: Matrix, P: Matrix, threshold: float, excess: int, ahead: float, out: Matrix
) -> float:
    """Write D − S to out, where S = D − L at the large entries; return ‖D − L − S‖_F².

    At the large entries D − S = L, and out gets L + ahead·(L − P). P is the previous L, so
    ahead > 0 extrapolates its change.
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
