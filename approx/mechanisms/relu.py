"""Linear attention with relu."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.mechanisms.feature_map import FeatureMap
from approx.method.tags import BY_ROW, SCALE


@dataclasses.dataclass(frozen=True)
class Relu(FeatureMap):
    """Linear attention with φ(x) = max(x, 0): softmax rows, biased, rank d.

    estimate_ij = φ(q_i)·φ(k_j)/Σ_c φ(q_i)·φ(k_c).

    Notes
    -----
    The rows are in attention space: they do not estimate exp(q·k), and are not a function of q·k.
    They are deterministic, and their bias has no bound. Entries are ≥ 0, and a query that shares no
    positive coordinate with any key has a row of zeros. The rows are the same at any temperature:
    φ is homogeneous, so factors > 0 of queries and of keys cancel.
    Cost: 2(n + l)·d·c operations, (n + l)·d numbers.

    References
    ----------
    .. [1] K. Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, section 2.2
       (generalised attention, f = relu, without its projection).

    Examples
    --------
    >>> Relu().approximate([[1.0], [-1.0]], [[1.0], [3.0]]).to_dense()
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """

    name = "relu"
    label = "linear attention, relu"
    tags = BY_ROW | {SCALE}

    def log_features(
        self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        return log_relu(Q), log_relu(K)

    def width(self, d: int) -> int:
        return d


def log_relu(X: Array) -> Array:
    """Return log max(x, 0), which is −inf where x ≤ 0."""
    return np.log(X, out=np.full(X.shape, -np.inf), where=X > 0)
