"""Attention and FLASH as in the source documents: references for claims, not methods."""

from approx import _lazy

_lazy.modules_of(__name__)
