"""A product of two factors at the entries of a sparse pattern, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from approx._jit import summing_kernel
from approx.checks import Array


@summing_kernel
def _row_dots(left: Any, right: Any, indptr: Any, indices: Any, out: Any) -> None:
    for i in range(left.shape[0]):
        x = left[i]
        for p in range(indptr[i], indptr[i + 1]):
            y = right[indices[p]]
            total = x[0] * y[0]
            for c in range(1, x.size):
                total += x[c] * y[c]
            out[p] = total


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
