"""Compact monomial features: (Σ_j a_j x^j)(q·k) as an inner product of width C(d+n, n).

(q·k)^j = Σ_{|α|=j} (j!/Πα_i!) q^α k^α, so a polynomial with coefficients a_j is φ(q)·ψ(k) with one
feature √(|a_j| j!/Πα_i!) x^α for each monomial of degree j ≤ n. The dense tensor ⊗^j x repeats each
monomial j!/Πα_i! times: it has the same inner products, but is d^j wide.
"""

import functools
import math
from typing import Any

import numpy as np

from approx import checks
from approx.checks import Array
from approx.estimate import memory
from approx.kernels.jit import kernel


def width(d: int, degree: int) -> int:
    """Return C(d + degree, degree), the number of monomials of degree ≤ ``degree``."""
    d, degree = checks.integer("d", d, least=0), checks.integer("degree", degree, least=0)
    return math.comb(d + degree, degree)


def layout(d: int, degree: int) -> tuple[Array, Array]:
    """Return the offsets of the degrees, (degree + 2,), and of the tails, (degree + 1, d).

    The monomials of degree k are, for i = 0…d−1, x_i times the monomials of degree k − 1 whose
    smallest index is ≥ i. The latter are a contiguous tail, which begins at ``tails[k, i]``.

    Raises
    ------
    ResourceLimitError
        One number per monomial would not fit into memory.
    """
    d, degree = checks.integer("d", d, least=1), checks.integer("degree", degree, least=0)
    memory.reserve(8 * width(d, degree), "the monomials of a row", "d or degree")
    return _layout(d, degree)


@functools.lru_cache(64)
def _layout(d: int, degree: int) -> tuple[Array, Array]:
    begin = np.array([0] + [width(d, k) for k in range(degree + 1)], dtype=np.int64)
    tails = np.zeros((degree + 1, d), dtype=np.int64)
    for k in range(1, degree + 1):
        for i in range(d):
            tails[k, i] = begin[k] - math.comb(d - i + k - 2, k - 1)
    begin.flags.writeable = tails.flags.writeable = False  # all callers share the arrays
    return begin, tails


@kernel
def _features_of(x: Any, begin: Any, tails: Any, roots: Any, scale: Any, out: Any) -> None:
    # A feature is x_i times a feature of the degree below, and its weight a ratio times the other's
    # weight: |weighted| ≤ 1. The last degree has the most features, which are written only once.
    # Slices tell the compiler what overlaps.
    last = tails.shape[0] - 1
    out[0] = 1.0
    for k in range(1, last + 1):
        position = begin[k]
        for i in range(x.size):
            tail = out[tails[k, i] : begin[k]]
            size = begin[k] - tails[k, i]
            product = out[position : position + size]
            r = roots[position : position + size]
            c = x[i] * scale[k] if k == last else x[i]
            for t in range(size):
                product[t] = c * r[t] * tail[t]
            position += size
    for k in range(max(last, 1)):
        block = out[begin[k] : begin[k + 1]]
        c = scale[k]
        for p in range(block.size):
            block[p] *= c


@kernel
def _features(X: Any, begin: Any, tails: Any, roots: Any, scale: Any, out: Any) -> None:
    for row in range(X.shape[0]):
        _features_of(X[row], begin, tails, roots, scale[row], out[row])


def root_ratios(d: int, degree: int) -> Array:
    """Return √(j/α_i) for every monomial x^α of degree j and smallest index i, in order.

    The multinomial weight j!/Πα_l! of x^α is j/α_i times the weight of x^α/x_i. So the root of the
    weight grows by these factors from one degree to the next. The constant monomial has 1.
    """
    begin, tails = layout(d, degree)
    exponent = np.zeros(int(begin[-1]))  # of the smallest index
    ratios = np.ones_like(exponent)
    for k in range(1, degree + 1):
        position = int(begin[k])
        for i, first in enumerate(tails[k]):
            size = int(begin[k] - first)
            again = int((tails[k, i + 1] if i + 1 < d else begin[k]) - first)  # these contain x_i
            exponent[position : position + size] = 1.0
            exponent[position : position + again] += exponent[first : first + again]
            position += size
        ratios[begin[k] : position] = np.sqrt(k / exponent[begin[k] : position])
    return ratios


def keeps_digits(d: int, degree: int, dtype: Any) -> bool:
    """Return whether `features` of unit vectors at this degree are accurate to a few roundings.

    The weighted monomials of the last indices are computed first and may be subnormal, with an
    error of the least number. The weights and powers of the other indices multiply this error by at
    most √C(j, b) ≤ 2^{j/2}. It stays below ε while j ≤ 2 log₂(ε/least), which is 252 in float32 and
    2044 in float64.
    """
    kind = np.finfo(dtype)
    return d == 1 or degree <= 2 * math.log2(kind.eps) - 2 * math.log2(kind.smallest_subnormal)


def features(
    X: Array,
    roots: Array,
    log_weights: Array,
    row_log: Array,
    *,
    out: Array | None = None,
) -> Array:
    """Return e^{−row_log} √(|a_j|·j!/Πα_i!) x^α for every monomial, (rows, width).

    Parameters
    ----------
    X : (rows, d)
    roots : (width,)
        From `root_ratios`.
    log_weights : (degree + 1,)
        log |a_j|, which is −inf where a_j = 0.
    row_log : (rows,)
        Log of the scale by which each row is divided.
    out : (rows, width), optional
        The array to write to, C-contiguous and of the dtype of X. Allocating a new array takes as
        long as computing its numbers; reusing one tile of rows is cheaper.

    Raises
    ------
    ValueError
        ``out`` has another shape or dtype.
    OverflowError
        The degree is too high for the dtype, according to `keeps_digits`.

    Notes
    -----
    Rows are first scaled to unit length, and |x|^j joins the weights in log space, so nothing
    overflows.
    """
    degree, d = len(log_weights) - 1, X.shape[1]
    if not keeps_digits(d, degree, X.dtype):
        raise OverflowError(
            f"monomials of degree {degree} in {d} dimensions lose their digits in {X.dtype}: "
            "use block or @"
        )
    begin, tails = layout(d, degree)
    length = np.sqrt(np.einsum("id,id->i", X, X, dtype=np.float64))
    unit = X / np.where(length > 0, length, 1.0).astype(X.dtype)[:, None]
    scale = np.exp(log_powers(length, 0.5 * log_weights) - row_log[:, None])
    out = checks.out(out, (len(X), int(begin[-1])), X.dtype)
    scale = scale.astype(X.dtype)
    weights = roots.astype(X.dtype, copy=False)
    _features(np.ascontiguousarray(unit), begin, tails, weights, scale, out)
    return out


def log_powers(length: Array, log_weights: Array) -> Array:
    """Return log(w_j·length^j), (rows, degree + 1), where 0^0 is 1."""
    degrees = np.arange(len(log_weights))
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(degrees == 0, 0.0, degrees * np.log(length)[:, None])
    return np.asarray(powers + log_weights)
