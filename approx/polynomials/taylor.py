"""The Taylor polynomial of exp at 0."""

import dataclasses
import math

import numpy as np
import scipy

from approx.method import Size
from approx.polynomials.method import PolynomialMethod
from approx.polynomials.polynomial import Polynomial

FACTORIALS = 171  # factorials of smaller numbers are representable


@dataclasses.dataclass(frozen=True)
class Taylor(PolynomialMethod):
    """Taylor polynomial of exp, deterministic and biased.

    T_n(q·k) = Σ_{j ≤ n} (q·k)^j / j!

    Parameters
    ----------
    degree : int, optional
        n ≥ 0; None: a budget fills it.

    Notes
    -----
    Error: e^x − T_n(x) = e^ξ x^{n+1}/(n+1)! with ξ between 0 and x, at most |x|^{n+1}/(n+1)! for
    x ≤ 0, and e^x times that for x ≥ 0. For odd n the estimate is negative below its single real
    root (−1, −1.596, −2.181, … for n = 1, 3, 5); for even n it is positive everywhere.
    Rank: min(n, l, C(d+degree, degree)) for generic Q, K.
    Cost: elementwise 2(d + degree) operations per entry, or C(d+degree, degree) features per row.
    In float64 the sum cancels for x ≪ 0, with a relative error of about 10^{−16} e^{2|x|}.

    References
    ----------
    .. [1] A. Cotter, J. Keshet, N. Srebro, "Explicit approximations of the Gaussian kernel",
       arXiv:1109.4603, 2011: Taylor features.

    Examples
    --------
    >>> Taylor(degree=2).approximate([[1.0]], [[2.0]]).to_dense()
    array([[5.]])
    """

    name = "taylor"
    label = "Taylor, degree {degree}"
    examples = ("taylor(degree=3)",)
    sized_by = Size("degree", counts="degree", zero=True)

    degree: int | None = None

    def polynomial(self, bound: float = math.inf) -> Polynomial:
        """Return a_j = 1/j!, correctly rounded for each j ≤ 170."""
        j = np.arange((self.degree or 0) + 1)
        near = np.array([1 / math.factorial(i) for i in j[:FACTORIALS].tolist()])
        far = np.where(j < FACTORIALS, 0.0, -scipy.special.gammaln(j + 1.0))
        coefficients = np.concatenate([near, np.ones(len(j) - len(near))])
        return Polynomial.from_coefficients(coefficients, bound=bound, log_scale=far)
