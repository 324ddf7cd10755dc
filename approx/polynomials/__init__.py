"""Polynomials of q·k: elementwise, or as compact monomial features."""

from approx import _lazy

_lazy.modules_of(__name__)
