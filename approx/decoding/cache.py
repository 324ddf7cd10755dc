"""The base of every cache: tokens are appended, and each query is answered from what is kept."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array


class Cache(ABC):
    """What a causal model keeps of the keys (d,) and values (c,) that it has seen.

    `append` a key with its value, then `attend` with the query of the same token, once a token. The
    result is that row of ``method.approximate(Q, K, mask="causal", rng=rng).attend(V)``, to
    rounding. It is made by `Method.cache`, and computes in float64.

    Parameters
    ----------
    d, c : int
        Widths of keys and values.
    """

    def __init__(self, d: int, c: int) -> None:
        self.d, self.c = (
            checks.integer(name, width, least=1) for name, width in (("d", d), ("c", c))
        )
        self.tokens = 0

    def append(self, k: ArrayLike, v: ArrayLike) -> None:
        """Add a key (d,) and its value (c,).

        Raises
        ------
        TypeError, ValueError
            They are not finite numbers, or have another shape.
        """
        self.add(_vector("k", k, self.d), _vector("v", v, self.c))
        self.tokens += 1

    def attend(self, q: ArrayLike) -> Array:
        """Return the attention of a query (d,) over the keys so far, (c,).

        Where the sum of the row is ≤ 0 it is 0, as in `Approximation.attend`.

        Raises
        ------
        TypeError, ValueError
            There is no key yet, or the query is not of finite numbers, or has another shape.
        """
        query = _vector("q", q, self.d)
        if not self.tokens:
            raise ValueError("there is no key to attend to: append one first")
        return self.answer(query)

    @abstractmethod
    def add(self, k: Array, v: Array) -> None:
        """Do `append` for checked vectors; `tokens` keys came before."""

    @abstractmethod
    def answer(self, q: Array) -> Array:
        """Return `attend` for a checked query."""

    @property
    @abstractmethod
    def reads(self) -> int:
        """Numbers that the next `attend` reads."""


def softmax(x: Array) -> Array:
    """Return e^x over its sum.

    Accuracy: 3 eps·κ, as docs/accuracy.md defines it.

    Examples
    --------
    >>> softmax(np.array([9999.0, 9999.0]))
    array([0.5, 0.5])
    """
    weights = np.exp(x - x.max())
    return np.asarray(weights / weights.sum())


def _vector(name: str, x: ArrayLike, width: int) -> Array:
    vector = np.asarray(checks.array(name, x), np.float64)
    if vector.shape != (width,):
        raise ValueError(f"{name} must have shape ({width},), got {vector.shape}")
    return vector
