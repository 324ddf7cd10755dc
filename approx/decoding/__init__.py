"""Caches for decoding: a causal model adds tokens one by one and attends to them."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # a checker would let every name pass
    from approx import _lazy

    __getattr__ = _lazy.attribute(__name__)
