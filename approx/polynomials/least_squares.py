"""The polynomial that fits exp best, in least squares, at the given logits."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate.masks import MaskLike
from approx.method import Size
from approx.method.fields import one_of
from approx.polynomials.method import PolynomialMethod, largest_logit, seen_logits
from approx.polynomials.polynomial import Polynomial


@dataclasses.dataclass(frozen=True)
class LeastSquares(PolynomialMethod):
    """Least-squares polynomial of exp on the logits themselves, deterministic and biased.

    argmin_p Σ_ij w(x_ij)² (p(x_ij) − e^{x_ij})² over x_ij = q_i·k_j, w = e^{−x} or 1

    Parameters
    ----------
    degree : int, optional
        n ≥ 0; None: a budget fills it.
    weight : {"relative", "absolute"}
        The absolute weight gives the best polynomial in kernel_relative_frobenius, which the
        largest logits dominate.

    Notes
    -----
    Error: the root mean square of w·|p − e^x| over the logits is at most the minimax level of the
    same weight, for any logits in [−B, B] (bound). There is no bound between or beyond the logits.
    The fit uses Chebyshev polynomials and a QR decomposition, one stripe of logits at a time, so
    the condition number is not squared. If there are fewer distinct logits than coefficients, the
    fit with the smallest coefficients is taken. With the relative weight, logits more than 36 above
    the lowest have no effect in float64.
    Rank: min(n, l, C(d+degree, degree)) for generic Q, K.
    Cost: 2 n l (d + degree²) operations in one pass over the logits, then elementwise
    2d + 4 degree per entry.

    References
    ----------
    .. [1] G. Golub, C. Van Loan, "Matrix Computations", 4th edition, sections 5.3 and 6.5 (updates
       of a QR factorisation).

    Examples
    --------
    Degree 1 is exact at two logits, 0 and 1:

    >>> LeastSquares(degree=1).approximate([[1.0]], [[0.0], [1.0]]).to_dense()
    array([[1.        , 2.71828183]])
    """

    name = "least_squares"
    label = "least squares, degree {degree}"
    examples = (
        "least_squares(degree=2)",
        "least_squares(degree=2, weight='absolute')",
    )
    fits_all = True
    sized_by = Size("degree", counts="degree", zero=True)

    degree: int | None = None
    weight: str = one_of("relative", ("relative", "absolute"))

    def polynomial(self, bound: float) -> Polynomial:
        raise TypeError("least_squares has no polynomial without logits: use fitted(Q, K)")

    def fitted(self, Q: Array, K: Array, mask: MaskLike = None) -> Polynomial:
        """Return the fit to the seen logits of Q Kᵀ.

        Its scale is e^s, with s = −B for relative and B for absolute weights.
        """
        n, bound = self.degree or 0, largest_logit(Q, K, mask)
        triangle = np.zeros((0, n + 2))
        for logits in seen_logits(Q, K, mask):
            x = np.asarray(logits, np.float64).ravel().clip(-bound, bound)
            basis = np.polynomial.chebyshev.chebvander(x / bound, n)
            if self.weight == "relative":
                system = np.column_stack([basis * np.exp(-x - bound)[:, None], np.ones(len(x))])
            else:
                system = np.column_stack([basis, np.exp(x - bound)])
            stacked = np.concatenate([triangle, system])
            triangle = np.asarray(np.linalg.qr(stacked, mode="r"))
        c = np.linalg.lstsq(triangle[:, :-1], triangle[:, -1], rcond=None)[0]
        scale = -bound if self.weight == "relative" else bound
        return Polynomial.from_coefficients(c, basis="chebyshev", bound=bound, log_scale=scale)
