"""What every polynomial of the logits shares as a method."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

from numpy.typing import ArrayLike

from approx import memory
from approx.base import Approximation, Method, Rng
from approx.polynomials.monomials import width
from approx.polynomials.series import Elementwise, Series


class PolynomialMethod(Method):
    """An estimate p(q·k); its price is that of C(d+n, n) monomials even where it is elementwise."""

    deterministic: ClassVar[bool] = True

    @abstractmethod
    def series(self) -> Series:
        """Return the polynomial p."""

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return p(Q Kᵀ)."""
        q, k = self.checked(Q, K)
        degree = int(getattr(self, self.size_field or ""))
        memory.reserve(8 * 8 * (degree + 1), f"the coefficients of {self}", "the degree")
        return Approximation(Elementwise(q, k, self.series()))

    def price(self, *, n: int, l: int, d: int) -> float | None:
        """Return C(d+degree, degree)·(n + l)/n."""
        field = self.size_field
        degree = None if field is None else getattr(self, field)
        if degree is None:
            return None
        try:
            return width(d, degree) * (n + l) / n
        except OverflowError:
            return math.inf
