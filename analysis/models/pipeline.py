"""One run over a language model: advice for every head, a plan, and the effect of the plan.

A `Run` reads a text. It gives advice for each head alone (`analysis.advice.diagnose`), chooses a
method for every head at an average price (`analysis.models.cost_curves`,
`analysis.models.planner`), and measures this plan and the best single method on text that was not
used for the choice. It works layer by layer and stores each finished piece, so that a stopped run
continues where it was.
"""

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.advice.diagnose import diagnose
from analysis.advice.verdict import VERDICTS
from analysis.costs import budget as budgets
from analysis.costs.allocation import HEAD, Allocation, single
from analysis.costs.budget import KEYS
from analysis.models import checkpoints, cost_curves, planner
from analysis.models.checkpoints import Place
from analysis.models.language_model import LanguageModel
from analysis.models.next_tokens import Change, changed
from analysis.models.plan import Plan
from analysis.models.replacement import (
    BLOCK,
    COMPUTING,
    FEWEST,
    SKIP,
    Estimated,
    Passage,
    Replaced,
    passes,
    perplexity,
)
from analysis.models.sensitivity import Gradients, gradients
from analysis.runs import engines, tasks
from analysis.runs.output_files import usable
from analysis.sentences import one_line
from analysis.sweeps import table
from analysis.sweeps.store import StoreError, SweepStore
from analysis.sweeps.table import Row
from approx import checks
from approx.checks import Array
from approx.method.prices import CURRENCIES

LEAST_TOKENS = SKIP + FEWEST * BLOCK  # tokens of a text; with fewer a KL has no standard error
NEAR = 200  # the halves of a text are cut at a blank within so many characters after its middle
ADVICE = (  # the stored columns of `diagnose`, all numbers
    "attention_tv", "stored", "reads", "bound", "certificate", "exact_price", "exact_reads",
    "winner", "runnable", "oracle", "screened", "verdict",
)  # fmt: skip
WORDS = "kl", "own_token", "own_probability", "plan_token", "plan_probability"
PACKAGES = "expqk", "numpy", "numba", "torch", "transformers"
File = str | os.PathLike[str]


class Cell(NamedTuple):
    """A stored piece of a run: the advice or the curves of a layer, or a measurement.

    Attributes
    ----------
    kind : {"advice", "curves", "plan", "single"}
    place : float
        The layer, or the share of the budget.
    """

    kind: str
    place: float


class Results(NamedTuple):
    """The results of a run.

    Attributes
    ----------
    about : dict
        The settings: names, digests, tokens, budget, seed; the date, and versions.
    advice : DataFrame
        One row per head and method, for `analysis.advice.verdict.advice`.
    plan : Plan
        As `analysis.models.planner.plan` returns it.
    singles : list of dict
        For each price of the frontier: the single ``method`` with the least predicted damage for
        all heads, and its numbers from `analysis.models.planner.measured`. A price that buys no
        method is left out.
    changes : list of Change
        Three positions where the next word differs: with the largest, the middle and the least KL.
    differing, positions : int
        The number of positions where the next word differs, and of all measured positions.
    gain : Estimated or None
        KL of the single method at the budget minus KL of the plan, position by position; None if no
        single method fits.
    """

    about: dict[str, Any]
    advice: pd.DataFrame
    plan: Plan
    singles: list[dict[str, Any]]
    changes: list[Change]
    differing: int
    positions: int
    gain: Estimated | None


