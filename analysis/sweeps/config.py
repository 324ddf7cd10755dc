"""Sweeps as TOML files, read into frozen dataclasses; error messages name the key.

    seed = 0
    trials = 5
    temperatures = [0.5, 1.0, 2.0]
    budgets = [32.0]                       # if left out, every method needs its size
    currency = "stored"                    # of the budgets: reads, multiply_adds, bytes
    methods = ["zero", "positive", "scatterbrain(low_rank=positive(), sparse=top_k())"]

    [[inputs]]
    kind = "gaussian"                      # sphere, clustered, generative, sample, file
    n = 512
    d = 64
    causal = true                          # if left out, every query sees every key

The keys of an input are the fields of its dataclass in this module.
"""

import dataclasses
import functools
import math
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from analysis import inputs as data
from analysis.costs.budget import amount_text
from analysis.inputs import Head, Heads
from analysis.sweeps.sweep import SweepPlan, plan, repeated
from approx import Mask, Method, checks, parse
from approx.estimate import memory

MOST_BYTES = 2**20  # bytes of a config


class ConfigError(ValueError):
    """A config is wrong: the message names the key, the rule and the value."""


# Inputs

SHARED = ("seed", "name", "causal", "window")  # keys that are no parameters of `analysis.inputs`


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Random inputs: n queries and n keys of width d.

    Parameters
    ----------
    seed : int, optional
        By default the seed of the sweep.
    name : str, optional
        The name in the table; by default the name of the kind.
    causal : bool
        Whether a query sees only its own key and earlier keys.
    window : int
        The largest number of keys that a causal query sees, its own included; 0 for no limit.
    """

    kind: ClassVar[str]
    generator: ClassVar[Callable[..., Head]]
    n: int
    d: int
    seed: int | None = None
    name: str | None = None
    causal: bool = False
    window: int = 0

    def inputs(self, seed: int, folder: Path) -> list[Head]:
        """Return the head, drawn with its own seed or the seed of the sweep."""
        made = self.draw(seed if self.seed is None else self.seed)
        return [dataclasses.replace(made, name=self.name or made.name, mask=self.mask())]

    def mask(self) -> Mask | None:
        """Return the mask; None if every query sees every key."""
        width = checks.integer("window", self.window, least=0, most=self.n)
        if width and not self.causal:
            raise ValueError("window is the keys that a causal query sees: it needs causal = true")
        if width:
            return Mask.window(self.n, self.n, width)
        return Mask.causal(self.n, self.n) if self.causal else None

    def draw(self, rng: int) -> Head:
        """Return the head of this kind."""
        checks.integer("seed", rng, least=0)
        names = [f.name for f in dataclasses.fields(self) if f.name not in SHARED]
        return type(self).generator(**{name: getattr(self, name) for name in names}, rng=rng)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gaussian(Synthetic):
    """`analysis.inputs.gaussian`."""

    kind = "gaussian"
    generator = data.gaussian


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sphere(Synthetic):
    """`analysis.inputs.sphere`."""

    kind = "sphere"
    generator = data.sphere


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clustered(Synthetic):
    """`analysis.inputs.clustered`."""

    kind = "clustered"
    generator = data.clustered
    clusters: int | None = None
    spread: float = 0.3
    shared: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generative(Synthetic):
    """`analysis.inputs.generative`."""

    kind = "generative"
    generator = data.generative
    delta: float
    size: int = 2
    shared: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """The bundled heads of a real model.

    Parameters
    ----------
    n : int, optional
        The number of queries and keys to take from the start; by default all.
    heads : tuple of str
        Some of "easy", "middling", "hard"; by default all.
    """

    kind = "sample"
    n: int | None = None
    heads: tuple[str, ...] = ()

    def inputs(self, seed: int, folder: Path) -> list[Head]:
        """Return the heads."""
        return _some(data.sample(), self.heads, self.n)


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """The user's own heads.

    Parameters
    ----------
    path : str
        A file that `analysis.inputs.load` reads; a relative path starts at the config's folder.
    heads : tuple of str
        Heads by layer and head, such as "0.3"; by default all.
    n : int, optional
        The number of queries to take from the start, with the keys that they see; by default all.
    dtype : {"float64", "float32"}
    """

    kind = "file"
    path: str
    heads: tuple[str, ...] = ()
    n: int | None = None
    dtype: str = "float64"

    def inputs(self, seed: int, folder: Path) -> list[Head]:
        """Return the heads."""
        return _some(data.load(folder / self.path, dtype=self.dtype), self.heads, self.n)


Source = Synthetic | Sample | File
SOURCES: dict[str, type[Source]] = {
    source.kind: source for source in (Gaussian, Sphere, Clustered, Generative, Sample, File)
}


def _some(every: Head | Heads, labels: Sequence[str], n: int | None) -> list[Head]:
    """Return the first n rows of the heads with these labels, or of all heads."""
    heads = list(every.heads())
    if labels:
        ids = every.ids if isinstance(every, Heads) else ()
        known = {label: head for (_, _, label), head in zip(ids, heads)}
        if unknown := [name for name in labels if name not in known]:
            raise ValueError(checks.unknown("head", unknown[0], list(known)))
        if len(set(labels)) < len(labels):
            raise ValueError(f"heads must differ, got {', '.join(labels)}")
        heads = [known[label] for label in labels]
    return heads if n is None else [head.first(n) for head in heads]


# The config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A sweep: methods × inputs × temperatures × budgets × trials.

    Parameters
    ----------
    methods : tuple of str
        Specs, such as "positive(m=64)"; templates need ``budgets``.
    inputs : tuple of Source
    temperatures : tuple of float
        Relative temperatures t: logits are q·k/(t·√d).
    budgets : tuple of float, optional
        The largest cost per query.
    currency : {"stored", "reads", "multiply_adds", "bytes"}
        The currency of the budgets, by default stored values per query.
    trials : int
        Draws of each random method.
    seed : int
    """

    methods: tuple[str, ...]
    inputs: tuple[Source, ...]
    temperatures: tuple[float, ...]
    budgets: tuple[float, ...] | None = None
    currency: str = "stored"
    trials: int = 1
    seed: int = 0

    def plan(self, folder: str | Path = ".") -> SweepPlan:
        """Return the cells of the sweep; relative paths of files start at ``folder``.

        ConfigError names the key of a value out of range, and says if the sweep has no cells.
        """
        methods: list[Method] = [
            _at(f"methods[{i}]", parse, spec) for i, spec in enumerate(self.methods)
        ]
        for name in ("temperatures", "budgets"):
            for i, value in enumerate(getattr(self, name) or ()):
                _at(f"{name}[{i}]", checks.positive, name[:-1], value)
        _at("", functools.partial(checks.integer, "seed", self.seed, least=0))
        inputs = [
            head
            for i, source in enumerate(self.inputs)
            for head in _at(f"inputs[{i}]", source.inputs, self.seed, Path(folder))
        ]
        whole = functools.partial(
            plan, trials=self.trials, seed=self.seed, budget=self.budgets, currency=self.currency
        )
        planned: SweepPlan = _at("", whole, methods, inputs, self.temperatures)
        if planned.cells:
            return planned
        if all(absent.refusal is not None for absent in planned.absent):
            raise ConfigError(f"methods: {planned.absent[0]}")
        most = max(self.budgets or (0.0,))
        raise ConfigError(f"budgets: no method fits {amount_text(most, self.currency)}: raise them")


