"""Rank measures and spectra of exp(q·k) and of its estimates.

With singular values s₁ ≥ s₂ ≥ …, p_i = s_i/Σs and energies e_i = s_i²/Σs²:

========================  =============================================================
numerical_rank            #{s_i > s₁·max(n, l)·eps}, NumPy's default
epsilon_rank              #{s_i > ε·s₁}: the least rank with spectral error ≤ ε·s₁
epsilon_rank_frobenius    the least r with √Σ_{i>r} s_i² ≤ ε·‖A‖_F
stable_rank               Σs²/s₁² = ‖A‖_F²/‖A‖₂²
intrinsic_dimension       Σs/s₁ = ‖A‖_*/‖A‖₂
nuclear_ratio             (Σs)²/Σs² = ‖A‖_*²/‖A‖_F²: the participation ratio of s itself
effective_rank            exp(−Σ p_i log p_i)  (Roy and Vetterli 2007)
energy_effective_rank     exp(−Σ e_i log e_i): a different number, often called the same
participation_ratio       (Σs²)²/Σs⁴ = ‖A‖_F⁴/‖AᵀA‖_F²: the participation ratio of s²
energy_rank_90            the least r with Σ_{i≤r} s_i² ≥ 0.9 Σs²
singular_value_rank_90    the least r with Σ_{i≤r} s_i ≥ 0.9 Σs: in Linformer's figure
========================  =============================================================

Rounding decides ties: whether a singular value counts that equals its threshold, ε·s₁ say.

1 ≤ stable ≤ intrinsic ≤ nuclear ratio ≤ effective ≤ rank, and
stable ≤ participation ≤ energy effective ≤ effective: Rényi entropies of e and of p.

Under a causal mask these numbers tell little. Every lower triangular matrix with a positive
diagonal has full rank. A mask also destroys the rank of factors: ``rank`` of an estimate then
counts columns and is no bound of the rank. For a recurrence with m states the informative ranks are
those of the blocks A[i:, :i], queries from a position on and keys before it: they are at most m.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from analysis.inputs import Head
from approx import Approximation, checks
from approx.checks import Array
from approx.estimate import exact, memory
from approx.low_rank.decomposition import normalised
from approx.low_rank.krylov import Streamed, block_krylov
from approx.low_rank.subspace import GRAM_SHARE
from approx.method import Rng, generator

ESTIMATED = (
    "stable_rank",
    "intrinsic_dimension",
    "nuclear_ratio",
    "effective_rank",
    "energy_effective_rank",
    "participation_ratio",
)
MEASURES = (
    "numerical_rank",
    "epsilon_rank",
    "epsilon_rank_frobenius",
    *ESTIMATED,
    "energy_rank_90",
    "singular_value_rank_90",
)
LAPACK = 2048  # up to this min(n, l), singular values do not come from a Gram matrix
MOST_STEPS = 4096  # steps of Lanczos: each probe solves an eigenvalue problem of this size
LEADING = 32  # singular values that an estimate computes one by one


def singular_values(matrix: ArrayLike | LinearOperator) -> Array:
    """Return the singular values, descending: min(n, l), or r if the matrix has r factors.

    For an `Approximation` with factors only and no mask, they are computed from the factors in
    O((n + l) r²). They are relative to its common scale; every measure here is scale-invariant.

    Notes
    -----
    Up to min(n, l) = 2048 they come from LAPACK. Beyond that they come from the eigenvalues of the
    smaller Gram matrix, 3 times faster, if the least s_i ≥ 10⁻⁷ s₁, and otherwise from LAPACK. The
    eigenvalues have errors of a few eps·s₁², so that s_i has an error of a few eps·s₁²/s_i: 10⁻⁸ s₁
    for the least s_i, and 10⁻⁹ s₁ for s_i ≥ 10⁻⁶ s₁. Every s_i is then > s₁·max(n, l)·eps, so that
    every measure is right, also the numerical rank, and the ε-ranks for ε ≥ 10⁻⁶.
    Cost, measured on one thread: at 4096, 6 s by the Gram matrix and 22 s by LAPACK; at 8192, 74 s
    and 220 s, with 2.8 GB. `estimates` takes 20 s there, or 40 s if it computes rows anew.

    Raises
    ------
    ResourceLimitError
        The dense matrix would not fit.

    Examples
    --------
    >>> singular_values([[3.0, 0.0], [0.0, 4.0]])
    array([4., 3.])
    """
    if (
        isinstance(matrix, Approximation)
        and matrix.correction is None
        and matrix.mask.is_full
        and matrix.rank < min(matrix.shape)
    ):
        left, right, row_log = (np.asarray(x, np.float64) for x in matrix.scaled_factors())
        left = left * np.exp(row_log - row_log.max())[:, None]
        r_left = np.asarray(np.linalg.qr(left, mode="r"))
        r_right = np.asarray(np.linalg.qr(right, mode="r"))
        return np.asarray(scipy.linalg.svdvals(r_left @ r_right.T))
    s = _values(_dense(matrix))
    if len(s) and not np.isfinite(s[0]):
        largest = np.finfo(float).max
        raise OverflowError(
            f"the largest singular value is above {largest:.3g}: scale the matrix down"
        )
    return s


def _dense(matrix: ArrayLike | LinearOperator) -> Array:
    """Return a new float64 array; for an `Approximation` it is relative to its common scale."""
    if not isinstance(matrix, LinearOperator):
        return checks.array("matrix", matrix, ndim=2).astype(np.float64)
    n, l = matrix.shape
    memory.reserve(24 * n * l, "the singular values of a dense matrix", "n or l")
    if not isinstance(matrix, Approximation):
        return checks.array("matrix @ I", matrix @ np.eye(l), ndim=2).astype(np.float64)
    shift = np.full(n, float(matrix.row_log().max()))
    return matrix.block(slice(0, n), shift=shift).astype(np.float64)


def _values(A: Array) -> Array:
    """Return the singular values of A; A is overwritten."""
    if min(A.shape) > LAPACK:
        scaled, exponent = normalised(A)
        B = scaled if len(A) >= A.shape[1] else scaled.T
        w = scipy.linalg.eigvalsh(B.T @ B, overwrite_a=True, check_finite=False)
        if w[0] >= GRAM_SHARE**2 * w[-1]:
            return np.asarray(np.ldexp(np.sqrt(w[::-1]), exponent))
    return np.asarray(scipy.linalg.svdvals(A, overwrite_a=True, check_finite=False))


def measures(
    s: Array, shape: tuple[int, int], *, epsilon: float = 1e-2, dtype: Any = np.float64
) -> dict[str, float]:
    """Return every rank measure of a matrix with this shape and these singular values.

    Accuracy: 10 eps·κ, as docs/accuracy.md defines it.

    Parameters
    ----------
    s : (r,)
        Descending, ≥ 0.
    shape : (n, l)
    epsilon : float
        The threshold of the ε-ranks, > 0.
    dtype : dtype
        The dtype of the matrix; the numerical rank uses its eps.

    Examples
    --------
    A k-dimensional partial isometry has rank k by every measure:

    >>> [round(x, 12) for x in measures(np.ones(10), (10, 10)).values()]
    [10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 9.0, 9.0]
    """
    checks.positive("epsilon", epsilon)
    s = checks.array("s", s, ndim=1)
    if (np.diff(s, append=0.0) > 0).any():
        raise ValueError(f"s must be descending and >= 0, got {checks.display(s)}")
    checks.instance("shape", shape, tuple, "(n, l)")
    sides = [checks.integer("shape", x, least=0) for x in shape]
    if len(sides) != 2 or len(s) > min(sides):
        raise ValueError(f"shape must be (n, l) with n, l >= {len(s)} singular values, got {shape}")
    largest = s[0] if len(s) else 0.0
    if largest == 0:
        return dict.fromkeys(MEASURES, 0.0)
    x = s / largest
    square = x**2
    rest = np.cumsum(square[::-1])[::-1]  # summed from the least, so that tails keep their digits
    return {
        "numerical_rank": float(np.sum(x > max(sides) * np.finfo(dtype).eps)),
        "epsilon_rank": float(np.sum(x > epsilon)),
        "epsilon_rank_frobenius": float(np.sum(rest > epsilon**2 * rest[0])),
        "stable_rank": float(square.sum()),
        "intrinsic_dimension": float(x.sum()),
        "nuclear_ratio": float(x.sum() ** 2 / square.sum()),
        "effective_rank": _perplexity(x),
        "energy_effective_rank": _perplexity(square),
        "participation_ratio": float(square.sum() ** 2 / np.sum(square**2)),
        "energy_rank_90": _share(square, 0.9),
        "singular_value_rank_90": _share(x, 0.9),
    }


def _perplexity(weights: Array) -> float:
    """Return exp of the entropy of weights ≥ 0, after dividing them by their sum."""
    p = weights / weights.sum()
    p = p[p > 0]
    return float(np.exp(-np.sum(p * np.log(p))))


def _share(weights: Array, share: float) -> float:
    """Return how many of the largest weights hold this share of the sum; they are descending."""
    total = np.cumsum(weights)
    return float(np.searchsorted(total, share * total[-1] * (1 - 1e-15)) + 1)


def summary(
    matrix_or_operator: ArrayLike | LinearOperator, *, epsilon: float = 1e-2
) -> dict[str, float]:
    """Return every rank measure of a matrix, an `Approximation` or another operator.

    Notes
    -----
    Cost: as `singular_values`, O(n·l·min(n, l)), or O((n + l)·r²) through factors. For larger
    matrices, `estimates` gives some of the measures, with standard errors.

    Examples
    --------
    >>> summary(np.eye(4))["stable_rank"]
    4.0
    """
    A = matrix_or_operator
    if not isinstance(A, LinearOperator):
        A = checks.array("matrix", A, ndim=2)
        s = singular_values(normalised(A.astype(np.float64))[0])  # so that nothing overflows
    else:
        s = singular_values(A)
    dtype = np.dtype(A.dtype) if np.dtype(A.dtype).kind == "f" else np.float64
    return measures(s, (A.shape[0], A.shape[1]), epsilon=epsilon, dtype=dtype)


@dataclass(frozen=True)
class _Stripes:
    """The stripes of an `Approximation`, relative to its common scale."""

    matrix: Approximation

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        top = float(self.matrix.row_log().max())
        for rows in exact.stripes(*self.matrix.shape):
            shift = np.full(rows.stop - rows.start, top)
            yield rows, self.matrix.block(rows, shift=shift).astype(np.float64)


def estimates(
    matrix: ArrayLike | Approximation | Streamed,
    *,
    probes: int = 16,
    steps: int = 60,
    rng: Rng = None,
) -> dict[str, float]:
    """Estimate rank measures from products with a matrix, each with its standard error.

    Σ f(s_i²) ≈ Σ_{i≤32} f(s_i²) + mean over z of Σ_j w_j f(θ_j). The leading singular values come
    from a block Krylov space, the rest from stochastic Lanczos quadrature. z is Gaussian,
    orthogonal to the leading singular vectors; θ_j and w_j are the nodes and weights of its Lanczos
    process with AᵀA.

    Parameters
    ----------
    matrix : (n, l) array, Approximation or Streamed
        ``approx.low_rank.krylov.Streamed(Q, K, row_log)`` is the exact matrix, which is never
        stored.
    probes : int
        The number of vectors z, ≥ 2.
    steps : int
        The number of Lanczos steps, 1 to 4096.
    rng : int, Generator, ...

    Returns
    -------
    dict
        ``stable_rank``, ``intrinsic_dimension``, ``nuclear_ratio``, ``effective_rank``,
        ``energy_effective_rank``, ``participation_ratio``, and for each ``…_stderr``, the
        jackknife standard error over the probes.

    Notes
    -----
    ‖A‖_F is exact and s₁ has converged, so the stable rank is exact and has a standard error of 0.
    The standard errors do not include the error of the quadrature, which falls with the number of
    steps: after 60 steps it is about 1 % or less if f is √· and the spectrum reaches 0.
    Cost: about ten passes over the matrix, one more pass of 4·n·l·probes operations per step, and
    memory for some hundred vectors. Prefer it to `summary` from about n = 8192.

    References
    ----------
    .. [1] S. Ubaru, J. Chen, Y. Saad, "Fast estimation of tr(f(A)) via stochastic Lanczos
       quadrature", SIAM J. Matrix Anal. Appl. 38, 2017, algorithm 1.
    .. [2] R. Meyer, C. Musco, C. Musco, D. Woodruff, "Hutch++", SOSA 2021: the split.

    Examples
    --------
    >>> measured = estimates(np.diag(np.arange(100.0)), rng=0)
    >>> round(measured["stable_rank"], 6)  # Σ i²/99², i < 100
    33.50...
    """
    probes = checks.integer("probes", probes, least=2)
    steps = checks.integer("steps", steps, least=1, most=MOST_STEPS)
    stripes: Any = matrix
    if isinstance(matrix, Approximation):
        stripes, shape = _Stripes(matrix), (matrix.shape[0], matrix.shape[1])
    elif isinstance(matrix, Streamed):
        shape = (len(matrix.Q), len(matrix.K))
    else:
        A, _ = normalised(checks.array("matrix", matrix, ndim=2).astype(np.float64))
        stripes, shape = [(slice(0, len(A)), A)], (A.shape[0], A.shape[1])
    if 0 in shape:
        raise ValueError(f"the matrix must not be empty, got shape {shape}")
    vectors = probes * (sum(shape) * 4 + 4 * steps)
    memory.reserve(8 * vectors, "the Lanczos vectors", "probes or steps")
    top = block_krylov(stripes, shape, min(LEADING, *shape))
    if top.values[0] == 0:
        return {f"{name}{end}": 0.0 for name in ESTIMATED for end in ("", "_stderr")}
    s, energy = top.values / top.values[0], (top.error / top.values[0]) ** 2
    Z = generator(rng).standard_normal((shape[1], probes))
    rest = _lanczos_sums(stripes, top.right, Z, steps, float(top.values[0]))
    head = _sums(s[:, None], np.ones((len(s), 1)))
    energy += float(head[1, 0])
    values = _from_sums(head[:, 0] + rest.mean(axis=1), energy)
    left_out = (rest.sum(axis=1, keepdims=True) - rest) / (probes - 1)
    each = _from_sums(head + left_out, energy)
    out = {}
    for name, value, others in zip(ESTIMATED, values, each):
        out[name] = float(value)
        out[f"{name}_stderr"] = float(np.sqrt(probes - 1) * np.std(others))
    return out


def _sums(s: Array, weights: Array) -> Array:
    """Return Σ w s, Σ w s², Σ w s⁴, −Σ w s log s and −Σ w s² log s² of every column, (5, c)."""
    log = np.log(np.where(s > 0, s, 1.0))
    terms = (s, s**2, s**4, -s * log, -2 * s**2 * log)
    return np.array([np.sum(weights * term, axis=0) for term in terms])


def _from_sums(sums: Array, energy: float) -> Array:
    """Return the `ESTIMATED` measures from the sums over s/s₁ and from Σ s²/s₁²."""
    nuclear, _, fourth, entropy, energy_entropy = sums
    return np.array(
        [
            np.full_like(nuclear, energy),
            nuclear,
            nuclear**2 / energy,
            nuclear * np.exp(entropy / nuclear),
            energy * np.exp(energy_entropy / energy),
            energy**2 / fourth,
        ]
    )


def _lanczos_sums(stripes: Any, right: Array, Z: Array, steps: int, scale: float) -> Array:
    """Return `_sums` of a Lanczos process per column of Z, orthogonal to right, (5, probes).

    Rounding makes values appear again. The copies share their weight, so that the sums stay right.
    """
    Z = Z - right @ (right.T @ Z)
    sizes = np.linalg.norm(Z, axis=0)
    V, before = Z / np.maximum(sizes, np.finfo(np.float64).tiny), np.zeros_like(Z)
    diagonal, beside = np.zeros((2, steps, Z.shape[1]))
    for step in range(steps):
        W = np.zeros_like(V)
        for _, stripe in stripes:
            W += stripe.T @ (stripe @ V)
        W = W / scale**2 - beside[step - 1] * before
        diagonal[step] = np.sum(V * W, axis=0)
        W -= V * diagonal[step]
        W -= right @ (right.T @ W)
        beside[step] = np.linalg.norm(W, axis=0)
        V, before = W / np.where(beside[step] > 0, beside[step], 1.0), V
    out = np.empty((5, Z.shape[1]))
    for j, size in enumerate(sizes):
        w, U = scipy.linalg.eigh_tridiagonal(diagonal[:, j], beside[:-1, j])
        s = np.sqrt(np.maximum(w, 0.0))
        out[:, j] = _sums(s[:, None], (size * U[0, :, None]) ** 2)[:, 0]
    return out


def exact_singular_values(inputs: Head, space: str = "kernel") -> Array:
    """Return the singular values of exp(Q Kᵀ)/max, or of its row-softmax, (min(n, l),).

    Entries outside the mask are 0, and rows are normalised over their visible keys. A causal head
    has full rank in exact arithmetic: its singular values fall, but none is 0.
    """
    checks.instance("inputs", inputs, Head, "a Head")
    checks.one_of("space", space, ("kernel", "attention"))
    n, l = inputs.n, inputs.l
    memory.reserve(24 * n * l, "the singular values of a dense matrix", "n or l")
    x = inputs.logits()
    if space == "attention":
        inputs.require_no_sinks("the spectrum of attention weights")
    x -= x.max() if space == "kernel" else x.max(axis=1, keepdims=True)
    np.exp(x, out=x)
    if space == "attention":
        x /= x.sum(axis=1, keepdims=True)
    return _values(x)
