"""KIVI: keys rounded to a few levels, whose range is that of a key or of a channel."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from approx.checks import Array
from approx.compressed_logits.coded_keys import CodedKeys, Codes, Layout, LogitMoments
from approx.compressed_logits.normal_levels import MOST_BITS as MOST_NORMAL, lloyd_max
from approx.decoding.codes import Coder
from approx.estimate import exact
from approx.method import Label, Moments
from approx.method.fields import flag, integer, one_of
from approx.method.tags import RANDOM, SCALE, SHIFT, collect

BY = ("token", "channel")
LEVELS = ("uniform", "normal")
MOST_BITS = 16


class Rounding(NamedTuple):
    """A rounding of numbers to integers, with two scales a, b per group: x ≈ a + b·level(code).

    The levels 0 … 2^bits − 1 span the least to the largest number of a group. With ``normal`` they
    are the best levels for a normal number with the group's mean and deviation.
    """

    bits: int
    normal: bool

    def scales(self, x: Array) -> tuple[Array, Array]:
        """Return a and b of each row, (rows, 1): least and step, or mean and deviation."""
        if self.normal:
            return x.mean(axis=1, keepdims=True), x.std(axis=1, keepdims=True)
        least = x.min(axis=1, keepdims=True)
        return least, (x.max(axis=1, keepdims=True) - least) / (2**self.bits - 1)

    def codes(self, x: Array, a: Array, b: Array, dither: Array | float = 0.0) -> Array:
        """Return integers from 0 to 2^bits − 1; a dither is added before rounding."""
        place = np.divide(x - a, b, out=np.zeros_like(x), where=b > 0)
        if self.normal:
            return np.asarray(np.searchsorted(lloyd_max(self.bits).borders, place))
        return np.asarray(np.rint(place + dither))

    def values(self, codes: Array, a: Array, b: Array) -> Array:
        """Return a + b·level(code)."""
        if self.normal:
            return np.asarray(a + b * lloyd_max(self.bits).levels[codes])
        return np.asarray(a + codes * b)

    def error_variance(self, b: Array) -> Array:
        """Return the variance of a number's error: step²/12, or that of the levels."""
        return np.asarray(b**2 * (lloyd_max(self.bits).distortion if self.normal else 1 / 12))


def rounded(x: Array, bits: int, size: int, dither: Array | None = None) -> tuple[Array, Array]:
    """Return numbers rounded to equal steps from least to largest of their group, and the steps.

    Parameters
    ----------
    x : (rows, columns)
    bits : int
    size : int
        Numbers of a group, consecutive in a row.
    dither : (rows, columns), optional
        Numbers of U(−½, ½), in steps, added before rounding and subtracted after it: then the error
        is uniform in a step for every x.
    """
    return _rounded(x, Rounding(bits, normal=False), size, dither)


def rounded_normal(x: Array, bits: int, size: int) -> tuple[Array, Array]:
    """Return numbers rounded to mean + deviation·level of their group, and the deviations."""
    return _rounded(x, Rounding(bits, normal=True), size)


def _rounded(
    x: Array, how: Rounding, size: int, dither: Array | None = None
) -> tuple[Array, Array]:
    out, steps = np.empty_like(x), np.empty_like(x)
    for group in _groups(x, size):
        part = x[:, group]
        a, b = how.scales(part)
        u = 0.0 if dither is None else dither[:, group]
        # at both ends place + u rounds to the end itself, so that codes stay in range
        codes = how.codes(part, a, b, u)
        out[:, group] = how.values(codes if dither is None else codes - u, a, b)
        steps[:, group] = b
    return out, steps


def _groups(x: Array, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, x.shape[1], size)]


