"""Leading singular triplets from warm-started block subspaces, Gram matrices and LAPACK.

A solver that repeatedly needs the leading singular vectors of a slowly changing matrix T keeps the
last p of them. One step of subspace iteration from these costs O(nlp), a full SVD O(nl²). Near the
end of the solver the step is as good as the SVD.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
from scipy.linalg import eigh, eigh_tridiagonal, qr, svd, svdvals

from approx.low_rank.decomposition import Matrix

# Eigenvalues of TᵀT have errors of eps·s₁². Singular values below GRAM_SHARE of s₁, and squared
# norms of a remainder below GRAM_REMAINDER, have too few correct digits, so LAPACK is used.
GRAM_SHARE = 1e-7
GRAM_REMAINDER = 1e-6
LANCZOS_SIZE, LANCZOS_STEPS, LANCZOS_CHECK = 128, 100, 5
# From size BLOCK_SIZE on, a block Lanczos space is tried before a full eigendecomposition. It has
# at most BLOCK_SHARE of the columns and room for at least BLOCKS blocks.
BLOCK_SIZE, BLOCK_SHARE, BLOCKS, BLOCK_CHECK = 1536, 0.22, 16, 2
LEAST_WIDTH, STRIPE = 16, 128  # columns of a block; rows of T whose products with it stay in cache
OF_TAIL, OF_TRIPLETS = 1e-9, 1e-13  # the largest share of the squared remainder a space may miss
# Shrinkage: the widest block, as a share of min(n, l), and its columns at first and to spare
SHRUNK_SHARE, BLOCK_START, BLOCK_MARGIN = 0.3, 10, 5
LEAST_NORMAL = float(np.finfo(np.float64).tiny)


def orthonormal(A: Matrix) -> tuple[Matrix, Matrix]:
    """Return the thin QR factors of A (n, p); overwrite A if it is in Fortran order."""
    factors = qr(A, mode="economic", overwrite_a=True, check_finite=False)
    return cast(tuple[Matrix, Matrix], factors)


def rotate(T: Matrix, basis: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return Ritz triplets of T (n, l) after one step of subspace iteration from basis (l, p).

    The step computes Q = qr(T basis), then the SVD of QᵀT through the thin QR of TᵀQ. The result is
    U (n, p), s (p,) descending and V (l, p) with U diag(s) Vᵀ = Q QᵀT. Let L be its truncation to
    r ≤ p columns. ‖T − L‖_F is at most that of any matrix of rank r with rows in the span of the
    basis. So iterations of this step never increase ‖T − L‖_F.

    Cost: O(nlp) flops.

    References
    ----------
    .. [1] N. Halko, P.-G. Martinsson, J. Tropp, "Finding structure with randomness", SIAM Review
       53, 2011, algorithms 4.4 and 5.1.
    """
    # The product of a wide and a square matrix is faster, and LAPACK needs the transpose.
    Q, _ = orthonormal((basis.T @ T.T).T)
    V, R = orthonormal((Q.T @ T).T)
    u, s, wt = svd(R.T, check_finite=False)
    return Q @ u, s, V @ wt.T


