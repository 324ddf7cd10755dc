"""The polynomial with the least maximal relative or absolute error of exp on an interval."""

import dataclasses

from approx.method import Label
from approx.method.fields import one_of
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
        n ≥ 0; None: a budget fills it.
    bound : float, optional
        B > 0; None takes the largest |q·k| of the inputs. There is no bound on the error beyond B.
        Even so, B at 3 standard deviations is often better for attention than B at the maximum.
    weight : {"relative", "absolute"}

    Notes
    -----
    Error: the level of `remez`. It is reached n + 2 times with alternating signs, so no polynomial
    of this degree is better (exact). Evaluation in float64 rounds by eps·e^{2B} relative to e^{−B}.
    With the relative weight all a_j > 0 in every tested case up to B = 8, but not at B = 16. With
    the absolute weight some a_j < 0 from B ≳ 4 on, and the kernel is indefinite.
    Rank: min(n, l, C(d+degree, degree)) for generic Q, K.
    Cost: elementwise 2d + 4 degree operations per entry. The exchange takes 5 ms, or up to seven
    seconds in decimal arithmetic if B > 8 or the level is tiny.

    Raises
    ------
    ArithmeticError
        The exchange did not level the peaks, or would need more than 500 digits or ten seconds.

    References
    ----------
    .. [1] E. Remez, "Sur la détermination des polynomes d'approximation de degré donnée", 1934.

    Examples
    --------
    The polynomial of degree 0 is 1/cosh B, with relative error tanh B:

    >>> Minimax(degree=0, bound=1.0).approximate([[1.0]], [[0.0]]).to_dense()
    array([[0.64805427]])
    """

    name = "minimax"
    label = Label(
        "relative minimax, degree {degree}",
        {"absolute minimax, degree {degree}": {"weight": "absolute"}},
    )
    examples = (
        "minimax(degree=3)",
        "minimax(degree=3, bound=0.5)",
        "minimax(degree=3, bound=4.0, weight='absolute')",
    )

    degree: int | None = None
    bound: float | None = None
    weight: str = one_of("relative", ("relative", "absolute"))

    def polynomial(self, bound: float) -> Polynomial:
        return remez(self.degree or 0, bound, self.weight).polynomial
