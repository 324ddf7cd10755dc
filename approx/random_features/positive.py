"""Positive random features: FAVOR+ of the Performer."""

import dataclasses

from approx.method import Label
from approx.random_features.features import ExponentialFeatures


@dataclasses.dataclass(frozen=True)
class Positive(ExponentialFeatures):
    """Positive random features, unbiased for exp(q·k).

    φ(x)_r = m^{−1/2} exp(ω_r·x − |x|²/2),  ω_r ~ N(0, I_d),  estimate = φ(q)·φ(k).

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1, the columns of the factors; None is a template.
    projection : str or Projection
        The joint distribution of the ω.

    Notes
    -----
    The estimate is unbiased, with relative variance (e^{|q+k|²} − 1)/m, exact for iid ω.
    Two orthogonal ω in a block add the covariance e^{−|q+k|²} ₁F₁(d; d/2; |q+k|²/2) − 1 ≤ 0.
    Draws are lognormal: a sample variance beyond |q+k|² ≈ 2 is not reliable.
    Every entry is ≥ 0, so rows can be normalised.
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers.
    Features are built in log space, with one shift per query row and one for all keys. The shifts
    are stored, so the estimate stays unbiased.

    References
    ----------
    .. [1] K. Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, Lemmas 1, 2.

    Examples
    --------
    At q = k = 0 every feature is m^{−1/2}, so the estimate is exactly 1:

    >>> Positive(m=4).approximate([[0.0]], [[0.0]], rng=0).to_dense()
    array([[1.]])
    """

    name = "positive"
    label = Label(
        "Performer (positive features)",
        {
            "orthogonal positive features": {"projection": "orthogonal"},
            "simplex positive features": {"projection": "simplex"},
            "zero-mean positive features": {"projection": "zero_mean"},
            "antithetic positive features": {"projection": "antithetic"},
            "moment-matched positive features": {"projection": "moment_matched"},
            "positive features of length √d": {"projection": "regularized"},
        },
    )
    composed = True
