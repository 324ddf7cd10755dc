"""The base class of random features: the size m, the frequencies and the moments.

A family writes q·k = a·b + row + column as a `Frame` (a, b are q, k themselves, shifted, or
transformed). It chooses a tilt A and one of two functions of ω. For exponentials

    log φ(q)_r = Σ_c √(1−4A_c) ω_rc a_c + A_c ω_rc² + ¼ log(1−4A_c) − |a|²/2 + row − ½ log m

and log φ(k)_r is the same with b and column. Sines and cosines have +|a|²/2, and i in front of ω.
`approx.projections.summand` derives bias, variance and covariances from this.
"""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.sums import Feature, FeatureMaps, RunningSums
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Method, Moments, Size
from approx.method.prices import Price, Shape, low_rank
from approx.method.tags import BY_ROW, RANDOM, ROTATION, collect
from approx.projections import PROJECTIONS, Fixed, Projection, named
from approx.projections.summand import Entries, Keys
from approx.random_features.exponentials import Exponentials, Side


class Frame(NamedTuple):
    """The terms of q·k = a·b + row + column.

    Attributes
    ----------
    a, b : (n, d), (l, d)
    row, column : (n,), (l,) or 0.0
    """

    a: Array
    b: Array
    row: Array | float = 0.0
    column: Array | float = 0.0


