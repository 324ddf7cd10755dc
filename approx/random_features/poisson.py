"""Poisson random features, whose frequencies are counts."""

import dataclasses

import numpy as np
import scipy

from approx.checks import Array
from approx.random_features.discrete import DiscreteFeatures, Signed
from approx.random_features.features import Frame

MOST_RATE = 1e10  # SciPy's quantile of the counts is NaN at rates from 3e10 on


@dataclasses.dataclass(frozen=True)
class Poisson(DiscreteFeatures):
    """Poisson random features, unbiased for exp(q·k), non-negative by a shift.

    φ(x)_r = m^{−1/2} Π_c x_c^{N_rc} λ_c^{−N_rc/2} e^{λ_c/2},  N_rc ~ Poisson(λ_c).

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
    The estimate is unbiased, with relative variance (e^{Σ_c (λ_c − q_c k_c)²/λ_c} − 1)/m, exact
    for iid draws; q and k are the shifted ones here. λ_c = (mean q_c² · mean k_c²)^{1/2} minimises
    the mean log second moment; for one pair it is |q_c k_c|. The method is good for small norms
    only. Counts end at the quantile 1 − 2^{−53}.
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers.

    References
    ----------
    .. [1] V. Likhosherstov et al., "Chefs' Random Tables", NeurIPS 2022: discretely induced
       random features.

    Examples
    --------
    One pair with q, k ≥ 0 needs one feature: the variance is 0 at λ = q k.

    >>> Poisson(m=1, nonnegative=False).approximate([[2.0]], [[0.5]], rng=0).to_dense().round(12)
    array([[2.71828183]])
    """

    name = "poisson"
    label = "Poisson features"

    def parameter(self, frame: Frame) -> Array:
        a, b = (np.square(x.astype(np.float64)).mean(axis=0) for x in (frame.a, frame.b))
        return np.asarray(np.sqrt(a * b))

    def counts(self, omega: Array, parameter: Array) -> Array:
        from scipy.stats import poisson  # slow to import, so only where it is used

        if (top := float(parameter.max())) > MOST_RATE:
            raise ValueError(
                f"Poisson counts need λ = |q_c k_c| <= {MOST_RATE:.0e}, got {top:.3g}: "
                "scale the inputs down"
            )
        return np.asarray(
            poisson.ppf(np.minimum(scipy.special.ndtr(omega), 1 - 2.0**-53), parameter)
        )

    def log_factor(self, N: Array, parameter: Array) -> Array:
        """Return Σ_c λ_c/2 − N_c log(λ_c)/2."""
        return np.asarray(parameter.sum() / 2 - scipy.special.xlogy(N, parameter).sum(axis=1) / 2)

    def log_product(self, square: Array, u: Array, v: Array, parameter: Array) -> Signed:
        """Return the sign and log of exp(Σ_c λ_c + q_c² u_c v_c/λ_c)."""
        ratio = np.divide(square, parameter, out=np.zeros_like(square), where=parameter > 0)
        log = parameter.sum() + (u * v) @ ratio
        return np.ones_like(log), log