def load(path: str | Path) -> Config:
    """Read a config.

    ConfigError names the line that is not TOML, or the key that is unknown, missing or of a wrong
    type.
    """
    path = Path(path)
    return loads(read_config(path), path.name)


def read_config(path: Path) -> bytes:
    """Return the bytes of a config file; raise ConfigError if it is no file or too large."""
    if path.stat().st_size > MOST_BYTES or not path.is_file():
        raise ConfigError(f"{path.name} is not a file of at most {MOST_BYTES} bytes")
    return path.read_bytes()


def loads(source: bytes | str, name: str = "config") -> Config:
    r"""Read a config from the text of a TOML file, with the errors of `load`.

    Examples
    --------
    >>> loads("temperatures = [1.0]\nmetods = []")
    Traceback (most recent call last):
    analysis.sweeps.config.ConfigError: config: unknown key 'metods', did you mean 'methods'? ...
    """
    try:
        raw = tomllib.loads(source if isinstance(source, str) else source.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deeply
        raise ConfigError(f"{name}: {error}") from None
    try:
        config: Config = _table(Config, "", raw)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    return config


def _at(where: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return function(*arguments); its error's message names the place in the config."""
    try:
        return function(*arguments)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ConfigError(f"{where}: {error}" if where else str(error)) from error
    except (OSError, memory.ResourceLimitError) as error:  # its type is kept
        raise type(error)(f"{where}: {error}" if where else str(error)) from error


def _table(kind: type[Any], where: str, raw: dict[str, Any]) -> Any:
    """Return a dataclass from a table whose keys are its fields."""
    prefix = f"{where}." if where else ""
    fields, types = {f.name: f for f in dataclasses.fields(kind)}, get_type_hints(kind)
    if unknown := [name for name in raw if name not in fields]:
        raise ConfigError(
            checks.unknown("key", prefix + unknown[0], [prefix + name for name in fields])
        )
    needed = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in raw]
    if needed:
        raise ConfigError(f"{prefix}{needed[0]} is missing")
    return kind(**{name: _value(types[name], prefix + name, x) for name, x in raw.items()})


WORDS = {str: "text in one line", int: "an integer", float: "a number", bool: "true or false"}


def _value(kind: Any, where: str, value: Any) -> Any:
    """Return a value in the type of its field: text, number, flag, source, or a tuple of these."""
    if kind == Source:
        return _source(where, value)
    if get_origin(kind) is UnionType:  # with None, which TOML does not have
        kind = get_args(kind)[0]
    if get_origin(kind) is tuple:
        return _values(get_args(kind)[0], where, value)
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < checks.MOST_INTEGER else math.inf
    if type(value) is not kind or (kind is str and not (value.strip() and value.isprintable())):
        raise ConfigError(f"{where} must be {WORDS[kind]}, got {checks.display(value)}")
    if kind is float and not math.isfinite(value):
        raise ConfigError(f"{where} must be finite, got {value}")
    return value


def _values(kind: Any, where: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{where} must be a list, got {checks.display(value)}")
    if not value:
        raise ConfigError(f"{where} must not be empty")
    values = tuple(_value(kind, f"{where}[{i}]", x) for i, x in enumerate(value))
    if (i := repeated(values)) is not None:
        raise ConfigError(f"{where}[{i}]: {checks.display(value[i])} is given twice")
    return values


def _source(where: str, value: Any) -> Source:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a table, got {checks.display(value)}")
    own = dict(value)
    if "kind" not in own:
        raise ConfigError(f"{where}.kind is missing: one of {', '.join(SOURCES)}")
    kind = _value(str, f"{where}.kind", own.pop("kind"))
    if kind not in SOURCES:
        raise ConfigError(f"{where}: " + checks.unknown("kind", kind, list(SOURCES)))
    source: Source = _table(SOURCES[kind], where, own)
    return source
