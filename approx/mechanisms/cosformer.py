"""cosFormer: relu features whose weight falls with distance."""

import dataclasses
import math

import numpy as np

from approx import checks
from approx.checks import Array
from approx.estimate.masks import Mask
from approx.mechanisms.feature_map import FeatureMap
from approx.mechanisms.relu import log_relu
from approx.method.fields import integer
from approx.method.tags import AUTOREGRESSIVE, POSITIONAL, SCALE, collect


@dataclasses.dataclass(frozen=True)
class CosFormer(FeatureMap):
    """cosFormer: relu linear attention weighted by a cosine of distance; biased, rank 2d.

    estimate_ij ∝ relu(q_i)·relu(k_j) cos(π(i − j)/2M),
    φ(x_i) = relu(x_i) ⊗ (cos(πi/2M), sin(πi/2M)),  positions i = 0, …, n − 1 and j = 0, …, l − 1;
    under a mask that looks back, i is the position of the last key that the query sees.

    Parameters
    ----------
    M : int, optional
        Distance at which the weight has fallen to 0, ≥ max(n, l); by default max(n, l), so that
        rows change as a text grows.

    Notes
    -----
    The rows are in attention space: they do not estimate exp(q·k) (the error is pure bias, which no
    parameter reduces). They depend on the positions of queries and keys; position 0 is the first
    row of K, and without a mask the first row of Q. Entries are ≥ 0, because |i − j| < M. A query
    that shares no positive coordinate with any key has a row of zeros.
    Cost: 4(n + l)·d·c operations, 2(n + l)·d numbers.

    References
    ----------
    .. [1] Z. Qin et al., "cosFormer: rethinking softmax in attention", ICLR 2022, section 3.

    Examples
    --------
    With M = 2, the weight at distance 1 is cos(π/4) = 1/√2:

    >>> CosFormer().approximate([[1.0]], [[1.0], [math.sqrt(2)]]).to_dense().round(12)
    array([[0.5, 0.5]])
    """

    name = "cosformer"
    label = "cosFormer"

    M: int | None = integer()

    @property
    def tags(self) -> frozenset[str]:
        # without M it is the number of keys, later ones included; without a mask the position of a
        # query depends on the other queries
        return collect(POSITIONAL, SCALE, self.M is not None and AUTOREGRESSIVE)

    def log_features(
        self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        longest = max(len(Q), len(K))
        M = checks.integer("M", longest if self.M is None else self.M, least=longest)
        places = mask.positions if mask.looks_back else np.arange(len(Q))
        return _log_waves(Q, places, M), _log_waves(K, np.arange(len(K)), M)

    def width(self, d: int) -> int:
        return 2 * d


def _log_waves(X: Array, places: Array, M: int) -> Array:
    angle = (math.pi / (2 * M)) * places[:, None]
    with np.errstate(divide="ignore"):  # sin 0
        waves = np.log(np.cos(angle)), np.log(np.sin(angle))
    return np.concatenate([log_relu(X) + wave for wave in waves], axis=1)
