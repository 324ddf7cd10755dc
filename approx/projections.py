"""Frequencies omega of the random features: where the randomness of an estimate comes from."""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.special import hyp1f1, ndtri

from approx import checks
from approx.checks import Array


class Projection(ABC):
    """A coupling of frequencies, each of them N(0, I_d) before a method's own shift."""

    @abstractmethod
    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return omega (count, d) and weights (count,), ≥ 0 with sum 1."""

    def blocks(self, count: int, d: int) -> list[tuple[int, int]]:
        """Return (size, number) of the independent blocks that count frequencies fall into."""
        return [(count, 1)]

    def relative_covariance(
        self, x: Array, A: float, d: int, size: int, *, paired: bool
    ) -> Array | None:
        """Return E[ρ(ω₁) ρ(ω₂)] − 1 of two frequencies of one block; None: no closed form.

        ρ is the summand over exp(q·k), see `approx.random_features.features`; x = u·u, (n, l).
        """
        return None


@dataclasses.dataclass(frozen=True)
class IID(Projection):
    """Independent ω_r ~ N(0, I_d), equal weights."""

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return omega (count, d) and weights 1/count."""
        return rng.standard_normal((count, d)), np.full(count, 1.0 / count)

    def blocks(self, count: int, d: int) -> list[tuple[int, int]]:
        """Return blocks of one."""
        return [(1, count)]

    def relative_covariance(
        self, x: Array, A: float, d: int, size: int, *, paired: bool
    ) -> Array | None:
        """Return 0."""
        return np.zeros_like(x)


