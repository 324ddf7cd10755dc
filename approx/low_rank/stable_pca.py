"""Stable principal component pursuit: low-rank + sparse + a residual of bounded norm."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.estimate import masks
from approx.estimate.masks import Mask, MaskLike
from approx.kernels.jit import kernel
from approx.low_rank import decomposition
from approx.low_rank.decomposition import Decomposition, Matrix, filled
from approx.low_rank.exact_matrix import SPACES, DecompositionMethod
from approx.low_rank.subspace import BLOCK_START, rotate, shrink_singular_values, spectral_norm
from approx.method.fields import integer, one_of, real

RELAXATION = 1.6
CHECK_EVERY = 10
BALANCE = 2.0  # each check changes μ by up to this factor, towards equal residuals
LEAST_DIVISOR = 1e-300


@kernel
def _clipped_square(W: Matrix, kappa: float) -> float:
    """Return Σ min(|W|, κ)²; one sum per column is vectorised without reordering a sum."""
    n, l = W.shape
    squares = np.zeros(l)
    for i in range(n):
        for j in range(l):
            size = min(abs(W[i, j]), kappa)
            squares[j] += size * size
    total = 0.0
    for j in range(l):
        total += squares[j]
    return total


def _multiplier(W: Matrix, mu: float, lam: float, delta: float) -> tuple[Matrix, Matrix]:
    """Return Y, S with W = S + Z + Y/μ, from argmin λ‖S‖₁ + μ/2·‖W − S − Z‖² over ‖Z‖_F ≤ δ.

    S shrinks the entries by κ: R = W − S = clip(W, ±κ), Z = δ R/‖R‖, Y = μ(1 − δ/‖R‖) R. Either
    S = 0, or |Y| = λ where S ≠ 0. Then κ(1 − δ/‖clip(W, ±κ)‖) = λ/μ, whose left side rises with κ.
    """
    from scipy.optimize import brentq  # slow to import, so only when it is used

    top, threshold = float(np.abs(W).max()), lam / mu

    def excess(kappa: float) -> float:
        return kappa * (1.0 - delta / math.sqrt(_clipped_square(W, kappa))) - threshold

    kappa = top
    if top > threshold and excess(top) > 0:
        kappa = threshold if delta == 0 else float(brentq(excess, threshold, top, rtol=1e-14))
    R = np.clip(W, -kappa, kappa)
    size = float(np.linalg.norm(R))
    factor = mu * (1.0 - delta / size) if size > delta else 0.0
    return R * min(factor, lam / max(kappa, LEAST_DIVISOR)), W - R


def _pursue(
    D: Matrix, delta: float, lam: float, tolerance: float, max_iterations: int, gap_tolerance: float
) -> Decomposition:
    """Solve the pursuit for D (n, l), n ≥ l, ½ ≤ max |D| < 1; see `stable_pca`."""
    _n, l = D.shape
    unseen, seen, D = decomposition.hidden(D), decomposition.entries(D), filled(D)
    rng = np.random.default_rng(0)
    basis = rotate(D, rng.standard_normal((l, min(l, BLOCK_START))))[2]
    size = float(np.linalg.norm(D))
    delta, enough = delta * size, (delta + tolerance) * size
    mu = seen / (4.0 * float(np.abs(D).sum()))
    P, Y = D.copy(), np.zeros_like(D)  # P = D − S − Z
    bound, next_check = -math.inf, 0
    for iteration in range(1, max_iterations + 1):
        low = shrink_singular_values(P + Y / mu, 1.0 / mu, basis, rng)
        basis, L = low.basis, low.left @ low.right.T
        W = D - RELAXATION * L - (1.0 - RELAXATION) * P + Y / mu
        free = None if unseen is None else -W[unseen]  # the relaxed L, since D = Y = 0 if unseen
        if unseen is not None:
            W[unseen] = 0.0
        Y, S = _multiplier(W, mu, lam, delta)
        before, P = P, D - W + Y / mu
        apart = D - L - S
        if unseen is not None:
            P[unseen], apart[unseen] = free, 0.0
        rest = float(np.linalg.norm(apart))
        last = iteration == max_iterations
        if last or iteration >= next_check:
            objective = low.nuclear + lam * float(np.abs(S).sum())
            dual = float(np.vdot(D, Y)) - delta * float(np.linalg.norm(Y))
            bound = max(bound, dual / max(1.0, spectral_norm(Y)))
            gap = (objective - bound) / max(objective, LEAST_DIVISOR)
            if last or (rest <= enough and abs(gap) <= gap_tolerance):
                break
            next_check = iteration + CHECK_EVERY
            off, moved = float(np.linalg.norm(L - P)), float(np.linalg.norm(P - before))
            mu *= float(np.clip(math.sqrt(off / max(moved, LEAST_DIVISOR)), 1 / BALANCE, BALANCE))
    places = np.flatnonzero(S)
    sparse = decomposition.sparse_entries(S.ravel()[places], places, D.shape)
    return Decomposition(low.left, low.right, sparse, gap, objective, iteration)


def stable_pca(
    D: ArrayLike,
    delta: float,
    lam: float | None = None,
    *,
    mask: MaskLike = None,
    tolerance: float = 1e-7,
    max_iterations: int = 1000,
    gap_tolerance: float = 1e-4,
) -> Decomposition:
    """Return L + S near D by stable principal component pursuit, with a certificate of optimality.

    min ‖L‖_* + λ ‖S‖₁  subject to  ‖D − L − S‖_F ≤ δ ‖D‖_F,  by an augmented Lagrangian with
    D = L + S + Z: L shrinks the singular values of D − S − Z + Y/μ by 1/μ; (S, Z) is the exact
    joint minimiser; Y += μ(D − L − S − Z).

    Parameters
    ----------
    D : (n, l)
        A finite matrix; D = 0 gives zeros.
    delta : float
        δ ≥ 0, *relative* to ‖D‖_F: 0 gives the problem of `inexact_alm`, and 1 gives zeros.
    lam : float, optional
        λ > 0; by default 1/√(share·max(n, l)), with the share of the n·l entries that are seen.
    mask : None, "causal" or Mask
        The seen entries of D: both Frobenius norms and S are restricted to them.
    tolerance : float
        The amount by which ‖D − L − S‖_F / ‖D‖_F may exceed δ.
    max_iterations : int
        Maximal number of iterations. After these the last result is returned, with its gap.
    gap_tolerance : float
        Relative duality gap at which the iteration ends, > 0.

    Returns
    -------
    Decomposition
        ``objective`` = ‖L‖_* + λ‖S‖₁; ``gap`` = (objective − (⟨D, Y⟩ − δ‖D‖_F‖Y‖_F) / max(1, ‖Y‖₂))
        / objective, with |Y| ≤ λ and Y = 0 at unseen entries. The gap may be below 0 by about the
        tolerance.

    Raises
    ------
    ValueError
        D is not a finite matrix; delta < 0; lam, tolerance or gap_tolerance ≤ 0.

    Notes
    -----
    The result is deterministic. Unlike D = L + S, this model suits matrices that are low-rank +
    sparse up to a small dense residual, such as attention: rank and entries fall quickly as δ
    grows.

    There are two blocks, L and (S, Z), so the alternation converges for every fixed μ. Every ten
    iterations μ is moved towards equal residuals. (S, Z) minimises λ‖S‖₁ + μ/2·‖W − S − Z‖² over
    ‖Z‖_F ≤ δ; S shrinks W by the κ that solves one monotone equation. Under a mask, D − S − Z is
    free at unseen entries and follows L.
    Cost: per iteration as much as `inexact_alm`; tens of iterations. For n below about 1500, limit
    BLAS to one thread around the call (threadpoolctl).

    References
    ----------
    .. [1] Z. Zhou, X. Li, J. Wright, E. Candès, Y. Ma, "Stable principal component pursuit", ISIT
       2010, Eq. (3).
    .. [2] M. Tao, X. Yuan, "Recovering low-rank and sparse components of matrices from incomplete
       and noisy observations", SIAM J. Optim. 21, 2011, Eq. (1.5): the three-block form.

    Examples
    --------
    >>> D = np.ones((20, 20)); D[3, 4] = 9.0
    >>> parts = stable_pca(D, 0.01)
    >>> parts.rank, parts.sparse.nnz
    (1, 1)
    >>> rest = D - parts.low_rank - parts.sparse.toarray()
    >>> round(float(np.linalg.norm(rest) / np.linalg.norm(D)), 6)
    0.01
    """
    matrix = decomposition.dense_matrix(D)
    matrix = decomposition.with_nan(matrix, masks.as_mask(mask, *matrix.shape))
    lam = decomposition.balanced(matrix) if lam is None else checks.positive("lam", lam)
    if checks.number("delta", delta, "finite and >= 0") < 0:
        raise ValueError(f"delta must be finite and >= 0, got {delta!r}")
    checks.positive("tolerance", tolerance)
    checks.positive("gap_tolerance", gap_tolerance)
    max_iterations = checks.integer("max_iterations", max_iterations, least=1)
    if delta >= 1:
        return decomposition.zeros(matrix.shape, 0.0).measured(matrix)
    return decomposition.at_unit_scale(
        matrix, lambda D: _pursue(D, delta, lam, tolerance, max_iterations, gap_tolerance)
    )


@dataclass(frozen=True)
class StablePCA(DecompositionMethod):
    """Stable principal component pursuit: low-rank + sparse up to a small residual.

    estimate = L + S, argmin ‖L‖_* + λ‖S‖₁ subject to ‖D − L − S‖_F ≤ δ‖D‖_F, for D = exp(Q Kᵀ) or
    its row-softmax.

    Parameters
    ----------
    delta : float
        δ ≥ 0, the allowed relative Frobenius error, which the estimate reaches.
    lam : float, optional
        λ > 0; by default 1/√(share·max(n, l)), with the share of the n·l entries that are seen.
    space : {"kernel", "attention"}
        The matrix that is decomposed.
    max_iterations : int
        Maximal number of iterations, whether they converge or not.

    Notes
    -----
    The estimate is deterministic and biased, with error δ. ‖L‖_* + λ‖S‖₁, a convex measure of rank
    and entries, is the least for this error. Rank and entries follow from D, so a budget cannot
    fill the method. `stable_pca` also returns the duality gap.
    Cost: dozens of singular value thresholdings of the dense matrix.

    References
    ----------
    .. [1] Z. Zhou, X. Li, J. Wright, E. Candès, Y. Ma, "Stable principal component pursuit", ISIT
       2010, Eq. (3).

    Examples
    --------
    >>> StablePCA(delta=0.5).approximate([[0.0], [0.0]], [[1.0], [1.0]]).to_dense().round(3)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """

    name = "stable_pca"
    label = "stable PCA"

    delta: float = real(0.1, zero=True)
    lam: float | None = real()
    space: str = one_of("kernel", SPACES)
    max_iterations: int = integer(1000)

    def decompose(self, D: Matrix, mask: Mask) -> Decomposition:
        return stable_pca(D, self.delta, self.lam, mask=mask, max_iterations=self.max_iterations)
