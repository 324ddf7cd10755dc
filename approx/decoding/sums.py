"""The state of linear attention: sums over keys of features times values, and of features."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.estimate.low import add_sink, divide_by_last

Feature = tuple[Array | float, Array | float]  # values and logs, together value·e^log


class FeatureMaps(NamedTuple):
    """The features of one query or key.

    Attributes
    ----------
    query, key : callable
        (d,) → values and logs, each (m,) or one number for all; the features are values·e^logs.
    width : int
        m.
    parameters : int
        Numbers that are read to map a query, such as frequencies.
    """

    query: Callable[[Array], Feature]
    key: Callable[[Array], Feature]
    width: int
    parameters: int = 0


class RunningSums(Cache):
    """Σ_j ψ(k_j)_r [v_j, 1] for each feature r, at the scale of the largest ψ(k_j)_r so far.

    The answer is Σ_r φ(q)_r Σ_j ψ(k_j)_r v_j, divided by the same sum with 1 in place of v_j.

    Notes
    -----
    Each feature has a running maximum: nothing overflows, and a feature that is small for all keys
    does not underflow. `Method.approximate` has one scale for all features of the visible keys, so
    a product below e^−745 of this scale is 0 there, but not here. In addition to the m·(c + 1)
    numbers in the price of a state, the m maxima are read.

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
        values, logs = self.maps.key(k)
        tops = np.maximum(self.tops, logs)
        scale = np.where(np.isneginf(tops), 0.0, tops)  # for features that were always 0
        self.sums *= np.exp(self.tops - scale)[:, None]
        self.sums += np.outer(values * np.exp(logs - scale), np.append(v, 1.0))
        self.tops = tops

    def answer(self, q: Array, sink: float) -> Array:
        values, logs = self.maps.query(q)
        logs = logs + self.tops
        top = logs.max()
        if top == -np.inf:
            return np.zeros(self.c)
        y = (values * np.exp(logs - top)) @ self.sums
        return np.asarray(divide_by_last(add_sink(y[None], np.array([top]), sink))[0])

    @property
    def reads(self) -> int:
        return self.maps.width * (self.c + 2) + self.maps.parameters

    def arrays(self) -> list[Any]:
        return [self.sums, self.tops]
