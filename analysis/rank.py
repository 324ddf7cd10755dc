"""Ranks and spectra of exp(q·k) and of its estimates.

With singular values s₁ ≥ s₂ ≥ … and p_i = s_i/Σs:

========================  ===========================================================
numerical_rank            #{s_i > s₁·max(n, l)·eps}, NumPy's default
epsilon_rank              #{s_i > ε·s₁}: the least rank with spectral error ≤ ε·s₁
stable_rank               Σs²/s₁² = ‖A‖_F²/‖A‖₂²
effective_rank            exp(−Σ p_i log p_i)  (Roy and Vetterli 2007)
energy_rank_90            the least r with Σ_{i≤r} s_i² ≥ 0.9 Σs²
========================  ===========================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from analysis.inputs import Inputs
from approx import checks, exact, memory
from approx.base import Approximation
from approx.checks import Array

MEASURES = (
    "numerical_rank",
    "epsilon_rank",
    "stable_rank",
    "effective_rank",
    "energy_rank_90",
)


def singular_values(matrix: ArrayLike | Approximation) -> Array:
    """Return the singular values, descending, (min(n, l),) or the rank by construction.

    An `Approximation` that has only factors is reduced through them: O((n + l) r²). Its common
    scale is taken out, so the values are relative; every measure here is scale-invariant.

    Raises
    ------
    ResourceLimitError
        The dense matrix would not fit.

    Examples
    --------
    >>> singular_values([[3.0, 0.0], [0.0, 4.0]])
    array([4., 3.])
    """
    if not isinstance(matrix, Approximation):
        A = checks.array("matrix", matrix, ndim=2).astype(np.float64)
        return np.asarray(scipy.linalg.svdvals(A, overwrite_a=True, check_finite=False))
    n, l = matrix.shape
    if matrix.part is None and matrix.rank < min(n, l):
        left, right, row_log = (np.asarray(x, np.float64) for x in matrix.scaled_factors())
        left = left * np.exp(row_log - row_log.max())[:, None]
        r_left = np.asarray(np.linalg.qr(left, mode="r"))
        r_right = np.asarray(np.linalg.qr(right, mode="r"))
        return np.asarray(scipy.linalg.svdvals(r_left @ r_right.T))
    memory.reserve(24 * n * l, "the singular values of a dense matrix", "n or l")
    top = float(matrix.row_log().max())
    dense = matrix.block(slice(0, n), shift=np.full(n, top)).astype(np.float64)
    return np.asarray(scipy.linalg.svdvals(dense, overwrite_a=True, check_finite=False))


def measures(
    s: Array, shape: tuple[int, int], *, epsilon: float = 1e-2, dtype: Any = np.float64
) -> dict[str, float]:
    """Return every rank measure of singular values s of a matrix of that shape.

    Examples
    --------
    A k-dimensional partial isometry has rank k by every measure:

    >>> [round(x, 12) for x in measures(np.ones(10), (10, 10)).values()]
    [10.0, 10.0, 10.0, 10.0, 9.0]
    """
    checks.positive("epsilon", epsilon)
    largest = s[0] if len(s) else 0.0
    if largest == 0:
        return dict.fromkeys(MEASURES, 0.0)
    x = s / largest
    p = x / x.sum()
    p = p[p > 0]
    energy = np.cumsum(x**2)
    return {
        "numerical_rank": float(np.sum(x > max(shape) * np.finfo(dtype).eps)),
        "epsilon_rank": float(np.sum(x > epsilon)),
        "stable_rank": float(energy[-1]),
        "effective_rank": float(np.exp(-np.sum(p * np.log(p)))),
        "energy_rank_90": float(np.searchsorted(energy, 0.9 * energy[-1] * (1 - 1e-15)) + 1),
    }


def summary(
    matrix_or_operator: ArrayLike | Approximation, *, epsilon: float = 1e-2
) -> dict[str, float]:
    """Return every rank measure of a matrix or an `Approximation`.

    Parameters
    ----------
    matrix_or_operator : (n, l) array or Approximation
    epsilon : float
        Threshold of ``epsilon_rank``.

    Notes
    -----
    Cost: O(n·l·min(n, l)), or O((n + l)·r²) through factors.

    Examples
    --------
    >>> summary(np.eye(4))["stable_rank"]
    4.0
    """
    if isinstance(matrix_or_operator, Approximation):
        operator = matrix_or_operator
        s = singular_values(operator)
        return measures(s, operator.shape, epsilon=epsilon, dtype=operator.dtype)
    matrix = checks.array("matrix", matrix_or_operator, ndim=2)
    return measures(singular_values(matrix), matrix.shape, epsilon=epsilon, dtype=matrix.dtype)


def exact_singular_values(inputs: Inputs, space: str = "kernel") -> Array:
    """Return those of exp(Q Kᵀ)/max, or of its row-softmax, (min(n, l),).

    Where causal, entries above the diagonal are 0 and rows are normalised over what is seen.
    """
    checks.one_of("space", space, ("kernel", "attention"))
    n, l = inputs.n, inputs.l
    memory.reserve(24 * n * l, "the singular values of a dense matrix", "n or l")
    x = np.asarray(exact.logits(inputs.Q, inputs.K), np.float64)
    exact.mask(x, 0, n, inputs.causal)
    x -= x.max() if space == "kernel" else x.max(axis=1, keepdims=True)
    np.exp(x, out=x)
    if space == "attention":
        x /= x.sum(axis=1, keepdims=True)
    return np.asarray(scipy.linalg.svdvals(x, overwrite_a=True, check_finite=False))
