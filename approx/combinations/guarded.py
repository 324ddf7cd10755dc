"""Guarded: a support in rows with a certificate of its error, exact rows elsewhere."""

import dataclasses
from typing import NamedTuple

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.masks import Mask
from approx.method import Rng, generator
from approx.method.evaluation import checked_inputs
from approx.method.fields import integer, real
from approx.method.prices import BITS, SHARED, Numbers, Price, Shape, entries, price_at
from approx.method.tags import ROTATION, ROW_LOCAL, ROW_SHIFT, collect
from approx.sparse.sink_window import SinkWindow
from approx.sparse.support import SupportMethod, a_support
from approx.supports import key_boxes, patterns
from approx.supports.key_boxes import DEPTH, PageBoxes
from approx.supports.patterns import Pattern
from approx.supports.unread import Unread


class RowCertificates(NamedTuple):
    """The certificate of each row, and what the row read.

    Attributes
    ----------
    bound : (n,)
        Upper bound of the total variation, before any row was made exact.
    exact : (n,) bool
        Whether the row was made exact, because its bound is above the allowed total variation.
    kept, near, pages : (n,)
        Numbers of keys and pages before any row was made exact: keys of the estimate, other keys of
        the query's own page, whose logits are read, and pages whose boxes and codes are read.
    """

    bound: Array
    exact: Array
    kept: Array
    near: Array
    pages: Array


