"""Fill the open sizes of a method to a budget: the largest sizes that fit."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from approx.method.prices import Shape, price_at

SLACK = 1e-12  # relative rounding error of a sum of prices
HALVINGS = 24  # bisection steps for the budget of a part
M = TypeVar("M", bound=Any)  # a Method, whose module imports this one


@dataclasses.dataclass(frozen=True)
class _Asked:
    """The key of the cache: a template, by class and text (fields may be arrays), and a budget."""

    kind: type
    text: str
    budget: float
    shape: Shape
    currency: str
    method: Any = dataclasses.field(compare=False)


def filled(method: M, budget: float, shape: Shape, currency: str) -> M | None:
    """Return a template with its own size, or the size of a part, filled; None if none fits.

    If both the support and another size are open, the field ``share`` is the share of the budget
    for the support; the other size gets the rest. Answers are cached for the heads of a model.
    """
    found: M | None = _filled(_Asked(type(method), str(method), budget, shape, currency, method))
    return found


@functools.lru_cache(maxsize=2048)  # some hundred methods, at the sizes of a curve
def _filled(asked: _Asked) -> Any:
    method, budget, shape, currency = asked.method, asked.budget, asked.shape, asked.currency
    opened = [name for name, part in method.parts.items() if part.is_template]
    other = len(opened) > 1 if method.sized_by is None else method.is_open
    share = getattr(method, "share", None)
    if share is not None and "sparse" in opened and other:
        given = {**shape.given, "currency": currency}
        entries = method.parts["sparse"].within(share * budget, **given)
        return None if entries is None else _with(method, sparse=entries).within(budget, **given)
    if method.is_open:
        return _with_size(method, budget, shape, currency)
    return _with_part(method, opened[0], budget, shape, currency) if len(opened) == 1 else None


def _with(method: M, /, **fields: Any) -> M:
    return dataclasses.replace(method, **fields)


def _with_size(method: M, budget: float, shape: Shape, currency: str) -> M | None:
    size = method.sized_by
    assert size is not None
    most = size.largest(shape.n, shape.l)

    def fits(steps: int) -> bool:
        count = size.at(steps)
        if most is not None and count > most:
            return False
        price = price_at(method.resized(count), shape)
        return price is not None and price.within(budget, currency)

    begin = 1
    if most is not None:  # the least size may cost most: many small buckets
        while not fits(begin) and size.at(2 * begin) <= most:
            begin *= 2
    steps = _most(fits, begin)
    if steps == 0 or size.at(steps) < least_size(method, shape.d):
        return None
    return _with(method, **{size.field: size.at(steps)})


def least_size(method: M, d: int) -> int:
    """Return the least size of a method for vectors of width d."""
    return int(method._fewest(d))


def _most(fits: Callable[[int], bool], high: int) -> int:
    """Return the most steps that fit, or 0; from `high` on the price grows with the steps."""
    low = 0
    while fits(high) and high < 2**40:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _with_part(method: M, name: str, budget: float, shape: Shape, currency: str) -> M | None:
    beside = method.beside(name, shape)
    spent = None if beside is None else getattr(beside, currency)
    if spent is None or (rest := budget - spent) <= 0:
        return None
    found, low = None, 0.0
    for steps in range(HALVINGS):  # the whole may cost more than the sum of its parts
        middle = (low + rest) / 2 if steps else rest
        part = method.parts[name].within(middle, **shape.given, currency=currency)
        if part is None and not steps:
            return None
        whole = method if part is None else _with(method, **{name: part})
        price = None if part is None else price_at(whole, shape)
        fits = price is None or getattr(price, currency) <= budget * (1 + SLACK)
        if part is None or not fits:
            rest = middle
            continue
        found, low = whole, middle
        if not steps:
            break
    return found
