"""The cache to decode with a hierarchical estimate: the states of a Fenwick tree."""

import dataclasses
from typing import Any

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.estimate.low import add_sink, divide_by_last
from approx.hierarchical.summaries import Summary


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """A block of 2^level leaves: its summary and Σ_j T_j [v_j, 1]ᵀ, (r, c + 1)."""

    level: int
    summary: Summary
    total: Array


class States(Cache):
    """The cache of hierarchical attention, to which tokens are added one by one.

    There is one state per binary digit 1 of the number of leaves before the token's leaf. So there
    are at most log₂(n/leaf) states.

    Examples
    --------
    >>> from approx import parse
    >>> cache = parse("hierarchical(rank=1, leaf=2, basis='mean')").cache(d=1, c=1)
    >>> for value in [1.0, 2.0, 3.0, 6.0, 8.0]:
    ...     cache.append([0.0], [value])
    >>> cache.attend([0.5]), cache.reads
    (array([4.]), 6)
    """

    def __init__(
        self, summary: type[Summary], rank: int, leaf: int, sinks: int, d: int, c: int
    ) -> None:
        super().__init__(d, c)
        self.summary, self.rank, self.leaf = summary, rank, leaf
        self.sinks = sinks
        self.states: list[State] = []  # of decreasing level
        self.first: list[tuple[Array, Array]] = []  # sinks, with their values and 1
        self.own: list[tuple[Array, Array]] = []  # the keys of the token's own leaf

    def add(self, k: Array, v: Array) -> None:
        token = k, np.append(v, 1.0)
        if len(self.first) < self.sinks:
            self.first.append(token)
            return
        if len(self.own) == self.leaf:
            self._close()
        self.own.append(token)

    def _close(self) -> None:
        """Summarise the complete leaf, and merge blocks of equal length."""
        keys, values = (np.stack(x) for x in zip(*self.own))
        summary, terms = self.summary.from_keys(keys, self.rank)
        state = State(0, summary, terms @ values)
        while self.states and self.states[-1].level == state.level:
            before = self.states.pop()
            summary, transfer = before.summary.merged(state.summary, self.rank)
            total = transfer @ np.vstack([before.total, state.total])
            state = State(state.level + 1, summary, total)
        self.states.append(state)
        self.own = []

    def answer(self, q: Array, sink: float) -> Array:
        near = [*self.first, *self.own]
        keys, values = (np.stack(x) for x in zip(*near))
        logs = [keys @ q, *(state.summary.logs(q[None])[0] for state in self.states)]
        totals = [values, *(state.total for state in self.states)]
        top = max(x.max() for x in logs)
        y = sum((np.exp(x - top) @ total for x, total in zip(logs, totals)), np.zeros(self.c + 1))
        return np.asarray(divide_by_last(add_sink(y[None], np.array([top]), sink))[0])

    @property
    def reads(self) -> int:
        term = self.summary.width(self.d) + self.c + 1
        near = len(self.first) + len(self.own)
        return near * (self.d + self.c) + sum(len(s.total) for s in self.states) * term

    def arrays(self) -> list[Any]:
        """Return near keys with their values, and the summaries and totals of blocks.

        These include numbers that a query does not read, which summaries need to be merged.
        """
        near = [x for k, v in [*self.first, *self.own] for x in (k, v[:-1])]
        states = [x for s in self.states for x in (s.total, *vars(s.summary).values())]
        return near + [np.asarray(x) for x in states]
