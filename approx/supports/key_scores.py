"""Scores that choose one set of keys for many queries: keys with large scores are kept."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.kernels.elementary import exp_rows

NEIGHBOURS = 16  # keys per group of `cur`, as in KVPress
RIDGE = 1e-2  # relative to the mean eigenvalue of KᵀK


def key_norm(K: Array) -> Array:
    """Return −|k_j|²: keys of small norm get much attention (Devoto et al. 2024)."""
    return np.asarray(-(_near_one(K) ** 2).sum(axis=1))


def key_diff(K: Array) -> Array:
    """Return −cos(k_j, a), where the anchor a is the mean of all k/|k| (KeyDiff).

    Not divided by the norm of a, which does not change the order. A key 0 has score 0.
    """
    x = _near_one(K)
    norms = np.sqrt((x**2).sum(axis=1, keepdims=True))
    unit = np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
    return np.asarray(-(unit * unit.mean(axis=0)).sum(axis=1))


def leverage(K: Array) -> Array:
    """Return the ridge leverage scores k_jᵀ(KᵀK + λI)⁻¹k_j, λ = RIDGE·|K|²_F/d."""
    x = _near_one(K)
    gram = x.T @ x
    trace = gram.trace()
    if trace == 0:
        return np.zeros(len(x))
    ridge = RIDGE * trace / len(gram) * np.eye(len(gram))
    return np.asarray((x * np.linalg.solve(gram + ridge, x.T).T).sum(axis=1))


def cur(K: Array) -> Array:
    """Return |k_j|² over its sum in j's group of NEIGHBOURS keys (CurDKV without values)."""
    squares = (_near_one(K) ** 2).sum(axis=1)
    sums = np.add.reduceat(squares, np.arange(0, len(squares), NEIGHBOURS))
    of_mine = np.repeat(sums, NEIGHBOURS)[: len(squares)]
    return np.asarray(squares / np.where(of_mine > 0, of_mine, 1.0))


def expected(K: Array, mean: Array, covariance: Array) -> Array:
    """Return k·μ + ½ kᵀΣk, the log of the mean of exp(q·k) over q ~ N(μ, Σ) (Expected Attention).

    Parameters
    ----------
    K : (l, d)
    mean, covariance : (d,), (d, d)
    """
    return np.asarray(((0.5 * K @ covariance + mean) * K).sum(axis=1))


def snapkv(logits: Array, free: Array, kernel_size: int, pooling: str) -> Array:
    """Return the attention of some queries to each free key, pooled over neighbours (SnapKV).

    Parameters
    ----------
    logits : (queries, l)
        −inf outside the mask.
    free : (l,) bool
        Keys that may be chosen. The other keys take part in the softmax, but not in the pooling.
    kernel_size : int
        An odd number; neighbours beyond the ends count as 0.
    pooling : {"average", "max"}

    Examples
    --------
    >>> x, free = np.log([[1.0, 1e-9, 3.0, 4.0]]), np.array([True, True, True, False])
    >>> snapkv(x, free, 3, "max")[free].round(3)
    array([0.125, 0.375, 0.375])
    """
    weights = np.array(logits, np.float64)
    top = weights.max(axis=1, initial=-np.inf)
    weights = np.ascontiguousarray(weights[top > -np.inf])
    exp_rows(weights, top[top > -np.inf])
    weights /= weights.sum(axis=1, keepdims=True)
    sums = np.zeros(len(free))
    sums[free] = weights.sum(axis=0)[free]
    return _pooled(sums, kernel_size, pooling)


def _pooled(x: Array, kernel_size: int, pooling: str) -> Array:
    half = kernel_size // 2
    near = np.lib.stride_tricks.sliding_window_view(np.pad(x, half), kernel_size)
    return np.asarray(near.max(axis=1) if pooling == "max" else near.mean(axis=1))


@dataclasses.dataclass
class RunningCovariance:
    """Mean and covariance of vectors that arrive in parts; both are 0 before the first part.

    Examples
    --------
    >>> fit = RunningCovariance(1)
    >>> fit.add(np.array([[1.0], [3.0]])), fit.add(np.array([[5.0]]))
    (None, None)
    >>> fit.mean, fit.covariance.round(3)
    (array([3.]), array([[2.667]]))
    """

    d: int

    def __post_init__(self) -> None:
        self.count, self.mean, self.scatter = 0, np.zeros(self.d), np.zeros((self.d, self.d))

    def add(self, x: Array) -> None:
        """Add vectors (n, d), by the update of Chan, Golub and LeVeque."""
        if not len(x):
            return
        both = self.count + len(x)
        gap = x.mean(axis=0) - self.mean
        rest = x - x.mean(axis=0)
        self.scatter += rest.T @ rest + np.outer(gap, gap) * (self.count * len(x) / both)
        self.mean = self.mean + gap * (len(x) / both)
        self.count = both

    @property
    def covariance(self) -> Array:
        """The covariance, divided by the number of vectors."""
        return np.asarray(self.scatter / max(self.count, 1))


def _near_one(K: Array) -> Array:
    # scaling by a power of two: equal norms stay equal, and no square overflows
    exponent = np.frexp(np.abs(K).max(initial=0.0))[1]
    return np.asarray(np.ldexp(K, -int(exponent)))
