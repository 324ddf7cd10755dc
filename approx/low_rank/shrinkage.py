"""Shrinkage of singular values, the proximal map of the nuclear norm."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from approx.low_rank.decomposition import Matrix
from approx.low_rank.subspace import GRAM_SHARE, rotate

BLOCK_SHARE = 0.3  # of min(n, l): wider blocks cost more than the Gram matrix
BLOCK_START, BLOCK_MARGIN = 10, 5


class Shrunk(NamedTuple):
    """A matrix left rightᵀ, its nuclear norm, and a basis from which the next shrinkage starts."""

    left: Matrix
    right: Matrix
    nuclear: float
    basis: Matrix


def shrink_singular_values(
    T: Matrix, threshold: float, basis: Matrix | None, rng: np.random.Generator
) -> Shrunk:
    """Return U max(s − t, 0) Vᵀ for T (n, l) = U diag(s) Vᵀ, n ≥ l, as factors.

    If there is a `basis`, the result comes from a block subspace that starts from it. The block is
    doubled until it has a singular value ≤ t. Without a basis, or if the block gets too wide, the
    result comes from the Gram matrix, or from LAPACK if t/s₁ is beyond a Gram matrix's accuracy.
    One step from a basis misses values if many are near t, as in a dual certificate.
    """
    while basis is not None and basis.shape[1] <= BLOCK_SHARE * T.shape[1]:
        U, s, V = rotate(T, basis)
        if s[-1] <= threshold:
            return _cut(U, s, V, threshold)
        basis = np.hstack([V, rng.standard_normal(V.shape)])
    w, V = eigh(T.T @ T, driver="evd", overwrite_a=True, check_finite=False)
    s, V = np.sqrt(np.maximum(w[::-1], 0.0)), V[:, ::-1]
    if threshold < GRAM_SHARE * s[0]:
        U, s, Vt = np.linalg.svd(T, full_matrices=False)
        return _cut(U, s, Vt.T, threshold)
    r = int(np.count_nonzero(s > threshold))
    return _cut(T @ (V[:, :r] / s[:r]), s, V, threshold)


def _cut(U: Matrix, s: Matrix, V: Matrix, threshold: float) -> Shrunk:
    """Return U max(s − t, 0) Vᵀ as factors; the basis has a margin for values that may rise."""
    r = int(np.count_nonzero(s > threshold))
    kept = s[:r] - threshold
    return Shrunk(U[:, :r] * kept, V[:, :r], float(kept.sum()), V[:, : r + BLOCK_MARGIN])
