"""The matrix that methods decompose: the kernel matrix, or its row-softmax."""

from abc import abstractmethod
from typing import Any

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate import exact, memory
from approx.estimate.corrections import Addition
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.kernels.elementary import exp_rows
from approx.low_rank.decomposition import Decomposition, Matrix
from approx.low_rank.krylov import Streamed, Stripes
from approx.method import Method
from approx.method.tags import ADAPTIVE, ORACLE, ROTATION, SCALE, SHIFT, collect

SPACES = ("kernel", "attention")
MOST = 700.0  # the largest exponent of an unseen entry: e^700 is representable
ARRAYS, MASKED_ARRAYS = 6, 10  # arrays of the size of the matrix that the decomposition holds


def matrix(Q: Array, K: Array, space: str, mask: Mask) -> tuple[Array, float]:
    """Return D (n, l) in float64 and top: exp(Q Kᵀ) = e^top D, or softmax = D with top = 0.

    Under a mask, the scale e^top, or the row sums of softmax, follow from the seen entries. D also
    has the unseen entries, exp(q·k) at the same scale and at most e^700 times it: the completed
    matrix may be nearer to low rank.

    Raises
    ------
    ResourceLimitError
        D and the arrays of its decomposition would not fit into memory.
    """
    n, l = len(Q), len(K)
    arrays = ARRAYS if mask.is_full else MASKED_ARRAYS
    memory.reserve(8 * n * l * arrays, f"decomposing a dense {n}×{l} matrix", "n or l")
    if not mask.is_full:
        return _completed(Q, K, space, mask)
    return exact.scaled_kernel(Q, K) if space == "kernel" else (exact.softmax(Q, K), 0.0)


def _completed(Q: Array, K: Array, space: str, mask: Mask) -> tuple[Array, float]:
    x = np.asarray(exact.logits(Q, K), np.float64)
    seen = x.copy()
    mask.hide(seen, fill=-np.inf)
    tops = seen.max(axis=1)
    if space == "kernel":
        tops[:] = tops.max()
    np.minimum(x, tops[:, None] + MOST, out=x)
    exp_rows(x, tops)
    if space == "kernel":
        return x, float(tops[0])
    exp_rows(seen, tops)
    x /= seen.sum(axis=1, keepdims=True)
    return x, 0.0


def stripes(Q: Array, K: Array, space: str) -> tuple[Stripes, float]:
    """Return D and top as `matrix` does, with D as one stripe, or streamed if it does not fit."""
    try:
        D, top = matrix(Q, K, space, Mask.full(len(Q), len(K)))
    except memory.ResourceLimitError:
        if space == "attention":
            return Streamed(Q, K, exact.log_row_sums(Q, K)), 0.0
        tops = [float((Q[rows] @ K.T).max()) for rows in exact.stripes(len(Q), len(K))]
        return Streamed(Q, K, np.full(len(Q), max(tops))), max(tops)
    return [(slice(0, len(Q)), D)], top


def parts(
    left: Array,
    right: Array,
    sparse: scipy.sparse.csr_array | None,
    top: float,
    dtype: np.dtype[Any],
    space: str,
) -> Parts:
    """Return e^top (left rightᵀ + sparse) as `Parts` in a dtype."""
    low = Factors(left, right, np.full(len(left), top)).astype(dtype)
    addition = None if sparse is None else Addition(sparse.astype(dtype), top)
    return Parts(low, addition, space, fitted=space == "attention")


class DecompositionMethod(Method):
    """A method with estimate = L + S ≈ D for D = exp(Q Kᵀ) or its row-softmax.

    By default a budget cannot fill it. Under a mask, only the seen entries of D count, and
    row-softmax is over the seen keys.
    """

    class_name = "sparse + low rank"

    @property
    def tags(self) -> frozenset[str]:
        # it needs the dense matrix, from which rank and entries follow
        return collect(ORACLE, ADAPTIVE, ROTATION, SCALE, self.space == "attention" and SHIFT)

    @abstractmethod
    def decompose(self, D: Matrix, mask: Mask) -> Decomposition:
        """Return D as L + S, with unseen entries free."""

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        D, top = matrix(q, k, self.space, mask)
        D_hat = self.decompose(D, mask)
        return parts(D_hat.left, D_hat.right, D_hat.sparse, top, q.dtype, self.space)
