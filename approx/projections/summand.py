"""The summand of one frequency, and its moments for Gaussian frequencies.

Divided by exp(q·k), the summand of a family of random features is one of two functions of ω,

    ρ_u(ω) = Π_c (1−4A_c)^{1/2} · e^{2 Σ A_c ω_c² − u·u/2} · e^{Σ s_c ω_c u_c}       (exponential)
    ρ_u(ω) = Π_c (1−4A_c)^{1/2} · e^{2 Σ A_c ω_c² − u·u/2} · cosh(Σ s_c ω_c u_c)     (paired)

with s_c² = 1 − 4A_c and A_c < 1/8. Here u is q + k, q + k minus a shift, or i(q − k); in the last
case u·u < 0 and cosh is a cosine. A family defines u and A, and a projection defines how two
frequencies of a block are coupled. E ρ_u(ω) ρ_v(ω′) follows from both.
"""

import dataclasses
import functools
from abc import ABC, abstractmethod

import numpy as np

from approx.checks import Array
from approx.estimate.distances import squared_distances


@dataclasses.dataclass(frozen=True, eq=False)
class Summand(ABC):
    """ρ for an array of pairs (u, v).

    Parameters
    ----------
    A : (d,)
        Tilt, each entry < 1/8.
    paired : bool
        Whether ρ has cosh instead of an exponential.
    imaginary : bool
        Whether the stored vectors are u/i.
    """

    A: Array
    paired: bool
    imaginary: bool

    @abstractmethod
    def form(self, alpha: Array, beta: Array) -> Array:
        """Return Σ_c α_c (u_c² + v_c²)/2 + β_c u_c v_c, α and β of shape (d,)."""

    @property
    def d(self) -> int:
        """The width of u."""
        return len(self.A)

    @property
    def isotropic(self) -> bool:
        """Whether A is a multiple of the identity, so that rotating ω and u together keeps ρ."""
        return bool((self.A[0] == self.A).all())

    @property
    def dot(self) -> Array:
        """The inner products u·v."""
        return self.form(np.zeros(self.d), np.ones(self.d))

    @property
    def squares(self) -> Array:
        """The mean squares (u·u + v·v)/2."""
        return self.form(np.ones(self.d), np.zeros(self.d))


@dataclasses.dataclass(frozen=True, eq=False)
class Entries(Summand):
    """The pairs (u, u) with u = a_i + b_j, for every entry of the matrix."""

    a: Array
    b: Array

    def form(self, alpha: Array, beta: Array) -> Array:
        weights = alpha + beta
        sign = -1.0 if self.imaginary else 1.0
        if (weights == weights[0]).all():
            return np.asarray(sign * weights[0] * self._squares)
        parts = [np.sqrt(np.maximum(w, 0.0)) for w in (weights, -weights)]
        up, down = (squared_distances(self.a * root, -self.b * root) for root in parts)
        return np.asarray(sign * (up - down))

    @functools.cached_property
    def _squares(self) -> Array:
        """|a_i + b_j|²; most forms of these entries are multiples of it."""
        return squared_distances(self.a, -self.b)


@dataclasses.dataclass(frozen=True, eq=False)
class Keys(Summand):
    """The pairs (u, v) of every two keys for one query; u and v are rows of U, (l, d)."""

    U: Array

    def form(self, alpha: Array, beta: Array) -> Array:
        sign = -1.0 if self.imaginary else 1.0
        squares = 0.5 * np.square(self.U) @ alpha
        return np.asarray(sign * (squares[:, None] + squares + (self.U * beta) @ self.U.T))


def gaussian_exponents(rho: Summand, correlation: float) -> tuple[Array, Array]:
    """Return κ, λ with E ρ_u(ω) ρ_v(ω′) = e^κ · (e^λ, or cosh λ if paired).

    ω, ω′ ~ N(0, I) have the given correlation in each coordinate: 1 for one frequency, −1 for a
    pair ω, −ω. With g± = (1 ± r)/(1 − 4A(1 ± r)), each coordinate contributes the exponent
    ¼(1−4A)·[(u² + v²)(g₊ + g₋) + 2uv(g₊ − g₋)] and the factor (1−4A)·Π (1 − 4A(1 ± r))^{−1/2}.
    """
    A, zero = rho.A, np.zeros_like(rho.A)
    up, down = 1 - 4 * A * (1 + correlation), 1 - 4 * A * (1 - correlation)
    g_up, g_down = (1 + correlation) / up, (1 - correlation) / down
    constant = np.sum(np.log(1 - 4 * A) - 0.5 * np.log(up) - 0.5 * np.log(down))
    kappa = constant + rho.form((1 - 4 * A) * (g_up + g_down) / 2 - 1, zero)
    return kappa, rho.form(zero, (1 - 4 * A) * (g_up - g_down) / 2)


def times(x: Array, log: Array | float) -> Array:
    """Return x·e^log; 0 stays 0 for every log."""
    with np.errstate(over="ignore", divide="ignore"):
        return np.asarray(np.sign(x) * np.exp(np.log(np.abs(x)) + log))


def gaussian_covariance(rho: Summand, correlation: float, log_unit: Array | float = 0.0) -> Array:
    """Return e^{−log_unit} (E ρ_u(ω) ρ_v(ω′) − 1)."""
    kappa, lam = gaussian_exponents(rho, correlation)
    log = kappa + (log_cosh(lam) if rho.paired else lam)
    value = times(np.expm1(np.minimum(log, 700.0)), -np.asarray(log_unit))
    with np.errstate(over="ignore"):
        return np.where(log > 690, np.exp(log - log_unit), value)


def gaussian_log_variance(rho: Summand) -> Array:
    """Return log(E ρ² − 1); at A = 0, E ρ² − 1 is e^{u·u} − 1 or cosh(u·u) − 1 = 2 sinh²(u·u/2)."""
    kappa, lam = gaussian_exponents(rho, 1.0)
    with np.errstate(divide="ignore"):
        if rho.paired and not rho.A.any():
            size = np.abs(lam)
            return np.asarray(size + 2 * np.log(-np.expm1(-size)) - np.log(2))
        log = kappa + (log_cosh(lam) if rho.paired else lam)
        return np.asarray(log + np.log(-np.expm1(-np.maximum(log, 0.0))))


def log_cosh(x: Array) -> Array:
    """Return log cosh x, accurate near 0.

    Accuracy: 2 eps·κ, as docs/accuracy.md defines it.
    """
    size = np.abs(x)
    near = np.log1p(2 * np.sinh(np.minimum(size, 1.0) / 2) ** 2)
    far = size + np.log1p(np.exp(-2 * size)) - np.log(2)
    return np.asarray(np.where(size < 1, near, far))
