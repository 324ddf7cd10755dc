"""The base of all methods: `Method`, a frozen dataclass of its hyper-parameters.

The base class checks the inputs, reserves memory and derives properties from the fields. A method
adds the formula.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.decoding.cache import Cache
from approx.estimate import exact, masks, memory
from approx.estimate.approximation import OF, Approximation
from approx.estimate.masks import ALL, Mask, MaskLike
from approx.estimate.parts import Parts
from approx.method import filling, prices
from approx.method.filling import Size
from approx.method.prices import Price, Shape, price_at
from approx.method.tags import (
    ADAPTIVE,
    AUTOREGRESSIVE,
    ORACLE,
    OUTERMOST,
    RANDOM,
    composed,
)
from approx.notebook import facts, number, table

TV, KERNEL = "attention_tv", "kernel_relative_frobenius"  # metrics, as named in `analysis.errors`

Rng = int | np.random.SeedSequence | np.random.Generator | None


class Moments(NamedTuple):
    """Exact bias and variance of an estimate, entry by entry.

    Attributes
    ----------
    relative_bias : (n, l)
        E[estimate]/exp(q·k) − 1; inf if it is above 1.8e308.
    log_relative_variance : (n, l)
        log(Var[estimate]/exp(2 q·k)); −inf if the variance is 0.

    Notes
    -----
    Outside the mask they are 0 and −inf.
    """

    relative_bias: Array
    log_relative_variance: Array

    def __repr__(self) -> str:
        n, l = self.relative_bias.shape
        said = ", ".join(f"{name} {low} to {high}" for name, low, high in self._ranges())
        return f"<Moments of {n}×{l} entries: {said}>"

    def _repr_html_(self) -> str:
        n, l = self.relative_bias.shape
        return table(f"Moments of {n} × {l} entries", ["", "least", "largest"], self._ranges())

    def _ranges(self) -> list[tuple[str, str, str]]:
        return [
            (name.replace("_", " "), number(float(x.min())), number(float(x.max())))
            for name, x in self._asdict().items()
        ]

    def seen(self, mask: Mask) -> Moments:
        """Return these moments, with 0 and −inf outside the mask."""
        if mask.is_full:
            return self
        hidden = ~mask.visible()
        return Moments(
            np.where(hidden, 0.0, self.relative_bias),
            np.where(hidden, -np.inf, self.log_relative_variance),
        )


class Method(ABC):
    """A way to approximate exp(q·k): a frozen dataclass whose fields are its hyper-parameters.

    A subclass defines `evaluate`, the formula on checked arrays. It adds closed forms as
    `_moments` and `_covariance`, and its cost as `_price`. A method whose size (``m``,
    ``rank``, ``k``, …, named by `sized_by`) is None is a *template*; `within` fills it to a budget.
    A method may have other methods as fields. It needs all logits if one of them does, draws if one
    of them draws, and is a template if one of them is.
    """

    name: ClassVar[str]
    label: ClassVar[str]  # the name that people know: a `Label` if variants have names of their own
    class_name: ClassVar[str] = "low rank"  # methods of one class are compared at one price
    examples: ClassVar[tuple[str, ...]] = ()  # for tests: one for each important field

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls) and "label" not in vars(cls):
            cls.label = cls.name.replace("_", " ")
        if "deterministic" in vars(cls):
            raise TypeError(
                f"{cls.__name__} defines deterministic, which follows from its tags: leave it out, "
                "and add RANDOM to the tags of a method that draws"
            )
        if "approximate" in vars(cls):
            raise TypeError(
                f"{cls.__name__} defines approximate: define evaluate(self, q, k, mask, rng) "
                "instead, which gets checked arrays; approximate belongs to the base class"
            )

    def __post_init__(self) -> None:
        """Check the size and every field that has a rule."""
        size = self.sized_by
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if size is not None and size.integer and field.name == size.field:
                value = size.checked(value)
            elif "rule" in field.metadata:
                value = field.metadata["rule"](field.name, value)
            else:
                continue
            object.__setattr__(self, field.name, value)
        for part in self.parts.values():
            if OUTERMOST in part.tags:
                raise ValueError(f"{self.name} cannot be made of {part}: put {part.name} outside")

    @property
    def tags(self) -> frozenset[str]:
        """What the method is, see `approx.method.tags`; by default, what its parts make it."""
        return composed([part.tags for part in self.parts.values()])

    @property
    def deterministic(self) -> bool:
        """Whether the method, including its parts, draws no random numbers."""
        return RANDOM not in self.tags

    @property
    def sized_by(self) -> Size | None:
        """The field that a budget fills; None if the method has no such field."""
        return None

    @property
    def space(self) -> str:
        """The estimated matrix: "kernel" for exp(q·k), "attention" for rows of softmax."""
        return "kernel"

    @property
    def refusal(self) -> str | None:
        """Why the method cannot be used under a mask; None if it can."""
        reasons = (part.refusal for part in self.parts.values())
        return next((reason for reason in reasons if reason is not None), None)

    @functools.cached_property
    def parts(self) -> dict[str, Method]:
        """The methods that are fields of this one, by field name."""
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return {name: value for name, value in fields if isinstance(value, Method)}

    def optimal_in(self, mask: Mask | None = None) -> set[str]:
        """Return the metrics in which no estimate of the same form has a smaller error."""
        return set()

    def best_found_in(self, mask: Mask | None = None) -> set[str]:
        """Return the metrics whose error the method minimises by a search, without a proof."""
        return set()

    @property
    def frobenius(self) -> str:
        """The name of the relative Frobenius metric in the method's space."""
        return f"{self.space}_relative_frobenius"

    @property
    def rivals(self) -> tuple[Any, ...]:
        """The supports over which a lower bound on the method's errors is taken: (kind, sizes…).

        The kind is a function of `analysis.bounds.support_bounds`; () means all supports with as
        many entries.
        """
        return ()

    @property
    def is_template(self) -> bool:
        """Whether a size of the method or of a part is open, for `within` to fill."""
        parts = any(part.is_template for part in self.parts.values())
        return parts or filling.open_size(self) is not None

    def approximate(
        self,
        Q: ArrayLike,
        K: ArrayLike,
        *,
        mask: MaskLike = None,
        rng: Rng = None,
        sink: float = -math.inf,
    ) -> Approximation:
        """Return the approximation of exp(Q Kᵀ), which is 0 outside the mask.

        Parameters
        ----------
        Q, K : (n, d), (l, d)
            The approximation may refer to these arrays, so they must not be changed afterwards.
        mask : None, "causal" or Mask
            The keys that each query sees; None shows every key. Under a causal mask the queries are
            the last n of the l positions.
        rng : int, SeedSequence or Generator, optional
            Ignored by a method without random draws.
        sink : float
            The logit of an attention sink, a parameter of the model that takes part in the softmax
            and has no key. It enters the row sums alone; no method selects, rounds or hides it.

        Raises
        ------
        TypeError, ValueError
            Q, K, mask or rng cannot be used, the method is a template, or the method refuses the
            mask.
        ResourceLimitError
            The approximation would not fit into memory. It is raised before large allocations.
        """
        parts = self.evaluated(Q, K, mask, rng)
        estimate = Approximation.from_parts(parts, mask=mask, sink=sink)
        estimate.obstacle = self.obstacle(estimate.mask)
        return estimate

    def evaluated(self, Q: ArrayLike, K: ArrayLike, mask: MaskLike, rng: Rng) -> Parts:
        """Check the arguments, and return the parts from `evaluate`; see `approximate`.

        Composite methods call this of their parts: `Parts`, unlike `Approximation`, have no mask.
        """
        q, k = self.checked(Q, K)
        (n, d), l = q.shape, len(k)
        size = self.sized_by
        lower = "n or l" if size is None else f"{size.field}, n or l"
        seen = self.masked(mask, n, l)
        memory.reserve(self._workspace(Shape(n, l, d, d, seen)), self, lower)
        parts = self.evaluate(q, k, seen, generator(rng))
        if not isinstance(parts, Parts):
            raise TypeError(
                f"{type(self).__name__}.evaluate must return Parts, such as "
                f"Parts.from_factors(left, right), got {checks.display(parts)}"
            )
        return parts

    def obstacle(self, mask: Mask) -> str:
        """Return why no model with this mask can run the method; "" if a model can.

        Under a mask that hides the future, the method must be autoregressive.
        """
        if not mask.is_full and (reason := self.refusal) is not None:
            return reason
        if ORACLE in self.tags:
            return "needs all logits"
        if mask.looks_back and AUTOREGRESSIVE not in self.tags:
            return "reads tokens that the mask hides"
        return ""

    def masked(self, mask: MaskLike, n: int, l: int) -> Mask:
        """Return the mask as a `Mask`; raise ValueError if the method refuses it."""
        seen = masks.as_mask(mask, n, l)
        if not seen.is_full and (reason := self.refusal) is not None:
            raise ValueError(f"{self} cannot be used under a mask: {reason}")
        return seen

    @abstractmethod
    def evaluate(self, q: Array, k: Array, mask: Mask, rng: np.random.Generator) -> Parts:
        """Return the parts for checked q (n, d) and k (l, d) of one dtype, by the formula.

        The mask says which keys a query sees. The base class drops entries outside the mask, so a
        method whose entries do not depend on each other can ignore it.
        """

    def _workspace(self, shape: Shape) -> int:
        """Return the bytes that `evaluate` needs; by default the bytes of the stored values."""
        price = price_at(self, shape)
        return 0 if price is None else int(8 * price.stored * shape.n)

    def moments(self, Q: ArrayLike, K: ArrayLike, *, mask: MaskLike = None) -> Moments | None:
        """Return the exact bias and variance over rng, given Q and K; None if not known.

        A deterministic method has bias estimate/exact − 1 and variance 0. Outside the mask the
        moments are 0 and −inf.
        """
        q, k = self.checked(Q, K)
        seen = self.masked(mask, len(q), len(k))
        if self.deterministic and not self.parts:
            return _realised(self, q, k, seen)
        known = self._moments(q.astype(np.float64), k.astype(np.float64), seen)
        return None if known is None else known.seen(seen)

    def _moments(self, q: Array, k: Array, mask: Mask) -> Moments | None:
        """Return `moments` for checked q (n, d), k (l, d) in float64; by default None.

        The base class drops moments outside the mask.
        """
        return None

    def covariance(
        self, q: ArrayLike, K: ArrayLike, *, row: int | None = None, mask: MaskLike = None
    ) -> Array | None:
        """Return Cov(estimate_j, estimate_l)/(exact_j exact_l) of one query, (l, l), if known.

        Parameters
        ----------
        q : (d,) or (1, d); (n, d) if ``row`` is given
            A method that fits parameters to its inputs fits them to all rows of q.
        K : (l, d)
        row : int, optional
            The row of q that is the query.
        mask : None, "causal" or Mask
            The keys that each row of q sees. The covariance with other keys is 0.
        """
        query = checks.array("q", q)
        if query.ndim not in (1, 2):
            raise ValueError(f"q must have 1 or 2 dimensions, got shape {query.shape}")
        Q, keys = (np.asarray(x, np.float64) for x in self.checked(np.atleast_2d(query), K))
        if row is None and len(Q) != 1:
            raise ValueError(f"covariance is of one query, got {len(Q)} queries: give a row")
        i = checks.integer("row", 0 if row is None else row, least=0, most=len(Q) - 1)
        seen = self.masked(mask, len(Q), len(keys))
        memory.reserve(48 * len(keys) ** 2, "the covariance of the keys", "l")
        if self.deterministic:
            return np.zeros((len(keys), len(keys)))
        known = self._covariance(Q, keys, i, seen)
        if known is not None and not seen.is_full:
            hidden = ~seen.visible(slice(i, i + 1))[0]
            known[hidden], known[:, hidden] = 0.0, 0.0
        return known

    def _covariance(self, Q: Array, K: Array, i: int, mask: Mask) -> Array | None:
        """Return `covariance` of query i for checked Q (n, d), K (l, d) in float64.

        The base class drops covariances with keys outside the mask.
        """
        return None

    def cache(
        self, *, d: int, c: int, rng: Rng = None, window: int = 0, dtype: Any = np.float64
    ) -> Cache:
        """Return an empty cache, in which a causal model stores keys (d,) and values (c,).

        With the same rng, each token gets the row of ``approximate(Q, K, mask="causal")``, or with
        a ``window`` the row under ``Mask.window(n, n, window)``; see `approx.decoding`. ``dtype``
        is the dtype of keys and values.

        Raises
        ------
        TypeError, ValueError
            d, c or rng cannot be used, the method is a template, or it has no cache.
        """
        filling.require_sizes(self)
        d, c = (checks.integer(name, x, least=1) for name, x in (("d", d), ("c", c)))
        checks.integer("window", window, least=0)
        memory.reserve(self._workspace(Shape(1, 1, d, c)), f"a cache of {self}", "d")
        draws = generator(rng)
        past = AUTOREGRESSIVE in self.tags
        found = self._cache(d, c, draws, window) if past else None
        if found is None:
            if window and past:
                raise ValueError(f"{self} has no cache under a window")
            raise ValueError(
                f"{self} has no cache: decode with the last row of approximate on all tokens so far"
                if past
                else f"{self} has no cache: a token's row depends on what comes after it"
            )
        found.dtype = np.dtype(dtype)
        return found

    def _cache(self, d: int, c: int, rng: np.random.Generator, window: int) -> Cache | None:
        """Return `cache`, for checked widths, of an autoregressive method; by default None."""
        return None

    def price(
        self, *, n: int, l: int, d: int, c: int | None = None, mask: MaskLike = None
    ) -> Price | None:
        """Return the cost per query row, or None if only a run shows it.

        Parameters
        ----------
        n, l, d : int
            Queries, keys and their width.
        c : int, optional
            Width of the values; d by default.
        mask : None, "causal" or Mask
            Rows that see fewer keys store fewer entries.
        """
        return price_at(self, Shape(n, l, d, d if c is None else c, masks.as_mask(mask, n, l)))

    def _price(self, shape: Shape) -> Price | None:
        """Return `price` at a shape; by default the price of the size, or the sum of the parts."""
        if parts := self.parts.values():
            costs = [price_at(part, shape) for part in parts]
            known = [price for price in costs if price is not None]
            return sum(known[1:], known[0]) if len(known) == len(costs) else None
        size = self.sized_by
        count = None if size is None else getattr(self, size.field)
        if size is None or count is None or size.counts == "degree":
            return None
        if size.counts == "entries":
            return prices.entries(count, shape)
        return prices.low_rank(count, shape, sums=self.space == "kernel")  # else not normalised

    def within(
        self,
        budget: float,
        *,
        n: int,
        l: int,
        d: int,
        c: int | None = None,
        mask: MaskLike = None,
        currency: str = "stored",
    ) -> Self | None:
        """Return this method with its size filled to a budget; None if no size fits.

        Parameters
        ----------
        budget : float
            The largest cost per query row.
        n, l, d : int
            Queries, keys, width.
        c : int, optional
            Width of the values; d by default.
        mask : None, "causal" or Mask
        currency : {"stored", "reads", "multiply_adds", "bytes", "bytes_read"}
            The unit of the budget, see `approx.Price`. Stored values per query row are
            parameters/n = (rank·(n + l) + nnz)/n.

        Raises
        ------
        TypeError, ValueError
            An argument cannot be used, or the method is an adaptive template, which no budget
            fills.

        Notes
        -----
        If no price is known in any currency, the method is returned unchanged (None if it is
        adaptive). If a price is known, but not in this currency, the result is None.

        Examples
        --------
        >>> from approx import parse
        >>> parse("top_k").within(32 * 128, n=512, l=512, d=64, currency="reads")
        TopK(k=32, per='row')
        """
        budget, n, l, d = checks.budget_and_shape(budget, n, l, d)
        width = d if c is None else checks.integer("c", c, least=1)
        shape = Shape(n, l, d, width, masks.as_mask(mask, n, l))
        checks.one_of("currency", currency, prices.CURRENCIES)
        filling.require_fillable(self)
        if self.is_template:
            return self._fill(budget, shape, currency)
        return self if self._affordable(budget, shape, currency) else None

    def _affordable(self, budget: float, shape: Shape, currency: str) -> bool:
        """Return whether this method, with a given size, fits a budget."""
        price = price_at(self, shape)
        return ADAPTIVE not in self.tags if price is None else price.within(budget, currency)

    def _fill(self, budget: float, shape: Shape, currency: str) -> Self | None:
        """Return this template with its open sizes filled to a budget; None if none fits."""
        return filling.fill(self, budget, shape, currency)

    def _beside(self, name: str, shape: Shape) -> Price | None:
        """Return the price of all parts except one; None if it depends on the inputs."""
        others = [part for field, part in self.parts.items() if field != name]
        if any(ADAPTIVE in part.tags for part in others):
            return None
        known = [price for part in others if (price := price_at(part, shape)) is not None]
        return sum(known, Price(0.0, 0.0, 0.0, 0.0))

    def _fewest(self, d: int) -> int:
        """Return the least size for vectors of width d."""
        return 1 if self.sized_by is None else self.sized_by.least

    def checked(self, Q: ArrayLike, K: ArrayLike) -> tuple[Array, Array]:
        """Return Q and K as checked arrays for `evaluate`.

        Raises
        ------
        TypeError, ValueError
            Q or K cannot be used, the method is a template, or its size does not fit them.
        """
        size = self.sized_by
        filling.require_sizes(self)
        q, k = checks.queries_keys(Q, K)
        if size is not None and size.integer and (count := getattr(self, size.field)) is not None:
            fewest = self._fewest(q.shape[1])
            if (most := size.limit(len(q), len(k))) is not None and count > most:
                raise ValueError(f"{self}: {size.field} must be <= {most}, got {count}")
            if count < fewest and not (size.zero and count == 0):
                raise ValueError(
                    f"{self} needs {size.field} >= {fewest} at width {q.shape[1]}, got {count}"
                )
        return q, k

    def _repr_html_(self) -> str:
        fills = "a" if filling.is_fillable(self) else "no"
        return facts(
            str(self),
            [
                ("what it is", (inspect.getdoc(type(self)) or "").splitlines()[0]),
                ("size", f"open: {fills} budget fills it" if self.is_template else "given"),
                ("estimates", OF[self.space]),
                ("draws", "none" if self.deterministic else "random"),
                ("needs all logits", "yes" if ORACLE in self.tags else "no"),
                ("under a causal mask", self._under_causal),
            ],
        )

    @property
    def _under_causal(self) -> str:
        if self.refusal is not None:
            return f"refused: {self.refusal}"
        past = AUTOREGRESSIVE in self.tags
        return "a row follows from its past" if past else "a row reads the future"

    def __str__(self) -> str:
        """Return the spec that `approx.parse` reads, without defaults.

        An array, such as given frequencies, is written as a digest. The digest is a label, equal
        for equal numbers; `approx.parse` cannot read it.
        """
        given = [
            f"{f.name}={_spec(getattr(self, f.name))}"
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if f.default is dataclasses.MISSING or getattr(self, f.name) != f.default
        ]
        return f"{self.name}({', '.join(given)})"