@dataclasses.dataclass(frozen=True)
class Orthogonal(Projection):
    """Blocks of up to d orthogonal directions, Haar distributed, with independent χ_d lengths.

    The directions are columns of Q·diag(sign R) of a Gaussian matrix G = QR. Without the sign Q is
    not Haar: LAPACK makes the first entry of the first column negative, and E[estimate]/exp(q·k)
    falls to 0.66 at d = 4, q + k = (1, 1, 1, 1).

    Notes
    -----
    Relative covariance of two in a block, for every family here: e^{−x} ₁F₁(d; d/2; x/2) − 1, since
    |ω₁ ± ω₂|² ~ χ²_{2d} with a uniform direction. It is ≤ 0 for x = |q+k|².

    References
    ----------
    .. [1] F. X. Yu et al., "Orthogonal Random Features", NIPS 2016.
    .. [2] F. Mezzadri, "How to generate random matrices from the classical compact groups",
       Notices AMS 54, 2007.
    """

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return omega (count, d), orthogonal within blocks of d, and weights 1/count."""
        parts = []
        for start in range(0, count, d):
            q, r = np.linalg.qr(rng.standard_normal((d, d)))
            haar = q * np.sign(np.diag(r))
            parts.append(haar.T[: count - start])
        lengths = np.sqrt(rng.chisquare(d, count))
        return np.concatenate(parts) * lengths[:, None], np.full(count, 1.0 / count)

    def blocks(self, count: int, d: int) -> list[tuple[int, int]]:
        """Return blocks of d, and one of what is left."""
        full, left = divmod(count, d)
        return [(size, number) for size, number in ((d, full), (left, 1)) if size and number]

    def relative_covariance(
        self, x: Array, A: float, d: int, size: int, *, paired: bool
    ) -> Array | None:
        """Return e^{−x} ₁F₁(d; d/2; x/2) − 1; for x beyond 300 the variance drowns it."""
        small = np.clip(x, -300.0, 300.0)
        # Kummer: e^{−x} ₁F₁(d; d/2; x/2) = e^{−x/2} ₁F₁(−d/2; d/2; −x/2)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(-small / 2) * hyp1f1(-d / 2, d / 2, -small / 2) - 1.0)


@dataclasses.dataclass(frozen=True)
class Antithetic(Projection):
    """Frequencies in pairs ω, −ω: `positive` becomes `hyperbolic`.

    Notes
    -----
    Relative covariance of a pair: (1−4A)^d (1−8A)^{−d/2} e^{−x} − 1; a family that has cosh or cos
    of ω·u takes the same value twice, and gains nothing.
    """

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return omega (count, d), the second half against the first, and weights 1/count."""
        half = rng.standard_normal(((count + 1) // 2, d))
        return np.concatenate([half, -half])[:count], np.full(count, 1.0 / count)

    def blocks(self, count: int, d: int) -> list[tuple[int, int]]:
        """Return pairs, and one alone if the count is odd."""
        pairs, left = divmod(count, 2)
        return [(size, number) for size, number in ((2, pairs), (1, left)) if number]

    def relative_covariance(
        self, x: Array, A: float, d: int, size: int, *, paired: bool
    ) -> Array | None:
        """Return it, for exponential and for even families."""
        log = d * np.log(1 - 4 * A) - d / 2 * np.log(1 - 8 * A) - x
        if paired:
            y = 2 * x * (1 - 4 * A) / (1 - 8 * A)
            log = log + np.logaddexp(0.0, y) - np.log(2)
        with np.errstate(over="ignore"):
            return np.asarray(np.expm1(log))


@dataclasses.dataclass(frozen=True)
class Sobol(Projection):
    """Scrambled Sobol' points through the normal quantile: unbiased over the scrambling.

    Parameters
    ----------
    scramble : bool
        Unscrambled points are refused: they have a fixed error (12 % at m = 64, d = 8) and no
        error bar.

    References
    ----------
    .. [1] A. B. Owen, "Scrambling Sobol' and Niederreiter–Xing points", J. Complexity 14, 1998.
    """

    scramble: bool = True

    def __post_init__(self) -> None:
        _refuse_unscrambled(self.scramble)

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return omega (count, d) and weights 1/count."""
        from scipy.stats import qmc  # heavy: only where it is used

        sampler = qmc.Sobol(d, scramble=True, bits=52, rng=rng)
        points = sampler.random_base2(max(count - 1, 0).bit_length())[:count]
        return ndtri(points + 2.0**-53), np.full(count, 1.0 / count)


@dataclasses.dataclass(frozen=True)
class Halton(Projection):
    """Scrambled Halton points through the normal quantile: unbiased over the scrambling.

    Parameters
    ----------
    scramble : bool
        Unscrambled points are refused: a fixed error, and no error bar.

    References
    ----------
    .. [1] A. B. Owen, "A randomized Halton algorithm in R", arXiv 1706.02808.
    """

    scramble: bool = True

    def __post_init__(self) -> None:
        _refuse_unscrambled(self.scramble)

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return omega (count, d) and weights 1/count."""
        from scipy.stats import qmc  # heavy: only where it is used

        points = qmc.Halton(d, scramble=True, rng=rng).random(count)
        return ndtri(np.clip(points, 2.0**-53, 1 - 2.0**-53)), np.full(count, 1.0 / count)


def _refuse_unscrambled(scramble: bool) -> None:
    if scramble is not True:
        raise ValueError("unscrambled points have a fixed error and no error bar: scramble them")


@dataclasses.dataclass(frozen=True, eq=False)
class Fixed(Projection):
    """Given frequencies, such as quadrature nodes of N(0, I_d): unbiasedness without chance.

    Parameters
    ----------
    omega : (count, d)
        Nodes, before a method's own shift.
    weights : (count,), optional
        ≥ 0 with sum 1; equal by default.

    Raises
    ------
    ValueError
        Shapes that do not fit, weights that are negative or do not sum to 1.

    Examples
    --------
    >>> Fixed([[1.0], [-1.0]]).weights
    array([0.5, 0.5])
    """

    omega: Any
    weights: Any = None

    def __post_init__(self) -> None:
        omega = checks.array("omega", self.omega, ndim=2).astype(np.float64)
        count = len(omega)
        weights = np.full(count, 1.0 / max(count, 1)) if self.weights is None else self.weights
        w = checks.array("weights", weights, ndim=1).astype(np.float64)
        if len(w) != count or count == 0 or (w < 0).any() or abs(w.sum() - 1) > 1e-9:
            raise ValueError(
                f"weights must be {count} numbers >= 0 with sum 1, got {len(w)} with sum {w.sum()}"
            )
        object.__setattr__(self, "omega", omega)
        object.__setattr__(self, "weights", w)

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return what was given."""
        if self.omega.shape[1] != d:
            raise ValueError(f"omega must have d={d} columns, got shape {self.omega.shape}")
        return self.omega, self.weights

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.omega.tobytes() + self.weights.tobytes()).hexdigest()[:8]
        return f"Fixed({len(self.omega)} frequencies, {digest})"


PROJECTIONS: dict[str, Projection] = {
    "iid": IID(),
    "orthogonal": Orthogonal(),
    "antithetic": Antithetic(),
    "sobol": Sobol(),
    "halton": Halton(),
}


def named(projection: str | Projection) -> Projection:
    """Return the projection of a name, or the object itself.

    Raises
    ------
    ValueError
        An unknown name: lists the known ones.
    """
    if isinstance(projection, Projection):
        return projection
    return PROJECTIONS[checks.one_of("projection", projection, tuple(PROJECTIONS))]
