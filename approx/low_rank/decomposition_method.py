"""The base class of the oracles that split the whole matrix into low-rank + sparse."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from approx.approximation import Approximation
from approx.checks import Array
from approx.low_rank import target
from approx.low_rank.decomposition import Decomposition, Matrix
from approx.masks import Mask
from approx.method import Method


class DecompositionMethod(Method):
    """estimate = L + S for D = exp(Q Kᵀ) or its row-softmax; by default it fits no budget."""

    deterministic: ClassVar[bool] = True
    oracle = True  # it needs the dense matrix
    adaptive = True  # rank and entries follow from D

    @abstractmethod
    def decompose(self, D: Matrix) -> Decomposition:
        """Return D as L + S."""

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Approximation:
        D, top = target.matrix(q, k, self.space)
        D_hat = self.decompose(D)
        return target.approximation(D_hat.left, D_hat.right, D_hat.sparse, top, q.dtype, self.space)
