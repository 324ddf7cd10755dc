"""Leading singular triplets of a matrix that is read one stripe of rows at a time."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from approx import checks
from approx.checks import Array
from approx.estimate import exact, memory
from approx.kernels.elementary import exp_rows
from approx.low_rank.decomposition import Matrix

MARGIN = 8  # columns of a block beyond the rank
DEPTH = 30  # maximal number of blocks
TOLERANCE = 1e-3  # largest residual, relative to the error of the truncation
ACCURACY = 1e-7  # accuracy of values and error, relative to ‖D‖_F: squares keep half of the digits
LEAST_NORMAL = float(np.finfo(np.float64).tiny)
Stripes: TypeAlias = Iterable[tuple[slice, Matrix]]


@dataclass(frozen=True)
class Streamed:
    """The matrix exp(q·k − row_log) as stripes of rows, computed again in every pass, in float64.

    Parameters
    ----------
    Q, K : (n, d), (l, d)
    row_log : (n,)
        One number for all rows gives the kernel; log row sums give its row-softmax.

    Examples
    --------
    >>> [(rows.stop, D) for rows, D in Streamed(np.zeros((1, 1)), np.ones((2, 1)), np.zeros(1))]
    [(1, array([[1., 1.]]))]
    """

    Q: Array
    K: Array
    row_log: Array

    def __iter__(self) -> Iterator[tuple[slice, Matrix]]:
        """Yield (rows, D[rows])."""
        for rows in exact.stripes(len(self.Q), len(self.K)):
            D = np.asarray(exact.logits(self.Q[rows], self.K), np.float64)
            exp_rows(D, self.row_log[rows])
            yield rows, D


class Triplets(NamedTuple):
    """Approximate leading singular triplets of D, with their residuals and their error.

    Attributes
    ----------
    left, values, right : (n, r), (r,), (l, r)
        Columns are orthonormal, values descend, and D right = left diag(values).
    residual : (r,)
        min(ρ/σ, √ρ), where ρ = |DᵀD v − σ² v| for (σ, v) = (values_i, right_i). A singular value of
        D lies within this distance of σ.
    error : float
        ‖D − left diag(values) rightᵀ‖_F = √(‖D‖_F² − Σ values²).
    """

    left: Matrix
    values: Array
    right: Matrix
    residual: Array
    error: float


def block_krylov(D: Stripes, shape: tuple[int, int], rank: int) -> Triplets:
    """Return the leading singular triplets of D (n, l) from a block Krylov space.

    The space is spanned by X, DᵀD X, (DᵀD)² X, …, with X (l, rank + 8) Gaussian from a fixed seed.
    The triplets are the best in the whole space (Rayleigh–Ritz), not only in its last block.

    Parameters
    ----------
    D : re-iterable of (rows, D[rows])
        Stripes of rows, the same in each pass: a list of one stripe, or `Streamed`.
    shape, rank : (n, l), int

    Raises
    ------
    ValueError
        The rank is out of range.
    ResourceLimitError
        The space would not fit in memory.

    Notes
    -----
    The iteration is deterministic. It ends once (Σ residual²)^½ ≤ max(0.001·error, 1e-7·‖D‖_F), or
    with 30 blocks, or with the whole space. Values are never above the true ones, up to rounding.
    Since D right rightᵀ = left diag(values) rightᵀ, ``error`` is exact. After O(log(l)/√ε) blocks,
    with high probability, the error of this matrix is at most 1 + ε times the least of its rank, in
    Frobenius and in spectral norm, for any spectrum: the gap-free bound of [1]_. ``residual``
    certifies that each value is near a singular value, but not that no singular value was missed.
    Cost per block: one pass over D, 4·n·l·(rank + 8) operations and (n + 2l)·(rank + 8) values.

    References
    ----------
    .. [1] C. Musco, C. Musco, "Randomized block Krylov methods for stronger and faster approximate
       singular value decomposition", NIPS 2015, algorithm 2 and theorem 1.
    """
    n, l = shape
    rank = checks.integer("rank", rank, least=1, most=min(n, l))
    width = min(rank + MARGIN, n, l)
    fresh = np.linalg.qr(np.random.default_rng(0).standard_normal((l, width)))[0]
    X, Y, G = np.empty((l, 0)), np.empty((n, 0)), np.empty((l, 0))
    while True:
        held = 16 * (n + 2 * l) * (X.shape[1] + width)  # bytes of the space and of the next one
        memory.reserve(held, "the block Krylov space", "rank")
        y, g, total = _products(D, fresh, n)
        X, Y, G = np.hstack([X, fresh]), np.hstack([Y, y]), np.hstack([G, g])
        triplets = _ritz(X, Y, G, rank, total)
        rest = float(np.linalg.norm(triplets.residual))
        enough = max(TOLERANCE * triplets.error, ACCURACY * math.sqrt(total))
        room = l - X.shape[1]
        if rest <= enough or room == 0 or X.shape[1] >= DEPTH * width:
            return triplets
        fresh = np.linalg.qr(np.hstack([X, g[:, :room]]))[0][:, X.shape[1] :]


def _products(D: Stripes, X: Matrix, n: int) -> tuple[Matrix, Matrix, float]:
    """Return D X, Dᵀ D X and ‖D‖_F² in one pass over D."""
    Y, G, total = np.empty((n, X.shape[1])), np.zeros_like(X), 0.0
    for rows, stripe in D:
        Y[rows] = stripe @ X
        G += stripe.T @ Y[rows]
        total += float(np.vdot(stripe, stripe))
    return Y, G, total


def _ritz(X: Matrix, Y: Matrix, G: Matrix, rank: int, total: float) -> Triplets:
    """Return the best triplets with right vectors in the span of X, where Y = D X, G = Dᵀ Y."""
    U, s, Wt = np.linalg.svd(Y, full_matrices=False)
    left, values, W = U[:, :rank], s[:rank], Wt[:rank].T
    right = X @ W
    rest = np.linalg.norm(G @ W - right * values**2, axis=0)
    residual = np.minimum(np.sqrt(rest), rest / np.maximum(values, LEAST_NORMAL))
    error = math.sqrt(max(total - float(values @ values), 0.0))
    return Triplets(left, values, right, residual, error)
