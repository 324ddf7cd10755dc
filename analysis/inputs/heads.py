"""Queries, keys and values of one head (`Head`) or of many heads (`Heads`).

The stored arrays are raw; `Head.Q` and `Head.K` contain the temperature, so that everywhere else
logits = Q Kᵀ = scaling·q·k/t. With t = 1 and the default scaling 1/√d this is scaled dot-product
attention.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np

from approx import Approximation, Mask, checks, notebook
from approx.checks import Array
from approx.estimate import exact, masks
from approx.estimate.masks import MaskLike
from approx.method import Method, Rng
from approx.method.prices import Shape

_NAMES = {"full": False, "causal": True}  # masks in a digest; other masks have their own key


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _Arrays:
    """The common base of `Head` and `Heads`."""

    name: str
    q: Array
    k: Array
    v: Array | None = None
    scaling: float | None = None
    mask: Any = None
    temperature: float = 1.0
    sinks: Any = None

    ndim: ClassVar[int]

    def __post_init__(self) -> None:
        for name in ("q", "k", "v"):
            x = getattr(self, name)
            if not isinstance(x, np.ndarray) and not (name == "v" and x is None):
                object.__setattr__(self, name, checks.array(name, x))
        if not self.q.ndim == self.k.ndim == self.ndim:
            raise ValueError(
                f"q and k of {type(self).__name__} must have {self.ndim} dimensions, "
                f"got {self.q.shape}, {self.k.shape}"
            )
        if self.scaling is not None:
            checks.positive("scaling", self.scaling)
        checks.positive("temperature", self.temperature)
        if self.sinks is not None:
            sinks = np.asarray(checks.array("sinks", self.sinks), np.float64)
            if sinks.shape != self.q.shape[:-2]:
                raise ValueError(
                    f"sinks must be one logit per head, {self.q.shape[:-2]}, got {sinks.shape}"
                )
            object.__setattr__(self, "sinks", sinks)

    def require_no_sinks(self, what: str) -> Self:
        """Return the inputs; raise ValueError, with what cannot use them, if they have sinks."""
        if self.sinks is not None:
            raise ValueError(
                f"{what} would leave out the attention sinks of {self.name}, which are part of its "
                "softmax: use diagnose, target, sweep or substitute, which know them"
            )
        return self

    def _fitted(self, mask: MaskLike) -> Mask:
        # a full mask is full for any subset of the inputs
        whole = isinstance(mask, Mask) and mask.key == "full"
        return masks.as_mask(None if whole else mask, self.n, self.l)

    @property
    def n(self) -> int:
        """The number of queries."""
        return int(self.q.shape[-2])

    @property
    def l(self) -> int:
        """The number of keys."""
        return int(self.k.shape[-2])

    @property
    def d(self) -> int:
        """The width of queries and keys."""
        return int(self.q.shape[-1])

    @property
    def _masks(self) -> tuple[Mask, ...]:
        return self.mask if isinstance(self.mask, tuple) else (self.mask,)

    def _line(self, heads: str = "") -> str:
        values = "" if self.v is None else f", c = {self.v.shape[-1]}"
        return (
            f"<{type(self).__name__} {self.name!r}: {heads}{self.n} queries, {self.l} keys, "
            f"d = {self.d}{values}, {', '.join(sorted({str(mask) for mask in self._masks}))}, "
            f"t = {self.temperature:g}{'' if self.sinks is None else ', attention sinks'}>"
        )

    def at_temperature(self, t: float) -> Self:
        """Return the same inputs at temperature t, relative to the raw arrays.

        Examples
        --------
        >>> from analysis.inputs import gaussian
        >>> x = gaussian(4, 2, rng=0)
        >>> bool(np.allclose(x.at_temperature(4.0).Q * 2, x.Q))
        True
        """
        return dataclasses.replace(self, temperature=checks.positive("temperature", t))

    def first(self, n: int) -> Self:
        """Return the first n queries, with the keys that they see.

        Without a mask, the result has the first n queries and the first n keys. Under a mask, it
        has all keys up to the last that these queries see: the first n tokens of a text from its
        beginning, but the whole text if the queries decode after it.

        Examples
        --------
        >>> from analysis.inputs import gaussian
        >>> x = gaussian(8, 2, rng=0)
        >>> x.first(3).logits().shape
        (3, 3)
        >>> decoding = dataclasses.replace(x, q=x.q[-2:], mask="causal")
        >>> decoding.first(1).logits().shape
        (1, 7)
        """
        n = checks.integer("n", n, least=1)
        some = [mask.take(slice(0, n)) for mask in self._masks]
        l = max(m.span().stop if m.looks_back or not m.is_full else min(n, m.l) for m in some)
        kept = [Mask(m.first, np.minimum(m.stop, l), l, m.looks_back) for m in some]
        return dataclasses.replace(
            self,
            q=self.q[..., :n, :],
            k=self.k[..., :l, :],
            v=None if self.v is None else self.v[..., :l, :],
            mask=tuple(kept) if isinstance(self.mask, tuple) else kept[0],
        )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Head(_Arrays):
    """Queries, keys and values of one head, at a temperature.

    Parameters
    ----------
    name : str
        Label in tables and figures.
    q, k : (n, d), (l, d)
        The raw, unscaled arrays.
    v : (l, c), or None
    scaling : float, optional
        Logits at t = 1 are scaling·q·k; the default is 1/√d.
    mask : None, "causal" or Mask
        The keys that each query sees; None shows every key.
    temperature : float
        t.
    sinks : float, optional
        The logit s of an attention sink at t = 1, a parameter of the model: it takes part in the
        softmax like a logit, s/t at temperature t, but has no key. Rows of attention are then
        e^x/(e^(s/t) + Σ e^x), and the methods choose, round and hide only keys.
    layer, head : int
        Indices in the model; −1 if there are none.
    group : int
        The number of heads that share these keys and values, which pay for them once.
    """

    layer: int = -1
    head: int = -1
    group: int = 1

    ndim = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "mask", self._fitted(self.mask))

    def __repr__(self) -> str:
        return self._line()

    def _repr_html_(self) -> str:
        return notebook.facts(
            self.name,
            [
                ("queries", self.n),
                ("keys", self.l),
                ("d", self.d),
                ("values", "none" if self.v is None else f"c = {self.v.shape[-1]}"),
                ("mask", self.mask),
                ("temperature", f"{self.temperature:g}"),
            ],
        )

    def heads(self) -> Iterator[Head]:
        """Yield this head, as `Heads.heads` yields its heads."""
        yield self

    def at(self, layer: int, head: int) -> Head:
        """Return this head if the indices are its own, else raise ValueError; see `Heads.at`.

        A head without indices is 0.0, too.
        """
        if (layer, head) not in ((self.layer, self.head), (max(0, self.layer), max(0, self.head))):
            raise ValueError(f"{self.name} has no layer {layer}, head {head}: it is a single head")
        return self

    def _root(self) -> float:
        scaling = 1 / math.sqrt(self.d) if self.scaling is None else self.scaling
        ratio = scaling / self.temperature
        if not 0 < ratio < math.inf:
            raise ValueError(
                f"scaling/temperature must be representable, got {scaling!r}/{self.temperature!r}"
            )
        return math.sqrt(ratio)

    def _scaled(self, name: str, x: Array) -> Array:
        root = self._root()
        raw = checks.array(name, x, ndim=2)
        if float(np.abs(raw).max(initial=0.0)) * root > float(np.finfo(raw.dtype).max):
            raise ValueError(
                f"{name} at temperature {self.temperature!r} must be representable in {raw.dtype}: "
                "raise the temperature"
            )
        return raw * root

    @functools.cached_property
    def Q(self) -> Array:
        """The queries q·√(scaling/t), (n, d), computed once; do not write to them."""
        return self._scaled("q", self.q)

    @functools.cached_property
    def K(self) -> Array:
        """The keys k·√(scaling/t), (l, d), computed once; do not write to them."""
        return self._scaled("k", self.k)

    @property
    def V(self) -> Array | None:
        """The raw values, (l, c)."""
        return self.v

    def __getstate__(self) -> dict[str, Any]:
        # A worker gets only the raw arrays, which can be mapped from a file, and scales them.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def sink(self) -> float:
        """The logit of the attention sink at the temperature; −inf if there is none."""
        return -math.inf if self.sinks is None else float(self.sinks) / self.temperature

    @property
    def shape(self) -> Shape:
        """The shape for prices: n, l, d, c (d without values), the mask and the group."""
        c = self.d if self.V is None else self.V.shape[1]
        return Shape(self.n, self.l, self.d, c, self.mask, self.group)

    def logits(self) -> Array:
        """Return the logits in float64, (n, l); −inf outside the mask."""
        x = np.asarray(exact.logits(self.Q, self.K), np.float64)
        self.mask.hide(x, fill=-np.inf)
        return x

    def approximate(self, method: Method, rng: Rng = None) -> Approximation:
        """Return the method's estimate for these inputs, under their mask.

        Examples
        --------
        >>> from analysis.inputs import gaussian
        >>> from approx import parse
        >>> x = dataclasses.replace(gaussian(4, 2, rng=0), mask="causal")
        >>> x.approximate(parse("one()")).to_dense()[0]
        array([1., 0., 0., 0.])
        """
        checks.instance("method", method, Method, "a method")
        try:
            return method.approximate(
                self.Q, self.K, mask=self.mask, rng=rng, sink=self.sink, V=self.V
            )
        except ValueError as error:
            error.args = (f"{self.name}: {error}",)
            raise

    def compare(self, estimate: Approximation, **options: Any) -> dict[str, float]:
        """Return the errors of an estimate for these inputs, by name; see `metrics.compare`.

        Raises
        ------
        ValueError
            The estimate has another mask or attention sink than the head.

        Examples
        --------
        >>> from analysis.inputs import gaussian
        >>> from approx import parse
        >>> x = gaussian(4, 2, rng=0)
        >>> x.compare(x.approximate(parse("zero()")))["attention_tv"]
        1.0
        """
        from analysis.errors import metrics

        if estimate.sink != self.sink:
            raise ValueError(
                f"the estimate has the attention sink {estimate.sink}, and {self.name} has "
                f"{self.sink}: use Head.approximate, which passes it on"
            )
        return metrics.compare(estimate, self.Q, self.K, self.V, mask=self.mask, **options)

    def digest(self) -> str:
        """Return a hash of the raw content, independent of memory layout and byte order."""
        return self._digest

    @functools.cached_property
    def _digest(self) -> str:
        scaling = None if self.scaling is None else float(self.scaling)
        seen = _NAMES.get(str(self.mask), self.mask.key)
        about: tuple[Any, ...] = (scaling, seen, int(self.layer), int(self.head))
        about += () if self.sinks is None else (float(self.sinks),)
        h = hashlib.sha256(repr(about).encode())
        for x in (self.q, self.k, self.v):
            if x is not None:
                little = np.ascontiguousarray(x, x.dtype.newbyteorder("<"))
                h.update(repr((x.shape, little.dtype.str)).encode())
                h.update(little.tobytes())
        return h.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Heads(_Arrays):
    """Queries, keys and values of many heads, such as a file has; iteration yields each `Head`.

    Parameters
    ----------
    name, scaling, temperature
        As for `Head`.
    sinks : (count,), optional
        One logit per head.
    q, k : (count, n, d), (groups, l, d)
        The raw, unscaled arrays. With groups < count, consecutive heads share keys: head i has the
        keys i // (count // groups), which are in memory once.
    v : as k with c columns, or None
    mask : None, "causal", Mask, or a tuple with one mask per head
    ids : tuple of (layer, head, label)
        One per head.
    dtype : str, optional
        The dtype of a `Head`. The arrays may have fewer bits and be mapped from a file; a head is
        converted when it is requested.
    """

    ids: tuple[tuple[int, int, str], ...] = ()
    dtype: str | None = None

    ndim = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.ids) != len(self.q):
            raise ValueError(f"ids must name each of {len(self.q)} heads, got {len(self.ids)}")
        for name, x in (("k", self.k), ("v", self.v)):
            if x is not None and (not len(x) or len(self.q) % len(x)):
                raise ValueError(
                    f"the heads of q must be a multiple of those of {name}, "
                    f"got {self.q.shape} and {x.shape}"
                )
        if isinstance(self.mask, tuple):
            if len(self.mask) != len(self.q):
                raise ValueError(f"one mask per head is needed, got {len(self.mask)} masks")
            known: dict[Any, Mask] = {}  # heads with equal masks share one object
            each = map(self._fitted, self.mask)
            object.__setattr__(self, "mask", tuple(known.setdefault(m, m) for m in each))
        else:
            object.__setattr__(self, "mask", self._fitted(self.mask))

    def __repr__(self) -> str:
        return self._line(f"{len(self)} heads, ")

    def _repr_html_(self) -> str:
        rows: list[tuple[Any, ...]] = [
            (f"{x.layer}.{x.head}", x.name, x.n, x.l, x.d, x.mask)
            for x in itertools.islice(self, notebook.MOST_ROWS)
        ]
        rows += [()] * (len(self) - len(rows))  # counted, not shown
        head = ["head", "name", "queries", "keys", "d", "mask"]
        return notebook.table(f"{self.name}, t = {self.temperature:g}", head, rows)

    def __len__(self) -> int:
        return len(self.q)

    def __iter__(self) -> Iterator[Head]:
        return self.heads()

    def __getitem__(self, index: int) -> Head:
        """Return the head at an index in the file."""
        return self._pick(range(len(self))[index])

    def heads(self) -> Iterator[Head]:
        """Iterate over the heads; heads of a group share their keys."""
        return map(self._pick, range(len(self)))

    def at(self, layer: int, head: int) -> Head:
        """Return the head with these indices.

        Raises
        ------
        ValueError
            There is no such layer and head; the message lists the existing ones.
        """
        for name, number in (("layer", layer), ("head", head)):
            checks.integer(name, number, least=0)
        for index, (one, other, _) in enumerate(self.ids):
            if (one, other) == (layer, head):
                return self._pick(index)
        known = ", ".join(f"{a}.{b}" for a, b, _ in self.ids[:12])
        more = ", …" if len(self.ids) > 12 else ""
        raise ValueError(f"{self.name} has no layer {layer}, head {head}; it has {known}{more}")

    def _wide(self, name: str, index: int) -> Array:
        """Return one array, converted; consecutive heads of a group share it."""
        every = getattr(self, name)
        if self.dtype is None or every.dtype == self.dtype:
            return np.asarray(every[index])
        if name not in self._last or self._last[name][0] != index:
            self._last[name] = index, every[index].astype(self.dtype)
        return self._last[name][1]

    @functools.cached_property
    def _last(self) -> dict[str, tuple[int, Array]]:
        return {}

    def _pick(self, index: int) -> Head:
        layer, head, label = self.ids[index]
        return Head(
            f"{self.name} {label}",
            self._wide("q", index),
            self._wide("k", index * len(self.k) // len(self.q)),
            None if self.v is None else self._wide("v", index * len(self.v) // len(self.q)),
            self.scaling,
            self.mask[index] if isinstance(self.mask, tuple) else self.mask,
            self.temperature,
            None if self.sinks is None else self.sinks[index],
            layer,
            head,
            len(self.q) // len(self.k),
        )
