"""The base classes of methods that are polynomials of the logits."""

import math
from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from approx import checks
from approx.checks import Array
from approx.estimate import exact, masks
from approx.estimate.masks import Mask, MaskLike
from approx.estimate.parts import Parts
from approx.method import Method, Size
from approx.method.prices import OWN, SHARED, Numbers, Price, Shape, entries, low_rank
from approx.method.tags import BY_ROW, ROTATION, SCALE
from approx.polynomials.elementwise import Elementwise
from approx.polynomials.monomials import width
from approx.polynomials.polynomial import Polynomial

LEAST_BOUND = 2.0**-20  # the bound of the smallest interval to which a polynomial is fitted
MOST_BOUND = 2.0**50  # the bound of the largest; above it float64 keeps no digit of e^x


class PolynomialMethod(Method):
    """An estimate p(q·k), priced as C(d+n, n) monomials even if it is computed elementwise."""

    @property
    def fits_all(self) -> bool:
        """Whether p is fitted to the logits of all queries and keys."""
        return False

    @property
    def tags(self) -> frozenset[str]:
        of_row = frozenset() if self.fits_all else BY_ROW
        return of_row | {ROTATION, SCALE}

    @abstractmethod
    def polynomial(self, bound: float) -> Polynomial:
        """Return the polynomial p, for logits in [−bound, bound]."""

    def fitted(self, Q: Array, K: Array, mask: MaskLike = None) -> Polynomial:
        """Return the polynomial for these inputs; only the seen logits count."""
        return self.polynomial(math.inf)

    def highest_power(self) -> int | None:
        """Return the degree of p; None for a template."""
        degree: int | None = None if self.sized_by is None else getattr(self, self.sized_by.field)
        return degree

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        return Parts(Elementwise(q, k, self.fitted(q, k, mask)))

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of C(d+degree, degree) monomials.

        Reads and multiply-adds are those of the cheaper route: through the monomials, or from the
        logits. The monomials' state includes the coefficients; the route by logits reads them, too.
        """
        degree = self.highest_power()
        if degree is None:
            return None
        try:
            price = low_rank(width(shape.d, degree), shape)
        except OverflowError:
            price = Price.from_numbers(math.inf, math.inf, Numbers(math.inf))
        of_logits, horner = entries(shape.l, shape), degree * shape.seen(shape.l)
        assert price.reads is not None
        assert price.multiply_adds is not None
        assert of_logits.reads is not None
        assert of_logits.multiply_adds is not None
        work = min(price.multiply_adds, of_logits.multiply_adds + horner)
        numbers = price.numbers
        if price.reads > of_logits.reads + degree + 1:
            coefficients = Numbers(float(degree + 1), most=OWN)
            numbers = Numbers(of_logits.reads, most=SHARED), coefficients
        # p is a function of the logit, which an exact entry computes anyway: no work of an entry
        return Price.from_numbers(price.stored, work, *numbers)

    def _workspace(self, shape: Shape) -> int:
        return 8 * 8 * ((self.highest_power() or 0) + 1)


class IntervalMethod(PolynomialMethod):
    """A polynomial for an interval [−B, B], by default the interval of the logits."""

    sized_by = Size("degree", counts="degree", zero=True)

    degree: int | None
    bound: float | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bound is not None:
            bound = checks.positive("bound", self.bound, most=checks.MOST_LOGIT)
            if bound < LEAST_BOUND:
                raise ValueError(f"bound must be >= {LEAST_BOUND:.3g}, got {checks.display(bound)}")
            object.__setattr__(self, "bound", bound)

    @property
    def fits_all(self) -> bool:
        return self.bound is None

    def fitted(self, Q: Array, K: Array, mask: MaskLike = None) -> Polynomial:
        return self.polynomial(self.bound or largest_logit(Q, K, mask))


def largest_logit(Q: Array, K: Array, mask: MaskLike = None) -> float:
    """Return the largest seen |q·k|, clipped to [2^−20, 2^50], as the end of an interval."""
    seen, tops = masks.as_mask(mask, len(Q), len(K)), [LEAST_BOUND]
    for rows in exact.stripes(len(Q), len(K)):
        cols = seen.span(rows)
        x = Q[rows] @ K[cols].T
        seen.hide(x, rows, cols)
        tops.append(max(float(x.max()), -float(x.min())))
    return min(max(tops), MOST_BOUND)


def seen_logits(Q: Array, K: Array, mask: MaskLike = None) -> Iterator[Array]:
    """Yield the seen logits, by stripes of rows."""
    seen = masks.as_mask(mask, len(Q), len(K))
    for rows in exact.stripes(len(Q), len(K)):
        cols = seen.span(rows)
        x = Q[rows] @ K[cols].T
        yield x if seen.is_full else x[seen.visible(rows, cols)]