def leading(T: Matrix, count: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return the `count` leading singular triplets U (n, c), s (c,), V (l, c) of T (n, l).

    They come from eigenvectors of the smaller Gram matrix, which is 3–5 times faster than the SVD.
    If the rounding of the Gram matrix would show in ‖T − U diag(s) Vᵀ‖_F, they come from LAPACK's
    SVD. Both are accurate. From min(n, l) = 1536 on, a small number of triplets comes from a block
    Lanczos space, if it converges soon. Then the square of this norm is at most 1 + 10⁻¹³ times the
    least one, by the residuals and with high probability, and values are accurate to rounding.
    """
    if T.shape[0] < T.shape[1]:
        V, s, U = leading(T.T, count)
        return U, s, V
    l = T.shape[1]
    if count == 0:
        return T[:, :0], np.zeros(0), np.zeros((l, 0))
    if (found := _block_lanczos(T, count, OF_TRIPLETS)) is not None:
        rest, total, V = found
    else:
        gram = T.T @ T
        w, V = eigh(gram, subset_by_index=[l - count, l - 1], check_finite=False)
        total = float(np.trace(gram))
        rest, V = total - float(w.sum()), V[:, ::-1]
    if rest > GRAM_REMAINDER * total:
        return rotate(T, V)
    U, s, Vt = svd(T, full_matrices=False, check_finite=False)
    return U[:, :count], s[:count], Vt[:count].T


def tail(T: Matrix, count: int) -> float:
    """Return √Σ_{i > count} σ_i², the Frobenius error of the truncated SVD of T (n, l).

    Its square is the trace of the smaller Gram matrix minus the leading eigenvalues; no eigenvector
    is computed. If the trace would hide the tail, it comes from LAPACK's singular values. So the
    relative error is at most a few eps/GRAM_REMAINDER, about 10⁻⁹. From min(n, l) = 1536 on, a
    block Lanczos space gives the leading eigenvalues if it converges soon. The tail is then never
    below the true one, and at most 5·10⁻¹⁰ above it, relative, by the residuals and with high
    probability.
    """
    T = T if T.shape[0] >= T.shape[1] else T.T
    l = T.shape[1]
    if 0 < count < l:
        if (found := _block_lanczos(T, count, OF_TAIL)) is not None:
            rest, total, _ = found
        else:
            gram = T.T @ T
            w = eigh(
                gram, eigvals_only=True, subset_by_index=[l - count, l - 1], check_finite=False
            )
            total = float(np.trace(gram))
            rest = total - float(w.sum())
        if rest > GRAM_REMAINDER * total:
            return math.sqrt(rest)
    return float(np.linalg.norm(svdvals(T, check_finite=False)[count:]))


def _block_lanczos(T: Matrix, count: int, tolerance: float) -> tuple[float, float, Matrix] | None:
    """Return ‖T‖_F² − Σθ, ‖T‖_F² and V (l, count), Ritz pairs of TᵀT; None if too slow.

    The space is spanned by X, TᵀT X, (TᵀT)² X, …, with X Gaussian from a fixed seed. X is wider
    than `count`, so that the space contains enough copies of equal eigenvalues. Let θ₁ ≥ … be the
    Ritz values and ρ the residuals |TᵀT v − θ v|. Σθ is at most the sum of the eigenvalues λ. Let μ
    be the largest eigenvalue on the complement of the first c. For any c ≥ count with θ_c > μ,

        Σ_{i ≤ count} (λ_i − θ_i) ≤ Σ_{i ≤ c} ρ_i²/(θ_c − μ),

    since TᵀT ≤ diag(Θ + Rᵀ(θ_c − B)⁻¹R, θ_c), with R the residuals and B the part of TᵀT on the
    complement. The iteration ends once this bound is below the tolerance times ‖T‖_F² − Σθ. It uses
    θ_{c+1} + ρ_{c+1} for μ, which holds if X misses no direction: with high probability [1]_.

    Cost: 4·n·l operations a column, half of them if T is triangular, and 8·l·k² for k columns.
    On causal attention of 2048 keys, 16 eigenvalues take 70 to 170 ms and all of them 550.

    References
    ----------
    .. [1] C. Musco, C. Musco, "Randomized block Krylov methods for stronger and faster approximate
       singular value decomposition", NIPS 2015, theorem 1.
    """
    l = T.shape[1]
    width, most = max(count + 1, LEAST_WIDTH), int(BLOCK_SHARE * l)
    if l < BLOCK_SIZE or BLOCKS * width > most:
        return None
    if not 0 < (total := float(np.vdot(T, T))) < math.inf:
        return None
    times_gram = _times_gram(T)
    X, H = np.empty((l, most + width), order="F"), np.zeros((most, most))
    X[:, :width], _ = orthonormal(np.random.default_rng(0).standard_normal((width, l)).T)
    for step, k in enumerate(range(width, most + 1, width)):
        new = slice(k - width, k)
        G = times_gram(X[:, new])
        H[:k, new] = X[:, :k].T @ G
        H[new, :k] = H[:k, new].T
        G -= X[:, :k] @ H[:k, new]
        G -= X[:, :k] @ (X[:, :k].T @ G)
        Q, R = orthonormal(G)
        Q -= X[:, :k] @ (X[:, :k].T @ Q)  # for columns of G that were only rounding
        X[:, k : k + width], again = orthonormal(Q)
        if step % BLOCK_CHECK != BLOCK_CHECK - 1:
            continue
        shown = min(k, 2 * width)
        theta, S = eigh(H[:k, :k], subset_by_index=[k - shown, k - 1], check_finite=False)
        theta, S = theta[::-1] / total, S[:, ::-1]
        residual = np.linalg.norm(again @ (R / total) @ S[new], axis=0)
        rest = 1.0 - float(theta[:count].sum())
        gaps = np.maximum(theta[:-1] - theta[1:] - residual[1:], LEAST_NORMAL)
        with np.errstate(over="ignore"):
            missed = np.cumsum(residual[:-1] ** 2) / gaps
        if rest <= GRAM_REMAINDER or missed[count - 1 :].min() <= tolerance * rest:
            return rest * total, total, X[:, :k] @ S[:, :count]
    return None


def _times_gram(T: Matrix) -> Callable[[Matrix], Matrix]:
    """Return X ↦ TᵀT X, by stripes of rows, cut to their first to last nonzero column."""
    stripes = []
    for i in range(0, len(T), STRIPE):
        used = np.flatnonzero(T[i : i + STRIPE].any(axis=0))
        if len(used):
            columns = slice(used[0], used[-1] + 1)
            stripes.append((columns, T[i : i + STRIPE, columns]))

    def times(X: Matrix) -> Matrix:
        G = np.zeros(X.shape)
        for columns, stripe in stripes:
            G[columns] += stripe.T @ (stripe @ X[columns])
        return np.asfortranarray(G)

    return times


def spectral_norm(A: Matrix, tolerance: float = 1e-5) -> float:
    """Return ‖A‖₂, by LAPACK for small matrices, else by Lanczos on AᵀA to a relative residual.

    Cost: two products with A per step, and tens of steps, even for a spectrum with a flat top.
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
        for _ in range(2):  # after one pass only, rounding would repeat singular values
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
    while basis is not None and basis.shape[1] <= SHRUNK_SHARE * T.shape[1]:
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
