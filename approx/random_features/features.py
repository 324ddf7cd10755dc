"""What every random-feature method shares: its size m, its frequencies, its budget."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks, exact, memory
from approx.base import Method, Moments, Rng, generator
from approx.checks import Array
from approx.projections import PROJECTIONS, Fixed, Projection, named


@dataclasses.dataclass(frozen=True)
class RandomFeatures(Method):
    """An estimate φ(q)·φ(k) whose frequencies ω are random.

    Parameters
    ----------
    m : int, optional
        Columns of the factors; None is a template. Left out with `Fixed` frequencies.
    projection : str or Projection
        Law of the frequencies: a name in `approx.projections.PROJECTIONS`, or `Fixed`.
    """

    deterministic: ClassVar[bool] = False
    size: ClassVar[str | None] = "m"
    columns: ClassVar[int] = 1  # of one frequency

    m: int | None = None
    projection: str | Projection = "iid"

    def __post_init__(self) -> None:
        fixed = isinstance(named(self.projection), Fixed)
        for name, known in PROJECTIONS.items():
            if self.projection == known:  # one spec, one meaning
                object.__setattr__(self, "projection", name)
        if self.m is not None:
            object.__setattr__(self, "m", checks.integer("m", self.m, least=1))
            if fixed:
                raise ValueError("m follows from Fixed frequencies: leave it out")
            if self.m % self.columns:
                raise ValueError(f"m must be a multiple of {self.columns}, got {self.m}")

    @property
    def fixed(self) -> bool:
        """Whether nothing is drawn."""
        return isinstance(self.projection, Fixed)

    def frequencies(self, Q: Array, K: Array, rng: Rng) -> tuple[Array, Array]:
        """Return omega (count, d) and ½ log weights (count,), in the dtype of Q."""
        d = Q.shape[1]
        count = (self.m or 0) // self.columns
        lower = "m, n or l"
        memory.reserve((len(Q) + len(K) + d) * count * self.columns * 8, f"{self}", lower)
        omega, weights = named(self.projection).draw(count, d, generator(rng))
        with np.errstate(divide="ignore"):
            half = 0.5 * np.log(weights)
        return omega.astype(Q.dtype, copy=False), half.astype(Q.dtype)

    @property
    def uses_rng(self) -> bool:
        """Whether the frequencies are drawn."""
        return not self.fixed

    @property
    def is_template(self) -> bool:
        """Whether m is left open; with Fixed frequencies it follows."""
        return self.m is None and not self.fixed

    def price(self, *, n: int, l: int, d: int) -> float | None:
        """Return m·(n + l)/n."""
        m = (
            len(self.projection.omega) * self.columns
            if isinstance(self.projection, Fixed)
            else self.m
        )
        return None if m is None else m * (n + l) / n

    def within(self, budget: float, *, n: int, l: int, d: int) -> Self | None:
        """Return this method with the largest m that the budget holds; None if none."""
        if not self.fixed:
            return super().within(budget, n=n, l=l, d=d)
        price = self.price(n=n, l=l, d=d)
        return self if price is not None and price <= budget else None

    def moments(self, Q: ArrayLike, K: ArrayLike) -> Moments | None:
        """Return bias 0 and the variance in closed form, where it is known."""
        if self.fixed:
            return self.realised_moments(Q, K)
        q, k = (np.asarray(x, np.float64) for x in self.checked(Q, K))
        if self.projection != "iid":
            return None
        log_variance = self.log_relative_variance(q, k) - np.log((self.m or 0) // self.columns)
        return Moments(np.zeros_like(log_variance), log_variance)

    def log_relative_variance(self, Q: Array, K: Array) -> Array:
        """Return log(Var/exp(2 q·k)) of one independent frequency, (n, l)."""
        raise NotImplementedError


def half_square(X: Array) -> Array:
    """Return |x|²/2 of each row."""
    return np.asarray(0.5 * np.einsum("id,id->i", X, X))


def squared_distances(X: Array, Y: Array) -> Array:
    """Return |x − y|², (n, l), exact near 0 where the expanded square cancels."""
    squares = 2 * (half_square(X)[:, None] + half_square(Y))
    out = np.maximum(squares - 2 * X @ Y.T, 0.0)
    i, j = np.nonzero(out < 1e-6 * squares)
    for part in exact.stripes(len(i), X.shape[1]):
        out[i[part], j[part]] = np.square(X[i[part]] - Y[j[part]]).sum(axis=1)
    return np.asarray(out)
