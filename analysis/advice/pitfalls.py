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
    q, k = method.checked(Q, K)
    omega, half = method.frequencies(q, k, generator(rng))
    on_q, on_k, weight = q @ omega.T, k @ omega.T, np.exp(half)
    top_q, top_k = on_q.max(axis=1, keepdims=True), on_k.max()
    left = (np.exp(on_q - half_square(q)[:, None] - top_q) + size) * weight
    right = (np.exp(on_k - half_square(k)[:, None] - top_k) + size) * weight
    return Approximation.from_factors(left, right, top_q[:, 0] + top_k)


def assigned(keys: int, draws: int, *, rng: Rng) -> Array:
    """Return weights of keys drawn with replacement, where repeated draws are assigned, not added.

    A key that is drawn at least once has the weight keys/draws; every other key has 0.

    Notes
    -----
    If repeats are added, the mean weight is 1 and sums are unbiased. Here it is `assigned_mean`.

    References
    ----------
    .. [1] skylight-org, sparse-attention-hub, f5abf91: ``torch.randint`` in
       mask_attention_utils.py, line 156, and the assignment in mask.py, line 606.

    Examples
    --------
    >>> assigned(1, 4, rng=0)
    array([0.25])
    """
    keys = checks.integer("keys", keys, least=1)
    draws = checks.integer("draws", draws, least=1)
    weights = np.zeros(keys)
    weights[generator(rng).integers(keys, size=draws)] = keys / draws
    return weights


def assigned_mean(keys: int, draws: int) -> float:
    """Return the mean weight of `assigned`, (1 − (1 − 1/keys)^draws)·keys/draws.

    Examples
    --------
    >>> round(assigned_mean(500, 250), 4)
    0.7875
    """
    keys = checks.integer("keys", keys, least=1)
    draws = checks.integer("draws", draws, least=1)
    if keys == 1:
        return 1.0 / draws
    return -math.expm1(draws * math.log1p(-1 / keys)) * keys / draws


def gray_entries(bits: ArrayLike) -> Array:
    """Return the sort key of words (n, h) in public code of HyperAttention and KDEformer, (n,).

    It is w ⊕ ⌊w/2⌋, the w-th entry of the Gray code, where bit 0 of a word w is the least. The
    place of w in the Gray code is the inverse map, `approx.sparse.sorted_lsh.gray_places`.

    References
    ----------
    .. [1] insuhan, hyper-attn, 68b91e9: angular_lsh.py, line 27; majid-daliri, kdeformer, 427df2d:
       KDEformer.py, line 76.

    Examples
    --------
    >>> gray_entries([[0, 0, 0], [0, 1, 0], [0, 0, 1]])
    array([0, 3, 6])
    """
    words = checks.array("bits", bits, ndim=2).astype(np.int64)
    words = words @ (1 << np.arange(words.shape[1]))
    return np.asarray(words ^ (words >> 1))


def kdeformer_shares(V: ArrayLike) -> Array:
    """Return the column probabilities of public code of KDEformer, (l,).

    They are proportional to |v_j|/|V|² + 1/l, where V has an additional column of ones and |V| is
    its largest singular value. They depend on neither queries nor keys.

    References
    ----------
    .. [1] majid-daliri, kdeformer, 427df2d: KDEformer.py, lines 94 to 100.

    Examples
    --------
    >>> kdeformer_shares([[0.0], [0.0]])
    array([0.5, 0.5])
    """
    values = checks.array("V", V, ndim=2).astype(np.float64)
    values = np.column_stack([values, np.ones(len(values))])
    sizes = np.linalg.norm(values, axis=1) / np.linalg.norm(values, 2) ** 2 + 1 / len(values)
    return np.asarray(sizes / sizes.sum())


def thinformer_places(length: int) -> Array:
    """Return the indices of the keys that public code of Thinformer chooses from.

    These are every ⌊length/n⌋-th of the first n⌊length/n⌋ keys, where n is the largest power of
    four ≤ length. The other keys are never read.

    References
    ----------
    .. [1] microsoft, thinformer, f5b1f26: thinformer.py, lines 251 to 254.

    Examples
    --------
    >>> thinformer_places(11)
    array([0, 2, 4, 6])
    """
    length = checks.integer("length", length, least=1)
    n = 4 ** ((length.bit_length() - 1) // 2)
    return np.asarray(np.arange(n) * (length // n))


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
        low = self.low_rank.evaluated(q, k, mask, np.random.default_rng(seed)).low
        return Parts(low, support)

    def entry_moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        return None


@dataclasses.dataclass(frozen=True)
class LargestEstimates(Scatterbrain):
    """Scatterbrain that makes the ``sparse.k`` largest estimates of each row exact.

    These tend to be overestimates. So the remaining estimates at large q·k are too small.
    """

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        low = self.low_rank.evaluated(q, k, mask, rng).low
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

    def entry_moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        return None


def _largest(rows: Array, count: int) -> Array:
    """Return the columns of the largest entries of each row, sorted, (n, count)."""
    return np.sort(np.argpartition(-rows, count - 1, axis=1)[:, :count], axis=1)
