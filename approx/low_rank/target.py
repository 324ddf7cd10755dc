"""The matrix that an oracle decomposes: the kernel matrix itself, or its row-softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from approx import exact, memory
from approx.approximation import Approximation
from approx.checks import Array
from approx.low_rank.krylov import Streamed, Stripes
from approx.parts import Addition, Factors

SPACES = ("kernel", "attention")


def matrix(Q: Array, K: Array, space: str) -> tuple[Array, float]:
    """Return D (n, l) in float64 and top: exp(Q Kᵀ) = e^top D, or softmax = D with top = 0.

    Raises
    ------
    ResourceLimitError
        D and the work on it would not fit into memory.
    """
    n, l = len(Q), len(K)
    memory.reserve(8 * n * l * 6, f"decomposing a dense {n}×{l} matrix", "n or l")
    return exact.scaled_kernel(Q, K) if space == "kernel" else (exact.softmax(Q, K), 0.0)


def stripes(Q: Array, K: Array, space: str) -> tuple[Stripes, float]:
    """Return D and top as `matrix` does, with D as one stripe, or streamed if it would not fit."""
    try:
        D, top = matrix(Q, K, space)
    except memory.ResourceLimitError:
        if space == "attention":
            return Streamed(Q, K, exact.log_row_sums(Q, K)), 0.0
        tops = [float((Q[rows] @ K.T).max()) for rows in exact.stripes(len(Q), len(K))]
        return Streamed(Q, K, np.full(len(Q), max(tops))), max(tops)
    return [(slice(0, len(Q)), D)], top


def approximation(
    left: Array,
    right: Array,
    sparse: scipy.sparse.csr_array | None,
    top: float,
    dtype: np.dtype[Any],
    space: str,
) -> Approximation:
    """Return e^top (left rightᵀ + sparse) as an approximation in a dtype."""
    row_log = np.full(len(left), top, dtype)
    low = Factors(
        np.ascontiguousarray(left, dtype=dtype), np.ascontiguousarray(right, dtype=dtype), row_log
    )
    correction = None if sparse is None else Addition(sparse.astype(dtype), top)
    return Approximation(low, correction, space=space)
