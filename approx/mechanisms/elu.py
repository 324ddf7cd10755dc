"""Linear attention with elu(x) + 1."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate.masks import Mask
from approx.mechanisms.feature_map import FeatureMap
from approx.method.tags import BY_ROW


@dataclasses.dataclass(frozen=True)
class Elu(FeatureMap):
    """Linear attention with φ(x) = elu(x) + 1: softmax rows, biased, rank d.

    estimate_ij = φ(q_i)·φ(k_j)/Σ_c φ(q_i)·φ(k_c),  φ(x) = x + 1 for x > 0, e^x else.

    Notes
    -----
    The rows are in attention space: they do not estimate exp(q·k), and are not a function of q·k.
    φ(q)·φ(k) is a kernel of its own, without a parameter that would bring it closer to softmax.
    The rows are deterministic, and their bias has no bound; every entry is > 0. Multiplying q and k
    by two numbers whose product is 1 changes these rows but not softmax.
    Cost: 2(n + l)·d·c operations, (n + l)·d numbers.

    References
    ----------
    .. [1] A. Katharopoulos, A. Vyas, N. Pappas, F. Fleuret, "Transformers are RNNs: fast
       autoregressive transformers with linear attention", ICML 2020, Eq. (7).

    Examples
    --------
    >>> Elu().approximate([[0.0]], [[0.0], [2.0]]).to_dense()
    array([[0.25, 0.75]])
    """

    name = "elu"
    label = "linear attention, elu + 1"
    tags = BY_ROW

    def log_features(
        self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        return log_elu(Q), log_elu(K)

    def width(self, d: int) -> int:
        return d


def log_elu(X: Array) -> Array:
    """Return log(elu(x) + 1), which is log(1 + x) for x > 0, else x."""
    return np.where(X > 0, np.log1p(np.maximum(X, 0.0)), X)
