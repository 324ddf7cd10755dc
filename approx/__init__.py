"""Estimates of exp(q·k).

`METHODS` lists every method; `parse` reads a spec such as
``"scatterbrain(low_rank=positive(m=64), sparse=top_k(k=32))"``.
"""

from approx import exact, projections
from approx.approximation import Approximation
from approx.memory import ResourceLimitError
from approx.method import Method, Moments
from approx.registry import METHODS, parse

__all__ = [
    "METHODS",
    "Approximation",
    "Method",
    "Moments",
    "ResourceLimitError",
    "exact",
    "parse",
    "projections",
]
