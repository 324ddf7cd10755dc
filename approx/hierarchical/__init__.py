"""Estimates that are exact near the diagonal, and low rank in blocks away from it."""

from approx import _lazy

_lazy.modules_of(__name__)
