"""MInference: some keys for all queries and some diagonals, chosen from a few queries."""

import dataclasses
import math

import numpy as np

from approx.checks import Array
from approx.estimate import exact
from approx.estimate.masks import Mask
from approx.kernels.elementary import exp_rows
from approx.method import TV, Label, Size
from approx.method.fields import integer, one_of, real
from approx.method.prices import Price, Shape
from approx.method.tags import ORACLE, POSITIONAL, SUPPORT, collect
from approx.sparse.support import Rivals, SupportMethod
from approx.supports import patterns
from approx.supports.patterns import Pattern

BY = ("last", "mass")
TURNS = 8  # a turn is two passes over the logits; heads of both samples settle in two to four


@dataclasses.dataclass(frozen=True)
class VerticalSlash(SupportMethod):
    """Some keys for all queries and some diagonals, exact: MInference, or from all logits.

    estimate_ij = exp(q_i·k_j) where j is one of v keys (a vertical line), or p_i − j one of k − v
    distances (a slash, which is a diagonal), else 0; p_i is the position of query i
    (`Mask.positions`), and v = ⌊vertical·k + ½⌋, at least ``sinks`` and at most k − recent.

    Parameters
    ----------
    k : int, optional
        Most entries per row, of both kinds of lines together, ≥ sinks + recent; None is a
        template.
    vertical : float
        Share of the k lines that are vertical, in [0, 1]; 0 keeps diagonals only.
    by : {"last", "mass"}
        ``last`` chooses the lines with the largest sums of softmax over the last queries, verticals
        and slashes separately. ``mass`` uses the sums over all queries, which needs all logits, and
        alternates: the best verticals beside the present slashes, the best slashes beside these
        verticals, and so on.
    queries : int
        For "last": the number of last queries whose attention is summed.
    sinks, recent : int
        First keys that are always verticals, and least distances that are always slashes.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. Its total
    variation from exact attention is the attention off the support. Where a vertical crosses a
    slash there is one entry, so a row may have fewer than k. Of equal sums
    (`patterns.rounded`), the first keys and the
    least distances are taken; keys after the position of a query have negative distances, which
    come last.
    By "mass" with vertical = 0 or 1, no other diagonals, or columns, hold more attention. With both
    kinds the choice is the best found: if the turns end by themselves, as on heads, changing only
    the verticals, or only the slashes, gains nothing.
    The support is not autoregressive: later queries choose the lines of earlier ones.
    Cost: 2·queries·l·d operations by "last", some 2·n·l·d a pass by "mass", by row stripes; at most
    n·k numbers. A new query reads its keys; the cost of finding the lines is divided by n.

    The authors' code [2]_ runs in prefill only, with 64 queries. It always takes the first 30 keys
    and the 100 least distances, and its kernel widens every slash to blocks of 64 × 64 entries.
    An offline search among a few pairs gives the number of each kind of line for a head.

    References
    ----------
    .. [1] H. Jiang et al., "MInference 1.0: accelerating pre-filling for long-context LLMs via
       dynamic sparse attention", NeurIPS 2024. The formula here is that of the code [2]_; the text
       of the paper was not at hand.
    .. [2] github.com/microsoft/MInference, commit fb56c91: minference/modules/
       minference_forward.py (vertical_and_slash_kernel), csrc/vertical_slash_index.cu.

    Examples
    --------
    >>> x = [[0.0], [0.0], [0.0]]
    >>> VerticalSlash(k=2).approximate(x, x, mask="causal").to_dense()
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 0., 1.]])
    """

    name = "vertical_slash"
    label = Label("lines and slashes (MInference)", {"best lines and slashes": {"by": "mass"}})
    examples = (
        "vertical_slash()",
        "vertical_slash(vertical=0.6, by='mass', recent=1)",
    )
    class_name = "lines"

    k: int | None = None
    vertical: float = real(0.5, most=1.0, zero=True)
    by: str = one_of("last", BY)
    queries: int = integer(64)
    sinks: int = integer(0, least=0)
    recent: int = integer(0, least=0)

    @property
    def sized_by(self) -> Size:
        return Size("k", least=max(self.sinks + self.recent, 1), counts="entries")

    @property
    def tags(self) -> frozenset[str]:
        return SUPPORT | collect(POSITIONAL, self.by == "mass" and ORACLE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.k < (least := self.sinks + self.recent):
            raise ValueError(
                f"k counts the sinks and recent keys too, so it must be >= {least}, got {self.k}"
            )

    @property
    def verticals(self) -> int:
        """The number of vertical lines among the k lines."""
        k = self.k or 0
        return min(max(math.floor(self.vertical * k + 0.5), self.sinks), k - self.recent)

    def best_found_in(self, mask: Mask | None = None) -> set[str]:
        """Return total variation for lines by mass, of all choices of as many of each kind."""
        return {TV} if ORACLE in self.tags else set()

    @property
    def rivals(self) -> Rivals:
        assert self.k is not None
        return Rivals("lines", (self.k,))

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        n, l = mask.shape
        keys, distances = self.lines(Q, K, mask)
        verticals = np.arange(n + 1) * len(keys), np.tile(np.sort(keys), n)
        crossed = mask.positions[:, None] - distances
        inside = (crossed >= 0) & (crossed < l)
        slashes = np.concatenate([[0], np.cumsum(inside.sum(axis=1))]), crossed[inside]
        return patterns.union([verticals, slashes], l)

    def lines(self, Q: Array, K: Array, mask: Mask) -> tuple[Array, Array]:
        """Return the keys of the vertical lines and the distances of the slashes, best first."""
        return self._by_turns(Q, K, mask) if ORACLE in self.tags else self._by_last(Q, K, mask)

    def _by_last(self, Q: Array, K: Array, mask: Mask) -> tuple[Array, Array]:
        last = slice(max(mask.n - self.queries, 0), mask.n)
        nothing = np.zeros(0, int)
        vertical, slash = sums(Q[last], K, mask.take(last), nothing, nothing)
        return self._best(vertical), self._best_slashes(slash)

    def _by_turns(self, Q: Array, K: Array, mask: Mask) -> tuple[Array, Array]:
        keys, distances = np.zeros(0, int), np.zeros(0, int)
        for _ in range(TURNS):
            before = keys, distances
            keys = self._best(sums(Q, K, mask, keys[:0], distances)[0])
            distances = self._best_slashes(sums(Q, K, mask, keys, distances[:0])[1])
            if all(np.array_equal(*pair) for pair in zip(before, (keys, distances))):
                break
        return keys, distances

    def _best(self, sums: Array) -> Array:
        sums[: self.sinks] = np.inf
        return patterns.ranked(sums)[: self.verticals]

    def _best_slashes(self, sums: Array) -> Array:
        sums[: self.recent] = np.inf
        chosen = patterns.ranked(sums)[: (self.k or 0) - self.verticals]
        return np.where(2 * chosen < len(sums), chosen, chosen - len(sums))

    def selection(self, shape: Shape) -> Price:
        asked = 0 if ORACLE in self.tags else int(shape.rows.counts[-self.queries :].sum())
        return Price(0.0, 0.0, asked * shape.d / shape.n, 0.0)


def sums(Q: Array, K: Array, mask: Mask, keys: Array, distances: Array) -> tuple[Array, Array]:
    """Return the attention of every key and distance, (l,) and (2l,), off the given lines.

    A distance δ < 0 has index 2l + δ.
    """
    l = mask.l
    vertical, slash = np.zeros(l), np.zeros(2 * l)
    on_vertical, on_slash = np.zeros(l, bool), np.zeros(2 * l, bool)
    on_vertical[keys], on_slash[distances] = True, True
    for rows in exact.stripes(*mask.shape):
        x = np.asarray(exact.seen_logits(Q, K, mask, rows), np.float64)
        exp_rows(x, x.max(axis=1))
        x /= x.sum(axis=1, keepdims=True)
        span = mask.span(rows)
        apart = mask.positions[rows][:, None] - np.arange(*span.indices(l))
        x[on_vertical[span] | on_slash[apart]] = 0.0
        for weights, distance in zip(x, apart):  # in a row each distance is there once
            vertical[span] += weights
            slash[distance] += weights
    return vertical, slash
