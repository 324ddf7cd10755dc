"""Sums of tensor powers Σ_i w_i (1 + x/n_i)^{n_i}, evaluated as powers."""

import dataclasses
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from approx.checks import Array
from approx.estimate.low import rescale
from approx.kernels.elementary import exp_rows
from approx.polynomials.polynomial import Polynomial
from approx.polynomials.taylor import Taylor


@dataclasses.dataclass(frozen=True, eq=False)
class Powers(Polynomial):
    """The sum Σ_i w_i (1 + x/n_i)^{n_i} of powers, whose binomial sums would cancel for x < 0."""

    weights: tuple[float, ...] = (1.0,)
    sizes: tuple[int, ...] = (1,)
    one_sided = True

    def log_bound(self, size: Array) -> Array:
        """Return log Σ |w_i| (1 + size/n_i)^{n_i}."""
        logs = [math.log(abs(w)) + n * np.log1p(size / n) for w, n in self._terms()]
        return np.asarray(np.logaddexp.reduce(logs))

    def log_size(self, x: Array) -> Array:
        """Return log Σ |w_i| max |1 + x/n_i|^{n_i}, often far below `log_bound` at |x|."""
        top, bottom = x.max(axis=1).astype(np.float64), x.min(axis=1).astype(np.float64)
        logs = []
        for w, n in self._terms():
            reach = np.maximum(1 + top / n, -1 - bottom / n)
            logs.append(math.log(abs(w)) + n * np.log(np.maximum(reach, 1e-300)))
        return np.asarray(np.logaddexp.reduce(logs))

    def scaled(self, x: Array, shift: Array) -> Array:
        """Return Σ w_i sign·exp(n_i log|1 + x/n_i| − shift), by log1p, accurate for any n_i."""
        values = np.zeros_like(x)
        for w, n in self._terms():
            ratio = x / n
            with np.errstate(divide="ignore"):
                logs = np.log1p(np.where(ratio > -1, ratio, -2 - ratio)) * n
            exp_rows(logs, np.broadcast_to(shift, len(x)))
            values += w * (np.where(ratio < -1, -logs, logs) if n % 2 else logs)
        return rescale(values, np.zeros(1), "a power")

    def in_decimals(self) -> Callable[[Any], Any]:
        terms = [(Decimal(w), n) for w, n in self._terms()]
        return lambda x: sum(w * (1 + x / n) ** n for w, n in terms)

    def _terms(self) -> list[tuple[float, int]]:
        return list(zip(self.weights, self.sizes))


def powers(weights: list[float], sizes: list[int], bound: float = math.inf) -> Powers:
    """Return Σ_i w_i (1 + x/n_i)^{n_i}, a_j = Σ_i w_i C(n_i, j)/n_i^j.

    C(n, j)/n^j is computed as Π_{i < j} (1 − i/n)/j!; logarithms of factorials would cancel.
    """
    i = np.arange(max(sizes))
    logs = np.zeros((len(sizes), len(i) + 1))
    with np.errstate(divide="ignore"):
        for row, n in zip(logs, sizes):
            row[1:] = np.log1p(-np.minimum(i / n, 1.0)).cumsum()
    series, top = Taylor(len(i)).polynomial(), logs.max(axis=0)
    twos = np.floor(top / math.log(2))
    m, e = np.frexp(series.mantissas * (np.array(weights) @ np.exp(logs - twos * math.log(2))))
    exponents = series.exponents + e + twos.astype(np.int64)
    return Powers(m, exponents, "monomial", bound, tuple(weights), tuple(sizes))


def log1p_less(x: ArrayLike) -> Array:
    """Return log(1 + x) − x, x > −1; at x/n it is log((1 + x/n)^n e^{−x})/n.

    With s = x/(2 + x) it equals s·(2(s²/3 + s⁴/5 + …) − x), which does not cancel near 0.
    """
    y = np.asarray(x, np.float64)
    small = np.abs(y) <= 0.5
    near = np.where(small, y, 0.0)
    s = near / (2 + near)
    square, tail = s * s, np.zeros_like(s)
    for k in range(37, 1, -2):
        tail = square * (1 / k + tail)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(small, s * (2 * tail - near), np.log1p(y) - y))
