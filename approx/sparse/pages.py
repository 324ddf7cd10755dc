"""Pages of consecutive keys, chosen for each query by a summary of each page: Quest, UNIQUE."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from approx.checks import Array
from approx.decoding.cache import Cache
from approx.decoding.keys import KeptPages, WindowKeys
from approx.estimate import exact
from approx.estimate.masks import Mask
from approx.kernels.elementary import exp_rows
from approx.kernels.jit import kernel
from approx.method import TV, Label, Size
from approx.method.fields import flag, integer, one_of
from approx.method.prices import Numbers, Price, Shape
from approx.method.tags import (
    BY_ROW,
    ORACLE,
    POSITIONAL,
    READS_VALUES,
    ROTATION,
    SCALE,
    SHIFT,
    collect,
)
from approx.sparse.support import Rivals, SupportMethod
from approx.supports import boxes, patterns
from approx.supports.patterns import Pattern

Scorer = Callable[[slice], Array]  # rows of queries → the score of each page
BOX, MEAN, DEVIATION = range(3)  # what `score_parts` sums


class PageScore(NamedTuple):
    """The score of a page for a query.

    Attributes
    ----------
    label : str
        The name of the method that people know.
    scorer : callable
        (Q, K, mask, size) → a function of rows of queries that returns the scores of their pages.
    vectors : int
        The vectors of d numbers that are stored with a page, and read to score it.
    all_logits : bool
        Whether the score is a sum over all logits of the page, which no model can compute.
    rotated : bool
        Whether a rotation of queries and keys leaves the score as it is.
    """

    label: str
    scorer: Callable[[Array, Array, Mask, int], Scorer]
    vectors: int
    all_logits: bool = False
    rotated: bool = True


def _by_mass(Q: Array, K: Array, mask: Mask, size: int) -> Scorer:
    starts = np.arange(0, mask.l, size)

    def scores(rows: slice) -> Array:
        x = np.asarray(exact.seen_logits(Q, K, mask, rows), np.float64)
        exp_rows(x, x.max(axis=1))
        cols = mask.span(rows)
        pages = slice(cols.start // size, -(-cols.stop // size))
        found = np.zeros((len(x), len(starts)))
        begin = np.maximum(starts[pages] - cols.start, 0)
        found[:, pages] = np.add.reduceat(x, begin, axis=1)
        return found

    return scores


def _by_box(Q: Array, K: Array, mask: Mask, size: int) -> Scorer:
    lo, hi = boxes.page_boxes(K, size)
    return _completed(Q, K, mask, size, BOX, lambda q: boxes.highest(q, lo, hi))


def _by_mean(Q: Array, K: Array, mask: Mask, size: int) -> Scorer:
    means = _means(K, size)
    return _completed(Q, K, mask, size, MEAN, lambda q: q @ means.T)


def _by_deviation(Q: Array, K: Array, mask: Mask, size: int) -> Scorer:
    means = _means(K, size)
    spread = np.sqrt(_means((K - means.repeat(size, axis=0)[: mask.l]) ** 2, size))
    return _completed(Q, K, mask, size, DEVIATION, lambda q: q @ means.T + np.abs(q) @ spread.T)


def _means(x: Array, size: int) -> Array:
    """Return the mean row of each page."""
    starts = np.arange(0, len(x), size)
    lengths = np.diff(starts, append=len(x))[:, None].astype(x.dtype)
    return np.asarray(np.add.reduceat(x, starts) / lengths)


def _completed(
    Q: Array, K: Array, mask: Mask, size: int, by: int, whole: Callable[[Array], Array]
) -> Scorer:
    """Return the scores of whole pages, and of the parts of pages that a query sees."""

    def scores(rows: slice) -> Array:
        found = whole(Q[rows])
        score_parts(Q[rows], K, mask.first[rows], mask.stop[rows], size, by, found)
        return found

    return scores


SCORES = {
    "box": PageScore("pages by boxes (Quest)", _by_box, vectors=2, rotated=False),
    "mean": PageScore("pages by mean key", _by_mean, vectors=1),
    "deviation": PageScore(
        "pages by mean and deviation (UNIQUE)", _by_deviation, vectors=2, rotated=False
    ),
    "mass": PageScore("pages of most attention", _by_mass, vectors=0, all_logits=True),
}


@dataclasses.dataclass(frozen=True)
class Pages(SupportMethod):
    """The pages of keys that score highest for a query, exact: Quest.

    estimate_ij = exp(q_i·k_j) where page ⌊j/size⌋ is among the ⌊k/size⌋ pages with the highest
    scores of those that hold a key seen by query i, else 0. With S the seen keys of a page, it is

        box        Σ_c max(q_c lo_c, q_c hi_c), lo and hi the least and greatest k_c in S,
        mean       q·(mean of S),
        deviation  q·(mean of S) + Σ_c |q_c| σ_c, σ_c the standard deviation of k_c in S,
        mass       Σ_{j ∈ S} exp(q·k_j).

    Parameters
    ----------
    k : int, optional
        Most entries per row, ≥ size, rounded down to whole pages; None is a template.
    size : int
        Keys per page.
    by : {"box", "mean", "deviation", "mass"}
        The score. The box bounds q·k in the page from above, see `boxes.bounds`; mean and deviation
        bound nothing; "mass" needs all logits.
    current : bool
        Whether the page at the query's own position is always chosen.

    Notes
    -----
    The estimate is deterministic, exact on the support, and has relative bias −1 off it. Pages by
    mass hold the most attention of all sets of as many pages in a row, so they have the least total
    variation from exact attention. With ``current`` this holds among sets with the current page.
    Of equal scores the first pages are taken.
    A score uses seen keys only. So a causal query scores its own page by the keys up to its own,
    and the support is autoregressive; a row needs no other query. A page that a query sees in part
    has fewer entries.
    The score by box is q·(lo + hi)/2 + |q|·(hi − lo)/2, so "deviation" replaces the centre of the
    box by the mean, and half its width by the deviation. One outlier among s equal keys moves half
    the width by half its distance, the deviation by √(s − 1)/s of it.
    Cost: 4·n·l·d/size operations to score pages by box or deviation, 2·n·l·d/size by mean and
    2·n·l·d by mass, by row stripes; at most n·k numbers. A new query reads 2d numbers per page by
    box or deviation and d by mean, except for the current page if that is always chosen, and none
    if it sees no more pages than it reads: then it costs what exact attention costs. With a few
    keys more it costs more than that.

    The authors' code [2]_ also has pages of 16 keys; it runs only in decoding and leaves the first
    two layers exact. Its kernels keep the current page, as ``current`` does. Its evaluation in
    PyTorch scores that page like any other, the default here, and takes at least three pages.
    Of [3]_ only the abstract was read, which has the mean as representative and the deviation as an
    offset; a weight of the offset, or a norm other than this sum, may differ.

    References
    ----------
    .. [1] J. Tang, Y. Zhao, K. Zhu, G. Xiao, B. Kasikci, S. Han, "Quest: query-aware sparsity for
       efficient long-context LLM inference", ICML 2024, section 3.4, Algorithm 1.
    .. [2] github.com/mit-han-lab/Quest, commit 01c1623: evaluation/quest_attention.py,
       quest/utils/controller.py.
    .. [3] K. Deng, S. Ling, R. Fan, J. Li, "UNIQUE: universal top-k sparse attention for
       training-free inference and sparsity-aware training", 2026, arXiv 2605.27740, abstract.

    Examples
    --------
    >>> K = [[0.0], [3.0], [2.0], [2.0]]
    >>> for by in SCORES:
    ...     Pages(k=2, size=2, by=by).approximate([[1.0]], K).sparse.indices
    array([0, 1], dtype=int32)
    array([2, 3], dtype=int32)
    array([0, 1], dtype=int32)
    array([0, 1], dtype=int32)
    """

    name = "pages"
    label = Label(
        SCORES["box"].label,
        {SCORES[by].label: {"by": by} for by in ("mass", "mean", "deviation")},
    )
    examples = (
        "pages(k=2, size=2)",
        "pages(k=2, size=2, by='mean', current=True)",
        "pages(k=2, size=2, by='deviation')",
    )
    class_name = "pages"

    k: int | None = integer()
    size: int = integer(16)
    by: str = one_of("box", tuple(SCORES))
    current: bool = flag(False)

    @property
    def score(self) -> PageScore:
        """The score of a page."""
        return SCORES[self.by]

    @property
    def sized_by(self) -> Size:
        return Size("k", least=self.size, step=self.size, counts="entries", integer=False)

    @property
    def tags(self) -> frozenset[str]:
        return BY_ROW | collect(
            READS_VALUES,
            SHIFT,
            SCALE,
            self.score.all_logits and ORACLE,
            self.score.rotated and ROTATION,
            self.current and POSITIONAL,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k is not None and self.k < self.size:
            raise ValueError(f"k must hold a page, so it must be >= {self.size}, got {self.k}")

    def optimal_in(self, mask: Mask | None = None) -> set[str]:
        """Return total variation for pages by mass, of all sets of as many pages in each row."""
        return {TV} if ORACLE in self.tags else set()

    @property
    def rivals(self) -> Rivals:
        return Rivals("pages", ((self.k or 0) // self.size, self.size))

    def pattern(self, Q: Array, K: Array, mask: Mask, rng: np.random.Generator) -> Pattern:
        size, count = self.size, (self.k or 0) // self.size
        seen = Mask(mask.first // size, (mask.stop - 1) // size + 1, self.pages(mask.l))
        scores = self.score.scorer(Q, K, mask, size)
        counts, first, last = [], [], []
        for rows in exact.stripes(*mask.shape):
            x = scores(rows)
            seen.hide(x, rows, fill=-np.inf)
            own = np.arange(len(x)), mask.positions[rows] // size
            always = np.where(x[own] > -np.inf, np.finfo(x.dtype).max, -np.inf)
            if self.current:
                x[own] = -np.inf
            x = patterns.rounded(x, offset=not self.score.all_logits)
            if self.current:
                x[own] = always
            i, page = np.nonzero(patterns.largest(x, count))
            counts.append(np.bincount(i, minlength=len(x)))
            first.append(np.maximum(page * size, mask.first[rows][i]))
            last.append(np.minimum((page + 1) * size, mask.stop[rows][i]))
        indptr, indices = patterns.runs(np.concatenate(first), np.concatenate(last))
        return indptr[np.concatenate([[0], np.cumsum(np.concatenate(counts))])], indices

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        if window:
            return WindowKeys(d, c, window, self, rng, block=self.size)
        if self.score.all_logits:
            return None
        count = (self.k or 0) // self.size
        return KeptPages(d, c, self.size, count, by=self.by, current=self.current)

    def pages(self, l: int) -> int:
        """Return how many pages l keys have."""
        return -(-l // self.size)

    def held(self, mask: Mask) -> Array | None:
        if self.k is None:
            return None
        size, count = self.size, self.k // self.size
        begin, last = mask.first // size, (mask.stop - 1) // size
        first_part = np.minimum(mask.stop, (begin + 1) * size) - mask.first
        last_part = np.where(last > begin, mask.stop - last * size, 0)
        between = np.maximum(last - begin - 1, 0)
        own = np.zeros(mask.n, int)
        if self.current:  # this page is chosen even if the query sees a part only
            place = mask.positions // size
            own = np.where(place == begin, first_part, np.where(place == last, last_part, size))
            inside = (begin < place) & (place < last)
            first_part = np.where(place == begin, 0, first_part)
            last_part = np.where(place == last, 0, last_part)
            between, count = between - inside, count - 1
        full = np.minimum(between, count)
        large, small = np.maximum(first_part, last_part), np.minimum(first_part, last_part)
        left = count - full
        rest = np.where(left > 0, large, 0) + np.where(left > 1, small, 0)
        return np.asarray(own + full * size + rest)

    def _seen(self, mask: Mask) -> Array:
        return np.asarray((mask.stop - 1) // self.size - mask.first // self.size + 1)

    def _scored(self, mask: Mask) -> Array:
        seen = self._seen(mask)
        return np.where(seen > (self.k or 0) // self.size, seen - self.current, 0)

    def _price(self, shape: Shape) -> Price | None:
        per_query, of_row = self.held(shape.decoding), self.held(shape.rows)
        if per_query is None or of_row is None:
            return None
        numbers, width = self.score.vectors * shape.d, shape.d + shape.c
        reads, work = (
            keys * width + numbers * self._scored(mask)
            for keys, mask in ((per_query, shape.decoding), (of_row, shape.rows))
        )
        most = per_query[reads.argmax()]
        held = float(numbers * self._seen(shape.decoding).max())
        choice = Numbers(float(reads.max() - most * width), held)
        of_keys = self.price_of_keys(float(most), float(of_row.mean()), shape)
        of_keys = dataclasses.replace(of_keys, multiply_adds=float(work.mean()))
        return of_keys + Price.from_numbers(0.0, 0.0, choice)


@kernel
def score_parts(Q: Any, K: Any, first: Any, stop: Any, size: int, by: int, scores: Any) -> None:
    """Write the scores of a query's first and last page, from the keys of them that it sees."""
    for i in range(len(Q)):
        q, begin, end = Q[i], first[i], stop[i]
        for page in (begin // size, (end - 1) // size):
            a, b = max(begin, page * size), min(end, (page + 1) * size)
            if b - a == min((page + 1) * size, len(K)) - page * size:
                continue
            total = q.dtype.type(0)
            for c in range(q.size):
                lo = hi = mean = K[a, c]
                for j in range(a + 1, b):
                    lo, hi, mean = min(lo, K[j, c]), max(hi, K[j, c]), mean + K[j, c]
                mean = mean / (b - a)
                total += max(q[c] * lo, q[c] * hi) if by == BOX else q[c] * mean
                if by == DEVIATION:
                    square = q.dtype.type(0)
                    for j in range(a, b):
                        square += (K[j, c] - mean) ** 2
                    total += abs(q[c]) * math.sqrt(square / (b - a))
            scores[i, page] = total
