"""Baselines that every method must beat: estimates with almost no cost and no information."""

import dataclasses

import numpy as np
import scipy

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import FROBENIUS, Method
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import BY_ROW, INVARIANT, ORACLE, ROTATION, ROW_SHIFT, SCALE


class Baseline(Method):
    """An estimate that every method must beat. It has a price, but fits any budget."""

    def _price(self, shape: Shape) -> Price:
        return dataclasses.replace(low_rank(1, shape), multiply_adds=0.0, entry_work=0.0)

    def _affordable(self, budget: float, shape: Shape, currency: str) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class Zero(Baseline):
    """The zero matrix: relative Frobenius error 1 in kernel space, no attention at all.

    Notes
    -----
    The estimate is biased and deterministic. Cost: none, rank 0.
    Source: a definition.

    Examples
    --------
    >>> Zero().approximate([[1.0]], [[1.0]]).to_dense()
    array([[0.]])
    """

    name = "zero"
    label = "zero matrix"
    tags = INVARIANT | BY_ROW

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        return Parts(Factors.empty(len(q), len(k), q.dtype))

    def _price(self, shape: Shape) -> Price:
        return Price(0.0, 0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class One(Baseline):
    """The matrix of ones, the Taylor polynomial of degree 0: uniform attention, mean(V).

    Notes
    -----
    Under a mask each query attends equally to the keys that it sees. The estimate is biased and
    deterministic. Cost: n + l numbers, rank 1.
    Source: a definition.

    Examples
    --------
    >>> One().approximate([[1.0]], [[1.0]]).to_dense()
    array([[1.]])
    """

    name = "one"
    label = "all ones"
    tags = BY_ROW | {ROW_SHIFT, ROTATION, SCALE}

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        return Parts(Factors.constant(np.zeros(len(q), q.dtype), len(k)))


@dataclasses.dataclass(frozen=True)
class Constant(Baseline):
    """The mean of all exp(q·k), the best constant matrix in Frobenius norm.

    Notes
    -----
    Under a mask it is the mean inside the mask. Cost: 2·n·l·d operations, streamed.
    Source: a definition.

    Examples
    --------
    >>> Constant().approximate([[1.0], [1.0]], [[0.0], [1.0]]).to_dense().round(3)
    array([[1.859, 1.859],
           [1.859, 1.859]])
    """

    name = "constant"
    label = "best constant"
    tags = frozenset({ORACLE, ROW_SHIFT, ROTATION, SCALE})  # the mean needs all logits

    def optimal_in(self, mask: Mask | None = None) -> set[str]:
        return {FROBENIUS["kernel"]}

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        mean = scipy.special.logsumexp(exact.log_row_sums(q, k, mask=mask)) - np.log(mask.entries)
        return Parts(Factors.constant(np.full(len(q), mean).astype(q.dtype), len(k)))


@dataclasses.dataclass(frozen=True)
class Uniform(Baseline):
    """The mean of exp(q·k) over each row: uniform attention, mean(V).

    Notes
    -----
    In Frobenius norm it is the best matrix with constant rows. In kernel space the means need all
    logits; in attention space they need no logit. Under a mask each mean is over the keys that the
    query sees. Cost: 2·n·l·d operations, streamed.
    Source: a definition.

    Examples
    --------
    >>> Uniform().approximate([[0.0], [1.0]], [[0.0], [1.0]]).to_dense().round(3)
    array([[1.   , 1.   ],
           [1.859, 1.859]])
    """

    name = "uniform"
    label = "uniform attention"
    tags = INVARIANT | BY_ROW

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        means = exact.log_row_sums(q, k, mask=mask) - np.log(mask.counts)
        return Parts(Factors.constant(means.astype(q.dtype), len(k)))
