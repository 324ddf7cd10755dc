"""SparQ's scores: logits from the channels in which a query is largest."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.compressed_logits.method import CompressedLogits, CompressionCost
from approx.method import Size
from approx.method.fields import flag
from approx.method.prices import Price, Shape
from approx.method.tags import BY_ROW, READS_VALUES, ROW_SHIFT, SCALE
from approx.supports.patterns import largest


@dataclasses.dataclass(frozen=True)
class Channels(CompressedLogits):
    """The r channels in which a query is largest, and exp of its logits there: SparQ's scores.

    estimate_ij = exp(Σ_{c ∈ C_i} q_ic k_jc), where C_i holds the r largest |q_ic|; of equal values
    the first.

    Parameters
    ----------
    r : int, optional
        Channels of a query, 1 ≤ r ≤ d; None is a template.
    scaled : bool
        Whether logits are divided by √(Σ_{c ∈ C_i} |q_ic| / Σ_c |q_ic|), the root of the share of
        |q| in C_i, as in SparQ.

    Notes
    -----
    The estimate is deterministic, positive and biased, and exact at r = d. Nothing is fitted, and
    an entry depends only on its query and its key, so the method is autoregressive. With `scaled`,
    logits keep their variance if channels are independent; the order within a row stays the same.
    A query reads r numbers of every key. Keys keep all channels, since the next query needs others:
    r numbers of a query and d of a key are stored.
    Cost: n·l·r operations if only these channels are read. Here the others are set to 0: n·l·d.

    The authors' code, graphcore-research/llm-inference-research, chooses channels for a group of
    heads at once and uses the logits only to select keys, as `projected_top_k` does.

    References
    ----------
    .. [1] L. Ribar, I. Chelombiev, L. Hudlass-Galley, C. Blake, C. Luschi, D. Orr, "SparQ
       attention: bandwidth-efficient LLM inference", ICML 2024, section 3, algorithm 1.

    Examples
    --------
    >>> Channels(r=1).approximate([[2.0, -3.0]], [[1.0, 0.0], [0.0, -1.0]]).to_dense().round(4)
    array([[ 1.    , 20.0855]])
    """

    name = "channels"
    label = "largest channels (SparQ)"
    tags = BY_ROW | {READS_VALUES, ROW_SHIFT, SCALE}
    examples = (
        "channels(r=1)",
        "channels(r=1, scaled=True)",
    )
    sized_by = Size("r")

    r: int | None = None
    scaled: bool = flag(False)

    def compressed(self, q: Array, k: Array) -> tuple[Array, Array]:
        size = np.abs(q)
        left = np.where(largest(size, self.r or 0), q, q.dtype.type(0))
        if self.scaled:
            kept, whole = np.abs(left).sum(axis=1), size.sum(axis=1)
            left *= np.sqrt(np.divide(whole, kept, out=np.ones_like(kept), where=kept > 0))[:, None]
        return left, k

    def numbers(self, d: int) -> CompressionCost:
        r = self.r or 0
        return CompressionCost(r, d, r)

    def _price(self, shape: Shape) -> Price | None:
        price = super()._price(shape)
        if price is None:
            return price
        keys, values = price.numbers
        every = float(shape.most * shape.d)
        keys = keys._replace(held=every, most=every, kind="keys")
        return Price.from_numbers(price.stored, price.multiply_adds, keys, values)
