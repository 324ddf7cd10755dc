"""Attention weights on a support, with the denominator over all keys."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import scipy.sparse

from approx import exact
from approx.approximation import Approximation
from approx.checks import Array
from approx.masks import Mask
from approx.method import Method
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
    space = "attention"
    oracle = True  # the denominator needs every key

    sparse: SupportMethod = a_support(TopK())

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Approximation:
        """Return the attention weights on the support."""
        support = self.sparse.approximate(q, k, rng=rng).correction
        assert isinstance(support, Support)
        s = support.matrix
        logs = s.data - np.repeat(exact.log_row_sums(q, k), np.diff(s.indptr))
        weights = scipy.sparse.csr_array((logs.astype(s.dtype), s.indices, s.indptr), s.shape)
        return Approximation(Factors.empty(*s.shape, s.dtype), Support(weights), space="attention")
