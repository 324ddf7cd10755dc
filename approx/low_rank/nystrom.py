"""Nyström's method: the kernel matrix of all points from the kernel with a few landmarks."""

import dataclasses
import hashlib
import warnings
from typing import Any

import numpy as np
import scipy.linalg

from approx import checks
from approx.checks import Array
from approx.estimate.distances import half_square, squared_distances
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.low_rank.pivots import cholesky
from approx.method import MOST_KEYS, Label, Method, Size
from approx.method.fields import integer, ruled
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import BY_ROW, RANDOM, ROTATION

LANDMARKS = ("uniform", "kmeans", "leverage")
LLOYD = 10  # iterations of k-means
EXACT = 1024  # up to this number of points, leverage scores are exact
SAMPLE = 8  # times k: the number of points in each sample of the recursion


@dataclasses.dataclass(frozen=True, eq=False)
class Landmarks:
    """Landmarks that are given.

    Parameters
    ----------
    points : (count, d)
        One landmark per row, count ≥ 1.
    """

    points: Any

    def __post_init__(self) -> None:
        points = checks.array("landmarks", self.points, ndim=2).astype(np.float64)
        if not points.size:
            raise ValueError(f"landmarks must hold a point, got shape {points.shape}")
        object.__setattr__(self, "points", points)

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.points.tobytes()).hexdigest()[:8]
        return f"Landmarks({len(self.points)} of width {self.points.shape[1]}, {digest})"


def _checked(name: str, value: Any) -> str | Landmarks:
    if isinstance(value, str):
        return checks.one_of(name, value, LANDMARKS)
    return value if isinstance(value, Landmarks) else Landmarks(value)


