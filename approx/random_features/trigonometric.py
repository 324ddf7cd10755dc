"""Trigonometric random features: the sines and cosines of Rahimi and Recht."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.decoding.sums import Feature, FeatureMaps
from approx.estimate.distances import half_square
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Size
from approx.random_features.features import Frame, RandomFeatures


@dataclasses.dataclass(frozen=True)
class Trigonometric(RandomFeatures):
    """Trigonometric random features, unbiased for exp(q·k), of either sign.

    φ(x) = (m/2)^{−1/2} e^{|x|²/2} (cos ω_r·x, sin ω_r·x)_{r ≤ m/2},  ω_r ~ N(0, I_d).

    Parameters
    ----------
    m : int, optional
        Columns of the factors, two per frequency, so an even number; None is a template.
    projection : str or Projection
        The joint distribution of the ω.

    Notes
    -----
    The estimate is unbiased, with relative variance (cosh|q−k|² − 1)/(m/2), exact for iid ω. The
    variance is small where q ≈ k, and grows as exp(q·k) falls. Row sums may be ≤ 0.
    With Q = K the diagonal is exact: exp(|x|²) has no variance.
    Cost: 2(n + l)·(m/2)·d operations and a sine and cosine per feature, (n + l)·m numbers.

    References
    ----------
    .. [1] A. Rahimi, B. Recht, "Random Features for Large-Scale Kernel Machines", NIPS 2007.
    .. [2] K. Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, Lemma 2.

    Examples
    --------
    >>> Trigonometric(m=2).approximate([[1.0]], [[1.0]], rng=0).to_dense().round(12)
    array([[2.71828183]])
    """

    name = "trigonometric"
    label = "random Fourier features"
    composed = True
    per_frequency = 2
    imaginary = True
    sized_by = Size("m", least=2, step=2, instead=("fixed",))

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        omega, half = self.frequencies(q, k, rng)
        frame = self.frame(q, k)
        omega, amplitude, log = self._tilted(frame, omega, half)
        row_log, key_log = half_square(frame.a) + frame.row, half_square(frame.b) + frame.column
        phi_q, phi_k = (waves(x, omega, amplitude) for x in (frame.a, frame.b))
        both = q.dtype.type(2 * log)
        return Parts(Factors.scaled(phi_q, phi_k, row_log, key_log, mask, both))

    def _tilted(self, frame: Frame, omega: Array, half: Array) -> tuple[Array, Array, float]:
        """Return frequencies, amplitudes ≤ 1, and the log of their common factor."""
        A = self.tilt(frame)
        level = self.level(omega, half, A)
        log = level.max()
        return (
            (omega * np.sqrt(1 - 4 * A)).astype(omega.dtype),
            np.exp(level - log).astype(omega.dtype),
            log,
        )

    def maps(self, d: int, rng: np.random.Generator) -> FeatureMaps:
        nothing = np.zeros((1, d))
        drawn = self.frequencies(nothing, nothing, rng)

        def feature(x: Array, extra: Array | float, frame: Frame) -> Feature:
            omega, amplitude, log = self._tilted(frame, *drawn)
            return waves(x, omega, amplitude)[0], (half_square(x) + extra + log)[0]

        def query(q: Array) -> Feature:
            frame = self.frame(q[None], nothing)
            return feature(frame.a, frame.row, frame)

        def key(k: Array) -> Feature:
            frame = self.frame(nothing, k[None])
            return feature(frame.b, frame.column, frame)

        return FeatureMaps(query, key, self.count * self.per_frequency, self.count * d)


def waves(X: Array, omega: Array, amplitude: Array) -> Array:
    """Return amplitude_r·(cos ω_r·x, sin ω_r·x), (rows, 2·count)."""
    phase = X @ omega.T
    return np.concatenate([np.cos(phase) * amplitude, np.sin(phase) * amplitude], axis=1)
