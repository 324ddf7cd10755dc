"""Methods × inputs × temperatures × budgets × trials → one tidy table.

A *cell* is one (input, method at its budget, trial) with all temperatures, which share their draws.
The seed of a cell depends only on its contents, not on when or where it runs, so that every engine
gives the same bits.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence, Sized
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.costs.budget import amount_text, match, stored
from analysis.errors import metrics
from analysis.inputs import Head, Heads
from analysis.runs import engines, tasks
from analysis.runs.seeds import seed_sequence
from analysis.runs.tasks import Failure, Task
from analysis.sweeps import table
from analysis.sweeps.store import CellsFailed, SweepStore
from analysis.sweeps.table import COLUMNS as COLUMNS, Row
from approx import Approximation, Method, checks
from approx.estimate import memory
from approx.method.evaluation import why_not
from approx.method.filling import require_fillable
from approx.method.prices import CURRENCIES

CELL_BYTES = 1000  # the approximate size of a cell in a plan
HELD = 8  # a cell measures its estimates once they take one 8th of the memory limit

Measure = Callable[[Approximation, Head], dict[str, float]]


def errors(approximation: Approximation, inputs: Head) -> dict[str, float]:
    """Return every error of an approximation, its rank, entries and price (the default measure)."""
    return _in_table(inputs.compare(approximation), approximation)


def _in_table(measured: dict[str, float], approximation: Approximation) -> dict[str, float]:
    """Return the errors, without ``runnable``, and the sizes."""
    errors = {name: value for name, value in measured.items() if name != "runnable"}
    return errors | {
        "rank": float(approximation.rank),
        "nnz": float(approximation.nnz),
        "stored": stored(approximation),
    }


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Cell(Task):
    """One method on one head in one trial, at every temperature.

    ``place`` is the index of the head in the plan, ``content`` its digest, ``mask`` its `Mask.key`.
    """

    place: int
    name: str
    content: str
    mask: str
    method: Method
    label: str
    budget: float
    trial: int
    temperatures: tuple[float, ...]
    seed: int
    measure: Measure
    currency: str = "stored"

    def run(self, x: Head) -> list[Row]:
        rows = []
        seed = seed_sequence(self.seed, self.content, self.label, self.trial)
        head = (x.name, x.layer, x.head, x.n, x.l, x.d)
        for t, measured in zip(self.temperatures, self._measured(x, seed)):
            rows += [
                (*head, t, self.label, self.budget, self.trial, name, value,
                 measured.get(f"{name}_stderr", np.nan))
                for name, value in measured.items()
                if not name.endswith("_stderr")
            ]  # fmt: skip
        return [table.typed(row) for row in rows]

    def _measured(self, x: Head, seed: np.random.SeedSequence) -> Iterator[dict[str, float]]:
        # All temperatures have the same draws. Their errors come from one product Q Kᵀ, or from
        # several if all estimates together would take too much memory; the bits are the same.
        hottest = max(self.temperatures)  # it has the smallest logits
        whole, most = x.at_temperature(hottest), memory.limit() // HELD

        def measured(group: list[tuple[float, Approximation]]) -> Iterator[dict[str, float]]:
            ts, estimates = zip(*group)
            compared = metrics.compare_all(
                estimates, whole.Q, whole.K, whole.V, temperatures=ts, mask=x.mask
            )
            yield from map(_in_table, compared, estimates)

        group: list[tuple[float, Approximation]] = []
        held = 0
        for t in self.temperatures:
            at = x.at_temperature(t)
            estimate = at.approximate(self.method, rng=np.random.default_rng(seed))
            if self.measure is not errors:
                yield self.measure(estimate, at)
                continue
            group.append((t / hottest, estimate))
            estimate.low.prepare()  # builds what a comparison needs, so that it is counted
            held += estimate.nbytes
            if held > most:
                yield from measured(group)
                group, held = [], 0
        if group:
            yield from measured(group)

    def about(self) -> dict[str, Any]:
        """Return everything that decides the numbers of this cell.

        A full mask and the currency "stored" are omitted, so that the keys of older stores remain
        valid.

        Raises
        ------
        TypeError
            The measure has no name, like a lambda or a partial.
        """
        name = getattr(self.measure, "__qualname__", "<")
        if "<" in name:
            raise TypeError(f"a store needs a measure with a name, got {self.measure!r}")
        added = {} if self.mask == "full" else {"mask": self.mask}
        if self.currency != "stored":
            added["currency"] = self.currency
        return added | {
            "input": self.name,
            "content": self.content,
            "method": self.label,
            "budget": self.budget,
            "trial": self.trial,
            "temperatures": list(self.temperatures),
            "seed": self.seed,
            "measure": f"{self.measure.__module__}.{name}",
            "version": tasks.version().partition("+")[0],  # a sweep holds later code to its numbers
        }

    @functools.cached_property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.about(), sort_keys=True).encode()).hexdigest()


class Absent(NamedTuple):
    """A method without cells on an input.

    `refusal` says why the method is undefined under the mask of the input, and is None if no size
    fits the budget. `budget` is −1 if there is none.
    """

    method: str
    budget: float
    input: str
    refusal: str | None
    currency: str = "stored"

    def __str__(self) -> str:
        """Return the reason as a sentence."""
        if self.refusal is None:
            amount = amount_text(self.budget, self.currency)
            return f"nothing of {self.method} fits {amount} on {self.input}"
        return f"{self.method} cannot be used under the mask of {self.input}: {self.refusal}"


class SweepPlan(NamedTuple):
    """The heads and the cells of a sweep, in the order of its table, and what has no cells."""

    heads: list[Head]
    cells: list[Cell]
    absent: list[Absent]

    @property
    def keys(self) -> list[str]:
        """The names of the cells in a store, as `Cell.key`."""
        return [cell.key for cell in self.cells]

    def shard(self, index: int, count: int) -> SweepPlan:
        """Return part ``index`` (from 1) of ``count`` equal parts, by the keys of the cells."""
        checks.integer("shards", count, least=1)
        checks.integer("shard", index, least=1, most=count)
        part = set(sorted(self.keys)[index - 1 :: count])
        return self._replace(cells=[cell for cell in self.cells if cell.key in part])


def plan(
    methods: Sequence[Method],
    inputs: Sequence[Head | Heads] | Head | Heads,
    temperatures: Sequence[float],
    *,
    trials: int,
    seed: int,
    budget: float | Sequence[float] | None = None,
    currency: str = "stored",
    measure: Measure = errors,
) -> SweepPlan:
    """Return the cells of a sweep; a deterministic method has one trial, numbered −1.

    The parameters and errors are those of `sweep`.
    """
    if isinstance(inputs, Head | Heads):
        inputs = [inputs]
    single = budget is None or np.ndim(budget) == 0
    budgets: list[Any] = [budget] if single else list(budget)  # type: ignore[arg-type]
    checks.integer("trials", trials, least=1)
    checks.integer("seed", seed, least=0)
    checks.one_of("currency", currency, CURRENCIES)
    if budget is None and currency != "stored":
        raise ValueError(f"currency {currency!r} says what a budget counts: give a budget")
    grids = {
        "methods": methods, "inputs": inputs, "temperatures": temperatures, "budgets": budgets,
    }  # fmt: skip
    for name, grid in grids.items():
        checks.instance(name, grid, Sized, "a sequence")
        if not len(grid):
            raise ValueError(f"{name} must not be empty")
    for method in methods:
        checks.instance("every method", method, Method, "a method")
    for x in inputs:
        checks.instance("every input", x, Head | Heads, "a Head or Heads")
    at = tuple(checks.positive("temperature", t) for t in temperatures)
    sizes = [None if b is None else checks.positive("budget", b) for b in budgets]
    if sizes == [None] and (open_ := [m for m in methods if m.is_template]):
        require_fillable(open_[0])
        raise ValueError(f"{open_[0]} is a template: give its size, or a budget")
    labels = [str(method) for method in methods]
    for name, values, given in (
        ("temperature", at, temperatures), ("budget", sizes, budgets), ("method", labels, labels),
    ):  # fmt: skip
        if (twice := repeated(values)) is not None:
            raise ValueError(f"{name} {given[twice]} is given twice")
    heads = [x for whole in inputs for x in whole.heads()]
    count = len(heads) * len(sizes) * len(methods) * trials
    memory.reserve(CELL_BYTES * count, f"a sweep of {count} cells", "trials, methods or inputs")
    cells, absent = list[Cell](), list[Absent]()
    seen: set[tuple[Any, ...]] = set()
    for place, x in enumerate(heads):
        content = x.digest()
        for size in sizes:
            if size is None:
                chosen = [method for method in methods if why_not(method, x.mask) is None]
                unfit = [method for method in methods if why_not(method, x.mask) is not None]
            else:
                chosen, unfit = match(methods, size, x, currency)
            paid = -1.0 if size is None else size
            absent += [
                Absent(str(method), paid, x.name, why_not(method, x.mask), currency)
                for method in unfit
            ]
            for method in chosen:
                label = str(method)
                key = (x.name, x.layer, x.head, x.n, x.l, x.d, label, paid)
                if key in seen:
                    raise ValueError(f"{label} on {x.name} would be in the table twice: rename one")
                seen.add(key)
                for trial in (-1,) if method.deterministic else range(trials):
                    cells.append(
                        Cell(
                            place=place, name=x.name, content=content, mask=x.mask.key,
                            method=method, label=label, budget=paid, trial=trial, temperatures=at,
                            seed=int(seed), measure=measure, currency=currency,
                        )
                    )  # fmt: skip
    return SweepPlan(heads, cells, absent)


def repeated(values: Sequence[Any]) -> int | None:
    """Return the index of the first value that equals an earlier one; None if all differ."""
    seen = set()
    for index, value in enumerate(values):
        if value in seen:
            return index
        seen.add(value)
    return None


def sweep(
    methods: Sequence[Method],
    inputs: Sequence[Head | Heads] | Head | Heads,
    temperatures: Sequence[float],
    *,
    trials: int,
    seed: int,
    budget: float | Sequence[float] | None = None,
    currency: str = "stored",
    measure: Measure = errors,
    store: str | Path | None = None,
    jobs: int = 1,
    scheduler: Any = None,
    retry_failed: bool = False,
    progress: bool = False,
    label: str = "cells",
) -> pd.DataFrame:
    """Return one tidy table with one row per number, identical bit by bit on every engine.

    Parameters
    ----------
    methods : sequence of Method
        Templates need a ``budget``.
    inputs : Head, Heads or a sequence of them
        Each head of `Heads` is one input.
    temperatures : sequence of float
        Relative temperatures t: logits are q·k/(t·√d).
    trials : int
        Independent draws of every random method.
    seed : int
        The seed of the whole sweep, ≥ 0.
    budget : float or sequence of float, optional
        The largest cost per query; templates are filled to it. The table omits a method of which no
        size fits, and a method that refuses the mask of an input; `plan` lists both.
    currency : {"stored", "reads", "multiply_adds", "bytes"}
        The currency of the budget, by default stored values per query.
    measure : callable
        (approximation, inputs) → {metric: value}; by default every error.
    store : str or Path, optional
        A folder that keeps each finished cell. Cells in it are not computed again, so that an
        interrupted sweep can continue. A failed cell is recorded and does not stop the others.
        `analysis.sweeps.store.read` returns the table at any time.
    jobs : int
        The number of processes (loky).
    scheduler : str or distributed.Client, optional
        The Dask cluster to run on: ``tcp://host:port``, or "local" for a cluster of ``jobs``
        processes on this machine.
    retry_failed : bool
        Whether to run failed cells again.
    progress, label : bool, str
        Whether to draw a bar on stderr, and its label.

    Returns
    -------
    DataFrame
        The columns are `COLUMNS`; layer, head, budget and trial are −1 if they have no meaning. A
        currency other than stored values has a column after the budget.

    Raises
    ------
    ValueError
        There is nothing to do, a temperature is ≤ 0, the store holds another sweep, or a method
        (perhaps only after filling), an input, a budget or a temperature is given twice.
    CellsFailed
        Cells failed; raised at the end. Without a store, the error of the first failed cell is
        raised at once.
    """
    checks.integer("jobs", jobs, least=1)
    planned = plan(
        methods, inputs, temperatures, trials=trials, seed=seed, budget=budget, currency=currency,
        measure=measure,
    )  # fmt: skip
    how: dict[str, Any] = {
        "jobs": jobs, "scheduler": scheduler, "progress": progress, "label": label,
    }  # fmt: skip
    if store is None:
        rows = engines.results(planned.cells, planned.heads, **how)
        found = table.frame(row for of_cell in rows for row in of_cell)
        return table.with_currency(found, currency)
    kept = SweepStore(store)
    kept.open(planned.keys, **described(planned))
    failed = fill(kept, planned, retry_failed=retry_failed, **how)
    kept.open(planned.keys, **described(planned))
    if failed:
        raise CellsFailed(
            f"{len(failed)} of {len(planned.cells)} cells failed, the others are in {store}; "
            f"the first: {described_failure(kept, failed[0])}"
        )
    return kept.table(planned.keys)


def versions() -> dict[str, str]:
    """Return the versions of the packages that may affect the numbers."""
    return {name: metadata.version(name) for name in ("expqk", "numpy", "scipy", "numba")}


def described(planned: SweepPlan) -> dict[str, Any]:
    """Return the entries of a store's manifest about a sweep, without its cells."""
    about = {"seed": planned.cells[0].seed if planned.cells else None, "versions": versions()}
    currencies = {cell.currency for cell in planned.cells} - {"stored"}
    return about | ({"currency": currencies.pop()} if currencies else {})


