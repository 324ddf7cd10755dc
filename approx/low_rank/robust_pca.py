"""Robust PCA: D = low-rank + sparse, by principal component pursuit or alternating projections."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from approx import checks
from approx.estimate import masks
from approx.estimate.masks import Mask, MaskLike
from approx.kernels.jit import kernel
from approx.low_rank import decomposition, subspace
from approx.low_rank.decomposition import Decomposition, Matrix, filled, sparse_entries, zeros
from approx.low_rank.exact_matrix import SPACES, DecompositionMethod
from approx.low_rank.subspace import Shrunk, rotate, shrink_singular_values, spectral_norm
from approx.low_rank.thresholding import large_entries, separate
from approx.method.fields import integer, one_of, real
from approx.method.tags import SPECTRAL

CAREFUL_RHO, RELAXATION = 1.04, 1.6
PROVING, PROVING_MU = 30, 8.0  # iterations that only seek a bound, and their μ in units of ‖Y‖/‖D‖
NEARLY = 1e-5  # of ‖D‖_F: below this residual the fast schedule is not given up
CHECK_EVERY = 5
WARM, DECAY = 3, 0.7
LEAST_DIVISOR = 1e-300


@kernel
def _augmented_step(D: Matrix, L: Matrix, state: Matrix, weights: Matrix, lam: float) -> float:
    """Update (Y, T) = state by one pass of the augmented Lagrangian; return ‖D − L − S‖_F².

    On entry T = D − S₋ + Y/μ; L is T with shrunk singular values. With relaxation α and
    L_α = α L + (1 − α)(D − S₋):  W = μ(D − L_α) + Y;  Y ← clip(W, ±λ);  S = (W − Y)/μ;
    T ← D − S + Y/μ₊.  weights = (μ, 1/μ, 1/μ₊, α).

    At unseen entries, where D is NaN, λ = 0: Y ← 0, T ← L_α, and the residual does not count.
    """
    n, l = D.shape
    inverse, inverse_next = weights[1], weights[2]
    a, b, c = weights[0] * weights[3], weights[0] * (1.0 - weights[3]), 2.0 - weights[3]
    squares = np.zeros(l)  # one sum per column, vectorised without reordering a sum
    for i in range(n):
        for j in range(l):
            d = D[i, j]
            rest = d - L[i, j]
            W = a * rest + b * (d - state[1, i, j]) + c * state[0, i, j]
            Y = max(min(W, lam), -lam)
            S = (W - Y) * inverse
            free = d != d
            relaxed = weights[3] * L[i, j] + (1.0 - weights[3]) * state[1, i, j]
            state[0, i, j] = 0.0 if free else Y
            state[1, i, j] = relaxed if free else d - S + Y * inverse_next
            squares[j] += 0.0 if free else (rest - S) * (rest - S)
    total = 0.0
    for j in range(l):
        total += squares[j]
    return total


@dataclass(frozen=True)
class _Penalty:
    """μ, its growth ρ up to a limit, the relaxation α, and the number of iterations left."""

    mu: float
    rho: float
    limit: float
    alpha: float
    slow: bool = True
    left: float = math.inf

    @property
    def proves(self) -> bool:
        """Whether the iterations only seek a dual bound, and no better L and S."""
        return self.left < math.inf

    def grown(self) -> _Penalty:
        """Return the penalty of the next iteration."""
        return replace(self, mu=min(self.rho * self.mu, self.limit), left=self.left - 1)

    def doubted(self, D: Matrix, Y: Matrix) -> _Penalty:
        """Return the penalty for the next iterations if the gap does not confirm the result."""
        if not self.slow:  # a constant μ, of the norms of Y and D, at which Y soon gives a bound
            mu = PROVING_MU * float(np.linalg.norm(Y) / np.linalg.norm(filled(D)))
            return _Penalty(mu, 1.0, math.inf, RELAXATION, left=PROVING)
        return self if self.proves else _careful(D, math.sqrt(self.rho))


def _fast(top: float, rho: float) -> _Penalty:
    """Return the schedule of Lin, Chen and Ma, which is exact if D is exactly recoverable."""
    return _Penalty(1.25 / top, rho, 1e7 * 1.25 / top, 1.0, slow=False)


def _careful(D: Matrix, rho: float = CAREFUL_RHO) -> _Penalty:
    """Return a slow, over-relaxed schedule, whose first μ is a quarter of that of Candès et al."""
    mu = decomposition.entries(D) / (16 * float(np.abs(filled(D)).sum()))
    return _Penalty(mu, rho, math.inf, RELAXATION)


def _primal(D: Matrix, low: Shrunk, state: Matrix, mu: float, lam: float) -> Decomposition:
    """Return L, the S of T = D − S + Y/μ, nonzero only where |Y| = λ, and their objective."""
    Y, T = state.reshape(2, -1)
    places = np.flatnonzero(np.abs(Y) == lam)
    values = D.ravel()[places] - T[places] + Y[places] / mu
    objective = low.nuclear + lam * float(np.abs(values).sum())
    sparse = sparse_entries(values, places, D.shape)
    return Decomposition(low.left, low.right, sparse, math.nan, objective, 0)


def _pursue(
    D: Matrix, lam: float, rho: float, tolerance: float, max_iterations: int, gap_tolerance: float
) -> Decomposition:
    """Solve the pursuit for D (n, l), n ≥ l, ½ ≤ max |D| < 1; see `inexact_alm`."""
    n, l = D.shape
    known = filled(D)
    rng = np.random.default_rng(0)
    _, s, start = rotate(known, rng.standard_normal((l, min(l, subspace.BLOCK_START))))
    basis: Matrix | None = start
    penalty = _fast(float(s[0]), rho)
    state, L = np.empty((2, n, l)), np.empty((n, l))
    state[0] = known / max(float(s[0]), float(np.abs(known).max()) / lam)
    state[1] = known + state[0] / penalty.mu
    size = float(np.linalg.norm(known))
    enough = tolerance * size
    wide = subspace.SHRUNK_SHARE * l if gap_tolerance < math.inf else l
    primal: Decomposition | None = None
    bound, gap, next_check = -math.inf, math.inf, 0
    for iteration in range(1, max_iterations + 1):
        low = shrink_singular_values(state[1], 1.0 / penalty.mu, basis, rng)
        basis = None if penalty.proves else low.basis
        np.matmul(low.left, low.right.T, out=L)
        following = penalty.grown()
        weights = np.array([penalty.mu, 1.0 / penalty.mu, 1.0 / following.mu, penalty.alpha])
        residual = math.sqrt(_augmented_step(D, L, state, weights, lam))
        converged, nearly = residual <= enough, residual <= NEARLY * size
        penalty, mu = following, following.mu
        last = iteration == max_iterations
        if last or ((converged or primal) and iteration >= next_check):
            if converged or primal is None:
                found = _primal(D, low, state, mu, lam)
                primal = found if primal is None else min(primal, found, key=lambda x: x.objective)
            # ⟨D, Y⟩/max(1, ‖Y‖₂): |Y| ≤ λ holds exactly, and Y = 0 at unseen entries
            dual = float(np.vdot(known, state[0])) / max(1.0, spectral_norm(state[0]))
            bound = max(bound, dual)
            gap = (primal.objective - bound) / max(primal.objective, LEAST_DIVISOR)
            if last or abs(gap) <= gap_tolerance:
                break
            next_check = iteration + CHECK_EVERY
            penalty = penalty.doubted(D, state[0]) if converged else penalty
        elif not (penalty.slow or nearly) and low.left.shape[1] > wide:
            penalty = _careful(D)
        if penalty.left <= 0:
            penalty = _careful(D)
        if penalty.mu != mu:
            state[1] += state[0] * (1.0 / penalty.mu - 1.0 / mu)
    assert primal is not None
    return replace(primal, gap=gap, iterations=iteration)


def inexact_alm(
    D: ArrayLike,
    lam: float | None = None,
    *,
    mask: MaskLike = None,
    rho: float = 1.5,
    tolerance: float = 1e-7,
    max_iterations: int = 1000,
    gap_tolerance: float = 1e-4,
) -> Decomposition:
    """Return L + S = D by principal component pursuit, with a certificate of optimality.

    min ‖L‖_* + λ ‖S‖₁  subject to  L + S = D,  by an inexact augmented Lagrangian: L shrinks the
    singular values of D − S + Y/μ by 1/μ, S the entries of D − L + Y/μ by λ/μ; Y += μ(D − L − S),
    μ ← ρμ.

    Parameters
    ----------
    D : (n, l)
        A finite matrix; D = 0 gives zeros.
    lam : float, optional
        λ > 0; by default 1/√(share·max(n, l)), with the share of the n·l entries that are seen.
    mask : None, "causal" or Mask
        The seen entries of D: L + S = D must hold on these, and S has no other entries.
    rho : float
        Growth of μ per iteration, ≥ 1. A large ρ is fast, and exact if D is low-rank + sparse.
    tolerance : float
        Tolerance of ‖D − L − S‖_F / ‖D‖_F.
    max_iterations : int
        Maximal number of iterations. After these the best result is returned, with its gap.
    gap_tolerance : float
        Relative duality gap above which the fast schedule is not trusted; inf trusts it always.

    Returns
    -------
    Decomposition
        ``residual`` = ‖D − L − S‖_F / ‖D‖_F, which is above the tolerance if the iterations ended
        first; ``objective`` = ‖L‖_* + λ‖S‖₁;
        ``gap`` = (objective − ⟨D, Y⟩ / max(1, ‖Y‖₂)) / objective. The gap may be below 0 by about
        the tolerance, since L + S = D holds to the tolerance. Y is 0 at unseen entries.

    Raises
    ------
    ValueError
        D is not a finite matrix, lam or tolerance is ≤ 0, or rho < 1.

    Notes
    -----
    The result is deterministic (random starts come from a fixed seed). It is equivariant under
    scaling by powers of two to the last bit, and under any scaling, permutation and transposition
    to the tolerance.

    A small ‖D − L − S‖ does not prove optimality: if μ grows fast, the iteration can stop anywhere.
    Only if D is low-rank + sparse does the fast schedule end with a small gap. If the gap is too
    large, L and S may still be nearly optimal while only Y is far from a bound, as for attention
    matrices dominated by a few entries. So 30 iterations at μ = 8‖Y‖_F/‖D‖_F, with exact shrinkage,
    seek a bound for this L and S. If they find none, or if the rank of the fast schedule exceeds
    0.3·min(n, l) while the residual is above 10⁻⁵, a slow over-relaxed schedule goes on from its Y.
    If the gap is still too large at the end, μ falls again and grows more slowly. The best of the
    results is returned.

    Under a mask, L is free at unseen entries: λ and Y are 0 there. The default λ is then that of
    theorem 1.2 of [1]_, for a share of the entries.

    Cost: one singular value thresholding and one pass over D, L, Y per iteration, O(nl·rank) with
    block subspaces up to rank 0.3·min(n, l), O(nl·min(n, l)) above. For n below about 1500, limit
    BLAS to one thread around the call (threadpoolctl); two threads on a busy machine are slower.

    References
    ----------
    .. [1] E. Candès, X. Li, Y. Ma, J. Wright, "Robust principal component analysis?", JACM 58,
       2011, Eq. (1.1), theorem 1.2 and algorithm 1.
    .. [2] Z. Lin, M. Chen, Y. Ma, "The augmented Lagrange multiplier method", arXiv:1009.5055,
       algorithm 5.

    Examples
    --------
    >>> D = np.ones((20, 20)); D[3, 4] = 9.0
    >>> parts = inexact_alm(D)
    >>> parts.rank, parts.sparse.nnz, round(float(parts.sparse[3, 4]), 5)
    (1, 1, 8.0)
    """
    matrix = decomposition.dense_matrix(D)
    matrix = decomposition.with_nan(matrix, masks.as_mask(mask, *matrix.shape))
    lam = decomposition.balanced(matrix) if lam is None else checks.positive("lam", lam)
    tolerance = checks.positive("tolerance", tolerance)
    max_iterations = checks.integer("max_iterations", max_iterations, least=1)
    rho = checks.number("rho", rho, "finite and >= 1")
    if rho < 1:
        raise ValueError(f"rho must be finite and >= 1, got {rho!r}")
    if not (isinstance(gap_tolerance, float) and gap_tolerance == math.inf):
        gap_tolerance = checks.number("gap_tolerance", gap_tolerance, "> 0")
        if gap_tolerance <= 0:
            raise ValueError(f"gap_tolerance must be > 0, got {gap_tolerance!r}")
    return decomposition.at_unit_scale(
        matrix, lambda D: _pursue(D, lam, rho, tolerance, max_iterations, gap_tolerance)
    )


def _tangent_svd(Z: Matrix, U: Matrix, V: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return singular triplets of U UᵀZ + Z V Vᵀ − U UᵀZV Vᵀ, whose rank is at most 2r.

    This is Z projected on the tangent space of the matrices of rank r at U diag(s) Vᵀ. The returned
    U and V have r columns; s has all values.
    """
    r = U.shape[1]
    ZV, ZtU = (V.T @ Z.T).T, (U.T @ Z).T
    P, A = subspace.orthonormal(np.hstack([U, ZV]))
    Q, B = subspace.orthonormal(np.hstack([V, ZtU]))
    core = A[:, :r] @ B[:, r:].T + (A[:, r:] - A[:, :r] @ (U.T @ ZV)) @ B[:, :r].T
    u, s, wt = np.linalg.svd(core)
    return P @ u[:, :r], s, Q @ wt[:r].T


