"""Masks: the interval of keys that each query sees."""

from __future__ import annotations

import dataclasses

import numpy as np

from approx.checks import Array


@dataclasses.dataclass(frozen=True, eq=False)
class Mask:
    """The mask under which query i sees the keys first_i ≤ j < stop_i.

    Parameters
    ----------
    first, stop : (n,) integers
    l : int
        Number of keys.
    """

    first: Array
    stop: Array
    l: int

    @classmethod
    def full(cls, n: int, l: int) -> Mask:
        """Return the mask under which every query sees every key.

        Examples
        --------
        >>> Mask.full(2, 3).stop
        array([3, 3])
        """
        return cls(np.zeros(n, np.intp), np.full(n, l, np.intp), l)