def described_failure(store: SweepStore, cell: Cell) -> str:
    """Return one line that names a failed cell and its error."""
    failure = store.failure(cell.key) or Failure("", "", "")
    what = failure.message.splitlines() or [""]
    return f"{cell.label} on {cell.name}, trial {cell.trial}: {failure.kind}: {what[0]}"


def fill(store: SweepStore, planned: SweepPlan, **how: Any) -> list[Cell]:
    """Run the cells that a store lacks, keep each as it finishes, and return the failed cells.

    Cells run in random order. This makes the predicted remaining time reliable, and two processes
    on one store seldom compute the same cell.

    The options are those of `engines.stream`.
    """
    left = [cell for cell in planned.cells if not store.done(cell.key)]
    random.SystemRandom().shuffle(left)
    for _ in engines.stream(left, planned.heads, store=store, guard=True, **how):
        pass
    return [cell for cell in planned.cells if store.failure(cell.key) is not None]


class Checked(NamedTuple):
    """Cells that were computed again, those that differ, and cells that are missing or altered."""

    again: list[Cell]
    differing: list[Cell]
    missing: list[Cell]


def verify(
    store: SweepStore,
    planned: SweepPlan,
    *,
    part: float = 0.05,
    least: int = 3,
    seed: int = 0,
    **how: Any,
) -> Checked:
    """Compute a random part of a store's cells again and compare the results exactly.

    Parameters
    ----------
    store, planned : SweepStore, SweepPlan
    part, least : float, int
        The share of the finished cells to compute, in [0, 1], and the least number of them.
    seed : int
        The seed of the choice.
    **how
        Where cells run, as in `engines.stream`.
    """
    if not 0 <= checks.number("part", part) <= 1:
        raise ValueError(f"part must be in [0, 1], got {part}")
    checks.integer("seed", seed, least=0)
    done = [cell for cell in planned.cells if store.done(cell.key)]
    missing = [cell for cell in planned.cells if not store.done(cell.key)]
    count = min(len(done), max(checks.integer("least", least, least=0), round(part * len(done))))
    again = [done[i] for i in np.random.default_rng(seed).choice(len(done), count, replace=False)]
    differing = [
        cell
        for cell, rows in engines.stream(again, planned.heads, **how)
        if table.as_csv(rows) != table.as_csv(store.get(cell.key) or [])
    ]
    return Checked(again, differing, missing)
