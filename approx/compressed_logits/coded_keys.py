"""The base class of methods that store keys in few bits."""

import copy
import dataclasses
from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.compressed_logits.exponential import Exponential
from approx.compressed_logits.method import CompressedLogits, CompressionCost
from approx.decoding.cache import Cache
from approx.decoding.codes import CodedCache, Coder
from approx.decoding.keys import WindowKeys
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Moments
from approx.method.prices import Numbers, Price, Shape
from approx.method.tags import AUTOREGRESSIVE, POSITIONAL, READS_VALUES, ROW_LOCAL, collect
from approx.supports import patterns
from approx.supports.patterns import exact_on

NOTHING = -1e30  # a logit whose exponential is 0 at any scale, in float32 too


class Codes(NamedTuple):
    """Keys decoded from few bits.

    Attributes
    ----------
    keys : (l, d)
    error_variance : (l,) or (l, d)
        v, which gives the variance of q·key as far as the stored numbers tell: |q|² v, or
        Σ_c q_c² v_c.
    """

    keys: Array
    error_variance: Array


class LogitMoments(NamedTuple):
    """Mean and variance of logits over all random draws, (n, l) each."""

    mean: Array
    variance: Array


class Layout(NamedTuple):
    """The stored numbers and bits of keys of width d.

    Attributes
    ----------
    codes : tuple of (int, int)
        Pairs of the count of numbers of few bits per key, and their bits.
    scales : int
        Numbers of full width per key, such as its norm.
    channel_scales : int
        Numbers of full width per group of keys.
    parameters : int
        Numbers that a query reads before any key, such as those of a rotation.
    mapped : float
        Multiply-adds that map a query, or a key.
    """

    codes: tuple[tuple[int, int], ...]
    scales: int = 0
    channel_scales: int = 0
    parameters: int = 0
    mapped: float = 0.0

    @property
    def numbers(self) -> int:
        """Numbers of few bits per key."""
        return sum(count for count, _ in self.codes)


