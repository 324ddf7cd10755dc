"""What the oracles share that split the whole matrix into low-rank + sparse."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

from numpy.typing import ArrayLike

from approx import checks
from approx.approximation import Approximation
from approx.low_rank import target
from approx.low_rank.decomposition import Decomposition, Matrix
from approx.method import Method, Rng


class SplitMethod(Method):
    """estimate = L + S for D = exp(Q Kᵀ) or its row-softmax; without a budget unless it has one."""

    deterministic: ClassVar[bool] = True
    space: str  # a field of each, behind its own

    def __post_init__(self) -> None:
        checks.one_of("space", self.space, ("kernel", "attention"))

    @property
    def oracle(self) -> bool:
        """It needs the dense matrix."""
        return True

    @abstractmethod
    def split(self, D: Matrix) -> Decomposition:
        """Return D as L + S."""

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return L + S."""
        q, k = self.checked(Q, K)
        D, top = target.matrix(q, k, self.space)
        found = self.split(D)
        return target.approximation(found.left, found.right, found.sparse, top, q.dtype, self.space)

    def price(self, *, n: int, l: int, d: int) -> float | None:
        """Return None: rank or entries are what D takes."""
        return None

    def within(self, budget: float, *, n: int, l: int, d: int) -> Self | None:
        """Return None: what is stored cannot be chosen."""
        checks.asked(budget, n, l, d)
        return None
