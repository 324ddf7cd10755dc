"""Attention weights on a support, with the denominator over all keys."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method
from approx.method.tags import ORACLE
from approx.sparse.support import SupportMethod, a_support
from approx.sparse.top_k import TopK


@dataclasses.dataclass(frozen=True)
class TrueDenominator(Method):
    """A support with the true denominator: the weights of exact attention on it, 0 off it.

    estimate_ij = exp(q_i·k_j)/Σ_c exp(q_i·k_c) on the support, else 0; the sum is over all
    keys c that query i sees.

    Parameters
    ----------
    sparse : Method
        Any support. A support by itself follows the other convention: its rows are renormalised
        over their entries.

    Notes
    -----
    The estimate is in attention space: its rows are used as they are, and each sums to the
    attention on its support, its mass, which is at most 1. Such a row loses 1 − mass;
    renormalisation would instead enlarge its entries by 1/mass.
    Cost: that of the support and 2·n·l·d operations for the denominator, which needs all logits.
    Source: a definition.

    Examples
    --------
    >>> TrueDenominator(TopK(k=1)).approximate([[0.0]], [[1.0], [2.0]]).to_dense()
    array([[0. , 0.5]])
    """

    name = "true_denominator"
    label = "support with the true denominator"
    examples = (
        "true_denominator(top_k())",
        "true_denominator(random())",
    )
    space = "attention"

    sparse: SupportMethod = a_support(TopK())

    @property
    def tags(self) -> frozenset[str]:
        return super().tags | {ORACLE}  # the denominator needs every key

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        support = self.sparse.support(q, k, mask, rng)
        low = Factors.empty(len(q), len(k), q.dtype)
        weights = support.normalised(exact.log_row_sums(q, k, mask=mask))
        return Parts(low, weights, space="attention")
