"""Exact attention as a method: all keys that a query sees, with their price."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.keys import AllKeys, KeptKeys
from approx.estimate.masks import Mask
from approx.method.tags import BY_ROW, SUPPORT
from approx.sparse.support import ByPlace
from approx.supports.eviction import Limits


@dataclasses.dataclass(frozen=True)
class Exact(ByPlace):
    """Exact attention as a method, for comparison: every key that a query sees.

    estimate_ij = exp(q_i·k_j).

    Notes
    -----
    The estimate is deterministic and has no error. It stores every seen entry, so that it has
    metrics, ranks and products like any other; `approx.estimate.exact` streams the same numbers.
    Cost: 2·n·l·d operations and n·l numbers; under a causal mask half of both. A new query reads
    all keys that it sees, and their values.
    Source: a definition.

    Examples
    --------
    >>> Exact().approximate([[0.0], [1.0]], [[0.0], [1.0]], mask="causal").to_dense().round(3)
    array([[1.   , 0.   ],
           [1.   , 2.718]])
    """

    name = "exact"
    label = "exact attention"
    tags = SUPPORT | BY_ROW

    def reach(self, mask: Mask) -> tuple[Array, Array, int]:
        return mask.first, mask.stop, 1

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache:
        return KeptKeys(d, c, Limits(window, 1, 0, window)) if window else AllKeys(d, c)
