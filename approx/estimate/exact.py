"""The exact logits, exp(q·k), row sums and softmax attention, streamed by row stripes."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.estimate import masks, memory
from approx.estimate.masks import Mask, MaskLike
from approx.kernels.elementary import exp_rows

STRIPE = 5 * 2**18  # entries: 10.5 MB in float64; products of stripes with fewer rows are slower


def stripes(n: int, l: int) -> Iterator[slice]:
    """Yield slices of rows of a height that depends on l only, so that all sum in one order."""
    for start in range(0, n, height(l)):
        yield slice(start, min(start + height(l), n))


def height(l: int) -> int:
    """Return the number of rows of a stripe."""
    return max(1, STRIPE // max(l, 1))


def logits(Q: ArrayLike, K: ArrayLike) -> Array:
    """Return Q Kᵀ, (n, l).

    Accuracy: 2 eps·κ, as docs/accuracy.md defines it.
    """
    q, k = checks.queries_keys(Q, K)
    memory.reserve(len(q) * len(k) * q.itemsize, "the logits", "n or l")
    return q @ k.T


def kernel(Q: ArrayLike, K: ArrayLike) -> Array:
    """Return exp(Q Kᵀ), (n, l).

    Accuracy: 3 eps·κ, as docs/accuracy.md defines it.

    Raises
    ------
    OverflowError
        An entry is not representable; the message has the largest logit.

    Examples
    --------
    >>> kernel([[1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]])
    array([[1.        , 2.71828183]])
    """
    x = logits(Q, K)
    if (top := float(x.max())) > math.log(np.finfo(x.dtype).max):
        raise OverflowError(
            f"exp(q·k) is not representable in {x.dtype}: the largest logit is {top:.6g}. "
            "Use attention or log_row_sums, which do not overflow"
        )
    exp_rows(x, np.zeros(len(x), x.dtype))
    return x


def scaled_kernel(Q: Array, K: Array, mask: MaskLike = None) -> tuple[Array, float]:
    """Return D in float64 and top, with e^top D = exp(Q Kᵀ), 0 where unseen, and max D = 1."""
    x = np.asarray(logits(Q, K), np.float64)
    masks.as_mask(mask, *x.shape).hide(x, fill=-np.inf)
    top = float(x.max())
    exp_rows(x, np.full(len(x), top))
    return x, top


def softmax(Q: Array, K: Array, mask: MaskLike = None) -> Array:
    """Return softmax(Q Kᵀ) over the keys that each query sees, (n, l), in float64.

    Accuracy: 3 eps·κ, as docs/accuracy.md defines it.
    """
    return row_shares(logits(Q, K), mask)


def row_shares(x: Array, mask: MaskLike = None) -> Array:
    """Return the row-softmax of logits (n, l) over the keys that each query sees, in float64."""
    x = np.array(x, np.float64)
    masks.as_mask(mask, *x.shape).hide(x, fill=-np.inf)
    exp_rows(x, x.max(axis=1))
    x /= x.sum(axis=1, keepdims=True)
    return x


def log_row_sums(Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None) -> Array:
    """Return log Σ_j exp(q_i·k_j) over the keys that query i sees, (n,), float64, streamed.

    Accuracy: 3 eps·κ, as docs/accuracy.md defines it.
    """
    q, k = (np.asarray(x, np.float64) for x in checks.queries_keys(Q, K))
    seen = masks.as_mask(mask, len(q), len(k))
    out = np.empty(len(q))
    for rows in stripes(len(q), len(k)):
        x = seen_logits(q, k, seen, rows)
        top = x.max(axis=1)
        exp_rows(x, top)
        out[rows] = top + np.log(x.sum(axis=1))
    return out


def attention(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, *, mask: MaskLike = None, sink: float = -math.inf
) -> Array:
    """Return softmax(Q Kᵀ) V, (n, c), streamed: no n×l array is allocated.

    Accuracy: 4 eps·κ, as docs/accuracy.md defines it.

    Parameters
    ----------
    mask : None, "causal" or Mask
        The keys that each query sees; None means all keys.
    sink : float
        The logit of an attention sink, whose e^sink is part of every row sum.

    Examples
    --------
    >>> attention([[0.0], [0.0]], [[1.0], [1.0]], [[1.0], [3.0]], mask="causal")
    array([[1.],
           [2.]])
    """
    q, k = checks.queries_keys(Q, K)
    v = checks.values(V, len(k))
    seen, sink = masks.as_mask(mask, len(q), len(k)), checks.sink(sink)
    out = np.empty((len(q), *v.shape[1:]), np.result_type(q, v))
    for rows in stripes(len(q), len(k)):
        x = seen_logits(q, k, seen, rows)
        top = np.maximum(x.max(axis=1), sink)
        exp_rows(x, top)
        y = x @ v[seen.span(rows)]
        total = x.sum(axis=1) + np.exp(sink - top)
        out[rows] = y / (total[:, None] if v.ndim == 2 else total)
    return out


def seen_logits(q: Array, k: Array, mask: Mask, rows: slice) -> Array:
    """Return q·k for some rows and the keys in their `Mask.span`; −inf where unseen.

    Accuracy: 2 eps·κ, as docs/accuracy.md defines it.
    """
    cols = mask.span(rows)
    x = q[rows] @ k[cols].T
    mask.hide(x, rows, cols, fill=-np.inf)
    return x
