"""Leading singular triplets from warm-started block subspaces, Gram matrices and LAPACK.

A solver that repeatedly needs the leading singular vectors of a slowly changing matrix T keeps the
last ones: one step of subspace iteration from them costs O(nlp), where a full SVD costs O(nl²), and
is as good once the solver is near its end.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from scipy.linalg import eigh, eigh_tridiagonal, qr, svd, svdvals

from approx.low_rank.decomposition import Matrix

# Eigenvalues of TᵀT have errors of eps·s₁². Singular values below this share of s₁, and squared
# norms of a remainder below its square, have too few digits left, so that LAPACK is used.
GRAM_SHARE = 1e-7
GRAM_REMAINDER = 1e-6
LANCZOS_SIZE, LANCZOS_STEPS, LANCZOS_CHECK = 128, 100, 5


def orthonormal(A: Matrix) -> tuple[Matrix, Matrix]:
    """Return the thin QR factors of A (n, p); an A in Fortran order is overwritten."""
    factors = qr(A, mode="economic", overwrite_a=True, check_finite=False)
    return cast(tuple[Matrix, Matrix], factors)


def rotate(T: Matrix, basis: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return Ritz triplets of T (n, l) after one step of subspace iteration from basis (l, p).

    The step takes Q = qr(T basis), then the SVD of QᵀT through the thin QR of TᵀQ. The result is
    U (n, p), s (p,) descending and V (l, p) with U diag(s) Vᵀ = Q QᵀT. Truncated to r ≤ p columns
    this is not farther from T than any matrix of rank r whose rows lie in the span of the basis,
    so iterations built on it never increase ‖T − L‖_F.

    Cost: O(nlp) flops.

    References
    ----------
    .. [1] N. Halko, P.-G. Martinsson, J. Tropp, "Finding structure with randomness", SIAM Review
       53, 2011, algorithms 4.4 and 5.1.

    Examples
    --------
    >>> U, s, V = rotate(np.diag([3.0, 2.0]), np.eye(2))
    >>> s.round(12)
    array([3., 2.])
    """
    # The product of a wide and a square matrix is faster, and LAPACK needs its transpose.
    Q, _ = orthonormal((basis.T @ T.T).T)
    V, R = orthonormal((Q.T @ T).T)
    u, s, wt = svd(R.T, check_finite=False)
    return Q @ u, s, V @ wt.T


def leading(T: Matrix, count: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return the `count` leading singular triplets U (n, c), s (c,), V (l, c) of T (n, l).

    They come from eigenvectors of the smaller Gram matrix, which is 3–5 times faster than the SVD,
    or from LAPACK's SVD if the rounding of the Gram matrix would show in ‖T − U diag(s) Vᵀ‖_F. Both
    are accurate.

    Examples
    --------
    >>> leading(np.diag([1.0, 3.0, 2.0]), 2)[1].round(12)
    array([3., 2.])
    """
    if T.shape[0] < T.shape[1]:
        V, s, U = leading(T.T, count)
        return U, s, V
    l = T.shape[1]
    if count == 0:
        return T[:, :0], np.zeros(0), np.zeros((l, 0))
    gram = T.T @ T
    w, V = eigh(gram, subset_by_index=[l - count, l - 1], check_finite=False)
    total = float(np.trace(gram))
    if total - float(w.sum()) > GRAM_REMAINDER * total:
        return rotate(T, V[:, ::-1])
    U, s, Vt = svd(T, full_matrices=False, check_finite=False)
    return U[:, :count], s[:count], Vt[:count].T


def tail(T: Matrix, count: int) -> float:
    """Return √Σ_{i > count} σ_i², the Frobenius error of the truncated SVD of T (n, l).

    It is what the leading eigenvalues of the smaller Gram matrix leave of its trace, without any
    eigenvector, or comes from LAPACK's singular values if the trace would hide it: a few
    eps/GRAM_REMAINDER of it, some 10⁻⁹, are lost at most.

    Examples
    --------
    >>> tail(np.diag([1.0, 3.0, 2.0, 2.0]), 1)
    3.0
    """
    T = T if T.shape[0] >= T.shape[1] else T.T
    l = T.shape[1]
    if 0 < count < l:
        gram = T.T @ T
        w = eigh(gram, eigvals_only=True, subset_by_index=[l - count, l - 1], check_finite=False)
        total = float(np.trace(gram))
        if (rest := total - float(w.sum())) > GRAM_REMAINDER * total:
            return math.sqrt(rest)
    return float(np.linalg.norm(svdvals(T, check_finite=False)[count:]))


def spectral_norm(A: Matrix, tolerance: float = 1e-5) -> float:
    """Return ‖A‖₂, by LAPACK for small matrices, else by Lanczos on AᵀA to a relative residual.

    Cost: two products with A per step, and tens of steps, however flat the top of the spectrum is.

    Examples
    --------
    >>> round(spectral_norm(np.array([[3.0, 0.0], [4.0, 0.0]])), 12)
    5.0
    """
    if min(A.shape) < LANCZOS_SIZE:
        return float(np.linalg.norm(A, 2))
    x = np.random.default_rng(0).standard_normal(A.shape[1])
    X = np.empty((LANCZOS_STEPS + 1, A.shape[1]))
    X[0] = x / np.linalg.norm(x)
    diagonal, beside = np.zeros(LANCZOS_STEPS), np.zeros(LANCZOS_STEPS)
    for step in range(LANCZOS_STEPS):
        x = A.T @ (A @ X[step])
        diagonal[step] = X[step] @ x
        for _ in range(2):  # twice, as after one pass rounding would repeat singular values
            x -= X[: step + 1].T @ (X[: step + 1] @ x)
        beside[step] = np.linalg.norm(x)
        if step % LANCZOS_CHECK == LANCZOS_CHECK - 1 or beside[step] == 0:
            w, v = eigh_tridiagonal(
                diagonal[: step + 1], beside[:step], select="i", select_range=(step, step)
            )
            if beside[step] * abs(v[-1, 0]) <= tolerance * w[0]:
                return math.sqrt(w[0])
        X[step + 1] = x / beside[step]
    return float(np.linalg.norm(A, 2))
