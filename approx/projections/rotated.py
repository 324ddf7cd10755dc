"""Blocks of frequencies with a common random rotation: orthogonal, simplex, or of fixed length."""

import dataclasses
import math
from abc import abstractmethod
from typing import Any

import numpy as np
import scipy.linalg

from approx import checks
from approx.checks import Array
from approx.kernels.jit import kernel
from approx.projections.base import IID, Projection
from approx.projections.summand import Entries, Keys, Summand, times

GAMMA = 160.0  # an argument at which Γ does not overflow
FAR = 300.0  # cap of |u|²: there a covariance is at most |u|, and the variance e^{|u|²}
NODES = 24
STRETCH = 512  # values of a polynomial that are computed together


def haar(d: int, rng: np.random.Generator) -> Array:
    """Return a Haar-distributed orthogonal matrix (d, d): Q·diag(sign R), G = QR.

    Without the sign, Q is not Haar distributed: LAPACK makes the first entry of the first column
    negative. Then E[estimate]/exp(q·k) of positive features falls to 0.66 at d = 4,
    q + k = (1, 1, 1, 1).

    References
    ----------
    .. [1] F. Mezzadri, "How to generate random matrices from the classical compact groups",
       Notices AMS 54, 2007.
    """
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    return np.asarray(q * np.sign(np.diag(r)))


@dataclasses.dataclass(frozen=True)
class Orthogonal(Projection):
    """Blocks of up to d orthogonal directions, Haar distributed, with independent χ_d lengths.

    Notes
    -----
    For every family here, the relative covariance of two frequencies in a block is
    e^{−x} ₁F₁(d; d/2; x/2) − 1 with x = u·u, since |ω₁ ± ω₂|² ~ χ²_{2d} with a uniform direction.
    It is ≤ 0 for x = |q+k|². For two keys, with c = d/2, α = u·u/2, β = v·v/2 and
    Δ = (u·u v·v − (u·v)²)/4, it is

        e^{−α−β} Σ_k Δ^k/((c − ½)_k k!) Σ_ij (c)_{k+i} (c)_{k+j} α^i β^j/((c)_{2k+i+j} i! j!) − 1,

    which is ₀F₁ of a 2 × 2 matrix, averaged over both lengths. Gegenbauer's recurrence computes the
    inner sums. If u alone grows, the covariance tends to a limit of at most the order of |u|. So
    |u|² is capped at 300: at A = 0 this changes the covariance by less than 10⁻⁶⁰ σσ′.

    References
    ----------
    .. [1] F. X. Yu et al., "Orthogonal Random Features", NIPS 2016.
    .. [2] R. J. Muirhead, "Expressions for some hypergeometric functions of matrix argument",
       J. Multivariate Analysis 5, 1975: ₀F₁ of two variables.
    """

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        directions = np.concatenate([haar(d, rng).T for _ in range(0, count, d)])[:count]
        lengths = np.sqrt(rng.chisquare(d, count))
        return directions * lengths[:, None], np.full(count, 1.0 / count)

    def block(self, d: int) -> int | None:
        return d

    def pair(self, rho: Summand, size: int, log_unit: Array | float = 0.0) -> Array | None:
        """Return the covariance for isotropic A; A cancels, as the tilted (1−4A)|ω|² is χ²_d."""
        if not rho.isotropic:
            return None
        if isinstance(rho, Keys):
            return None if rho.imaginary else _orthogonal_keys(rho.U)
        # Kummer: e^{−x} ₁F₁(d; d/2; x/2) = e^{−x/2} ₁F₁(−d/2; d/2; −x/2)
        x, c = np.clip(rho.dot, -FAR, FAR), rho.d / 2
        value = np.exp(-x / 2) * _hypergeometric(c, x / 2) - 1.0
        # ₁F₁ has the terms r_k y^k/k!, y = x/2, r_k = Π_{i<k} (c − i)/(c + i), and e^y has r_k = 1
        small = np.abs(x) < 1
        y = x[small] / 2
        term, lacks, series = y, 0.0, np.zeros_like(y)
        for k in range(1, 20 if len(y) else 1):
            lacks = (2 * k + lacks * (c - k)) / (c + k)  # 1 − r_{k+1}
            term = term * y / (k + 1)
            series -= lacks * term
        value[small] = np.exp(-y) * series
        return times(value, -np.asarray(log_unit))


