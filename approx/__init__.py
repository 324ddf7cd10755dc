"""Estimates of exp(q·k).

`METHODS` lists every method, `ALIASES` familiar names; `parse` reads a spec such as
``"scatterbrain(low_rank=positive(m=64), sparse=top_k(k=32))"``.
"""

from approx import exact, projections
from approx.approximation import Approximation
from approx.masks import Mask
from approx.memory import ResourceLimitError
from approx.method import Method, Moments, Size
from approx.prices import Price
from approx.registry import ALIASES, METHODS, parse

__all__ = [
    "ALIASES",
    "METHODS",
    "Approximation",
    "Mask",
    "Method",
    "Moments",
    "Price",
    "ResourceLimitError",
    "Size",
    "exact",
    "parse",
    "projections",
]
