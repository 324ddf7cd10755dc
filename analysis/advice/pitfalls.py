"""Mistakes with random features, supports and samplers, reproduced so that they can be measured.

Most are in public code. Scatterbrain is biased if its support depends on its features (`OneStream`,
`LargestEstimates`); the one in `approx` is unbiased.

Nothing here is a method of the registry: `approx` has the correct forms.
"""

import dataclasses
import math

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from approx import Approximation, Mask, Moments, Parts, checks
from approx.checks import Array
from approx.combinations.scatterbrain import Scatterbrain
from approx.estimate.corrections import Support
from approx.estimate.distances import half_square
from approx.kernels import pattern_products
from approx.method import Rng, generator
from approx.method.evaluation import checked_inputs, evaluated
from approx.projections import Projection
from approx.projections.summand import Entries
from approx.random_features.positive import Positive


def with_eps(
    method: Positive, Q: ArrayLike, K: ArrayLike, *, eps: float, rng: Rng = None
) -> Approximation:
    """Return the estimate of positive features with eps added after subtracting the largest ω·x.

    φ(q)_r = m^{−1/2} (exp(ω_r·q − |q|²/2 − max_s ω_s·q) + eps),
    φ(k)_r = m^{−1/2} (exp(ω_r·k − |k|²/2 − max_{s,j} ω_s·k_j) + eps).

    Parameters
    ----------
    method : Positive
        m and the projection; the same rng gives the frequencies of ``method.approximate``.
    Q, K : (n, d), (l, d)
    eps : float
        ≥ 0. Public code uses 1e-4 or 1e-6; 0 gives ``method.approximate``.
    rng : int, SeedSequence or Generator

    Notes
    -----
    The estimate is biased. The maximum is taken over ω·x alone, so that no exponential is above
    e^{−|x|²/2}. If |x|²/2 > ln(1/eps), every feature is about eps, and the rows become uniform.
    Here the shifts are multiplied back. Public code omits this step, which row normalisation
    cancels.

    References
    ----------
    .. [1] google-research, performer/fast_attention; lucidrains, performer-pytorch.

    Examples
    --------
    >>> x = np.array([[0.5, 0.0], [0.0, 0.5]])
    >>> faulty = with_eps(Positive(m=4), x, x, eps=0.0, rng=0).to_dense()
    >>> bool(np.allclose(faulty, Positive(m=4).approximate(x, x, rng=0).to_dense()))
    True
    """
    checks.instance("method", method, Positive, "a positive(...)")
    size = 0.0 if eps == 0 else checks.positive("eps", eps)
    q, k, _ = checked_inputs(method, Q, K)
    omega, half = method.frequencies(q, k, generator(rng))
    on_q, on_k, weight = q @ omega.T, k @ omega.T, np.exp(half)
    top_q, top_k = on_q.max(axis=1, keepdims=True), on_k.max()
    left = (np.exp(on_q - half_square(q)[:, None] - top_q) + size) * weight
    right = (np.exp(on_k - half_square(k)[:, None] - top_k) + size) * weight
    return Approximation.from_factors(left, right, top_q[:, 0] + top_k)


def concentration(approximation: Approximation) -> float:
    """Return 1 − (mean entropy of the normalised rows)/ln l: 0 for uniform rows, 1 for one key.

    Entries must be ≥ 0. A row of zeros counts as uniform. For a single key the result is 1. An
    estimate with a mask is refused: its rows have different numbers of visible keys.

    Examples
    --------
    >>> concentration(Approximation.from_factors([[1.0]], [[1.0], [1.0]]))
    0.0
    """
    checks.instance("approximation", approximation, Approximation, "an Approximation")
    if not approximation.mask.is_full:
        raise ValueError(
            f"concentration is over all keys, and the estimate has the mask {approximation.mask}: "
            "give one without a mask"
        )
    rows = approximation.block(slice(None), shift=approximation.row_log())
    total = rows.sum(axis=1, keepdims=True)
    l = rows.shape[1]
    if l == 1:  # as in `describe.row_entropy`, whose entropy is then 0
        return 1.0
    p = np.divide(rows, total, out=np.full_like(rows, 1.0 / l), where=total > 0)
    inside = np.where(p > 0, p, 1.0)
    entropy = -(inside * np.log(inside)).sum(axis=1).mean()
    return max(0.0, float(1.0 - entropy / math.log(l)))  # rounding may give less than 0


@dataclasses.dataclass(frozen=True)
class RawQR(Projection):
    """Orthogonal frequencies from LAPACK's Q of G = QR, without Mezzadri's diag(sign R).

    Notes
    -----
    Q is not Haar distributed: LAPACK chooses signs that make the first entry of the first column
    negative. Positive features are then biased, without a closed form. The features cosh and cos
    are even in ω and stay unbiased. ``approx.projections.Orthogonal`` corrects the signs.

    References
    ----------
    .. [1] F. Mezzadri, "How to generate random matrices from the classical compact groups",
       Notices AMS 54, 2007.
    """

    def draw(self, count: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
        g = rng.standard_normal((-(-count // d), d, d))
        directions = np.linalg.qr(g)[0].swapaxes(1, 2).reshape(-1, d)[:count]
        lengths = np.sqrt(rng.chisquare(d, count))
        return directions * lengths[:, None], np.full(count, 1.0 / count)

    def bias(self, rho: Entries, count: int) -> Array | None:
        return None


@dataclasses.dataclass(frozen=True)
class OneStream(Scatterbrain):
    """Hashes and frequencies from one random stream, whose first directions are the same vectors.

    If a hyperplane w separates a query from a key, w·(q + k) is near 0 and its feature is small.
    So the estimate off the support is too small.
    """

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        seed = rng.integers(2**63)
        support = self.sparse.support(q, k, mask, np.random.default_rng(seed))
        low = evaluated(self.low_rank, q, k, mask, np.random.default_rng(seed)).low
        return Parts(low, support)

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        return None


@dataclasses.dataclass(frozen=True)
class LargestEstimates(Scatterbrain):
    """Scatterbrain that makes the ``sparse.k`` largest estimates of each row exact.

    These tend to be overestimates. So the remaining estimates at large q·k are too small.
    """

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        low = evaluated(self.low_rank, q, k, mask, rng).low
        seen = Approximation(low, mask=mask)
        estimates = seen.block(slice(None), shift=seen.row_log())
        mask.hide(estimates, fill=-np.inf)
        indices = _largest(estimates, self.sparse.k)  # type: ignore[attr-defined]
        n, count = indices.shape
        pattern = scipy.sparse.csr_array(
            (np.zeros(indices.size), indices.ravel(), np.arange(0, n * count + 1, count)),
            shape=(n, len(k)),
        )
        pattern.data = pattern_products.product(q, k, pattern)
        return Parts(low, Support(pattern))

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        return None


def _largest(rows: Array, count: int) -> Array:
    """Return the columns of the largest entries of each row, sorted, (n, count)."""
    return np.sort(np.argpartition(-rows, count - 1, axis=1)[:, :count], axis=1)