@dataclasses.dataclass(frozen=True)
class RandomFeatures(Method):
    """An estimate φ(q)·φ(k) whose frequencies ω are random.

    Parameters
    ----------
    m : int, optional
        Columns of the factors; None is a template. It is not given with `Fixed` frequencies.
    projection : str or Projection
        The joint distribution of the frequencies: a name in `approx.projections.PROJECTIONS`, or
        `Fixed`. An unbiased family needs frequencies that are each N(0, I_d). They are not under
        ``regularized``, ``regularized_iid``, ``moment_matched`` and ``hadamard``.
    """

    sized_by = Size("m", instead=("fixed",))
    per_frequency: ClassVar[int] = 1  # columns; two make cosh or cos of ω·u
    imaginary: ClassVar[bool] = False  # whether u = i(q − k), so that cosh is a cosine
    composed: ClassVar[bool] = False  # of frame, tilt, frequencies and level, and nothing else

    m: int | None = None
    projection: str | Projection = "iid"

    def __init_subclass__(cls, **options: Any) -> None:
        # A subclass may override anything, so it does not inherit this flag from its parent.
        super().__init_subclass__(**options)
        cls.composed = vars(cls).get("composed", False)

    def __post_init__(self) -> None:
        for name, known in PROJECTIONS.items():
            if self.projection == known:  # so that equal methods have one spec
                object.__setattr__(self, "projection", name)
        super().__post_init__()
        named(self.projection)  # raises its errors
        if self.fixed and self.m is not None:
            raise ValueError("m follows from Fixed frequencies: leave it out")

    def frame(self, Q: Array, K: Array) -> Frame:
        """Return the frame in which exp(q·k) is expanded; by default q and k themselves."""
        return Frame(Q, K)

    def tilt(self, frame: Frame) -> Array:
        """Return A (d,), with entries < 1/8; it may be fitted to the frame."""
        return np.zeros(frame.a.shape[1])

    @property
    def fits_all(self) -> bool:
        """Whether a frame, a tilt or another parameter is fitted to all queries and keys."""
        return False

    @property
    def tags(self) -> frozenset[str]:
        of_row = frozenset() if self.fits_all else BY_ROW
        isotropic = named(self.projection).isotropic
        return of_row | collect(isotropic and ROTATION, not self.fixed and RANDOM)

    @property
    def fixed(self) -> bool:
        """Whether the frequencies are given."""
        return isinstance(self.projection, Fixed)

    @property
    def count(self) -> int:
        """The number of frequencies."""
        if isinstance(self.projection, Fixed):
            return len(self.projection.omega)
        return (self.m or 0) // self.per_frequency

    def frequencies(self, Q: Array, K: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return omega (count, d) and ½ log weights (count,), in the dtype of Q.

        A family that is `composed` fits them to nothing else, so that temperatures can share them.
        """
        omega, weights = named(self.projection).draw(self.count, Q.shape[1], rng)
        with np.errstate(divide="ignore"):
            half = 0.5 * np.log(weights)
        return omega.astype(Q.dtype, copy=False), half.astype(Q.dtype)

    def level(self, omega: Array, half: Array, A: Array) -> Array:
        """Return the log of the constant factor of each feature, (count,), in float64.

        It is ½ log weight + Σ_c A_c ω_c² + ¼ log(1 − 4A_c), minus ½ log 2 where e^{ω·u} and
        e^{−ω·u} are the halves of a cosh.
        """
        level = np.asarray(half, np.float64)
        if A.any():
            level = half + np.square(omega) @ A + 0.25 * np.log(1 - 4 * A).sum()
        return level if self.imaginary else level - 0.5 * math.log(self.per_frequency)

    def maps(self, d: int, rng: np.random.Generator) -> FeatureMaps | None:
        """Return the features of one query or key if nothing is fitted; None by default."""
        return None

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        maps = None if window or self.fits_all else self.maps(d, rng)
        return None if maps is None else RunningSums(d, c, maps)

    def _price(self, shape: Shape) -> Price | None:
        if self.is_template:
            return None
        columns = self.count * self.per_frequency
        return low_rank(columns, shape, mapped=self.count * shape.d)

    def _workspace(self, shape: Shape) -> int:
        return 8 * (shape.n + shape.l + shape.d) * self.count * self.per_frequency

    def _fewest(self, d: int) -> int:
        return named(self.projection).least(d) * self.per_frequency

    def entries(self, Q: Array, K: Array) -> Entries:
        """Return the summand of every entry."""
        frame = self.frame(Q, K)
        b = -frame.b if self.imaginary else frame.b
        return Entries(self.tilt(frame), self.per_frequency == 2, self.imaginary, frame.a, b)

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return exact bias and variance; None where a coupling has no closed form.

        Let v be the relative variance of one of count frequencies, in blocks of b, and c the
        relative covariance of two in a block. The variance is (v + c·Σ b(b−1)/count)/count.

        Accuracy: 1000 eps·κ, as docs/accuracy.md defines it.
        """
        rho, projection, count = self.entries(q, k), named(self.projection), self.count
        bias = projection.bias(rho, count)
        if bias is None:
            return None
        log_v = projection.log_variance(rho, count)
        for b, share in projection.pairs(count, rho.d):
            unit = np.where(np.isfinite(log_v), log_v, 0.0)
            if (pair := projection.pair(rho, b, unit)) is None:
                return None
            with np.errstate(over="ignore", divide="ignore"):
                ratio = np.where(log_v > -np.inf, share * pair, 0.0)
                log_v = log_v + np.log1p(np.maximum(ratio, -1.0))
        return Moments(bias, log_v - math.log(count))

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        """Return Cov(estimate_j, estimate_l)/(exact_j exact_l) of one query, (l, l).

        Keys share their frequencies. At A = 0 and for iid frequencies it is (e^{u_j·u_l} − 1)/m for
        exponentials and 2(cosh(u_j·u_l) − 1)/m for pairs. It is None where a coupling has no
        closed form.

        Accuracy: 8 eps·κ, as docs/accuracy.md defines it.
        """
        entries, projection, count = self.entries(Q, K), named(self.projection), self.count
        rho = Keys(entries.A, entries.paired, entries.imaginary, entries.a[i] + entries.b)
        known = projection.bias(entries, count) is not None
        total = projection.shared(rho, count) if known else None
        for b, share in projection.pairs(count, rho.d):
            pair = projection.pair(rho, b)
            if pair is None or total is None:
                return None
            total = total + share * pair
        return None if total is None else total / count


class ExponentialFeatures(RandomFeatures):
    """Random features that are exponentials, built in log space; two columns are for ±ω."""

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        return Parts(self.product(q, k, *self.frequencies(q, k, rng)))

    def product(self, q: Array, k: Array, omega: Array, half: Array) -> Exponentials:
        """Return φ(Q) φ(K)ᵀ for the drawn `frequencies`."""
        frame = self.frame(q, k)
        A = self.tilt(frame)
        level = np.tile(self.level(omega, half, A), self.per_frequency).astype(omega.dtype)
        scaled = (omega * np.sqrt(1 - 4 * A)).astype(omega.dtype)
        queries, keys = Side(frame.a, frame.row), Side(frame.b, frame.column)
        return Exponentials(queries, keys, scaled, level)

    def maps(self, d: int, rng: np.random.Generator) -> FeatureMaps:
        nothing = np.zeros((1, d))
        drawn = self.frequencies(nothing, nothing, rng)

        def query(q: Array) -> Feature:
            product = self.product(q[None], nothing, *drawn)
            return 1.0, product.log_features(product.queries)[0]

        def key(k: Array) -> Feature:
            product = self.product(nothing, k[None], *drawn)
            return 1.0, product.log_features(product.keys)[0]

        return FeatureMaps(query, key, self.count * self.per_frequency, self.count * d)
