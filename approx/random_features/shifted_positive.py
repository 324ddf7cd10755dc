"""Positive features drawn around the mean of q + k."""

import dataclasses

from approx.checks import Array
from approx.method import Label
from approx.method.fields import ruled
from approx.method.tags import SHIFT
from approx.random_features.features import Frame
from approx.random_features.generalized_exponential import GeneralizedExponential, checked_tilt


@dataclasses.dataclass(frozen=True)
class ShiftedPositive(GeneralizedExponential):
    """Positive features with a shifted proposal, unbiased for exp(q·k), positive.

    φ(x)_r = m^{−1/2} exp(w_r·x − |x|²/2 − w_r·μ/2 + |μ|²/4),  w_r ~ N(μ, I_d), μ = q̄ + k̄.

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1; None is a template.
    projection : str or Projection
        The joint distribution of the w − μ.
    a : float, optional
        A < 1/8 of `generalized_exponential` around μ; None takes A* of the shifted inputs.

    Notes
    -----
    The estimate is unbiased for every μ. Its relative variance, exact for iid draws, is
    (e^{|q+k−μ|²} − 1)/m, which is 0 at q + k = μ. This μ minimises the mean of |q+k−μ|², in
    O((n + l)·d). With a = None the shift is combined with FAVOR++, and the variance is
    (C_ρ e^{ρ|q+k−μ|²} − 1)/m.
    The estimate is FAVOR+ of q − μ/2 and k − μ/2, times e^{μ·q/2 + μ·k/2 − |μ|²/4}.
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers.

    References
    ----------
    .. [1] L. Zheng, C. Wang, L. Kong, "Linear Complexity Randomized Self-attention Mechanism",
       ICML 2022: the optimal proposal N(q + k, I) of one pair.

    Examples
    --------
    With one query and one key, μ = q + k, so there is no variance.

    >>> ShiftedPositive(m=1).approximate([[1.0]], [[1.0]], rng=0).to_dense().round(12)
    array([[2.71828183]])
    """

    name = "shifted_positive"
    label = Label("shifted positive features", {"shifted FAVOR++ features": {"a": None}})
    composed = True
    fits_all = True  # μ is a mean of all queries and keys

    a: float | None = ruled(0.0, checked_tilt)

    @property
    def tags(self) -> frozenset[str]:
        return super().tags | {SHIFT}

    def frame(self, Q: Array, K: Array) -> Frame:
        """Return the terms of q·k = (q − μ/2)·(k − μ/2) + μ·q/2 + μ·k/2 − |μ|²/4."""
        mu = Q.mean(axis=0) + K.mean(axis=0)
        square = mu @ mu / 8
        return Frame(Q - mu / 2, K - mu / 2, Q @ mu / 2 - square, K @ mu / 2 - square)
