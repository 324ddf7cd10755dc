"""The state of linear attention: sums over keys of their features times values and 1."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache

Feature = tuple[Array | float, Array | float]  # values and logs, together value·e^log


class FeatureMaps(NamedTuple):
    """The features of one query or key.

    Attributes
    ----------
    query, key : callable
        (d,) → values and logs, (m,) each or one number for all: the features are values·e^logs.
    width : int
        m.
    parameters : int
        Numbers that the map of a query reads, such as frequencies.
    """

    query: Callable[[Array], Feature]
    key: Callable[[Array], Feature]
    width: int
    parameters: int = 0


class RunningSums(Cache):
    """Σ_j ψ(k_j)_r [v_j, 1] for each feature r, at the scale of the largest ψ(k_j)_r so far.

    The answer is Σ_r φ(q)_r Σ_j ψ(k_j)_r v_j over the same with 1 in place of v_j.

    Parameters
    ----------
    d, c : int
    maps : FeatureMaps

    Notes
    -----
    Each feature has a running maximum, so that nothing overflows, and a feature that is small for
    all keys keeps its digits. Prefill has one scale for all features of the keys that a query sees,
    so that a product is 0 there if it is below e^−745 of it; here it is not. The m maxima are read
    beside the m·(c + 1) numbers that the price of a state counts.

    Examples
    --------
    >>> from approx import parse
    >>> cache = parse("relu").cache(d=1, c=1)
    >>> for key, value in [(1.0, 4.0), (3.0, 8.0)]:
    ...     cache.append([key], [value])
    >>> cache.attend([0.5]), cache.reads
    (array([7.]), 3)
    """

    def __init__(self, d: int, c: int, maps: FeatureMaps) -> None:
        super().__init__(d, c)
        self.maps, self.parameters = maps, maps.parameters
        self.tops = np.full(maps.width, -np.inf)
        self.sums = np.zeros((maps.width, self.c + 1))

    def add(self, k: Array, v: Array) -> None:
        """Add the features of a key times [v, 1]."""
        values, logs = self.maps.key(k)
        tops = np.maximum(self.tops, logs)
        scale = np.where(np.isneginf(tops), 0.0, tops)  # of features that were always 0
        self.sums *= np.exp(self.tops - scale)[:, None]
        self.sums += np.outer(values * np.exp(logs - scale), np.append(v, 1.0))
        self.tops = tops

    def answer(self, q: Array) -> Array:
        """Return the features of the query times the sums, normalised."""
        values, logs = self.maps.query(q)
        logs = logs + self.tops
        top = logs.max()
        if top == -np.inf:
            return np.zeros(self.c)
        y = (values * np.exp(logs - top)) @ self.sums
        return np.asarray(y[:-1] / y[-1]) if y[-1] > 0 else np.zeros(self.c)

    @property
    def reads(self) -> int:
        """The sums, their scales, and what maps a query to its features."""
        return self.maps.width * (self.c + 2) + self.maps.parameters

    def arrays(self) -> list[Any]:
        return [self.sums, self.tops]
