"""What makes an approximation: a `Method`, a frozen dataclass of its hyper-parameters."""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from approx import checks, exact, memory
from approx.approximation import Approximation
from approx.checks import Array
from approx.parts import ALL

Rng = int | np.random.SeedSequence | np.random.Generator | None


class Moments(NamedTuple):
    """Exact bias and variance of one estimate, entry by entry.

    Attributes
    ----------
    relative_bias : (n, l)
        E[estimate]/exp(q·k) − 1; inf where that is above 1.8e308.
    log_relative_variance : (n, l)
        log(Var[estimate]/exp(2 q·k)); −inf where there is none.
    """

    relative_bias: Array
    log_relative_variance: Array


class Method(ABC):
    """A way to approximate exp(q·k): a frozen dataclass whose fields are its hyper-parameters.

    A subclass writes `approximate`. What is known in closed form it adds as `moments`; what it
    costs before it is run, as `price`. A method whose size field (``m``, ``rank``, ``k``, …) is
    None is a *template*: `within` fills it to a budget.
    """

    name: ClassVar[str]
    deterministic: ClassVar[bool]
    size_field: ClassVar[str | None] = None
    step: ClassVar[int] = 1  # sizes come in multiples of this
    least: ClassVar[int] = 1

    @property
    def oracle(self) -> bool:
        """Whether it needs the whole kernel matrix: a bound on its class, not a method to run."""
        return False

    @property
    def uses_rng(self) -> bool:
        """Whether this very method, with these parts, draws anything."""
        return not self.deterministic

    @property
    def is_template(self) -> bool:
        """Whether its size is left open, for `within` to fill."""
        size = self._size_field()
        return size is not None and getattr(self, size) is None

    @abstractmethod
    def approximate(self, Q: ArrayLike, K: ArrayLike, *, rng: Rng = None) -> Approximation:
        """Return the approximation of exp(Q Kᵀ) for Q (n, d), K (l, d).

        It may refer to Q and K, which must then stay as they are.
        """

    def moments(self, Q: ArrayLike, K: ArrayLike) -> Moments | None:
        """Return exact bias and variance over rng, given Q and K; None where none is known.

        A deterministic method has bias estimate/exact − 1 and no variance.
        """
        if self.uses_rng:
            self.checked(Q, K)
            return None
        return self.realised_moments(Q, K)

    def realised_moments(self, Q: ArrayLike, K: ArrayLike) -> Moments | None:
        """Return bias estimate/exact − 1 and no variance: the moments where nothing is drawn."""
        q, k = self.checked(Q, K)
        estimate = self.approximate(q, k)
        if estimate.space == "attention":
            return None
        x = np.asarray(exact.logits(q, k), np.float64)
        shift = np.asarray(estimate.row_log(), np.float64)
        scaled = np.asarray(estimate.block(ALL, shift=shift), np.float64)
        with np.errstate(over="ignore", divide="ignore"):
            ratio = np.sign(scaled) * np.exp(np.log(np.abs(scaled)) + shift[:, None] - x)
        return Moments(ratio - 1.0, np.full(x.shape, -np.inf))

    def covariance(self, q: ArrayLike, K: ArrayLike, *, row: int | None = None) -> Array | None:
        """Return Cov(estimate_j, estimate_l)/(exact_j exact_l) of one query, (l, l), if known.

        Parameters
        ----------
        q : (d,) or (1, d); (n, d) where a row is given
            A method that fits parameters to its inputs fits them to all of q.
        K : (l, d)
        row : int, optional
            Which query.
        """
        _, keys, _ = self.one_query(q, K, row)
        return None if self.uses_rng else np.zeros((len(keys), len(keys)))

    def one_query(self, q: ArrayLike, K: ArrayLike, row: int | None) -> tuple[Array, Array, int]:
        """Return Q (n, d), K and the row that `covariance` is asked for, in float64."""
        query = checks.array("q", q)
        if query.ndim not in (1, 2):
            raise ValueError(f"q must have 1 or 2 dimensions, got shape {query.shape}")
        Q, keys = (np.asarray(x, np.float64) for x in self.checked(np.atleast_2d(query), K))
        if row is None and len(Q) != 1:
            raise ValueError(f"covariance is of one query, got {len(Q)}: say which row")
        place = 0 if row is None else row
        memory.reserve(48 * len(keys) ** 2, "the covariance of the keys", "l")
        return Q, keys, checks.integer("row", place, least=0, most=len(Q) - 1)

    def price(self, *, n: int, l: int, d: int) -> float | None:
        """Return stored values per query row, where known before approximating.

        By default a field ``m`` or ``rank`` counts columns of both factors, ``k`` entries a row.
        """
        size = self._size_field()
        count = None if size is None else getattr(self, size)
        if count is None:
            return None
        return float(count) if size == "k" else count * (n + l) / n

    def largest(self, *, n: int, l: int) -> int | None:
        """Return the largest size that has a meaning; None for no limit."""
        return {"k": l, "width": l, "size": l, "rank": min(n, l)}.get(self._size_field() or "")

    def within(self, budget: float, *, n: int, l: int, d: int) -> Self | None:
        """Return this method, its size filled to a budget; None if none fits.

        Parameters
        ----------
        budget : float
            Stored values per query row: parameters/n = (rank·(n + l) + nnz)/n.
        n, l, d : int
            Queries, keys, width.
        """
        budget, n, l, d = checks.asked(budget, n, l, d)
        size = self._size_field()
        if size is None or getattr(self, size) is not None:
            price = self.price(n=n, l=l, d=d)
            return self if price is None or price <= budget else None

        most = self.largest(n=n, l=l)

        def fits(count: int) -> bool:
            if most is not None and count > most:
                return False
            price = dataclasses.replace(self, **{size: count}).price(n=n, l=l, d=d)  # type: ignore[type-var]
            return price is not None and price <= budget

        low, high = 0, 1  # in steps: the price grows with the size
        while fits(self._steps(high)) and high < 2**40:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(self._steps(middle)) else (low, middle)
        if low == 0 or self._steps(low) < self.fewest(d):
            return None
        return dataclasses.replace(self, **{size: self._steps(low)})  # type: ignore[type-var]

    def fewest(self, d: int) -> int:
        """Return the least size at width d."""
        return self.least

    def _steps(self, count: int) -> int:
        return self.least + (count - 1) * self.step

    def _size_field(self) -> str | None:
        if self.size_field is not None:
            return self.size_field
        names = [f.name for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return next((name for name in names if name in ("m", "rank", "k")), None)

    def checked(self, Q: ArrayLike, K: ArrayLike) -> tuple[Array, Array]:
        """Return Q and K as arrays a kernel can take; ValueError for a template."""
        if self.is_template:
            size = self._size_field() or "every size"
            raise ValueError(f"{self} is a template: give {size}, or use within(budget, ...)")
        return checks.queries_keys(Q, K)

    def __str__(self) -> str:
        """Write the spec that `approx.parse` reads, defaults left out.

        Arrays, and with them given frequencies, have a digest in their place: a label, the same
        for the same numbers, from which no method is read.
        """
        given = [
            f"{f.name}={_spec(getattr(self, f.name))}"
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if f.default is dataclasses.MISSING or getattr(self, f.name) != f.default
        ]
        return f"{self.name}({', '.join(given)})"


def _spec(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):  # its repr rounds and shortens: two arrays, one label
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:8]
        return f"array({value.shape}, {digest})"
    return str(value) if isinstance(value, Method) else repr(value)


def generator(rng: Rng) -> np.random.Generator:
    """Return default_rng(rng): the one place where randomness enters.

    A SeedSequence is copied, so the same one gives the same draws again however often it spawns.

    Raises
    ------
    TypeError, ValueError
        rng is neither None, an integer ≥ 0, a SeedSequence nor a Generator.
    """
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, np.random.SeedSequence):
        rng = np.random.SeedSequence(rng.entropy, spawn_key=rng.spawn_key, pool_size=rng.pool_size)
        return np.random.default_rng(rng)
    return np.random.default_rng(
        None if rng is None else checks.integer("rng", rng, least=0, most=2**128)
    )
