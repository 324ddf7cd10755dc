"""The base class of methods that split the whole matrix into low-rank + sparse."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.low_rank import target
from approx.low_rank.decomposition import Decomposition, Matrix
from approx.method import Method
from approx.method.fields import invariant


class DecompositionMethod(Method):
    """A method with estimate = L + S ≈ D for D = exp(Q Kᵀ) or its row-softmax.

    By default a budget cannot fill it. Under a mask, only the seen entries of D count, and
    row-softmax is over the seen keys.
    """

    deterministic: ClassVar[bool] = True
    invariant_to = invariant(shift=lambda m: m.space == "attention", rotation=True, scale=True)
    class_name = "sparse + low rank"
    oracle = True  # it needs the dense matrix
    adaptive = True  # rank and entries follow from D

    @abstractmethod
    def decompose(self, D: Matrix, mask: Mask) -> Decomposition:
        """Return D as L + S, with unseen entries free."""

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        D, top = target.matrix(q, k, self.space, mask)
        D_hat = self.decompose(D, mask)
        return target.parts(D_hat.left, D_hat.right, D_hat.sparse, top, q.dtype, self.space)
