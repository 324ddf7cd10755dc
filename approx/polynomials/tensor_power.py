"""The tensor power (1 + x/n)^n, the limit definition of exp."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from approx import checks
from approx._exp import exp_rows
from approx.checks import Array
from approx.parts import rescale
from approx.polynomials.method import PolynomialMethod
from approx.polynomials.series import Series


@dataclasses.dataclass(frozen=True)
class TensorPower(PolynomialMethod):
    """Tensor power of exp, deterministic and biased.

    p_n(q·k) = (1 + q·k/n)^n = ⟨⊗ⁿ(1, q/√n), ⊗ⁿ(1, k/√n)⟩

    Parameters
    ----------
    n : int, optional
        Power, ≥ 1; None is a template.

    Notes
    -----
    Error: p_n(x) = e^x (1 − x²/(2n) + O(n^{−2})); 0 ≤ p_n ≤ e^x on [−n, ∞), and below −n the power
    grows again: positive for even n, negative for odd n. For x ≥ 0, p_n ≤ T_n ≤ e^x: Taylor is
    the better polynomial of the same width.
    Rank: min(rows, keys, C(d+n, n)) for generic Q, K; the dense tensors are (d+1)^n wide.
    Cost: elementwise 2d operations, a logarithm and an exponential an entry.

    Examples
    --------
    >>> TensorPower(n=2).approximate([[1.0]], [[2.0]]).to_dense()
    array([[4.]])
    """

    name: ClassVar[str] = "tensor_power"
    size_field: ClassVar[str | None] = "n"

    n: int | None = None

    def __post_init__(self) -> None:
        if self.n is not None:
            n = checks.integer("n", self.n, least=1)
            object.__setattr__(self, "n", n)

    def series(self) -> Series:
        """Return a_j = C(n, j)/n^j, and the power itself for elementwise use."""
        n = self.n or 1
        j = np.arange(n + 1)
        logs = gammaln(n + 1.0) - gammaln(j + 1.0) - gammaln(n - j + 1.0) - j * math.log(n)
        return Power(logs, np.ones(n + 1))


class Power(Series):
    """(1 + x/n)^n, evaluated as such: its binomial sum would cancel for x < 0."""

    one_sided: ClassVar[bool] = True

    def log_bound(self, size: Array) -> Array:
        """Return n log(1 + size/n)."""
        return np.asarray(self.degree * np.log1p(size / self.degree))

    def log_size(self, x: Array) -> Array:
        """Return n log max |1 + x/n|: of p itself, which may be far below its bound at |x|."""
        n = self.degree
        top, bottom = x.max(axis=1).astype(np.float64), x.min(axis=1).astype(np.float64)
        reach = np.maximum(1 + top / n, -1 - bottom / n)
        return np.asarray(n * np.log(np.maximum(reach, 1e-300)))

    def scaled(self, x: Array, shift: Array) -> Array:
        """Return sign·exp(n log|1 + x/n| − shift), with log1p: accurate for any n."""
        n = self.degree
        ratio = x / n
        with np.errstate(divide="ignore"):
            logs = np.log1p(np.where(ratio > -1, ratio, -2 - ratio)) * n
        exp_rows(logs, np.broadcast_to(shift, len(x)))
        values = np.where(ratio < -1, -logs, logs) if n % 2 else logs
        return rescale(values, np.zeros(1), "a power")
