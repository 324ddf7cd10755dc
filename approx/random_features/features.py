"""What every random-feature method shares: its size m, its frequencies, its moments.

Divided by exp(q·k), the summand of a family is one of two functions of one frequency,

    ρ(ω) = (1−4A)^{d/2} e^{2A|ω|² − x/2} · e^{s ω·u}        (one column a frequency)
    ρ(ω) = (1−4A)^{d/2} e^{2A|ω|² − x/2} · cosh(s ω·u)      (two columns)

with s² = 1−4A, A < 1/8, u·u = x: u = q + k, its distance from a shift, or i(q − k), where x < 0
and cosh becomes a cosine. So a method says x and A, and a projection says how two frequencies of
a block belong together; bias, variance and the gain of every coupling follow here.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks, exact, memory
from approx._exp import exp_rows
from approx.base import Approximation, Method, Moments, Rng, generator
from approx.checks import Array
from approx.parts import Factors
from approx.projections import PROJECTIONS, Fixed, Projection, named


@dataclasses.dataclass(frozen=True)
class RandomFeatures(Method):
    """An estimate φ(q)·φ(k) whose frequencies ω are random.

    Parameters
    ----------
    m : int, optional
        Columns of the factors; None is a template. Left out with `Fixed` frequencies.
    projection : str or Projection
        How the frequencies are drawn together: a name in `approx.projections.PROJECTIONS`, or
        `Fixed`.
    """

    deterministic: ClassVar[bool] = False
    size: ClassVar[str | None] = "m"
    columns: ClassVar[int] = 1  # of one frequency; two are cosh or cos of ω·u
    imaginary: ClassVar[bool] = False  # u = i(q − k): cosh is a cosine

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

    @abstractmethod
    def vectors(self, Q: Array, K: Array) -> tuple[Array, Array]:
        """Return a (n, d) and b (l, d) with u = a_i + b_j, without the i of an imaginary u."""

    def argument(self, Q: Array, K: Array) -> Array:
        """Return x = u·u of every pair, (n, l); < 0 where u is imaginary."""
        a, b = self.vectors(Q, K)
        return (-1 if self.imaginary else 1) * squared_distances(a, -b)

    def tilt(self, Q: Array, K: Array) -> float:
        """Return A < 1/8, which may be fitted to Q and K."""
        return 0.0

    @property
    def fixed(self) -> bool:
        """Whether nothing is drawn."""
        return isinstance(self.projection, Fixed)

    @property
    def count(self) -> int:
        """Frequencies."""
        if isinstance(self.projection, Fixed):
            return len(self.projection.omega)
        return (self.m or 0) // self.columns

    def frequencies(self, Q: Array, K: Array, rng: Rng) -> tuple[Array, Array]:
        """Return omega (count, d) and ½ log weights (count,), in the dtype of Q."""
        d = Q.shape[1]
        lower = "m, n or l"
        memory.reserve((len(Q) + len(K) + d) * self.count * self.columns * 8, f"{self}", lower)
        omega, weights = named(self.projection).draw(self.count, d, generator(rng))
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
        return None if self.is_template else self.count * self.columns * (n + l) / n

    def within(self, budget: float, *, n: int, l: int, d: int) -> Self | None:
        """Return this method with the largest m that the budget holds; None if none."""
        if not self.fixed:
            return super().within(budget, n=n, l=l, d=d)
        price = self.price(n=n, l=l, d=d)
        return self if price is not None and price <= budget else None

    def moments(self, Q: ArrayLike, K: ArrayLike) -> Moments | None:
        """Return bias 0 and the exact variance; None where a coupling has no closed form.

        With count frequencies in blocks of b, v the relative variance of one and c the relative
        covariance of two of a block, the variance is (v + c·Σ b(b−1)/count)/count.
        """
        if self.fixed:
            return self.realised_moments(Q, K)
        q, k = (np.asarray(x, np.float64) for x in self.checked(Q, K))
        d, projection = q.shape[1], named(self.projection)
        x, A = self.argument(q, k), self.tilt(q, k)
        log_v = log_relative_variance(x, A, d, paired=self.columns == 2)
        for size, blocks in projection.blocks(self.count, d):
            covariance = projection.relative_covariance(x, A, d, size, paired=self.columns == 2)
            if covariance is None:
                return None
            share = blocks * size * (size - 1) / self.count
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                ratio = np.where(log_v > -np.inf, share * covariance * np.exp(-log_v), 0.0)
                log_v = log_v + np.log1p(np.maximum(ratio, -1.0))
        return Moments(np.zeros_like(log_v), log_v - math.log(self.count))

    def covariance(self, q: ArrayLike, K: ArrayLike) -> Array | None:
        """Return Cov(estimate_j, estimate_l)/(exact_j exact_l) of one query, (l, l).

        Keys share their frequencies: E ρ_j ρ_l = (1−4A)^d (1−8A)^{−d/2} e^{−(x_j + x_l)/2} e^y with
        y = (1−4A)/(1−8A)·(u_j + u_l)²/2; with cosh, the mean of that and of u_j − u_l in its place.
        At A = 0: e^{u_j·u_l} − 1, cosh(u_j·u_l) − 1. Known for iid frequencies.

        Parameters
        ----------
        q : (d,) or (1, d)
        K : (l, d)
        """
        Q, keys = (np.asarray(x, np.float64) for x in self.checked(np.atleast_2d(q), K))
        if len(Q) != 1:
            raise ValueError(f"covariance is of one query, got {len(Q)}")
        if self.projection != "iid":
            return None
        memory.reserve(32 * len(keys) ** 2, "the covariance of the keys", "l")
        d, A, sign = Q.shape[1], self.tilt(Q, keys), -1 if self.imaginary else 1
        a, b = self.vectors(Q, keys)
        u = a + b
        dots, x = sign * (u @ u.T), sign * 2 * half_square(u)
        rest = d * np.log(1 - 4 * A) - d / 2 * np.log(1 - 8 * A)
        both, ratio = x[:, None] + x, (1 - 4 * A) / (1 - 8 * A)
        log = rest + (ratio - 1) * both / 2 + ratio * dots
        if self.columns == 2:
            other = rest + (ratio - 1) * both / 2 - ratio * dots
            log = np.logaddexp(log, other) - np.log(2)
        with np.errstate(over="ignore"):
            return np.asarray(np.expm1(log) / self.count)


class ExponentialFeatures(RandomFeatures):
    """Random features that are exponentials, built in log space."""

    @abstractmethod
    def log_features(self, X: Array, omega: Array, Q: Array, K: Array) -> Array:
        """Return log φ of the rows X of Q or of K, (rows, m), without the weights."""

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return φ(Q) φ(K)ᵀ; both sides share one draw.

        The largest exponent is taken out: one shift a query row and one for all keys. The shifts
        are kept, so the estimate stays unbiased.
        """
        q, k = self.checked(Q, K)
        omega, half = self.frequencies(q, k, rng)
        half = np.tile(half, self.columns)
        phi_q, phi_k = (self.log_features(x, omega, q, k) for x in (q, k))
        phi_q += half
        phi_k += half
        row_log, key_log = phi_q.max(axis=1), phi_k.max()
        exp_rows(phi_q, row_log)
        exp_rows(phi_k, np.full(len(k), key_log))
        return Approximation(Factors(phi_q, phi_k, row_log + key_log))


def log_relative_variance(x: Array, A: float, d: int, *, paired: bool) -> Array:
    """Return log(E ρ² − 1) of one frequency.

    E ρ² = (1−4A)^d (1−8A)^{−d/2} e^{−x} e^y, y = 2x(1−4A)/(1−8A); where paired, (1 + e^y)/2
    stands for e^y. At A = 0: e^x − 1, and cosh x − 1.
    """
    if A == 0.0:
        size = np.abs(x)
        with np.errstate(divide="ignore"):
            if paired:  # 2 sinh²(x/2), exact near 0
                return np.asarray(size + 2 * np.log(-np.expm1(-size)) - np.log(2))
            return np.asarray(size + np.log(-np.expm1(-size)))
    y = 2 * x * (1 - 4 * A) / (1 - 8 * A)
    log = np.logaddexp(0.0, y) - np.log(2) if paired else y
    log = log + d * np.log(1 - 4 * A) - d / 2 * np.log(1 - 8 * A) - x
    with np.errstate(divide="ignore"):
        return np.asarray(log + np.log(-np.expm1(-np.maximum(log, 0.0))))


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
