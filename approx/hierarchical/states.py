"""What a model keeps to decode with a hierarchical estimate: the states of a Fenwick tree."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.hierarchical.summaries import Summary


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """A block of 2^level leaves: its summary and Σ_j T_j [v_j, 1]ᵀ, (r, c + 1)."""

    level: int
    summary: Summary
    total: Array


class States:
    """The cache of hierarchical attention, to which tokens are added one by one.

    `append` a key with its value, then `attend` with the query of the same token. The result is
    that row of ``method.approximate(Q, K, mask="causal").attend(V)``, to rounding. There is one
    state per binary digit 1 of the number of leaves before the token's own, so at most
    log₂(n/leaf) of them.

    It is made by `Hierarchical.states`.

    Examples
    --------
    >>> from approx import parse
    >>> cache = parse("hierarchical(rank=1, leaf=2, basis='mean')").states(d=1, c=1)
    >>> for value in [1.0, 2.0, 3.0, 6.0, 8.0]:
    ...     cache.append([0.0], [value])
    >>> cache.attend([0.5]), cache.reads
    (array([4.]), 6)
    """

    def __init__(
        self, summary: type[Summary], rank: int, leaf: int, sinks: int, d: int, c: int
    ) -> None:
        self.summary, self.rank, self.leaf = summary, rank, leaf
        self.sinks, self.d, self.c = sinks, d, c
        self.states: list[State] = []  # of decreasing level
        self.first: list[tuple[Array, Array]] = []  # sinks, with their values and 1
        self.own: list[tuple[Array, Array]] = []  # the keys of the token's own leaf

    def append(self, k: ArrayLike, v: ArrayLike) -> None:
        """Add a key (d,) and its value (c,).

        Raises
        ------
        TypeError, ValueError
            They are not finite numbers, or have another shape.
        """
        key, value = (np.asarray(checks.array(*x), np.float64) for x in (("k", k), ("v", v)))
        for name, x, width in (("k", key, self.d), ("v", value, self.c)):
            if x.shape != (width,):
                raise ValueError(f"{name} must have shape ({width},), got {x.shape}")
        token = key, np.append(value, 1.0)
        if len(self.first) < self.sinks:
            self.first.append(token)
            return
        if len(self.own) == self.leaf:
            self._close()
        self.own.append(token)

    def _close(self) -> None:
        """Summarise the complete leaf, and merge blocks of equal length."""
        keys, values = (np.stack(x) for x in zip(*self.own))
        summary, terms = self.summary.of(keys, self.rank)
        state = State(0, summary, terms @ values)
        while self.states and self.states[-1].level == state.level:
            before = self.states.pop()
            summary, transfer = before.summary.merged(state.summary, self.rank)
            total = transfer @ np.vstack([before.total, state.total])
            state = State(state.level + 1, summary, total)
        self.states.append(state)
        self.own = []

    def attend(self, q: ArrayLike) -> Array:
        """Return the attention of a query (d,) over the keys so far, (c,).

        Where the sum of the row is ≤ 0 it is 0, as in `Approximation.attend`.

        Raises
        ------
        ValueError
            There is no key yet, or the query has another shape.
        """
        query = np.asarray(checks.array("q", q), np.float64)
        if query.shape != (self.d,):
            raise ValueError(f"q must have shape ({self.d},), got {query.shape}")
        near = [*self.first, *self.own]
        if not near:
            raise ValueError("there is no key to attend to: append one first")
        keys, values = (np.stack(x) for x in zip(*near))
        logs = [keys @ query, *(state.summary.logs(query[None])[0] for state in self.states)]
        totals = [values, *(state.total for state in self.states)]
        top = max(x.max() for x in logs)
        y = sum((np.exp(x - top) @ total for x, total in zip(logs, totals)), np.zeros(self.c + 1))
        return y[:-1] / y[-1] if y[-1] > 0 else np.zeros(self.c)

    @property
    def reads(self) -> int:
        """Numbers that `attend` reads: near keys with their values, terms with their states."""
        term = self.summary.width(self.d) + self.c + 1
        near = len(self.first) + len(self.own)
        return near * (self.d + self.c) + sum(len(s.total) for s in self.states) * term