def acc_alt_proj(
    D: ArrayLike,
    rank: int,
    *,
    mask: MaskLike = None,
    tolerance: float = 1e-7,
    max_iterations: int = 100,
) -> Decomposition:
    """Return L + S ≈ D, rank L ≤ rank, by accelerated alternating projections.

    S ← D − L where |D − L| ≥ ζ;  L ← the best rank-r matrix for D − S projected on the tangent
    space at L;  ζ ← β(σ_{r+1} + γ^t σ₁),  β = 1/(2(nl)^¼), γ = 0.7.

    Parameters
    ----------
    D : (n, l)
        A finite matrix; D = 0 gives zeros.
    rank : int
        The true rank, 0 ≤ rank ≤ min(n, l); with 0, S = D.
    mask : None, "causal" or Mask
        The seen entries of D: the norm and S are restricted to them, and L is free elsewhere.
    tolerance : float
        Tolerance of ‖D − L − S‖_F / ‖D‖_F.
    max_iterations : int
        Maximal number of iterations.

    Returns
    -------
    Decomposition
        ``objective`` is ‖D − L − S‖_F; ``gap`` is NaN, since the problem is not convex.

    Notes
    -----
    The result is deterministic. It is exact if D is low-rank + sparse enough and the rank is right.
    If not, ζ falls until S holds the whole residual, so this does not compress attention; `godec`
    limits the number of entries.
    Cost: O(nl·rank) per iteration, without an SVD of anything wider than 2·rank. Source: see
    `AccAltProj`.

    Examples
    --------
    >>> D = np.ones((40, 40)); D[3, 4] = 9.0
    >>> parts = acc_alt_proj(D, 1)
    >>> parts.sparse.nnz, round(float(parts.sparse[3, 4]), 5)
    (1, 8.0)
    """
    matrix = decomposition.dense_matrix(D)
    matrix = decomposition.with_nan(matrix, masks.as_mask(mask, *matrix.shape))
    r = checks.integer("rank", rank, least=0, most=min(matrix.shape))
    checks.positive("tolerance", tolerance)
    max_iterations = checks.integer("max_iterations", max_iterations, least=1)
    scaled, exponent = decomposition.normalised(matrix)
    if r == 0 or not filled(scaled).any():
        return replace(zeros(matrix.shape, math.nan), sparse=csr_array(filled(matrix)))
    return _project(scaled, r, tolerance, max_iterations).measured(scaled).rescaled(exponent)


