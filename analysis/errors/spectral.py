"""The error of an estimate in the spectral norm, by Lanczos iteration over row stripes."""

import math
from collections.abc import Callable

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, svds

from approx import Approximation
from approx.checks import Array
from approx.estimate import exact
from approx.estimate.low import rescale


def kernel_relative_spectral(approximation: Approximation, q: Array, k: Array) -> float:
    """Return ‖estimate − exact‖₂/‖exact‖₂ inside the mask; each norm has its own scale."""
    n, l = approximation.shape

    def stripe(rows: slice) -> tuple[Array, Array, Array]:
        """Return logits (−inf outside the mask), the estimate (0 outside) and its log scale."""
        x = q[rows] @ k.T
        shift = approximation.row_log(rows, x).astype(np.float64)
        e = approximation.block(rows, shift=shift, logits=x).astype(np.float64)
        approximation.mask.hide(x, rows, fill=-np.inf)
        return x, e, shift

    top = largest = -math.inf  # log of the largest entry: of exact, and of both
    for rows in exact.stripes(n, l):
        x, e, shift = stripe(rows)
        with np.errstate(divide="ignore"):
            peaks = np.log(np.abs(e).max(axis=1)) + shift
        top, largest = max(top, float(x.max())), max(largest, float(peaks.max()))
    largest = max(top, largest)

    def difference(rows: slice) -> Array:
        x, e, shift = stripe(rows)
        return rescale(e, shift - largest) - np.exp(x - largest)

    def truth(rows: slice) -> Array:
        return np.exp(stripe(rows)[0] - top)

    def norm(part: Callable[[slice], Array]) -> float:
        if n * l <= exact.STRIPE or min(n, l) == 1:
            return float(scipy.linalg.norm(part(slice(0, n)), 2))

        def matvec(x: Array) -> Array:
            return np.concatenate([part(r) @ x for r in exact.stripes(n, l)])

        def rmatvec(y: Array) -> Array:
            return np.asarray(sum(part(r).T @ y[r] for r in exact.stripes(n, l)))

        if not matvec(np.random.default_rng(0).standard_normal(l)).any():
            return 0.0  # ARPACK refuses the zero matrix
        operator = LinearOperator((n, l), matvec=matvec, rmatvec=rmatvec, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(min(n, l))
        return float(svds(operator, 1, v0=start, return_singular_vectors=False)[0])

    with np.errstate(over="ignore"):
        return float(norm(difference) / norm(truth) * np.exp(largest - top))
