"""FLASH's mixed chunk attention as a method."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from approx.approximation import Approximation
from approx.checks import Array
from approx.masks import Mask
from approx.method import Method, Size
from approx.parts import Factors
from approx.prices import Price, Shape, entries, low_rank
from approx.textbook import flash


@dataclasses.dataclass(frozen=True)
class Flash(Method):
    """FLASH mixed chunk attention: relu² within chunks plus global linear; biased, no softmax.

    estimate_ij = relu(q_i·k_j)²/size within a chunk + q_i·k_j/l everywhere.

    Parameters
    ----------
    size : int, optional
        Keys of a chunk, 1 ≤ size ≤ l; None is a template.

    Notes
    -----
    In attention space, rows used as they are: they do not sum to 1, and their entries may be
    negative. Nothing in it tends to softmax; what is to be seen is the distance. Deterministic.
    The paper learns scale and offset of two pairs of queries and keys; here both pairs are Q and K
    as given, whose logits are already divided by √s. Under a causal mask rows are renormalised over
    what is seen; `approx.textbook.flash.mixed_chunk` has the causal form with its own normaliser.
    Cost: 2·n·size·d + 2(n + l)·d·c operations, n·size + (n + l)·d numbers.

    References
    ----------
    .. [1] W. Hua, Z. Dai, H. Liu, Q. Le, "Transformer quality in linear time", ICML 2022,
       section 3.2.

    Examples
    --------
    >>> Flash(size=1).approximate([[1.0], [1.0]], [[1.0], [2.0]]).to_dense()
    array([[1.5, 1. ],
           [0.5, 5. ]])
    """

    name: ClassVar[str] = "flash"
    deterministic: ClassVar[bool] = True
    space = "attention"
    sized_by = Size("size", counts="entries")

    size: int | None = None

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Approximation:
        """Return the global part as factors, the local part as entries that add."""
        low = Factors(q / q.dtype.type(len(k)), k, np.zeros(len(q), q.dtype))
        return Approximation(
            low, flash.local_quadratic(q, k, self.size or 0, width=1), space="attention"
        )

    def priced(self, shape: Shape) -> Price | None:
        """Return that of d columns and size entries, as if every chunk were full."""
        if self.size is None:
            return None
        return low_rank(shape.d, shape) + entries(self.size, shape)
