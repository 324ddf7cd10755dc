"""Random sketches of polynomials, and of exp as a random polynomial."""

from approx import _lazy

_lazy.modules_of(__name__)
