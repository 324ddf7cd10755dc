"""Attention weights on a support, with the denominator over all keys."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from approx import exact
from approx.approximation import Approximation
from approx.method import Method, Rng
from approx.parts import Factors, Support
from approx.sparse.support import SupportMethod, a_support
from approx.sparse.top_k import TopK


@dataclasses.dataclass(frozen=True)
class TrueDenominator(Method):
    """A support with the true denominator: weights of exact attention, the others 0.

    estimate_ij = exp(q_i·k_j)/Σ_c exp(q_i·k_c) on the support, else 0; all keys c in the sum.

    Parameters
    ----------
    sparse : Method
        Any support. On its own it is the other convention: renormalised on its entries.

    Notes
    -----
    In attention space: rows are used as they are, and sum to the attention mass they hold, at most
    1. What is lost is (1 − mass) of a row; renormalised, what is kept is blown up by 1/mass.
    Under a causal mask rows are renormalised over what is seen: there the conventions agree.
    Cost: that of the support and 2·n·l·d operations for the denominator, which makes it an oracle.
    Source: a definition.

    Examples
    --------
    >>> TrueDenominator(TopK(k=1)).approximate([[0.0]], [[1.0], [2.0]]).to_dense()
    array([[0. , 0.5]])
    """

    name: ClassVar[str] = "true_denominator"
    deterministic: ClassVar[bool] = False

    sparse: SupportMethod = TopK()

    def __post_init__(self) -> None:
        a_support(self.sparse)

    @property
    def oracle(self) -> bool:
        """The denominator needs every key."""
        return True

    @property
    def uses_rng(self) -> bool:
        """Whether the support does."""
        return self.sparse.uses_rng

    @property
    def is_template(self) -> bool:
        """Whether the support is."""
        return self.sparse.is_template

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return the attention weights on the support."""
        q, k = self.checked(Q, K)
        support = self.sparse.approximate(q, k, rng=rng).correction
        assert isinstance(support, Support)
        s = support.matrix
        logs = s.data - np.repeat(exact.log_row_sums(q, k), np.diff(s.indptr))
        weights = scipy.sparse.csr_array((logs.astype(s.dtype), s.indices, s.indptr), s.shape)
        return Approximation(Factors.empty(*s.shape, s.dtype), Support(weights), space="attention")

    def price(self, *, n: int, l: int, d: int) -> float | None:
        """Return that of the support; the denominators are not counted."""
        return self.sparse.price(n=n, l=l, d=d)

    def within(self, budget: float, *, n: int, l: int, d: int) -> Self | None:
        """Return it with the support filled to the budget."""
        filled = self.sparse.within(budget, n=n, l=l, d=d)
        return None if filled is None else dataclasses.replace(self, sparse=filled)
