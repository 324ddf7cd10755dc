"""Angular hybrid features: positive where q and k are opposite, sines and cosines where alike."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.approximation import Approximation
from approx.checks import Array
from approx.distances import half_square, squared_distances
from approx.method import Method, Moments, Rng, generator
from approx.parts import Factors, rescale
from approx.projections import Projection, named
from approx.random_features.hyperbolic import Hyperbolic
from approx.random_features.trigonometric import Trigonometric


@dataclasses.dataclass(frozen=True)
class AngularHybrid(Method):
    """Angular hybrid features, unbiased for exp(q·k), of either sign.

    estimate = λ̂·P + (1 − λ̂)·T,  λ̂ = ½(1 − (1/s) Σ_{i ≤ s} sgn(τ_i·q) sgn(τ_i·k)),  τ_i ~ N(0, I_d),
    P of `hyperbolic` and T of `trigonometric`, c frequencies each, all draws independent.

    Parameters
    ----------
    m : int, optional
        Columns of the factors, a multiple of 4(1 + s): 2c of P and of T, once as they are and once
        with each sign; None is a template.
    projection : str or Projection
        How the frequencies of P, and those of T, are drawn together.
    signs : int
        s ≥ 1.

    Notes
    -----
    Unbiased. With λ = θ/π, θ the angle of q and k, the variance is E[λ̂²] V_P + E[(1−λ̂)²] V_T,
    E λ̂² = λ² + λ(1−λ)/s, E (1−λ̂)² = (1−λ)² + λ(1−λ)/s: none at θ = 0 nor at θ = π where |q| = |k|.
    V_P, V_T are exact for every projection that has a closed form. Row sums may be ≤ 0.
    Cost: 4(n + l)·c·d operations, (n + l)·m numbers, m = 4c(1 + s).

    References
    ----------
    .. [1] K. Choromanski et al., "Hybrid Random Features", ICLR 2022.

    Examples
    --------
    >>> AngularHybrid(m=8).approximate([[1.0]], [[1.0]], rng=0).to_dense().round(12)
    array([[2.71828183]])
    """

    name: ClassVar[str] = "angular_hybrid"
    deterministic: ClassVar[bool] = False
    size_field: ClassVar[str | None] = "m"

    m: int | None = None
    projection: str | Projection = "iid"
    signs: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "signs", checks.integer("signs", self.signs, least=1))
        parts = [kind(None, self.projection) for kind in (Hyperbolic, Trigonometric)]
        object.__setattr__(self, "projection", parts[0].projection)
        if parts[0].fixed:
            if self.m is not None:
                raise ValueError("m follows from Fixed frequencies: leave it out")
        elif self.m is not None:
            object.__setattr__(self, "m", checks.integer("m", self.m, least=1))
            if self.m % self.step:
                raise ValueError(
                    f"m must be a multiple of {self.step} = 4(1 + signs), got {self.m}"
                )

    @property
    def step(self) -> int:  # type: ignore[override]
        """Return 4(1 + s)."""
        return 4 * (1 + self.signs)

    @property
    def least(self) -> int:  # type: ignore[override]
        """Return 4(1 + s)."""
        return self.step

    @property
    def is_template(self) -> bool:
        """Whether m is left open; with Fixed frequencies it follows."""
        return self.parts[0].is_template

    @property
    def parts(self) -> tuple[Hyperbolic, Trigonometric]:
        """Return P and T."""
        each = None if self.m is None else 2 * (self.m // self.step)
        return Hyperbolic(each, self.projection), Trigonometric(each, self.projection)

    def fewest(self, d: int) -> int:
        """Return the least m: some projections need more than one frequency."""
        return named(self.projection).least(d) * self.step

    def price(self, *, n: int, l: int, d: int) -> float | None:
        """Return m·(n + l)/n."""
        one = self.parts[0].price(n=n, l=l, d=d)
        return None if one is None else 2 * (1 + self.signs) * one

    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return the factors of ½P(1 − ss′/s) + ½T(1 + ss′/s), s and s′ the signs of q and k."""
        q, k = self.checked(Q, K)
        seeds = generator(rng).integers(2**63, size=(3, 2))
        tau = np.random.default_rng(seeds[0]).standard_normal((self.signs, q.shape[1]))
        sign_q, sign_k = (np.where(x @ tau.T >= 0, 1, -1).astype(q.dtype) for x in (q, k))
        estimates = [
            part.approximate(q, k, rng=np.random.default_rng(seed)).scaled_factors()
            for part, seed in zip(self.parts, seeds[1:])
        ]
        top = np.maximum(*(e.row_log for e in estimates))
        left, right = [], []
        for estimate, outer in zip(estimates, (-1, 1)):
            phi = rescale(estimate.left * q.dtype.type(0.5), estimate.row_log - top)
            left += [phi, *(phi * s[:, None] for s in sign_q.T)]
            psi = estimate.right
            right += [psi, *(psi * (s[:, None] * outer / self.signs) for s in sign_k.T)]
        return Approximation(Factors(np.hstack(left), np.hstack(right).astype(q.dtype), top))

    def moments(self, Q: ArrayLike, K: ArrayLike) -> Moments | None:
        """Return them where those of both parts are known."""
        q, k = (np.asarray(x, np.float64) for x in self.checked(Q, K))
        P, T = (part.moments(q, k) for part in self.parts)
        if P is None or T is None:
            return None
        lam = angles(q, k) / math.pi
        spread = lam * (1 - lam) / self.signs
        gap = np.where(spread > 0, P.relative_bias - T.relative_bias, 0.0)
        with np.errstate(divide="ignore"):
            of_P = np.log(lam**2 + spread) + P.log_relative_variance
            of_T = np.log((1 - lam) ** 2 + spread) + T.log_relative_variance
            of_lambda = np.log(spread) + 2 * np.log(np.abs(gap))
        log = np.logaddexp(np.logaddexp(of_P, of_T), of_lambda)
        bias = _weighted(lam, P.relative_bias) + _weighted(1 - lam, T.relative_bias)
        return Moments(bias, log)

    def covariance(self, q: ArrayLike, K: ArrayLike, *, row: int | None = None) -> Array | None:
        """Return it where those of both parts are known and unbiased.

        P(q is on the other side of τ than k_j and than k_l) = (θ_j + θ_l − θ_jl)/2π.
        """
        Q, keys, i = self.one_query(q, K, row)
        P, T = (part.covariance(Q, keys, row=i) for part in self.parts)
        if P is None or T is None or self.parts[0].fixed:
            return None
        lam = angles(Q[i : i + 1], keys)[0] / math.pi
        one, two = lam[:, None], lam
        # of three vectors in a plane one of these is 0, which rounding must not make negative
        both = np.maximum((one + two - angles(keys, keys) / math.pi) / 2, 0)
        neither = np.maximum(1 - one - two + both, 0)
        other = 1 - 1 / self.signs
        of_P = other * one * two + both / self.signs
        of_T = other * (1 - one) * (1 - two) + neither / self.signs
        return _weighted(of_P, P) + _weighted(of_T, T)


def _weighted(weight: Array, x: Array) -> Array:
    """Return weight·x, 0 where the weight is 0, even if x is inf."""
    return np.multiply(weight, x, out=np.zeros_like(x), where=weight != 0)


def angles(Q: Array, K: Array) -> Array:
    """Return the angle of every pair, (n, l); π/2 with a zero vector, which has none."""
    unit_q, unit_k = (
        np.divide(x, length, out=np.zeros_like(x), where=length > 0)
        for x in (Q, K)
        for length in [np.sqrt(2 * half_square(x))[:, None]]
    )
    near, far = squared_distances(unit_q, unit_k), squared_distances(unit_q, -unit_k)
    return np.asarray(2 * np.arctan2(np.sqrt(near), np.sqrt(far)))