def _realised(method: Method, q: Array, k: Array, mask: Mask) -> Moments | None:
    """Return bias estimate/exact − 1 and variance 0: the moments of a deterministic method."""
    estimate = method.approximate(q, k, mask=mask)
    if estimate.space == "attention":
        return None
    x = np.asarray(exact.logits(q, k), np.float64)
    shift = np.asarray(estimate.row_log(), np.float64)
    scaled = np.asarray(estimate.block(ALL, shift=shift), np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        ratio = np.sign(scaled) * np.exp(np.log(np.abs(scaled)) + shift[:, None] - x)
    return Moments(ratio - 1.0, np.full(x.shape, -np.inf)).seen(mask)


def _spec(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):  # repr rounds and shortens, so it is no label
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:8]
        return f"array({value.shape}, {digest})"
    return str(value) if isinstance(value, Method) else repr(value)


def generator(rng: Rng) -> np.random.Generator:
    """Return default_rng(rng), the only source of randomness.

    A SeedSequence is copied, so that it gives the same draws however often it has spawned.

    Raises
    ------
    TypeError, ValueError
        rng is not None, an integer ≥ 0, a SeedSequence or a Generator.
    """
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, np.random.SeedSequence):
        rng = np.random.SeedSequence(rng.entropy, spawn_key=rng.spawn_key, pool_size=rng.pool_size)
        return np.random.default_rng(rng)
    return np.random.default_rng(
        None if rng is None else checks.integer("rng", rng, least=0, most=2**128)
    )