@dataclasses.dataclass(frozen=True)
class Quantised(CodedKeys):
    """Keys rounded to 2^bits levels of a key or of a channel, and exp of their logits: KIVI.

    estimate_ij = exp(q_i·k̃_j), k̃ = min + s·round((k − min)/s), s = (max − min)/(2^bits − 1);
    it is exp(q_i·k_j) where j is one of the last keys that query i sees.

    Parameters
    ----------
    bits : int
        Bits of a number of a key, 1 to 16; with normal levels to 8.
    by : {"token", "channel"}
        Whether min and max are those of a key over its channels, or those of a channel over keys.
    group : int
        Consecutive numbers, along a channel or a key, that share min and max.
    recent : int, optional
        Number of last keys that are exact for each query; by default group − 1 by channel and 0 by
        token, the fewest with which a row reads nothing of the future.
    levels : {"uniform", "normal"}
        Equal steps, or the best levels for a normal number with the mean and deviation of a group,
        which are stored instead of min and step (`normal_levels.lloyd_max`).
    dither : bool
        Whether round(x + u) − u replaces round(x). Each number has its own u of U(−½, ½), which is
        not stored but drawn again when keys are read.
    corrected : bool
        Whether half the variance of a logit is subtracted from it, Σ_c q_ic² s_jc²/24.

    Notes
    -----
    Without dither the estimate is deterministic, positive and biased. With equal steps, the error
    of a number of a key is at most s/2, of a logit at most ½ Σ_c |q_ic| s_jc, and of exp at most a
    factor of e to this power. Normal levels have no such bound: they clip numbers far from the
    mean, such as attention sinks, and their variance is that of a normal number. Levels per channel
    suit keys with a few large channels. They do not suit a channel with one large key, such as an
    attention sink, which uses most levels; only the keys of its group suffer.
    With dither, errors are independent and uniform in a step. Then logits are unbiased with
    variance Σ_c q_c² s_c²/12, and E estimate = exp(q·k) Π_c sinh(x_c)/x_c, x_c = q_c s_c/2, is
    above exp(q·k). The correction removes this bias up to terms of fourth order. Without dither the
    variance is a model. By token the method is autoregressive. By channel it is if every group that
    is not yet full lies among the recent keys: recent ≥ group − 1.
    The count of stored numbers does not fall; only their bytes do, to bits/8 a number and two
    numbers a group. So only the currencies bytes and bytes_read show the saving.
    Cost: 2·n·l·d operations for the logits, and two for every number of a key. A query reads min
    and step of the keys that are rounded for it.

    The authors' code, jy-yuan/KIVI, has groups of 32 tokens and 2 or 4 bits. It rounds its last
    keys when there are 32 or 128 of them, so that none to all of these are exact; here the number
    of exact keys is constant. It also rounds values, for which see `rounded_values`.

    References
    ----------
    .. [1] Z. Liu et al., "KIVI: a tuning-free asymmetric 2bit quantization for KV cache", ICML
       2024, section 3.
    .. [2] R. M. Gray, T. G. Stockham, "Dithered quantizers", IEEE Trans. Information Theory 39,
       1993: subtractive dither.

    Examples
    --------
    Two levels, the least number of a key and its largest:

    >>> Quantised(bits=1).approximate([[1.0, 0.0, 0.0]], [[0.4, 0.0, 1.0]]).to_dense()
    array([[1.]])
    """

    name = "quantised"
    label = Label(
        "keys of {bits} bits", {"keys of {bits} bits by channel (KIVI)": {"by": "channel"}}
    )
    examples = (
        "quantised(bits=1)",
        "quantised(bits=1, by='channel', group=3)",
        "quantised(bits=2, by='channel', group=2, levels='normal', recent=0)",
        "quantised(bits=1, group=3, dither=True, corrected=True)",
    )

    bits: int = integer(4, most=MOST_BITS)
    by: str = one_of("token", BY)
    group: int = integer(64)
    recent: int | None = integer(least=0)
    levels: str = one_of("uniform", LEVELS)
    dither: bool = flag(False)
    corrected: bool = flag(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels == "normal" and self.bits > MOST_NORMAL:
            raise ValueError(f"bits must be <= {MOST_NORMAL} for normal levels, got {self.bits}")
        if self.levels == "normal" and self.dither:
            raise ValueError("dither=True belongs to levels='uniform', got 'normal'")

    @property
    def tags(self) -> frozenset[str]:
        return super().tags | collect(SCALE, self.by == "channel" and SHIFT, self.dither and RANDOM)

    @property
    def members(self) -> int:
        return self.group if self.by == "channel" else 1

    @property
    def rounding(self) -> Rounding:
        """The rounding of a group of numbers."""
        return Rounding(self.bits, self.levels == "normal")

    def codes(self, k: Array, rng: np.random.Generator) -> Codes:
        x = k.T if self.by == "channel" else k
        u = rng.random(k.shape) - 0.5 if self.dither else None  # by key: the same for any l
        if u is not None and self.by == "channel":
            u = u.T
        keys, steps = _rounded(x, self.rounding, self.group, u)
        spread = self.rounding.error_variance(steps)
        return Codes(keys.T, spread.T) if self.by == "channel" else Codes(keys, spread)

    def coder(self, d: int, rng: np.random.Generator) -> Coder | None:
        return None if self.dither else RoundingCoder(self, d)

    def layout(self, d: int) -> Layout:
        codes = ((d, self.bits),)
        if self.by == "channel":
            return Layout(codes, channel_scales=2 * d)
        return Layout(codes, scales=2 * math.ceil(d / self.group))

    def drawn_logits(self, q: Array, k: Array) -> LogitMoments | None:
        """Return q·k and Σ_c q_c² s_c²/12."""
        if not self.dither:
            return None
        spread = self.codes(k, np.random.default_rng(0)).error_variance
        return LogitMoments(exact.logits(q, k), q**2 @ spread.T)

    def coded_moments(self, q: Array, k: Array) -> Moments | None:
        """Return Π_c sinh(x_c)/x_c − 1 and the variance, Π sinh(2x_c)/2x_c − (Π sinh(x_c)/x_c)²."""
        if not self.dither:
            return None
        spread = self.codes(k, np.random.default_rng(0)).error_variance
        half = np.sqrt(3 * spread)  # s/2
        first, second = (
            np.array([_log_sinhc(p * np.abs(row) * half).sum(axis=1) for row in q])
            for p in (1.0, 2.0)
        )
        less = q**2 @ spread.T / 2 if self.corrected else 0.0
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.log(np.expm1(second - 2 * first))
            return Moments(np.expm1(first - less), ratio + 2 * (first - less))

    def coded_covariance(self, q: Array, k: Array) -> Array | None:
        """Return the variances on the diagonal: the dither of a key is its own."""
        known = self.coded_moments(q[None], k)
        with np.errstate(over="ignore"):
            return None if known is None else np.diag(np.exp(known.log_relative_variance[0]))


def _log_sinhc(x: Array) -> Array:
    """Return log(sinh(x)/x) of x ≥ 0, by its series where that is exact to the last digit."""
    near = np.minimum(x, 0.05) ** 2
    series = near / 6 - near**2 / 180 + near**3 / 2835 - near**4 / 37800
    far = np.maximum(x, 0.05)
    return np.asarray(np.where(x < 0.05, series, far + np.log(-np.expm1(-2 * far) / (2 * far))))


@dataclasses.dataclass(frozen=True)
class RoundingCoder(Coder):
    """Encode a key as rounded numbers, with the scales of its groups or of its channels."""

    method: Quantised
    d: int

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        return ((self.d, self.method.bits),)

    def shared(self, block: Array) -> Array:
        if self.method.by == "token":
            return np.zeros(0, block.dtype)
        return np.concatenate([x[:, 0] for x in self.method.rounding.scales(block.T)])

    def encode(self, keys: Array, shared: Array) -> tuple[list[Array], Array]:
        how = self.method.rounding
        if self.method.by == "channel":
            codes = how.codes(keys, shared[: self.d], shared[self.d :])
            return [codes.astype(np.int64)], np.zeros((len(keys), 0))
        parts = [keys[:, group] for group in _groups(keys, self.method.group)]
        scales = [how.scales(part) for part in parts]
        codes = np.hstack([how.codes(part, *pair) for part, pair in zip(parts, scales)])
        return [codes.astype(np.int64)], np.hstack([x for pair in scales for x in pair])

    def decode(self, codes: list[Array], scales: Array, shared: Array) -> Codes:
        if self.method.by == "channel":
            a, b = shared[:, : self.d], shared[:, self.d :]
        else:
            group = np.arange(self.d) // self.method.group
            a, b = scales[:, 2 * group], scales[:, 2 * group + 1]
        how = self.method.rounding
        return Codes(how.values(codes[0], a, b), how.error_variance(b))
