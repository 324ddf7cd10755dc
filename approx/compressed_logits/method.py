"""The base class of methods that compress queries and keys before computing logits."""

import dataclasses
from abc import abstractmethod
from typing import ClassVar, NamedTuple, Self

import numpy as np

from approx import checks
from approx.checks import Array
from approx.compressed_logits.exponential import Exponential
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method
from approx.method.filling import resized
from approx.method.prices import SHARED, Numbers, Price, Shape


class CompressionCost(NamedTuple):
    """The cost of compressed queries and keys.

    Attributes
    ----------
    query, key : float
        Numbers that are stored for a query and for a key.
    read : float
        Numbers of a key that a query reads, each for one multiply-add.
    mapped : float
        Multiply-adds that compress a query or a key; each reads one parameter.
    per_query, per_key, once : float
        Multiply-adds that fit the compression: for each query, for each key, and once for all.
    """

    query: float
    key: float
    read: float
    mapped: float = 0.0
    per_query: float = 0.0
    per_key: float = 0.0
    once: float = 0.0

    def fitted(self, shape: Shape) -> float:
        """Return the multiply-adds per query that fit the compression and apply it."""
        of_keys = (self.mapped + self.per_key) * shape.l
        return self.mapped + self.per_query + (of_keys + self.once) / shape.n


@dataclasses.dataclass(frozen=True)
class CompressedLogits(Method):
    """An estimate exp(x̃), with logits x̃ of compressed queries and keys.

    A query still reads every key, in fewer multiply-adds: unlike factors of exp(q·k), the estimate
    has no state that answers a query.
    """

    class_name = "compressed logits"
    at_most_width: ClassVar[bool] = True  # whether the size is at most d, where nothing is lost

    @abstractmethod
    def compressed(self, q: Array, k: Array) -> tuple[Array, Array]:
        """Return left (n, w) and right (l, w) with x̃ = left rightᵀ."""

    @abstractmethod
    def numbers(self, d: int) -> CompressionCost:
        """Return the cost of queries and keys of width d; the method must not be a template."""

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        left, right = self.factors(q, k)
        return Parts(Exponential(left, right, self.stored(len(q), *k.shape)))

    def factors(self, q: Array, k: Array) -> tuple[Array, Array]:
        """Return `compressed` in the dtype of q, C-contiguous."""
        left, right = self.compressed(q, k)
        return np.ascontiguousarray(left, q.dtype), np.ascontiguousarray(right, q.dtype)

    def _price(self, shape: Shape) -> Price | None:
        if self.is_template:
            return None
        n, l, d, c = shape
        cost = self.numbers(d)
        return Price.from_numbers(
            self.stored(n, l, d) / n,
            float(shape.seen(l) * (cost.read + c) + cost.fitted(shape)),
            Numbers(float(shape.most * cost.read + cost.mapped)),
            Numbers(float(shape.most * c), most=SHARED, kind="values"),
        )

    def stored(self, n: int, l: int, d: int) -> int:
        """Return how many numbers are stored for n queries and l keys."""
        cost = self.numbers(d)
        return round(cost.query * n + cost.key * l)

    def _fill(self, budget: float, shape: Shape, currency: str) -> Self | None:
        """Return this template with its size, at most d, where nothing is lost."""
        found = super()._fill(budget, shape, currency)
        if found is None or found.sized_by is None or not self.at_most_width:
            return found
        return resized(found, min(getattr(found, found.sized_by.field), shape.d))

    def _check(self, q: Array, k: Array) -> None:
        super()._check(q, k)
        if self.sized_by is not None and self.at_most_width:
            field = self.sized_by.field
            checks.integer(f"{self}: {field}", getattr(self, field), least=1, most=q.shape[1])

    def _workspace(self, shape: Shape) -> int:
        return 8 * 4 * (shape.n + shape.l) * shape.d
