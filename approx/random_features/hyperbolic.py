"""Hyperbolic random features, which use each frequency with both signs."""

import dataclasses

from approx.method import Size
from approx.random_features.features import ExponentialFeatures


@dataclasses.dataclass(frozen=True)
class Hyperbolic(ExponentialFeatures):
    """Hyperbolic random features, unbiased for exp(q·k), positive.

    φ(x) = m^{−1/2} e^{−|x|²/2} (e^{ω_r·x}, e^{−ω_r·x})_{r ≤ m/2},  ω_r ~ N(0, I_d).

    Parameters
    ----------
    m : int, optional
        Columns of the factors, two per frequency, so an even number; None is a template.
    projection : str or Projection
        The joint distribution of the ω.

    Notes
    -----
    The estimate is unbiased. Its relative variance, (cosh|q+k|² − 1)/(m/2), is exact for iid ω and
    always below that of m positive features. At equal m sines and cosines are better if and only if
    q·k > 0.
    Cost: 2(n + l)·(m/2)·d operations, (n + l)·m numbers.

    References
    ----------
    .. [1] K. Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, Lemmas 1, 2.

    Examples
    --------
    >>> Hyperbolic(m=4).approximate([[0.0]], [[0.0]], rng=0).to_dense().round(12)
    array([[1.]])
    """

    name = "hyperbolic"
    label = "hyperbolic features"
    composed = True
    per_frequency = 2
    sized_by = Size("m", least=2, step=2, instead=("fixed",))
