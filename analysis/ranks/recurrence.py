"""Fits of a recurrence of m states, or of linear attention with m features, to a causal head.

Both are fitted to one known matrix of weights. They are the best *found*, with errors above the
lower bound of `analysis.ranks.state_rank`. Neither is a method that a model could run on another
text.
"""

import dataclasses

import numpy as np

from approx import checks
from approx.checks import Array
from approx.estimate import memory

MOST = 1024  # rows: the maps of all positions are in memory at once
DECAY = 8.0  # scale of the weights 1/√(1 + distance/8) of later queries in the first choice
SWEEPS = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Recurrence:
    """A linear recurrence whose coefficients depend on the position, from left to right.

    x_{k+1} = [A_k, b_k] (x_k; v_k) and y_i = c_i·x_i + weights_ii v_i. So the estimate is
    c_i A_{i−1} ⋯ A_{j+1} b_j below the diagonal, and exact on the diagonal.

    Attributes
    ----------
    steps : list of (m_{k+1}, m_k + 1)
        [A_k, b_k], with orthonormal rows; m_k is the number of coordinates of x_k.
    outputs : list of (m_i,)
        c_i.
    diagonal : (n,)
    error : float
        Relative Frobenius error of the weights.
    """

    steps: list[Array]
    outputs: list[Array]
    diagonal: Array
    error: float

    @property
    def states(self) -> int:
        """The largest number of coordinates of the state."""
        return max(map(len, self.outputs))

    def to_dense(self) -> Array:
        """Return the (n, n) estimate, by running the recurrence on every unit vector."""
        n = len(self.diagonal)
        state, estimate = np.zeros((0, n)), np.diag(self.diagonal)
        for i in range(n):
            estimate[i] += self.outputs[i] @ state
            if i < n - 1:
                state = self.steps[i] @ np.vstack([state, np.eye(n)[i]])
        return estimate


def recurrence(weights: Array, m: int, *, sweeps: int = SWEEPS) -> Recurrence:
    """Return a recurrence of m states fitted to causal weights: the best found, not a bound.

    Parameters
    ----------
    weights : (n, n)
        Lower triangular, n ≤ 1024.
    m : int
        The number of states, ≥ 1.
    sweeps : int
        The number of passes that improve the first choice, ≥ 0.

    Raises
    ------
    ValueError
        The weights are not lower triangular, are all 0, or have too many rows.

    Notes
    -----
    The state after k keys is R_k v, with orthonormal rows R_k (m, k) in the span of R_{k−1} and the
    new key. Given the R_k, the best outputs are c_i = weights[i, :i] R_iᵀ. The squared error is
    then Σ_i |weights[i, :i] (1 − R_iᵀ R_i)|².

    The first choice goes from left to right: R_{k+1} has the leading right singular vectors of the
    later queries' weights on (R_k, e_k). Query i has the weight 1/√(1 + (i − k − 1)/8) in them,
    because later steps truncate the state again before a far query reads it. A sweep also goes from
    left to right: it keeps the outputs and the later steps fixed and solves for each step
    [A_k, b_k] by least squares. Then all outputs are fitted anew, and the result is kept if its
    error is smaller.

    Cost: O(n²·m²) operations for each sweep, and n²·m/2 numbers in memory.

    References
    ----------
    .. [1] P. Dewilde, A.-J. van der Veen, "Time-varying systems and computations", Kluwer 1998,
       chapters 5 and 10.

    Examples
    --------
    A decaying average is one state:

    >>> past = np.tril(0.5 ** np.abs(np.subtract.outer(np.arange(8), np.arange(8))))
    >>> found = recurrence(past, 1)
    >>> found.states, found.error < 1e-12
    (1, True)
    """
    P = _causal(weights)
    m, sweeps = checks.integer("m", m, least=1), checks.integer("sweeps", sweeps, least=0)
    memory.reserve(8 * len(P) ** 2 * (m + 4), "the maps of all positions", "m or the rows")
    found = _fitted(P, m, None)
    for _ in range(sweeps):
        other = _fitted(P, m, _observed(found))
        if other.error >= found.error:
            break
        found = other
    return found


