"""Kernel errors of a polynomial at every order and every temperature, from one product Q Kᵀ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from approx import checks, exact
from approx._exp import exp
from approx._jit import summing_kernel
from approx.checks import Array
from approx.polynomials.polynomial import Polynomial
from approx.threads import one_thread

LANES = 512  # logits at a time: what belongs to them stays in the nearest cache


@summing_kernel
def _squares(
    x: Any, scales: Any, top: Any, unit: Any, inverse: Any, damping: Any, powers: bool,
    terms: Any, truth: Any, difference: Any,
) -> None:  # fmt: skip
    # truth[m, i] += Σ_j v_j², v = e^{x s − top}; difference[m, i, k] += Σ_j (p_k(x s) − v_j unit)²
    e, t, y = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    term, before = np.empty(LANES), np.empty(LANES)
    for i in range(x.shape[0]):
        for start in range(0, x.shape[1], LANES):
            row = x[i, start : start + LANES]
            for m in range(scales.size):
                a, b, r = terms[m, i], unit[m, i], damping[m, i]
                total, first = 0.0, 0.0
                for j in range(row.size):
                    u = row[j] * scales[m]
                    value = exp(u - top[m, i])
                    total += value * value
                    e[j] = value * b
                    t[j] = u * inverse[m, i]
                    term[j] = 1.0
                    y[j] = a[0] - e[j]
                    first += y[j] * y[j]
                truth[m, i] += total
                difference[m, i, 0] += first
                before[:] = 0.0
                for k in range(1, a.size):
                    c, square = a[k], 0.0
                    if powers:
                        for j in range(row.size):
                            term[j] *= t[j]
                            y[j] += c * term[j]
                            square += y[j] * y[j]
                        difference[m, i, k] += square
                        continue
                    step = 1.0 if k == 1 else 2.0
                    for j in range(row.size):
                        phi = step * t[j] * term[j] - r * before[j]
                        before[j] = term[j]
                        term[j] = phi
                        y[j] += c * phi
                        square += y[j] * y[j]
                    difference[m, i, k] += square


def order_errors(
    polynomial: Polynomial, Q: ArrayLike, K: ArrayLike, *, temperatures: Sequence[float] = (1.0,)
) -> Array:
    """Return ‖p_k(Q Kᵀ/t) − exp(Q Kᵀ/t)‖_F / ‖exp(Q Kᵀ/t)‖_F of every order and temperature.

    Parameters
    ----------
    polynomial : Polynomial
        p_k is its sum up to order k: Taylor polynomials, or truncations of a Chebyshev series.
    Q, K : (n, d), (l, d)
    temperatures : sequence of float

    Returns
    -------
    (temperatures, degree + 1)
        inf where an error is above 1.8e308.

    Notes
    -----
    `analysis.metrics.compare` gives the same number for one estimate among all others. Here each
    logit is exponentiated once a temperature, and each order costs a few operations more. Sums
    and products are in float64, every row at a scale of its own.

    Examples
    --------
    >>> from approx.polynomials.taylor import Taylor
    >>> order_errors(Taylor(degree=2).polynomial(), [[1.0]], [[1.0]]).round(3)  # 1, 2, 2.5 for e
    array([[0.632, 0.264, 0.08 ]])
    """
    checks.instance("polynomial", polynomial, Polynomial, "a Polynomial")
    q, k = (np.asarray(x, np.float64) for x in checks.queries_keys(Q, K))
    scales = np.array([1 / checks.positive("temperatures", t) for t in temperatures])
    shape = len(scales), len(q)
    truth, difference = np.zeros(shape), np.zeros((*shape, polynomial.degree + 1))
    tops, shifts = np.empty(shape), np.empty(shape)
    powers = polynomial.basis == "monomial"
    with one_thread():
        for rows in exact.stripes(len(q), len(k)):
            x = q[rows] @ k.T
            top = x.max(axis=1)
            size = np.maximum(top, -x.min(axis=1))
            parts = []
            for m, s in enumerate(scales):
                tops[m, rows] = top * s
                shifts[m, rows] = np.maximum(top * s, polynomial.log_bound(size * s))
                parts.append(polynomial.scaled_terms((size * s)[:, None], shifts[m, rows]))
            terms, inverse, damping = (np.stack(part) for part in zip(*parts))
            unit = np.exp(tops[:, rows] - shifts[:, rows])
            _squares(
                x, scales, tops[:, rows], unit, inverse, damping, powers, terms,
                truth[:, rows], difference[:, rows],
            )  # fmt: skip
    with np.errstate(divide="ignore", over="ignore"):
        log_truth = np.logaddexp.reduce(np.log(truth) + 2 * tops, axis=1)
        logs = np.log(difference) + 2 * shifts[:, :, None]
        error = np.exp((np.logaddexp.reduce(logs, axis=1) - log_truth[:, None]) / 2)
    return np.asarray(error)
