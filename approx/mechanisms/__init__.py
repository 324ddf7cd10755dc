"""Efficient attention by name: methods that give softmax rows, or other rows instead."""

from approx import _lazy

_lazy.modules_of(__name__)
