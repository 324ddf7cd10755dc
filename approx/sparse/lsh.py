"""Locality-sensitive hashing: keys that share a bucket with the query."""

import dataclasses
from typing import Self

import numpy as np

from approx.checks import Array
from approx.estimate import masks, memory
from approx.estimate.distances import squared_distances
from approx.estimate.masks import Mask, MaskLike
from approx.method import Label, Size
from approx.method.fields import integer, one_of, real
from approx.method.prices import Price, Shape
from approx.method.tags import BY_ROW, RANDOM, READS_VALUES, ROTATION, SCALE, collect
from approx.sparse.support import MOST_ROUNDS, SupportMethod
from approx.supports import hashing, patterns
from approx.supports.hashing import xbox

MOST_HASHES = 64


@dataclasses.dataclass(frozen=True)
class LSH(SupportMethod):
    """Keys whose hash equals the query's in at least one of several rounds, exact.

    estimate_ij = exp(q_i·k_j) where h_r(q_i) = h_r(k_j) for some round r, else 0; h_r joins
    `hashes` independent hashes of one family.

    Parameters
    ----------
    family : {"sign", "cross_polytope", "e2"}
        See `approx.supports.hashing`.
    hashes : int, optional
        Number of hashes joined in one round; more hashes make buckets smaller.
    entries : float, optional
        Bound on the expected entries per row, given instead of `hashes`: the method takes the least
        number of hashes within the bound. Without both, the method is a template, and a budget
        fills `entries`.
    rounds : int
        Number of independent tables; a pair found in several of them counts once.
    buckets : int, optional
        Buckets of one cross-polytope hash, an even number; by default twice the width of the
        hashed vectors.
    width : float, optional
        Width of the buckets of an e2 hash, in units of the root mean squared distance between
        query and key; 1 by default.
    transform : {"none", "xbox"}
        Whether to hash q and k themselves, or after `approx.supports.hashing.xbox`. Then p₁
        rises with q·k, but slowly, because |q'|² = max |q|² + max |k|² makes all angles alike.

    Notes
    -----
    With p₁ the collision probability of one hash, p = P[(i, j) in the support] =
    1 − (1 − p₁^hashes)^rounds, exact over rng. The relative bias is p − 1 and the relative variance
    p(1 − p). The number of entries is random: `entries` bounds only its expectation.
    With `hashes` given and no transform, the hashes do not change with a new token, so the support
    is autoregressive. It is not with `transform` or `entries`, or in family e2, whose unit is a
    mean over all tokens. Under a mask `entries` counts only pairs that are seen.
    Cost: (n + l)·d·hashes·rounds operations and 2·nnz·d for the entries; finding `hashes` from
    `entries` also takes all n·l probabilities.

    References
    ----------
    .. [1] P. Indyk, R. Motwani, "Approximate nearest neighbors", STOC 1998, section 3.
    .. [2] G. Daras et al., "SMYRF", NeurIPS 2020, Eq. (6).

    Examples
    --------
    A query and a key of the same direction share every hash; opposite directions share none:

    >>> LSH(hashes=8).approximate([[1.0]], [[2.0], [-1.0]], rng=0).sparse.indices
    array([0], dtype=int32)
    """

    name = "lsh"
    label = Label("LSH (angles)", {"LSH after XBOX+": {"transform": "xbox"}})
    examples = (
        "lsh(hashes=2, rounds=2)",
        "lsh(family='cross_polytope', hashes=1)",
        "lsh(family='e2', hashes=2, width=1.5)",
    )
    sized_by = Size("entries", counts="entries", integer=False, instead=("hashes",))

    family: str = one_of("sign", hashing.FAMILIES)
    hashes: int | None = integer()
    rounds: int = integer(1, most=MOST_ROUNDS)
    buckets: int | None = integer(least=2, even=True)
    width: float | None = real()
    transform: str = one_of("none", ("none", "xbox"))
    entries: float | None = real()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hashes is not None and self.entries is not None:
            raise ValueError("hashes and entries exclude each other: give one")
        for field, family in (("buckets", "cross_polytope"), ("width", "e2")):
            if getattr(self, field) is not None and self.family != family:
                raise ValueError(f"{field} belongs to family {family!r}, got {self.family!r}")

    @property
    def tags(self) -> frozenset[str]:
        plain = self.transform == "none" and self.family != "e2"
        of_row = BY_ROW if plain and self.hashes is not None else frozenset()
        return of_row | collect(READS_VALUES, RANDOM, ROTATION, plain and SCALE)

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> patterns.Pattern:
        hashes = self.hashes or self.fitted(Q, K, mask=mask)
        q, k = self._hashed(Q, K)
        drawn = hashes * (len(q) + len(k) + self._buckets(q.shape[1]) * q.shape[1])
        memory.reserve(32 * drawn, self, "hashes, n or l")
        rounds = (
            patterns.same_bucket(*_labels(*self._codes(q, k, hashes, rng)))
            for _ in range(self.rounds)
        )
        return patterns.union(rounds, len(K))

    def inclusion(self, q: Array, k: Array, mask: Mask) -> Array:
        """Return 1 − (1 − p₁^hashes)^rounds."""
        collision = self._collision(q, k, mask)
        return self._joint(collision, self.hashes or self._fitted(collision))

    def fitted(self, Q: Array, K: Array, *, mask: MaskLike = None) -> int:
        """Return the least number of hashes with at most `entries` expected entries per row.

        ValueError: even 64 hashes leave more, as vectors of the same direction share every hash.
        """
        return self._fitted(self._collision(Q, K, masks.as_mask(mask, len(Q), len(K))))

    def _fitted(self, collision: Array) -> int:
        assert self.entries is not None
        for hashes in range(1, MOST_HASHES + 1):
            expected = float(self._joint(collision, hashes).sum()) / len(collision)
            if expected <= self.entries:
                return hashes
        raise ValueError(
            f"{self}: {MOST_HASHES} hashes still expect {expected:.3g} entries per row, "
            "because some pairs are too much alike: raise entries"
        )

    def _joint(self, collision: Array, hashes: int) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(-np.expm1(self.rounds * np.log1p(-(collision**hashes))))

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of ``entries`` keys, a bound on the expectation; None without it.

        Reads and multiply-adds are None: the number of hashes depends on the inputs.
        """
        if self.entries is None:
            return None
        most = shape.seen(shape.l)  # the mean over rows: some may have more than `entries`
        return Price(min(self.entries, most), None, None, None)

    def _fill(self, budget: float, shape: Shape, currency: str) -> Self | None:
        """Return this method with at most ``budget`` expected entries per row.

        In other currencies the price depends on the inputs.
        """
        if currency != "stored":
            return None
        return dataclasses.replace(self, entries=budget)

    def _hashed(self, Q: Array, K: Array) -> tuple[Array, Array]:
        return xbox(Q, K) if self.transform == "xbox" else (Q, K)

    def _codes(
        self, q: Array, k: Array, hashes: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        d = q.shape[1]
        if self.family == "cross_polytope":
            vertices = rng.standard_normal((hashes, self._buckets(d) // 2, d)).astype(q.dtype)
            return hashing.cross_polytope(q, vertices), hashing.cross_polytope(k, vertices)
        omega = rng.standard_normal((hashes, d)).astype(q.dtype)
        if self.family == "sign":
            return hashing.sign(q, omega), hashing.sign(k, omega)
        width = self._width(q, k)
        offset = width * rng.random(hashes)
        return hashing.e2(q, omega, offset, width), hashing.e2(k, omega, offset, width)

    def _collision(self, Q: Array, K: Array, mask: Mask) -> Array:
        """Return p₁ of every pair, (n, l), and 0 where the query does not see the key."""
        memory.reserve(64 * len(Q) * len(K), "the probabilities of the entries", "n or l")
        p = self._of_one(*self._hashed(np.asarray(Q, np.float64), np.asarray(K, np.float64)))
        mask.hide(p)
        return p

    def _of_one(self, q: Array, k: Array) -> Array:
        if self.family == "e2":
            distance = np.sqrt(squared_distances(q, k))
            return hashing.e2_collision(distance, self._width(q, k))
        theta = hashing.angles(q, k)
        if self.family == "sign":
            return hashing.sign_collision(theta)
        return hashing.cross_polytope_collision(theta, self._buckets(q.shape[1]))

    def _buckets(self, d: int) -> int:
        return 2 * d if self.buckets is None else self.buckets

    def _width(self, q: Array, k: Array) -> float:
        """Return the width of a bucket, in units of √(mean |q|² + mean |k|² − 2 mean q·mean k)."""
        q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
        squares = np.mean(np.sum(q**2, axis=1)) + np.mean(np.sum(k**2, axis=1))
        unit = np.sqrt(max(squares - 2.0 * q.mean(axis=0) @ k.mean(axis=0), 0.0))
        return float((self.width or 1.0) * unit) or 1.0


def _labels(queries: Array, keys: Array) -> tuple[Array, Array]:
    """Return one integer for each joint hash: codes (n, hashes), (l, hashes) → (n,), (l,)."""
    codes = np.concatenate([queries, keys])
    codes -= codes.min(axis=0)
    hashes, base = codes.shape[1], int(codes.max()) + 1
    if base**hashes <= 2**63:  # the digits of one number
        labels = codes @ base ** np.arange(hashes)
    else:
        _, labels = np.unique(codes, axis=0, return_inverse=True)
    return labels[: len(queries)], labels[len(queries) :]
