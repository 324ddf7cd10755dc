"""Methods matched at equal budget, in any currency of `approx.Price`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from analysis.candidates import why_not
from analysis.inputs import Inputs
from approx import Approximation, Method, checks


class Matched(NamedTuple):
    """Methods filled to a budget, and those that have no member there, or none under the mask."""

    fitting: list[Method]
    absent: list[Method]


def match(
    methods: Iterable[Method], budget: float, inputs: Inputs, currency: str = "stored"
) -> Matched:
    """Fill every method to a budget for inputs of this shape.

    Parameters
    ----------
    methods : iterable of Method
        Templates are filled; a sized method stays as it is and must fit.
    budget : float
        What a query row may cost.
    currency : {"stored", "reads", "multiply_adds", "bytes"}
        What the budget is counted in; by default stored values per query row, (rank·(n + l) +
        nnz)/n.

    Returns
    -------
    Matched
        ``absent`` holds, unfilled, the methods of which nothing fits: they are to be shown at their
        own price, never to be dropped silently. It also holds those that refuse the mask of the
        inputs, for which `analysis.candidates.why_not` has the reason.

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
    checks.instance("inputs", inputs, Inputs, "an Inputs")
    for method in methods:
        checks.instance("every method", method, Method, "a method")
        filled = None
        if why_not(method, inputs.mask) is None:
            filled = method.within(budget, currency=currency, **inputs.shape.given)
        (absent if filled is None else fitting).append(method if filled is None else filled)
    return Matched(fitting, absent)


def values_per_row(approximation: Approximation) -> float:
    """Return the stored values per query row, parameters/n."""
    checks.instance("approximation", approximation, Approximation, "an Approximation")
    return approximation.parameters / approximation.shape[0]
