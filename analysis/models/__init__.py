"""Language models: capture of Q, K, V, replaced heads, plans, and generation with a plan."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.models.generation import attach, detach, generate
else:
    from approx import _lazy

    __getattr__ = _lazy.attribute(
        __name__, dict.fromkeys(("attach", "detach", "generate"), "generation")
    )

__all__ = ["attach", "detach", "generate"]
