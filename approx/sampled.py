"""A product of two factors at the entries of a sparse pattern, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from approx._jit import summing_kernel
from approx.checks import Array


@summing_kernel
def _row_dots(left: Any, right: Any, indptr: Any, indices: Any, out: Any) -> None:
    # Four keys at a time: each entry of x is loaded once for them, four sums run side by side.
    for i in range(left.shape[0]):
        x = left[i]
        begin, end = indptr[i], indptr[i + 1]
        whole = end - (end - begin) % 4
        for p in range(begin, whole, 4):
            a, b = right[indices[p]], right[indices[p + 1]]
            c, d = right[indices[p + 2]], right[indices[p + 3]]
            s, t, u, v = x[0] * a[0], x[0] * b[0], x[0] * c[0], x[0] * d[0]
            for r in range(1, x.size):
                s += x[r] * a[r]
                t += x[r] * b[r]
                u += x[r] * c[r]
                v += x[r] * d[r]
            out[p], out[p + 1], out[p + 2], out[p + 3] = s, t, u, v
        for p in range(whole, end):
            y = right[indices[p]]
            s = x[0] * y[0]
            for r in range(1, x.size):
                s += x[r] * y[r]
            out[p] = s


def product(left: Array, right: Array, pattern: scipy.sparse.csr_array) -> Array:
    """Return (left rightᵀ)[i, j] for the stored entries (i, j) of the pattern, in its order.

    Parameters
    ----------
    left, right : (n, r), (l, r)
        C-contiguous, of one dtype.
    pattern : (n, l) CSR
        Only ``indptr`` and ``indices`` are read.

    Notes
    -----
    Cost: 2·r·nnz operations, no temporary. The sum may be reordered.

    Examples
    --------
    >>> product(np.eye(2), np.array([[3.0, 4.0]]), scipy.sparse.csr_array([[1.0], [1.0]]))
    array([3., 4.])
    """
    out = np.zeros(pattern.nnz, left.dtype)
    if left.shape[1]:
        _row_dots(left, right, pattern.indptr, pattern.indices, out)
    return out
