"""Caches for decoding: a causal model adds tokens one by one and attends to them."""

from approx import _lazy

_lazy.modules_of(__name__)
