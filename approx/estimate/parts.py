"""The result of a method's formula: a low-rank part and a sparse part, before any mask."""

import dataclasses
from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.estimate.corrections import Correction
from approx.estimate.low import Factors, Low


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """The two parts of estimate = diag(e^row_log) · (low ⊕ S), each with its own scale.

    `Method.evaluate` returns `Parts`; `Method.approximate` applies the mask and turns them into an
    `Approximation`.

    ``sparse`` is S, a `Support` or an `Addition`. The other fields are those of an `Approximation`.
    """

    low: Low
    sparse: Correction | None = None
    space: str = "kernel"
    values: Callable[[Array], Array] | None = None
    fitted: bool = False

    @classmethod
    def from_factors(
        cls, left: ArrayLike, right: ArrayLike, row_log: ArrayLike = 0.0, *, space: str = "kernel"
    ) -> Self:
        """Return the low-rank part diag(e^row_log) left rightᵀ.

        Examples
        --------
        >>> Parts.from_factors([[1.0], [2.0]], [[3.0]]).low.rank
        1
        """
        phi, psi = checks.array("left", left, ndim=2), checks.array("right", right, ndim=2)
        if phi.shape[1] != psi.shape[1]:
            raise ValueError(
                f"left and right must have the same width, got {phi.shape} and {psi.shape}"
            )
        logs = np.broadcast_to(checks.array("row_log", row_log), len(phi)).astype(phi.dtype)
        return cls(Factors(phi, psi.astype(phi.dtype, copy=False), logs), space=space)
