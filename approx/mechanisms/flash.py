"""The mixed chunk attention of FLASH as a method."""

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
        Keys per chunk, 1 ≤ size ≤ l; None is a template.

    Notes
    -----
    The rows are in attention space and used as they are: they do not sum to 1, and their entries
    may be negative. Nothing in the formula tends to softmax; the method is here to show its
    distance from softmax. It is deterministic.
    The paper learns scale and offset of two pairs of queries and keys; here both pairs are Q and K
    as given, whose logits are already divided by √s. Under a causal mask rows are renormalised over
    the keys that are seen; `approx.textbook.flash.mixed_chunk` has the causal form with its own
    normaliser.
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
        """Return the global part as factors and the local part as entries that add to it."""
        low = Factors(q / q.dtype.type(len(k)), k, np.zeros(len(q), q.dtype))
        return Approximation(
            low, flash.local_quadratic(q, k, self.size or 0, width=1), space="attention"
        )

    def priced(self, shape: Shape) -> Price | None:
        """Return the price of d columns and size entries, as if every chunk were full."""
        if self.size is None:
            return None
        return low_rank(shape.d, shape) + entries(self.size, shape)
