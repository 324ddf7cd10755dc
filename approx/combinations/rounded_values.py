"""Any method with values in few bits."""

import dataclasses
import math

import numpy as np

from approx.checks import Array
from approx.compressed_logits.coded_keys import CodedKeys
from approx.compressed_logits.normal_levels import MOST_BITS as MOST_NORMAL
from approx.compressed_logits.quantised import (
    BY,
    LEVELS,
    MOST_BITS,
    Quantised,
    RoundingCoder,
    rounded,
    rounded_normal,
)
from approx.decoding.cache import Cache
from approx.decoding.codes import CodedCache, RoundedRows
from approx.decoding.keys import AllKeys
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Label, Method, Moments
from approx.method.evaluation import evaluated
from approx.method.fields import instance, integer, one_of
from approx.method.prices import Numbers, Price, Shape, price_at
from approx.method.tags import AUTOREGRESSIVE, OUTERMOST, collect
from approx.sparse.exact import Exact


@dataclasses.dataclass(frozen=True)
class RoundedValues(Method):
    """Any method, with values in few bits.

    The estimate is that of the method. Its output D⁻¹ estimate Ṽ uses rounded values
    ṽ = min + s·round((v − min)/s).

    Parameters
    ----------
    method : Method
        The method that estimates exp(q·k).
    bits : int
        Bits of a number of a value, 1 to 16; with normal levels to 8.
    by : {"token", "channel"}
        Whether min and max are those of a value, as in KIVI, or of a channel over values.
    group : int
        Consecutive numbers that share min and max.
    levels : {"uniform", "normal"}
        As in `quantised`.

    Notes
    -----
    Kernel and attention errors are those of the method. The output changes by Σ_j p_ij (ṽ_j − v_j),
    a mean over keys, so errors of single values average out where attention is wide. If errors are
    uniform in a step, the variance of this change is Σ_j p_ij² s_jc²/12 for channel c.
    By token the method is autoregressive if its part is. By channel it reads later values. It has a
    cache by token, without a window, if its part is `exact` or has coded keys.
    Other methods cannot contain this one.
    Cost: that of the method, and two operations for every number of a value.
    Source: KIVI, see `quantised`, rounds values by token.

    Examples
    --------
    >>> from approx import parse
    >>> V = [[0.0, 1.0, 0.4]]
    >>> parse("rounded_values(exact(), bits=1)").approximate([[1.0]], [[1.0]]).attend(V)
    array([[0., 1., 0.]])
    """

    name = "rounded_values"
    label = Label(
        "values of {bits} bits",
        {
            "keys and values of {bits} bits": {"method": "quantised"},
            "EDEN keys and values of {bits} bits": {"method": "turboquant"},
        },
    )
    examples = (
        "rounded_values(exact(), bits=1)",
        "rounded_values(positive(m=3), bits=2, by='channel', group=3)",
        "rounded_values(sink_window(k=1), bits=2, levels='normal')",
    )

    method: Method = instance(Exact(), Method, "a method")
    bits: int = integer(4, most=MOST_BITS)
    by: str = one_of("token", BY)
    group: int = integer(64)
    levels: str = one_of("uniform", LEVELS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels == "normal" and self.bits > MOST_NORMAL:
            raise ValueError(f"bits must be <= {MOST_NORMAL} for normal levels, got {self.bits}")

    @property
    def space(self) -> str:
        return self.method.space

    @property
    def tags(self) -> frozenset[str]:
        return super().tags - collect(self.by == "channel" and AUTOREGRESSIVE) | {OUTERMOST}

    def coded(self, V: Array) -> Array:
        """Return rounded values (l, c)."""
        x = V.T if self.by == "channel" else V
        round_off = rounded_normal if self.levels == "normal" else rounded
        found = round_off(x, self.bits, self.group)[0]
        return found.T if self.by == "channel" else found

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        return dataclasses.replace(evaluated(self.method, q, k, mask, rng), values=self.coded)

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        if self.by == "channel" or window or not isinstance(self.method, Exact | CodedKeys):
            return None
        found = self.method.cache(d=d, c=c, rng=rng)
        assert isinstance(found, AllKeys | CodedCache)
        how = Quantised(self.bits, group=self.group, levels=self.levels)
        found.values = RoundedRows(c, RoundingCoder(how, c))
        return found

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        return self.method.moments(q, k, mask=mask)

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        return self.method.covariance(Q, K, row=i, mask=mask)

    def _price(self, shape: Shape) -> Price | None:
        price = price_at(self.method, shape)
        if price is None or price.reads is None:
            return price
        numbers = [x._replace(bits=self.bits) if x.kind == "values" else x for x in price.numbers]
        scales = [self._scales(x, shape) for x in numbers if x.kind == "values"]
        whole = Price.from_numbers(0.0, 0.0, *numbers, *scales)
        return dataclasses.replace(price, reads=whole.reads, numbers=whole.numbers)

    def _scales(self, values: Numbers, shape: Shape) -> Numbers:
        """Return the least and the largest of each group of numbers of some values."""
        if self.by == "token":
            return values.times(2.0 * math.ceil(shape.c / self.group), of=shape.c)
        rows = shape.decoding
        groups = (rows.stop - 1) // self.group - rows.first // self.group + 1
        most = 2.0 * shape.c * groups.max()
        return Numbers(min(2.0 * values.read, most), most)
