"""The base class of supports: entries (i, j) on which the estimate is exp(q·k) itself."""

import dataclasses
from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.estimate import memory
from approx.estimate.corrections import Support
from approx.estimate.low import Factors
from approx.estimate.masks import Mask, MaskLike
from approx.estimate.parts import Parts
from approx.method import Method, Moments, Rng, generator
from approx.method.evaluation import checked_inputs, evaluated
from approx.method.fields import ruled
from approx.method.prices import SHARED, Price, Shape, entries, price_at
from approx.method.tags import BY_ROW, POSITIONAL, READS_VALUES, SUPPORT
from approx.supports import patterns
from approx.supports.patterns import Pattern, exact_on

MOST_ROUNDS = 2**16  # each round is a pass over all queries and keys


class Rivals(NamedTuple):
    """A class of supports, over which a lower bound on the errors of a method is taken.

    Attributes
    ----------
    kind : str
        A name in `analysis.bounds.support_bounds.BOUNDS`.
    sizes : tuple of int
        What all of them have in common, such as a number of keys.
    """

    kind: str
    sizes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class SupportMethod(Method):
    """A sparse estimate: exp(q·k) on a support, 0 elsewhere.

    With rows normalised by their own sums, the estimate is attention restricted to the support.
    A subclass states its tags, such as `SUPPORT`; by default those of its parts, and that a query
    reads values.
    """

    class_name = "entries"
    rounds = 1  # a field in supports that are a union of several patterns
    keeps_all = True  # whether a later query may read any key, so that a cache holds all of them

    @property
    def tags(self) -> frozenset[str]:
        return super().tags | {READS_VALUES}

    @property
    def shares_keys(self) -> bool:
        """Whether heads with the same keys and values read the same of them."""
        return False

    @property
    def rivals(self) -> Rivals | None:
        """The supports with which this one competes; None for all with as many entries."""
        return None

    @abstractmethod
    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        """Return the support as CSR (indptr, indices), without duplicates.

        A support that ranks keys ranks only those that the query sees; unseen keys are dropped.
        """

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        low = Factors.empty(len(q), len(k), q.dtype)
        return Parts(low, exact_on(self.pattern(q, k, mask, rng), q, k, mask))

    def support(self, Q: ArrayLike, K: ArrayLike, mask: MaskLike, rng: Rng) -> Support:
        """Return exp(q·k) on the support, which is the whole estimate."""
        found = evaluated(self, Q, K, mask, rng).sparse
        assert isinstance(found, Support)
        return found

    def held(self, mask: Mask) -> Array | None:
        """Return the most keys that each row can hold, (n,); None if that depends on the inputs.

        By default this is the size of the method, or the number of keys that the row sees if less.
        """
        size = self.sized_by
        count = None if size is None else getattr(self, size.field)
        return None if count is None else np.minimum(count, mask.counts)

    def longest(self, shape: Shape) -> float:
        """Return the most keys that a query can hold in decoding, where `held` knows it."""
        held = self.held(shape.decoding)
        assert held is not None
        return float(held.max())

    def selection(self, shape: Shape) -> Price:
        """Return the price of choosing the keys, without reading them; 0 by default."""
        return Price(0.0, 0.0, 0.0, 0.0)

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of the keys and of choosing them; it reads those of the longest row."""
        if self.is_template or (held := self.held(shape.rows)) is None:
            return None
        of_keys = self.price_of_keys(self.longest(shape), float(held.mean()), shape)
        return of_keys + self.selection(shape)

    def price_of_keys(self, longest: float, mean: float, shape: Shape) -> Price:
        """Return the price of the keys of the longest row, without choosing them."""
        held = float(shape.most) if self.keeps_all else None
        most = SHARED if self.shares_keys else float(shape.most)
        return entries(longest, shape, mean=mean, held=held, most=most)

    def _workspace(self, shape: Shape) -> int:
        n, l, d, _ = shape
        price = price_at(self, shape)
        stored = 0 if price is None else int(16 * price.stored * n)
        return max(stored, 24 * self.rounds * (n + l + d))

    def probability(self, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None) -> Array | None:
        """Return P[(i, j) is in the support] over rng, (n, l) float64; None if it is unknown.

        It is 0 or 1 for a support that draws nothing, and 0 where a query does not see a key.
        """
        q, k, seen = checked_inputs(self, Q, K, mask)
        memory.reserve(8 * len(q) * len(k), "the probabilities of the entries", "n or l")
        p = self.inclusion(q, k, seen)
        if p is not None:
            seen.hide(p)
        return p

    def inclusion(self, q: Array, k: Array, mask: Mask) -> Array | None:
        """Return `probability` for checked q (n, d) and k (l, d)."""
        if not self.deterministic:
            return None
        indptr, indices = self.pattern(q, k, mask, generator(None))
        p = np.zeros((len(q), len(k)))
        p[np.repeat(np.arange(len(q)), np.diff(indptr)), indices] = 1.0
        return p

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return relative bias p − 1 and variance p·(1 − p), with p the probability of an entry."""
        p = self.inclusion(q, k, mask)
        if p is None:
            return None
        with np.errstate(divide="ignore"):
            return Moments(p - 1.0, np.log(p) + np.log1p(-p))


class ByPlace(SupportMethod):
    """A support that follows from positions alone: runs of keys in every row.

    Where the mask looks back, a row depends only on the interval of keys that it sees. Elsewhere
    the position of query i is ⌊i·l/n⌋.
    """

    class_name = "window"
    tags = SUPPORT | BY_ROW | {POSITIONAL}
    shares_keys = True
    keeps_all = False

    @abstractmethod
    def reach(self, mask: Mask) -> tuple[Array, Array, Array | int]:
        """Return first, last and stride of the runs, each (n,), or (n, r) for r runs in every row.

        A run holds the keys first, first + stride, … below last, all of which the query sees. The
        runs of a row are in order and do not overlap.
        """

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        first, last, stride = self.reach(mask)
        indptr, indices = patterns.runs(first.ravel(), last.ravel(), stride)
        return indptr[:: first.size // mask.n], indices

    def held(self, mask: Mask) -> Array | None:
        if self.is_template:
            return None
        return np.asarray(patterns.lengths(*self.reach(mask)).reshape(mask.n, -1).sum(axis=1))


def a_support(default: SupportMethod | None) -> Any:
    """Return a field for a support; another method raises ValueError, no method TypeError.

    None is allowed only as the default.
    """

    def rule(name: str, value: Any) -> Any:
        checks.instance(name, value, Method, "a method")
        if not isinstance(value, SupportMethod):
            raise ValueError(f"{name} must be a support (top_k, …), got {value}")
        return value

    return ruled(default, rule)