def _fitted(P: Array, m: int, observed: list[Array] | None) -> Recurrence:
    """Return the recurrence whose steps are chosen from left to right.

    Without ``observed`` the steps are leading singular vectors. With it, (n − k − 1, m) for every
    k, they fit the outputs of the later queries.
    """
    n = len(P)
    steps, outputs = [], []
    seen = np.zeros((n, 0))  # weights[i, :k] R_kᵀ of the queries i ≥ k
    for k in range(n):
        outputs.append(seen[0])
        if k == n - 1:
            break
        candidates = np.hstack([seen[1:], P[k + 1 :, k : k + 1]])
        if candidates.shape[1] <= m:
            step = np.eye(candidates.shape[1])
        elif observed is None:
            weight = (1 + np.arange(len(candidates)) / DECAY) ** -0.5
            step = np.linalg.svd(weight[:, None] * candidates, full_matrices=False)[2][:m]
        else:
            fit = np.linalg.lstsq(observed[k], candidates, rcond=1e-12)[0]
            step = np.linalg.qr(fit.T)[0].T
        steps.append(step)
        seen = candidates @ step.T
    total = float(np.square(P).sum())
    missed = np.square(np.tril(P, -1)).sum() - sum(float(c @ c) for c in outputs)
    return Recurrence(steps, outputs, np.diag(P).copy(), float(np.sqrt(max(missed, 0.0) / total)))


def _observed(found: Recurrence) -> list[Array]:
    """Return the maps from each state x_{k+1} to the later queries' outputs, (n − k − 1, m)."""
    n = len(found.outputs)
    maps = [found.outputs[-1][None]]
    for k in range(n - 2, 0, -1):
        maps.append(np.vstack([found.outputs[k], maps[-1] @ found.steps[k][:, :-1]]))
    return maps[::-1]


def ungated(weights: Array, m: int, *, sweeps: int = 50) -> float:
    """Return the error of the best linear attention with m features that is found.

    Its estimate is φ_i·ψ_j below the diagonal, without gates or decay, and exact on the diagonal.
    Entries above the diagonal are free, so that no formula gives the best fit.

    The parameters are those of `recurrence`; a sweep fits both factors.

    Returns
    -------
    float
        Relative Frobenius error of the best sweep: an upper bound of the least possible error.

    Notes
    -----
    Alternating least squares, starting from the truncated singular value decomposition of the
    weights. Each row of φ is fitted to the keys before it, and each row of ψ to the queries after
    it, by normal equations with a ridge of 10⁻¹² of their trace. Cost: O(n·m³ + n²·m) operations
    per sweep.

    Examples
    --------
    >>> ungated(np.tril(np.ones((8, 8))), 1) < 1e-3
    True
    """
    P = _causal(weights)
    m, n = checks.integer("m", m, least=1), len(P)
    memory.reserve(16 * n * m**2, "the normal equations of all rows", "m or the rows")
    low = np.tril(P, -1)
    _, s, vt = np.linalg.svd(low)
    psi = vt[:m].T * np.sqrt(s[:m])
    best = float(np.linalg.norm(low))
    for _ in range(checks.integer("sweeps", sweeps, least=1)):
        phi = _rows(psi, low)
        psi = _rows(phi[::-1], low.T[::-1, ::-1])[::-1]
        best = min(best, float(np.linalg.norm(np.tril(low - phi @ psi.T, -1))))
    return best / float(np.linalg.norm(P))


def _rows(psi: Array, low: Array) -> Array:
    """Return φ by least squares: φ_i·ψ_j ≈ low_ij over j < i, for every i."""
    n, m = psi.shape
    grams = np.zeros((n, m, m))
    np.cumsum(psi[:-1, :, None] * psi[:-1, None, :], axis=0, out=grams[1:])
    ridge = 1e-12 * np.trace(grams, axis1=1, axis2=2) + np.finfo(float).tiny
    grams[:, np.arange(m), np.arange(m)] += ridge[:, None]
    return np.asarray(np.linalg.solve(grams, (low @ psi)[..., None])[..., 0])


def _causal(weights: Array) -> Array:
    P = np.asarray(checks.array("weights", weights, ndim=2), np.float64)
    if P.shape[0] != P.shape[1] or np.triu(P, 1).any():
        raise ValueError(
            f"weights must be square and 0 above the diagonal, got shape {P.shape}: "
            "give the rows of causal attention, with as many queries as keys"
        )
    if len(P) > MOST:
        raise ValueError(f"weights must have at most {MOST} rows, got {len(P)}: use Head.first")
    if not P.any():
        raise ValueError("weights are all 0, so that no error is relative")
    return P
