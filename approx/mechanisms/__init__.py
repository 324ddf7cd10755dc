"""Efficient attention by name: methods that give softmax rows, or other rows instead."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # a checker would let every name pass
    from approx import _lazy

    __getattr__ = _lazy.attribute(__name__)
