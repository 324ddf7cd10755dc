"""Error bounds for estimates by drawn keys in each row, with probability at least 1 − δ.

A row of `approx.combinations.sampled.Sampled` holds some keys and draws b of the rest. The held
part of the row sum D = Σ exp(q·k) is known exactly. The drawn keys are a sample of the rest, and
`analysis.bounds.concentration` bounds its sum. The other bounds follow from bounds of D.

- The weights of the estimate, w_j exp(q·k_j)/D̂, exceed those of exact attention only on read keys.
  Their total variation is Σ_read (w_j exp(q·k_j)/D̂ − exp(q·k_j)/D)₊, which rises with D: an upper
  bound of D is enough.
- D̂/D − 1 is between D̂/D_high − 1 and D̂/D_low − 1.
- Let c be any point that does not depend on the draw. Then o − c = (A + Y)/D, where A is the held
  part of Σ exp(q·k_j)(v_j − c), and Y the rest. So
  |ô − o| ≤ |Ŷ − Y|/D_low + |ô − c|·max |D̂/D − 1|, and Bernstein's inequality for vectors bounds
  |Ŷ − Y|. Here c is the output of the held keys.

**Required knowledge.** A sample gives a bound only if the largest possible exp(q·k) of the rest is
known (see `analysis.bounds.concentration`). ``largest`` names its source:

- ``boxes``: the keys of each page lie in a box, as in Quest, which bounds q·k. This is proved, and
  reads 2·d numbers per page.
- ``held``: the support is `top_k`, so that no other key is above the least held one. This is
  proved, too, but the support sees all logits.
- ``read``: no unread key is above the largest read one. This is an *assumption*, which depends on
  the draw.
- a log for each row: the user asserts that no q·k of the rest is above it.

Bounds that hold with certainty are used as well: D is at least the sum over the read keys, and at
most this sum plus the bound of the boxes over the unread keys.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import logsumexp, ndtri

from analysis.bounds import concentration, inclusion, residuals
from analysis.bounds.inclusion import ReadEntries
from approx import Approximation, checks
from approx.checks import Array
from approx.combinations.sampled import Sampled
from approx.estimate import exact
from approx.sparse.top_k import TopK
from approx.supports import boxes
from approx.supports.key_boxes import SIZE, lengths

LARGEST = ("boxes", "held", "read")
SLACK = 1e-12  # by which logs of sums are rounded outwards, above all roundings of a row
WORDS = {
    "boxes": "none: the boxes of the pages hold the keys",
    "held": "none: top_k holds every key that is above its least one",
    "read": "no unread key has a larger q·k than the largest that was read",
    "given": "no q·k of the rest is above what was given",
}
NORMAL = "the mean of the draws is normal, with the deviation of the draws"


def upper_bounds(
    estimate: Approximation,
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike | None = None,
    *,
    method: Sampled,
    delta: float = 0.05,
    kind: str = "empirical_bernstein",
    largest: str | ArrayLike = "boxes",
    size: int = SIZE,
) -> pd.DataFrame:
    """Return upper bounds on the errors of each row, each with probability at least 1 − δ.

    Parameters
    ----------
    estimate : Approximation
        The estimate of `method` for these Q and K, with its mask.
    Q, K, V : (n, d), (l, d), (l, c)
        V is needed for ``output_absolute_error``.
    method : Sampled
        With design "uniform", also with ``epsilon``, or "multinomial". It needs weights, a draw for
        each row, and no low-rank part.
    delta : float
        0 < δ < 1. The bound of one row fails with probability at most δ over the draws of its keys,
        everything else given. For all n rows at once use δ/n.
    kind : {"empirical_bernstein", "hoeffding", "betting", "normal"}
        See `analysis.bounds.concentration`. "normal", which vAttention [1]_ uses, is not a proved
        bound.
    largest : {"boxes", "held", "read"} or (n,)
        The source of the largest q·k of the rest, see above.
    size : int
        Keys per page.

    Returns
    -------
    DataFrame
        One row per query:

        - ``drawn``, ``unread``: the number of draws, and of visible keys that were not read; both
          0 if all were read
        - ``row_sum``: an upper bound of |D̂/D − 1|; inf if D/D̂ has no positive lower bound
        - ``attention_tv``: an upper bound of the total variation from exact attention, at most 1
        - ``output_absolute_error``: an upper bound of |ô − o|₂; NaN without V
        - ``kind``, ``delta``
        - ``assumes``: the assumption that the bounds need and that is not checked

    Raises
    ------
    ValueError
        No bound is proved for the method, or the method did not make this estimate.

    Notes
    -----
    Each of the three bounds holds with probability 1 − δ; together they fail with probability 3δ
    at most. The bound of the output uses |Σ Y_t/b − Y| ≤ R·(2L/b + √(2σ²L/b)) with L = log(2/δ′),
    |Y_t| ≤ R, σ²R² ≥ E|Y_t|² [2]_ and δ′ = δ/4. Chernoff's inequality gives
    √σ² ≤ √(m + L′/2b) + √(L′/2b) from the mean m of |Y_t|²/R², with L′ = log(1/δ′), for every kind
    except "normal". Both inequalities hold for draws without replacement too, by Hoeffding's
    comparison of convex functions of sums [3]_.

    The bound of the output is loose. On 24 rows of SmolLM2 (``top_k`` of 32 keys, 32 draws, kind
    "betting", δ = .05) it was 10 to 56 times the 95 % quantile of the error over draws; the bound
    of the row sum was 1.6 to 3.8 times its quantile.

    Rounding is outwards in the boxes only; logs of sums are widened by 10⁻¹².

    Cost: O(n·l·d/size) for the boxes, by row stripes, plus the reads.

    References
    ----------
    .. [1] A. Desai et al., "vAttention: verified sparse attention", arXiv 2510.05688, 2025.
    .. [2] S. Smale, D.-X. Zhou, "Learning theory estimates via integral operators and their
       approximations", Constructive Approximation 26, 2007, Lemma 2 (from memory).
    .. [3] W. Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58,
       1963, Theorem 4.

    Examples
    --------
    Half of 64 equal keys are drawn. Their boxes are points, so that the row sum is certain:

    >>> method = Sampled(k=32)
    >>> Q, K = np.zeros((1, 1)), np.zeros((64, 1))
    >>> estimate = method.approximate(Q, K, rng=0)
    >>> table = upper_bounds(estimate, Q, K, method=method)
    >>> table[["drawn", "unread", "row_sum", "attention_tv"]].round(9)
       drawn  unread  row_sum  attention_tv
    0     32      32      0.0           0.5
    """
    q, k = residuals.queries_keys(estimate, Q, K)
    checks.one_of("kind", kind, concentration.KINDS)
    failure = concentration.level(delta)
    page = checks.integer("size", size, least=1)
    values = None
    if V is not None:
        values = checks.values(V, len(k)).reshape(len(k), -1).astype(np.float64)
    draws = inclusion.draws(estimate, q, k, method)
    caps, assumed = _caps(largest, method, draws)
    question = _SampledRows(draws, q.astype(np.float64), k.astype(np.float64), caps, page, kind)
    low, high = question.totals(failure / 2)
    found = {
        "drawn": draws.count,
        "unread": question.unread.keys,
        "row_sum": _relative(question.estimate, low, high),
        "attention_tv": _variation(draws, question.estimate, question.totals(failure)[1]),
        "output_absolute_error": math.nan if values is None else question.output(values, failure),
    }
    assumed = NORMAL if kind == "normal" else assumed
    return pd.DataFrame(found).assign(kind=kind, delta=failure, assumes=assumed)


def _caps(largest: str | ArrayLike, method: Sampled, draws: ReadEntries) -> tuple[Array, str]:
    """Return an upper bound of q·k over the rest of each row, and the assumption that it needs."""
    n = draws.mask.n
    if not isinstance(largest, str):
        caps = checks.array("largest", largest, ndim=1).astype(np.float64)
        if len(caps) != n:
            raise ValueError(f"largest must be a log for each of {n} queries, got {len(caps)}")
        return caps, WORDS["given"]
    checks.one_of("largest", largest, LARGEST)
    caps = np.full(n, np.inf)
    if largest == "held":
        if not isinstance(method.sparse, TopK):
            raise ValueError(
                f'largest="held" needs the support top_k, not {method.sparse}: '
                'use "boxes", or "read" where that may be assumed'
            )
        np.minimum.at(caps, draws.rows[draws.times == 0], draws.logits[draws.times == 0])
    elif largest == "read":
        caps[:] = -np.inf
        np.maximum.at(caps, draws.rows, draws.logits)
    return caps, WORDS[largest]


class _UnreadBounds(NamedTuple):
    """Certain bounds for the unread keys of each row, (n,) each.

    ``top`` bounds the log of exp(q·k)/p over the keys that the row draws from. ``low`` and ``high``
    enclose the log of the sum of exp(q·k) over unread keys. ``far_top`` and ``far_high`` are the
    same upper bounds for exp(q·k)·|v − c|. ``reach`` bounds |v − c| over all visible keys.
    """

    keys: Array
    top: Array
    low: Array
    high: Array
    far_top: Array
    far_high: Array
    reach: Array


@dataclasses.dataclass(frozen=True, eq=False)
class _SampledRows:
    """The draws, the bounds of the unread keys, and the kind of bound to compute."""

    draws: ReadEntries
    q: Array
    k: Array
    caps: Array
    page: int
    kind: str

    @functools.cached_property
    def estimate(self) -> Array:
        """The log of D̂, (n,)."""
        return self.draws.log_sums(self.draws.logits + self.draws.log_weights)

    @functools.cached_property
    def held(self) -> Array:
        """The log of the sum over the held keys, (n,)."""
        on = np.where(self.draws.times == 0, self.draws.logits, -np.inf)
        return self.draws.log_sums(on)

    @functools.cached_property
    def read(self) -> Array:
        """The log of the sum over the read keys, (n,)."""
        return self.draws.log_sums(self.draws.logits)

    @functools.cached_property
    def unread(self) -> _UnreadBounds:
        """Certain bounds for the unread keys."""
        return self.beyond(np.zeros((len(self.k), 1)), np.zeros((len(self.q), 1)))

    @functools.cached_property
    def groups(self) -> list[tuple[Array, Array]]:
        """Rows with the same number b of draws, and the entries of each draw, (rows, b)."""
        draws, found = self.draws, []
        several = np.repeat(np.arange(len(draws.times)), draws.times)
        ends = np.concatenate([[0], np.cumsum(draws.count)])
        open_rows = (self.unread.keys > 0) & (draws.count > 0)
        for b in np.unique(draws.count[open_rows]):
            rows = np.flatnonzero(open_rows & (draws.count == b))
            found.append((rows, several[ends[rows][:, None] + np.arange(b)]))
        return found

    def totals(self, failure: float) -> tuple[Array, Array]:
        """Return a lower and an upper bound of log D; each fails with at most this probability."""
        draws = self.draws
        low = np.logaddexp(self.read, self.unread.low)
        high = np.logaddexp(self.read, self.unread.high)
        for rows, entries in self.groups:
            z = draws.logits[entries] - draws.log_p[entries]
            top = np.maximum(self.unread.top[rows], z.max(axis=1))
            x = np.exp(z - top[:, None])
            N = draws.population[rows]
            given: Any = {"kind": self.kind, "population": N if np.isfinite(N).all() else None}
            with np.errstate(divide="ignore"):
                least = top + np.log(concentration.lower(x, failure, **given))
                most = top + np.log(concentration.upper(x, failure, **given))
            low[rows] = np.maximum(low[rows], np.logaddexp(self.held[rows], least))
            high[rows] = np.minimum(high[rows], np.logaddexp(self.held[rows], most))
        return low - SLACK, high + SLACK

    def output(self, values: Array, failure: float) -> Array:
        """Return upper bounds of |ô − o|; each fails with at most this probability."""
        draws, part = self.draws, failure / 4
        low, high = self.totals(part)
        centre = self._centre(values)
        shares = np.exp(draws.logits + draws.log_weights - self.estimate[draws.rows])
        off = draws.about(shares, values, centre)  # ô − c
        beyond = self.beyond(values, centre)
        # the certain bound: drawn keys get weight 1, and the boxes bound the unread keys
        rest = np.where(draws.times > 0, np.exp(draws.logits - self.read[draws.rows]), 0.0)
        change = draws.about(-rest * np.expm1(draws.log_weights), values, centre)
        with np.errstate(divide="ignore"):
            error = np.log(lengths(change)) + self.read
        error = np.logaddexp(error, beyond.far_high)
        for rows, entries in self.groups:
            by_chance = self._vector(values, centre, beyond.far_top, rows, entries, part)
            error[rows] = np.minimum(error[rows], by_chance)
        with np.errstate(over="ignore"):
            found = np.exp(error - low)
            found += lengths(off) * _relative(self.estimate, low, high)
        reach = self.beyond(values, centre + off).reach
        return np.asarray(np.minimum(found * (1 + SLACK), reach))

    def _centre(self, values: Array) -> Array:
        """Return the output of the held keys, or the middle of all values if a row holds none."""
        draws = self.draws
        some = np.isfinite(self.held)
        logs = np.where(draws.times == 0, draws.logits, -np.inf)
        shares = np.exp(logs - np.where(some, self.held, 0.0)[draws.rows])
        middle = (values.min(axis=0) + values.max(axis=0)) / 2
        none = np.zeros((len(self.q), values.shape[1]))
        return np.asarray(np.where(some[:, None], draws.about(shares, values, none), middle))

    def _vector(
        self, values: Array, centre: Array, far_top: Array, rows: Array, entries: Array, part: float
    ) -> Array:
        """Return the log of a bound of |Ŷ − Y| that fails with probability at most 2·part."""
        draws, b = self.draws, entries.shape[1]
        found = np.empty(len(rows))
        for part_rows in exact.stripes(len(rows), b * values.shape[1]):
            some, at = rows[part_rows], entries[part_rows]
            y = values[draws.keys[at]] - centre[some, None]
            with np.errstate(divide="ignore"):
                size = np.log(lengths(y))
            z = draws.logits[at] - draws.log_p[at]
            top = np.maximum(far_top[some], (z + size).max(axis=1))
            seen = np.isfinite(top)  # where all values are alike, nothing is off
            y *= np.exp(z - np.where(seen, top, 0.0)[:, None])[:, :, None]
            square = np.square(y).sum(axis=2).mean(axis=1)
            if self.kind == "normal":
                spread = square - np.square(y.mean(axis=1)).sum(axis=1)
                left = 1 - b / draws.population[some]
                error = -ndtri(part) * np.sqrt(np.maximum(spread, 0.0) * left / (b - 1))
            else:
                L, L1 = math.log(2 / part), math.log(1 / part) / (2 * b)
                deviation = np.sqrt(square + L1) + math.sqrt(L1)
                error = 2 * L / b + math.sqrt(2 * L / b) * deviation
            with np.errstate(divide="ignore"):
                found[part_rows] = np.where(seen, top + np.log(error), -np.inf)
        return found

    def beyond(self, values: Array, centre: Array) -> _UnreadBounds:
        """Return the bounds of the pages' boxes for the unread keys."""
        draws, size = self.draws, self.page
        lo, hi = boxes.page_boxes(self.k, size)
        v_lo, v_hi = boxes.page_boxes(values, size)
        middle, half = (v_lo + v_hi) / 2, lengths(v_hi - v_lo) / 2
        begins = size * np.arange(len(lo))
        ends = np.minimum(begins + size, len(self.k))
        found = []
        for rows in exact.stripes(*draws.mask.shape):
            lower, upper = boxes.bounds(self.q[rows], lo, hi)
            upper = np.minimum(upper, self.caps[rows, None])
            first, stop = (x[rows, None] for x in (draws.mask.first, draws.mask.stop))
            seen = np.clip(np.minimum(stop, ends) - np.maximum(first, begins), 0, None)
            mine = slice(draws.indptr[rows.start], draws.indptr[rows.stop])
            place = (draws.rows[mine] - rows.start) * len(lo) + draws.keys[mine] // size
            left, rest = (
                seen - np.bincount(place[some], minlength=seen.size).reshape(seen.shape)
                for some in (slice(None), draws.times[mine] == 0)
            )
            far = lengths(middle - centre[rows, None]) + half
            with np.errstate(divide="ignore"):
                count, log_far = np.log(left), np.log(far)
            tops = self._tops(rows, rest, upper, log_far)
            found.append(
                (
                    left.sum(axis=1), tops[0], _log_sum(np.minimum(lower, upper) + count),
                    _log_sum(upper + count), tops[1], _log_sum(upper + count + log_far),
                    np.where(seen > 0, far, 0.0).max(axis=1),
                )
            )  # fmt: skip
        return _UnreadBounds(*(np.concatenate(x) for x in zip(*found)))

    def _tops(self, rows: slice, rest: Array, upper: Array, far: Array) -> tuple[Array, Array]:
        """Return bounds of log exp(q·k)/p, and of the same with |v − c|, over keys to draw from.

        They must not depend on the draw, because the final bound need not rise with them.
        """
        draws = self.draws
        if draws.shares is None:
            with np.errstate(divide="ignore"):
                count = np.log(draws.population[rows])
            on = np.where(rest > 0, upper, -np.inf)
            return on.max(axis=1) + count, (on + far).max(axis=1) + count
        tops = np.full((2, len(upper)), -np.inf)
        for i in range(rows.start, rows.stop):
            keys, log_p = draws.shares(i)
            page = keys // self.page
            most = upper[i - rows.start, page] - log_p
            tops[0, i - rows.start] = most.max(initial=-np.inf)
            tops[1, i - rows.start] = (most + far[i - rows.start, page]).max(initial=-np.inf)
        return tops[0], tops[1]


def _log_sum(logs: Array) -> Array:
    """Return the log of the sum of exp over each row; −inf for an empty row."""
    with np.errstate(divide="ignore"):
        return np.asarray(logsumexp(logs, axis=1))


def _relative(estimate: Array, low: Array, high: Array) -> Array:
    """Return the largest possible |D̂/D − 1|, from the logs of D̂ and of bounds of D."""
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(np.expm1(estimate - low), -np.expm1(estimate - high)))


def _variation(draws: ReadEntries, estimate: Array, high: Array) -> Array:
    """Return the total variation for the largest possible row sum."""
    own = np.exp(draws.logits + draws.log_weights - estimate[draws.rows])
    least = np.exp(draws.logits - high[draws.rows])
    return np.minimum(np.bincount(draws.rows, np.maximum(own - least, 0.0), draws.mask.n), 1.0)
