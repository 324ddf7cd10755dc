"""The base of sketches of (1 + q·k/p)^p: vectors (x/√p, 1), mean, variance and covariance.

With a = (q/√p, 1), b = (k/√p, 1), c = a·b = 1 + q·k/p, S = Σ_i a_i² b_i², U = |a|²|b|² − S and
W = c² − S, the variance of every unbiased sketch here is a sum of (c² + …)^p − c^{2p}. The
covariance of two keys b, b' of one query follows from the same formulas, with c c' for c²,
Σ a_i² b_i b'_i for S, and b·b' for |b|².
"""

import dataclasses
from abc import abstractmethod

import numpy as np

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.masks import Mask
from approx.method import Method, Moments, Size
from approx.method.fields import integer
from approx.polynomials.powers import log1p_less
from approx.sketches.products import augmented, unit
from approx.sketches.signed import Signed, power, signed, value

MOST_DEGREE = 1024  # one draw per degree, and the relative variance grows exponentially


@dataclasses.dataclass(frozen=True)
class PowerSketch(Method):
    """An unbiased estimate of (1 + q·k/p)^p, of degree p ≥ 1, biased for exp(q·k)."""

    sized_by = Size("m")

    m: int | None = None
    degree: int = integer(4, most=MOST_DEGREE)

    @abstractmethod
    def sketch_covariance(self, C: Array, U: Array, W: Array, S: Array) -> Signed:
        """Return the covariance of the estimates for two keys, from C = c c' and U, W, S."""

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments:
        """Return the bias of (1 + q·k/p)^p and the exact variance."""
        a, row = unit(augmented(q, self.degree))
        b, column = unit(augmented(k, self.degree))
        C, S = np.square(a @ b.T), np.square(a) @ np.square(b).T
        spread = self.sketch_covariance(C, np.maximum(1 - S, 0.0), C - S, S)
        x, log = exact.logits(q, k), 2 * self.degree * (row[:, None] + column)
        log_variance = np.where(spread.sign > 0, spread.log + log, -np.inf)
        return Moments(power_bias(x, self.degree), log_variance - 2 * x)

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array:
        a, scale = unit(augmented(Q[i : i + 1], self.degree))
        b, column = unit(augmented(K, self.degree))
        c = (b @ a.T)[:, 0]
        C, S = np.outer(c, c), (b * np.square(a)) @ b.T
        spread = self.sketch_covariance(C, b @ b.T - S, C - S, S)
        log = self.degree * (scale + column) - K @ Q[i]
        return value(Signed(spread.sign, spread.log + log[:, None] + log))


def power_bias(x: Array, p: int) -> Array:
    """Return (1 + x/p)^p e^{−x} − 1.

    Accuracy: 8 eps·κ, as docs/accuracy.md defines it.
    """
    small = np.abs(x) < p / 2
    near = np.expm1(p * log1p_less(np.where(small, x / p, 0.0)))
    ratio = power(signed(1 + x / p), p)
    return np.where(small, near, value(Signed(ratio.sign, ratio.log - x)) - 1)
