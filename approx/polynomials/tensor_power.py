"""The tensor power (1 + x/n)^n, the limit definition of exp."""

import dataclasses
import math

from approx.method import Size
from approx.polynomials.method import PolynomialMethod
from approx.polynomials.polynomial import Polynomial
from approx.polynomials.powers import powers


@dataclasses.dataclass(frozen=True)
class TensorPower(PolynomialMethod):
    """Tensor power of exp, deterministic and biased.

    p_n(q·k) = (1 + q·k/n)^n = ⟨⊗ⁿ(1, q/√n), ⊗ⁿ(1, k/√n)⟩

    Parameters
    ----------
    n : int, optional
        Power, ≥ 1; None: a budget fills it.

    Notes
    -----
    Error: p_n(x) = e^x (1 − x²/(2n) + O(n^{−2})), and 0 ≤ p_n ≤ e^x on [−n, ∞). Below −n, |p_n|
    grows again, with p_n > 0 for even n and p_n < 0 for odd n. For x ≥ 0, p_n ≤ T_n ≤ e^x, so
    Taylor is the better polynomial of the same width.
    Rank: min(rows, keys, C(d+n, n)) for generic Q, K; the dense tensors are (d+1)^n wide.
    Cost: elementwise 2d operations, a logarithm and an exponential per entry.

    References
    ----------
    .. [1] L. Euler, "Introductio in analysin infinitorum", 1748, volume 1, chapter VII: e^x as the
       power (1 + x/n)^n of infinite n.

    Examples
    --------
    >>> TensorPower(n=2).approximate([[1.0]], [[2.0]]).to_dense()
    array([[4.]])
    """

    name = "tensor_power"
    label = "tensor power (1 + x/n)ⁿ, n = {n}"
    examples = ("tensor_power(n=3)",)
    sized_by = Size("n", counts="degree")

    n: int | None = None

    def polynomial(self, bound: float = math.inf) -> Polynomial:
        """Return the power, with a_j = C(n, j)/n^j."""
        return powers([1.0], [self.n or 1], bound)
