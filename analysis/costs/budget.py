"""Methods filled to an equal budget, in any currency of `approx.Price`, and budgets in words."""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import NamedTuple

from analysis.inputs import Head
from approx import Approximation, Method, checks
from approx.estimate.masks import Mask
from approx.method.evaluation import why_not
from approx.method.filling import is_fillable
from approx.method.prices import CURRENCIES, Price, Shape, entries, price_at

KEYS = 32  # the budget of a report is the price of this many exact keys
LENGTHS = 4096, 32768, 131072  # tokens after which the memory of a cache is said
MEMORY = tuple(f"bytes_{tokens}" for tokens in LENGTHS)  # columns of tables

# An amount in words, for every table, figure and message; `figures.words.amounts` translates it.
WORDING = {
    "stored": "{amount} stored values per query row",
    "reads": "{amount} numbers read per new query",
    "multiply_adds": "{amount} multiply-adds per query row",
    "bytes": "{amount} bytes held in the cache",
    "bytes_read": "{amount} bytes read per new query",
}


def amount_text(amount: float | str, currency: str) -> str:
    """Return an amount in words that name its currency.

    The amount is a number, or a range of numbers in words.

    Examples
    --------
    >>> amount_text(4096, "reads")
    '4096 numbers read per new query'
    """
    checks.one_of("currency", currency, CURRENCIES)
    return WORDING[currency].format(amount=amount if isinstance(amount, str) else f"{amount:g}")


def price_of_keys(keys: float, inputs: Head, currency: str = "stored") -> float:
    """Return the cost of a number of exact keys and their values, for a query that sees them all.

    This makes budgets in different currencies comparable: k stored values, k·(d + c) reads or
    multiply-adds, and 2·k·(d + c) bytes read, or held.

    Examples
    --------
    >>> from analysis.inputs import gaussian
    >>> [price_of_keys(32, gaussian(8, 64, rng=0), currency) for currency in CURRENCIES]
    [32.0, 4096.0, 4096.0, 8192.0, 8192.0]
    """
    checks.one_of("currency", currency, CURRENCIES)
    l = max(inputs.l, math.ceil(keys))
    everything = dataclasses.replace(inputs.shape, l=l, mask=None)
    return float(getattr(entries(keys, everything), currency))


class Matched(NamedTuple):
    """Methods filled to a budget, and methods that fit at no size or refuse the mask."""

    fitting: list[Method]
    absent: list[Method]


def match(
    methods: Iterable[Method], budget: float, inputs: Head, currency: str = "stored"
) -> Matched:
    """Return every method filled to a budget, for inputs of this shape.

    Parameters
    ----------
    methods : iterable of Method
        Templates are filled; a sized method stays as it is and must fit.
    budget : float
        The largest cost per query row.
    currency : {"stored", "reads", "multiply_adds", "bytes", "bytes_read"}
        The unit of the budget; by default stored values per query row, (rank·(n + l) + nnz)/n.

    Returns
    -------
    Matched
        ``absent`` lists, unfilled, the methods that fit at no size. Show them at their own price;
        never drop them silently. It also lists methods that refuse the mask of the inputs;
        `approx.method.evaluation.why_not` returns the reason.

    Examples
    --------
    >>> from approx import parse
    >>> from analysis.inputs import gaussian
    >>> matched = match([parse("positive"), parse("taylor")], 32, gaussian(8, 64, rng=0))
    >>> [str(m) for m in matched.fitting], [str(m) for m in matched.absent]
    (['positive(m=16)'], ['taylor()'])
    """
    fitting: list[Method] = []
    absent: list[Method] = []
    checks.positive("budget", budget)
    checks.instance("inputs", inputs, Head, "a Head")
    for method in methods:
        checks.instance("every method", method, Method, "a method")
        filled = None
        fillable = is_fillable(method) or not method.is_template
        if fillable and why_not(method, inputs.mask) is None:
            filled = method.within(budget, currency=currency, **inputs.shape.given)
        (absent if filled is None else fitting).append(method if filled is None else filled)
    return Matched(fitting, absent)


def amounts(price: Price | None) -> dict[str, float]:
    """Return a price by currency, NaN where it is not known."""
    known = {name: getattr(price, name, None) for name in CURRENCIES}
    return {name: math.nan if cost is None else float(cost) for name, cost in known.items()}


def cost(method: Method, shape: Shape, currency: str) -> float:
    """Return the price of a method in a currency, NaN where it is not known."""
    return amounts(price_at(method, shape))[currency]


def held(method: Method, shape: Shape, tokens: int) -> float:
    """Return the bytes that the cache of a group of heads holds after some tokens, at 16 bits.

    It is NaN where it is not known. The mask is of the same kind: full, causal, or a window.

    Examples
    --------
    >>> from approx import parse
    >>> shape = Shape(n=8, l=8, d=64, c=64, group=3)
    >>> [held(parse(spec), shape, 4096) for spec in ("exact()", "sink_window(k=32)")]
    [1048576.0, 8192.0]
    """
    width = shape.most if shape.rows.first.any() else None
    later = _at(tokens, shape.d, shape.c, shape.group, bool(shape.rows.looks_back), width)
    return cost(method, later, "bytes")


@functools.lru_cache(maxsize=32)  # one shape, whose masks are large, for all methods
def _at(tokens: int, d: int, c: int, group: int, back: bool, width: int | None) -> Shape:
    mask = Mask.window(tokens, tokens, tokens if width is None else width) if back else None
    return Shape(tokens, tokens, d, c, mask, group)


def memory(method: Method, shape: Shape) -> dict[str, float]:
    """Return the bytes of `held` after each of `LENGTHS`, by the names in `MEMORY`."""
    return {name: held(method, shape, tokens) for name, tokens in zip(MEMORY, LENGTHS)}


def stored(approximation: Approximation, n: int | None = None) -> float:
    """Return the stored values per query row, parameters/n.

    With n, the approximation has some rows of n queries, and the result is that of all n.
    """
    checks.instance("approximation", approximation, Approximation, "an Approximation")
    rows, l = approximation.shape
    n = rows if n is None else n
    return approximation.low.parameters * (n + l) / (n * (rows + l)) + approximation.nnz / rows
