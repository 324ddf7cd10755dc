"""Jointly Gaussian frequencies: independent, in pairs ±ω, or with sample mean 0."""

import dataclasses
import math

import numpy as np

from approx.checks import Array
from approx.projections.base import Projection
from approx.projections.summand import Summand, gaussian_covariance


@dataclasses.dataclass(frozen=True)
class IID(Projection):
    """Independent ω_r ~ N(0, I_d) with equal weights."""

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return rng.standard_normal((count, d)), np.full(count, 1.0 / count)

    def block(self, d: int) -> int | None:
        return 1

    def pair(self, rho: Summand, size: int, log_unit: Array | float = 0.0) -> Array | None:
        return np.zeros_like(rho.dot)


@dataclasses.dataclass(frozen=True)
class Antithetic(Projection):
    """Frequencies in pairs ω, −ω; with them `positive` becomes `hyperbolic`.

    Notes
    -----
    A family with cosh or cos of ω·u gains nothing: it has the same value at ω and at −ω.
    """

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        half = rng.standard_normal(((count + 1) // 2, d))
        return np.concatenate([half, -half])[:count], np.full(count, 1.0 / count)

    def block(self, d: int) -> int | None:
        """Return 2; with an odd count, one frequency has no partner."""
        return 2

    def pair(self, rho: Summand, size: int, log_unit: Array | float = 0.0) -> Array | None:
        """Return the covariance for correlation −1; at A = 0 it is e^{−u·v} − 1."""
        return gaussian_covariance(rho, -1.0, log_unit)


@dataclasses.dataclass(frozen=True)
class ZeroMean(Projection):
    """Gaussian frequencies whose sample mean is 0: ω_r = √(m/(m−1)) (g_r − ḡ), g_r ~ N(0, I_d).

    Each is N(0, I_d) exactly, and two have correlation −1/(m−1). So estimates are unbiased, and
    the part of their variance that is linear in ω vanishes: at A = 0 the variance of m exponential
    features falls from (e^x − 1)/m to
    (e^x − 1)/m + (1 − 1/m)(e^{−x/(m−1)} − 1) ≈ (e^x − 1 − x)/m.
    """

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        g = rng.standard_normal((count, d))
        if count > 1:
            g = (g - g.mean(axis=0)) * math.sqrt(count / (count - 1))
        return g, np.full(count, 1.0 / count)

    def pair(self, rho: Summand, size: int, log_unit: Array | float = 0.0) -> Array | None:
        """Return the covariance for correlation −1/(size − 1); at A = 0, e^{−u·v/(size−1)} − 1."""
        return gaussian_covariance(rho, -1.0 / (size - 1), log_unit)
