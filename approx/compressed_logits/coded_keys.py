"""The base of the methods that keep keys in few bits."""

import dataclasses
from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.compressed_logits.exponential import Exponential
from approx.compressed_logits.method import CompressedLogits, Numbers
from approx.decoding.cache import Cache
from approx.decoding.codes import CodedCache, Coder
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Moments
from approx.method.prices import INDEX, NUMBER, Price, Shape
from approx.supports import patterns
from approx.supports.exact_entries import exact_on

NOTHING = -1e30  # a logit whose exponential is 0 at any scale, in float32 too


class Codes(NamedTuple):
    """What is read back of keys that are kept in few bits.

    Attributes
    ----------
    keys : (l, d)
    spread : (l,) or (l, d)
        The variance of q·key that is known from what is stored: |q|² spread, or Σ_c q_c² spread_c.
    """

    keys: Array
    spread: Array


class LogitMoments(NamedTuple):
    """Mean and variance of logits over everything that is drawn, (n, l) each."""

    mean: Array
    variance: Array


class Layout(NamedTuple):
    """What is kept of keys of width d, in numbers and bits.

    Attributes
    ----------
    codes : tuple of (int, int)
        Numbers of few bits of a key, and how many bits.
    scales : int
        Numbers of full width of a key, such as its norm.
    channel_scales : int
        Numbers of full width of each group of keys.
    parameters : int
        Numbers that a query reads before it meets a key, such as those of a rotation.
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
        """Numbers of few bits of a key."""
        return sum(count for count, _ in self.codes)

    @property
    def code_bytes(self) -> float:
        """Bytes of these."""
        return sum(count * bits for count, bits in self.codes) / 8


class CodedKeys(CompressedLogits):
    """An estimate exp(x̃), with logits x̃ of keys that are kept in few bits.

    A subclass is a frozen dataclass that has the fields `recent` and `corrected` as well.
    """

    row_local = True
    recent: int | None
    corrected: bool

    @property
    def members(self) -> int:
        """How many keys, one after the other, share scales of channels; 1 if each has its own."""
        return 1

    @property
    def exact_keys(self) -> int:
        """How many of the last keys that a query sees stay exact for it."""
        return self.members - 1 if self.recent is None else self.recent

    @property
    def by_place(self) -> bool:
        """Whether the last keys of a query stay exact."""
        return self.exact_keys > 0

    @property
    def autoregressive(self) -> bool:
        """Whether a key is coded by itself, or with keys that every query that needs it sees."""
        return self.exact_keys >= self.members - 1

    @abstractmethod
    def codes(self, k: Array, rng: np.random.Generator) -> Codes:
        """Return what is read back of keys (l, d)."""

    @abstractmethod
    def layout(self, d: int) -> Layout:
        """Return what is kept of keys of width d."""

    def coder(self, d: int, rng: np.random.Generator) -> Coder | None:
        """Return how a key becomes codes, with what is drawn; None if it must be drawn for each."""
        return None

    def cached(self, d: int, c: int, rng: np.random.Generator) -> Cache | None:
        """Return packed codes, the last keys as they are, and all values."""
        coder = self.coder(d, rng) if self.autoregressive else None
        if coder is None:
            return None
        more = self.exact_keys, self.members, self.layout(d).parameters
        return CodedCache(d, c, coder, self._sides, *more)

    def reach_of(self, window: int) -> tuple[int, int] | None:
        """Return the beginning of a group, where draws are made before any key."""
        return None if self.coder(1, np.random.default_rng(0)) is None else (self.members, 0)

    def compressed(self, q: Array, k: Array) -> tuple[Array, Array]:
        """Return left and right of logits whose draws have the seed 0."""
        return self._sides(q, self.codes(k, np.random.default_rng(0)))

    def _sides(self, q: Array, codes: Codes) -> tuple[Array, Array]:
        """Return left and right with left·right = q·key, less half its variance if corrected."""
        if not self.corrected:
            return q, codes.keys
        squares = q**2
        if codes.spread.ndim == 1:
            squares = squares.sum(axis=1, keepdims=True)
        spread = codes.spread.reshape(len(codes.keys), -1)
        return np.hstack([q, squares]), np.hstack([codes.keys, -spread / 2])

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        left, right = self._sides(q, self.codes(k, rng))
        left, right = (np.ascontiguousarray(x, q.dtype) for x in (left, right))
        low = Exponential(left, right, self.stored(len(q), *k.shape))
        if not self.exact_keys:
            return Parts(low)
        begin = self._begin(mask)
        exactly = exact_on(patterns.runs(begin, mask.stop), q, k, mask)
        return Parts(_before(begin, low, mask), exactly)

    def _begin(self, mask: Mask) -> Array:
        """Return the first key that is exact for each query."""
        return np.asarray(np.maximum(mask.stop - self.exact_keys, mask.first))

    def logit_moments(self, Q: ArrayLike, K: ArrayLike) -> LogitMoments | None:
        """Return mean and variance of the logits q·key of coded keys, before any correction.

        They are exact, over everything drawn; None where they are not known, or nothing is drawn.
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
        """Return the covariance of keys for one query (d,), all of them coded; by default None."""
        return None

    def entry_moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return the moments of coded keys, and none of exact ones."""
        known = self.coded_moments(q, k)
        if known is None or not self.exact_keys:
            return known
        exact = np.arange(mask.l) >= self._begin(mask)[:, None]
        return Moments(
            np.where(exact, 0.0, known.relative_bias),
            np.where(exact, -np.inf, known.log_relative_variance),
        )

    def key_covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        known = self.coded_covariance(Q[i], K)
        if known is not None and self.exact_keys:
            exact = np.arange(len(K)) >= self._begin(mask)[i]
            known[exact], known[:, exact] = 0.0, 0.0
        return known

    def numbers(self, d: int) -> Numbers:
        layout = self.layout(d)
        return Numbers(d, layout.numbers + layout.scales, layout.numbers)

    def stored(self, n: int, l: int, d: int) -> int:
        """Return how many numbers queries, codes and scales are."""
        return n * d + l * self.layout(d).numbers + self._scales(l, d)

    def _scales(self, l: int, d: int) -> int:
        """Return how many scales l keys have."""
        layout = self.layout(d)
        return layout.scales * l + layout.channel_scales * -(-l // self.members)

    def _scales_read(self, mask: Mask, d: int) -> Array:
        """Return how many scales each query reads, which are those of coded keys."""
        layout, stop = self.layout(d), self._begin(mask)
        groups = (stop - 1) // self.members - mask.first // self.members + 1
        groups = np.where(stop > mask.first, groups, 0)
        return np.asarray(layout.scales * (stop - mask.first) + layout.channel_scales * groups)

    def priced(self, shape: Shape) -> Price | None:
        """Return the price of codes, scales and exact keys; every value is read, too."""
        if self.is_template:
            return None
        n, l, d, c = shape
        layout, rows = self.layout(d), shape.decoding
        recent = shape.seen(min(self.exact_keys, l))  # read in place of the coded ones
        coded = self._begin(rows) - rows.first
        read = coded * layout.numbers + (rows.counts - coded) * d + rows.counts * c
        read = read + self._scales_read(rows, d) + layout.parameters
        exact = recent * (NUMBER + INDEX) + (INDEX if self.exact_keys else 0)
        work = (shape.seen(l) - recent) * layout.numbers + recent * d + shape.seen(l) * c
        most = max(shape.most - self.exact_keys, 0)
        return Price(
            self.stored(n, l, d) / n + recent,
            float(read.max()),
            float(work + layout.mapped * shape.both),
            (NUMBER * (n * d + self._scales(l, d)) + layout.code_bytes * l) / n + exact,
            few=float(most * layout.numbers),
            few_bytes=most * layout.code_bytes,
        )


def _before(begin: Array, low: Exponential, mask: Mask) -> Exponential:
    """Return the entries of the keys before `begin` in each row, 0 elsewhere.

    Later keys may be coded with keys that come after them, which no scale may follow from.
    """
    nothing = begin == mask.first
    hidden = low.rescaled(
        np.where(nothing, NOTHING, 0.0).astype(low.dtype), np.zeros(mask.l, low.dtype)
    )
    return dataclasses.replace(hidden, mask=Mask(mask.first, begin + nothing, mask.l))
