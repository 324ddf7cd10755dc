"""Methods × inputs × temperatures × trials → one tidy table.

A *cell* is one (input, method, trial) and holds all temperatures. Its seed is made from what the
cell is, not from when it runs, so serial and parallel runs give the same bits; temperatures of a
cell share their draws.
"""

from __future__ import annotations

import dataclasses
import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import joblib
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from analysis import budget as budgets
from analysis import metrics
from analysis.inputs import Inputs
from approx import checks, memory
from approx.base import Approximation, Method

COLUMNS = (
    "input", "layer", "head", "n", "l", "d", "temperature",
    "method", "budget", "trial", "metric", "value", "stderr",
)  # fmt: skip

T = TypeVar("T")
R = TypeVar("R")
Measure = Callable[[Approximation, Inputs], dict[str, float]]


def errors(approximation: Approximation, inputs: Inputs) -> dict[str, float]:
    """Return every error of an approximation, its rank, entries and price: the default measure."""
    compared = metrics.compare(approximation, inputs.Q, inputs.K, inputs.V, causal=inputs.causal)
    return compared | {
        "rank": float(approximation.rank),
        "nnz": float(approximation.nnz),
        "values_per_row": budgets.values_per_row(approximation),
    }


def seed_sequence(root: int, *what: str | int) -> np.random.SeedSequence:
    """Return the seed of a piece of work, a hash of what it is: independent of order and jobs."""
    key = hashlib.sha256(repr(what).encode()).digest()[:16]
    return np.random.SeedSequence(root, spawn_key=tuple(np.frombuffer(key, np.uint32).tolist()))


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """One method on one head in one trial, at every temperature."""

    inputs: Inputs
    method: Method
    label: str
    budget: float
    trial: int
    temperatures: tuple[float, ...]
    seed: int
    measure: Measure
    memory_limit: int | None

    def run(self) -> list[tuple[Any, ...]]:
        """Return the rows of this cell, on one thread."""
        memory.set_limit(self.memory_limit)
        x = self.inputs
        rows = []
        seed = seed_sequence(self.seed, x.digest(), str(self.method), self.trial)
        head = (x.name, x.layer, x.head, x.n, x.l, x.d)
        with threadpool_limits(1):
            for t in self.temperatures:
                at = x.at_temperature(t)
                rng = np.random.default_rng(seed)
                found = self.measure(self.method.approximate(at.Q, at.K, rng=rng), at)
                rows += [
                    (*head, t, self.label, self.budget, self.trial, name, value,
                     found.get(f"{name}_stderr", np.nan))
                    for name, value in found.items()
                    if not name.endswith("_stderr")
                ]  # fmt: skip
        return rows


def cells(
    methods: Sequence[Method],
    inputs: Sequence[Inputs],
    temperatures: Sequence[float],
    *,
    trials: int,
    seed: int,
    budget: float | None = None,
    measure: Measure = errors,
) -> Iterator[Cell]:
    """Yield the cells of a sweep in order; deterministic methods have one trial, called −1."""
    for whole in inputs:
        for x in whole.heads():
            chosen = list(methods)
            if budget is not None:
                chosen = budgets.match(methods, budget, x).fitting
            for method in chosen:
                for trial in range(trials) if method.uses_rng else (-1,):
                    yield Cell(
                        x,
                        method,
                        str(method),
                        -1.0 if budget is None else float(budget),
                        trial,
                        tuple(float(t) for t in temperatures),
                        seed,
                        measure,
                        memory.explicit_limit(),
                    )


def sweep(
    methods: Sequence[Method],
    inputs: Sequence[Inputs] | Inputs,
    temperatures: Sequence[float],
    *,
    trials: int,
    seed: int,
    budget: float | None = None,
    measure: Measure = errors,
    jobs: int = 1,
    progress: bool = False,
    label: str = "cells",
) -> pd.DataFrame:
    """Return one tidy table, a row a number.

    Parameters
    ----------
    methods : sequence of Method
        Templates need a ``budget``.
    inputs : Inputs or sequence of Inputs
        Files with many heads are iterated head by head.
    temperatures : sequence of float
        Relative: logits are q·k/(t·√d).
    trials : int
        Independent draws of every random method.
    seed : int
        ≥ 0, of the whole sweep.
    budget : float, optional
        Stored values per query row to which templates are filled; a method of which nothing
        fits is absent here (`analysis.budget.match` names it).
    measure : callable
        (approximation, inputs) → {metric: value}; by default every error.
    jobs : int
        Processes (loky); the table is the same, bit for bit.
    progress : bool
        Draw a bar on stderr, with this label.

    Returns
    -------
    DataFrame
        Columns `COLUMNS`; layer, head, budget and trial are −1 where meaningless.

    Raises
    ------
    ValueError
        Nothing to do; a temperature ≤ 0; the same method (also once filled), input or
        temperature twice.
    """
    if isinstance(inputs, Inputs):
        inputs = [inputs]
    checks.integer("trials", trials, least=1)
    checks.integer("seed", seed, least=0)
    checks.integer("jobs", jobs, least=1)
    for name, grid in (("methods", methods), ("inputs", inputs), ("temperatures", temperatures)):
        if not len(grid):
            raise ValueError(f"{name} must not be empty")
    for method in methods:
        checks.instance("every method", method, Method, "a method")
    for x in inputs:
        checks.instance("every input", x, Inputs, "an Inputs")
    for t in temperatures:
        checks.positive("temperature", t)
    if budget is None and (open_ := [str(m) for m in methods if m.is_template]):
        raise ValueError(f"{open_[0]} is a template: give its size, or a budget")
    for name, values in (("temperature", list(temperatures)), ("method", [*map(str, methods)])):
        if twice := next((v for i, v in enumerate(values) if v in values[:i]), None):
            raise ValueError(f"{name} {twice} is given twice")
    todo = list(
        cells(
            methods, inputs, temperatures, trials=trials, seed=seed, budget=budget, measure=measure
        )
    )
    seen: set[tuple[Any, ...]] = set()
    for cell in todo:
        x = cell.inputs
        key = (x.name, x.layer, x.head, x.n, x.l, x.d, cell.label, cell.trial)
        if key in seen:
            raise ValueError(f"{cell.label} on {x.name} would be in the table twice: rename one")
        seen.add(key)
    found = parallel(operator.methodcaller("run"), todo, jobs=jobs, progress=progress, label=label)
    return pd.DataFrame([row for rows in found for row in rows], columns=list(COLUMNS))


def parallel(
    function: Callable[[T], R],
    arguments: Sequence[T],
    *,
    jobs: int = 1,
    progress: bool = False,
    label: str = "cells",
) -> list[R]:
    """Return function(argument) for each, in order; in processes of one thread each if jobs > 1."""
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        results = joblib.Parallel(n_jobs=max(1, min(jobs, len(arguments))), return_as="generator")(
            joblib.delayed(function)(argument) for argument in arguments
        )
        return list(
            tqdm(results, total=len(arguments), disable=not progress, desc=label, leave=False)
        )
