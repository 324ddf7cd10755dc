"""Products with sparse matrices: of two factors at the entries of a pattern, and of CSR with V."""

from typing import Any

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.kernels.jit import kernel, summing_kernel

WIDE = 16  # columns of V from which taking entries four at a time is faster


@kernel
def _same_keys(indices: Any, begin: int, middle: int, end: int) -> Any:
    count, p = middle - begin, begin
    while p < middle and p + count < end and indices[p] == indices[p + count]:
        p += 1
    return p == middle and middle + count == end


@summing_kernel
def _dots(x: Any, right: Any, indices: Any, begin: int, end: int, out: Any) -> None:
    # Four keys are taken at a time: each entry of x is loaded once for four sums.
    zero = x.dtype.type(0)
    whole = end - (end - begin) % 4
    for p in range(begin, whole, 4):
        a, b = right[indices[p]], right[indices[p + 1]]
        c, d = right[indices[p + 2]], right[indices[p + 3]]
        xa = xb = xc = xd = zero
        for r in range(x.size):
            xa += x[r] * a[r]
            xb += x[r] * b[r]
            xc += x[r] * c[r]
            xd += x[r] * d[r]
        out[p], out[p + 1], out[p + 2], out[p + 3] = xa, xb, xc, xd
    for p in range(whole, end):
        a = right[indices[p]]
        xa = zero
        for r in range(x.size):
            xa += x[r] * a[r]
        out[p] = xa


@summing_kernel
def _dots_of_two(x: Any, y: Any, right: Any, indices: Any, begin: int, end: int, out: Any) -> None:
    # Both queries have the same keys, a multiple of four; each key is loaded once for both.
    zero = x.dtype.type(0)
    for p in range(begin, end, 4):
        a, b = right[indices[p]], right[indices[p + 1]]
        c, d = right[indices[p + 2]], right[indices[p + 3]]
        xa = xb = xc = xd = ya = yb = yc = yd = zero
        for r in range(x.size):
            xa += x[r] * a[r]
            xb += x[r] * b[r]
            xc += x[r] * c[r]
            xd += x[r] * d[r]
            ya += y[r] * a[r]
            yb += y[r] * b[r]
            yc += y[r] * c[r]
            yd += y[r] * d[r]
        out[p], out[p + 1], out[p + 2], out[p + 3] = xa, xb, xc, xd
        q = p + end - begin
        out[q], out[q + 1], out[q + 2], out[q + 3] = ya, yb, yc, yd


@kernel
def _row_dots(left: Any, right: Any, indptr: Any, indices: Any, out: Any) -> None:
    i = 0
    while i < left.shape[0]:
        begin, middle = indptr[i], indptr[i + 1]
        two = i + 1 < left.shape[0] and (middle - begin) % 4 == 0
        if two and _same_keys(indices, begin, middle, indptr[i + 2]):
            _dots_of_two(left[i], left[i + 1], right, indices, begin, middle, out)
            i += 2
        else:
            _dots(left[i], right, indices, begin, middle, out)
            i += 1


def product(left: Array, right: Array, pattern: scipy.sparse.csr_array) -> Array:
    """Return (left rightᵀ)[i, j] for the stored entries (i, j) of the pattern, in their order.

    Accuracy: 2 eps·κ, as docs/accuracy.md defines it.

    Parameters
    ----------
    left, right : (n, r), (l, r)
        C-contiguous, of one dtype.
    pattern : (n, l) CSR
        Only ``indptr`` and ``indices`` are read.

    Notes
    -----
    Cost: 2·r·nnz operations, without a temporary array. Sums may be reordered.
    """
    out = np.zeros(pattern.nnz, left.dtype)
    if left.shape[1]:
        _row_dots(left, right, pattern.indptr, pattern.indices, out)
    return out


@kernel
def _weighted_rows(data: Any, indptr: Any, indices: Any, V: Any, y: Any) -> None:
    # Four keys are taken at a time: each entry of y is read and written once for the four.
    for i in range(y.shape[0]):
        total = y[i]
        total[:] = 0.0
        begin, end = indptr[i], indptr[i + 1]
        whole = end - (end - begin) % 4
        for p in range(begin, whole, 4):
            s, t, u, v = data[p], data[p + 1], data[p + 2], data[p + 3]
            a, b = V[indices[p]], V[indices[p + 1]]
            c, d = V[indices[p + 2]], V[indices[p + 3]]
            for r in range(total.size):
                total[r] += s * a[r] + t * b[r] + u * c[r] + v * d[r]
        for p in range(whole, end):
            s, a = data[p], V[indices[p]]
            for r in range(total.size):
                total[r] += s * a[r]


def matmat(s: scipy.sparse.csr_array, V: Array) -> Array:
    """Return s @ V for V (l, c).

    Accuracy: 2 eps·κ, as docs/accuracy.md defines it.

    Notes
    -----
    Cost: 2·c·nnz operations, in half of SciPy's time if c is large.
    """
    if V.shape[1] < WIDE:
        return np.asarray(s @ V)
    dtype = np.result_type(s.dtype, V)
    y = np.empty((s.shape[0], V.shape[1]), dtype)
    v = np.ascontiguousarray(V, dtype)
    _weighted_rows(s.data.astype(dtype, copy=False), s.indptr, s.indices, v, y)
    return y


def coordinates(s: scipy.sparse.csr_array) -> tuple[Array, Array]:
    """Return the rows and the columns of all stored entries."""
    return np.repeat(np.arange(s.shape[0]), np.diff(s.indptr)), s.indices
