"""Random features with frequencies in ℕ^d: products of powers of the coordinates."""

import dataclasses
from abc import abstractmethod

import numpy as np

from approx.checks import Array
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Moments
from approx.method.fields import flag
from approx.method.tags import ROTATION, SCALE, SHIFT, collect
from approx.random_features.exponentials import exponentials
from approx.random_features.features import Frame, RandomFeatures

Signed = tuple[Array, Array]  # sign, log of the absolute value
LOG_OF_ZERO = -1e30  # finite, so e^{0·this} is 1, while e^{N·this} is 0 for a count N ≥ 1


@dataclasses.dataclass(frozen=True)
class DiscreteFeatures(RandomFeatures):
    """φ(x)_r = m^{−1/2} Π_c x_c^{N_rc} g_c(N_rc) with independent counts N_rc.

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1; None is a template.
    projection : str or Projection
        The joint distribution of the Gaussian ω from which the counts follow: N is the quantile of
        Φ(ω).
    nonnegative : bool
        Whether queries and keys are shifted by their least coordinates, so that every feature is
        ≥ 0. Without the shift features have signs, and row sums may be ≤ 0.
    """

    fits_all = True  # the shift and the parameter of the distribution

    nonnegative: bool = flag(True)

    @property
    def tags(self) -> frozenset[str]:
        return super().tags - {ROTATION} | collect(SCALE, self.nonnegative and SHIFT)

    @abstractmethod
    def parameter(self, frame: Frame) -> Array:
        """Return the parameter of the distribution of each coordinate, (d,), from the frame."""

    @abstractmethod
    def counts(self, omega: Array, parameter: Array) -> Array:
        """Return N (count, d), the quantile of Φ(ω), as floats."""

    @abstractmethod
    def log_factor(self, N: Array, parameter: Array) -> Array:
        """Return Σ_c log g_c(N_c), (count,)."""

    @abstractmethod
    def log_product(self, square: Array, u: Array, v: Array, parameter: Array) -> Signed:
        """Return E Π_c (q_c² u_c v_c)^{N_c} g_c(N_c)⁴ for q² (d,) and for rows of u and v."""

    def frame(self, Q: Array, K: Array) -> Frame:
        """Return the frame of q − min q and k − min k, coordinate by coordinate."""
        if not self.nonnegative:
            return Frame(Q, K)
        q, k = Q.min(axis=0), K.min(axis=0)
        return Frame(Q - q, K - k, (Q - q) @ k + q @ k, (K - k) @ q)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        omega, half = self.frequencies(q, k, rng)
        frame = self.frame(q, k)
        parameter = self.parameter(frame)
        N = self.counts(omega.astype(np.float64), parameter)
        level = self.log_factor(N, parameter)
        sides, signs = [], []
        for x, extra in ((frame.a, frame.row), (frame.b, frame.column)):
            with np.errstate(divide="ignore"):
                logs = np.maximum(np.log(np.abs(x.astype(np.float64))), LOG_OF_ZERO)
            side = logs @ N.T + level + np.broadcast_to(extra, len(x))[:, None]
            sides.append(np.where(side < LOG_OF_ZERO / 2, -np.inf, side).astype(q.dtype))
            signs.append(1 - 2 * (((x < 0) @ (N % 2).T) % 2).astype(q.dtype))
        top = sides[1].max(axis=0)  # x^N of large N and small x, times that of large x, is not 0
        top = np.where(top > -np.inf, top, 0).astype(q.dtype)
        estimate = exponentials(sides[0] + top, sides[1] - top, half, mask)
        left, right = estimate.left * signs[0], estimate.right * signs[1]
        return Parts(Factors(left, right, estimate.row_logs, estimate.column_logs))

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        if self.projection != "iid":
            return None
        frame = self.frame(q, k)
        parameter = self.parameter(frame)
        log = np.empty((len(q), len(k)))
        for i, a in enumerate(frame.a):
            log[i] = self.log_product(a * a, frame.b, frame.b, parameter)[1] - 2 * frame.b @ a
        with np.errstate(divide="ignore"):
            log_v = log + np.log(-np.expm1(-np.maximum(log, 0.0)))
        return Moments(np.zeros_like(log), log_v - np.log(self.count))

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        if self.projection != "iid":
            return None
        frame = self.frame(Q, K)
        a, b, parameter = frame.a[i], frame.b, self.parameter(frame)
        dots = b @ a
        total = np.empty((len(b), len(b)))
        for j, one in enumerate(b):
            sign, log = self.log_product(a * a, one, b, parameter)
            log -= dots[j] + dots
            with np.errstate(over="ignore"):
                total[j] = np.where(sign > 0, np.expm1(log), -np.exp(log) - 1)
        return total / self.count
