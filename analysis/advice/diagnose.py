"""Advice for the heads of a model: which approximation at this budget, and whether it will hold.

Every method is run: the winner of a head is the one with the lowest measured error at the budget,
among those that a model with the head's mask could run. What needs every logit stands apart, as a
bound of its class or the best found (`analysis.costs.optimality`). Where nothing is much better
than the mean of V, the winner saves nothing but stored values, or the budget buys all that is seen,
the advice is to keep exact attention.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.advice import caveats
from analysis.advice.measurement import (
    TRIALS,
    Draws,
    Question,
    Sampled,
    certificate,
    cost,
    draws,
    measurable,
    prices,
    table,
)
from analysis.advice.verdict import COLUMNS, TV, rank, verdict, winner
from analysis.bounds.lower_bounds import bound
from analysis.compute.parallel import parallel
from analysis.costs import budget, candidates, operations, optimality
from analysis.costs.candidates import TRIVIAL
from analysis.inputs import Head, Heads
from analysis.inputs.statistics import describe
from analysis.moments.expected_errors import Expectation
from analysis.ranks.attention_weights import MOST_ENTRIES, Weights
from analysis.ranks.rank import measures
from analysis.sentences import Sentence
from analysis.sweeps.crossovers import crossing
from analysis.sweeps.table import with_currency
from approx import Approximation, Method, checks
from approx.checks import Array
from approx.kernels.threads import one_thread
from approx.low_rank.subspace import tail
from approx.low_rank.thresholding import without_largest
from approx.low_rank.truncated_svd import TruncatedSVD
from approx.method.prices import entries
from approx.random_features.features import RandomFeatures
from approx.random_features.positive import Positive
from approx.sparse.exact import Exact
from approx.textbook.attention import softmax

LADDER = tuple(2.0**e for e in (-2, -1, 0, 1, 2, 3))  # factors of t at which regimes may cross
ACCEPT = 0.5  # the largest share of uniform's error at which a method is advised


def diagnose(
    inputs: Head | Heads | Sequence[Head | Heads],
    *,
    budget: float,
    currency: str = "stored",
    methods: Sequence[Method] | None = None,
    temperature: float = 1.0,
    trials: int = TRIALS,
    rows: int | None = None,
    accept: float = ACCEPT,
    metric: str = TV,
    seed: int = 0,
    jobs: int = 1,
    progress: bool = False,
) -> pd.DataFrame:
    """Return the errors of every method on every head at a budget, and which one wins.

    Parameters
    ----------
    inputs : Head, Heads or a sequence of them
        One head or many.
    budget : float
        What a query row may cost. Of what exact attention costs more buys nothing, so that
        templates are filled to that at most.
    currency : {"stored", "reads", "multiply_adds", "bytes"}
        What the budget is counted in, see `approx.Price`: by default stored values per query row,
        or numbers read to answer one new query.
    methods : sequence of Method, optional
        Templates are filled to the budget; those of which nothing fits are left out. The default
        is `analysis.costs.candidates.methods`: what can be run under the mask, and what needs all
        logits.
    temperature : float
        t.
    trials : int
        Draws of a random method, at most 1024.
    rows : int, optional
        Queries that are measured, evenly spaced, against all the keys that they see; methods in
        which a row needs other queries get all of them. By default all queries up to 4096, and
        256 of more.
    accept : float
        The largest share of uniform attention's error at which a method is advised, 0 < accept ≤ 1.
    metric : {"attention_tv", "output_relative_error"}
        The error that ranks methods and decides the verdict: the total variation of the attention
        weights, or the error of the output P V, which depends on the values too and need not rank
        methods alike.
    seed, jobs, progress
        See `analysis.sweeps.sweep.sweep`.

    Returns
    -------
    DataFrame
        One row per (layer, head, method).

        Of the method: ``spec``; ``class``, such as "columns"; ``budget``, ``currency``;
        ``values_per_row`` stored, ``reads``, the numbers read to answer one new query,
        ``multiply_adds`` and ``bytes`` per query row, see `approx.Price`, NaN where they are not
        known before; ``attention_tv``, the median over trials, its range ``tv_least``,
        ``tv_most``, and its standard error ``tv_stderr`` from the queries that were measured (0 if
        all were); ``bound``, a lower bound on the ``attention_tv`` of every estimate of its class
        that stores as much as this one, whatever the currency, NaN where none is known, see
        `analysis.bounds.lower_bounds.bound`; ``certificate``, of the winner, the ``attention_tv``
        that its estimates prove of themselves (`analysis.bounds.certificates`), NaN where they
        prove nothing; ``negative_fraction`` of the entries; ``kernel_error`` (relative Frobenius),
        ``output_error`` (relative, with V) and its standard error ``output_stderr``, medians, NaN
        where there is none; ``nonpositive_rows``; ``expected``, the kernel error in closed form,
        NaN where none is known; ``features_needed``, how many iid frequencies give a kernel error
        of 10 %; ``pays_from``, the length from which on the method needs fewer operations than
        exact attention of what is seen, without those that find a support; ``autoregressive``;
        ``oracle``, which means that it needs all logits, and its ``standing`` in the metric,
        see `analysis.costs.optimality.standing`; ``runnable``, which means that it needs them not,
        and that it is autoregressive if the mask looks back; ``winner``, the runnable method with
        the lowest error in the metric, or of equal ones what stores less; ``warnings``, a list of
        `analysis.sentences.Sentence`.

        Of its head: ``metric``; ``mask``; ``measured``, the number of queries; ``exact_price``,
        what exact attention costs in the currency, ``exact_reads``, ``exact_multiply_adds`` and
        ``exact_bytes``; ``verdict``, which is "use" the winner, "tie" with the runner-up (a ratio
        below 1.05), or "keep exact", because no method has less than ``accept`` of uniform
        attention's error, the budget buys every entry that is seen, or the winner saves nothing but
        stored values: its reads, multiply-adds and bytes, as far as they are known, are at least
        those of exact attention; ``left_out``, sentences that
        say which methods were not measured, and why; ``logit_min``, ``logit_max``, ``logit_std``,
        ``query_norm`` and ``key_norm`` (medians of the scaled rows), ``row_entropy``,
        ``median_squared_sum``, ``epsilon_rank``, ``stable_rank`` and ``effective_rank`` of softmax
        attention, and ``crossing``, the temperature at which the largest entries and the truncated
        SVD that the budget pays for in its currency have equal Frobenius errors (NaN if there is
        none from t/4 to 8t). Under a mask the
        SVD is that of the matrix with 0 where nothing is seen: a triangular matrix has full rank,
        so these say little. Ranks and crossing are NaN where the matrix has more than 2^22 entries.

        Bounds and certificates are those of ``attention_tv``: by ``output_relative_error`` nothing
        of the kind is known, and both are NaN.

    Raises
    ------
    ValueError
        A budget, a temperature or accept is out of range, the currency or the metric is unknown,
        the metric is that of the output and a head has no values, or no method fits.

    Notes
    -----
    Cost: for each head, trials times each method and its errors, for which Q Kᵀ is computed once
    per group of estimates that fit an eighth of the memory limit together; and a few singular value
    decompositions of an (n, l) matrix.
    """
    asked = _Question(
        budget=checks.positive("budget", budget), currency=currency, methods=methods,
        temperature=temperature, trials=trials, rows=rows, accept=accept, metric=metric, seed=seed,
    )  # fmt: skip
    return table(asked.rows_of, asked.heads(inputs), jobs=jobs, progress=progress)


def winners(
    inputs: Head | Heads | Sequence[Head | Heads],
    *,
    budget: float,
    currency: str = "stored",
    temperatures: Sequence[float],
    trials: int = TRIALS,
    seed: int = 0,
    jobs: int = 1,
    progress: bool = False,
) -> pd.DataFrame:
    """Return what `diagnose` names as winner and verdict, of its candidates at some temperatures.

    Parameters
    ----------
    inputs, budget, currency, trials, seed, jobs, progress
        As in `diagnose`.
    temperatures : sequence of float

    Returns
    -------
    DataFrame
        One row per (layer, head, temperature): ``mask``, ``budget``, and ``currency`` where it is
        not stored values; ``winner``, the spec of the runnable candidate with the lowest
        ``attention_tv``, or of equal ones what stores less; ``attention_tv`` and ``uniform_tv``;
        ``verdict``. They are those of `diagnose` to the bit.

    Raises
    ------
    ValueError
        A budget or a temperature is out of range, the currency is unknown, or no candidate fits.

    Notes
    -----
    Cost: that of `diagnose` without what needs all logits, expected errors, ranks and crossings: a
    third.
    """
    paid = checks.positive("budget", budget)
    asked = [
        _Question(budget=paid, currency=currency, temperature=t, trials=trials, seed=seed)
        for t in temperatures
    ]
    checks.integer("jobs", jobs, least=1)
    tasks = [(x, one) for x in asked[0].heads(inputs) for one in asked] if asked else []
    rows = parallel(_winner, tasks, jobs=jobs, progress=progress, label="winners")
    return with_currency(pd.DataFrame(rows), currency)


def _winner(task: tuple[Head, _Question]) -> dict[str, Any]:
    """Return the winner and the verdict of one head at one temperature."""
    whole, about = task
    runnable = tuple(m for m in candidates.methods(whole.mask) if not m.oracle)
    head, about = about.sampled(whole), dataclasses.replace(about, methods=runnable)
    x = head.whole
    with one_thread():
        fitting, _ = _fitting(head, about)
        rows = [row | {"runnable": True} for row, _ in about.measured(head, fitting)]
    best, uniform = min(rows, key=rank), _uniform(rows, TV)
    place = {name: value for name, value in head.place().items() if name != "measured"}
    return place | {
        "budget": about.budget, "winner": best["spec"], "attention_tv": best["attention_tv"],
        "uniform_tv": uniform, "verdict": about.verdict(rows, x, uniform),
    }  # fmt: skip


class DryRun(NamedTuple):
    """What `diagnose` would do, from one head of the middle.

    Attributes
    ----------
    heads : int
    methods : list of str
        The specs that are measured on that head.
    left_out : list of Sentence
        The methods that are not, and why.
    seconds : float
        The time of all heads, from that of this one, which ran twice so that nothing is compiled
        while it is timed.
    """

    heads: int
    methods: list[str]
    left_out: list[Sentence]
    seconds: float


def dry_run(
    inputs: Head | Heads | Sequence[Head | Heads], *, jobs: int = 1, **asked: Any
) -> DryRun:
    """Return what `diagnose` would measure with these arguments, and about how long it takes."""
    about = _Question(**asked)
    heads = about.heads(inputs)
    middle = heads[len(heads) // 2]
    dataclasses.replace(about, trials=1).rows_of(middle)
    start = time.perf_counter()
    rows = about.rows_of(middle)
    spent = time.perf_counter() - start
    seconds = spent * math.ceil(len(heads) / min(jobs, len(heads)))
    return DryRun(len(heads), [row["spec"] for row in rows], rows[0]["left_out"], seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Question(Question):
    """What is asked of every head."""

    METRICS: ClassVar = tuple(COLUMNS)

    budget: float
    accept: float = ACCEPT
    metric: str = TV
    currency: str = "stored"
    methods: Sequence[Method] | None = None
    temperature: float = 1.0
    trials: int = TRIALS
    rows: int | Array | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("budget", self.budget)
        checks.positive("accept", self.accept, most=1.0)

    def keys(self, x: Head) -> float:
        """Return how many exact keys per row cost as much as the budget."""
        shape = dataclasses.replace(x.shape, mask=None)
        none, one = (getattr(entries(k, shape), self.currency) for k in (0, 1))
        return float((self.budget - none) / (one - none))

    def rank(self, x: Head) -> int:
        """Return the rank of the truncated SVD that the budget pays for."""
        method = TruncatedSVD(space="attention")
        filled = method.within(self.budget, currency=self.currency, **x.shape.given)
        return 0 if filled is None else int(filled.rank or 0)

    def exact_price(self, x: Head) -> float:
        """Return what exact attention costs in the currency of the budget."""
        return cost(Exact(), x, self.currency)

    def verdict(self, rows: Sequence[dict[str, Any]], x: Head, uniform: float) -> str:
        """Return what to do with a head."""
        affordable = self.budget >= self.exact_price(x)
        return verdict(
            rows, affordable=affordable, accept=self.accept, uniform=uniform,
            exact=exact_prices(x), metric=self.metric,
        )  # fmt: skip

    def measured(
        self, head: Sampled, methods: Sequence[Method]
    ) -> Iterator[tuple[dict[str, Any], Draws]]:
        """Yield the errors and the price of each method on one head, and its draws."""
        for drawn in draws(head, methods, trials=self.trials, seed=self.seed):
            named = {
                "spec": str(drawn.method), "class": drawn.method.class_name,
                "budget": self.budget, "currency": self.currency,
            }  # fmt: skip
            yield named | drawn.row(head.whole), drawn

    def rows_of(self, inputs: Head, *, progress: bool = False) -> list[dict[str, Any]]:
        """Return the rows of one head."""
        head, column = self.sampled(inputs), COLUMNS[self.metric]
        x = head.whole  # its Q and K last for this head only
        weights = Weights.of(head.part)
        rows: list[dict[str, Any]] = []
        best: dict[str, Any] | None = None
        with one_thread():
            fitting, left_out = _fitting(head, self)
            facts = _facts(head.part, self.keys(x), self.rank(x), weights)
            truth = Expectation(x.Q, x.K, x.mask)
            for measured, drawn in tqdm(
                self.measured(head, fitting), "methods", len(fitting), leave=False,
                disable=not progress,
            ):  # fmt: skip
                row = measured | _theory(head, drawn, measured, weights, truth, self.metric)
                if winner([*rows, row], self.metric) is row:
                    best, winning = row, drawn
                row |= {"certificate": math.nan, "winner": False}
                rows.append(row)
            peaked = any(isinstance(method, Positive) for method in fitting)
            eps = caveats.collapsing_eps(x, facts["row_entropy"]) if peaked else None
            if best is not None:
                best["winner"] = True
            if best is not None and self.metric == TV:
                best["certificate"] = certificate(head, winning, trials=self.trials, seed=self.seed)
        uniform = _uniform(rows, column)
        place = head.place() | {
            "metric": self.metric, "exact_price": self.exact_price(x), **exact_prices(x),
            "verdict": self.verdict(rows, x, uniform), "left_out": left_out,
        }  # fmt: skip
        for method, row in zip(fitting, rows):
            row["warnings"] = list(caveats.warnings(x, method, place | row, uniform, eps, column))
        return [place | row | facts for row in rows]


def _fitting(head: Sampled, about: _Question) -> tuple[list[Method], list[Sentence]]:
    """Return the methods that are measured, filled to the budget, and why others are not."""
    x = head.whole
    possible, left_out = measurable(head, about.methods)
    capped = about.budget >= about.exact_price(x)  # more would not buy more of a template
    fitting: list[Method] = []
    lacking: list[Method] = []
    for method in possible:
        most = min(about.budget, about.exact_price(x)) if method.is_template else about.budget
        matched = budget.match([method], most, x, about.currency)
        fitting += matched.fitting
        lacking += matched.absent
    absent = [_absent(method, capped) for method in lacking]
    if not fitting:
        amount = budget.said(about.budget, about.currency)
        never = all(one.adaptive or (capped and one.is_template) for one in lacking)
        why = "; ".join([*left_out, *absent]) if never else "raise the budget"
        raise ValueError(f"no method fits {amount} of {x.name}: {why}")
    return fitting, left_out + absent


def _absent(method: Method, capped: bool) -> Sentence:
    """Return why nothing of a method fits a budget, which may buy exact attention."""
    if method.is_template and not method.fillable:
        return Sentence(
            "{spec}: what it reads follows from the inputs, so that no budget fills it: give its "
            "sizes, such as {sized}, and measure it by a sweep without budgets",
            spec=str(method),
            sized=str(method.with_sizes()),
        )
    if method.adaptive:
        return Sentence(
            "{spec}: what it reads follows from the inputs, so that no budget buys it: measure it "
            "by a sweep without budgets",
            spec=str(method),
        )
    if method.is_template and capped:
        return Sentence("{spec}: every size costs more than exact attention", spec=str(method))
    return Sentence("{spec}: no size fits the budget", spec=str(method))


def _uniform(rows: Sequence[dict[str, Any]], column: str) -> float:
    """Return the error of uniform attention, NaN if it was not measured."""
    return next((row[column] for row in rows if row["spec"] == TRIVIAL), math.nan)


def exact_prices(x: Head) -> dict[str, float]:
    """Return what exact attention reads, multiplies and keeps in bytes."""
    return {f"exact_{name}": price for name, price in prices(Exact(), x).items()}


def _facts(x: Head, keys: float, rank: int, weights: Weights) -> dict[str, float]:
    """Return the facts that make a head easy or hard, whatever the method."""
    ranks = measures(weights.singular_values, weights.mask.shape) if weights.kept else {}
    return describe(x) | {
        "query_norm": float(np.median(np.linalg.norm(x.Q, axis=1))),
        "key_norm": float(np.median(np.linalg.norm(x.K, axis=1))),
        "epsilon_rank": ranks.get("epsilon_rank", math.nan),
        "stable_rank": ranks.get("stable_rank", math.nan),
        "effective_rank": ranks.get("effective_rank", math.nan),
        "crossing": _crossing(x, keys, rank) if weights.kept else math.nan,
    }


def _crossing(x: Head, keys: float, rank: int) -> float:
    """Return the first temperature from which on the truncated SVD beats the largest entries."""
    entries = int(min(max(keys, 0) * x.n, x.mask.entries))  # a budget may exceed all entries
    rank = min(rank, x.n, x.l)
    sparse, low_rank, at = [], [], math.nan
    for step in LADDER:
        P = softmax(x.at_temperature(step * x.temperature).logits())
        sparse.append(without_largest(P, entries))
        low_rank.append(tail(P, rank))
        at = crossing(x.temperature * np.array(LADDER[: len(sparse)]), sparse, low_rank)
        if not math.isnan(at):
            break  # hotter ones do not change it
    return at


def _theory(
    head: Sampled,
    drawn: Draws,
    measured: dict[str, Any],
    weights: Weights,
    truth: Expectation,
    metric: str,
) -> dict[str, Any]:
    """Return what is known of a method on one head without measuring it."""
    x, method, estimate = head.whole, drawn.method, drawn.estimates[-1]
    expected: float | None = None
    if estimate.space == "kernel" and x.n * x.l <= MOST_ENTRIES:
        chance = method.uses_rng or method.parts or len(head.picked) < x.n
        expected = truth.error(method) if chance else measured["kernel_error"]
    known = math.nan if expected is None else expected
    least = bound(method, estimate, weights, stored=drawn.entries) if metric == TV else math.nan
    return {
        "bound": least,
        "expected": known,
        "features_needed": _needed(method, known),
        "pays_from": _pays_from(estimate, x),
        "autoregressive": method.autoregressive,
        "oracle": method.oracle,
        "standing": optimality.standing(method, metric, x.mask),
        "runnable": not method.obstacle(x.mask),
    }


def _needed(method: Method, expected: float) -> float:
    """Return m·(expected/target)²: an unbiased error falls as m^{−1/2} with iid frequencies."""
    if isinstance(method, RandomFeatures) and method.projection == "iid":
        ratio = expected / caveats.TARGET
        return float(method.m or 0) * (ratio * ratio)  # a power beyond the largest float is no inf
    return math.nan


def _pays_from(estimate: Approximation, x: Head) -> float:
    """Return the least n with fewer multiply-adds, at this rank and these entries per row.

    Exact attention skips what a causal query does not see.
    """
    entries = math.ceil(estimate.nnz / estimate.shape[0])
    window = int(x.mask.counts.max()) if x.mask.first.any() else None
    return _length(x.d, estimate.rank, entries, x.mask.looks_back, window)


@functools.lru_cache(maxsize=4096)
def _length(d: int, rank: int, entries: int, looks_back: bool, window: int | None) -> float:
    # The heads of a model share most of these: a search asks for a hundred prices.
    def cost(n: int) -> int:
        return operations.scatterbrain(n, d, rank, entries).total

    def whole(n: int) -> int:
        if looks_back:
            return operations.causal_attention(n, d, window).total
        return operations.exact_attention(n, d).total

    length = operations.break_even(cost, whole)
    return math.inf if length is None else float(length)
