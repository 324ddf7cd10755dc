"""Quantiser levels for normal numbers, and rotations that make coordinates nearly normal."""

import functools
import math
from typing import NamedTuple

import numpy as np
import scipy

from approx import checks
from approx.checks import Array
from approx.projections.rotated import haar

MOST_BITS = 8  # bits of a level
ROTATIONS = ("orthogonal", "hadamard", "none")


class QuantiserLevels(NamedTuple):
    """The levels of a quantiser of one number, in rising order.

    Attributes
    ----------
    levels : (2^bits,)
    borders : (2^bits − 1,)
        Halfway between two levels; a number is rounded to the nearest level.
    distortion : float
        E (x − level)² for x ~ N(0, 1).
    """

    levels: Array
    borders: Array
    distortion: float

    def nearest(self, x: Array) -> Array:
        """Return the level nearest to each number."""
        return np.asarray(self.levels[np.searchsorted(self.borders, x)])


@functools.cache
def lloyd_max(bits: int) -> QuantiserLevels:
    """Return the 2^bits levels for which E (x − level)² of x ~ N(0, 1) is least.

    Each level is the mean of the numbers that are rounded to it, and each border lies halfway
    between two levels: c_i = (φ(b_{i−1}) − φ(b_i))/(Φ(b_i) − Φ(b_{i−1})). Then E x·level =
    E level², so the distortion is 1 − E level².

    Notes
    -----
    Newton's method solves x_i − c_i(x) = 0, whose Jacobian is tridiagonal. It starts from the
    levels of a companded uniform quantiser, the quantiles of N(0, 3).

    References
    ----------
    .. [1] J. Max, "Quantizing for minimum distortion", IRE Trans. Information Theory 6, 1960,
       equations 6 and 7, table I.
    """
    count = 1 << checks.integer("bits", bits, least=1, most=MOST_BITS)
    x = math.sqrt(3.0) * scipy.special.ndtri((np.arange(count) + 0.5) / count)
    for _ in range(50):
        borders = (x[1:] + x[:-1]) / 2
        ends = np.concatenate([[-np.inf], borders, [np.inf]])
        density = np.exp(-(ends**2) / 2) / math.sqrt(2 * math.pi)
        share = _share(ends)
        centroid = (density[:-1] - density[1:]) / share
        with np.errstate(invalid="ignore"):  # 0·∞ at both ends
            upper = np.nan_to_num(density[1:] * (ends[1:] - centroid)) / share / 2
            lower = np.nan_to_num(density[:-1] * (centroid - ends[:-1])) / share / 2
        jacobian = np.zeros((3, count))
        jacobian[0, 1:], jacobian[1], jacobian[2, :-1] = -upper[:-1], 1 - upper - lower, -lower[1:]
        step = scipy.linalg.solve_banded((1, 1), jacobian, x - centroid)
        x = x - step
        if np.abs(step).max() < 1e-14:
            break
    x = (x - x[::-1]) / 2  # the distribution is symmetric
    borders = (x[1:] + x[:-1]) / 2
    share = _share(np.concatenate([[-np.inf], borders, [np.inf]]))
    return QuantiserLevels(x, borders, float(1.0 - share @ x**2))


def _share(ends: Array) -> Array:
    """Return Φ(b) − Φ(a) of neighbouring ends, computed in the tail where nothing cancels."""
    below, above = scipy.special.ndtr(ends), scipy.special.ndtr(-ends)
    return np.asarray(np.where(ends[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1]))


def width(d: int, rotation: str) -> int:
    """Return how many numbers a rotated key has: d, or the next power of two for "hadamard"."""
    return 1 << (d - 1).bit_length() if rotation == "hadamard" else d


def rotated(d: int, rotation: str, rng: np.random.Generator) -> Array:
    """Return R (width, d) with RᵀR = I: Haar distributed, H·diag(±1)/√width, or the identity."""
    if rotation == "none":
        return np.eye(d)
    if rotation == "orthogonal":
        return haar(d, rng)
    D = width(d, rotation)
    H = scipy.linalg.hadamard(D) / math.sqrt(D)
    return np.asarray((H * rng.choice([-1.0, 1.0], D))[:, :d])