def _project(D: Matrix, r: int, tolerance: float, max_iterations: int) -> Decomposition:
    """Alternate for ½ ≤ max |D| < 1 and rank r ≥ 1; see `acc_alt_proj`."""
    n, l = D.shape
    beta = 0.5 * (n * l) ** -0.25
    L, Z = np.zeros_like(D), np.empty_like(D)
    width = min(r + subspace.BLOCK_MARGIN, n, l)
    known = filled(D)
    _, s, V = rotate(known, np.random.default_rng(0).standard_normal((l, width)))
    separate(D, L, L, 4 * beta * float(s[0]), 0, 0.0, Z)
    for _ in range(WARM):
        U, s, V = rotate(Z, V)
    U, s, V = U[:, :r], s[:r], V[:, :r]
    enough, threshold = tolerance * float(np.linalg.norm(known)), beta * float(s[0])
    for iteration in range(1, max_iterations + 1):
        np.matmul(U * s, V.T, out=L)
        rest = math.sqrt(separate(D, L, L, threshold, 0, 0.0, Z))
        if rest <= enough or iteration == max_iterations:
            break
        U, every, V = _tangent_svd(Z, U, V)
        s = every[:r]
        threshold = beta * float(every[r:].max(initial=0.0) + DECAY**iteration * s[0])
    S = large_entries(D, L, threshold)
    return Decomposition(U * s, V, S, math.nan, rest, iteration)


