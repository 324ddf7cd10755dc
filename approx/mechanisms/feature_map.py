"""Linear attention with feature maps ≥ 0: rows of φ(q)·ψ(k), normalised."""

import dataclasses
from abc import abstractmethod

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.sums import Feature, FeatureMaps, RunningSums
from approx.estimate.low import Factors
from approx.estimate.masked import Masked
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import BY_ROW
from approx.random_features.exponentials import exponentials


@dataclasses.dataclass(frozen=True)
class FeatureMap(Method):
    """estimate_ij = φ(q_i)·ψ(k_j)/Σ_c φ(q_i)·ψ(k_c), with φ, ψ ≥ 0.

    A row of zeros stays a row of zeros. Under a mask the sum is over the seen keys; cumulative sums
    compute it in time linear in n + l.
    """

    space = "attention"

    @abstractmethod
    def log_features(
        self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return log φ(Q) (n, r) and log ψ(K) (l, r), float64; −inf where a feature is 0."""

    @abstractmethod
    def width(self, d: int) -> int | None:
        """Return r; None for a template."""

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        left, right = self.log_features(q.astype(np.float64), k.astype(np.float64), mask, rng)
        if mask.is_full:
            return normalised(left, right, q.dtype)
        return over_seen(exponentials(left, right, np.zeros(1), mask, q.dtype), mask, q.dtype)

    def _price(self, shape: Shape) -> Price | None:
        r = self.width(shape.d)
        return None if r is None else low_rank(r, shape)

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        width = self.width(d)
        if window or width is None or not self.tags >= BY_ROW:
            return None
        one = Mask.causal(1, 1)

        def query(q: Array) -> Feature:
            return 1.0, self.log_features(q[None], q[None], one, rng)[0][0]

        def key(k: Array) -> Feature:
            return 1.0, self.log_features(k[None], k[None], one, rng)[1][0]

        return RunningSums(d, c, FeatureMaps(query, key, width))

    def _workspace(self, shape: Shape) -> int:
        return 16 * (self.width(shape.d) or 0) * (shape.n + shape.l)


def normalised(log_left: Array, log_right: Array, dtype: np.dtype) -> Parts:
    """Return rows ∝ Σ_r exp(log_left_ir + log_right_jr) that sum to 1, in attention space.

    Every column of the right factor and every row of the left one is divided by its largest entry,
    so each row sum is ≥ 1 when the row is divided by it: nothing overflows or vanishes.
    """
    top = log_right.max(axis=0)
    top[top == -np.inf] = 0.0
    right = np.exp(log_right - top)
    log_left = log_left + top
    peak = log_left.max(axis=1, keepdims=True)
    peak[peak == -np.inf] = 0.0
    left = np.exp(log_left - peak)
    total = left @ right.sum(axis=0)
    left /= np.where(total > 0, total, 1.0)[:, None]
    scale = np.zeros(len(left), dtype)
    return Parts(Factors(left.astype(dtype), right.astype(dtype), scale), space="attention")


def over_seen(factors: Factors, mask: Mask, dtype: np.dtype) -> Parts:
    """Return the factors, each row divided by its sum over the keys that its query sees.

    A row whose sum is ≤ 0 becomes a row of zeros.

    Examples
    --------
    >>> one = np.ones((2, 1))
    >>> ones = Factors(one, one, np.zeros(2))
    >>> from approx import Approximation
    >>> causal = Mask.causal(2, 2)
    >>> rows = over_seen(ones, causal, np.dtype(float))
    >>> Approximation.from_parts(rows, mask=causal).to_dense()
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    sums, log = Masked(factors, mask).matmat(np.ones((mask.l, 1)))
    total = sums[:, 0]
    positive = total > 0
    rows = dataclasses.replace(
        factors,
        left=np.where(positive[:, None], factors.left, 0.0),
        row_logs=factors.row_logs - log - np.log(np.where(positive, total, 1.0)),
    )
    return Parts(rows.astype(dtype), space="attention")
