"""Random Maclaurin features: terms of the series of exp, of random degrees."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from itertools import combinations_with_replacement

import numpy as np
import scipy

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Label, Method, Moments, Size
from approx.method.fields import integer, one_of
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import BY_ROW, RANDOM, SCALE
from approx.sketches.products import forms, products, unit
from approx.sketches.signed import Signed, difference, power, scaled, signed, tail, value

RATES = 2.0**-10, 2.0**10  # bounds on λ; the estimate is unbiased for every λ > 0


@dataclasses.dataclass(frozen=True)
class RandomMaclaurin(Method):
    """Random Maclaurin features, unbiased for exp(q·k), of either sign.

    φ(x)_r = (m' N_r! P(N_r))^{−1/2} Π_{i ≤ N_r} w_ri·x,  w_ri of independent signs,  N_r ~ P on
    {h, h + 1, …}; φ also has all monomials of degree < h with their multinomial weights.

    Parameters
    ----------
    m : int, optional
        Columns of the factors: C(d + h − 1, d) monomials and m' ≥ 1 random features. None: a budget
        fills it.
    law : {"geometric", "poisson"}
        P(N = j) = 2^{−(j − h + 1)}, or proportional to λ^j/j!.
    exact : int
        h ≥ 0. Degrees below h are exact; h = 2 is the H0/1 heuristic.

    Notes
    -----
    With M = |q|²|k|² + 2(q·k)² − 2Σ q_i² k_i², and R the series of exp(q·k) from degree h on, the
    variance is (Σ_{j ≥ h} M^j/(j!² P(j)) − R²)/m'. At h = 0 the sum is 2 I₀(2√(2M)) for the
    geometric law and e^{λ + M/λ} for the Poisson law, which is least at λ = √M. Here λ is the
    square root of the mean of M over all pairs, clipped to [2^{−10}, 2^{10}]. In the covariance of
    two keys k, k', |q|² k·k' + 2(q·k)(q·k') − 2Σ q_i² k_i k'_i replaces M, and R R' replaces R².
    Row sums may be ≤ 0.
    Cost: 2(n + l)·m·d·E N operations, (n + l)·m numbers.
    Features are computed as sign and logarithm, with one shift per query row and one for all keys,
    so no logit overflows. If |q||k| is above about 5, the variance is too large for any use.

    References
    ----------
    .. [1] P. Kar, H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012:
       Algorithm 1, the geometric law, and H0/1.

    Examples
    --------
    With one coordinate and degrees 0 and 1 exact, the estimate is 1 + q k plus one random feature
    of a degree ≥ 2.

    >>> method = RandomMaclaurin(m=3, exact=2)
    >>> estimate = method.approximate([[2.0]], [[3.0]], rng=0).to_dense()
    >>> sums = [1 + 6 + 6**j / math.factorial(j) * 2 ** (j - 1) for j in range(2, 30)]
    >>> bool(np.isclose(estimate, sums).any())
    True
    """

    name = "random_maclaurin"
    label = Label("random Maclaurin, geometric", {"random Maclaurin, Poisson": {"law": "poisson"}})
    examples = (
        "random_maclaurin(m=5)",
        "random_maclaurin(m=8, law='poisson', exact=2)",
    )
    sized_by = Size("m")

    m: int | None = None
    law: str = one_of("geometric", ("geometric", "poisson"))
    exact: int = integer(0, least=0)

    @property
    def tags(self) -> frozenset[str]:
        # the rate of a Poisson law depends on all queries and keys
        of_row = BY_ROW if self.law == "geometric" else frozenset()
        return of_row | {RANDOM, SCALE}

    def _fewest(self, d: int) -> int:
        """Return C(d + h − 1, d) + 1: the monomials and one random feature."""
        return math.comb(d + self.exact - 1, d) + 1 if self.exact else 1

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of m columns and of the forms, h + 1 per feature on average.

        The mean degree of the geometric law is h + 1. For Poisson it depends on the inputs.
        """
        if self.m is None:
            return None
        forms = None
        if self.law == "geometric":
            random = max(self.m - self._fewest(shape.d) + 1, 0)
            forms = (self.exact + 1) * random * shape.d
        return low_rank(self.m, shape, mapped=forms)

    def _workspace(self, shape: Shape) -> int:
        return 32 * (shape.n + shape.l + shape.d) * (self.m or 0)

    def random(self, d: int) -> int:
        """Return m', the number of random features."""
        return (self.m or 0) - self._fewest(d) + 1

    def rate(self, Q: Array, K: Array) -> float:
        """Return λ, the square root of the mean of M over all pairs, clipped to `RATES`."""
        tops = [float(np.abs(x).max()) or 1.0 for x in (Q, K)]  # M is quadratic in each
        q, k = (np.asarray(x, np.float64) / top for x, top in zip((Q, K), tops))
        C, A, B = np.sum((q.T @ q) * (k.T @ k)), np.square(q), np.square(k)
        mean = (A.sum() * B.sum() + 2 * C - 2 * A.sum(axis=0) @ B.sum(axis=0)) / len(q) / len(k)
        return float(np.clip(math.sqrt(max(mean, 0.0)) * math.prod(tops), *RATES))

    def log_law(self, N: Array, rate: float) -> Array:
        """Return log P(N)."""
        if self.law == "geometric":
            return -(N - self.exact + 1) * math.log(2)
        return (
            N * math.log(rate)
            - scipy.special.gammaln(N + 1.0)
            - tail(signed(rate), self.exact, 1).log
        )

    def degrees(self, count: int, rate: float, rng: np.random.Generator) -> Array:
        """Return independent degrees, descending; Poisson's are cut at 40 standard deviations."""
        if self.law == "geometric":
            N = self.exact + rng.geometric(0.5, count) - 1
        else:
            j = self.exact + np.arange(int(rate + 40 * math.sqrt(rate) + 60))
            N = self.exact + np.searchsorted(
                np.exp(self.log_law(j, rate)).cumsum(), rng.random(count)
            )
        return -np.sort(-N)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        d, rate = q.shape[1], self.rate(q, k)
        N = self.degrees(self.random(d), rate, rng)
        counts = [int(np.sum(i < N)) for i in range(N[0])]
        levels = (forms("rademacher", (count, d), rng) for count in counts)
        return Parts(self.features(q, k, N, levels, rate, mask))

    def features(
        self,
        q: Array,
        k: Array,
        N: Array,
        levels: Iterable[Array],
        rate: float,
        mask: Mask | None = None,
    ) -> Factors:
        """Return the factors for given descending degrees, and for given w at each level."""
        weight = -0.5 * (scipy.special.gammaln(N + 1.0) + self.log_law(N, rate) + math.log(len(N)))
        parts = [products(q, k, levels, weight, np.float64, mask)]
        if self.exact:
            parts.append(monomials(q, k, self.exact - 1, mask))
        return Factors.joined(parts).astype(q.dtype)

    def second(self, M: Signed, rate: float) -> Signed:
        """Return Σ_{j ≥ h} M^j/(j!² P(j))."""
        if self.law == "geometric":
            return scaled(
                tail(scaled(M, math.log(2)), self.exact, 2), (1 - self.exact) * math.log(2)
            )
        sums = tail(scaled(M, -math.log(rate)), self.exact, 1)
        return scaled(sums, tail(signed(rate), self.exact, 1).log)

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments:
        (a, row), (b, column) = unit(q), unit(k)
        A, B, C = np.square(a), np.square(b), np.square(a @ b.T)
        M = np.outer(A.sum(axis=1), B.sum(axis=1)) + 2 * C - 2 * A @ B.T
        x = exact.logits(q, k)
        raw = scaled(signed(np.maximum(M, 0.0)), 2 * (row[:, None] + column))
        R = tail(signed(x), self.exact, 1)
        variance = difference(self.second(raw, self.rate(q, k)), power(R, 2))
        log = np.where(variance.sign > 0, variance.log, -np.inf) - 2 * x
        return Moments(np.zeros_like(x), log - math.log(self.random(q.shape[1])))

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array:
        (a, length), (b, column) = unit(Q[i : i + 1]), unit(K)
        A, c, x = np.square(a), (b @ a.T)[:, 0], K @ Q[i]
        M = A.sum() * (b @ b.T) + 2 * np.outer(c, c) - 2 * (b * A) @ b.T
        raw = scaled(signed(M), 2 * length + column[:, None] + column)
        R = tail(signed(x), self.exact, 1)
        product = Signed(np.outer(R.sign, R.sign), R.log[:, None] + R.log)
        covariance = difference(self.second(raw, self.rate(Q, K)), product)
        return value(scaled(covariance, -x[:, None] - x)) / self.random(K.shape[1])


def monomials(q: Array, k: Array, degree: int, mask: Mask | None = None) -> Factors:
    """Return factors of Σ_{j ≤ degree} (q·k)^j/j!, with coordinates in place of random forms."""
    d = q.shape[1]
    chosen = [list(combinations_with_replacement(range(d), j)) for j in range(degree, -1, -1)]
    every = [c for group in chosen for c in group]  # by falling degree
    weight = np.array([-0.5 * sum(math.lgamma(c.count(i) + 1) for i in set(c)) for c in every])

    def levels() -> Iterator[Array]:
        for i in range(degree):
            yield np.eye(d)[[c[i] for c in every if len(c) > i]]

    return products(q, k, levels(), weight, np.float64, mask)
