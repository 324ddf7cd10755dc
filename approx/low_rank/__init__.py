"""Low-rank estimates, and decompositions of the whole matrix."""

from approx import _lazy

_lazy.modules_of(__name__)
