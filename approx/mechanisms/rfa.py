"""Random feature attention: trigonometric features of unit vectors."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.sums import RunningSums
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.mechanisms.feature_map import over_seen
from approx.method import Method, Moments
from approx.method.evaluation import checked_inputs
from approx.method.filling import least_size
from approx.method.prices import Price, Shape, price_at
from approx.method.tags import BY_ROW, RANDOM, ROTATION, SCALE, collect
from approx.projections import Projection, named
from approx.random_features.trigonometric import Trigonometric


@dataclasses.dataclass(frozen=True)
class Rfa(Method):
    """Random feature attention: sines and cosines of unit vectors; softmax rows, biased.

    estimate_ij ∝ Σ_r cos ω_r·(q̂_i − k̂_j)/σ,  q̂ = q/|q|, k̂ = k/|k|, ω_r ~ N(0, I).

    Parameters
    ----------
    m : int, optional
        Columns of the factors, two per frequency, so an even number; None is a template.
    projection : str or Projection
        The joint distribution of the ω.
    sigma : float
        Bandwidth, which is learned in the paper and fixed here.

    Notes
    -----
    The rows are in attention space. Before normalisation the estimate is `trigonometric` at q̂/σ,
    k̂/σ. It is unbiased for exp(q̂·k̂/σ²), with relative variance (cosh(|q̂ − k̂|²/σ²) − 1)/(m/2)
    (`kernel_moments`). Lengths are lost, so the estimate is biased for softmax of q·k unless
    |q||k| = 1/σ² for every pair. The ratio adds a bias of order 1/m. Entries are of either sign: a
    row whose sum is ≤ 0 becomes a row of zeros and is not clamped.
    Cost: (n + l)·m·(d + 2c) operations, (n + l)·m numbers.

    References
    ----------
    .. [1] H. Peng et al., "Random feature attention", ICLR 2021, Eq. (5), without its gate.

    Examples
    --------
    Lengths do not matter:

    >>> Rfa(m=2).approximate([[1.0]], [[1.0], [7.0]], rng=0).to_dense()
    array([[0.5, 0.5]])
    """

    name = "rfa"
    label = "random feature attention"
    space = "attention"
    sized_by = Trigonometric.sized_by

    m: int | None = None
    projection: str | Projection = "iid"
    sigma: float = 1.0

    def __post_init__(self) -> None:
        features = self.features  # checks m and the projection
        object.__setattr__(self, "m", features.m)
        object.__setattr__(self, "projection", features.projection)
        object.__setattr__(self, "sigma", checks.positive("sigma", self.sigma))

    @property
    def features(self) -> Trigonometric:
        """The trigonometric features of the unit vectors."""
        return Trigonometric(self.m, self.projection)

    @property
    def fixed(self) -> bool:
        """Whether the frequencies are given."""
        return self.features.fixed

    @property
    def tags(self) -> frozenset[str]:
        isotropic = named(self.projection).isotropic
        return BY_ROW | collect(SCALE, isotropic and ROTATION, not self.fixed and RANDOM)

    def units(self, q: Array, k: Array) -> tuple[Array, Array]:
        """Return q̂/σ and k̂/σ, float64."""
        return _unit(q) / self.sigma, _unit(k) / self.sigma

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        low = self.features.evaluate(*self.units(q, k), mask, rng).low
        if not mask.is_full:
            assert isinstance(low, Factors)
            return over_seen(low, mask, q.dtype)
        left, right, _ = low.scaled_factors()
        total = left @ right.sum(axis=0)
        positive = total > 0
        left = np.where(positive[:, None], left, 0.0)
        log = -np.log(np.where(positive, total, 1.0))
        factors = Factors(left.astype(q.dtype), right.astype(q.dtype), log.astype(q.dtype))
        return Parts(factors, space="attention")

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        if window:
            return None
        maps = self.features.maps(d, rng)

        def unit(x: Array) -> Array:
            return np.asarray(_unit(x[None])[0] / self.sigma)

        return RunningSums(
            d,
            c,
            maps._replace(query=lambda q: maps.query(unit(q)), key=lambda k: maps.key(unit(k))),
        )

    def kernel_moments(self, Q: ArrayLike, K: ArrayLike) -> Moments | None:
        """Return bias and variance before normalisation, relative to exp(q̂·k̂/σ²)."""
        return self.features.moments(*self.units(*checked_inputs(self, Q, K)[:2]))

    def _price(self, shape: Shape) -> Price | None:
        return price_at(self.features, shape)

    def _fewest(self, d: int) -> int:
        return least_size(self.features, d)


def _unit(X: Array) -> Array:
    """Return the rows divided by their lengths, in float64; zero rows stay zero."""
    x = X.astype(np.float64)
    x /= np.maximum(np.abs(x).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(lengths > 0, lengths, 1.0))
