"""Sampling designs: which keys of a row are drawn, and with which weights."""

from approx import _lazy

_lazy.modules_of(__name__)
