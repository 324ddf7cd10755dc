"""Frequencies given by the user, or from scrambled low-discrepancy sequences."""

import dataclasses
import hashlib
from typing import Any

import numpy as np
import scipy

from approx import checks
from approx.checks import Array
from approx.projections.base import Projection


@dataclasses.dataclass(frozen=True)
class Sobol(Projection):
    """Scrambled Sobol' points mapped by the normal quantile; unbiased over the scrambling.

    Unscrambled points would have a fixed error (12 % at m = 64, d = 8) and no error bar.

    References
    ----------
    .. [1] A. B. Owen, "Scrambling Sobol' and Niederreiter–Xing points", J. Complexity 14, 1998.
    """

    isotropic = False

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        from scipy.stats import qmc  # imported here because it is slow

        sampler = qmc.Sobol(d, scramble=True, bits=52, rng=rng)
        points = sampler.random_base2(max(count - 1, 0).bit_length())[:count]
        return scipy.special.ndtri(points + 2.0**-53), np.full(count, 1.0 / count)


@dataclasses.dataclass(frozen=True)
class Halton(Projection):
    """Scrambled Halton points mapped by the normal quantile; unbiased over the scrambling.

    References
    ----------
    .. [1] A. B. Owen, "A randomized Halton algorithm in R", arXiv 1706.02808.
    """

    isotropic = False

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        from scipy.stats import qmc  # imported here because it is slow

        points = qmc.Halton(d, scramble=True, rng=rng).random(count)
        omega = scipy.special.ndtri(np.clip(points, 2.0**-53, 1 - 2.0**-53))
        return omega, np.full(count, 1.0 / count)


@dataclasses.dataclass(frozen=True, eq=False)
class Fixed(Projection):
    """Given frequencies and weights, such as the nodes of a quadrature for N(0, I_d).

    Parameters
    ----------
    omega : (count, d)
        Frequencies, before the shift of a method.
    weights : (count,), optional
        Numbers ≥ 0 with sum 1; equal by default.

    Raises
    ------
    ValueError
        The shapes do not fit, or the weights are negative or do not sum to 1.

    Examples
    --------
    >>> Fixed([[1.0], [-1.0]]).weights
    array([0.5, 0.5])
    """

    isotropic = False

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
        if self.omega.shape[1] != d:
            raise ValueError(f"omega must have d={d} columns, got shape {self.omega.shape}")
        return self.omega, self.weights

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.omega.tobytes() + self.weights.tobytes()).hexdigest()[:8]
        return f"Fixed({len(self.omega)} frequencies, {digest})"
