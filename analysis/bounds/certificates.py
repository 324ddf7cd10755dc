"""Certificates: upper bounds on the error of attention in each row of an estimate.

A support reads some keys of a row; of its other keys it knows only the box of their page. The
boxes bound the sum of exp(q·k) over the unread keys, and so the error of attention, without the
logits of these keys. These bounds hold for one estimate of one row;
`approx.polynomials.error_bounds` has bounds that hold before an estimate is made.
"""

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import ArrayLike

from analysis.bounds import residuals
from approx import Approximation, checks
from approx.checks import Array
from approx.estimate import exact
from approx.estimate.corrections import Support
from approx.estimate.masks import ALL
from approx.supports.key_boxes import EPS, TINY, PageBoxes, lengths
from approx.supports.unread import Unread

STEPS = 3  # steps of the secant method for the bound of the output


def row_bounds(
    estimate: Approximation,
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike | None = None,
    *,
    known: PageBoxes | None = None,
    dropped: residuals.OffSupport | None = None,
    entries: bool = False,
) -> pd.DataFrame:
    """Return upper bounds on the errors of attention in each row, from what the estimate has read.

    Parameters
    ----------
    estimate : Approximation
        An estimate of exp(Q Kᵀ) or of its row-softmax, with its mask.
    Q, K : (n, d), (l, d)
        Logits are computed only for the keys that the estimate read. If ``known`` is not given,
        the boxes of all pages are made from K, once.
    V : (l, c), optional
        Adds ``output_absolute_error``; V is read as K is.
    known : PageBoxes, optional
        The boxes of K, and of V if V is given; by default boxes of 16 keys.
    dropped : OffSupport, optional
        The residual from `analysis.bounds.residuals.off_support`, for an estimate by a
        decomposition. It needs all logits; whoever made the decomposition had them.
    entries : bool
        Whether to read every entry of an estimate that is more than a support. This costs
        rank·l numbers per row, usually no less than exact attention.

    Returns
    -------
    DataFrame
        A row per query:

        - ``attention_tv``: an upper bound of ½ Σ_j |estimate − exact| of the row of attention, as
          `analysis.errors.metrics.compare` defines it; 1 for an empty row, NaN without a bound
        - ``output_absolute_error``: an upper bound of ‖estimate V − exact V‖₂ of the row (absolute)
        - ``kind``: what the bound follows from: "support", "dropped", "entries" or "none"
        - ``keys``: the number of keys whose logits the estimate has read
        - ``entries``: the number of other entries of the estimate that the bound has read
        - ``pages``: the number of pages whose box was read
        - ``numbers``, ``bits``: numbers, and bits of codes, that were read from the `PageBoxes`
        - ``reason``: why there is no bound, or ""

    Raises
    ------
    ValueError
        Shapes do not fit, or V is given and ``known`` has no boxes of values.

    Notes
    -----
    *Support*: the estimate is exact on the keys S, perhaps with weights, and 0 elsewhere. Let M be
    the sum of exp(q·k) over S, R the sum over the unread keys, and p̂ the row of the estimate. The
    boxes give L ≤ R ≤ U. Exact attention on S is exp(q·k)/Z with Z = M + R, so that
    tv = Σ_S max(p̂ − exp(q·k)/Z, 0), which grows with Z ≤ M + U. Without weights the bound is
    U/(M + U), the largest possible share of the unread keys. A partly read page contributes its
    unread keys. In attention space tv is convex in 1/Z, so its maximum is at an end of
    [M + L, M + U].

    The error of the output is Σ p_j(v_j − estimate) over unread keys, plus the effect of the
    weights on S. Let R_b in [L_b, U_b] be the sum over the unread keys of page b, and
    D_b ≥ ‖v − estimate‖ for its values. The first part is at most the largest
    Σ_b R_b D_b/(M + Σ_b R_b), which is at most U/(M + U) times the largest D_b.

    *Entries*: the estimate has entries for unread keys, too. If the box of such a key gives
    a ≤ q·k ≤ b, its exact share of attention is in [e^a/Z, e^b/Z]. The bound sums the possible
    excess over these shares, or the possible deficit. *Dropped*: see `analysis.bounds.residuals`.
    An estimate by random features has only the bound by ``entries``, at the cost of exact
    attention.

    The bounds are rigorous: they include every rounding, outwards. The entries are the rounded
    ones that `Approximation.block` returns at its own scale; further roundings of `attend` are not
    included. The bounds hold for any mask and with certainty.

    Cost: O(n·(l·d/size + keys·d)); with codes or entries O(n·l·d). By row stripes.

    References
    ----------
    .. [1] J. Tang et al., "Quest: query-aware sparsity for efficient long-context LLM inference",
       ICML 2024: the boxes.
    .. [2] N. J. Higham, "Accuracy and stability of numerical algorithms", SIAM 2002, section 3.1.

    Examples
    --------
    One of four equal keys is read, and the boxes are points: three quarters are unread.

    >>> from approx import parse
    >>> Q, K = [[1.0]], [[1.0]] * 4
    >>> estimate = parse("top_k(k=1)").approximate(Q, K)
    >>> row_bounds(estimate, Q, K)[["attention_tv", "kind", "keys", "pages"]].round(9)
       attention_tv     kind  keys  pages
    0          0.75  support     1      1
    """
    q, k = (x.astype(np.float64) for x in residuals.queries_keys(estimate, Q, K))
    v = None if V is None else checks.values(V, len(k)).astype(np.float64).reshape(len(k), -1)
    if known is None:
        known = PageBoxes.from_keys(k, v)
    if known.l != len(k) or known.lo.shape[1] != k.shape[1]:
        raise ValueError(
            f"known must hold boxes of K {k.shape}, got {known.l} keys of {known.lo.shape[1]}"
        )
    if v is not None and (known.centre is None or known.centre.shape[1] != v.shape[1]):
        raise ValueError("known has no boxes of these values: make it by PageBoxes.from_keys(K, V)")
    checks.flag("entries", entries)
    kind, reason = _kind(estimate, dropped, entries)
    if dropped is not None and len(dropped.tv) != len(q):
        raise ValueError(f"dropped is of {len(dropped.tv)} rows, the estimate has {len(q)}")
    tables = [
        _Stripe(estimate, rows, q[rows], k, v, known, kind, dropped).table()
        for rows in exact.stripes(len(q), len(k))
    ]
    table = pd.concat(tables, ignore_index=True)
    return table.assign(kind=kind, reason=reason)


