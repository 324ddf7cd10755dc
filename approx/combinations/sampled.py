"""Weighted sampling: exact on a support; weighted random keys make the rest unbiased."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from approx import checks
from approx.baselines import Zero
from approx.checks import Array
from approx.combinations.designs.by_size import BySize, Multinomial, PoissonSampling, Systematic
from approx.combinations.designs.collisions import Collisions
from approx.combinations.designs.design import Design, Rest, SimpleRandom
from approx.combinations.scatterbrain import beneath, replaced
from approx.estimate.corrections import Support
from approx.estimate.masks import Mask
from approx.estimate.parts import Parts
from approx.method import Label, Method, Moments, Rng, Size, generator, prices
from approx.method.fields import flag, instance, integer, one_of, real, ruled
from approx.method.prices import SHARED, Numbers, Price, Shape, price_at
from approx.method.tags import (
    ADAPTIVE,
    AUTOREGRESSIVE,
    DRAWS_BY_ROW,
    POSITIONAL,
    RANDOM,
    ROTATION,
    SHIFT,
    collect,
)
from approx.sparse.pages import BOX, score_parts
from approx.sparse.support import ByPlace, SupportMethod, a_support
from approx.supports import boxes, patterns
from approx.supports.patterns import exact_on

BY_SIZE: dict[str, Callable[..., BySize]] = {
    "systematic": Systematic,
    "poisson": PoissonSampling,
    "multinomial": Multinomial,
}
PAGE = 16  # keys that share one upper bound
DESIGNS = ("uniform", *BY_SIZE, "lsh")


@dataclasses.dataclass(frozen=True, eq=False)
class Sizes:
    """Sizes of keys, such as the norms of their values, that a design draws in proportion to.

    Parameters
    ----------
    values : (l,)
        Numbers > 0.

    Examples
    --------
    >>> Sizes([1.0, 2.0])
    Sizes(2 numbers, dc91ce9a)
    """

    values: Any

    def __post_init__(self) -> None:
        values = checks.array("sizes", self.values, ndim=1).astype(np.float64)
        if not (values > 0).all():
            raise ValueError(f"sizes must be > 0, got {values.min(initial=np.inf):g}")
        object.__setattr__(self, "values", values)

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.values.tobytes()).hexdigest()[:8]
        return f"Sizes({len(self.values)} numbers, {digest})"


def _sizes(name: str, value: Any) -> Any:
    if value != "bound":
        checks.instance(name, value, Sizes, '"bound" or approx.combinations.sampled.Sizes')
    return value


@dataclasses.dataclass(frozen=True)
class Sampled(Method):
    """Exact on a support, and drawn keys for the rest, weighted to be unbiased for exp(q·k).

    estimate_ij = low_ij + W_ij·(exp(q_i·k_j) − low_ij), where W = 1 on the support. Off it W is
    random with E[W] = 1: 0 for a key that is not drawn, 1/π for a key with inclusion probability π,
    and the sum of the weights of repeated draws.

    Parameters
    ----------
    sparse : Method, optional
        The support on which the estimate is exact, such as sink_window; None is an empty support.
    design : {"uniform", "systematic", "poisson", "multinomial", "lsh"}
        How seen keys off the support are drawn, see `approx.combinations.designs`. uniform: k
        different keys, every set equally likely; systematic: k keys at equal steps from a random
        start; poisson: each key independently, k on average; multinomial: k draws with
        replacement; lsh: the keys that collide with the query in hash tables.
    k : int, optional
        Keys drawn per row; None is a template, except for design "lsh". With ``epsilon``
        it is the size of a pilot sample, ≥ 2.
    low_rank : Method
        Any method without a sparse part; draws estimate the difference to it.
    sizes : Sizes or "bound", optional
        Sizes that π is proportional to, for the designs "systematic", "poisson" and "multinomial".
        With "bound" the size of a key is exp of an upper bound of q·k on its page of 16 keys, from
        the box of the keys of the page that the query sees. By default all sizes are equal.
    shared : bool
        Whether one draw among all keys serves every row, as columns; else each row has its own.
    weighted : bool
        Whether a drawn key has the weight 1/π. Otherwise it has 1, as in BigBird and Scatterbrain,
        and the estimate is biased by (1 − π)·b.
    hashes, tables, collisions : int, optional
        For design "lsh": hashes joined in a table, tables, and the number of tables in which a key
        must collide, 1 or 2.
    transform : {"none", "center"}
        For design "lsh": whether the mean of the keys is subtracted from them before hashing.
    epsilon, delta : float, optional
        Then each row has its own number of draws. A pilot of k keys estimates the standard
        deviation s and the row sum D; the row draws (z·N·s/(ε·D))² of its N keys, at least k, with
        z the 1 − δ/2 quantile of N(0, 1). If s and D were known, and the sum normal, its relative
        error would be below ε with probability 1 − δ. The pilot keys are not used in the estimate.
    share : float
        Share of a budget that goes to the support where both sizes are open, 0 < share < 1.

    Notes
    -----
    The estimate is unbiased whatever the low-rank part is, *because* that part, the support and the
    draw use independent children of rng. With b and v the bias and variance of the low-rank part,

        Var[estimate_ij] = (b² + v)·Var[W_ij],      Var[W] = (1 − π)/π where a key is drawn once,
        Cov[estimate_ij, estimate_il] = (b_j b_l + c_jl)·Cov[W_j, W_l],   Cov = π_jl/(π_j π_l) − 1,

    relative to the exact entries, with c the covariance of the low-rank part. Scatterbrain has
    W = 1 on drawn keys: of all weights this gives an entry the least squared error, with the bias
    (1 − π)·b. A sum of many entries has a smaller error with the weights 1/π where rows are broad.
    Normalised by its row sums the estimate is biased, like every ratio. Entries may be negative
    where low ≠ 0. Moments are not known where the support is drawn and the variance depends on it,
    or with ``epsilon``.

    The draw of a row depends only on the keys that its query sees. So the method is autoregressive
    if its parts are, unless one draw serves all rows or ``transform`` is given.
    Cost: that of the parts, and O(k) per row for design "uniform", and for "systematic" and
    "multinomial" without sizes; else O(l), and for "lsh" O((n + l)·d·hashes·tables) and the keys
    found in buckets.

    `magicpig` [1]_, `vattention` [2]_, `hyper_attention` [3]_ and `kdeformer` [4]_ are forms of
    this method; studies/lm/peers.md compares them with their public code. That code divides by
    π + 1e-4 (MagicPIG), loses repeated draws (vAttention), or may count drawn keys of the query's
    own block twice (HyperAttention). HyperAttention's causal form halves the sequence repeatedly;
    here a mask hides unseen keys. KDEformer draws columns in proportion to the norms of the values,
    plus a constant: give these as ``sizes``, since no method sees values.

    References
    ----------
    .. [1] Z. Chen et al., "MagicPIG: LSH sampling for efficient LLM generation", ICLR 2025.
    .. [2] A. Desai et al., "vAttention: verified sparse attention", arXiv 2510.05688, 2025; read as
       far as its abstract and public code.
    .. [3] I. Han et al., "HyperAttention: long-context attention in near-linear time", ICLR 2024.
    .. [4] A. Zandieh, I. Han, M. Daliri, A. Karbasi, "KDEformer: accelerating transformers via
       kernel density estimation", ICML 2023.
    .. [5] D. Horvitz, D. Thompson, "A generalization of sampling without replacement from a finite
       universe", JASA 47, 1952.

    Examples
    --------
    Two of four equal keys represent all of them:

    >>> Sampled(k=2).approximate([[0.0]], [[0.0]] * 4, rng=0).to_dense()
    array([[2., 0., 0., 2.]])
    """

    name = "sampled"
    label = Label(
        "samples, weighted",
        {
            "LSH samples, weighted (MagicPIG)": {"design": "lsh"},
            "samples by (ε, δ) (vAttention)": {"epsilon": ...},
            "sampled columns (HyperAttention)": {"shared": True},
        },
    )
    examples = (
        "sampled(sparse=sink_window(k=1))",
        "sampled(sparse=top_k(k=1), design='systematic', low_rank=positive(m=3))",
        "sampled(design='multinomial', shared=True, low_rank=taylor(degree=1))",
        "sampled(sink_window(k=1), 'lsh', hashes=1, tables=2, collisions=1)",
    )
    class_name = "sampled"

    sparse: SupportMethod | None = a_support(None)
    design: str = one_of("uniform", DESIGNS)
    k: int | None = None
    low_rank: Method = instance(Zero(), Method, "a method")
    sizes: Sizes | str | None = ruled(None, _sizes)
    shared: bool = flag(False)
    weighted: bool = flag(True)
    hashes: int | None = integer(most=62)
    tables: int | None = integer(most=4096)
    collisions: int | None = integer(most=2)
    transform: str = one_of("none", ("none", "center"))
    epsilon: float | None = real()
    delta: float | None = real(below=1)
    share: float = real(0.5, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        of_lsh = self.hashes, self.tables
        if self.design == "lsh":
            if None in of_lsh:
                raise ValueError('design "lsh" needs hashes and tables')
            if self.k is not None or self.shared:
                raise ValueError(
                    'design "lsh" takes no k and no shared: its tables choose the keys'
                )
            if (self.tables or 0) < self.least:
                raise ValueError(f"{self.least} collisions need as many tables, got {self.tables}")
        elif of_lsh != (None, None) or self.collisions is not None or self.transform != "none":
            raise ValueError('hashes, tables, collisions and transform belong to design "lsh"')
        if self.sizes is not None and self.design not in BY_SIZE:
            raise ValueError(f"sizes belong to {', '.join(BY_SIZE)}, got design {self.design!r}")
        if not self.weighted and self.design == "multinomial":
            raise ValueError(
                'repeated draws of design "multinomial" count by their weights: leave weighted'
            )
        if self.sizes == "bound" and self.shared:
            raise ValueError("bounds differ from query to query: leave out shared")
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together: give both or none")
        if self.epsilon is not None and (self.design != "uniform" or self.shared):
            raise ValueError('epsilon needs design "uniform" and a draw for each row')

    @property
    def sized_by(self) -> Size:
        """The keys drawn per row; a pilot needs two for its standard deviation."""
        least = 1 if self.epsilon is None else 2
        return Size("k", least=least, counts="entries", instead=("hashes",))

    @property
    def least(self) -> int:
        """In how many tables a key must collide, 2 by default."""
        return self.collisions or 2

    @property
    def tags(self) -> frozenset[str]:
        hashed = self.design == "lsh"
        lost = collect(
            (self.shared or self.transform != "none") and AUTOREGRESSIVE,
            hashed and self.transform == "none" and SHIFT,  # hashed keys notice a shift
            self.sizes == "bound" and ROTATION,  # and boxes a rotation
        )
        by_row = not (self.shared or self.hashes)  # a hash table serves all rows
        return super().tags - lost | collect(
            RANDOM,  # the design draws even if no part does
            (hashed or self.epsilon is not None) and ADAPTIVE,
            by_row and DRAWS_BY_ROW,
            by_row and POSITIONAL,
        )

    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        """Return the low-rank estimate with exact entries and drawn ones, all independent."""
        for_support, for_pilot, for_draw, for_features = self.streams(rng)
        low = beneath(self.low_rank, q, k, mask, for_features)
        rest = Rest(mask, self._held(q, k, mask, for_support))
        if self.shared:
            drawn = rest.cut(self._columns(q, k, rest, for_draw))
        else:
            drawn = self.design_of(q, k, rest, for_pilot).draw(rest, for_draw)
        support = _weighted(rest, drawn, q, k)
        return Parts(low, support if self.weighted else Support(support.matrix))

    def streams(self, rng: Rng) -> list[np.random.Generator]:
        """Return the generators of the support, the pilot, the draw and the low-rank part."""
        seeds = generator(rng).integers(2**63, size=(4, 2))
        return [np.random.default_rng(seed) for seed in seeds]

    def _held(self, q: Array, k: Array, mask: Mask, rng: Rng) -> patterns.Pattern:
        """Return the keys on which the estimate is exact, in order."""
        if self.sparse is None:
            return Rest.all_seen(mask).held
        support = self.sparse.support(q, k, mask, rng)
        return support.matrix.indptr, support.matrix.indices

    def _columns(
        self, q: Array, k: Array, rest: Rest, rng: np.random.Generator
    ) -> scipy.sparse.csr_array:
        """Return the weights of one draw among all keys in every row."""
        one = self.design_of(q, k, rest, rng).draw(_for_all(rest), rng)
        n = rest.mask.n
        indptr, indices = one.nnz * np.arange(n + 1), np.tile(one.indices, n)
        return scipy.sparse.csr_array((np.tile(one.data, n), indices, indptr), rest.mask.shape)

    def design_of(self, q: Array, k: Array, rest: Rest, rng: np.random.Generator) -> Design:
        """Return the design that draws keys off the support; a pilot draws from rng."""
        if self.design == "lsh":
            assert self.hashes is not None
            assert self.tables is not None
            a, b = q.astype(np.float64), k.astype(np.float64)
            b = b - b.mean(axis=0) if self.transform == "center" else b
            return Collisions(a, b, self.hashes, self.tables, self.least)
        size = self.k or 0
        if self.design != "multinomial":
            size = min(size, len(k))
        if self.design in BY_SIZE:
            return BY_SIZE[self.design](size, self._log_sizes(q, k, rest.mask))
        return SimpleRandom(size if self.epsilon is None else self._enough(q, k, rest, rng))

    def _log_sizes(self, q: Array, k: Array, mask: Mask) -> Callable[[int, Array], Array] | None:
        if self.sizes is None:
            return None
        if isinstance(self.sizes, str):
            most = _bounds(q.astype(np.float64), k.astype(np.float64), mask)
            return lambda i, keys: np.asarray(most[i, keys // PAGE])
        if len(self.sizes.values) != len(k):
            raise ValueError(f"sizes must be one per key, {len(k)}, got {len(self.sizes.values)}")
        log = np.log(self.sizes.values)
        return lambda i, keys: np.asarray(log[keys])

    def _enough(self, q: Array, k: Array, rest: Rest, rng: np.random.Generator) -> Array:
        """Return how many keys each row draws for a relative error ε of its sum, from a pilot."""
        assert self.epsilon is not None
        assert self.delta is not None
        pilot = SimpleRandom(self.k or 0).draw(rest, rng)
        logs = _weighted(rest, pilot, q, k)
        top = np.asarray(logs.row_log(), np.float64)
        total = np.asarray(logs.scaled(top).sum(axis=1), np.float64)
        pairs = exact_on((pilot.indptr, pilot.indices), q, k, rest.mask)
        x = np.asarray(pairs.scaled(top).data, np.float64)
        rows = np.repeat(np.arange(rest.mask.n), np.diff(pilot.indptr))
        size = np.maximum(np.bincount(rows, minlength=rest.mask.n), 1)
        mean = np.bincount(rows, x, rest.mask.n) / size
        square = np.bincount(rows, (x - mean[rows]) ** 2, rest.mask.n)
        deviation = np.sqrt(square / np.maximum(size - 1, 1))
        z = scipy.special.ndtri(1.0 - self.delta / 2.0)
        needed = np.ceil((z * rest.counts * deviation / (self.epsilon * total)) ** 2)
        return np.asarray(np.clip(needed, self.k or 0, rest.mask.l).astype(np.intp))

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return bias 0 and variance (b² + v)·Var[W] off the support, 0 on it.

        Without weights they are those of Scatterbrain, with π for the probability of an entry.
        """
        low = self.low_rank.moments(q, k, mask=mask)
        if low is None or self.epsilon is not None:
            return None
        if self.sparse is not None and not self.sparse.deterministic:
            return None
        variance, reached = self._of_weights(q, k, mask)
        b, v = low
        if not self.weighted:
            return replaced(np.where(reached, 1.0 / (1.0 + variance), 0.0), low)
        on = (variance == 0.0) & reached
        with np.errstate(divide="ignore"):
            square = np.logaddexp(2.0 * np.log(np.abs(b)), v)
            log = np.where(variance > 0.0, square + np.log(variance), np.where(on, -np.inf, v))
        return Moments(np.where(reached, 0.0, b), log)

    def _of_weights(self, q: Array, k: Array, mask: Mask) -> tuple[Array, Array]:
        """Return Var[W] and whether π > 0, (n, l), for a support that draws nothing."""
        rest = Rest(mask, self._held(q, k, mask, None))
        design = self.design_of(q, k, rest, generator(0))
        free = rest.visible()
        if self.shared:
            variance, reached = design.moments(_for_all(rest))
            variance, reached = np.where(free, variance, 0.0), np.where(free, reached, True)
            return variance, reached
        variance, reached = design.moments(rest)
        return variance, reached | ~free

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        """Return (b_j b_l + c_jl)·Cov[W_j, W_l].

        Without weights, with B_j = 1 if key j is drawn or held, else 0, it is
        (b_j b_l + c_jl)·Cov[B_j, B_l] + (1 − π_j)(1 − π_l)·c_jl.
        """
        low = self.low_rank.covariance(Q, K, row=i, mask=mask)
        moments = self.low_rank.moments(Q, K, mask=mask)
        if low is None or moments is None or self.epsilon is not None:
            return None
        if self.sparse is not None and not self.sparse.deterministic:
            return None
        rest = Rest(mask, self._held(Q, K, mask, None))
        design = self.design_of(Q, K, rest, generator(0))
        if self.shared:
            weights = design.covariance(_for_all(rest), 0)
            held = ~rest.visible()[i]
            weights[held], weights[:, held] = 0.0, 0.0
        else:
            weights = design.covariance(rest, i)
        b = moments.relative_bias[i]
        with np.errstate(invalid="ignore"):  # inf where the low-rank part has no finite variance
            covariance = np.where(weights == 0.0, 0.0, (b[:, None] * b + low) * weights)
        variance, reached = (x[i] for x in self._of_weights(Q, K, mask))
        if self.weighted:
            never = np.flatnonzero(~reached)
            covariance[np.ix_(never, never)] = low[np.ix_(never, never)]
            return covariance
        p = np.where(reached, 1.0 / (1.0 + variance), 0.0)
        off = (1.0 - p)[:, None] * (1.0 - p)
        return covariance * p[:, None] * p + np.where(off == 0.0, 0.0, low * off)

    def _price(self, shape: Shape) -> Price | None:
        if ADAPTIVE in self.tags or self.k is None:
            return None
        price = Price(0.0, 0.0, 0.0, 0.0)
        held, per_query = (np.zeros(mask.n, int) for mask in (shape.rows, shape.decoding))
        if self.sparse is not None:
            support = price_at(self.sparse, shape)
            in_row, in_query = (self.sparse.held(mask) for mask in (shape.rows, shape.decoding))
            if support is None or in_row is None or in_query is None:
                return None
            price, held, per_query = price + support, in_row, in_query
        low = price_at(self.low_rank, shape)
        if low is None:
            return None
        counts = shape.rows.counts
        drawn = float((np.minimum(held + self.k, counts) - held).mean())
        longest = np.minimum(per_query + self.k, shape.decoding.counts).max()
        read = float(longest - np.max(per_query))
        entries = drawn + float(np.mean(held))
        work = drawn * (shape.d + shape.c) + entries * low.entry_work
        # keys that every head holds are not drawn
        others = shape.most - (np.max(per_query) if isinstance(self.sparse, ByPlace) else 0)
        of_keys = prices.entries(read, shape, mean=drawn, held=shape.most, most=others)
        of_keys = dataclasses.replace(of_keys, multiply_adds=work)
        return price + low + of_keys + self.price_of_sizes(shape)

    def price_of_sizes(self, shape: Shape) -> Price:
        """Return the price of the sizes, all of which a row with its own draw reads.

        Given sizes are one number for each key; upper bounds need the box of each page.
        """
        if self.sizes == "bound":
            per_query, of_row = (
                (mask.stop - 1) // PAGE - mask.first // PAGE + 1
                for mask in (shape.decoding, shape.rows)
            )
            box, pages = 2.0 * shape.d, -(-shape.l // PAGE)
            read = Numbers(box * float(per_query.max()), box * pages, SHARED)
            return Price.from_numbers(0.0, box * float(of_row.mean()), read)
        if self.sizes is None:
            return Price(0.0, 0.0, 0.0, 0.0)
        read = Numbers(0.0 if self.shared else float(shape.most), float(shape.most), SHARED)
        return Price.from_numbers(0.0, 0.0, read)

    def _beside(self, name: str, shape: Shape) -> Price | None:
        nothing: dict[str, Any] = {"sparse": None, "low_rank": Zero()}
        return price_at(dataclasses.replace(self, **{name: nothing[name]}), shape)


def _bounds(q: Array, k: Array, mask: Mask) -> Array:
    """Return the most that q·k can be in the box of the seen keys of each page, (n, pages)."""
    most = boxes.highest(q, *boxes.page_boxes(k, PAGE))
    score_parts(q, k, mask.first, mask.stop, PAGE, BOX, most)
    return most


def _for_all(rest: Rest) -> Rest:
    """Return one row that sees all keys, whose draw serves every row."""
    return Rest.all_seen(Mask.full(1, rest.mask.l))


def _weighted(rest: Rest, drawn: scipy.sparse.csr_array, q: Array, k: Array) -> Support:
    """Return exp(q·k) with weight 1 for held keys, and with their weights for drawn keys."""
    indptr, indices = rest.held
    held = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=drawn.shape)
    both = scipy.sparse.csr_array(held + drawn)
    both.sort_indices()
    support = exact_on((both.indptr, both.indices), q, k, rest.mask)
    return Support(support.matrix, both.data)
