"""What every support shares: entries (i, j) on which the estimate is exp(q·k) itself."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from approx import checks, memory, pattern_products
from approx.approximation import Approximation
from approx.checks import Array
from approx.method import Method, Moments, Rng, generator
from approx.parts import Factors, Support
from approx.sparse.pattern import Pattern

MOST_ROUNDS = 2**16  # each is a pass over all queries and keys


@dataclasses.dataclass(frozen=True)
class SupportMethod(Method):
    """A sparse estimate: exp(q·k) on a support, 0 elsewhere.

    Normalised by its own row sums it is attention restricted to the support.
    """

    deterministic: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ()  # fields that are integers ≥ 1, or None where default

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in self.counts and not (value is None and field.default is None):
                most = MOST_ROUNDS if field.name == "rounds" else None
                count = checks.integer(field.name, value, least=1, most=most)
                object.__setattr__(self, field.name, count)

    @abstractmethod
    def columns(self, Q: Array, K: Array, rng: np.random.Generator) -> Pattern:
        """Return the support as CSR (indptr, indices), without duplicates."""

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return exp(q·k) on the support."""
        q, k = self.checked(Q, K)
        n, l = len(q), len(k)
        price = self.price(n=n, l=l, d=q.shape[1])
        memory.reserve(int((price or 0) * n * (8 + q.itemsize)), f"{self}", "n or the size")
        rounds = getattr(self, "rounds", 1)
        memory.reserve(24 * rounds * (n + l + q.shape[1]), f"{self}", "rounds, n or l")
        indptr, indices = self.columns(q, k, generator(rng))
        index = scipy.sparse.get_index_dtype(maxval=max(len(indices), l))
        indptr, indices = (x.astype(index, copy=False) for x in (indptr, indices))
        pattern = scipy.sparse.csr_array((np.zeros(len(indices)), indices, indptr), shape=(n, l))
        pattern.sort_indices()
        logits = pattern_products.product(q, k, pattern)
        support = scipy.sparse.csr_array((logits, pattern.indices, indptr), shape=(n, l))
        return Approximation(Factors.empty(n, l, q.dtype), Support(support))

    def probability(self, Q: ArrayLike, K: ArrayLike) -> Array | None:
        """Return P[(i, j) is in the support] over rng, (n, l) float64; None where unknown.

        0 or 1 where nothing is drawn.
        """
        q, k = self.checked(Q, K)
        if self.uses_rng:
            return None
        memory.reserve(8 * len(q) * len(k), "the probabilities of the entries", "n or l")
        indptr, indices = self.columns(q, k, generator(None))
        p = np.zeros((len(q), len(k)))
        p[np.repeat(np.arange(len(q)), np.diff(indptr)), indices] = 1.0
        return p

    def moments(self, Q: ArrayLike, K: ArrayLike) -> Moments | None:
        """Return relative bias p − 1 and variance p·(1 − p), p the probability of an entry."""
        if not self.uses_rng:  # an entry too far below its row's scale is 0
            return self.realised_moments(Q, K)
        p = self.probability(Q, K)
        if p is None:
            return None
        with np.errstate(divide="ignore"):
            return Moments(p - 1.0, np.log(p) + np.log1p(-p))


def a_support(value: Any) -> None:
    """Raise TypeError where a field ``sparse`` is no method, ValueError where it is no support."""
    checks.instance("sparse", value, Method, "a method")
    if not isinstance(value, SupportMethod):
        raise ValueError(f"sparse must be a support (top_k, …), got {value}")
