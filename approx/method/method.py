"""The base of all methods: `Method`, a frozen dataclass of its hyper-parameters.

The base class checks the inputs, reserves memory and derives properties from the fields. A method
adds the formula.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks
from approx.checks import Array
from approx.decoding.cache import Cache
from approx.estimate import masks, memory
from approx.estimate.approximation import Approximation
from approx.estimate.masks import Mask, MaskLike
from approx.estimate.parts import Parts
from approx.method import filling, prices, printing
from approx.method.evaluation import (
    Rng,
    checked_inputs,
    evaluated,
    generator,
    obstacle,
    with_values,
)
from approx.method.filling import Size
from approx.method.moments import Moments, realised
from approx.method.prices import Price, Shape, price_at
from approx.method.tags import (
    ADAPTIVE,
    AUTOREGRESSIVE,
    OUTERMOST,
    RANDOM,
    composed,
)

TV = "attention_tv"  # metrics of `analysis.errors` that a method may promise to minimise
FROBENIUS = {space: f"{space}_relative_frobenius" for space in ("kernel", "attention")}


class Method(ABC):
    """A way to approximate exp(q·k): a frozen dataclass whose fields are its hyper-parameters.

    A subclass defines `evaluate`, the formula on checked arrays. It adds closed forms as
    `_moments` and `_covariance`, and its cost as `_price`. A method whose size (``m``,
    ``rank``, ``k``, …, named by `sized_by`) is None is a *template*; `within` fills it to a budget.
    A method may have other methods as fields. Its tags then follow from theirs, see
    `approx.method.tags`, and it is a template if one of them is.
    """

    name: ClassVar[str]
    label: ClassVar[str]  # the name that people know: a `Label` if variants have names of their own
    class_name: ClassVar[str] = "low rank"  # methods of one class are compared at one price
    examples: ClassVar[tuple[str, ...]] = ()  # for tests: one for each important field

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls) and "label" not in vars(cls):
            cls.label = cls.name.replace("_", " ")
        if "deterministic" in vars(cls):  # another way to say RANDOM, kept as a tag
            cls.tags = _drawing(cls.__name__, cls.tags, cls.deterministic)  # type: ignore[method-assign]
            del cls.deterministic
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
        V: ArrayLike | None = None,
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
        V : (l, c), optional
            The values, for methods that score keys by them; the others ignore them.

        Raises
        ------
        TypeError, ValueError
            Q, K, mask or rng cannot be used, the method is a template, or the method refuses the
            mask.
        ResourceLimitError
            The approximation would not fit into memory. It is raised before large allocations.
        """
        method = self if V is None else with_values(self, V)
        parts = evaluated(method, Q, K, mask, rng)
        seen = masks.as_mask(mask, *parts.low.shape)
        why = obstacle(self, seen)
        return Approximation.from_parts(parts, mask=seen, sink=sink, obstacle=why)

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
        q, k, seen = checked_inputs(self, Q, K, mask)
        if self.deterministic and not self.parts:
            return realised(self, q, k, seen)
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
        *inputs, seen = checked_inputs(self, np.atleast_2d(query), K, mask)
        Q, keys = (np.asarray(x, np.float64) for x in inputs)
        if row is None and len(Q) != 1:
            raise ValueError(f"covariance is of one query, got {len(Q)} queries: give a row")
        i = checks.integer("row", 0 if row is None else row, least=0, most=len(Q) - 1)
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
        self,
        *,
        n: int,
        l: int,
        d: int,
        c: int | None = None,
        mask: MaskLike = None,
        group: int = 1,
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
        group : int
            Heads that share these keys and values. ``reads``, ``bytes_read`` and ``bytes`` are
            those of the whole group, ``stored`` and ``multiply_adds`` those of one head.
        """
        size = checks.integer("group", group, least=1)
        seen = masks.as_mask(mask, n, l)
        return price_at(self, Shape(n, l, d, d if c is None else c, seen, size))

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
        group: int = 1,
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
        group : int
            Heads that share these keys and values, as in `price`.
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
        size = checks.integer("group", group, least=1)
        shape = Shape(n, l, d, width, masks.as_mask(mask, n, l), size)
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

    def _check(self, q: Array, k: Array) -> None:
        """Raise ValueError if the size does not fit checked Q and K."""
        size = self.sized_by
        if size is None or not size.integer or (count := getattr(self, size.field)) is None:
            return
        fewest = self._fewest(q.shape[1])
        if (most := size.limit(len(q), len(k))) is not None and count > most:
            raise ValueError(f"{self}: {size.field} must be <= {most}, got {count}")
        if count < fewest and not (size.zero and count == 0):
            raise ValueError(
                f"{self} needs {size.field} >= {fewest} at width {q.shape[1]}, got {count}"
            )

    def _repr_html_(self) -> str:
        return printing.html(self)

    def __str__(self) -> str:
        """Return the spec that `approx.parse` reads, without defaults."""
        return printing.spec(self)


def _drawing(name: str, tags: Any, deterministic: Any) -> Any:
    """Return the tags, perhaps of a parent, of a class that says whether it draws by itself."""
    said = frozenset() if checks.flag(f"{name}.deterministic", deterministic) else {RANDOM}
    if not isinstance(tags, property):
        return frozenset(tags) - {RANDOM} | said

    def drawing(method: Method) -> frozenset[str]:
        of_parts = composed([part.tags for part in method.parts.values()])
        stated: frozenset[str] = tags.__get__(method)
        return stated - {RANDOM} | said | of_parts & {RANDOM}

    return property(drawing)
