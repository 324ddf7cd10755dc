"""One run over a language model: a plan, its effect, and that of single methods beside it.

A `Run` reads a text. It chooses a method for every group of heads at an average price
(`analysis.models.cost_curves`, `analysis.models.planner`), and measures this plan, the best single
method and those that people deploy on text that was not used for the choice. On request it also
gives advice for each head alone (`analysis.advice.diagnose`), and plans at other prices. A folder
keeps what is finished, so that a stopped run continues where it was.
"""

import dataclasses
import datetime
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from analysis.advice.diagnose import diagnose
from analysis.costs.allocation import Allocation, allocate, single
from analysis.costs.budget import KEYS, price_of_keys
from analysis.costs.candidates import rivals
from analysis.models import checkpoints, planner
from analysis.models.checkpoints import Place
from analysis.models.cost_curves import MOST, curves
from analysis.models.language_model import LanguageModel
from analysis.models.next_tokens import Change, changed
from analysis.models.plan import Plan
from analysis.models.replacement import BLOCK, COMPUTING, FEWEST, SKIP, Estimated, Passage
from analysis.runs import engines, tasks
from analysis.runs.output_files import MANIFEST, usable
from analysis.runs.store import Store
from analysis.sentences import one_line
from analysis.sweeps.store import StoreError
from approx import checks
from approx.checks import Array
from approx.method.prices import CURRENCIES, Shape

LEAST_TOKENS = SKIP + FEWEST * BLOCK  # tokens of a text; with fewer a KL has no standard error
NEAR = 200  # the halves of a text are cut at a blank within so many characters after its middle
ADVICE = [  # the columns of `diagnose` that a run keeps
    "input", "layer", "head", "n", "l", "d", "temperature", "spec", "budget", "attention_tv",
    "bound", "certificate", "exact_price", "exact_reads", "oracle", "reads", "runnable",
    "screened", "stored", "verdict", "winner", "currency",
]  # fmt: skip
PACKAGES = "expqk", "numpy", "numba", "torch", "transformers"
File = str | os.PathLike[str]