class CodedKeys(CompressedLogits):
    """An estimate exp(x̃), with logits x̃ of keys that are stored in few bits.

    A subclass is a frozen dataclass that also has the fields `recent` and `corrected`.
    """

    recent: int | None
    corrected: bool

    @property
    def members(self) -> int:
        """How many consecutive keys share scales of channels; 1 if each key has its own."""
        return 1

    @property
    def exact_keys(self) -> int:
        """How many of the last keys that a query sees are exact for it."""
        return self.members - 1 if self.recent is None else self.recent

    @property
    def tags(self) -> frozenset[str]:
        return collect(
            READS_VALUES,
            ROW_LOCAL,
            self.exact_keys >= self.members - 1 and AUTOREGRESSIVE,
            self.exact_keys > 0 and POSITIONAL,
        )

    @abstractmethod
    def codes(self, k: Array, rng: np.random.Generator) -> Codes:
        """Return keys (l, d) as they are decoded."""

    @abstractmethod
    def layout(self, d: int) -> Layout:
        """Return the layout of stored keys of width d."""

    def coder(self, d: int, rng: np.random.Generator) -> Coder | None:
        """Return the coder of keys, with its random draws; None if each key needs its own draw."""
        return None

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        same = copy.deepcopy(rng)
        coder = self.coder(d, rng)
        if coder is None:
            return None
        if window:  # all draws precede the first key
            return WindowKeys(d, c, window, self, same, block=self.members)
        more = self.exact_keys, self.members, self.layout(d).parameters
        return CodedCache(d, c, coder, self._sides, *more)

    def compressed(self, q: Array, k: Array) -> tuple[Array, Array]:
        """Return left and right of the logits whose draws have the seed 0."""
        return self._sides(q, self.codes(k, np.random.default_rng(0)))

    def _sides(self, q: Array, codes: Codes) -> tuple[Array, Array]:
        """Return left and right with left·right = q·key, minus half its variance if corrected."""
        if not self.corrected:
            return q, codes.keys
        squares = q**2
        if codes.error_variance.ndim == 1:
            squares = squares.sum(axis=1, keepdims=True)
        spread = codes.error_variance.reshape(len(codes.keys), -1)
        return np.hstack([q, squares]), np.hstack([codes.keys, -spread / 2])

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        left, right = self._sides(q, self.codes(k, rng))
        left, right = (np.ascontiguousarray(x, q.dtype) for x in (left, right))
        low = Exponential(left, right, self.stored(len(q), *k.shape))
        if not self.exact_keys:
            return Parts(low)
        begin = self._begin(mask)
        exactly = exact_on(patterns.runs(begin, mask.stop), q, k, mask)
        return Parts(before(begin, low, mask), exactly)

    def _begin(self, mask: Mask) -> Array:
        """Return the first key that is exact for each query."""
        return np.asarray(np.maximum(mask.stop - self.exact_keys, mask.first))

    def logit_moments(self, Q: ArrayLike, K: ArrayLike) -> LogitMoments | None:
        """Return mean and variance of the logits q·key of coded keys, before any correction.

        They are exact over all random draws; None if they are not known, or nothing is drawn.
        """
        q, k = checks.queries_keys(Q, K)
        return self.drawn_logits(q.astype(np.float64), k.astype(np.float64))

    def drawn_logits(self, q: Array, k: Array) -> LogitMoments | None:
        """Return `logit_moments` of checked arrays in float64; by default None."""
        return None

    def coded_moments(self, q: Array, k: Array) -> Moments | None:
        """Return the moments of exp of the logits of coded keys; by default None."""
        return None

    def coded_covariance(self, q: Array, k: Array) -> Array | None:
        """Return the covariance over keys for one query (d,), all keys coded; by default None."""
        return None

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        known = self.coded_moments(q, k)
        if known is None or not self.exact_keys:
            return known
        exact = np.arange(mask.l) >= self._begin(mask)[:, None]
        return Moments(
            np.where(exact, 0.0, known.relative_bias),
            np.where(exact, -np.inf, known.log_relative_variance),
        )

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        known = self.coded_covariance(Q[i], K)
        if known is not None and self.exact_keys:
            exact = np.arange(len(K)) >= self._begin(mask)[i]
            known[exact], known[:, exact] = 0.0, 0.0
        return known

    def numbers(self, d: int) -> CompressionCost:
        layout = self.layout(d)
        return CompressionCost(d, layout.numbers + layout.scales, layout.numbers)

    def stored(self, n: int, l: int, d: int) -> int:
        return n * d + l * self.layout(d).numbers + self._scales(l, d)

    def _scales(self, l: int, d: int) -> int:
        layout = self.layout(d)
        return layout.scales * l + layout.channel_scales * -(-l // self.members)

    def _scales_read(self, mask: Mask, d: int) -> Array:
        """Return how many scales each query reads; only coded keys have scales."""
        layout, stop = self.layout(d), self._begin(mask)
        groups = (stop - 1) // self.members - mask.first // self.members + 1
        groups = np.where(stop > mask.first, groups, 0)
        return np.asarray(layout.scales * (stop - mask.first) + layout.channel_scales * groups)

    def _price(self, shape: Shape) -> Price | None:
        if self.is_template:
            return None
        n, l, d, c = shape
        layout, rows = self.layout(d), shape.decoding
        recent = shape.seen(min(self.exact_keys, l))  # these are read instead of their codes
        coded, scales = self._begin(rows) - rows.first, self._scales_read(rows, d)
        read = coded * layout.numbers + (rows.counts - coded) * d + rows.counts * c + scales
        i = int(read.argmax())
        numbers = [Numbers(float(coded[i] * count), bits=bits) for count, bits in layout.codes]
        work = (shape.seen(l) - recent) * layout.numbers + recent * d + shape.seen(l) * c
        return Price.from_numbers(
            self.stored(n, l, d) / n + recent,
            float(work + layout.mapped * shape.both),
            *numbers,
            Numbers(float((rows.counts[i] - coded[i]) * d), kind="keys"),
            Numbers(float(rows.counts[i] * c), kind="values"),
            Numbers(float(scales[i] + layout.parameters)),
        )


def before(begin: Array, low: Exponential, mask: Mask) -> Exponential:
    """Return the entries of the keys before `begin` in each row, 0 elsewhere.

    Keys from `begin` on may be coded together with later keys, so row scales must not use them.
    """
    nothing = begin == mask.first
    hidden = low.rescaled(
        np.where(nothing, NOTHING, 0.0).astype(low.dtype), np.zeros(mask.l, low.dtype)
    )
    return dataclasses.replace(hidden, mask=Mask(mask.first, begin + nothing, mask.l))
