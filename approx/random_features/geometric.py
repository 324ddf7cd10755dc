"""Geometric random features, whose frequencies are counts."""

import dataclasses
import math

import numpy as np
import scipy

from approx.checks import Array
from approx.random_features.discrete import DiscreteFeatures, Signed
from approx.random_features.features import Frame


@dataclasses.dataclass(frozen=True)
class Geometric(DiscreteFeatures):
    """Geometric random features, unbiased for exp(q·k), non-negative by a shift.

    φ(x)_r = m^{−1/2} Π_c x_c^{N_rc} (N_rc!)^{−1/2} p_c^{−1/2} (1−p_c)^{−N_rc/2},
    P(N_rc = j) = p_c (1−p_c)^j.

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1; None is a template.
    projection : str or Projection
        The joint distribution of the Gaussian ω from which the counts follow.
    nonnegative : bool
        Whether x is q − min q and k − min k (coordinate by coordinate), so that φ ≥ 0.

    Notes
    -----
    The estimate is unbiased. Its relative variance, exact for iid draws, is
    (Π_c I₀(2|q_c k_c|/√(1−p_c))/p_c · e^{−2 q·k} − 1)/m, where q and k are the shifted ones. p_c
    minimises the log of the product at the root mean square of q_c k_c. The method is good for
    small norms only.
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers; n·l·d Bessel functions for the moments.

    References
    ----------
    .. [1] V. Likhosherstov et al., "Chefs' Random Tables", NeurIPS 2022: discretely induced
       random features.

    Examples
    --------
    >>> Geometric(m=3).approximate([[0.0]], [[0.0]], rng=0).to_dense()
    array([[1.]])
    """

    name = "geometric"
    label = "geometric features"

    def parameter(self, frame: Frame) -> Array:
        a, b = (np.square(x.astype(np.float64)).mean(axis=0) for x in (frame.a, frame.b))
        return np.array([optimal_rate(r) for r in np.sqrt(a * b)])

    def counts(self, omega: Array, parameter: Array) -> Array:
        """Return ⌊log(1 − Φ(ω))/log(1 − p)⌋, which keeps the tail exact."""
        with np.errstate(divide="ignore"):
            return np.floor(scipy.special.log_ndtr(-omega) / np.log1p(-parameter))

    def log_factor(self, N: Array, parameter: Array) -> Array:
        """Return −½ Σ_c log N_c! + log p_c + N_c log(1−p_c)."""
        with np.errstate(divide="ignore"):
            tail = np.where(parameter < 1, np.log1p(-parameter), 0.0)
        each = scipy.special.gammaln(N + 1) + np.log(parameter) + N * tail
        return np.asarray(-0.5 * each.sum(axis=1))

    def log_product(self, square: Array, u: Array, v: Array, parameter: Array) -> Signed:
        """Return the sign and log of Π_c I₀(2√(q_c² u_c v_c/(1−p_c)))/p_c, J₀ if u_c v_c < 0."""
        rest = 1 - parameter
        z = np.divide(square * u * v, rest, out=np.zeros(np.shape(u * v)), where=rest > 0)
        y = 2 * np.sqrt(np.abs(z))
        value = np.where(z < 0, scipy.special.j0(y), scipy.special.i0e(y))
        with np.errstate(divide="ignore"):
            log = (np.log(np.abs(value)) + np.where(z < 0, 0.0, y)).sum(axis=-1)
        return np.sign(value).prod(axis=-1), log - np.log(parameter).sum()


def optimal_rate(r: float) -> float:
    """Return the p that minimises log I₀(2r/√(1−p)) − log p; it is 1 at r = 0.

    Accuracy: 60 eps·κ, as docs/accuracy.md defines it.
    """
    from scipy.optimize import brentq  # slow to import, so only where it is used

    if r < 1e-150:
        return 1.0

    def slope(log_odds: float) -> float:
        p, rest = 1 / (1 + math.exp(-log_odds)), 1 / (1 + math.exp(log_odds))
        y = 2 * r / math.sqrt(rest)
        return float(r * rest**-1.5 * scipy.special.i1e(y) / scipy.special.i0e(y) - 1 / p)

    low, high = -1.0, 1.0
    while slope(low) > 0:
        low *= 2
    while slope(high) < 0:
        high *= 2
    log_odds = float(brentq(slope, low, high, xtol=1e-13))
    return 1 / (1 + math.exp(-log_odds))