@dataclass(frozen=True)
class RobustPCA(DecompositionMethod):
    """Robust PCA by principal component pursuit, for exact recovery.

    estimate = L + S, argmin ‖L‖_* + λ‖S‖₁ subject to L + S = D = exp(Q Kᵀ), or its row-softmax.

    Parameters
    ----------
    lam : float, optional
        λ > 0; by default 1/√(share·max(n, l)), with the share of the n·l entries that are seen.
    space : {"kernel", "attention"}
        The matrix that is decomposed.
    max_iterations : int
        Maximal number of iterations, whether they converge or not. If D is low-rank plus sparse,
        dozens reproduce it to 1e-7. On attention of real heads the residual after 100 is 2e-6 to
        1e-4 in relative Frobenius norm; 1e-7 and a small duality gap take up to a thousand.

    Notes
    -----
    The estimate is deterministic. Its rank and its number of entries follow from D, so a budget
    cannot fill the method. If D is exactly low-rank plus sparse, the method finds both parts.
    Attention is not: L then has more than half of full rank, unless a few entries hold almost all
    attention. `inexact_alm` also returns the ``residual`` and the duality gap.
    Cost: dozens of singular value thresholdings of the dense matrix.

    References
    ----------
    .. [1] E. J. Candès, X. Li, Y. Ma, J. Wright, "Robust Principal Component Analysis?",
       J. ACM 58, 2011, Eq. (1.1).

    Examples
    --------
    >>> RobustPCA().approximate([[0.0], [0.0]], [[1.0], [1.0]]).to_dense().round(6)
    array([[1., 1.],
           [1., 1.]])
    """

    name = "robust_pca"
    label = "Robust PCA (pursuit)"

    lam: float | None = real()
    space: str = one_of("kernel", SPACES)
    max_iterations: int = integer(100)

    @property
    def tags(self) -> frozenset[str]:
        return super().tags | {SPECTRAL}

    def decompose(self, D: Matrix, mask: Mask) -> Decomposition:
        return inexact_alm(D, self.lam, mask=mask, max_iterations=self.max_iterations)


