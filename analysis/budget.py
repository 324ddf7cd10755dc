"""Methods matched at equal budget: stored values per query row, (rank·(n + l) + nnz)/n."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from analysis.inputs import Inputs
from approx import Approximation, Method, checks


class Matched(NamedTuple):
    """Methods filled to a budget, and those that have no member there, or none under the mask."""

    fitting: list[Method]
    absent: list[Method]


def match(methods: Iterable[Method], budget: float, inputs: Inputs) -> Matched:
    """Fill every method to a budget for inputs of this shape.

    Parameters
    ----------
    methods : iterable of Method
        Templates are filled; a sized method stays as it is and must fit.
    budget : float
        Stored values per query row.

    Returns
    -------
    Matched
        ``absent`` holds, unfilled, the methods of which nothing fits: they are to be shown at their
        own price, never to be dropped silently. It also holds those that refuse the mask of the
        inputs, which `usable` tells.

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
        if usable(method, inputs):
            filled = method.within(budget, n=inputs.n, l=inputs.l, d=inputs.d, mask=inputs.mask)
        (absent if filled is None else fitting).append(method if filled is None else filled)
    return Matched(fitting, absent)


def usable(method: Method, inputs: Inputs) -> bool:
    """Return whether a method has a meaning under the mask of inputs: see `Method.refusal`.

    Examples
    --------
    >>> from approx import parse
    >>> from analysis.inputs import gaussian
    >>> usable(parse("positive"), gaussian(8, 64, rng=0))
    True
    """
    return inputs.mask.is_full or method.refusal is None


def values_per_row(approximation: Approximation) -> float:
    """Return the stored values per query row, parameters/n."""
    checks.instance("approximation", approximation, Approximation, "an Approximation")
    return approximation.parameters / approximation.shape[0]