def _hypergeometric(c: float, y: Array) -> Array:
    """Return ₁F₁(−c; c; −y), a polynomial with terms ≥ 0 if c is an integer and all y are ≥ 0."""
    if c != int(c) or (y < 0).any():
        return np.asarray(scipy.special.hyp1f1(-c, c, -y))
    k = np.arange(int(c))
    out = np.ones(y.size)
    _nested(np.ravel(y), (c - k) / ((c + k) * (k + 1)), out)
    return out.reshape(y.shape)


@kernel
def _nested(y: Any, ratios: Any, out: Any) -> None:
    """Replace ones by 1 + y·ratio₀(1 + y·ratio₁(1 + …)), in stretches that fit into the cache."""
    for start in range(0, len(y), STRETCH):
        x, p = y[start : start + STRETCH], out[start : start + STRETCH]
        for k in range(len(ratios)):
            ratio = ratios[len(ratios) - 1 - k]
            for j in range(len(x)):
                p[j] = 1.0 + ratio * x[j] * p[j]


def _orthogonal_keys(U: Array) -> Array:
    lengths = np.einsum("id,id->i", U, U)
    U = U * np.sqrt(FAR / np.maximum(lengths, FAR))[:, None]
    out = U @ U.T
    _orthogonal_pairs(np.minimum(lengths, FAR) / 2, out, U.shape[1] / 2)
    return np.asarray(out)


@kernel
def _orthogonal_pairs(half: Any, dots: Any, c: Any) -> None:
    """Overwrite u·v by the relative covariance of two keys under orthogonal frequencies."""
    for p in range(len(half)):
        for r in range(p + 1):
            alpha, beta = half[p], half[r]
            delta = max(alpha * beta - dots[p, r] * dots[p, r] / 4, 0.0)
            total = 0.0
            outer = np.exp(-alpha - beta)  # Δ^k (c)_k²/((c−½)_k k! (c)_{2k})
            k = 0
            while outer > 0.0:
                lam, base = c + k, c + 2 * k
                before, term, inner, step = 0.0, 1.0, 1.0, 0  # Gegenbauer over (base)_step
                while term > 1e-17 * inner or step < alpha + beta:
                    step += 1
                    grown = (step - 1 + lam) * (alpha + beta) * term
                    grown -= (step - 2 + 2 * lam) * alpha * beta * before
                    before = term / (base + step - 1)
                    term = grown / (step * (base + step - 1))
                    inner += term
                total += outer * inner
                if outer * inner < 1e-17 * total or delta == 0.0:
                    break
                top = (c + k) * (c + k) * delta
                outer *= top / ((c - 0.5 + k) * (k + 1) * base * (base + 1))
                k += 1
            dots[p, r] = dots[r, p] = total - 1.0