@dataclass(frozen=True)
class AccAltProj(DecompositionMethod):
    """Robust PCA by accelerated alternating projections at a given rank.

    estimate = L + S with rank L ≤ rank and S the entries of D − L above a falling threshold, for
    D = exp(Q Kᵀ) or its row-softmax.

    Parameters
    ----------
    rank : int
        Rank of L, 0 ≤ rank ≤ min(n, l).
    space : {"kernel", "attention"}
        The matrix that is decomposed.
    max_iterations : int
        Maximal number of iterations, whether they converge or not.

    Notes
    -----
    The estimate is deterministic. It is exact if D is low-rank + sparse and the rank is right.
    Attention is not of this kind, so that S gets too many entries for a budget (`acc_alt_proj`).
    Cost: O(n·l·rank) operations per iteration, on the dense matrix.

    References
    ----------
    .. [1] H. Cai, J.-F. Cai, K. Wei, "Accelerated alternating projections for robust principal
       component analysis", JMLR 20, 2019, algorithms 1 and 2.

    Examples
    --------
    >>> AccAltProj(rank=1).approximate([[0.0], [0.0]], [[1.0], [1.0]]).to_dense().round(6)
    array([[1., 1.],
           [1., 1.]])
    """

    name = "acc_alt_proj"
    label = "Robust PCA (alternating projections)"

    rank: int = integer(1, least=0)
    space: str = one_of("kernel", SPACES)
    max_iterations: int = integer(100)

    def decompose(self, D: Matrix, mask: Mask) -> Decomposition:
        return acc_alt_proj(D, self.rank, mask=mask, max_iterations=self.max_iterations)
