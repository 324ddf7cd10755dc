"""Logits compressed before exp: fewer numbers, or fewer bits, per key."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # a checker would let every name pass
    from approx import _lazy

    __getattr__ = _lazy.attribute(__name__)
