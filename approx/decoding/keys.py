"""Kept keys: all of them, sinks and a window, or those with the most attention so far (H2O)."""

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache, softmax
from approx.supports.eviction import Limits


class KeptKeys(Cache):
    """Keys with their values, of which some go when there are too many.

    Parameters
    ----------
    d, c : int
    limits : Limits, optional
        How many keys there may be, and which of them stay; None keeps them all.
    heavy : bool
        Whether those with the least attention so far go, as in H2O, or else the oldest.

    Notes
    -----
    A query reads every key that is kept, and with ``heavy`` the sum of its attention, to which the
    attention of the query is added. So each query is answered once, after its own key was appended.

    Examples
    --------
    >>> from approx import parse
    >>> cache = parse("sink_window(k=2)").cache(d=1, c=1)
    >>> for value in [1.0, 2.0, 3.0]:
    ...     cache.append([0.0], [value])
    >>> cache.places, cache.attend([0.5]), cache.reads
    (array([0, 2]), array([2.]), 4)
    """

    def __init__(
        self, d: int, c: int, limits: Limits | None = None, *, heavy: bool = False
    ) -> None:
        super().__init__(d, c)
        self.limits, self.heavy = limits, heavy
        self.keys, self.values = np.zeros((0, self.d)), np.zeros((0, self.c))
        self.places: Array = np.zeros(0, np.intp)
        self.sums: Array = np.zeros(0)

    def add(self, k: Array, v: Array) -> None:
        """Evict keys if there is no room, then keep this one."""
        if self.limits is not None and len(self.keys) == self.limits.k:
            self._evict(self.limits)
            if len(self.keys) == self.limits.k:
                return  # it is full of sinks
        self.keys, self.values = np.vstack([self.keys, k]), np.vstack([self.values, v])
        self.places, self.sums = np.append(self.places, self.tokens), np.append(self.sums, 0.0)

    def _evict(self, limits: Limits) -> None:
        free = np.flatnonzero(limits.free(self.places, self.tokens))
        scores = self.sums[free] if self.heavy else self.places[free]
        worst = free[np.argsort(scores, kind="stable")[: limits.block]]
        self.keys, self.values = (np.delete(x, worst, axis=0) for x in (self.keys, self.values))
        self.places, self.sums = (np.delete(x, worst) for x in (self.places, self.sums))

    def answer(self, q: Array) -> Array:
        """Return the softmax of the logits of the keys times their values."""
        weights = softmax(self.keys @ q)
        if self.heavy:
            self.sums = self.sums + weights
        return np.asarray(weights @ self.values)

    @property
    def reads(self) -> int:
        """Keys with their values, and the sums of H2O."""
        return len(self.keys) * (self.d + self.c + self.heavy)