@dataclasses.dataclass(eq=False)
class Run:
    """A run over a model, stored in a folder; `open` creates it.

    Parameters
    ----------
    model : LanguageModel
    chosen_on, measured_on : (n,)
        The tokens of the text that the plan is chosen on, and of the text that it is measured on.
    store : SweepStore
    settings : dict
        Everything that decides the numbers.
    jobs : int
    scheduler : str or distributed.Client, optional
    """

    model: LanguageModel
    chosen_on: Array
    measured_on: Array
    store: SweepStore
    settings: dict[str, Any]
    jobs: int
    scheduler: Any = None
    _cluster: Any = dataclasses.field(default=None, init=False, repr=False)

    @classmethod
    def open(
        cls,
        model_dir: File,
        text: File,
        folder: File,
        *,
        held_out: File | None = None,
        budget: float | None = None,
        currency: str = "reads",
        max_tokens: int = 512,
        seed: int = 0,
        jobs: int | None = None,
        scheduler: Any = None,
    ) -> Self:
        """Return a new run, or the unfinished run in the folder.

        Parameters
        ----------
        model_dir : path
            See `analysis.models.language_model.LanguageModel.open`.
        text : path
            A UTF-8 file.
        folder : path
            The folder of the store.
        held_out : path, optional
            A text to measure on; by default the second half of ``text``, and the first half
            chooses.
        budget : float, optional
            The average price per query of a head; by default that of 32 exact keys.
        currency : {"reads", "stored", "multiply_adds", "bytes", "bytes_read"}
        max_tokens : int
            The most tokens of each text; both texts are cut to the same length.
        seed : int
        jobs : int, optional
            Threads and processes; by default one per core. The numbers do not depend on it.
        scheduler : str or distributed.Client, optional
            A Dask cluster, see `analysis.sweeps.sweep.sweep`. Its tasks are heads, and passes that
            measure plans.

        Raises
        ------
        ImportError, ValueError
            The model cannot be used, a text is too short, or the folder holds a run of other
            settings.
        """
        checks.integer("max_tokens", max_tokens, least=LEAST_TOKENS)
        checks.one_of("currency", currency, CURRENCIES)
        checks.integer("seed", seed, least=0)
        if budget is not None:
            budget = checks.positive("budget", budget)
        words = checkpoints.texts(model_dir, text, held_out)
        parts = halves(words[0]) if held_out is None else words
        model = LanguageModel.open(model_dir)
        tokens = [_tokens(model, part, max_tokens) for part in parts]
        if len(shortest := min(tokens, key=len)) < LEAST_TOKENS:
            raise ValueError(
                f"the text gives {len(tokens[0])} tokens to choose a plan on and {len(tokens[1])} "
                f"to measure it on, and each must have {LEAST_TOKENS}: give a longer text, or a "
                "second one"
            )
        first, second = (ids[: len(shortest)] for ids in tokens)
        settings = {
            "model": model.name,
            "model_sha256": Place.from_path(model_dir).digests(),
            "text": one_line(Path(text).name),
            "text_sha256": checkpoints.digest(text),
            "held_out": None if held_out is None else one_line(Path(held_out).name),
            "held_out_sha256": None if held_out is None else checkpoints.digest(held_out),
            "tokens": len(shortest),
            "budget": budget,
            "currency": currency,
            "seed": seed,
            "code": tasks.CODE[:12],
            "version": metadata.version("expqk"),
            **{name: metadata.version(name) for name in COMPUTING},
        }
        every = os.cpu_count() or 1
        jobs = checks.integer("jobs", every if jobs is None else jobs, least=1)
        usable(Path(folder))
        store = SweepStore(Path(folder))
        refuse_another(store, settings)
        run = cls(model, first, second, store, settings, jobs, scheduler)
        date = str(datetime.datetime.now(datetime.UTC).date())
        store.open(
            [run.key(cell) for cell in run.cells()], asked=settings, date=date, **_versions()
        )
        return run

    def cells(self) -> list[Cell]:
        """Return every piece of the run, in order."""
        layers = [Cell(kind, i) for i in range(self.model.layers) for kind in ("advice", "curves")]
        return layers + [Cell(kind, s) for s in planner.FRONTIER for kind in ("plan", "single")]

    def key(self, cell: Cell) -> str:
        """Return the hash of all that decides the numbers of a piece: its name in the store."""
        about = self.settings | {"cell": list(cell)}
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def left(self) -> list[Cell]:
        """Return the pieces that are not finished."""
        return [cell for cell in self.cells() if not self.store.done(self.key(cell))]

    def fill(self, *, progress: bool = False) -> None:
        """Compute the remaining pieces; each is stored as soon as it is finished."""
        made: Mapping[str, Callable[[float], Iterator[Row]]] = {
            "advice": self._advice,
            "curves": self._priced,
            "plan": self._planned,
            "single": self._single,
        }
        every, left = self.cells(), self.left()
        done = len(every) - len(left)
        with (
            self._connected(),
            tqdm(total=len(every), initial=done, disable=not progress, desc="model") as bar,
        ):

            def make(cell: Cell) -> None:
                bar.set_postfix_str(f"{cell.kind} {cell.place:g}")
                self.store.put(self.key(cell), list(made[cell.kind](cell.place)))
                bar.update()

            layers = [cell for cell in left if cell.kind in ("advice", "curves")]
            if self._cluster is not None and any(cell.kind == "curves" for cell in layers):
                _ = self._gradients, self._budget  # once, before several pieces need them
            for cell in left:
                make(cell)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Use one cluster for all pieces of a run."""
        with engines.client(self.scheduler, self.jobs) as self._cluster:
            yield
        self._cluster = None

    def results(self) -> Results:
        """Return the results of the run, from its store.

        Raises
        ------
        ValueError
            It is not complete.
        """
        if left := self.left():
            raise ValueError(f"{len(left)} of {len(self.cells())} pieces are not done")
        chosen = self._allocated
        numbers = {share: _numbers(self._rows("plan", share)) for share in chosen}
        plan = planner.assembled(
            self.model.name,
            self._choices,
            {share: (some, numbers[share]) for share, some in chosen.items()},
            {
                "budget": float(self._kept.budget.iloc[0]),
                "currency": self.settings["currency"],
                "chosen_on": [self._named(self.settings["text"], "first half")],
                "measured_on": self.settings["held_out"]
                or self._named(self.settings["text"], "second half"),
                "tokens": self.settings["tokens"],
                "model_sha256": self.settings["model_sha256"],
                "text_sha256": {
                    self.settings[name]: self.settings[f"{name}_sha256"]
                    for name in ("text", "held_out")
                    if self.settings[name]
                },
                "version": self.settings["version"],
                "exact_perplexity": numbers[1.0].pop("exact_perplexity"),
            },
        )
        for one in numbers.values():
            one.pop("exact_perplexity", None)
        singles = [
            {"method": rows.method.iloc[0], **_numbers(rows)}
            for share in planner.FRONTIER
            if len(rows := self._rows("single", share))
        ]
        read, alone = (self._by_position(kind) for kind in ("plan", "single"))
        gain = None if alone.empty else _gain(alone.kl, read.kl)
        ids = self.measured_on
        changes = changed(ids, read, self.model.tokenizer.decode)
        differing = int((read.own_token != read.plan_token).sum())
        manifest = self.store.manifest
        about = self.settings | {name: manifest[name] for name in ("date", "versions", "python")}
        return Results(about, self._told, plan, singles, changes, differing, len(read), gain)

    def _named(self, text: str, half: str) -> str:
        return text if self.settings["held_out"] else f"{text}, {half}"

    # Inputs of the pieces

    @functools.cached_property
    def _passage(self) -> Passage:
        return Passage(self.model, self.chosen_on, seed=self.settings["seed"], jobs=self.jobs)

    @functools.cached_property
    def _held_out(self) -> Passage:
        return Passage(self.model, self.measured_on, seed=self.settings["seed"], jobs=self.jobs)

    @functools.cached_property
    def _gradients(self) -> Gradients:
        return gradients(self._passage)

    @functools.cached_property
    def _budget(self) -> float:
        if self.settings["budget"] is not None:
            return float(self.settings["budget"])
        return budgets.price_of_keys(
            KEYS, self._passage.inputs(0).at(0, 0), self.settings["currency"]
        )

    def _diagnosed(self, layer: int, heads: Sequence[int], jobs: int) -> pd.DataFrame:
        x = self._passage.inputs(layer)
        return diagnose(
            [x.at(layer, head) for head in heads],
            budget=self._budget,
            currency=self.settings["currency"],
            seed=self.settings["seed"],
            jobs=jobs,
            scheduler=self._cluster,
        )

    def _curves(self, layer: int, heads: Sequence[int] | None = None) -> pd.DataFrame:
        width = self._passage.shapes[layer].d
        choices = cost_curves.choices(self._budget, self.settings["currency"], width=width)
        return cost_curves.layer_curves(
            [self._passage], [self._gradients], layer, choices, heads,
            screen=True, scheduler=self._cluster,
        )  # fmt: skip

    def _row(
        self, layer: int, head: int, method: str, metric: str, value: float, *, trial: int = -1
    ) -> Row:
        n, l, d, _ = self._passage.shapes[max(layer, 0)]
        place = (self.model.name, layer, head, n, l, d, 1.0, method, self._budget, trial)
        return (*place, metric, value, math.nan)

    def _advice(self, layer: float) -> Iterator[Row]:
        told = self._diagnosed(int(layer), range(self.model.heads), self.jobs)
        told["verdict"] = told.verdict.map(VERDICTS.index)
        for row in told.to_dict("records"):
            for metric in ADVICE:
                yield self._row(row["layer"], row["head"], row["spec"], metric, float(row[metric]))

    def _priced(self, layer: float) -> Iterator[Row]:
        for row in self._curves(int(layer)).to_dict("records"):
            for metric in ("price", "damage"):
                yield self._row(row["layer"], row["head"], row["method"], metric, row[metric])

    def _planned(self, share: float) -> Iterator[Row]:
        if share not in self._allocated:
            return
        some, done = self._allocated[share], self._replaced(Cell("plan", share))
        numbers = planner.numbers(some, done)
        if share == 1:
            numbers["exact_perplexity"] = perplexity(self._held_out.surprisal)
            own, plan = (
                self._held_out.likeliest(state) for state in (self._held_out.states[-1], done.state)
            )
            columns = dict(zip(WORDS, (done.kl, *own, *plan), strict=True))
            yield from self._positions("plan", columns)
        yield from self._measured("plan", numbers)

    def _single(self, share: float) -> Iterator[Row]:
        cell = Cell("single", share)
        if (some := self._choice(cell)) is not None:
            spec, done = str(some.chosen.method.iloc[0]), self._replaced(cell)
            if share == 1:
                yield from self._positions(spec, {"kl": done.kl})
            yield from self._measured(spec, planner.numbers(some, done))

    def _choice(self, cell: Cell) -> Allocation | None:
        """Return the choice that a measurement needs; None if the share buys no method."""
        if cell.kind == "plan":
            return self._allocated.get(cell.place)
        return single(self._choices, cell.place * self._budget)

    def _replaced(self, cell: Cell) -> Replaced:
        if cell not in self._passed:
            left = [cell] if self._cluster is None else self.left()
            some = {c: x for c in left if c.kind in ("plan", "single") and (x := self._choice(c))}
            runs = [planner.heads(x.chosen) for x in some.values()]
            for i, (done, _, _) in passes(self._held_out, runs, scheduler=self._cluster):
                self._passed[list(some)[i]] = done
        return self._passed.pop(cell)

    @functools.cached_property
    def _passed(self) -> dict[Cell, Replaced]:
        return {}

    def _measured(self, method: str, numbers: Mapping[str, Any]) -> Iterator[Row]:
        for metric, value in numbers.items():
            yield self._row(-1, -1, method, metric, math.nan if value is None else float(value))

    def _positions(self, method: str, columns: Mapping[str, Array]) -> Iterator[Row]:
        for metric, values in columns.items():
            for position, value in zip(self._held_out.positions, values):
                yield self._row(-1, -1, method, metric, float(value), trial=int(position))

    # Reading the store

    def _rows(self, kind: str, place: float) -> pd.DataFrame:
        return table.frame(self.store.get(self.key(Cell(kind, place))) or [])

    def _by_position(self, kind: str) -> pd.DataFrame:
        """Return the stored numbers of each position, at the budget."""
        rows = self._rows(kind, 1.0)
        return rows[rows.trial >= 0].pivot(index="trial", columns="metric", values="value")

    def _all(self, kind: str) -> pd.DataFrame:
        parts = [self._rows(kind, layer) for layer in range(self.model.layers)]
        return _wide(pd.concat(parts, ignore_index=True))

    @functools.cached_property
    def _kept(self) -> pd.DataFrame:
        return self._all("curves")

    @property
    def _choices(self) -> pd.DataFrame:
        return self._kept[[*HEAD, "method", "price", "damage"]]

    @functools.cached_property
    def _allocated(self) -> dict[float, Allocation]:
        return planner.allocated(self._choices, float(self._kept.budget.iloc[0]))

    @property
    def _told(self) -> pd.DataFrame:
        told = self._all("advice").rename(columns={"method": "spec"})
        told["verdict"] = [VERDICTS[int(number)] for number in told.verdict]
        told["currency"] = self.settings["currency"]
        return told.astype(dict.fromkeys(("winner", "runnable", "oracle", "screened"), bool))


def refuse_another(store: SweepStore, settings: Mapping[str, Any]) -> None:
    """Raise StoreError if a store holds a run with other settings, and name the difference."""
    before = store.manifest.get("asked") if store.manifest else settings
    if not isinstance(before, dict):
        raise StoreError(f"{one_line(store.folder)} holds a sweep, and no run over a model")
    for name in settings:
        if before.get(name) != settings[name]:
            raise StoreError(
                f"{one_line(store.folder)} holds a run with another {name.replace('_', ' ')}, "
                f"{one_line(before.get(name), 60)} and not {one_line(settings[name], 60)}: use "
                "another folder"
            )


def halves(words: str) -> tuple[str, str]:
    """Return two halves of a text, cut at a blank if there is one near the middle.

    Examples
    --------
    >>> halves("a house of one's own")
    ('a house of', "one's own")
    """
    middle = len(words) // 2
    near = range(middle, min(middle + NEAR, len(words)))
    at = next((i for i in near if words[i].isspace()), middle)
    return words[:at], words[at:].lstrip()


def _gain(alone: pd.Series, plan: pd.Series) -> Estimated:
    """Return the mean of the difference alone − plan; where both are infinite it is 0.

    Examples
    --------
    >>> _gain(pd.Series([math.inf, 2.0]), pd.Series([math.inf, 1.0])).mean
    0.5
    """
    return Estimated.from_positions((alone - plan).where(alone != plan, 0.0).to_numpy())


def _tokens(model: LanguageModel, words: str, max_tokens: int) -> Array:
    return model.tokens_of(words, max_tokens) if words.strip() else np.zeros(0, np.int64)


def _wide(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with a column for each metric, in the order of writing."""
    index = ["input", *HEAD, "n", "l", "d", "temperature", "method", "budget"]
    wide = rows.pivot(index=index, columns="metric", values="value")
    order = pd.MultiIndex.from_frame(rows[index].drop_duplicates())
    return wide.reindex(order).reset_index().rename_axis(columns=None)


def _numbers(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the numbers of a measurement; a number that is not finite becomes None."""
    some = rows[rows.trial < 0]
    found = {
        name: value if math.isfinite(value) else None
        for name, value in zip(some.metric, some.value)
    }
    return found | {"exact_heads": int(found["exact_heads"] or 0)}


def _versions() -> dict[str, Any]:
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {"versions": versions, "python": platform.python_version()}