@dataclasses.dataclass(frozen=True)
class Guarded(SupportMethod):
    """A support in rows with a certificate of its total variation; all keys in other rows.

    estimate_i = that of the method if bound_i ≤ tv, else exp(q_i·k_j) for all keys that query i
    sees; ½ Σ_j |attention of the estimate − attention| ≤ bound_i. With ``coded``, a row without a
    certificate first gets more keys.

    Parameters
    ----------
    method : Method
        Any support.
    tv : float
        Largest total variation that a row may have, 0 < tv < 1.
    size : int
        Keys per page.
    bits : int
        Bits of the codes of unread keys, per coordinate on average, 0 to 8.
    coded : int
        Number of keys that a row without a certificate reads beside those of the method: the keys
        whose codes allow the largest logits. It needs bits.

    Notes
    -----
    Let M be the sum of exp over the support, and U an upper bound of the sum over other keys. The
    total variation of softmax on the support is the share of the other keys, which is at most
    U/(M + U). `approx.supports.key_boxes.PageBoxes` gives U from the box of each page and the codes
    of its keys, which say in which part of each side a key lies. Keys of the last page that a query
    sees, which may be incomplete, are read. All roundings are counted outwards, so that no row has
    more than tv, whatever the inputs; rounding in float32 counts as error. The queries before the
    end of a page decide how its bits are shared out among channels.

    With ``coded`` keys the method need not find the largest logits, because the codes, which are
    read anyway, indicate them. So a guarded window is nearly as good as a guarded `top_k`.

    The method is autoregressive if its support is. Its reads are known only after a run
    (`analysis.experiments.frontier.guarded_reads`). The price is the largest possible: exact
    attention, every box and every code. So no budget below exact attention fits it.

    Cost: that of the method, d operations for each coded key and page, and of exact rows.

    References
    ----------
    .. [1] "Runtime-certified attention", 2026, arXiv:2605.20868 (not read): a bound for each head
       and step, exact attention where it fails.
    .. [2] J. Tang et al., "Quest: query-aware sparsity for efficient long-context LLM inference",
       ICML 2024: the boxes.

    Examples
    --------
    The first query gives nearly all attention to the second key, the second query only half:

    >>> method = Guarded(SinkWindow(k=1, sinks=1), tv=0.1, size=1)
    >>> method.approximate([[-9.0], [0.0]], [[0.0], [1.0]]).to_dense().round(4)
    array([[1., 0.],
           [1., 1.]])
    """

    name = "guarded"
    label = "guarded, tv ≤ {tv:g}"
    examples = (
        "guarded(sink_window(), tv=0.33, size=4, bits=1)",
        "guarded(random(), tv=0.9, size=3, bits=0)",
        "guarded(top_k(), tv=0.26, size=4, bits=1)",
        "guarded(sink_window(), tv=0.14, size=2, bits=1, coded=1)",
    )

    method: SupportMethod = a_support(SinkWindow())
    tv: float = real(0.1, below=1)
    size: int = integer(64)
    bits: int = integer(4, least=0, most=key_boxes.MOST_BITS)
    coded: int = integer(0, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coded and not self.bits:
            raise ValueError(f"coded={self.coded} keys are chosen by codes: give bits, got 0")

    @property
    def tags(self) -> frozenset[str]:
        lost = collect(ROTATION, ROW_SHIFT, self.bits > 0 and ROW_LOCAL)  # boxes are not rotated
        return super().tags - lost

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        kept, found = self._guarded(Q, K, mask, rng)
        rest = patterns.runs(mask.first, np.where(found.exact, mask.stop, mask.first))
        return patterns.union([kept, rest], mask.l)

    def rows(self, Q: Array, K: Array, mask: Mask, rng: Rng) -> RowCertificates:
        """Return certificate and reads of each row, with the rng of `approximate`."""
        q, k, seen = checked_inputs(self, Q, K, mask)
        return self._guarded(q, k, seen, generator(rng))[1]

    def _guarded(
        self, q: Array, k: Array, mask: Mask, rng: np.random.Generator
    ) -> tuple[Pattern, RowCertificates]:
        support = self.method.support(q, k, mask, rng).matrix
        kept: Pattern = support.indptr, support.indices
        own = np.maximum(mask.first, (mask.stop - 1) // self.size * self.size)
        near = patterns.runs(own, mask.stop)
        eps = float(np.finfo(q.dtype).eps)
        a, b = (x.astype(np.float64) for x in (q, k))
        weights = key_boxes.channels_so_far(a, mask, self.size) if self.bits else None
        known = PageBoxes.from_keys(b, size=self.size, bits=self.bits, weights=weights)

        def certified(kept: Pattern, chosen: bool) -> tuple[RowCertificates, list[Array]]:
            read, on = _ones(patterns.union([kept, near], mask.l), mask), _ones(kept, mask)
            parts, largest = [], []
            for rows in exact.stripes(*mask.shape):
                held = Unread(mask.take(rows), read[rows], known)
                held.bound(a[rows], b)
                # a kept key is read, too, so it has a 1 in both
                bound = held.lost((read[rows] + on[rows]).data > 1, eps)
                count = np.diff(on[rows].indptr)
                pages = (held.by_page(held.unread) > 0).sum(axis=1)
                parts.append(
                    RowCertificates(bound, bound > self.tv, count, held.counts - count, pages)
                )
                if chosen:
                    upper = np.where(held.unread > 0, held.cell_high, -1.0)
                    order = patterns.ranked(upper)[:, : self.coded]
                    some = bound[:, None] > self.tv
                    some = some & (np.take_along_axis(upper, order, axis=1) >= 0)
                    largest += [np.sort(row[on]) for row, on in zip(order, some, strict=True)]
            return RowCertificates(*(np.concatenate(x) for x in zip(*parts, strict=True))), largest

        found, largest = certified(kept, chosen=self.coded > 0)
        if self.coded:
            stops = np.cumsum([0, *map(len, largest)])
            kept = patterns.union([kept, (stops, np.concatenate(largest))], mask.l)
            found = certified(kept, chosen=False)[0]._replace(pages=found.pages)
        return kept, found

    def held(self, mask: Mask) -> None:
        return None  # how many keys a row has depends on the inputs

    def selection_reads(self, shape: Shape) -> float | None:
        """Return the reads that choose the keys; None if they depend on the inputs."""
        chosen = self._selection(shape)
        return None if chosen is None else sum(x.read for x in chosen)

    def _selection(self, shape: Shape) -> list[Numbers] | None:
        price = price_at(self.method, shape)
        if price is None or price.reads is None:
            return None
        return [x for x in price.numbers if not x.kind]

    def _price(self, shape: Shape) -> Price | None:
        """Return the largest possible price: all keys, all boxes and all codes."""
        method, choosing = price_at(self.method, shape), self._selection(shape)
        held = self.method.held(shape.rows)
        if method is None or choosing is None or held is None or method.multiply_adds is None:
            return None
        _, l, d, c = shape
        most, each = int(self._pages(shape.decoding).max()), self._pages(shape.rows)
        boxes, codes, depths = ((2.0 * d, BITS), (d * self.size, self.bits), (d, DEPTH))
        work = method.multiply_adds - float(held.mean()) * (d + c)
        work += float(each.mean()) * d * (1 + (self.size if self.bits else 0))
        pages = -(-l // self.size)
        known = [
            Numbers(float(most * each), float(pages * each), bits=bits)
            for each, bits in ((boxes, codes, depths) if self.bits else (boxes,))
        ]
        all_keys = entries(shape.most, shape, most=SHARED)
        return all_keys + Price.from_numbers(0.0, work, *choosing, *known)

    def _pages(self, mask: Mask) -> Array:
        return np.asarray((mask.stop - 1) // self.size - mask.first // self.size)


def _ones(pattern: Pattern, mask: Mask) -> scipy.sparse.csr_array:
    indptr, indices = pattern
    return scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=mask.shape)
