"""Angular hybrid features: positive where q and k are opposite, trigonometric where alike."""

import dataclasses
import math

import numpy as np

from approx import checks
from approx.checks import Array
from approx.estimate.distances import half_square, squared_distances
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method, Moments, Size
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import BY_ROW, RANDOM, ROTATION, collect
from approx.projections import Fixed, Projection, named
from approx.random_features.hyperbolic import Hyperbolic
from approx.random_features.trigonometric import Trigonometric


@dataclasses.dataclass(frozen=True)
class AngularHybrid(Method):
    """Angular hybrid features, unbiased for exp(q·k), of either sign.

    estimate = λ̂·P + (1 − λ̂)·T,  λ̂ = ½(1 − (1/s) Σ_{i ≤ s} sgn(τ_i·q) sgn(τ_i·k)),  τ_i ~ N(0, I_d),
    P of `hyperbolic` and T of `trigonometric`, with c frequencies each; all draws are independent.

    Parameters
    ----------
    m : int, optional
        Columns of the factors, a multiple of 4(1 + s): the 2c columns of P and the 2c of T, once
        unsigned and once per sign; None is a template.
    projection : str or Projection
        The joint distribution of the frequencies of P, and of those of T.
    signs : int
        Number of signs, s ≥ 1.

    Notes
    -----
    The estimate is unbiased. With λ = θ/π, θ the angle of q and k, the variance is
    E[λ̂²] V_P + E[(1−λ̂)²] V_T, E λ̂² = λ² + λ(1−λ)/s, E (1−λ̂)² = (1−λ)² + λ(1−λ)/s. Where
    |q| = |k| the variance is 0 at θ = 0 and at θ = π. V_P, V_T are exact for every projection that
    has a closed form. Row sums may be ≤ 0.
    Cost: 4(n + l)·c·d operations, (n + l)·m numbers, m = 4c(1 + s).

    References
    ----------
    .. [1] K. Choromanski et al., "Hybrid Random Features", ICLR 2022.

    Examples
    --------
    >>> AngularHybrid(m=8).approximate([[1.0]], [[1.0]], rng=0).to_dense().round(12)
    array([[2.71828183]])
    """

    name = "angular_hybrid"
    label = "angular hybrid features"

    m: int | None = None
    projection: str | Projection = "iid"
    signs: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "signs", checks.integer("signs", self.signs, least=1))
        super().__post_init__()
        object.__setattr__(self, "projection", Hyperbolic(None, self.projection).projection)
        if self.fixed and self.m is not None:
            raise ValueError("m follows from Fixed frequencies: leave it out")

    @property
    def tags(self) -> frozenset[str]:
        return BY_ROW | collect(RANDOM, named(self.projection).isotropic and ROTATION)

    @property
    def fixed(self) -> bool:
        """Whether the frequencies are given."""
        return isinstance(self.projection, Fixed)

    @property
    def copies(self) -> int:
        """How many times the factors hold the columns of P, and those of T: 2(1 + s)."""
        return 2 * (1 + self.signs)

    @property
    def sized_by(self) -> Size:
        return Size("m", least=2 * self.copies, step=2 * self.copies, instead=("fixed",))

    @property
    def pair(self) -> tuple[Hyperbolic, Trigonometric]:
        """The parts P and T."""
        each = None if self.m is None else self.m // self.copies
        return Hyperbolic(each, self.projection), Trigonometric(each, self.projection)

    def _fewest(self, d: int) -> int:
        return named(self.projection).least(d) * 2 * self.copies

    def _price(self, shape: Shape) -> Price | None:
        if self.is_template:
            return None
        columns = self.copies * 2 * self.pair[0].count
        return low_rank(columns, shape, mapped=(2 * self.pair[0].count + self.signs) * shape.d)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        seeds = rng.integers(2**63, size=(3, 2))
        tau = np.random.default_rng(seeds[0]).standard_normal((self.signs, q.shape[1]))
        sign_q, sign_k = (np.where(x @ tau.T >= 0, 1, -1).astype(q.dtype) for x in (q, k))
        parts = []
        for part, seed, outer in zip(self.pair, seeds[1:], (-1, 1)):
            low = part.evaluate(q, k, mask, np.random.default_rng(seed)).low
            factors = Factors(*low.scaled_factors()) if mask.is_full else low.keyed()
            assert factors is not None
            phi, psi = factors.left * q.dtype.type(0.5), factors.right
            left = [phi, *(phi * s[:, None] for s in sign_q.T)]
            right = [psi, *(psi * (s[:, None] * outer / self.signs) for s in sign_k.T)]
            both = np.hstack(left), np.hstack(right).astype(q.dtype)
            parts.append(Factors(*both, factors.row_logs, factors.column_logs))
        return Parts(Factors.joined(parts))

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        P, T = (part.moments(q, k) for part in self.pair)
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

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        """Return the covariance if that of both parts is known and both are unbiased.

        P(τ separates q from k_j and from k_l) = (θ_j + θ_l − θ_jl)/2π.
        """
        P, T = (part.covariance(Q, K, row=i) for part in self.pair)
        if P is None or T is None or self.fixed:
            return None
        lam = angles(Q[i : i + 1], K)[0] / math.pi
        one, two = lam[:, None], lam
        # For three vectors in a plane one of these is 0, and rounding must not make it negative.
        both = np.maximum((one + two - angles(K, K) / math.pi) / 2, 0)
        neither = np.maximum(1 - one - two + both, 0)
        other = 1 - 1 / self.signs
        of_P = other * one * two + both / self.signs
        of_T = other * (1 - one) * (1 - two) + neither / self.signs
        return _weighted(of_P, P) + _weighted(of_T, T)


def _weighted(weight: Array, x: Array) -> Array:
    """Return weight·x, which is 0 where the weight is 0 even if x is inf."""
    return np.multiply(weight, x, out=np.zeros_like(x), where=weight != 0)


def angles(Q: Array, K: Array) -> Array:
    """Return the angle of every pair, (n, l); for a zero vector, which has no angle, it is π/2.

    Accuracy: 500 eps·κ, as docs/accuracy.md defines it.
    """
    unit_q, unit_k = (
        np.divide(x, length, out=np.zeros_like(x), where=length > 0)
        for x in (Q, K)
        for length in [np.sqrt(2 * half_square(x))[:, None]]
    )
    near, far = squared_distances(unit_q, unit_k), squared_distances(unit_q, -unit_k)
    return np.asarray(2 * np.arctan2(np.sqrt(near), np.sqrt(far)))