class Results(NamedTuple):
    """The results of a run.

    Attributes
    ----------
    about : dict
        The settings: names, digests, tokens, budget, seed; the date, and versions.
    advice : DataFrame
        If requested, one row per head and method, for `analysis.advice.verdict.advice`; otherwise
        one row per head: ``layer``, ``head``, and the width ``d`` of its keys.
    plan : Plan
        As `analysis.models.planner.plan` returns it.
    changes : list of Change
        Three positions where the next word differs: with the largest, the middle and the least KL.
    differing, positions : int
        The number of positions where the next word differs, and of all measured positions.
    best : str or None
        The single method for all heads with the least predicted damage at the budget; None if none
        fits.
    gain : Estimated or None
        KL of this method minus KL of the plan, position by position.
    """

    about: dict[str, Any]
    advice: pd.DataFrame
    plan: Plan
    changes: list[Change]
    differing: int
    positions: int
    best: str | None
    gain: Estimated | None

    @property
    def diagnosed(self) -> bool:
        """Whether there is advice for each head alone."""
        return "verdict" in self.advice


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run over a model, with what is finished in a folder; `open` creates it.

    Parameters
    ----------
    model, store, jobs, scheduler
        See `open`.
    chosen_on, measured_on : (n,)
        The tokens of the text that the plan is chosen on, and of the text that it is measured on.
    settings : dict
        Everything that decides the numbers.
    begun : dict
        The date of the first start, and versions.
    """

    model: LanguageModel
    chosen_on: Array
    measured_on: Array
    store: Store
    settings: Mapping[str, Any]
    begun: Mapping[str, Any]
    jobs: int
    scheduler: Any = None

    @classmethod
    def open(
        cls,
        model_dir: File,
        text: File,
        folder: File,
        *,
        held_out: File | None = None,
        budget: float | None = None,
        currency: str = "bytes_read",
        frontier: bool = False,
        diagnosed: bool = False,
        max_tokens: int = 512,
        seed: int = 0,
        jobs: int | None = None,
        scheduler: Any = None,
    ) -> Self:
        """Return a new run, or the run in the folder.

        Parameters
        ----------
        model_dir, text, currency, frontier, max_tokens, seed, jobs, scheduler
            As for `analysis.models.planner.plan`; one text.
        folder : path
            The folder of the store.
        held_out : path, optional
            A text to measure on; by default the second half of ``text``, and the first half
            chooses.
        budget : float, optional
            The average price per query of a group of heads; by default that of 32 exact keys.
        diagnosed : bool
            Whether to give advice for each head alone.

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
            "frontier": frontier,
            "diagnosed": diagnosed,
            "seed": seed,
            "code": tasks.CODE[:12],
            "version": metadata.version("expqk"),
            **{name: metadata.version(name) for name in COMPUTING},
        }
        every = os.cpu_count() or 1
        jobs = checks.integer("jobs", every if jobs is None else jobs, least=1)
        usable(Path(folder))
        store = Store(folder)
        now = {
            "date": str(datetime.datetime.now(datetime.UTC).date()),
            "versions": {name: metadata.version(name) for name in PACKAGES},
            "python": platform.python_version(),
        }
        begun = beginning(store, settings, now)
        return cls(model, first, second, store, settings, begun, jobs, scheduler)

    def results(
        self, *, progress: bool = False, announce: Callable[[float], None] | None = None
    ) -> Results:
        """Compute what is not finished, and return the results.

        ``announce`` gets the expected seconds of a long run.
        """
        asked, layers = self.settings, range(self.model.layers)
        currency, seed = asked["currency"], asked["seed"]
        passage = Passage(self.model, self.chosen_on, seed=seed, jobs=self.jobs)
        budget = asked["budget"] or price_of_keys(KEYS, passage.inputs(0).at(0, 0), currency)
        every = [
            (layer, head, passage.shapes[layer].d)
            for layer in layers
            for head in range(self.model.heads)
        ]
        told = pd.DataFrame(every, columns=["layer", "head", "d"])
        with engines.client(self.scheduler, self.jobs) as cluster:  # one cluster for all
            how: dict[str, Any] = {"scheduler": cluster, "progress": progress}
            if asked["diagnosed"]:
                told = diagnose(
                    [passage.inputs(layer) for layer in layers], budget=budget, currency=currency,
                    seed=seed, jobs=self.jobs, finished=self.store.folder, **how,
                )  # fmt: skip
                told = told[ADVICE].assign(input=self.model.name)
            found = curves(
                [passage], budget, currency=currency, screen=True, done=self.store,
                most=math.inf if asked["frontier"] else MOST, announce=announce,
                passes=len(rivals()), **how,
            )  # fmt: skip
            shares = {1.0: allocate(found, budget)}
            if asked["frontier"]:
                shares = planner.allocated(found, budget)
            alone = planner.beside(
                found, [budget, *(x * budget for x in shares)], currency, passage.shapes
            )  # fmt: skip
            held_out = Passage(self.model, self.measured_on, seed=seed, jobs=self.jobs)
            measured = planner.measured(
                held_out, {**shares, **alone}, by_position=[1.0, _best(found, budget)],
                store=self.store, **how,
            )  # fmt: skip
        return self.assembled(told, found, shares, alone, measured, passage.shapes, budget)

    def assembled(
        self,
        told: pd.DataFrame,
        found: pd.DataFrame,
        shares: Mapping[float, Allocation],
        alone: Mapping[str, Allocation],
        measured: Mapping[Any, Mapping[str, Any]],
        shapes: Sequence[Shape],
        budget: float,
    ) -> Results:
        """Return the results from advice, curves, choices and their measurements."""
        asked = self.settings
        plan = planner.assembled(
            self.model.name,
            found,
            shares,
            alone,
            measured,
            shapes,
            {
                "budget": float(budget),
                "currency": asked["currency"],
                "chosen_on": [self._half("first half")],
                "measured_on": asked["held_out"] or self._half("second half"),
                "tokens": asked["tokens"],
                "model_sha256": asked["model_sha256"],
                "text_sha256": {
                    asked[name]: asked[f"{name}_sha256"]
                    for name in ("text", "held_out")
                    if asked[name]
                },
                "version": asked["version"],
            },
        )
        read = measured[1.0]["positions"].set_index("position")
        best, gain = _best(found, budget), None
        if best in measured:
            gain = _gain(measured[best]["positions"].set_index("position").kl, read.kl)
        changes = changed(self.measured_on, read, self.model.tokenizer.decode)
        differing = int((read.own_token != read.plan_token).sum())
        about = {**asked, **self.begun}
        return Results(about, told, plan, changes, differing, len(read), best, gain)

    def _half(self, which: str) -> str:
        text = self.settings["text"]
        return text if self.settings["held_out"] else f"{text}, {which}"


def beginning(store: Store, settings: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the first start that a store keeps; a new store keeps those of now.

    Raises
    ------
    StoreError
        The store holds a run with other settings; the message names the difference.
    """
    folder = one_line(store.folder)
    if store.folder is not None and (store.folder / MANIFEST).exists():
        raise StoreError(f"{folder} holds a sweep, and no run over a model")
    if store.get("run") is None:
        store.put("run", {"asked": settings, "begun": now})
    kept = store.get("run")
    for name, value in settings.items():
        if (before := kept["asked"].get(name)) != value:
            raise StoreError(
                f"{folder} holds a run with another {name.replace('_', ' ')}, "
                f"{one_line(before, 60)} and not {one_line(value, 60)}: use another folder"
            )
    begun: dict[str, Any] = kept["begun"]
    return begun


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


def _best(found: pd.DataFrame, budget: float) -> str | None:
    """Return the single method with the least predicted damage within a budget."""
    best = single(found, budget)
    return None if best is None else str(best.chosen.method.iloc[0])


def _gain(alone: pd.Series, plan: pd.Series) -> Estimated:
    """Return the mean of the difference alone − plan; where both are infinite it is 0.

    Examples
    --------
    >>> _gain(pd.Series([np.inf, 2.0]), pd.Series([np.inf, 1.0])).mean
    0.5
    """
    return Estimated.from_positions((alone - plan).where(alone != plan, 0.0).to_numpy())


def _tokens(model: LanguageModel, words: str, max_tokens: int) -> Array:
    return model.tokens_of(words, max_tokens) if words.strip() else np.zeros(0, np.int64)
