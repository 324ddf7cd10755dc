"""Kernel errors of a polynomial at every order and every temperature, from one product Q Kᵀ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.estimate import masks
from approx.estimate.masks import Mask, MaskLike
from approx.kernels.elementary import exp
from approx.kernels.jit import summing_kernel
from approx.kernels.threads import one_thread
from approx.polynomials.polynomial import Polynomial

LANES = 512  # logits at a time: their arrays stay in the nearest cache
STRIPE = 2**19  # logits of one product, whose terms are scaled together


@summing_kernel
def _squares(
    x: Any, begin: Any, end: Any, scales: Any, top: Any, unit: Any, inverse: Any, damping: Any,
    powers: bool, terms: Any, truth: Any, difference: Any,
) -> None:  # fmt: skip
    # over begin_i ≤ j < end_i:
    # truth[m, i] += Σ_j v_j², v = e^{x s − top}; difference[m, i, k] += Σ_j (p_k(x s) − v_j unit)²
    t, y = np.empty(LANES), np.empty(LANES)
    term, before = np.empty(LANES), np.empty(LANES)
    for i in range(x.shape[0]):
        for start in range(begin[i], end[i], LANES):
            row = x[i, start : min(start + LANES, end[i])]
            for m in range(scales.size):
                a, b, r = terms[m, i], unit[m, i], damping[m, i]
                total, first = 0.0, 0.0
                for j in range(row.size):
                    u = row[j] * scales[m]
                    value = exp(u - top[m, i])
                    total += value * value
                    t[j] = u * inverse[m, i]
                    term[j] = 1.0
                    y[j] = a[0] - value * b
                    first += y[j] * y[j]
                truth[m, i] += total
                difference[m, i, 0] += first
                if powers:  # two orders per pass
                    for k in range(1, a.size, 2):
                        c, d, odd, even = a[k], a[k + 1], 0.0, 0.0
                        for j in range(row.size):
                            power = term[j] * t[j]
                            partial = y[j] + c * power
                            odd += partial * partial
                            power *= t[j]
                            partial += d * power
                            even += partial * partial
                            term[j], y[j] = power, partial
                        difference[m, i, k] += odd
                        difference[m, i, k + 1] += even
                    continue
                before[:] = 0.0
                for k in range(1, a.size):
                    c, square = a[k], 0.0
                    step = 1.0 if k == 1 else 2.0
                    for j in range(row.size):
                        phi = step * t[j] * term[j] - r * before[j]
                        before[j] = term[j]
                        term[j] = phi
                        y[j] += c * phi
                        square += y[j] * y[j]
                    difference[m, i, k] += square


def _logits(q: Array, kt: Array, mask: Mask) -> Iterator[tuple[slice, Array, Array, Array]]:
    """Yield rows, their logits in a reused array, the largest logit and |logit| that are seen."""
    height = max(1, STRIPE // kt.shape[1])
    buffer = np.empty((min(height, len(q)), kt.shape[1]))
    for start in range(0, len(q), height):
        rows = slice(start, min(start + height, len(q)))
        x = np.matmul(q[rows], kt, out=buffer[: rows.stop - start])
        mask.hide(x, rows, fill=-np.inf)
        top = x.max(axis=1)
        mask.hide(x, rows, fill=np.inf)
        yield rows, x, top, np.maximum(top, -x.min(axis=1))


def order_errors(
    polynomial: Polynomial,
    Q: ArrayLike,
    K: ArrayLike,
    *,
    mask: MaskLike = None,
    temperatures: Sequence[float] = (1.0,),
) -> Array:
    """Return ‖p_k(Q Kᵀ/t) − exp(Q Kᵀ/t)‖_F / ‖exp(Q Kᵀ/t)‖_F of every order k and t.

    Accuracy: 8 eps.

    Parameters
    ----------
    polynomial : Polynomial
        p_k is its sum up to order k: a Taylor polynomial or a truncated Chebyshev series.
    Q, K : (n, d), (l, d)
    mask : None, "causal" or Mask
        What each query sees; None is every key.
    temperatures : sequence of float

    Returns
    -------
    (temperatures, degree + 1)
        inf where an error is above 1.8e308.

    Notes
    -----
    `analysis.errors.metrics.compare` gives the same number for one estimate, among others. Here
    each logit is exponentiated once per temperature, and each order costs only a few operations
    more. Sums and products are in float64, and every row has its own scale.

    Examples
    --------
    >>> from approx.polynomials.taylor import Taylor
    >>> order_errors(Taylor(degree=2).polynomial(), [[1.0]], [[1.0]]).round(3)  # 1, 2, 2.5 for e
    array([[0.632, 0.264, 0.08 ]])
    """
    checks.instance("polynomial", polynomial, Polynomial, "a Polynomial")
    q, k = (np.asarray(x, np.float64) for x in checks.queries_keys(Q, K))
    seen = masks.of(mask, len(q), len(k))
    scales = np.array([1 / checks.positive("temperatures", t) for t in temperatures])
    if not len(scales):
        raise ValueError("temperatures must not be empty")
    shape = len(scales), len(q)
    powers, orders = polynomial.basis == "monomial", polynomial.degree + 1
    odd = int(
        powers and orders % 2 == 0
    )  # another order of coefficient 0 makes the last one a pair
    truth, difference = np.zeros(shape), np.zeros((*shape, orders + odd))
    tops, shifts = np.empty(shape), np.empty(shape)
    kt = np.ascontiguousarray(k.T)  # BLAS packs it faster for each stripe
    with one_thread():
        for rows, x, top, size in _logits(q, kt, seen):
            tops[:, rows] = np.multiply.outer(scales, top)
            sizes = np.multiply.outer(scales, size).ravel()
            shift = np.maximum(tops[:, rows].ravel(), polynomial.log_bound(sizes))
            shifts[:, rows] = shift.reshape(len(scales), -1)
            scaled = polynomial.scaled_terms(sizes[:, None], shift)
            terms, inverse, damping = (
                part.reshape(len(scales), len(top), *part.shape[1:]) for part in scaled
            )
            if odd:
                terms = np.pad(terms, ((0, 0), (0, 0), (0, 1)))
            unit = np.exp(tops[:, rows] - shifts[:, rows])
            _squares(
                x, seen.first[rows], seen.stop[rows], scales, tops[:, rows], unit, inverse, damping,
                powers, terms, truth[:, rows], difference[:, rows],
            )  # fmt: skip
    with np.errstate(divide="ignore", over="ignore"):
        log_truth = np.logaddexp.reduce(np.log(truth) + 2 * tops, axis=1)
        logs = np.log(difference[:, :, :orders]) + 2 * shifts[:, :, None]
        error = np.exp((np.logaddexp.reduce(logs, axis=1) - log_truth[:, None]) / 2)
    return np.asarray(error)
