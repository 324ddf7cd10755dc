"""The square of a sketch: a non-negative estimate of a polynomial kernel."""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method, Moments, Size
from approx.method.fields import integer, one_of
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import BY_ROW, RANDOM, ROTATION, collect
from approx.sketches.power import MOST_DEGREE
from approx.sketches.products import LAWS, augmented, forms, pair_moments, products, unit
from approx.sketches.signed import Signed, difference, power, scaled, signed, total, value


@dataclasses.dataclass(frozen=True)
class SquaredSketch(Method):
    """Squared product sketch of (1 + q·k/p)^p, biased upwards, non-negative.

    estimate = (φ(q)·φ(k))² = φ⊗φ(q) · φ⊗φ(k),  where φ is a product sketch of (1 + q·k/p)^{p/2}.

    Parameters
    ----------
    inner : int, optional
        Features b of φ, ≥ 1; the factors have b(b + 1)/2 columns, φ_r φ_s for r ≤ s. None: a budget
        fills it.
    degree : int
        p, an even number.
    law : {"rademacher", "gaussian"}
        Distribution of the entries of w.

    Notes
    -----
    For one product y of φ, μ_j = E y^j = (E((w·a)(w·b))^j)^{p/2}, a = (q/√p, 1), b = (k/√p, 1),

        E estimate = μ_1² + (μ_2 − μ_1²)/b,

    the power plus the variance of φ(q)·φ(k). This bias is the price of non-negative entries. The
    variance of the estimate follows from μ_1, …, μ_4 in closed form. Every entry is ≥ 0 up to the
    rounding of its sum, so rows can be normalised.
    Cost: (n + l)·b·(p·(d + 1) + b/2) operations, (n + l)·b(b + 1)/2 numbers.

    References
    ----------
    .. [1] P. Kacham, V. Mirrokni, P. Zhong, "PolySketchFormer: Fast Transformers via Sketching
       Polynomial Kernels", ICML 2024, section 2: its non-negative sketch, here with products.

    Examples
    --------
    >>> SquaredSketch(inner=2, degree=2).approximate([[0.0]], [[0.0]], rng=0).to_dense().round(12)
    array([[1.]])
    """

    name = "squared_sketch"
    label = "squared sketch"
    examples = (
        "squared_sketch(inner=3)",
        "squared_sketch(inner=2, degree=6, law='gaussian')",
    )
    sized_by = Size("inner")

    inner: int | None = None
    degree: int = integer(4, least=2, most=MOST_DEGREE, even=True)
    law: str = one_of("rademacher", LAWS)

    @property
    def tags(self) -> frozenset[str]:
        return BY_ROW | collect(RANDOM, self.law == "gaussian" and ROTATION)

    def _price(self, shape: Shape) -> Price | None:
        if self.inner is None:
            return None
        columns = self.inner * (self.inner + 1) // 2
        forms = self.degree // 2 * self.inner * (shape.d + 1)
        return low_rank(columns, shape, mapped=forms)

    def _workspace(self, shape: Shape) -> int:
        b = self.inner or 0
        return 16 * (shape.n + shape.l) * b * (b + 1)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        shape = self.inner or 0, q.shape[1] + 1
        levels = (forms(self.law, shape, rng) for _ in range(self.degree // 2))
        return Parts(self.features(q, k, levels, mask))

    def features(
        self, q: Array, k: Array, levels: Iterable[Array], mask: Mask | None = None
    ) -> Factors:
        """Return the factors for given w, one (b, d + 1) matrix per degree of φ."""
        x, y = augmented(q, self.degree), augmented(k, self.degree)
        b = self.inner or 1
        phi = products(x, y, levels, np.full(b, -0.5 * math.log(b)), np.float64, mask)
        r, s = np.triu_indices(b)
        twice = np.where(r == s, 1.0, math.sqrt(2.0))
        left, right = (twice * side[:, r] * side[:, s] for side in (phi.left, phi.right))
        column_logs = None if phi.column_logs is None else 2 * phi.column_logs
        return Factors(left, right, 2 * phi.row_logs, column_logs).astype(q.dtype)

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments:
        (a, row), (c, column) = (unit(augmented(x, self.degree)) for x in (q, k))
        m1, m2, m3, m4 = (power(signed(y), self.degree // 2) for y in pair_moments(a, c, self.law))
        second, fourth = moments_of_mean(m1, m2, m3, m4, self.inner or 1)
        x, log = exact.logits(q, k), self.degree * (row[:, None] + column)
        bias = value(scaled(second, log - x)) - 1
        variance = difference(fourth, power(second, 2))
        log_variance = np.where(variance.sign > 0, variance.log, -np.inf)
        return Moments(bias, log_variance + 2 * (log - x))


def times(x: Signed, y: Signed) -> Signed:
    """Return x·y."""
    return Signed(x.sign * y.sign, x.log + y.log)


def moments_of_mean(
    m1: Signed, m2: Signed, m3: Signed, m4: Signed, count: int
) -> tuple[Signed, Signed]:
    """Return the second and fourth moments of the mean of count independent copies."""

    def of(factor: int, x: Signed, order: int) -> Signed:
        sign = np.where(factor > 0, x.sign, 0.0)
        return Signed(sign, x.log + math.log(max(factor, 1)) - order * math.log(count))

    b = count
    second = total(of(b, m2, 2), of(b * (b - 1), power(m1, 2), 2))
    fourth = total(
        of(b, m4, 4),
        of(4 * b * (b - 1), times(m3, m1), 4),
        of(3 * b * (b - 1), power(m2, 2), 4),
        of(6 * b * (b - 1) * (b - 2), times(m2, power(m1, 2)), 4),
        of(b * (b - 1) * (b - 2) * (b - 3), power(m1, 4), 4),
    )
    return second, fourth
