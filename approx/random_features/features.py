"""What every family of random features shares: its size m, its frequencies, its moments.

A family writes q·k = a·b + row + column in a `Frame` (a, b are q, k themselves, shifted, or
transformed), chooses a tilt A and one of two functions of ω. So

    log φ(q)_r = Σ_c √(1−4A_c) ω_rc a_c + A_c ω_rc² + ¼ log(1−4A_c) − |a|²/2 + row − ½ log m

for exponentials, and φ(k) with b likewise; sines and cosines have +|a|²/2 and i in front of ω.
`approx.projections.summand` says what follows from this: bias, variance, covariances.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks, memory
from approx.approximation import Approximation
from approx.checks import Array
from approx.method import Method, Moments, Rng, generator
from approx.projections import PROJECTIONS, Fixed, Projection, named
from approx.projections.summand import Entries, Keys
from approx.random_features.exponentials import Exponentials, Side


class Frame(NamedTuple):
    """q·k = a·b + row + column.

    Attributes
    ----------
    a, b : (n, d), (l, d)
    row, column : (n,), (l,) or 0.0
    """

    a: Array
    b: Array
    row: Array | float = 0.0
    column: Array | float = 0.0


@dataclasses.dataclass(frozen=True)
class RandomFeatures(Method):
    """An estimate φ(q)·φ(k) whose frequencies ω are random.

    Parameters
    ----------
    m : int, optional
        Columns of the factors; None is a template. Left out with `Fixed` frequencies.
    projection : str or Projection
        How the frequencies are drawn together: a name in `approx.projections.PROJECTIONS`, or
        `Fixed`. Families say "unbiased" of frequencies that are N(0, I_d) each: under
        ``regularized``, ``regularized_iid``, ``moment_matched`` and ``hadamard`` they are not.
    """

    deterministic: ClassVar[bool] = False
    size_field: ClassVar[str | None] = "m"
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

    def frame(self, Q: Array, K: Array) -> Frame:
        """Return where exp(q·k) is expanded; by default as it is."""
        return Frame(Q, K)

    def tilt(self, frame: Frame) -> Array:
        """Return A (d,), entries < 1/8, which may be fitted to the frame."""
        return np.zeros(frame.a.shape[1])

    @property
    def fixed(self) -> bool:
        """Whether the frequencies are given."""
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
        if self.fixed:
            budget, n, l, d = checks.asked(budget, n, l, d)
            price = self.price(n=n, l=l, d=d)
            return self if price is not None and price <= budget else None
        return super().within(budget, n=n, l=l, d=d)

    def checked(self, Q: ArrayLike, K: ArrayLike) -> tuple[Array, Array]:
        """Return Q and K as arrays; ValueError for a template, or for too few frequencies."""
        q, k = super().checked(Q, K)
        least = named(self.projection).least(q.shape[1])
        if self.count < least:
            raise ValueError(
                f"{self} needs at least {least} frequencies at d={q.shape[1]}, got {self.count}"
            )
        return q, k

    def fewest(self, d: int) -> int:
        """Return the least m: some projections need more than one frequency."""
        return named(self.projection).least(d) * self.columns

    def entries(self, Q: Array, K: Array) -> Entries:
        """Return the summand of every entry."""
        frame = self.frame(Q, K)
        b = -frame.b if self.imaginary else frame.b
        return Entries(self.tilt(frame), self.columns == 2, self.imaginary, frame.a, b)

    def moments(self, Q: ArrayLike, K: ArrayLike) -> Moments | None:
        """Return exact bias and variance; None where a coupling has no closed form.

        With count frequencies in blocks of b, v the relative variance of one and c the relative
        covariance of two of a block, the variance is (v + c·Σ b(b−1)/count)/count.
        """
        if self.fixed:
            return self.realised_moments(Q, K)
        q, k = (np.asarray(x, np.float64) for x in self.checked(Q, K))
        rho, projection, count = self.entries(q, k), named(self.projection), self.count
        bias = projection.bias(rho, count)
        if bias is None:
            return None
        log_v = projection.log_variance(rho, count)
        for b, share in projection.pairs(count, rho.d):
            unit = np.where(np.isfinite(log_v), log_v, 0.0)
            if (pair := projection.pair(rho, b, unit)) is None:
                return None
            with np.errstate(over="ignore", divide="ignore"):
                ratio = np.where(log_v > -np.inf, share * pair, 0.0)
                log_v = log_v + np.log1p(np.maximum(ratio, -1.0))
        return Moments(bias, log_v - math.log(count))

    def covariance(self, q: ArrayLike, K: ArrayLike, *, row: int | None = None) -> Array | None:
        """Return Cov(estimate_j, estimate_l)/(exact_j exact_l) of one query, (l, l).

        Keys share their frequencies: at A = 0 and iid, (e^{u_j·u_l} − 1)/m for exponentials and
        2(cosh(u_j·u_l) − 1)/m for pairs; None where a coupling has no closed form.
        """
        Q, keys, i = self.one_query(q, K, row)
        if self.fixed:
            return np.zeros((len(keys), len(keys)))
        entries, projection, count = self.entries(Q, keys), named(self.projection), self.count
        rho = Keys(entries.A, entries.paired, entries.imaginary, entries.a[i] + entries.b)
        known = projection.bias(entries, count) is not None
        total = projection.shared(rho, count) if known else None
        for b, share in projection.pairs(count, rho.d):
            pair = projection.pair(rho, b)
            if pair is None or total is None:
                return None
            total = total + share * pair
        return None if total is None else total / count


class ExponentialFeatures(RandomFeatures):
    """Random features that are exponentials, built in log space; two columns are those of ±ω."""

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return φ(Q) φ(K)ᵀ; both sides share one draw.

        The largest exponent is taken out: one shift a query row and one for all keys. The shifts
        are kept, so the estimate stays unbiased.
        """
        q, k = self.checked(Q, K)
        omega, half = self.frequencies(q, k, rng)
        frame = self.frame(q, k)
        A = self.tilt(frame)
        level = half + np.square(omega) @ A + 0.25 * np.log(1 - 4 * A).sum()
        level = np.tile(level - 0.5 * math.log(self.columns), self.columns).astype(omega.dtype)
        scaled = (omega * np.sqrt(1 - 4 * A)).astype(omega.dtype)
        queries, keys = Side(frame.a, frame.row), Side(frame.b, frame.column)
        return Approximation(Exponentials(queries, keys, scaled, level))
