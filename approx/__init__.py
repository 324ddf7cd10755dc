"""Estimates of exp(q·k).

`METHODS` lists every method, and `ALIASES` lists well-known names. `parse` reads a spec such as
``"scatterbrain(low_rank=positive(m=64), sparse=top_k(k=32))"``.
"""

from typing import TYPE_CHECKING

# Names are imported at their first use: a worker process that needs one module does not wait for
# all methods. A type checker reads the imports below.
_HOMES = {
    "ALIASES": "registry",
    "METHODS": "registry",
    "Approximation": "estimate.approximation",
    "Mask": "estimate.masks",
    "Method": "method.method",
    "Moments": "method.moments",
    "Parts": "estimate.parts",
    "Price": "method.prices",
    "ResourceLimitError": "estimate.memory",
    "Size": "method.filling",
    "parse": "registry",
}
__all__ = [*_HOMES, "exact", "projections"]

if TYPE_CHECKING:
    from approx import projections as projections
    from approx.estimate import exact as exact
    from approx.estimate.approximation import Approximation as Approximation
    from approx.estimate.masks import Mask as Mask
    from approx.estimate.memory import ResourceLimitError as ResourceLimitError
    from approx.estimate.parts import Parts as Parts
    from approx.method.filling import Size as Size
    from approx.method.method import Method as Method
    from approx.method.moments import Moments as Moments
    from approx.method.prices import Price as Price
    from approx.registry import ALIASES as ALIASES, METHODS as METHODS, parse as parse
else:
    from approx import _lazy

    _lazy.Shortcuts(__name__, {"exact": "estimate.exact"})
    __getattr__ = _lazy.attribute(__name__, _HOMES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
