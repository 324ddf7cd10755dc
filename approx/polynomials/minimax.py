"""The best polynomial of exp on an interval, in the largest relative or absolute error."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from approx.fields import one_of
from approx.polynomials.method import IntervalMethod
from approx.polynomials.polynomial import Polynomial
from approx.polynomials.remez import remez


@dataclasses.dataclass(frozen=True)
class Minimax(IntervalMethod):
    """Minimax polynomial of exp on [−B, B] by the Remez exchange, deterministic and biased.

    argmin_p max_{|x| ≤ B} |p(x) − e^x|/e^x, or without the denominator

    Parameters
    ----------
    degree : int, optional
        n ≥ 0; None is a template.
    bound : float, optional
        B > 0; the largest |q·k| of the inputs where None. Beyond B nothing is promised: the
        relative error at ±3 standard deviations often serves attention better than at the maximum.
    weight : {"relative", "absolute"}

    Notes
    -----
    Error: the level of `remez`, reached n + 2 times with alternating signs, so no polynomial of
    this degree is better (exact). Evaluation in float64 rounds by eps·e^{2B} relative to e^{−B}.
    All a_j > 0 for the relative weight in every tested case up to B = 8, not at B = 16; with the
    absolute weight some are < 0 from B ≳ 4 on, and the kernel is indefinite.
    Rank: min(n, l, C(d+degree, degree)) for generic Q, K.
    Cost: elementwise 2d + 4 degree operations an entry; the exchange 5 ms, or up to seconds in
    decimal arithmetic where B > 8 or the level is tiny.

    Raises
    ------
    ArithmeticError
        The exchange did not level, or would need more than 500 digits.

    References
    ----------
    .. [1] E. Remez, "Sur la détermination des polynomes d'approximation de degré donnée", 1934.

    Examples
    --------
    Degree 0 is 1/cosh B, its relative error tanh B:

    >>> Minimax(degree=0, bound=1.0).approximate([[1.0]], [[0.0]]).to_dense()
    array([[0.64805427]])
    """

    name: ClassVar[str] = "minimax"

    degree: int | None = None
    bound: float | None = None
    weight: str = one_of("relative", ("relative", "absolute"))

    def polynomial(self, bound: float) -> Polynomial:
        """Return the minimax polynomial on [−bound, bound]."""
        return remez(self.degree or 0, bound, self.weight).polynomial
