"""Residuals of factorisations in units of rounding, with one threshold, as in LAPACK's tests.

A backward stable factorisation of A (n, l) has ‖A − L R‖_F ≤ c·n·eps·‖A‖_F with a small c, and its
orthonormal factors have ‖QᵀQ − I‖_F ≤ c·n·eps, for any condition number of A.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from analysis import inputs
from analysis.ranks import rank
from approx.checks import Array
from approx.estimate import exact
from approx.low_rank import krylov, pivots, subspace
from approx.mechanisms.nystromformer import pseudo_inverse
from approx.projections.rotated import haar

THRESHOLD = 30.0  # LAPACK's own
EPS = float(np.finfo(np.float64).eps)


class Residual(NamedTuple):
    """The residual of a factorisation over ‖A‖·max(n, l)·eps: a row of the second table."""

    name: str
    what: str
    matrix: str
    value: float


def over(gap: Array, A: Array) -> float:
    """Return ‖gap‖_F/(‖A‖_F·max(n, l)·eps)."""
    return float(np.linalg.norm(gap) / (np.linalg.norm(A) * max(A.shape) * EPS))


def orthogonality(Q: Array) -> float:
    """Return ‖QᵀQ − I‖_F/(n·eps)."""
    return float(np.linalg.norm(Q.T @ Q - np.eye(Q.shape[1])) / (len(Q) * EPS))


def matrices(size: int) -> Iterator[tuple[str, Array]]:
    """Yield test matrices: Gaussian, graded to 1e-15, and the softmax of a real head."""
    rng, n = np.random.default_rng(0), min(size, 96)
    G = rng.standard_normal((n, n - n // 4))
    yield "Gaussian", G
    yield "columns from 1 to 1e-15", G * 10.0 ** -np.linspace(0, 15, G.shape[1])
    x = next(iter(inputs.sample("minilm").heads()))
    yield "softmax of MiniLM", exact.softmax(x.Q[:n], x.K[:n])


def dense(name: str, A: Array) -> Iterator[Residual]:
    """Yield the residuals of functions of a rectangular matrix."""
    n, l = A.shape
    Q, R = subspace.orthonormal(np.array(A, order="F"))
    yield Residual("subspace.orthonormal", "A − QR", name, over(Q @ R - A, A))
    yield Residual("subspace.orthonormal", "QᵀQ − I", name, orthogonality(Q))
    for function, basis in (("rotate", np.eye(l)), ("leading", l)):
        U, s, V = getattr(subspace, function)(A, basis)
        yield Residual(f"subspace.{function}", "A − U s Vᵀ", name, over((U * s) @ V.T - A, A))
        yield Residual(f"subspace.{function}", "VᵀV − I", name, orthogonality(V))
    found = krylov.block_krylov([(slice(0, n), A)], (n, l), max(1, l // 8))
    gap = A @ found.right - found.left * found.values
    yield Residual("krylov.block_krylov", "A V − U s", name, over(gap, A))
    yield Residual("krylov.block_krylov", "VᵀV − I", name, orthogonality(found.right))
    t = 0.1 * float(np.linalg.norm(A, 2))
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    shrunk = subspace.shrink_singular_values(A, t, np.eye(l), np.random.default_rng(0))
    gap = shrunk.left @ shrunk.right.T - (U * np.maximum(s - t, 0)) @ Vt
    yield Residual("subspace.shrink_singular_values", "result − definition", name, over(gap, A))
    values = rank.singular_values(A)
    yield Residual("analysis.ranks.rank.singular_values", "σ − LAPACK's", name, over(values - s, A))


def square(n: int) -> Iterator[Residual]:
    """Yield the residuals of functions that take or return a square matrix."""
    turned = haar(n, np.random.default_rng(0))
    yield Residual("rotated.haar", "QᵀQ − I", "random", orthogonality(turned))
    x = next(iter(inputs.sample("minilm").heads()))
    points = 0.3 * x.K[:n]
    G = np.exp(-0.5 * np.square(points[:, None] - points).sum(axis=2))
    S, C = pivots.cholesky(lambda p: G[p], n, [np.argmax] * n)
    of = f"Gaussian kernel, {len(S)} pivots"
    yield Residual("pivots.cholesky", "G − C Cᵀ", of, over(C @ C.T - G, G))
    P = exact.softmax(x.Q[:n], x.K[:n]) + np.eye(n)
    Z = pseudo_inverse(P)
    reach = float(np.linalg.norm(P) ** 2 * np.linalg.norm(Z) * n * EPS)
    gap = float(np.linalg.norm(P @ Z @ P - P))
    yield Residual("nystromformer.pseudo_inverse", "(A A⁺ A − A)/κ", "softmax + I", gap / reach)


def residuals(size: int) -> Iterator[Residual]:
    """Yield every residual, for matrices with at most ``size`` rows."""
    for name, A in matrices(size):
        yield from dense(name, A)
    yield from square(min(size, 48))
