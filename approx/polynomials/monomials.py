"""Compact monomial features: (Σ_j a_j x^j)(q·k) as an inner product of width C(d+n, n).

(q·k)^j = Σ_{|α|=j} (j!/Πα_i!) q^α k^α, so a polynomial with coefficients a_j is φ(q)·ψ(k) with one
feature √(|a_j| j!/Πα_i!) x^α for each monomial of degree j ≤ n. The dense tensor ⊗^j x repeats each
monomial j!/Πα_i! times: equal, but d^j wide.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
    return begin, tails


@kernel
def _monomials(X: Any, begin: Any, tails: Any, out: Any) -> None:
    for row in range(X.shape[0]):
        x = X[row]
        y = out[row]
        y[0] = 1.0
        for k in range(1, tails.shape[0]):
            position = begin[k]
            for i in range(x.size):
                for t in range(tails[k, i], begin[k]):
                    y[position] = x[i] * y[t]
                    position += 1


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


@kernel
def _weigh(begin: Any, multinomial: Any, scale: Any, out: Any) -> None:
    for row in range(out.shape[0]):
        for k in range(scale.shape[1]):
            c = scale[row, k]
            for p in range(begin[k], begin[k + 1]):
                out[row, p] *= c * multinomial[p]


def multinomials(d: int, degree: int) -> Array:
    """Return j!/Πα_i! of every monomial, in order, (C(d+degree, degree),).

    Examples
    --------
    (x_0 + x_1)² has 1, 2 and 1:

    >>> multinomials(2, 2)
    array([1., 1., 1., 1., 2., 1.])
    """
    begin, tails = layout(d, degree)
    out = np.empty(width(d, degree))
    _multinomials(begin, tails, d, out)
    return out


def features(X: Array, multinomial: Array, log_weights: Array, row_log: Array) -> Array:
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

    Notes
    -----
    Rows are scaled to unit length first and |x|^j joins the weights in log space: no overflow.
    """
    degree, d = len(log_weights) - 1, X.shape[1]
    begin, tails = layout(d, degree)
    length = np.sqrt(np.einsum("id,id->i", X, X, dtype=np.float64))
    unit = X / np.where(length > 0, length, 1.0).astype(X.dtype)[:, None]
    scale = np.exp(log_powers(length, 0.5 * log_weights) - row_log[:, None])
    out = np.empty((len(X), int(begin[-1])), X.dtype)
    _monomials(np.ascontiguousarray(unit), begin, tails, out)
    _weigh(begin, np.sqrt(multinomial).astype(X.dtype), scale.astype(X.dtype), out)
    return out


def log_powers(length: Array, log_weights: Array) -> Array:
    """Return log(w_j·length^j), (rows, degree + 1); 0^0 is 1."""
    degrees = np.arange(len(log_weights))
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(degrees == 0, 0.0, degrees * np.log(length)[:, None])
    return np.asarray(powers + log_weights)