@dataclasses.dataclass(frozen=True)
class Nystrom(Method):
    """Nyström approximation through landmarks among queries and keys.

    estimate = exp(Q Zᵀ) exp(Z Zᵀ)⁺ exp(Z Kᵀ), for landmarks Z (rank, d).

    Parameters
    ----------
    rank : int, optional
        Number of landmarks, at most all points; None: a budget fills it. It is left out if
        landmarks are given.
    landmarks : {"uniform", "kmeans", "leverage"} or array_like (count, d)
        ``uniform`` draws distinct rows of Q and K. ``kmeans`` takes centroids of the rows of Q and
        K, after ten of Lloyd's iterations from k-means++. ``leverage`` draws distinct rows in turn
        with probabilities ∝ their ridge leverage scores (G (G + γI)⁻¹)_ii, which finds rare points.
        An array has points of your own, in any number, scaled as Q and K are.
    block : int, optional
        Keys per block, if landmarks must come from the past. Key 0 is the first landmark. Each
        block after the first gives one landmark, chosen among its keys by the same rule, until
        there are ``rank``. A query uses key 0 and the landmarks of blocks that lie in its past.

    Notes
    -----
    exp(q·k) is a positive definite kernel on all points, so Q and K share their landmarks. With Z
    from both, the middle matrix is positive semi-definite, and the estimate is exact at each pair
    with a landmark. With landmarks from queries in one factor and from keys in the other, the
    middle matrix would be a general one, without such a bound on its pseudo-inverse.

    The computation uses G(x, y) = exp(−|x − y|²/2), with exp(x·y) = e^{|x|²/2} G(x, y) e^{|y|²/2}:
    estimate = diag(e^{|q|²/2}) G(Q, Z) G(Z, Z)⁺ G(Z, K) diag(e^{|k|²/2}). The scales go to the row
    scale and the right factor, so that logits of ±10⁴ do not overflow. Eigenvalues of G(Z, Z) below
    rank·eps·λ₁ are cut off. So the inverted matrix has a condition number of at most 1/(rank·eps),
    and the rank of the estimate is the number of the other eigenvalues.

    The estimate is biased for exp(q·k), and its entries may be negative. Far from the landmarks it
    is 0, and |estimate_ij| ≤ e^{(|q_i|² + |k_j|²)/2} everywhere. It is exact in the columns of keys
    and the rows of queries that are landmarks, up to the cut, √(rank·eps·λ₁)·e^{(|q|² + |k|²)/2}.
    So it is exact if Z contains all keys or all queries. Repeated points count once: if there are
    fewer distinct points than rank, all of them are landmarks.

    γ = Σ_{i>k} λ_i(G)/k with k = rank/2: the scores then sum to at most rank. They are exact up to
    1024 points. Above, they come from the recursion of [2]_ (algorithm 3), with weighted samples of
    about 4·rank points of half of the points, of half of these, and so on. k and the samples are
    smaller than in [2]_ by a factor log rank, so its theorem does not hold here.

    Given landmarks draw nothing and depend on no token, so a language model can run the method.
    Landmarks from all tokens contain the future, so no model can run it token by token; a mask
    hides entries but changes no landmark. With ``block`` a model can run it, too. Then
    z_1, z_2, … have the order of their blocks, and G(Z, Z) = C Cᵀ with C lower triangular. So the
    first r features of φ(x) = C⁻¹ G(Z, x) follow from the first r landmarks. If query i uses r_i,

        estimate_ij = e^{(|q|² + |k|²)/2} Σ_{p ≤ r_i} φ_p(q_i) φ_p(k_j)

    is Nyström's estimate with these r_i landmarks. The whole estimate is one pair of factors, in
    which query i uses r_i columns. A landmark whose distance² from the span of the earlier ones is
    below 1e-8 has no feature. Keys farther than 38 from every landmark have estimate 0. When a
    landmark is added, a running sum over keys must read the earlier keys once more. Under a
    window, landmarks may be older than the window.

    Cost: (n + l)·rank·(d + rank) operations and rank³. K-means takes eleven times (n + l)·rank·d;
    exact leverage takes (n + l)³ for at most 1024 points, and the recursion (n + l)·(4·rank)² and
    (4·rank)³.

    References
    ----------
    .. [1] C. Williams, M. Seeger, "Using the Nyström method to speed up kernel machines", NIPS
       2000, Eq. (8)–(11).
    .. [2] C. Musco, C. Musco, "Recursive sampling for the Nyström method", NIPS 2017,
       definition 1 and algorithm 3.
    .. [3] K. Zhang, I. Tsang, J. Kwok, "Improved Nyström low-rank approximation and error
       analysis", ICML 2008, which takes landmarks by k-means.

    Examples
    --------
    All points are landmarks:

    >>> Nystrom(rank=2).approximate([[0.0], [0.5]], [[0.5]], rng=0).to_dense().round(6)
    array([[1.      ],
           [1.284025]])

    The queries and keys themselves, given:

    >>> Nystrom(landmarks=[[0.0], [0.5]]).approximate([[0.0], [0.5]], [[0.5]]).to_dense().round(6)
    array([[1.      ],
           [1.284025]])
    """

    name = "nystrom"
    label = Label("Nyström", {"Nyström, past landmarks": {"block": ...}})
    examples = (
        "nystrom()",
        "nystrom(block=2)",
    )
    sized_by = Size("rank", counts="rank", most=lambda n, l: MOST_KEYS, instead=("given",))

    rank: int | None = None
    landmarks: Any = ruled("uniform", _checked)
    block: int | None = integer()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.given and (self.rank, self.block) != (None, None):
            raise ValueError("rank and block follow from given landmarks: leave them out")

    @property
    def given(self) -> bool:
        """Whether landmarks are given."""
        return isinstance(self.landmarks, Landmarks)

    @property
    def tags(self) -> frozenset[str]:
        if self.given:
            return BY_ROW
        return frozenset({RANDOM, ROTATION}) | (BY_ROW if self.block is not None else frozenset())

    def _count(self, points: int) -> int:
        """Return the number of landmarks for a number of queries and keys."""
        return len(self.landmarks.points) if self.given else min(self.rank or 0, points)

    def _chosen(self, a: Array, b: Array, rng: np.random.Generator) -> Array:
        """Return distinct landmarks for queries a and keys b."""
        if not self.given:
            points = _distinct(np.vstack([a, b]))
            return choose(points, min(self.rank or 0, len(points)), self.landmarks, rng)
        if (shape := self.landmarks.points.shape)[1] != a.shape[1]:
            raise ValueError(f"landmarks must have d={a.shape[1]} columns, got shape {shape}")
        return _distinct(self.landmarks.points)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        a, b = (x.astype(np.float64) for x in (q, k))
        if self.block is not None:
            return Parts(self._causal(a, b, self.block, mask, rng, q.dtype))
        Z = self._chosen(a, b, rng)
        w, U = scipy.linalg.eigh(gaussian(Z, Z), check_finite=False)
        kept = w > len(Z) * np.finfo(np.float64).eps * w[-1]
        root = U[:, kept] / np.sqrt(w[kept])
        left, left_log = _features(a, Z, root)
        right, right_log = _features(b, Z, root)
        return Parts(factors(left, right, left_log, right_log, mask, q.dtype))

    def _causal(
        self,
        a: Array,
        b: Array,
        block: int,
        mask: Mask,
        rng: np.random.Generator,
        dtype: np.dtype[Any],
    ) -> Factors:
        """Return the factors through landmarks of earlier blocks, for queries a and keys b."""
        chosen = [
            choose(_distinct(b[p * block : (p + 1) * block]), 1, self.landmarks, rng)
            for p in range(1, min(self.rank or 0, len(b) // block))
        ]
        Z = np.vstack([b[:1], *chosen])
        in_turn = [lambda _, p=p: p for p in range(len(Z))]
        kept, C = cholesky(gaussian(Z, Z).__getitem__, len(Z), in_turn)
        Z, C = Z[kept], C[kept]
        known = (kept == 0) | (kept < mask.stop[:, None] // block)
        left, right, nearest = past_factors(-squared_distances(a, Z) / 2, gaussian(b, Z), C, known)
        return factors(left, right, half_square(a) + nearest, half_square(b), mask, dtype)

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of rank columns, of the kernel with landmarks, and of its inverse.

        The features of the keys are multiplied by the inverse. With ``block`` each query has its
        own part of the inverse, so the features of queries are multiplied by a factor of it, too.
        """
        if self.is_template:
            return None
        n, l, d, _ = shape
        rank = self._count(n + l)
        both = float(rank * (d + rank))
        if self.given:
            chosen = 0.0
        elif self.block is None:
            chosen = work_of_choice(n + l, rank, self.landmarks, d)
        else:
            count = min(rank, l // self.block) - 1
            chosen = max(count, 0) * work_of_choice(self.block, 1, self.landmarks, d)
        once = rank**2 * d + rank**3 + chosen
        per_query = both if self.block is not None else rank * d
        return low_rank(rank, shape, mapped=per_query, keyed=both, once=once)

    def _workspace(self, shape: Shape) -> int:
        points = shape.n + shape.l
        rank = self._count(points)
        leverage = self.landmarks == "leverage"
        wide = min(points, max(EXACT, SAMPLE * rank)) if leverage else rank
        return 8 * (6 * points * rank + 4 * wide**2)


def factors(
    left: Array,
    right: Array,
    left_log: Array,
    right_log: Array,
    mask: Mask,
    dtype: np.dtype[Any],
) -> Factors:
    """Return the factors in a dtype; under a mask, scales per key are computed in this dtype."""
    arrays = left, right, left_log, right_log
    if not mask.is_full:
        left, right, left_log, right_log = (x.astype(dtype) for x in arrays)
    return Factors.scaled(left, right, left_log, right_log, mask).astype(dtype)


def past_factors(exponent: Array, g: Array, C: Array, known: Array) -> tuple[Array, Array, Array]:
    """Return factors of exp(exponent) (C Cᵀ)⁻¹ gᵀ, with the landmarks that each row knows.

    They are left (n, r), at the scale e^log of each row, right (l, r) and log (n,), for exponent
    and known (n, r), g (l, r) and a lower triangular C (r, r).
    """
    exponent = np.where(known, exponent, -np.inf)
    top = exponent.max(axis=1)
    left = _solved(C, np.exp(exponent - top[:, None])) * known
    return left, _solved(C, g), top


def _solved(C: Array, g: Array) -> Array:
    """Return the rows of g times C⁻ᵀ."""
    return np.asarray(scipy.linalg.solve_triangular(C, g.T, lower=True, check_finite=False).T)


def gaussian(X: Array, Y: Array) -> Array:
    """Return exp(−|x − y|²/2), (n, l)."""
    return np.asarray(np.exp(-squared_distances(X, Y) / 2))


def _features(X: Array, Z: Array, root: Array) -> tuple[Array, Array]:
    """Return (φ, log) with e^log φ = e^{|x|²/2} G(X, Z) root and max |φ| = 1 in each row."""
    exponent = squared_distances(X, Z)
    exponent *= -0.5
    nearest = exponent.max(axis=1)
    phi = np.exp(exponent - nearest[:, None]) @ root
    size = np.abs(phi).max(axis=1)
    size[size == 0] = 1.0
    return phi / size[:, None], half_square(X) + nearest + np.log(size)


def _distinct(X: Array) -> Array:
    """Return the distinct rows in order; quick if the first column has no equal entries."""
    ordered = X[np.argsort(X[:, 0], kind="stable")]
    different = bool((ordered[1:, 0] > ordered[:-1, 0]).all())
    return ordered if different else np.unique(X, axis=0)


def choose(points: Array, rank: int, landmarks: str, rng: np.random.Generator) -> Array:
    """Return landmarks (rank, d) for distinct points (count, d), by a rule of `Nystrom`."""
    if rank == len(points):
        return points
    if landmarks == "kmeans":
        return _centroids(points, rank, rng)
    return np.asarray(points[np.sort(draw_landmarks(points, rank, landmarks, rng))])


def work_of_choice(count: int, rank: int, landmarks: str, d: int) -> float:
    """Return the multiply-adds (leading terms) to choose landmarks among ``count`` points."""
    if landmarks == "uniform" or rank >= count:
        return 0.0
    if landmarks == "kmeans":
        return float((LLOYD + 1) * count * rank * d)
    sample = count if count <= EXACT else min(count, SAMPLE * max(1, rank // 2))
    return float(count * sample * (sample + d) if sample < count else count**3 + count**2 * (d + 1))


def draw_landmarks(points: Array, rank: int, landmarks: str, rng: np.random.Generator) -> Array:
    """Return indices of distinct points, (rank,), drawn in turn, uniformly or by leverage."""
    chances = None
    if landmarks == "leverage":
        scores = leverage_scores(points, max(1, rank // 2), rng)
        # All chances are positive, so that rank points can be drawn even if scores round to 0.
        chances = np.maximum(scores, 1e-12 * scores.max())
        chances /= chances.sum()
    return rng.choice(len(points), rank, replace=False, p=chances)


def _centroids(points: Array, rank: int, rng: np.random.Generator) -> Array:
    """Return the centroids of k-means; a cluster that loses its points keeps its centre."""
    from scipy.cluster.vq import kmeans2  # imported here because it is slow to import

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty")
        return np.asarray(kmeans2(points, rank, iter=LLOYD, minit="++", rng=rng)[0])


def _ridge(values: Array, k: int) -> float:
    """Return Σ_{i>k} λ_i/k, bounded below by the rounding of the λ_i (ascending)."""
    rest = float(np.maximum(values[: max(len(values) - k, 0)], 0.0).sum())
    return max(rest / k, len(values) * np.finfo(np.float64).eps * float(values[-1]))


def leverage_scores(points: Array, k: int, rng: np.random.Generator) -> Array:
    """Return ridge leverage scores (G (G + γI)⁻¹)_ii of G = exp(−|x − y|²/2), (count,).

    γ = Σ_{i>k} λ_i/k. Up to 1024 points the scores are exact; their sum, the effective dimension,
    is at most 2·k. Above, the recursion estimates them by 3/(2γ) (G − G S (SᵀGS + γI)⁻¹ SᵀG)_ii.
    Source: Musco and Musco, see `Nystrom`.
    """
    count = len(points)
    if count <= EXACT:
        w, U = scipy.linalg.eigh(gaussian(points, points), check_finite=False)
        shares = np.maximum(w, 0.0) / (np.maximum(w, 0.0) + _ridge(w, k))
        return np.asarray(np.square(U) @ shares)
    half = rng.choice(count, (count + 1) // 2, replace=False)
    scores = leverage_scores(points[half], k, rng)
    chances = np.minimum(1.0, scores * (SAMPLE * k / scores.sum()))
    drawn = rng.random(len(half)) < chances
    drawn[int(np.argmax(chances))] = True  # so that at least one is drawn
    scale = 1.0 / np.sqrt(chances[drawn])
    S = points[half[drawn]]
    w, U = scipy.linalg.eigh(scale[:, None] * gaussian(S, S) * scale, check_finite=False)
    ridge = _ridge(w, k)
    whitened = U / np.sqrt(np.maximum(w, 0.0) + ridge)
    scores = np.empty(count)
    for start in range(0, count, EXACT):
        rows = slice(start, start + EXACT)
        projected = (gaussian(points[rows], S) * scale) @ whitened
        scores[rows] = 1.5 * (1.0 - np.square(projected).sum(axis=1)) / ridge
    return np.clip(scores, 0.0, 1.0)
