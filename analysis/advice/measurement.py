"""The errors of a method on the measured queries of a head, in the median over draws.

A `HeadTask` says which methods are measured on a head, and how.
"""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from analysis.bounds import certificates
from analysis.costs import candidates
from analysis.costs.budget import amounts, memory, stored
from analysis.errors import metrics
from analysis.inputs import Head, Heads
from analysis.ranks.attention_weights import MOST_ENTRIES
from analysis.runs import engines
from analysis.runs.seeds import seed_sequence
from analysis.runs.store import Store
from analysis.runs.tasks import Task
from analysis.sentences import Sentence
from approx import Approximation, Method, checks
from approx.checks import Array
from approx.estimate import memory as limits
from approx.method.evaluation import why_not
from approx.method.prices import CURRENCIES, price_at
from approx.method.tags import ORACLE, PAST_QUERIES, ROW_LOCAL

TRIALS = 5
MOST_TRIALS = 1024  # more draws would not improve medians and ranges, and would take hours
SAMPLE = 256  # number of measured queries, if there are more than MOST_QUERIES
MOST_QUERIES = 4096
FEW = 64  # queries for the first test of methods, and for the first guess of a size
WORTH = 4  # a first test of FEW queries pays if there are this many times as many
SHARE = 8  # an 8th of the memory limit is for estimates that are compared together


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadTask(Task):
    """A head, and the arguments that `diagnose` and `needed` share."""

    METRICS: ClassVar[tuple[str, ...]]

    head: Head | None = None
    metric: str
    currency: str
    methods: Sequence[Method] | None
    references: bool
    temperature: float
    trials: int
    rows: int | Array | None
    seed: int

    def __post_init__(self) -> None:
        checks.one_of("metric", self.metric, self.METRICS)
        checks.one_of("currency", self.currency, CURRENCIES)
        checks.positive("temperature", self.temperature)
        checks.integer("trials", self.trials, least=1, most=MOST_TRIALS)
        checks.integer("seed", self.seed, least=0)
        checks.flag("references", self.references)
        if self.rows is not None and not isinstance(self.rows, np.ndarray):
            checks.integer("rows", self.rows, least=2)
        if self.methods is not None:
            checks.instance("methods", self.methods, Sequence, "a sequence of methods")
            for method in self.methods:
                checks.instance("every method", method, Method, "a method")

    def heads(self, inputs: Head | Heads | Sequence[Head | Heads]) -> Sequence[Head]:
        """Return every head of the inputs; ValueError if the metric needs values that are missing.

        A head is loaded on access, because a file of long texts may not fit into memory.
        """
        files = [inputs] if isinstance(inputs, Head | Heads) else inputs
        checks.instance("inputs", files, Sequence, "a Head, Heads or a sequence of them")
        for file in files:
            checks.instance("every input", file, Head | Heads, "a Head or Heads")
        heads = _Every([(file, i) for file in files for i in range(_count(file))])
        if not heads:
            raise ValueError("inputs must not be empty")
        lacking = next((file for file in files if file.v is None), None)
        if self.metric.startswith("output") and lacking is not None:
            raise ValueError(
                f"the error of the output needs values, and {next(lacking.heads()).name} has no v: "
                "save v beside q and k, or ask for attention_tv"
            )
        return heads

    @abstractmethod
    def run(self, shared: bool) -> list[dict[str, Any]]:
        """Return the rows of the head; ``shared``: whether to draw a bar on stderr."""

    def about(self) -> dict[str, Any]:
        assert self.head is not None
        methods = None if self.methods is None else list(map(str, self.methods))
        x = {"name": self.head.name, "head": self.head.digest(), "methods": methods}
        return super().about() | x | {"metrics": self.METRICS}

    def sampled(self) -> HeadSample:
        """Return the head at the temperature, with its measured queries."""
        assert self.head is not None
        return HeadSample.from_rows(self.head.at_temperature(self.temperature), self.rows)


