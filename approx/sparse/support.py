"""What every support shares: entries (i, j) on which the estimate is exp(q·k) itself."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from approx import memory, sampled
from approx.base import Approximation, Method, Rng
from approx.checks import Array
from approx.parts import Factors, Support


@dataclasses.dataclass(frozen=True)
class SupportMethod(Method):
    """A sparse estimate: exp(q·k) on a support, 0 elsewhere.

    Normalised by its own row sums it is attention restricted to the support.
    """

    deterministic: ClassVar[bool] = True

    @abstractmethod
    def columns(self, Q: Array, K: Array, rng: Rng) -> tuple[Array, Array]:
        """Return the support as CSR (indptr, indices), without duplicates."""

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return exp(q·k) on the support."""
        q, k = self.checked(Q, K)
        n, l = len(q), len(k)
        price = self.price(n=n, l=l, d=q.shape[1])
        memory.reserve(int((price or 0) * n * (8 + q.itemsize)), f"{self}", "n or the size")
        indptr, indices = self.columns(q, k, rng)
        pattern = scipy.sparse.csr_array((np.zeros(len(indices)), indices, indptr), shape=(n, l))
        pattern.sort_indices()
        logits = sampled.product(q, k, pattern)
        support = scipy.sparse.csr_array((logits, pattern.indices, indptr), shape=(n, l))
        return Approximation(Factors.empty(n, l, q.dtype), Support(support))
