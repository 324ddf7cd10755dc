"""Sizes of methods, and how a budget fills those that are open: the largest that fit."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from approx import checks
from approx.method.prices import Shape, price_at
from approx.method.tags import ADAPTIVE, BUDGETED

SLACK = 1e-12  # relative rounding error of a sum of prices
HALVINGS = 24  # bisection steps for the budget of a part
MOST_KEYS = 2**31 - 1  # per row: what an index of four bytes counts

if TYPE_CHECKING:
    from approx.method.method import Method  # which imports this module

M = TypeVar("M", bound="Method")


@dataclasses.dataclass(frozen=True)
class Size:
    """The field of a method that a budget fills.

    Parameters
    ----------
    field : str
        Name of the field, such as ``m``. A method with None in this field is a template.
    least, step : int
        A budget chooses among least, least + step, least + 2·step, …
    counts : {"columns", "rank", "entries", "degree"}
        The unit of the size. ``columns``: columns of both factors. ``rank``: columns, of which a
        budget buys at most min(n, l). ``entries``: keys per row, of which a budget buys at most l;
        of fewer keys a row takes all. ``degree``: the degree of a polynomial. The first three give
        the price, unless the method has its own.
    most : callable, optional
        (n, l) → the largest size that a user may give, or None for any; by default the largest
        size that a budget buys.
    integer : bool
        Whether the size is checked as an integer. If not, its field has its own rule.
    zero : bool
        Whether a user may give 0. No budget chooses 0.
    instead : tuple of str
        Names of fields or properties that may be given in place of the size. The method is then
        not a template.
    """

    field: str
    least: int = 1
    step: int = 1
    counts: str = "columns"
    most: Callable[[int, int], int | None] | None = None
    integer: bool = True
    zero: bool = False
    instead: tuple[str, ...] = ()

    def at(self, steps: int) -> int:
        """Return the size after a number of steps; step 1 is the least size."""
        return self.least + (steps - 1) * self.step

    def largest(self, n: int, l: int) -> int | None:
        """Return the largest size that a budget buys for n queries and l keys; None for any."""
        return {"rank": min(n, l), "entries": l}.get(self.counts)

    def limit(self, n: int, l: int) -> int | None:
        """Return the largest size that a user may give; None for any."""
        if self.most is not None:
            return self.most(n, l)
        return None if self.counts == "entries" else self.largest(n, l)

    def checked(self, value: Any) -> int:
        """Return the size that a user gave; raise TypeError or ValueError if it is not a size."""
        least = 0 if self.zero else min(1, self.least)
        most = MOST_KEYS if self.counts == "entries" else None
        size = checks.integer(self.field, value, least=least, most=most)
        if size % self.step:
            raise ValueError(f"{self.field} must be a multiple of {self.step}, got {size}")
        return size


def open_size(method: Method) -> Size | None:
    """Return the method's own size if it is open, with no other field in its place; else None."""
    size = method.sized_by
    if size is None or getattr(method, size.field) is not None:
        return None
    return None if any(getattr(method, name) for name in size.instead) else size


def is_fillable(method: Method) -> bool:
    """Return whether a budget can fill the open sizes."""
    return ADAPTIVE not in method.tags or BUDGETED in method.tags


def require_fillable(method: Method) -> None:
    """Raise ValueError if this is a template that no budget can fill."""
    if method.is_template and not is_fillable(method):
        raise ValueError(
            f"{method} is a template that no budget fills, as what it reads follows from the "
            f"inputs: give its sizes, such as {with_sizes(method)}"
        )


def require_sizes(method: Method) -> None:
    """Raise ValueError if this is a template."""
    require_fillable(method)
    if method.is_template:
        size = open_size(method)
        field = "every size" if size is None else size.field
        raise ValueError(f"{method} is a template: give {field}, or use within(budget, ...)")


def resized(method: M, count: int) -> M:
    """Return the method with another size."""
    assert method.sized_by is not None
    return _with(method, **{method.sized_by.field: count})


def with_sizes(method: M) -> M:
    """Return the method with each open size set to about 16."""
    given: dict[str, Any] = {
        name: with_sizes(part) for name, part in method.parts.items() if part.is_template
    }
    if (size := open_size(method)) is not None:
        given[size.field] = size.at(max(1, (16 - size.least) // size.step + 1))
    return _with(method, **given)


@dataclasses.dataclass(frozen=True)
class _Asked:
    """The key of the cache: a template, by class and text (fields may be arrays), and a budget."""

    kind: type
    text: str
    budget: float
    shape: Shape
    currency: str
    method: Any = dataclasses.field(compare=False)


def fill(method: M, budget: float, shape: Shape, currency: str) -> M | None:
    """Return a template with its own size, or the size of a part, filled; None if none fits.

    If both the support and another size are open, the field ``share`` is the share of the budget
    for the support; the other size gets the rest. Answers are cached for the heads of a model.
    """
    asked = _Asked(type(method), str(method), budget, shape, currency, method)
    found: M | None = _fill(asked)
    return found


@functools.lru_cache(maxsize=2048)  # some hundred methods, at the sizes of a curve
def _fill(asked: _Asked) -> Any:
    method, budget, shape, currency = asked.method, asked.budget, asked.shape, asked.currency
    opened = [name for name, part in method.parts.items() if part.is_template]
    other = len(opened) > 1 if method.sized_by is None else open_size(method) is not None
    share = getattr(method, "share", None)
    if share is not None and "sparse" in opened and other:
        given = {**shape.given, "currency": currency}
        entries = method.parts["sparse"].within(share * budget, **given)
        return None if entries is None else _with(method, sparse=entries).within(budget, **given)
    if (size := open_size(method)) is not None:
        return _with_size(method, size, budget, shape, currency)
    return _with_part(method, opened[0], budget, shape, currency) if len(opened) == 1 else None


def _with(method: M, /, **fields: Any) -> M:
    return dataclasses.replace(method, **fields)  # type: ignore[type-var]


def _with_size(method: M, size: Size, budget: float, shape: Shape, currency: str) -> M | None:
    most = size.largest(shape.n, shape.l)

    def fits(steps: int) -> bool:
        count = size.at(steps)
        if most is not None and count > most:
            return False
        price = price_at(resized(method, count), shape)
        return price is not None and price.within(budget, currency)

    begin = 1
    if most is not None:  # the least size may cost most: many small buckets
        while not fits(begin) and size.at(2 * begin) <= most:
            begin *= 2
    steps = _most(fits, begin)
    if steps == 0 or size.at(steps) < least_size(method, shape.d):
        return None
    return _with(method, **{size.field: size.at(steps)})


def least_size(method: Method, d: int) -> int:
    """Return the least size of a method for vectors of width d."""
    return method._fewest(d)


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
    beside = method._beside(name, shape.alone)
    spent = None if beside is None else getattr(beside.of_group(shape, method.tags), currency)
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