def table(
    asked: HeadTask,
    inputs: Head | Heads | Sequence[Head | Heads],
    *,
    jobs: int,
    scheduler: Any,
    progress: bool,
    folder: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Return the rows of all heads of the inputs.

    Each head is a task of a process, or of a Dask cluster if ``scheduler`` names one. Heads whose
    rows are in the folder are not computed again.
    """
    heads = asked.heads(inputs)
    jobs = min(checks.integer("jobs", jobs, least=1), len(heads))
    alone = progress and jobs == 1 and scheduler is None
    rows = engines.results(
        (dataclasses.replace(asked, head=x) for x in heads), [alone], jobs=jobs,
        scheduler=scheduler, store=Store(folder), progress=progress, label="heads",
        total=len(heads),
    )  # fmt: skip
    return pd.DataFrame([row for of_head in rows for row in of_head])


def _count(file: Head | Heads) -> int:
    return len(file) if isinstance(file, Heads) else 1


class _Every(Sequence[Head]):
    """The heads of several files; each is loaded on access."""

    def __init__(self, places: Sequence[tuple[Head | Heads, int]]) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: Any) -> Any:
        file, index = self.places[number]
        return file[index] if isinstance(file, Heads) else file


class HeadSample(NamedTuple):
    """A head, its measured queries, and the head with these queries only.

    Attributes
    ----------
    full : Head
    picked : (rows,)
        The indices of the measured queries.
    sample : Head
    """

    full: Head
    picked: Array
    sample: Head

    @classmethod
    def from_rows(cls, x: Head, rows: int | Array | None) -> HeadSample:
        """Return a head with ``rows`` queries, evenly spaced, or with those of an index array.

        None: all queries up to 4096, and 256 if there are more.
        """
        if rows is None:
            rows = x.n if x.n <= MOST_QUERIES else SAMPLE
        if isinstance(rows, np.ndarray):
            picked = np.unique(np.asarray(checks.index("rows", rows, x.n)))
        elif rows >= x.n:
            return cls(x, np.arange(x.n), x)
        else:
            picked = (np.arange(rows) * x.n + x.n // 2) // rows
        part = dataclasses.replace(x, q=x.q[picked], mask=x.mask.take(picked))
        return cls(x, picked, part)

    def few(self, seed: int) -> HeadSample | None:
        """Return the head with 64 queries drawn without replacement; None if it has few queries."""
        if len(self.picked) < WORTH * FEW:
            return None
        rng = np.random.default_rng(seed_sequence(seed, self.full.digest(), "few"))
        picked = np.sort(rng.choice(self.picked, FEW, replace=False))
        return HeadSample.from_rows(self.full, picked)

    def place(self) -> dict[str, Any]:
        """Return the columns that identify the head."""
        x = self.full
        return {
            "input": x.name, "layer": x.layer, "head": x.head, "n": x.n, "l": x.l, "d": x.d,
            "group": x.group, "temperature": x.temperature, "mask": str(x.mask),
            "measured": len(self.picked),
        }  # fmt: skip

    def inputs(self, method: Method) -> Head:
        """Return the head; only its measured queries, if the method needs no others."""
        return self.sample if ROW_LOCAL in method.tags else self.full

    def rows(self, method: Method) -> slice | Array:
        """Return the indices of the measured queries in `inputs`."""
        return slice(None) if ROW_LOCAL in method.tags else self.picked


class Draws(NamedTuple):
    """The draws of a method on a head.

    Attributes
    ----------
    method : Method
    errors : list of dict
        The errors of each draw (`metrics.compare`); one for a deterministic method. More trials
        keep the first draws.
    estimates : list of Approximation
        The estimate of each draw, for the measured queries if the method needs no others. Only the
        last one, if all do not fit into an eighth of the memory limit.
    entries : int
        The number of entries of the measured queries, the largest over the draws.
    """

    method: Method
    errors: list[dict[str, float]]
    estimates: list[Approximation]
    entries: int

    def middle(self, name: str, otherwise: float = math.nan) -> float:
        """Return the median of an error over the draws."""
        known = [of_draw[name] for of_draw in self.errors if name in of_draw]
        return statistics.median(known) if known else otherwise

    @property
    def is_stored(self) -> bool:
        """Whether the estimate of every draw is there."""
        return len(self.estimates) == len(self.errors)

    def row(self, x: Head) -> dict[str, Any]:
        """Return medians over the draws, and prices: columns of `diagnose`."""
        tv = [of_draw["attention_tv"] for of_draw in self.errors]
        output = self.middle("output_relative_error")
        return {
            **amounts(price_at(self.method, x.shape)),
            **memory(self.method, x.shape),
            "stored": stored(self.estimates[-1], x.n),
            "attention_tv": self.middle("attention_tv"),
            "attention_tv_least": min(tv),
            "attention_tv_most": max(tv),
            "attention_tv_stderr": self.middle("attention_tv_stderr", 0.0),
            "negative_fraction": self.middle("negative_fraction"),
            "kernel_relative_frobenius": self.middle("kernel_relative_frobenius"),
            "output_relative_error": output,
            "output_relative_error_stderr": self.middle(  # without V NaN
                "output_relative_error_stderr", 0 * output
            ),
            "nonpositive_rows": self.middle("nonpositive_rows"),
        }


def draws(
    head: HeadSample,
    methods: Sequence[Method],
    *,
    trials: int,
    seed: int,
    held: Mapping[str, Sequence[Approximation]] | None = None,
) -> Iterator[Draws]:
    """Yield the draws of each method on a head.

    Estimates of several methods are compared in one pass, with the same bits as one by one, as long
    as together they fit into an eighth of the memory limit.

    Parameters
    ----------
    head : HeadSample
    methods : sequence of Method
    trials : int
        Draws of a random method.
    seed : int
    held : dict of sequences of Approximation, optional
        The estimates of all draws of some methods, by spec; these are not drawn again.
    """
    drawn_before = held or {}
    complete: list[Draws] = []  # complete except for errors of held estimates
    waiting: list[tuple[Approximation, list[dict[str, float]]]] = []
    size, most = 0, limits.limit() // SHARE

    def compare(at: Head) -> None:
        nonlocal size
        compared = _compared(at, [estimate for estimate, _ in waiting], head)
        for (_, errors), row in zip(waiting, compared):
            errors.append(row)
        waiting.clear()
        size = 0

    before: Head | None = None
    for method in methods:
        at, rows = head.inputs(method), head.rows(method)
        if before is not None and at is not before:
            compare(before)
            yield from complete
            complete = []
        drawn = Draws(method, [], [], 0)
        own, before = 0, at
        for estimate in drawn_before.get(str(method)) or _estimates(head, method, trials, seed):
            waiting.append((estimate, drawn.errors))
            estimate.low.prepare()  # so that nbytes counts what a comparison builds
            entries = max(drawn.entries, _entries(estimate, rows))
            size, own = size + estimate.nbytes, own + estimate.nbytes
            if own > most:
                drawn.estimates.clear()
            drawn = drawn._replace(entries=entries)
            drawn.estimates.append(estimate)
            if size > most:
                compare(at)
                yield from complete
                complete = []
        complete.append(drawn)
    if before is not None:
        compare(before)
    yield from complete


def certificate(head: HeadSample, drawn: Draws, *, trials: int, seed: int) -> float:
    """Return the upper bound on the total variation that the estimates of a method prove.

    It is the mean of `analysis.bounds.certificates.row_bounds` over the measured queries, the
    median over the draws; so it is never below the ``attention_tv``. NaN if nothing is proved.
    Estimates that were not kept are drawn again.
    """
    at, rows = head.inputs(drawn.method), head.rows(drawn.method)
    proven: list[float] = []
    for estimate in (
        drawn.estimates if drawn.is_stored else _estimates(head, drawn.method, trials, seed)
    ):
        of_rows = certificates.row_bounds(estimate, at.Q, at.K).attention_tv.to_numpy()[rows]
        proven.append(float(of_rows.mean()))
        if math.isnan(proven[-1]):
            break
    return float(np.median(proven))


def _estimates(head: HeadSample, method: Method, trials: int, seed: int) -> Iterator[Approximation]:
    at = head.inputs(method)
    rng = np.random.default_rng(seed_sequence(seed, head.full.digest(), str(method)))
    for child in rng.spawn(1 if method.deterministic else trials):
        yield at.approximate(method, rng=child)


def _entries(estimate: Approximation, rows: slice | Array) -> int:
    s = estimate.correction
    return 0 if s is None else int(np.diff(s.matrix.indptr)[rows].sum())


def measurable(head: HeadSample, about: HeadTask) -> tuple[list[Method], list[Sentence]]:
    """Return the methods that can be measured, by default candidates, and why others cannot."""
    mask, left_out = head.full.mask, []
    if (methods := about.methods) is None:
        methods = candidates.methods(mask, references=about.references, currency=about.currency)
        if about.currency != "stored":
            methods += [method for method in candidates.rivals() if method not in methods]
    possible: list[Method] = []
    for method in methods:
        large = len(head.picked) * head.full.l > MOST_ENTRIES
        reason = why_not(method, mask)
        if reason is None and method.space == "attention" and head.full.sinks is not None:
            reason = "its rows of softmax have no place for an attention sink"
        if reason is not None:
            left_out.append(Sentence("{spec}: {reason}", spec=str(method), reason=reason))
        elif PAST_QUERIES in method.tags and mask.looks_back and len(head.full.q) < mask.l:
            left_out.append(
                Sentence(
                    "{spec}: it needs the queries of all tokens, and there are the last {count} of "
                    "{tokens}",
                    spec=str(method),
                    count=len(head.full.q),
                    tokens=mask.l,
                )
            )
        elif ORACLE in method.tags and ROW_LOCAL not in method.tags and large:
            left_out.append(
                Sentence(
                    "{spec}: it decomposes the whole matrix, which has more than {entries} entries",
                    spec=str(method),
                    entries=MOST_ENTRIES,
                )
            )
        else:
            possible.append(method)
    return possible, left_out


def _compared(
    x: Head, estimates: Sequence[Approximation], head: HeadSample
) -> list[dict[str, float]]:
    if not estimates:
        return []
    if x is head.sample:
        population, rows = head.full.n, None
    else:
        population, rows = None, head.picked
    return metrics.compare_all(
        estimates, x.Q, x.K, x.V, mask=x.mask, rows=rows, population=population
    )