of = row_bounds  # the public name, `analysis.certificates.of`


def _kind(
    estimate: Approximation, dropped: residuals.OffSupport | None, entries: bool
) -> tuple[str, str]:
    """Return the kind of the bounds of an estimate, and the reason if there is none."""
    if dropped is not None:
        return "dropped", ""
    if not estimate.rank and (estimate.correction is None or estimate.replaces):
        return "support", ""
    if entries:
        return "entries", ""
    return "none", (
        "the estimate has entries that no logit was read for: give entries=True, or dropped= for "
        "a decomposition"
    )


class _Stripe(Unread):
    """A stripe of rows: what is known about them, and the bounds that follow."""

    def __init__(
        self,
        estimate: Approximation,
        rows: slice,
        q: Array,
        k: Array,
        v: Array | None,
        known: PageBoxes,
        kind: str,
        dropped: residuals.OffSupport | None,
    ) -> None:
        self.estimate, self.rows, self.v, self.kind = estimate, rows, v, kind
        self.dropped = dropped
        self.normalised = estimate.space == "kernel"
        read = scipy.sparse.csr_array((len(q), len(k)))  # the keys whose logits are read
        if isinstance(estimate.correction, Support):
            read = estimate.correction.restricted(rows, ALL).matrix
        super().__init__(estimate.mask.take(rows), read, known)
        if kind in ("support", "entries"):
            self.bound(q, k)
            self.M_low = self.over_read(self.low) * (1 - self.round)
            self.M_high = self.over_read(self.high) * (1 + self.round)
            # If a whole row underflows, TINY/Z_low is 1: nothing is known about its shares.
            self.Z_low, self.Z_high = np.maximum(self.M_low + self.L, TINY), self.M_high + self.U
            self.unread_share = self.U / (self.M_low + self.U) * (1 + 4 * EPS)

    def _longest(self, x: Array) -> Array:
        """Return the largest of x ≥ 0 over the keys that were read, (rows,)."""
        found = np.zeros(len(self.counts))
        np.maximum.at(found, self.row, x[self.s.indices])
        return found

    def table(self) -> pd.DataFrame:
        """Return the bounds and the counts of what was read, a row per query."""
        n = len(self.counts)
        entries, pages, numbers, bits = (np.zeros(n, np.int64) for _ in range(4))
        d, c = self.known.lo.shape[1], 0 if self.v is None else self.v.shape[1] + 1
        if self.kind in ("support", "entries"):
            bounds = self._of_support if self.kind == "support" else self._of_entries
            found = bounds()
            if self.estimate.fitted:
                self.normalised = True  # tv divides the rows by their sums, the output does not
                found = bounds()[0], found[1]
            unread = self.by_page(self.unread)
            pages = (unread > 0).sum(axis=1)
            numbers, bits = pages * (2 * d + c), unread.sum(axis=1) * (d * self.known.bits)
            entries = unread.sum(axis=1) if self.kind == "entries" else entries
        elif self.dropped is not None:
            tv, apart = self.dropped.tv[self.rows], self.dropped.difference[self.rows]
            finite = np.isfinite(apart)
            found = tv, np.where(finite, self._spread(np.where(finite, apart, 1)), np.inf)
            if c:
                pages = self._seen_pages().sum(axis=1)
            numbers = self.dropped.blocks[self.rows] + pages * c
        else:
            found = np.full(n, np.nan), np.full(n, np.nan)
        columns: dict[str, Any] = {"attention_tv": found[0]}
        if self.v is not None:
            columns["output_absolute_error"] = found[1]
        columns |= {"keys": self.counts, "entries": entries}
        columns |= {"pages": pages, "numbers": numbers, "bits": bits}
        return pd.DataFrame(columns)

    def _scale(self, shift: Array) -> Array:
        return np.exp(np.minimum(shift.astype(np.float64), 709.0))

    def _of_support(self) -> tuple[Array, Array]:
        """Return the bounds on tv and on the output error, for exact entries on a support."""
        correction, more = self.estimate.correction, 1 + 4 * self.round
        shift = self.estimate.row_log(self.rows)
        p = np.zeros(0)
        if isinstance(correction, Support):
            p = correction.restricted(self.rows, ALL).scaled(shift).data.astype(np.float64)
        total = self.over_read(p)
        empty = ~(total > 0)
        p *= (1 / np.where(empty, 1, total) if self.normalised else self._scale(shift))[self.row]
        if self.normalised:
            least = self.low / self.Z_high[self.row] * (1 - 4 * EPS)
            tv = self.over_read(np.maximum(p * more - least, 0)) * more + self.least
            tv = np.where(empty, 1.0, np.minimum(tv, 1))
        else:
            tv = np.zeros(len(total))
            for Z in (self.Z_low, self.Z_high):
                shares = self.low / Z[self.row], self.high / Z[self.row]
                apart = np.maximum(*(np.abs(p - x) for x in shares))
                read = self.over_read(apart + 4 * self.round * (p + shares[1]))
                rest = np.maximum(1 - self.M_low / Z, 0) + 8 * self.round
                tv = np.maximum(tv, (read + rest) / 2 * more + self.least)
            tv = np.where(empty, np.maximum(tv, 1), tv)
        if self.v is None:
            return tv, tv
        if not self.normalised:
            return tv, self._spread(tv)
        return tv, np.where(empty, self._farthest(), self._output(p))

    def _output(self, p: Array) -> Array:
        """Return a bound on ‖output − exact output‖ for rows p of sum 1 on the support."""
        assert self.v is not None
        n, more = len(self.counts), 1 + 8 * self.round

        v = self.v

        def times_values(shares: Array) -> Array:
            s = scipy.sparse.csr_array((shares, self.s.indices, self.s.indptr), self.s.shape)
            return np.asarray(s @ v)

        out = times_values(p)
        longest = self._longest(lengths(v))
        off = 4 * self.round * longest  # of `out`, as rows sum to 1
        U, M = self.by_page(self.unread * self.cell_high) * more, self.M_low
        L = self.by_page(self.unread * self.cell_low) * (1 - self.round)
        distances = self.known.from_centres(out, off)
        D = np.where(self.by_page(self.unread) > 0, distances, 0.0)

        def g(f: Array) -> tuple[Array, Array]:
            mass = np.where(f[:, None] < D, U, L)
            return (mass * (D - f[:, None])).sum(axis=1) - f * M, mass.sum(axis=1) + M

        # f is a bound if g(f) ≤ 0: then no masses R of pages have Σ R D > f·(M + Σ R). g is convex
        # and decreasing, and ≤ 0 at `most`. A tangent meets 0 before the root; from there, the
        # chord to a bound meets 0 after the root, at a better bound.
        most = D.max(axis=1) * self.unread_share * more
        low, high = np.zeros(n), most
        for _ in range(STEPS):
            value, slope = g(low)
            low = np.minimum(low + np.maximum(value, 0) / np.maximum(slope, TINY), high)
            above, below = np.maximum(g(low)[0], 0), np.maximum(-g(high)[0], 0)
            part = np.divide(below, above + below, out=np.zeros(n), where=below > 0)
            high = high - (high - low) * part
        # On the support: attention by the computed logits, against attention by the exact ones. If
        # weights are off by factors e^±off, the shares' errors add to twice the mean of e^off − 1.
        x = self.logits
        tops = np.full(n, -np.inf)
        np.maximum.at(tops, self.row, x)
        weights = np.exp(x - tops[self.row])
        shares = weights / np.maximum(self.over_read(weights), TINY)[self.row]
        moved = 2 * self.over_read(shares * np.expm1(np.minimum(self.off, 700.0))) + 8 * self.round
        inside = lengths(times_values(shares - p)) + moved * longest
        bound = (high + inside + off) * more + 16 * self.round * most + self.least
        # a mean of values is no farther from a point than the farthest value
        return np.asarray(np.minimum(bound, np.maximum(self._farthest(out, off), 2 * longest)))

    def _seen_pages(self) -> Array:
        """Return whether a row sees a key of each page, (rows, pages)."""
        starts = self.known.starts
        first, stop = self.mask.first[:, None], self.mask.stop[:, None]
        return np.asarray((starts < stop) & (starts + self.known.size > first))

    def _farthest(self, points: Array | None = None, off: float | Array = 0.0) -> Array:
        """Return a bound on ‖v − x‖ over a row's visible values, for x within `off` of `points`.

        Without `points`, x is 0.
        """
        assert self.v is not None
        n = len(self.counts)
        points = np.zeros((n, self.v.shape[1])) if points is None else points
        D = self.known.from_centres(points, np.broadcast_to(off, n))
        return np.asarray(np.where(self._seen_pages(), D, 0.0).max(axis=1))

    def _spread(self, tv: Array) -> Array:
        """Return a bound on the output error from tv alone: 2 tv times a radius of the values.

        The centre is free if rows sum to 1, because their difference then sums to 0; else it is 0.
        """
        if self.v is None:
            return tv
        assert self.known.centre is not None
        middle = self.known.centre.mean(axis=0) if self.normalised else 0 * self.known.centre[0]
        points = np.broadcast_to(middle, (len(tv), len(middle)))
        with np.errstate(over="ignore"):
            return np.asarray(2 * tv * self._farthest(points) * (1 + 8 * EPS))

    def _of_entries(self) -> tuple[Array, Array]:
        """Return the bounds for an estimate whose entries are all known."""
        more, shift = 1 + 4 * self.round, self.estimate.row_log(self.rows)
        p = self.estimate.block(self.rows, shift=shift).astype(np.float64)
        total, slack = p.sum(axis=1), self.round * np.abs(p).sum(axis=1)  # terms of p may cancel
        zero = total <= -slack if self.normalised else ~p.any(axis=1)
        lost = (total <= slack) if self.normalised else zero  # the sum may be 0
        if self.normalised:
            unit = 1 / np.where(lost, 1, total)
            blur = slack * np.abs(unit) + 4 * self.round
            # the computed sum may be a little above the true one
            blur = np.where(lost, 0, blur / np.maximum(1 - slack * np.abs(unit), EPS))
        else:
            unit, blur = self._scale(shift), np.full(len(p), 4 * self.round)
        with np.errstate(over="ignore"):
            p *= unit[:, None]
        cell = np.arange(self.known.l) // (1 if self.known.bits else self.known.size)
        low, high = self.cell_low[:, cell], self.cell_high[:, cell]
        at = self.row, self.s.indices
        low[at], high[at] = self.low, self.high
        low = low / self.Z_high[:, None] * (1 - 8 * EPS)
        high = np.minimum(high / self.Z_low[:, None] * (1 + 8 * EPS) + TINY, 1)
        read = np.zeros(p.shape, bool)
        read[at] = True
        for x in (low, high):
            self.mask.hide(x)
        blurs = np.abs(p) * blur[:, None]

        def least(x: Array, rest: Array) -> Array:
            # The unread keys' part is at most their exact share plus the estimate's entries there.
            off = np.where(read, 0, x).sum(axis=1)
            both = np.where(read, x, 0).sum(axis=1) + np.minimum(off, self.unread_share + rest)
            return np.asarray(both)

        if self.normalised:
            above = np.maximum(p + blurs - low, 0).sum(axis=1)
            negative = np.where(read, 0, np.maximum(blurs - p, 0)).sum(axis=1)
            tv = np.minimum(above, least(np.maximum(high - p + blurs, 0), negative))
        else:
            apart = np.maximum(np.abs(p - low), np.abs(high - p)) + blurs
            tv = least(apart, np.where(read, 0, np.abs(p) + blurs).sum(axis=1)) / 2
        tv = tv * more + self.least
        if self.normalised:
            tv = np.where(zero, 1.0, np.where(lost, np.inf, tv))
        else:
            tv = np.where(zero, np.maximum(tv, 1), tv)
        if self.v is None:
            return tv, tv
        output = self._spread(np.where(lost, 0, tv))
        output = np.where(zero, self._farthest(), np.where(lost, np.inf, output))
        return np.asarray(tv), output
