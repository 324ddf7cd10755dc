"""EVA: exact attention to some keys, and randomized attention to groups of the others."""

import dataclasses

import numpy as np
import scipy.sparse

from approx.checks import Array
from approx.estimate.corrections import Support
from approx.estimate.distances import half_square
from approx.estimate.low import Factors
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.kernels import pattern_products
from approx.mechanisms import segments
from approx.method import Method, Size
from approx.method.fields import integer, real
from approx.method.prices import Numbers, Price, Shape, low_rank, price_at
from approx.method.tags import AUTOREGRESSIVE, POSITIONAL, RANDOM, ROW_LOCAL, SCALE, collect
from approx.sparse.chunk import Chunk
from approx.sparse.support import SupportMethod, a_support
from approx.supports.patterns import runs


@dataclasses.dataclass(frozen=True)
class Eva(Method):
    """EVA: exact on a support, one draw per group of keys off it; softmax rows, biased.

    estimate_ij = exp(q_i·k_j)/Z_i on the support E, |P_c| exp(q_i·k̄_c)/Z_i · r_j off it, j ∈ P_c,
    r_j = ξ(k_j, ω_c)/Σ_{p ∈ P_c} ξ(k_p, ω_c),  ξ(k, ω) = e^{ω·k − |k|²/2},  ω_c ~ N(q̄_c + k̄_c, I).

    Parameters
    ----------
    m : int, optional
        Number of groups P_c, which are consecutive segments of keys; 1 ≤ m ≤ min(n, l). None is a
        template.
    sparse : Method
        The support E, such as the query's own chunk or a window.
    share : float
        Share of a budget that goes to entries, 0 < share < 1.
    size : int, optional
        Keys per group, instead of m: then groups stay the same when keys are added.

    Notes
    -----
    The rows are in attention space. Z_i makes every row sum to 1; entries are ≥ 0. The estimate is
    **exact when E holds every key**, and then does not depend on the draws. Off E it is biased.
    First, exp(q·k̄_c) replaces the mean of exp(q·k) over a group. It is too small, by Jensen's
    inequality, and off by about the variance of the group's logits. Second, one ω per group
    replaces one draw per query. The moments are not known in closed form. Nothing is learned: q̄_c,
    k̄_c are plain means of segments. The paper's equation and public code leave out |P_c|, which
    gives a group the weight of one key; public code also counts keys of E again in their groups.
    Cost: 2(n + l)·m·d operations and 2·nnz·d, (n + l)·m + nnz numbers. Without a mask
    groups depend on all queries and keys.
    Under a mask a query uses the groups that it sees whole, as in the paper's causal form, where E
    holds the other keys. Here a key that is neither in E nor in such a group has weight 0. Groups
    have ⌈l/m⌉ keys each, or ``size``, and q̄_c is the mean of the queries at their positions.

    References
    ----------
    .. [1] L. Zheng, J. Yuan, C. Wang, L. Kong, "Efficient attention via control variates", ICLR
       2023, section 4.

    Examples
    --------
    Each chunk holds a query and its key; the other three keys are in the two groups:

    >>> x = [[0.0]] * 4
    >>> Eva(m=2, sparse=Chunk(size=1)).approximate(x, x, rng=0).to_dense()[0]
    array([0.25, 0.25, 0.25, 0.25])
    """

    name = "eva"
    label = "EVA (chunks + groups)"
    examples = (
        "eva(m=1, sparse=chunk())",
        "eva(m=1, sparse=sliding_window(width=1))",
    )
    class_name = "sparse + low rank"
    space = "attention"
    sized_by = Size("m", counts="rank", instead=("size",))

    m: int | None = None
    sparse: SupportMethod = a_support(Chunk())
    share: float = real(0.5, below=1)
    size: int | None = integer()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.m is not None and self.size is not None:
            raise ValueError("m follows from size: leave it out")

    @property
    def tags(self) -> frozenset[str]:
        # a group uses a mean of queries, and has a draw whatever the support is
        lost = collect(ROW_LOCAL, SCALE, self.size is None and AUTOREGRESSIVE)
        return super().tags - lost | {RANDOM, POSITIONAL}

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        l, m = len(k), self.groups(len(k))
        a, b = q.astype(np.float64), k.astype(np.float64)
        seen: Array | bool = True  # whether a query sees a whole group
        if self.size is None and mask.is_full and not mask.looks_back:
            support = self.sparse.support(q, k, None, rng)
            segment = segments.labels(l, m)
            of_queries, centres = segments.means(a, m), segments.means(b, m)
        else:
            draws = np.random.default_rng(rng.integers(2**63))  # omega is the same for any l
            support = self.sparse.support(q, k, mask, draws)
            size = self.size or -(-l // m)
            m = -(-l // size)
            segment = np.arange(l) // size
            of_queries = segments.group_means(a, mask.positions // size, m)
            centres = segments.group_means(b, segment, m)
            if mask.looks_back or not mask.is_full:
                begin = size * np.arange(m)
                seen = (mask.first[:, None] <= begin) & (begin + size <= mask.stop[:, None])
        omega = of_queries + centres + rng.standard_normal((m, q.shape[1]))
        group = segment[:, None] == np.arange(m)
        shares = _shares(b, omega[segment], group)
        s = support.matrix
        ends = np.concatenate([[0], np.cumsum(group.sum(axis=0))])
        left_out = _left_out(s, shares.max(axis=1), ends) * seen
        # At a smaller share, no scale can also represent the keys of E in the group.
        left_out[left_out < 8 * np.finfo(q.dtype).tiny] = 0.0
        left = a @ centres.T + np.log(group.sum(axis=0))
        with np.errstate(divide="ignore"):
            off = scipy.special.logsumexp(np.log(left_out) + left, axis=1)
        on = _row_logsumexp(s)
        log_z = np.logaddexp(off, on)
        left = np.where(left_out > 0, left - log_z[:, None], -np.inf)
        top = left.max(axis=1)
        top[top == -np.inf] = 0.0
        low = Factors(np.exp(left - top[:, None]), shares, top).astype(q.dtype)
        return Parts(low, support.normalised(log_z), space="attention")

    def groups(self, l: int) -> int:
        """Return how many groups l keys have."""
        return self.m or (0 if self.size is None else -(-l // self.size))

    def _price(self, shape: Shape) -> Price | None:
        """Return the price of the groups, and of the support, which is excluded from the groups.

        A query reads the centre and the state of a group. The state has no sums, because the shares
        of its keys sum to 1. An exact key is read with its share.
        """
        support = price_at(self.sparse, shape)
        of_row, per_query = (self.sparse.held(mask) for mask in (shape.rows, shape.decoding))
        m, l = self.groups(shape.l), shape.l
        if not m or support is None or of_row is None or per_query is None:
            return None
        n, _, d, c = shape
        selection = self.sparse.selection(shape)
        reads = self._whole(shape.decoding) * (d + c) + per_query * (d + c + 1)
        work = self._whole(shape.rows) * (d + c) + of_row * (d + 2 * c)
        stored = low_rank(m, shape).stored + support.stored
        i = int(reads.argmax())
        numbers = [
            Numbers(float(count), kind=kind)
            for count, kind in (
                (self._whole(shape.decoding)[i] * (d + c) + per_query[i], ""),
                (per_query[i] * d, "keys"),
                (per_query[i] * c, "values"),
            )
        ]
        of_keys = Price(0.0, 0.0, (d + c) * l / n, 0.0)
        return Price.from_numbers(stored, float(work.mean()), *numbers) + of_keys + selection

    def _whole(self, mask: Mask) -> Array:
        """Return how many groups each query sees whole; without a mask, all of them."""
        m = self.groups(mask.l)
        if mask.is_full and not mask.looks_back:
            return np.full(mask.n, m)
        size = self.size or -(-mask.l // m)
        return np.asarray(np.maximum(mask.stop // size - -(-mask.first // size), 0))

    def _beside(self, name: str, shape: Shape) -> Price | None:
        return low_rank(self.groups(shape.l), shape)

    def _workspace(self, shape: Shape) -> int:
        return 32 * self.groups(shape.l) * (shape.n + shape.l)


def _shares(K: Array, omega: Array, group: Array) -> Array:
    """Return r_j in the column of its group, (l, m); the columns sum to 1."""
    log = np.einsum("jd,jd->j", K, omega) - half_square(K)
    top = np.where(group, log[:, None], -np.inf).max(axis=0)
    shares = np.where(group, np.exp(np.minimum(log[:, None] - top, 0.0)), 0.0)
    return np.asarray(shares / shares.sum(axis=0))


def _left_out(s: scipy.sparse.csr_array, shares: Array, ends: Array) -> Array:
    """Return the share of each group that each row of a support leaves out, (n, m).

    Group c has the keys ends[c] ≤ j < ends[c + 1]. Where the support holds most of a group,
    1 − held would cancel: the other shares are summed instead.
    """
    (n, l), m = s.shape, len(ends) - 1
    rows, keys = pattern_products.coordinates(s)
    groups = rows * m + np.searchsorted(ends, keys, "right") - 1
    held = np.bincount(groups, shares[keys], n * m).reshape(n, m)
    out = 1.0 - held
    i, c = np.nonzero(held > 0.5)
    indptr, others = runs(ends[c], ends[c + 1])
    pairs = np.repeat(np.arange(len(i)), np.diff(indptr))
    off = ~np.isin(i[pairs] * l + others, rows * l + keys)
    out[i, c] = np.bincount(pairs[off], shares[others[off]], len(i))
    return out


def _row_logsumexp(s: scipy.sparse.csr_array) -> Array:
    """Return log Σ e^x over the stored entries of each row; it is −inf for an empty row."""
    top = Support(s).row_log().astype(np.float64)
    unit = np.where(np.isfinite(top), top, 0.0)
    terms = np.exp(s.data - np.repeat(unit, np.diff(s.indptr)))
    sums = scipy.sparse.csr_array((terms, s.indices, s.indptr), shape=s.shape).sum(axis=1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(sums) + unit)
