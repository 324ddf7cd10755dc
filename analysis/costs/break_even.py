"""Break-even lengths: from which number of tokens on a method costs less than exact attention."""

import functools
import math

from approx import Method
from approx.estimate.masks import Mask
from approx.method.prices import Shape, price_at
from approx.sparse.exact import Exact

LONGEST = 2**17  # the greatest length at which a method may begin to pay


def break_even(method: Method, shape: Shape, *, step: int = 1) -> float:
    """Return the least number of tokens, n = l, with fewer multiply-adds than exact attention.

    Parameters
    ----------
    method : Method
    shape : Shape
        The widths, and a mask: full, causal, or a window of the most keys that a query sees.
    step : int
        The result is a multiple of it.

    Returns
    -------
    float
        inf if it is above 2¹⁷, and NaN if the price is not known. If the cost over that of exact
        attention grows in places, as where each query reads whole pages, the result is a length at
        which the method begins to pay, perhaps not the least one.

    Examples
    --------
    Linear attention with m features is cheaper beyond n = 2m, and m sums of features a query:

    >>> from approx import parse
    >>> break_even(parse("positive(m=128)"), Shape(n=1, l=1, d=64, c=64))
    258.0
    """
    _, l, d, c = shape
    width = shape.most if shape.rows.first.any() else None
    try:
        return _break_even(method, l, d, c, shape.rows.looks_back, width, step)
    except TypeError:  # a field is an array, which has no hash
        return _break_even.__wrapped__(method, l, d, c, shape.rows.looks_back, width, step)


@functools.lru_cache(maxsize=1024)  # a file has many heads of one shape
def _break_even(
    method: Method, l: int, d: int, c: int, back: bool | None, width: int | None, step: int
) -> float:
    def cost(method: Method, l: int) -> float:
        mask = Mask.window(l, l, l if width is None else width) if back else None
        price = price_at(method, Shape(l, l, d, c, mask))
        return math.nan if price is None or price.multiply_adds is None else price.multiply_adds

    if math.isnan(cost(method, l)):
        return math.nan
    low, high = 0, step
    while cost(method, high) >= cost(Exact(), high):
        low, high = high, 2 * high
        if high > LONGEST:
            return math.inf
    while high - low > step:
        middle = (low + high) // (2 * step) * step
        pays = cost(method, middle) < cost(Exact(), middle)
        low, high = (low, middle) if pays else (middle, high)
    return float(high)
