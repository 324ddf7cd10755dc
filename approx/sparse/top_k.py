"""The largest entries of each row, or of a head: a reference that needs all logits."""

import dataclasses

import numpy as np

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.masks import Mask
from approx.method import FROBENIUS, TV, Label, Size
from approx.method.fields import one_of
from approx.method.prices import Price, Shape
from approx.method.tags import BY_ROW, ORACLE, SUPPORT
from approx.sparse.support import SupportMethod
from approx.supports.patterns import Pattern, by_stripes, largest


@dataclasses.dataclass(frozen=True)
class TopK(SupportMethod):
    """The k largest entries of each row, or as many in all of a head, exact.

    estimate_ij = exp(q_i·k_j) where q_i·k_j is among the k largest that query i sees, else 0. Per
    head, softmax_ij must be among the Σ_i min(k, keys that i sees) largest of all rows instead.

    Parameters
    ----------
    k : int, optional
        Entries per row, all if there are fewer keys; None is a template.
    per : {"row", "head"}
        Whether each row has k entries, or the rows of a head share as many entries in all.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. A row
    whose weights sum to 1 has at least the attention off its support as total variation, and
    exactly this if it is softmax on the support. So ``row`` has the least total variation of all
    supports with k keys in each row, and ``head`` of all supports with as many entries in all; a
    row without an entry counts as lost. ``row`` also has the least Frobenius error of exp(q·k) in
    each row. In the Frobenius norm of rows of softmax neither is a bound (`godec` at rank 0 is).

    A row that sees fewer than k keys has all of them; ``head`` does not pass the remainder on to
    other rows. Of equal logits under a mask, or of equal weights of a head, the first are taken, so
    that later keys do not change a row.
    Cost: 2·n·l·d operations to find the support, by row stripes, three times that per head; n·k
    numbers. How many entries of a head a row has depends on the inputs.

    References
    ----------
    .. [1] A. Gupta, G. Dar, S. Goodman, D. Ciprut, J. Berant, "Memory-efficient transformers via
       top-k attention", SustaiNLP 2021.

    Examples
    --------
    >>> TopK(k=1).approximate([[1.0]], [[0.0], [2.0]]).to_dense().round(3)
    array([[0.   , 7.389]])

    The first row needs one key, the second three:

    >>> A = TopK(k=2, per="head").approximate([[9.0], [0.1]], [[0.0], [1.0], [2.0]])
    >>> (A.to_dense() > 0).astype(int)
    array([[0, 0, 1],
           [1, 1, 1]])
    """

    name = "top_k"
    label = Label("top-k of each row", {"top-k per head": {"per": "head"}})
    examples = (
        "top_k()",
        "top_k(per='head')",
    )
    sized_by = Size("k", counts="entries")

    k: int | None = None

    per: str = one_of("row", ("row", "head"))

    @property
    def tags(self) -> frozenset[str]:
        return SUPPORT | {ORACLE} | (BY_ROW if self.per == "row" else frozenset())

    def optimal_in(self, mask: Mask | None = None) -> set[str]:
        """Return total variation; per row, also the Frobenius error of the kernel."""
        return {TV, FROBENIUS["kernel"]} if self.per == "row" else {TV}

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        n, l = len(Q), len(K)
        k = min(self.k or 0, l)
        if self.per == "head":
            return _of_head(Q, K, mask, int(np.minimum(mask.counts, k).sum()))
        if mask.looks_back or not mask.is_full:
            return by_stripes(Q, K, mask, lambda x, rows: largest(x, k))
        indices = np.empty((n, k), np.int32)
        for rows in exact.stripes(n, l):
            logits = Q[rows] @ K.T
            indices[rows] = np.argpartition(logits, l - k, axis=1)[:, l - k :]
        return np.arange(0, n * k + 1, k), indices.ravel()

    def held(self, mask: Mask) -> Array | None:
        return super().held(mask) if self.per == "row" else None

    def _price(self, shape: Shape) -> Price | None:
        if self.per == "row" or self.k is None:
            return super()._price(shape)
        return Price(shape.seen(self.k), None, None, None)


def _of_head(Q: Array, K: Array, mask: Mask, count: int) -> Pattern:
    sums = exact.log_row_sums(Q, K, mask=mask)
    top = np.zeros(0)
    for rows in exact.stripes(len(Q), len(K)):
        x = exact.seen_logits(Q, K, mask, rows) - sums[rows, None]
        top = np.concatenate([top, x[x > -np.inf]])
        if (rest := len(top) - count) > 0:
            top = np.partition(top, rest)[rest:]
    level = top.min()
    room = [int(np.count_nonzero(top == level))]  # entries equal to the level, first rows first

    def chosen(x: Array, rows: slice) -> Array:
        x = x - sums[rows, None]
        found = np.asarray(x >= level)
        equal = np.flatnonzero(x == level)
        found.flat[equal[room[0] :]] = False
        room[0] -= min(room[0], len(equal))
        return found

    return by_stripes(Q, K, mask, chosen)
