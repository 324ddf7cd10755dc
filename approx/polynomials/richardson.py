"""Richardson extrapolation of the tensor power to n → ∞."""

import dataclasses
import math

from approx.method import Label, Size
from approx.method.fields import integer
from approx.polynomials.method import PolynomialMethod
from approx.polynomials.polynomial import Polynomial
from approx.polynomials.powers import powers

WEIGHTS = {2: (-1.0, 2.0), 3: (1 / 3, -2.0, 8 / 3)}  # for the powers n, 2n, 4n


@dataclasses.dataclass(frozen=True)
class Richardson(PolynomialMethod):
    """Richardson extrapolation of tensor powers, deterministic and biased.

    2 p_{2n} − p_n, or (8 p_{4n} − 6 p_{2n} + p_n)/3, of p_n(x) = (1 + x/n)^n

    Parameters
    ----------
    n : int, optional
        The smallest power, ≥ 1; None: a budget fills it.
    points : {2, 3}
        Number of powers; the degree is 2n for two, 4n for three.

    Notes
    -----
    Error: −(x³/3 + x⁴/8)/(2n²)·e^x + O(n^{−3}) for two points, O(n^{−3}) for three. For |x| ≤ B,
    B < n, q = 1/(1 − B/n), the error is at most e^x (2B³q³/3 + B⁴q⁴/4)/(4n²) for two points and
    e^x (3B⁴q⁴/2 + B⁵q⁵ + B⁶q⁶/8)/(48n³) for three. These bounds follow from Peano kernels of one
    sign and derivatives in 1/n. For two points all coefficients are ≥ 0, because C(m, j)/m^j grows
    with m; so the kernel of one set of points is positive semidefinite. The largest power sets the
    width; at this width Taylor is better unless |x| is large.
    Rank: min(rows, keys, C(d + degree, degree)) for generic Q, K.
    Cost: elementwise 2d operations per entry, and a logarithm and an exponential per power and
    entry.

    References
    ----------
    .. [1] L. F. Richardson, "The approximate arithmetical solution by finite differences", 1911.

    Examples
    --------
    At n = 1 and x = 2 it is 2 (1 + 2/2)² − (1 + 2):

    >>> Richardson(n=1).approximate([[1.0]], [[2.0]]).to_dense()
    array([[5.]])
    """

    name = "richardson"
    label = Label(
        "Richardson of two powers, n = {n}", {"Richardson of three powers, n = {n}": {"points": 3}}
    )
    examples = (
        "richardson(n=2)",
        "richardson(n=1, points=3)",
    )
    sized_by = Size("n", counts="degree")

    n: int | None = None
    points: int = integer(2, least=2, most=3)

    def highest_power(self) -> int | None:
        return None if self.n is None else self.n * 2 ** (self.points - 1)

    def polynomial(self, bound: float = math.inf) -> Polynomial:
        n = self.n or 1
        return powers(list(WEIGHTS[self.points]), [n * 2**i for i in range(self.points)], bound)
