"""Keys rounded to a few levels between their least and their largest number."""

import dataclasses
from typing import ClassVar

import numpy as np

from approx.checks import Array
from approx.compressed_logits.exponential import Exponential
from approx.compressed_logits.method import CompressedLogits, Numbers
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method.fields import one_of, whole
from approx.method.prices import INDEX, NUMBER, Price, Shape
from approx.supports import patterns
from approx.supports.exact_entries import exact_on

PER = ("token", "channel")
MOST_BITS = 16
NOTHING = -1e30  # a logit whose exponential is 0 at any scale, in float32 too


@dataclasses.dataclass(frozen=True)
class Quantised(CompressedLogits):
    """Keys rounded to 2^bits levels between a minimum and a maximum, and exp of their logits.

    estimate_ij = exp(q_i·k̃_j), k̃ = min + s·round((k − min)/s), s = (max − min)/(2^bits − 1);
    it is exp(q_i·k_j) where j is one of the last keys that query i sees.

    Parameters
    ----------
    bits : int
        Bits of a number of a key, 1 to 16.
    per : {"token", "channel"}
        Whether min and max are those of a key over its channels, or of a channel over the keys.
    group : int, optional
        Numbers that share min and max, one after the other along a key or a channel; by default
        all of it.
    recent : int
        Last of the keys that a query sees, which stay exact for it, ≥ 0.

    Notes
    -----
    The estimate is deterministic, positive and biased. A number of a key is off by at most s/2, so
    a logit by at most ½ Σ_c |q_ic| s_jc, and exp by that factor. Levels per channel suit keys with
    a few large channels; they do not suit a channel with one large key, such as an attention sink,
    which takes most levels for itself: groups keep that to its neighbours.
    Per token it is autoregressive. Per channel it is not, as min and max are those of later keys
    too, unless every group that is not yet full lies among the recent keys: recent ≥ group − 1.
    The price counts numbers, of which there are none fewer, and bytes: bits/8 a number and two
    numbers a group, as wide as all others here. So only the currency bytes shows what is saved.
    Cost: 2·n·l·d operations for the logits, and two for every number of a key. A query reads min
    and step of the keys that are rounded for it.

    Differences from the authors' code, jy-yuan/KIVI: it quantises keys per channel in groups of 32
    tokens and values per token, both to 2 or 4 bits, and rounds its last keys when there are 32 or
    128 of them, so that none to all of these are exact. Here always as many are, and so are all
    values. It divides by max − min as it is; here equal numbers stay what they are.

    References
    ----------
    .. [1] Z. Liu et al., "KIVI: a tuning-free asymmetric 2bit quantization for KV cache", ICML
       2024, section 3.

    Examples
    --------
    Two levels, the least number of a key and its largest:

    >>> Quantised(bits=1).approximate([[1.0, 0.0, 0.0]], [[0.4, 0.0, 1.0]]).to_dense()
    array([[1.]])
    """

    name: ClassVar[str] = "quantised"
    examples = (
        "quantised(bits=1)",
        "quantised(bits=1, per='channel', group=3)",
        "quantised(bits=1, recent=1)",
    )
    row_local = True

    bits: int = whole(4, most=MOST_BITS)
    per: str = one_of("token", PER)
    group: int | None = whole()
    recent: int = whole(0, least=0)

    @property
    def by_place(self) -> bool:
        """Whether the last keys of a query stay exact."""
        return self.recent > 0

    @property
    def autoregressive(self) -> bool:
        """Whether a key is rounded by itself, or with keys that every query that needs it sees."""
        return self.per == "token" or (self.group is not None and self.recent >= self.group - 1)

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        parts = super().evaluate(q, k, mask, rng)
        if not self.recent:
            return parts
        begin = np.maximum(mask.stop - self.recent, mask.first)
        exactly = exact_on(patterns.runs(begin, mask.stop), q, k, mask)
        assert isinstance(parts.low, Exponential)
        return Parts(_before(begin, parts.low, mask), exactly)

    def compressed(self, q: Array, k: Array) -> tuple[Array, Array]:
        """Return Q and the rounded keys."""
        if self.per == "token":
            return q, self._rounded(k)
        return q, self._rounded(k.T).T

    def _rounded(self, x: Array) -> Array:
        """Return numbers rounded to levels of their group within their row."""
        out = np.empty_like(x)
        size = self.group or x.shape[1]
        for start in range(0, x.shape[1], size):
            group = x[:, start : start + size]
            least = group.min(axis=1, keepdims=True)
            step = (group.max(axis=1, keepdims=True) - least) / (2**self.bits - 1)
            level = np.rint(
                np.divide(group - least, step, out=np.zeros_like(group), where=step > 0)
            )
            out[:, start : start + size] = least + level * step
        return out

    def numbers(self, d: int) -> Numbers:
        return Numbers(d, d, d)

    def stored(self, n: int, l: int, d: int) -> int:
        """Return how many numbers queries, keys, and the minima and steps of groups are."""
        return super().stored(n, l, d) + self._scales(l, d)

    def _scales(self, l: int, d: int) -> int:
        """Return how many minima and steps there are."""
        lines, long = (l, d) if self.per == "token" else (d, l)
        return 2 * lines * -(-long // (self.group or long))

    def _scales_read(self, mask: Mask, d: int) -> Array:
        """Return how many minima and steps each query reads, which are those of rounded keys."""
        stop = np.maximum(mask.stop - self.recent, mask.first)
        if self.per == "token":
            return np.asarray((stop - mask.first) * self._scales(1, d))
        group = self.group or mask.l
        groups = (stop - 1) // group - mask.first // group + 1
        return np.where(stop > mask.first, 2 * d * groups, 0)

    def coded(self, shape: Shape) -> tuple[float, float]:
        """Return the numbers of the keys that are rounded, and their bits."""
        return max(shape.most - self.recent, 0) * shape.d, self.bits

    def priced(self, shape: Shape) -> Price:
        """Return the price of all numbers, those of keys with few bits, and of min and step."""
        n, l, d, c = shape
        recent = shape.seen(min(self.recent, l))  # read in place of the rounded ones
        read = shape.decoding.counts * (d + c) + self._scales_read(shape.decoding, d)
        exact = recent * (NUMBER + INDEX) + (INDEX if self.recent else 0)
        return Price(
            self.stored(n, l, d) / n + recent,
            float(read.max()),
            float(shape.seen(l) * (d + c)),
            (NUMBER * (n * d + self._scales(l, d)) + self.bits * l * d / 8) / n + exact,
        )


def _before(begin: Array, low: Exponential, mask: Mask) -> Exponential:
    """Return the entries of the keys before `begin` in each row, 0 elsewhere.

    Later keys may be rounded with keys that come after them, which no scale may follow from.
    """
    nothing = begin == mask.first
    hidden = low.rescaled(
        np.where(nothing, NOTHING, 0.0).astype(low.dtype), np.zeros(mask.l, low.dtype)
    )
    return dataclasses.replace(hidden, mask=Mask(mask.first, begin + nothing, mask.l))
