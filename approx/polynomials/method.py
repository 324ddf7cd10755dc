"""What every polynomial of the logits shares as a method."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from approx import checks, exact, memory
from approx.approximation import Approximation
from approx.checks import Array
from approx.method import Method, Rng
from approx.polynomials.elementwise import Elementwise
from approx.polynomials.monomials import width
from approx.polynomials.polynomial import Polynomial

LEAST_BOUND = 2.0**-20  # of the smallest interval to which a polynomial is fitted
MOST_BOUND = 2.0**50  # of the largest one: beyond it, no digit of e^x is left in float64


class PolynomialMethod(Method):
    """An estimate p(q·k); its price is that of C(d+n, n) monomials even where it is elementwise."""

    deterministic: ClassVar[bool] = True

    @abstractmethod
    def polynomial(self, bound: float) -> Polynomial:
        """Return the polynomial p, for logits in [−bound, bound]."""

    def fitted(self, Q: Array, K: Array) -> Polynomial:
        """Return the polynomial for these inputs."""
        return self.polynomial(math.inf)

    def highest_power(self) -> int | None:
        """Return the degree of p; None for a template."""
        degree: int | None = getattr(self, self.size_field or "")
        return degree

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return p(Q Kᵀ)."""
        q, k = self.checked(Q, K)
        terms = (self.highest_power() or 0) + 1
        memory.reserve(8 * 8 * terms, f"the coefficients of {self}", "the degree")
        return Approximation(Elementwise(q, k, self.fitted(q, k)))

    def price(self, *, n: int, l: int, d: int) -> float | None:
        """Return C(d+degree, degree)·(n + l)/n."""
        degree = self.highest_power()
        if degree is None:
            return None
        try:
            return width(d, degree) * (n + l) / n
        except OverflowError:
            return math.inf


class IntervalMethod(PolynomialMethod):
    """A polynomial made for an interval [−B, B], by default that of the logits."""

    size_field: ClassVar[str | None] = "degree"

    degree: int | None
    bound: float | None

    def __post_init__(self) -> None:
        if self.degree is not None:
            object.__setattr__(self, "degree", checks.integer("degree", self.degree, least=0))
        if self.bound is not None:
            bound = checks.positive("bound", self.bound, most=checks.MOST_LOGIT)
            object.__setattr__(self, "bound", bound)

    def fitted(self, Q: Array, K: Array) -> Polynomial:
        """Return the polynomial for B = ``bound``, or the largest |q·k|."""
        return self.polynomial(self.bound or largest_logit(Q, K))


def largest_logit(Q: Array, K: Array) -> float:
    """Return max |q·k|, by stripes; at least 2^−20 and at most 2^50, for an interval."""
    tops = [float(np.abs(Q[rows] @ K.T).max()) for rows in exact.stripes(len(Q), len(K))]
    return min(max(*tops, LEAST_BOUND), MOST_BOUND)