@dataclasses.dataclass(frozen=True)
class Simplex(Projection):
    """Blocks of up to d directions from the centre of a simplex to its corners, with χ_d lengths.

    Two of b directions have cosine −1/(b−1), the largest distance that b directions can have.

    Notes
    -----
    The relative covariance of two frequencies is e^{−x} E ₀F₁(; d/2; R²x/4) − 1,
    R² = |ω₁ + ω₂|². In polar coordinates of the two lengths R² = r²(1 − sin φ/(b−1)) with
    r² ~ χ²_{2d} and φ ∈ (0, π) of density ∝ sin^{d−1} φ. So the covariance is one quadrature of
    e^{−x} ₁F₁(d; d/2; (1 − sin φ/(b−1)) x/2). For cosh and cos it is the mean over both signs of
    the cosine. A cancels, as for orthogonal directions.

    References
    ----------
    .. [1] I. Reid, K. Choromanski, V. Likhosherstov, A. Weller, "Simplex Random Features",
       ICML 2023.
    """

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        parts = []
        for size, number in self.blocks(count, d):
            corners = np.eye(size, d)
            if size > 1:
                corners[:, :size] -= 1.0 / size
                corners *= math.sqrt(size / (size - 1))
            parts += [corners @ haar(d, rng).T for _ in range(number)]
        lengths = np.sqrt(rng.chisquare(d, count))
        return np.concatenate(parts) * lengths[:, None], np.full(count, 1.0 / count)

    def block(self, d: int) -> int | None:
        return d

    def pair(self, rho: Summand, size: int, log_unit: Array | float = 0.0) -> Array | None:
        if not rho.isotropic or isinstance(rho, Keys):
            return None
        d, cosine = rho.d, -1.0 / (size - 1)
        x = np.clip(rho.dot, -FAR, FAR)
        # s = sin φ ∈ (0, 1), density ∝ s^{d−1} (1−s²)^{−1/2}: Jacobi's weight and (1+s)^{−1/2}
        nodes, weights = scipy.special.roots_jacobi(NODES, -0.5, d - 1.0)
        s = (1 + nodes) / 2
        weights = weights / np.sqrt(1 + s)
        total = np.zeros_like(x)
        for sine, weight in zip(s, weights / weights.sum()):
            for sign in (1, -1) if rho.paired else (1,):
                y = (1 + sign * cosine * sine) * x / 2
                value = np.exp(y - x) * scipy.special.hyp1f1(-d / 2, d / 2, -y)  # Kummer
                total += weight / (2 if rho.paired else 1) * value
        return times(total - 1.0, -np.asarray(log_unit))


class _Spherical(Projection):
    """Rotation-invariant blocks in which |v|² is a scaled Beta variable for v = ω and v = ω ± ω′.

    Then E e^{v·u} = ₀F₁(; b; N u·u/4), where N depends on v but b does not.
    """

    @abstractmethod
    def order(self, count: int, d: int) -> float:
        """Return b of ₀F₁(; b; ·)."""

    @abstractmethod
    def lengths(self, size: int, d: int) -> tuple[float, float, float]:
        """Return N of ω, of ω + ω′, and of ω − ω′ for two frequencies of a block."""

    @abstractmethod
    def log_tilt(self, rho: Summand) -> float | None:
        """Return log((1−4A)^{d/2} e^{2A|ω|²}); None if it differs between ω."""

    def bias(self, rho: Entries, count: int) -> Array | None:
        """Return E ρ − 1 = e^{−x/2} ₀F₁(; b; N x/4) − 1; a tilt replaces x by x (1−4A) in ₀F₁."""
        if (mean := self._mean(rho, count)) is None:
            return None
        with np.errstate(over="ignore"):
            return np.asarray(mean[0] * np.exp(mean[1]) - 1.0)

    def log_variance(self, rho: Entries, count: int) -> Array:
        """Return log(E ρ² − (E ρ)²), E ρ² = e^{−x} ₀F₁(; b; N x); for cosh its mean with e^{−x}."""
        mean = self._mean(rho, count)
        if mean is None:
            return np.full_like(rho.dot, np.nan)
        one = self.lengths(count, rho.d)[0]
        square = self._product(rho, count, (4 * one, 0.0))[1]
        gap = -np.expm1(2 * mean[1] - square)
        rounding = 4e-15 * (1 + np.abs(square) + np.abs(rho.dot))  # at d = 1 cosh does not vary
        with np.errstate(divide="ignore"):
            return np.asarray(square + np.log(np.where(gap < rounding, 0.0, gap)))

    def shared(self, rho: Keys, count: int) -> Array | None:
        return None

    def pair(self, rho: Summand, size: int, log_unit: Array | float = 0.0) -> Array | None:
        """Return e^{−x} ₀F₁(; b; N₊ x/4) − (E ρ)², N₊ of ω + ω′; for cosh, the mean with N₋."""
        mean = self._mean(rho, size)
        if mean is None or isinstance(rho, Keys):
            return None
        sign, log = self._product(rho, size, self.lengths(size, rho.d)[1:])
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(sign * np.exp(log - log_unit) - np.exp(2 * mean[1] - log_unit))

    def _mean(self, rho: Summand, count: int) -> tuple[Array, Array] | None:
        tilt = self.log_tilt(rho) if rho.isotropic else None
        if tilt is None or isinstance(rho, Keys):
            return None
        x, one = rho.dot, self.lengths(count, rho.d)[0]
        sign, log = self._hyp0f1(one, x, rho, count)
        return sign, log + tilt - x / 2

    def _product(self, rho: Summand, count: int, squares: tuple[float, ...]) -> tuple[Array, Array]:
        """Return the sign and log of E ρ(ω) ρ(ω′), given N of ω + ω′ and of ω − ω′."""
        x = rho.dot
        sign, log = self._hyp0f1(squares[0], x, rho, count)
        if rho.paired:
            other, log_other = self._hyp0f1(squares[1], x, rho, count)
            top = np.maximum(log, log_other)
            total = sign * np.exp(log - top) + other * np.exp(log_other - top)
            with np.errstate(divide="ignore"):
                sign, log = np.sign(total), top + np.log(np.abs(total) / 2)
        return sign, log + 2 * (self.log_tilt(rho) or 0.0) - x

    def _hyp0f1(self, N: float, x: Array, rho: Summand, count: int) -> tuple[Array, Array]:
        return log_hyp0f1(self.order(count, rho.d), N * (1 - 4 * rho.A[0]) * x / 4)


