"""Sparsity patterns as CSR (indptr, indices): runs of keys, keys with equal labels, unions."""

from collections.abc import Callable, Iterable

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate import exact, masks, memory
from approx.estimate.corrections import Support
from approx.estimate.masks import Mask
from approx.kernels import pattern_products

Pattern = tuple[Array, Array]

TIE = 2.0**-32  # scores in float64 that differ by less, relative to the largest, tie
BATCH = 2**17  # pairs of several patterns that are sorted together


def aligned(n: int, l: int) -> Array:
    """Return ⌊i·l/n⌋, the key at the position of each query, (n,)."""
    return np.arange(n) * l // n


def lengths(first: Array, last: Array, stride: Array | int = 1) -> Array:
    """Return the number of terms of first, first + stride, … that are below last."""
    return np.maximum(-((first - last) // stride), 0)


def runs(first: Array, last: Array, stride: Array | int = 1) -> Pattern:
    """Return the pattern whose row i holds first[i], first[i] + stride[i], … below last[i].

    Raises
    ------
    ResourceLimitError
        The indices would not fit into memory. It is raised before they are allocated.

    Examples
    --------
    >>> runs(np.array([0, 2]), np.array([2, 5]))
    (array([0, 2, 5]), array([0, 1, 2, 3, 4]))
    """
    counts = lengths(first, last, stride)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    entries = int(indptr[-1])
    memory.reserve(24 * entries, f"a support of {entries} entries", "n or the keys a query meets")
    if isinstance(stride, int) and stride == 1:
        return indptr, np.arange(entries) + np.repeat(first - indptr[:-1], counts)
    steps = np.arange(entries) - np.repeat(indptr[:-1], counts)
    return indptr, np.repeat(first, counts) + steps * np.repeat(stride, counts)


def same_chunk(places: Array, l: int, size: int) -> Pattern:
    """Return the pattern of positions j in the chunk of place_i: ⌊place_i/size⌋ = ⌊j/size⌋.

    Examples
    --------
    >>> same_chunk(np.array([0, 2]), l=3, size=2)
    (array([0, 2, 3]), array([0, 1, 2]))
    """
    first = places // size * size
    return runs(first, np.minimum(first + size, l))


def same_bucket(queries: Array, keys: Array) -> Pattern:
    """Return the pattern of pairs of a query and a key with equal integer labels, (n,) and (l,).

    Notes
    -----
    Cost: O((n + l) log l), and O(1) per pair.

    Examples
    --------
    >>> same_bucket(np.array([7, 3]), np.array([3, 7, 7]))
    (array([0, 2, 3]), array([1, 2, 0]))
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    indptr, places = runs(
        np.searchsorted(ordered, queries, "left"), np.searchsorted(ordered, queries, "right")
    )
    return indptr, order[places]


def largest(x: Array, k: int) -> Array:
    """Return whether each entry is finite and among the k largest of its row; of ties the first."""
    place = max(x.shape[1] - k, 0)
    level = np.partition(x, place, axis=1)[:, place, None]
    level = np.maximum(level, np.finfo(x.dtype).min)  # rows with fewer than k keys get all
    chosen = np.asarray(x >= level)
    # Few rows have more equal entries than places.
    odd = np.flatnonzero((np.count_nonzero(chosen, axis=1) > k) | (level[:, 0] == np.inf))
    y, level = x[odd], level[odd]
    above = y > level
    equal = (y == level) & np.isfinite(level)
    room = k - above.sum(axis=1, keepdims=True)
    chosen[odd] = above | (equal & (equal.cumsum(axis=1) <= room))
    return chosen


def rounded(scores: Array, *, offset: bool = False) -> Array:
    """Return scores in units of 2⁻³² of the largest |score| of their row, rounded to integers.

    This is the rule for ties of all scores that are not logits, such as norms and sums of
    attention: what is equal but for rounding errors ties, unless it lies at half a unit, and the
    first is chosen. In float32 the unit is 2⁻¹⁶. Infinite scores stay.

    With ``offset``, a shift of the keys adds one number to all scores of a row. The largest is
    subtracted then, and the unit is that of the largest difference, or 8 eps of a score if larger.
    """
    x = np.array(scores, np.result_type(scores, np.float32))
    known = np.isfinite(x)
    size = np.where(known, np.abs(x), 0).max(axis=-1, keepdims=True, initial=0)
    tie = x.dtype.type(TIE ** (x.itemsize / 8))
    unit = size * tie
    if offset:
        x -= np.where(known, x, -size).max(axis=-1, keepdims=True, initial=-np.inf)
        spread = np.where(known, -x, 0).max(axis=-1, keepdims=True, initial=0)
        unit = np.maximum(spread * tie, 8 * np.finfo(x.dtype).eps * size)
    return np.asarray(np.rint(np.divide(x, unit, out=x, where=unit > 0)))


def ranked(scores: Array, *, offset: bool = False) -> Array:
    """Return the places of a row's `rounded` scores, the largest first, and of ties the first."""
    return np.argsort(-rounded(scores, offset=offset), axis=-1, kind="stable")


def union(patterns: Iterable[Pattern], l: int) -> Pattern:
    """Return the union of patterns: each pair once, row by row and in order.

    A single pattern is returned unchanged. For several, memory holds at most the pairs of one
    pattern, and twice the pairs of the union or 2¹⁷.

    Examples
    --------
    >>> one = runs(np.array([0]), np.array([2]))
    >>> two = runs(np.array([1]), np.array([3]))
    >>> [x.tolist() for x in union([one, two], l=3)]
    [[0, 3], [0, 1, 2]]
    """
    places: list[Array] = []  # i·l + j for each pair
    count = held = whole = 0
    for indptr, indices in patterns:
        count += 1
        first = np.arange(len(indptr)) * l  # i·l for each row
        places.append(np.repeat(first[:-1], np.diff(indptr)) + indices)
        held += len(indices)
        if held > 2 * max(whole, BATCH):
            places = [_each_once(places)]
            held = whole = len(places[0])
    if count == 1:
        return indptr, indices
    pairs = _each_once(places)
    indptr = np.searchsorted(pairs, first)
    return indptr, pairs - np.repeat(first[:-1], np.diff(indptr))


def _each_once(parts: list[Array]) -> Array:
    # Sorting is several times faster than adding sparse matrices or using a set.
    x = np.concatenate(parts)
    x.sort()
    new = np.ones(len(x), bool)
    np.not_equal(x[1:], x[:-1], out=new[1:])
    return x[new]


def exact_on(pattern: Pattern, q: Array, k: Array, mask: Mask) -> Support:
    """Return exp(q·k) on the entries of a pattern inside the mask."""
    indptr, indices = pattern
    n, l = len(q), len(k)
    index = scipy.sparse.get_index_dtype(maxval=max(len(indices), l))
    indptr, indices = (x.astype(index, copy=False) for x in (indptr, indices))
    logits = np.zeros(len(indices), q.dtype)
    asked = scipy.sparse.csr_array((logits, indices, indptr), shape=(n, l))
    asked.sort_indices()
    asked = masks.cut(asked, mask)
    asked.data = pattern_products.product(q, k, asked)
    return Support(asked)


def by_stripes(Q: Array, K: Array, mask: Mask, chosen: Callable[[Array, slice], Array]) -> Pattern:
    """Return the pattern that a rule on logits chooses, computed stripe by stripe.

    The rule maps (logits, rows) to whether each entry is in the support. Logits are −inf outside
    the mask.
    """
    counts, keys = [], []
    for rows in exact.stripes(len(Q), len(K)):
        found = chosen(exact.seen_logits(Q, K, mask, rows), rows)
        counts.append(np.count_nonzero(found, axis=1))
        before = np.arange(len(found)) * found.shape[1] - mask.span(rows).start
        keys.append(np.flatnonzero(found) - np.repeat(before, counts[-1]))
    return np.concatenate([[0], np.cumsum(np.concatenate(counts))]), np.concatenate(keys)
