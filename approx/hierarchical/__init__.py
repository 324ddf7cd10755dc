"""Estimates that are exact near the diagonal, and low rank in blocks away from it."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # a checker would let every name pass
    from approx import _lazy

    __getattr__ = _lazy.attribute(__name__)
