"""Regularised softmax features, whose frequencies all have length √d."""

import dataclasses

from approx.method import Label
from approx.projections import Projection, Regularized, named
from approx.random_features.positive import Positive


@dataclasses.dataclass(frozen=True)
class RegularizedPositive(Positive):
    """Regularised softmax features (SMREG), biased for exp(q·k), positive.

    φ(x)_r = m^{−1/2} exp(ω_r·x − |x|²/2),  |ω_r| = √d, directions uniform.

    Parameters
    ----------
    m : int, optional
        Features, ≥ 1; None is a template.
    projection : str or Projection
        ``regularized``, with orthogonal directions in blocks of d, or ``regularized_iid``.

    Notes
    -----
    The estimate is biased: E estimate/exp(q·k) = e^{−x/2} ₀F₁(; d/2; d x/4) ≤ 1, x = |q+k|². At a
    fixed d this tends to 0 as x grows; the published bound 1 − 2/d^{1/3} is asymptotic and false
    for large x. The second moment over exp(2 q·k) is e^{−x} ₀F₁(; d/2; d x) for one frequency and
    e^{−x} ₀F₁(; d/2; d x/2) for two orthogonal ones, so bias and variance are exact.
    Every other family has this distribution with ``projection='regularized'``.
    Cost: 2(n + l)·m·d operations, (n + l)·m numbers.

    References
    ----------
    .. [1] K. Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, Theorem 1.

    Examples
    --------
    >>> RegularizedPositive(m=4).approximate([[0.0]], [[0.0]], rng=0).to_dense()
    array([[1.]])
    """

    name = "regularized"
    label = Label("regularized positive features")
    composed = True

    projection: str | Projection = "regularized"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(named(self.projection), Regularized):
            raise ValueError(
                f"projection must be regularized or regularized_iid, got {self.projection!r}"
            )
