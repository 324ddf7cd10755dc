"""Estimates of exp(q·k).

`METHODS` lists every method, `ALIASES` familiar names; `parse` reads a spec such as
``"scatterbrain(low_rank=positive(m=64), sparse=top_k(k=32))"``.
"""

from typing import TYPE_CHECKING

# Names are imported when they are first used, so that whoever needs one module, such as a worker
# process, does not wait for all methods. A type checker reads where they come from.
_HOMES = {
    "ALIASES": "registry",
    "METHODS": "registry",
    "Approximation": "approximation",
    "Mask": "masks",
    "Method": "method",
    "Moments": "method",
    "Price": "prices",
    "ResourceLimitError": "memory",
    "Size": "method",
    "parse": "registry",
}
__all__ = [*_HOMES, "exact", "projections"]

if TYPE_CHECKING:
    from approx import exact as exact, projections as projections
    from approx.approximation import Approximation as Approximation
    from approx.masks import Mask as Mask
    from approx.memory import ResourceLimitError as ResourceLimitError
    from approx.method import Method as Method, Moments as Moments, Size as Size
    from approx.prices import Price as Price
    from approx.registry import ALIASES as ALIASES, METHODS as METHODS, parse as parse
else:
    from approx import _lazy

    __getattr__ = _lazy.attribute(__name__, _HOMES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
