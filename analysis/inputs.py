"""Queries, keys and values: synthetic, from files, and the bundled real sample.

The raw arrays are kept; `Inputs.Q` and `Inputs.K` contain the temperature, so that everywhere else
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
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np

from analysis import files
from approx import Approximation, Mask, checks, exact, masks, memory, notebook
from approx.checks import Array
from approx.masks import MaskLike
from approx.method import Method, Rng, generator
from approx.prices import Shape

_NAMES = {"full": False, "causal": True}  # of masks in a digest; others have their own key
LONGEST = 40  # characters of a name that a file gives its heads: a title beside another has room

SAMPLES = {  # the bundled files, with the name of the model and of its heads
    "minilm": ("MiniLM", ("easy", "middling", "hard")),
    "smollm2": ("SmolLM2", ("sink", "local", "broad", "retrieval")),
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Inputs:
    """Queries, keys and values of one head or of many, at a temperature.

    Parameters
    ----------
    name : str
        Label in tables and figures.
    q, k : (n, d), (l, d), or (count, n, d), (groups, l, d) for many heads
        The raw, unscaled arrays. If there are fewer keys than queries, successive heads share them:
        head i has the keys i // (count // groups), which are in memory once.
    v : as k with c columns, or None
    scaling : float, optional
        Logits at t = 1 are scaling·q·k; the default is 1/√d.
    mask : None, "causal", Mask, or a tuple with one for each head
        What each query sees; None is every key.
    temperature : float
        t.
    layer, head : int
        −1 where they are meaningless.
    ids : tuple of (layer, head, label)
        One for each head, where there are many.
    """

    name: str
    q: Array
    k: Array
    v: Array | None = None
    scaling: float | None = None
    mask: Any = None
    temperature: float = 1.0
    layer: int = -1
    head: int = -1
    ids: tuple[tuple[int, int, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("q", "k", "v"):
            x = getattr(self, name)
            if not isinstance(x, np.ndarray) and not (name == "v" and x is None):
                object.__setattr__(self, name, checks.array(name, x))
        if self.q.ndim not in (2, 3) or self.k.ndim != self.q.ndim:
            raise ValueError(
                f"q and k must both have 2 or 3 dimensions, got {self.q.shape}, {self.k.shape}"
            )
        if self.scaling is not None:
            checks.positive("scaling", self.scaling)
        checks.positive("temperature", self.temperature)
        if self.q.ndim == 3:
            if len(self.ids) != len(self.q):
                raise ValueError(f"ids must name each of {len(self.q)} heads, got {len(self.ids)}")
            for name, x in (("k", self.k), ("v", self.v)):
                if x is not None and (not len(x) or len(self.q) % len(x)):
                    raise ValueError(
                        f"the heads of q must be a multiple of those of {name}, "
                        f"got {self.q.shape} and {x.shape}"
                    )
        if isinstance(self.mask, Mask) and self.mask == Mask.full(*self.mask.shape):
            object.__setattr__(self, "mask", None)  # also of other arrays, put in by `replace`
        if isinstance(self.mask, tuple):
            if self.q.ndim == 2 or len(self.mask) != len(self.q):
                raise ValueError(f"one mask per head is needed, got {len(self.mask)} masks")
            known: dict[Any, Mask] = {}  # one object for heads of the same mask
            each = map(self._fitted, self.mask)
            object.__setattr__(self, "mask", tuple(known.setdefault(m, m) for m in each))
        else:
            object.__setattr__(self, "mask", self._fitted(self.mask))

    def __repr__(self) -> str:
        heads = f"{len(self.q)} heads, " if self.q.ndim == 3 else ""
        values = "" if self.v is None else f", c = {self.v.shape[-1]}"
        return (
            f"<Inputs {self.name!r}: {heads}{self.n} queries, {self.l} keys, d = {self.d}{values}, "
            f"{self._masks}, t = {self.temperature:g}>"
        )

    def _repr_html_(self) -> str:
        if self.q.ndim == 3:
            rows: list[tuple[Any, ...]] = [
                (f"{x.layer}.{x.head}", x.name, x.n, x.l, x.d, x.mask)
                for x in itertools.islice(self.heads(), notebook.MOST_ROWS)
            ]
            rows += [()] * (len(self.q) - len(rows))  # which are counted, not shown
            head = ["head", "name", "queries", "keys", "d", "mask"]
            return notebook.table(f"{self.name}, t = {self.temperature:g}", head, rows)
        return notebook.facts(
            self.name,
            [
                ("queries", self.n),
                ("keys", self.l),
                ("d", self.d),
                ("values", "none" if self.v is None else f"c = {self.v.shape[-1]}"),
                ("mask", self._masks),
                ("temperature", f"{self.temperature:g}"),
            ],
        )

    @property
    def _masks(self) -> str:
        if isinstance(self.mask, tuple):
            return ", ".join(sorted({str(mask) for mask in self.mask}))
        return str(self.mask)

    def _fitted(self, mask: MaskLike) -> Mask:
        # a full mask is full for any part of the inputs
        whole = isinstance(mask, Mask) and mask.key == "full"
        return masks.of(None if whole else mask, self.n, self.l)

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

    def _one_head(self) -> None:
        if self.q.ndim != 2:
            raise ValueError(
                f"{self.name} has {len(self.q)} heads: choose one with at(layer, head), "
                f"or iterate heads()"
            )

    def _root(self) -> float:
        self._one_head()
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
        """The queries q·√(scaling/t), (n, d), computed once: they are not to be written to."""
        return self._scaled("q", self.q)

    @functools.cached_property
    def K(self) -> Array:
        """The keys k·√(scaling/t), (l, d), computed once: they are not to be written to."""
        return self._scaled("k", self.k)

    def __getstate__(self) -> dict[str, Any]:
        # A worker gets the raw arrays only, which it can map from a file, and scales them itself.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @property
    def V(self) -> Array | None:
        """The values as they are, (l, c)."""
        self._one_head()
        return self.v

    @property
    def shape(self) -> Shape:
        """What prices follow from: n, l, d, c (which is d without values), and the mask."""
        c = self.d if self.V is None else self.V.shape[1]
        return Shape(self.n, self.l, self.d, c, self.mask)

    def logits(self) -> Array:
        """Return q·k in float64, (n, l); −inf where a query does not see the key."""
        x = np.asarray(exact.logits(self.Q, self.K), np.float64)
        self.mask.hide(x, fill=-np.inf)
        return x

    def approximate(self, method: Method, rng: Rng = None) -> Approximation:
        """Return the method's estimate at these inputs, under their mask.

        Examples
        --------
        >>> from approx import parse
        >>> x = dataclasses.replace(gaussian(4, 2, rng=0), mask="causal")
        >>> x.approximate(parse("one()")).to_dense()[0]
        array([1., 0., 0., 0.])
        """
        checks.instance("method", method, Method, "a method")
        return method.approximate(self.Q, self.K, mask=self.mask, rng=rng)

    def compare(self, estimate: Approximation, **options: Any) -> dict[str, float]:
        """Return the errors of an estimate at these inputs, by name: see `metrics.compare`.

        Raises
        ------
        ValueError
            The estimate has another mask than the inputs.

        Examples
        --------
        >>> from approx import parse
        >>> x = gaussian(4, 2, rng=0)
        >>> x.compare(x.approximate(parse("zero()")))["attention_tv"]
        1.0
        """
        from analysis import metrics

        return metrics.compare(estimate, self.Q, self.K, self.V, mask=self.mask, **options)

    def at_temperature(self, t: float) -> Self:
        """Return these inputs at temperature t, relative to the raw arrays.

        Raises
        ------
        ValueError
            t must be finite and > 0.

        Examples
        --------
        >>> x = gaussian(4, 2, rng=0)
        >>> bool(np.allclose(x.at_temperature(4.0).Q * 2, x.Q))
        True
        """
        return dataclasses.replace(self, temperature=checks.positive("temperature", t))

    def first(self, n: int) -> Self:
        """Return the first n queries, and the first n keys, or all up to the last that they see.

        Without a mask they are the first n of both. Under one, queries keep the keys that they see:
        of a text from its beginning these are its first n tokens, and of n queries that decode
        after a long text all of it.

        Examples
        --------
        >>> x = gaussian(8, 2, rng=0)
        >>> x.first(3).logits().shape
        (3, 3)
        >>> decoding = dataclasses.replace(x, q=x.q[-2:], mask="causal")
        >>> decoding.first(1).logits().shape
        (1, 7)
        """
        n = checks.integer("n", n, least=1)
        every = self.mask if isinstance(self.mask, tuple) else (self.mask,)
        some = [mask.take(slice(0, n)) for mask in every]
        l = max(m.span().stop if m.looks_back or not m.is_full else min(n, m.l) for m in some)
        kept = [Mask(m.first, np.minimum(m.stop, l), l, m.looks_back) for m in some]
        return dataclasses.replace(
            self,
            q=self.q[..., :n, :],
            k=self.k[..., :l, :],
            v=None if self.v is None else self.v[..., :l, :],
            mask=tuple(kept) if isinstance(self.mask, tuple) else kept[0],
        )

    def heads(self) -> Iterator[Inputs]:
        """Iterate over the heads, each an `Inputs` with its layer and head."""
        if self.q.ndim == 2:
            yield self
        for index in range(len(self.ids)):
            yield self._pick(index)

    def at(self, layer: int, head: int) -> Inputs:
        """Return one head.

        Raises
        ------
        ValueError
            There is no such layer and head; the message lists those there are.
        """
        for name, number in (("layer", layer), ("head", head)):
            checks.integer(name, number, least=0)
        for index, (one, other, _) in enumerate(self.ids):
            if (one, other) == (layer, head):
                return self._pick(index)
        known = ", ".join(f"{a}.{b}" for a, b, _ in self.ids[:12]) or "a single head"
        more = ", …" if len(self.ids) > 12 else ""
        raise ValueError(f"{self.name} has no layer {layer}, head {head}; it has {known}{more}")

    def _pick(self, index: int) -> Inputs:
        layer, head, label = self.ids[index]
        return dataclasses.replace(
            self,
            name=f"{self.name} {label}",
            q=self.q[index],
            k=self.k[index * len(self.k) // len(self.q)],
            v=None if self.v is None else self.v[index * len(self.v) // len(self.q)],
            mask=self.mask[index] if isinstance(self.mask, tuple) else self.mask,
            layer=layer,
            head=head,
            ids=(),
        )

    def digest(self) -> str:
        """Return a hash that identifies the raw content, whatever its layout or byte order."""
        scaling = None if self.scaling is None else float(self.scaling)
        every = self.mask if isinstance(self.mask, tuple) else (self.mask,)
        names = [_NAMES.get(str(mask), mask.key) for mask in every]
        seen = names[0] if len(names) == 1 else names
        about = (scaling, seen, int(self.layer), int(self.head))
        h = hashlib.sha256(repr(about).encode())
        for x in (self.q, self.k, self.v):
            if x is not None:
                little = np.ascontiguousarray(x, x.dtype.newbyteorder("<"))
                h.update(repr((x.shape, little.dtype.str)).encode())
                h.update(little.tobytes())
        return h.hexdigest()


def gaussian(n: int, d: int, *, rng: Rng) -> Inputs:
    """Return n independent q, k and v ~ N(0, I_d), whose logits have standard deviation 1/t."""
    shape, g = _shape(n, d), generator(rng)
    q, k, v = (g.standard_normal(shape) for _ in range(3))
    return Inputs("gaussian", q, k, v)


def sphere(n: int, d: int, *, rng: Rng) -> Inputs:
    """Return q and k uniform on the sphere of radius √d, and v ~ N(0, I_d)."""
    x = gaussian(n, d, rng=rng)
    q, k = (y * (math.sqrt(d) / np.linalg.norm(y, axis=1, keepdims=True)) for y in (x.q, x.k))
    return Inputs("sphere", q, k, x.v)


def clustered(
    n: int,
    d: int,
    clusters: int | None = None,
    spread: float = 0.3,
    shared: bool = False,
    *,
    rng: Rng,
) -> Inputs:
    """Return q, k = c + spread·N(0, I_d) around common centres c ~ N(0, I_d).

    Parameters
    ----------
    n, d : int
        The number of tokens and their width.
    clusters : int, optional
        The number of centres, by default n/8. Successive points belong to successive centres.
    spread : float
        The standard deviation within a cluster.
    shared : bool
        Whether Q = K, as in the analysis of Scatterbrain.
    rng : None, int, SeedSequence or Generator
    """
    shape, g = _shape(n, d), generator(rng)
    count = checks.integer(
        "clusters", max(1, n // 8) if clusters is None else clusters, least=1, most=n
    )
    width = _width("spread", spread)
    shared = checks.flag("shared", shared)
    centres = g.standard_normal((count, d))[np.arange(n) % count]
    q = centres + width * g.standard_normal(shape)
    k = q if shared else centres + width * g.standard_normal(shape)
    return Inputs("clustered Q=K" if shared else "clustered", q, k, g.standard_normal(shape))


def generative(
    n: int, d: int, delta: float, size: int = 2, *, shared: bool = True, rng: Rng
) -> Inputs:
    """Return the clusters of unit vectors in which Scatterbrain's regimes are proved.

    Centres are c ~ N(0, I_d/d), members c + r with r ~ N(0, Δ² I_d/d). The scaling is 1, so logits
    are q·k/t, and β of the theory, exp(β·q·k), is 1/t: ``at_temperature(1 / beta)``. Lengths are
    near 1; q·k is near 1 within a cluster and near 0 ± 1/√d between clusters.

    Parameters
    ----------
    n, d : int
        The number of tokens and their width.
    delta : float
        Δ, the distance of a member from its centre.
    size : int
        Members per cluster; if it does not divide n, some clusters have one less. Successive points
        belong to successive centres, so neighbours in the sequence are in different clusters.
    shared : bool
        Whether Q = K, as in the theory; else keys are further members of the same clusters.
    rng : None, int, SeedSequence or Generator

    Notes
    -----
    Entries within clusters and entries between clusters have equal row sums near β = log(n/size),
    and equal sums of squares near half of it: there neither sparse nor low-rank is enough alone.
    Q = K adds a diagonal of e^{β(1 + Δ²)}, which is sparse at every β.

    References
    ----------
    .. [1] B. Chen, T. Dao, E. Winsor, Z. Song, A. Rudra, C. Ré, "Scatterbrain: Unifying Sparse and
       Low-rank Attention Approximation", NeurIPS 2021, Process 1 and Theorem 1.

    Examples
    --------
    >>> x = generative(4, 64, 0.0, rng=0).at_temperature(1 / 3)  # beta = 3
    >>> bool(np.allclose(x.Q @ x.K.T, 3 * x.q @ x.k.T))
    True
    """
    shape, g = _shape(n, d), generator(rng)
    count = -(-n // checks.integer("size", size, least=1, most=n))
    width = _width("delta", delta)
    shared = checks.flag("shared", shared)
    unit = 1 / math.sqrt(d)
    centres = (unit * g.standard_normal((count, d)))[np.arange(n) % count]
    q = centres + width * unit * g.standard_normal(shape)
    k = q if shared else centres + width * unit * g.standard_normal(shape)
    name = "generative Q=K" if shared else "generative"
    return Inputs(name, q, k, g.standard_normal(shape), scaling=1.0)


def _shape(n: int, d: int) -> tuple[int, int]:
    n, d = checks.integer("n", n, least=1), checks.integer("d", d, least=1)
    memory.reserve(6 * 8 * n * d, f"{n} × {d} queries, keys and values", "n or d")
    return n, d


def _width(name: str, value: float) -> float:
    width = checks.number(name, value, "finite and >= 0")
    return width if width == 0 else checks.positive(name, value, most=1e100)


def load(
    path: str | Path, layer: int | None = None, head: int | None = None, *, dtype: str = "float64"
) -> Inputs:
    """Read Q, K and, if it is there, V from a file or a folder.

    Parameters
    ----------
    path : str or Path
        A folder with q.npy, k.npy[, v.npy] (memory-mapped), an .npz or a .safetensors file with
        unscaled arrays q, k[, v] of shape (n, d), (heads, n, d) or (layers, heads, n, d). Keys of
        grouped queries stay shared. A file may also hold ``scaling``; ``causal`` (0 or 1, where the
        n queries are the last of l positions); ``window``, the keys that a query of a
        sliding-window layer sees, one for all or one per layer or head, 0 for none; or ``first``
        and ``stop`` (n,), the keys first ≤ j < stop that a query of any head sees; and ``layers``
        and ``heads``, the original indices of (heads, n, d). The heads have the name of the file, a
        long one cut in its middle, with a blank for what cannot be printed.
    layer, head : int, optional
        The one head to read; for a file with one layer ``head`` alone is enough.
    dtype : {"float64", "float32"}
        float16 and bfloat16 are upcast.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    InputFileError
        The file is not of these formats, or its arrays do not fit together.
    ResourceLimitError
        The file would not fit in memory; this is raised before it is read.

    Warns
    -----
    InputFileWarning
        There are more heads than queries and than keys, as if the file were (n, heads, d). It is
        read as it is.
    """
    path = Path(path)
    path = path if path.name else path.absolute()  # of "." the folder's own name
    checks.one_of("dtype", dtype, ("float64", "float32"))
    arrays = files.read(path)
    q, k, v = arrays["q"], arrays["k"], arrays.get("v")
    ids = _ids(arrays, q.shape)
    mask = _mask(arrays, q.shape, k.shape[-2])
    if q.ndim > 2:
        q, k = q.reshape(-1, *q.shape[-2:]), k.reshape(-1, *k.shape[-2:])
        v = None if v is None else v.reshape(-1, *v.shape[-2:])
    scaling = arrays.get("scaling")
    whole = Inputs(
        files.one_line(path.name if path.is_dir() else path.stem, LONGEST),
        q,
        k,
        v,
        scaling=None if scaling is None else checks.positive("scaling", scaling.item()),
        mask=mask,
        ids=ids,
    )
    layers = {index for index, _, _ in ids}
    if (layer is None) != (head is None) and (head is None or len(layers) > 1):
        raise ValueError("give both layer and head, or head alone for a file of one layer")
    if head is not None:
        whole = whole.at(min(layers, default=0) if layer is None else layer, head)
    parts = [x for x in (whole.q, whole.k, whole.v) if x is not None]
    wide = np.dtype(dtype)  # a file of another dtype is copied; the check for NaN needs a mask
    size = sum(x.size * (1 + wide.itemsize * (x.dtype != wide)) for x in parts)
    memory.reserve(size, path.name, "the number of heads (give layer and head)")
    return dataclasses.replace(
        whole,
        q=checks.array("q", whole.q).astype(dtype, copy=False),
        k=checks.array("k", whole.k).astype(dtype, copy=False),
        v=None if whole.v is None else checks.array("v", whole.v).astype(dtype, copy=False),
    )


def _ids(arrays: dict[str, Array], shape: tuple[int, ...]) -> tuple[tuple[int, int, str], ...]:
    """Return (layer, head, label) of every head, in order."""
    if len(shape) == 2:
        return ()
    if "layers" in arrays and "heads" in arrays:
        indices = zip(arrays["layers"].ravel().tolist(), arrays["heads"].ravel().tolist())
        return tuple((layer, head, f"{layer}.{head}") for layer, head in indices)
    layers, heads = (1, *shape)[-4:-2]
    return tuple((a, b, f"{a}.{b}") for a in range(layers) for b in range(heads))


def _mask(arrays: dict[str, Array], shape: tuple[int, ...], l: int) -> Any:
    """Return the mask of a file, or one for each of its heads."""
    n = shape[-2]
    if "stop" in arrays:
        return Mask(arrays.get("first", np.zeros(n, np.intp)), arrays["stop"], l)
    if "causal" not in arrays or not arrays["causal"].item():
        return None
    widths = arrays["window"].ravel().tolist() if "window" in arrays else [0]
    every = [Mask.window(n, l, width) if width else Mask.causal(n, l) for width in widths]
    if len(every) == 1:
        return every[0]
    heads = math.prod(shape[:-2]) // len(every)  # of a layer, or 1
    return tuple(mask for mask in every for _ in range(heads))


def sample(name: str = "minilm", *, dtype: str = "float64") -> Inputs:
    """Return the bundled Q, K, V of a real model: heads of an encoder, or of a language model.

    analysis/data/README.md says where they come from.

    Parameters
    ----------
    name : {"minilm", "smollm2"}
        all-MiniLM-L6-v2: an easy, a middling and a hard head, which see all keys; or SmolLM2-135M:
        a sink head, a local, a broad and a retrieving one, which are causal.
    dtype : {"float64", "float32"}

    Examples
    --------
    >>> [x.name for x in sample().heads()]
    ['MiniLM easy', 'MiniLM middling', 'MiniLM hard']
    >>> [x.name for x in sample("smollm2").heads()]
    ['SmolLM2 sink', 'SmolLM2 local', 'SmolLM2 broad', 'SmolLM2 retrieval']
    """
    title, labels = SAMPLES[checks.one_of("name", name, tuple(SAMPLES))]
    with resources.as_file(resources.files("analysis") / "data" / f"{name}.npz") as path:
        loaded = load(path, dtype=dtype)
    ids = tuple((layer, head, label) for (layer, head, _), label in zip(loaded.ids, labels))
    return dataclasses.replace(loaded, name=title, ids=ids)
