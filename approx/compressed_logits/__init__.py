"""Logits compressed before exp: fewer numbers, or fewer bits, per key."""

from approx import _lazy

_lazy.modules_of(__name__)
