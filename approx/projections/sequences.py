"""Frequencies from scrambled low-discrepancy sequences."""

import dataclasses

import numpy as np
import scipy

from approx.checks import Array
from approx.projections.base import Projection


@dataclasses.dataclass(frozen=True)
class Sobol(Projection):
    """Scrambled Sobol' points mapped by the normal quantile; unbiased over the scrambling.

    Parameters
    ----------
    scramble : bool
        Must be True: unscrambled points have a fixed error (12 % at m = 64, d = 8) and no error
        bar.

    References
    ----------
    .. [1] A. B. Owen, "Scrambling Sobol' and Niederreiter–Xing points", J. Complexity 14, 1998.
    """

    isotropic = False

    scramble: bool = True

    def __post_init__(self) -> None:
        _refuse_unscrambled(self.scramble)

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        from scipy.stats import qmc  # imported here because it is slow

        sampler = qmc.Sobol(d, scramble=True, bits=52, rng=rng)
        points = sampler.random_base2(max(count - 1, 0).bit_length())[:count]
        return scipy.special.ndtri(points + 2.0**-53), np.full(count, 1.0 / count)


@dataclasses.dataclass(frozen=True)
class Halton(Projection):
    """Scrambled Halton points mapped by the normal quantile; unbiased over the scrambling.

    Parameters
    ----------
    scramble : bool
        Must be True: unscrambled points have a fixed error and no error bar.

    References
    ----------
    .. [1] A. B. Owen, "A randomized Halton algorithm in R", arXiv 1706.02808.
    """

    isotropic = False

    scramble: bool = True

    def __post_init__(self) -> None:
        _refuse_unscrambled(self.scramble)

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        from scipy.stats import qmc  # imported here because it is slow

        points = qmc.Halton(d, scramble=True, rng=rng).random(count)
        omega = scipy.special.ndtri(np.clip(points, 2.0**-53, 1 - 2.0**-53))
        return omega, np.full(count, 1.0 / count)


def _refuse_unscrambled(scramble: bool) -> None:
    if scramble is not True:
        raise ValueError("unscrambled points have a fixed error and no error bar: scramble them")
