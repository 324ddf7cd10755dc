"""Laws of frequencies and their couplings: the base class, and jointly Gaussian frequencies."""

import dataclasses
import math
from abc import ABC, abstractmethod

import numpy as np

from approx.checks import Array
from approx.projections.summand import (
    Entries,
    Keys,
    Summand,
    gaussian_covariance,
    gaussian_log_variance,
)


class Projection(ABC):
    """A law of frequencies and their coupling.

    By default each frequency is N(0, I_d), so that estimates are unbiased. A subclass with another
    law overrides ``bias``, ``log_variance`` and ``shared``. Every coupling defines its ``pair``.
    """

    isotropic = True  # whether a rotation of all frequencies leaves their law unchanged

    @abstractmethod
    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return omega (count, d) and weights (count,); weights are ≥ 0 with sum 1."""

    def least(self, d: int) -> int:
        """Return the smallest allowed number of frequencies."""
        return 1

    def block(self, d: int) -> int | None:
        """Return the size of the independent blocks of frequencies; None if all form one block."""
        return None

    def blocks(self, count: int, d: int) -> list[tuple[int, int]]:
        """Return (size, number of blocks of this size) for a number of frequencies."""
        size = self.block(d) or count
        full, left = divmod(count, size)
        return [(b, number) for b, number in ((size, full), (left, 1)) if b and number]

    def bias(self, rho: Entries, count: int) -> Array | None:
        """Return E ρ − 1; None if it has no closed form."""
        return np.zeros((len(rho.a), len(rho.b)))

    def log_variance(self, rho: Entries, count: int) -> Array:
        """Return log Var ρ(ω) of one frequency."""
        return gaussian_log_variance(rho)

    def shared(self, rho: Keys, count: int) -> Array | None:
        """Return Cov(ρ_u(ω), ρ_v(ω)) of two keys that share one frequency; None if unknown."""
        return gaussian_covariance(rho, 1.0)

    def pair(self, rho: Summand, size: int, log_unit: Array | float = 0.0) -> Array | None:
        """Return e^{−log_unit} Cov(ρ_u(ω), ρ_v(ω′)) for ω, ω′ in one block; None if unknown."""
        return None

    def pairs(self, count: int, d: int) -> list[tuple[int, float]]:
        """Return (b, Σ b(b−1)/count) for sizes b > 1: the weights of ``pair`` in a variance."""
        every = self.blocks(count, d)
        return [(b, number * b * (b - 1) / count) for b, number in every if b > 1]


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