def log_hyp0f1(b: float, z: Array) -> tuple[Array, Array]:
    """Return the sign and log|·| of ₀F₁(; b; z); for large z, Γ(b) y^{1−b} I_{b−1}(2y), y = √z.

    Accuracy: 40 eps·κ, as docs/accuracy.md defines it.
    """
    far = z > 1e3 * b
    falling = (z < 0) & (b > GAMMA)
    value = scipy.special.hyp0f1(b, np.where(far | falling, 0.0, z))
    value[falling] = _falling(b, z[falling])
    with np.errstate(divide="ignore"):
        log = np.log(np.abs(value))
    small = np.abs(z) < b
    log[small] = np.log1p(_series(b, z[small]))  # ``value`` has lost digits of value − 1
    y = np.sqrt(z[far])
    bessel = np.where(
        y < 1e8, scipy.special.ive(b - 1, 2 * np.minimum(y, 1e8)), (4 * np.pi * y) ** -0.5
    )
    log[far] = 2 * y + np.log(bessel) + scipy.special.gammaln(b) + (1 - b) * np.log(y)
    return np.sign(value), log


def _falling(b: float, z: Array) -> Array:
    """Return ₀F₁(; b; z) for z ≤ 0, large b: its series, or Γ(b) y^{1−b} J_{b−1}(2y), y = √−z."""
    y = np.sqrt(np.maximum(-z, b))
    bessel = scipy.special.jv(b - 1, 2 * y)
    with np.errstate(divide="ignore"):
        log = np.log(np.abs(bessel)) + scipy.special.gammaln(b) + (1 - b) * np.log(y)
    series = 1 + _series(b, np.maximum(z, -4 * b))
    return np.where(z >= -4 * b, series, np.sign(bessel) * np.exp(log))


def _series(b: float, z: Array) -> Array:
    """Return ₀F₁(; b; z) − 1 for |z| ≤ 4b, by its series, with terms of at most 4^k/k!."""
    term, series = np.ones_like(z), np.zeros_like(z)
    for k in range(1, 60):
        term = term * z / (k * (b + k - 1))
        series += term
    return series


