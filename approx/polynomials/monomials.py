"""Compact monomial features: (Σ_j a_j x^j)(q·k) as an inner product of width C(d+n, n).

(q·k)^j = Σ_{|α|=j} (j!/Πα_i!) q^α k^α, so a polynomial with coefficients a_j is φ(q)·ψ(k) with one
feature √(|a_j| j!/Πα_i!) x^α for each monomial of degree j ≤ n. The dense tensor ⊗^j x repeats each
monomial j!/Πα_i! times: equal, but d^j wide.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from approx import checks
from approx._jit import kernel
from approx.checks import Array


def width(d: int, degree: int) -> int:
    """Return C(d + degree, degree), the number of monomials of degree ≤ ``degree``.

    Examples
    --------
    >>> width(64, 2)
    2145
    """
    return math.comb(d + degree, degree)


ROWS = 8  # of which one ratio is read once


@functools.lru_cache(64)
def layout(d: int, degree: int) -> tuple[Array, Array]:
    """Return where degrees begin, (degree + 2,), and where tails do, (degree + 1, d).

    Monomials of degree k are, for i = 0…d−1, x_i times those of degree k − 1 whose smallest index
    is ≥ i: a contiguous tail, which begins at ``tails[k, i]``.
    """
    begin = np.array([0] + [width(d, k) for k in range(degree + 1)], dtype=np.int64)
    tails = np.zeros((degree + 1, d), dtype=np.int64)
    for k in range(1, degree + 1):
        for i in range(d):
            tails[k, i] = begin[k] - math.comb(d - i + k - 2, k - 1)
    begin.flags.writeable = tails.flags.writeable = False  # one for all who ask
    return begin, tails


@kernel
def _features(X: Any, begin: Any, tails: Any, multinomial: Any, scale: Any, out: Any) -> None:
    # A feature is x_i times one of the degree below, and so is its weight: |weighted| ≤ 1. Those of
    # the last degree, which are most, are written once. Slices tell the compiler what overlaps.
    last = tails.shape[0] - 1
    ratio = np.empty(out.shape[1], out.dtype)
    for k in range(1, last + 1):
        position = begin[k]
        for i in range(X.shape[1]):
            for t in range(tails[k, i], begin[k]):
                ratio[position] = np.sqrt(multinomial[position] / multinomial[t])
                position += 1
    for start in range(0, X.shape[0], ROWS):
        stop = min(start + ROWS, X.shape[0])
        out[start:stop, 0] = 1.0
        for k in range(1, last + 1):
            position = begin[k]
            for i in range(X.shape[1]):
                size = begin[k] - tails[k, i]
                r = ratio[position : position + size]
                for row in range(start, stop):
                    tail = out[row, tails[k, i] : begin[k]]
                    product = out[row, position : position + size]
                    c = X[row, i] * scale[row, k] if k == last else X[row, i]
                    for t in range(size):
                        product[t] = c * r[t] * tail[t]
                position += size
        for row in range(start, stop):
            for k in range(max(last, 1)):
                block = out[row, begin[k] : begin[k + 1]]
                c = scale[row, k]
                for p in range(block.size):
                    block[p] *= c


@kernel
def _multinomials(begin: Any, tails: Any, d: int, out: Any) -> None:
    smallest = np.full(out.size, d)  # smallest index of a monomial, and its exponent
    exponent = np.zeros(out.size, dtype=np.int64)
    out[0] = 1.0
    for k in range(1, tails.shape[0]):
        position = begin[k]
        for i in range(d):
            for t in range(tails[k, i], begin[k]):
                repeats = exponent[t] if smallest[t] == i else 0
                out[position] = out[t] * k / (repeats + 1)
                smallest[position] = i
                exponent[position] = repeats + 1
                position += 1


def multinomials(d: int, degree: int) -> Array:
    """Return j!/Πα_i! of every monomial, in order, (C(d+degree, degree),).

    Raises
    ------
    OverflowError
        One, or its product with the degree, is above 1.8e308.

    Examples
    --------
    (x_0 + x_1)² has 1, 2 and 1:

    >>> multinomials(2, 2)
    array([1., 1., 1., 1., 2., 1.])
    """
    begin, tails = layout(d, degree)
    out = np.empty(width(d, degree))
    _multinomials(begin, tails, d, out)
    if not np.isfinite(out).all():
        raise OverflowError(
            f"multinomials of degree {degree} in {d} dimensions are too large: use block or @"
        )
    return out


def features(
    X: Array,
    multinomial: Array,
    log_weights: Array,
    row_log: Array,
    *,
    out: Array | None = None,
) -> Array:
    """Return e^{−row_log} √(|a_j|·j!/Πα_i!) x^α for every monomial, (rows, width).

    Parameters
    ----------
    X : (rows, d)
    multinomial : (width,)
        From `multinomials`.
    log_weights : (degree + 1,)
        log |a_j|; −inf where a_j = 0.
    row_log : (rows,)
        Scale taken out of each row.
    out : (rows, width), optional
        Where to write, C-contiguous and of the dtype of X. A new array costs as much as its
        numbers; a tile of rows that is used again and again costs less than either.

    Raises
    ------
    ValueError
        ``out`` does not fit.

    Notes
    -----
    Rows are scaled to unit length first and |x|^j joins the weights in log space: no overflow.
    """
    degree, d = len(log_weights) - 1, X.shape[1]
    begin, tails = layout(d, degree)
    length = np.sqrt(np.einsum("id,id->i", X, X, dtype=np.float64))
    unit = X / np.where(length > 0, length, 1.0).astype(X.dtype)[:, None]
    scale = np.exp(log_powers(length, 0.5 * log_weights) - row_log[:, None])
    out = checks.out(out, (len(X), int(begin[-1])), X.dtype)
    scale = scale.astype(X.dtype)
    _features(np.ascontiguousarray(unit), begin, tails, multinomial, scale, out)
    return out


def log_powers(length: Array, log_weights: Array) -> Array:
    """Return log(w_j·length^j), (rows, degree + 1); 0^0 is 1."""
    degrees = np.arange(len(log_weights))
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(degrees == 0, 0.0, degrees * np.log(length)[:, None])
    return np.asarray(powers + log_weights)
