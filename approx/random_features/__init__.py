"""Random-feature estimates φ(q)·φ(k), one file a family."""

from approx import _lazy

_lazy.modules_of(__name__)