@dataclasses.dataclass(frozen=True)
class Regularized(_Spherical):
    """Frequencies that all have length √d (SMREG); estimates are biased.

    Parameters
    ----------
    directions : {"orthogonal", "iid"}

    Notes
    -----
    E estimate/exp(q·k) = e^{−x/2} ₀F₁(; d/2; d x/4). For exponentials without a tilt x = |q+k|².
    Then the ratio is at most 1, tends to 0 as x grows, and is 1 − x²/(4d + 8) for small x; the
    variance is below the variance of iid frequencies. For cosines x = −|q−k|². For cosines and with
    a tilt, the ratio may be above 1 or negative.

    References
    ----------
    .. [1] K. Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, Theorem 1.
    """

    directions: str = "orthogonal"

    def __post_init__(self) -> None:
        checks.one_of("directions", self.directions, ("orthogonal", "iid"))

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        base: Projection = Orthogonal() if self.directions == "orthogonal" else IID()
        omega, weights = base.draw(count, d, rng)
        return omega * (math.sqrt(d) / np.linalg.norm(omega, axis=1, keepdims=True)), weights

    def block(self, d: int) -> int | None:
        return d if self.directions == "orthogonal" else 1

    def order(self, count: int, d: int) -> float:
        return d / 2

    def lengths(self, size: int, d: int) -> tuple[float, float, float]:
        """Return N = d for ω, and 2d for ω + ω′ and for ω − ω′."""
        return float(d), 2.0 * d, 2.0 * d

    def log_tilt(self, rho: Summand) -> float | None:
        """Return log((1−4A)^{d/2} e^{2Ad}), since |ω|² = d."""
        A, d = float(rho.A[0]), rho.d
        return d / 2 * math.log(1 - 4 * A) + 2 * A * d


@dataclasses.dataclass(frozen=True)
class MomentMatched(_Spherical):
    """Frequencies with sample mean 0 and sample covariance I; the bias is O(1/count).

    Ω = √m U, where U ∈ ℝ^{m×d} has uniformly distributed orthonormal columns ⟂ 1; m ≥ d + 1.

    Notes
    -----
    |ω|² is (m−1) times a Beta(d/2, (m−1−d)/2) variable, so E estimate/exp(q·k) =
    e^{−x/2} ₀F₁(; (m−1)/2; (m−1)x/4) ≤ 1. At m = d + 1 the frequencies are the corners of a
    simplex, with length √d. Moments are known only at A = 0.
    """

    def least(self, d: int) -> int:
        """Return d + 1, the least count with d columns ⟂ 1."""
        return d + 1

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        g = rng.standard_normal((count, d))
        q, r = np.linalg.qr(g - g.mean(axis=0))
        return q * np.sign(np.diag(r)) * math.sqrt(count), np.full(count, 1.0 / count)

    def order(self, count: int, d: int) -> float:
        return (count - 1) / 2

    def lengths(self, size: int, d: int) -> tuple[float, float, float]:
        """Return N = m − 1 for ω, 2(m − 2) for ω + ω′ and 2m for ω − ω′."""
        return size - 1.0, 2.0 * (size - 2), 2.0 * size

    def log_tilt(self, rho: Summand) -> float | None:
        return None if rho.A.any() else 0.0


@dataclasses.dataclass(frozen=True)
class Hadamard(Projection):
    """Structured orthogonal frequencies (SORF) √D·H S₁ H S₂ H S₃, with H orthonormal Hadamard.

    S_i are diagonals of random signs, and D ≥ d is the next power of two. Of each block of D rows,
    the first d columns are used. The frequencies are not exactly N(0, I), so estimates are biased,
    without a closed form. `Regularized` is close: its mean is within 0.5 % and its variance within
    1.5 % at d = 8, 16, 64.

    References
    ----------
    .. [1] F. X. Yu et al., "Orthogonal Random Features", NIPS 2016, Section 4.
    """

    isotropic = False

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        D = 1 << (d - 1).bit_length()
        H = scipy.linalg.hadamard(D) / math.sqrt(D)
        parts = []
        for _ in range(0, count, D):
            block = math.sqrt(D) * np.eye(D)
            for signs in rng.choice([-1.0, 1.0], size=(3, D)):
                block = H @ (signs[:, None] * block)
            parts.append(block[:, :d])
        return np.concatenate(parts)[:count], np.full(count, 1.0 / count)

    def bias(self, rho: Entries, count: int) -> Array | None:
        return None
