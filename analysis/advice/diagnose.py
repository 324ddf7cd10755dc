"""Advice for the heads of a model: the best approximation at a budget, and its verdict.

Every method is run. The winner of a head is the method with the lowest measured error at the
budget, among those that a model with the head's mask can run. What people deploy is always measured
(`analysis.costs.candidates.rivals`), with 32 keys if the budget buys no size. A first pass on a few
queries excludes methods that cannot win; the others are measured on all queries. A method that sees
all logits is a reference, measured on request: a bound of its class, or the best found
(`analysis.costs.candidates.standing`). The advice is to keep exact attention if no method is much
better than the mean of V, if the winner saves only stored values, or if the budget buys all visible
keys.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeGuard

import numpy as np
import pandas as pd
from scipy.special import ndtri
from tqdm import tqdm

from analysis.advice import caveats
from analysis.advice.measurement import (
    FEW,
    TRIALS,
    WORTH,
    Draws,
    HeadSample,
    HeadTask,
    certificate,
    draws,
    measurable,
    table,
)
from analysis.advice.verdict import OUTPUT, TIE, verdict, winner
from analysis.bounds.lower_bounds import bound
from analysis.costs import budget
from analysis.costs.allocation import undominated
from analysis.costs.break_even import break_even
from analysis.costs.candidates import TRIVIAL, rivals, standing
from analysis.inputs import Head, Heads
from analysis.inputs.statistics import describe
from analysis.moments.expected_errors import Expectation
from analysis.ranks.attention_weights import MOST_ENTRIES, Weights
from analysis.sentences import Sentence
from analysis.sweeps.table import with_currency
from approx import Approximation, Method, checks
from approx.checks import Array
from approx.kernels.threads import one_thread
from approx.method import TV
from approx.method.evaluation import obstacle
from approx.method.filling import is_fillable, resized, with_sizes
from approx.method.prices import price_at
from approx.method.tags import ADAPTIVE, AUTOREGRESSIVE, ORACLE, ROW_LOCAL
from approx.random_features.features import RandomFeatures
from approx.random_features.positive import Positive
from approx.sparse.exact import Exact

ACCEPT = 0.5  # the largest share of uniform's error at which a method is advised
WRONG = 1e-4  # the probability, by normal tails, that screening excludes a method that could win


def diagnose(
    inputs: Head | Heads | Sequence[Head | Heads],
    *,
    budget: float,
    currency: str = "stored",
    methods: Sequence[Method] | None = None,
    references: bool = False,
    screen: bool = True,
    temperature: float = 1.0,
    trials: int = TRIALS,
    rows: int | None = None,
    accept: float = ACCEPT,
    metric: str = TV,
    seed: int = 0,
    jobs: int = 1,
    scheduler: Any = None,
    progress: bool = False,
    finished: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Return the errors of every method on every head at a budget, and the winner of each head.

    Parameters
    ----------
    inputs : Head, Heads or a sequence of them
    budget : float
        The largest cost per query. Templates are filled to the budget, but never beyond the cost of
        exact attention.
    currency : {"stored", "reads", "multiply_adds", "bytes", "bytes_read"}
        The currency of the budget, see `approx.Price`: by default stored values per query.
    methods : sequence of Method, optional
        Templates are filled to the budget; a template with no size that fits is left out. The
        default is `analysis.costs.candidates.methods`: all methods that can be run under the mask,
        and unless stored values are counted, `rivals`, whatever they cost.
    references : bool
        Adds the references to the default: methods that see all logits. They take longer to measure
        than all runnable methods together.
    screen : bool
        Whether methods that cannot win, by their standard errors on 64 queries, are measured on
        these queries only. See Notes.
    temperature : float
        t.
    trials : int
        Draws of a random method, at most `analysis.advice.measurement.MOST_TRIALS`.
    rows : int, optional
        The number of measured queries, evenly spaced; each is measured against all keys that it
        sees. Methods in which a row needs other queries get all queries. By default all queries up
        to 4096, and 256 if there are more.
    accept : float
        The largest share of uniform attention's error at which a method is advised, 0 < accept ≤ 1.
    metric : {"attention_tv", "output_relative_error"}
        The error that ranks methods and decides the verdict: the total variation of the attention
        weights, or the error of the output P V. The latter depends on the values too, and may rank
        methods differently.
    seed, jobs, scheduler, progress
        See `analysis.sweeps.sweep.sweep`; on a cluster each head is a task.
    finished : path, optional
        A folder that keeps the rows of each finished head, so that a stopped call can resume.

    Returns
    -------
    DataFrame
        One row per (layer, head, method). Columns of the method:

        - ``method`` as it was given; ``spec``; ``class``, such as "columns"; ``budget``,
          ``currency``; ``affordable``: whether the budget buys it
        - ``stored`` (values per query row), ``reads`` (numbers read to answer one new query),
          ``multiply_adds``, ``bytes`` and ``bytes_read``, see `approx.Price`; ``bytes_4096``, …:
          the bytes that its cache holds after so many tokens; NaN if not known before a run
        - ``undominated``: whether it is runnable and no runnable method on this head that reads as
          few bytes has less error, see `analysis.costs.allocation.undominated`
        - ``attention_tv``: the median over trials; ``attention_tv_least``, ``attention_tv_most``:
          its range; ``attention_tv_stderr``: its standard error over the measured queries (0 if all
          were measured)
        - ``bound``: a lower bound on the ``attention_tv`` of every estimate of the same class with
          equal storage, whatever the currency, see `analysis.bounds.lower_bounds.bound`
        - ``certificate``: for the winner, the upper bound of its ``attention_tv`` that its
          estimates give themselves (`analysis.bounds.certificates`)
        - ``negative_fraction`` of the entries; ``nonpositive_rows``
        - ``kernel_relative_frobenius``, and with V ``output_relative_error`` and its standard error
          ``output_relative_error_stderr``: medians
        - ``screened``: whether these errors are of 64 queries only, on which the method cannot win
        - ``expected_kernel_relative_frobenius``: in closed form; in the default without references,
          only if a warning needs it
        - ``features_needed``: the m of iid frequencies that gives a kernel error of 10 %; an m
          counts columns, so a frequency with two columns counts twice
        - ``pays_from``: the least length n = l at which the method, at this size, has fewer
          ``multiply_adds`` than exact attention; inf if there is none up to 2^17
        - ``autoregressive``; ``oracle``: whether the method needs all logits; ``standing`` in the
          metric, see `analysis.costs.candidates.standing`; ``runnable``: whether the method does
          not need all logits and is autoregressive if the mask looks back
        - ``winner``: the runnable method with the lowest error in the metric that the budget buys;
          among equals the one that stores least
        - ``warnings``: a list of `analysis.sentences.Sentence`

        Columns of the head:

        - ``group``, the number of heads that share its keys; ``metric``; ``mask``; ``measured``,
          the number of queries
        - ``exact_price``, ``exact_reads``, ``exact_multiply_adds``, ``exact_bytes``: the cost of
          exact attention, in the currency and in the others
        - ``verdict``: "use" the winner, "tie" with the runner-up (a ratio of errors below 1.05), or
          "keep exact". It is "keep exact" if no method has at most ``accept`` of uniform
          attention's error, if the budget buys every visible entry, or if the winner saves only
          stored values: none of its known reads, multiply-adds and bytes is below exact attention's
        - ``left_out``: sentences that name the methods that were not measured, with the reason
        - ``logit_min``, ``logit_max``, ``logit_std``, ``query_norm`` and ``key_norm`` (medians of
          the scaled rows), ``row_entropy``, ``median_squared_sum``

        An unknown or undefined number is NaN. Bounds and certificates exist for ``attention_tv``
        only; with ``output_relative_error`` both are NaN.

    Raises
    ------
    ValueError
        The budget, the temperature or accept is out of range, the currency or the metric is
        unknown, the metric is the output error and a head has no values, or no method fits.

    Notes
    -----
    **Screening.** If there are at least 4 × 64 queries, every default method is first measured on
    64 of them, drawn without replacement (not with ``references``). Let m be its error there, the
    median over draws, and s the standard error of m; m₂ and s₂ belong to the method with the second
    least m. A method is not measured further if

        m − 1.05·m₂ > z·√(s² + (1.05·s₂)²),    z the 1 − 10⁻⁴ quantile of N(0, 1).

    Such a method is neither among the best two nor ties with them, and these decide winner, verdict
    and margin. The method with the least other error on these queries is also measured on all
    queries. The draws of a method are the same on few queries and on all of them, so that only the
    choice of queries can mislead. If means of 64 queries were normal, a method that could win would
    be excluded with probability 10⁻⁴; `studies/lm/screening.md` counts how often it was.

    Cost: for each head, ``trials`` runs of every method and its errors on 64 queries; for methods
    that may win, on all queries. Q Kᵀ is computed once per group of estimates that together fit an
    eighth of the memory limit.
    """
    asked = Diagnosis(
        budget=checks.positive("budget", budget), currency=currency, methods=methods,
        references=references, screen=screen, temperature=temperature, trials=trials, rows=rows,
        accept=accept, metric=metric, seed=seed,
    )  # fmt: skip
    return table(asked, inputs, jobs=jobs, scheduler=scheduler, progress=progress, folder=finished)


def winners(
    inputs: Head | Heads | Sequence[Head | Heads],
    *,
    temperatures: Sequence[float],
    **asked: Any,
) -> pd.DataFrame:
    """Return the winner and the verdict of `diagnose` at several temperatures.

    Returns
    -------
    DataFrame
        One row per (layer, head, temperature): ``mask``, ``budget``, and ``currency`` if it is not
        stored values; ``winner``, its spec, as `diagnose` defines it; ``attention_tv``;
        ``uniform_attention_tv``; ``verdict``.
    """
    return best([diagnose(inputs, temperature=t, **asked) for t in temperatures])


def best(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return what `winners` does, of tables of `diagnose` at several temperatures."""
    parts = []
    for every in tables:
        uniform = every[every.spec == TRIVIAL].attention_tv.to_numpy()
        won = every[every.winner].assign(winner=every.spec, uniform_attention_tv=uniform)
        parts.append(won.reset_index(drop=True))
    if not parts:
        return pd.DataFrame()
    found = pd.concat(parts).sort_index(kind="stable").reset_index(drop=True)
    columns = [
        "input", "layer", "head", "n", "l", "d", "temperature", "mask", "budget", "winner",
        "attention_tv", "uniform_attention_tv", "verdict",
    ]  # fmt: skip
    return with_currency(found[columns], found.currency.iloc[0])


class DryRun(NamedTuple):
    """A preview of `diagnose`, from a run on the middle head.

    Attributes
    ----------
    heads : int
    methods : list of str
        The specs that are measured on that head.
    left_out : list of Sentence
        The methods that are not measured, with the reason.
    seconds : float
        The estimated time for all heads, from the time of this head without compilation.
    """

    heads: int
    methods: list[str]
    left_out: list[Sentence]
    seconds: float


def dry_run(
    inputs: Head | Heads | Sequence[Head | Heads], *, jobs: int = 1, **asked: Any
) -> DryRun:
    """Return the methods that `diagnose` would measure, and about how long it would take.

    It runs the first tokens of the middle head, so that all is compiled, then times that head.
    """
    about = Diagnosis(**asked)
    heads = about.heads(inputs)
    middle = heads[len(heads) // 2]
    # methods or rows fit this length only
    given = about.methods is not None or isinstance(about.rows, np.ndarray)
    before = middle if given else middle.first(min(middle.n, middle.l, WORTH * FEW))
    with one_thread():
        dataclasses.replace(about, head=before, trials=1).run(False)
        start = time.perf_counter()
        rows = dataclasses.replace(about, head=middle).run(False)
        spent = time.perf_counter() - start
    seconds = spent * math.ceil(len(heads) / min(jobs, len(heads)))
    return DryRun(len(heads), [row["spec"] for row in rows], rows[0]["left_out"], seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis(HeadTask):
    """A head that is diagnosed, with the arguments of `diagnose`."""

    METRICS: ClassVar = (TV, OUTPUT)

    budget: float
    accept: float = ACCEPT
    metric: str = TV
    currency: str = "stored"
    methods: Sequence[Method] | None = None
    references: bool = False
    screen: bool = True
    temperature: float = 1.0
    trials: int = TRIALS
    rows: int | Array | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("budget", self.budget)
        checks.positive("accept", self.accept, most=1.0)

    def exact_price(self, x: Head) -> float:
        """Return the cost of exact attention in the currency of the budget."""
        return budget.cost(Exact(), x.shape, self.currency)

    def verdict(self, rows: Sequence[dict[str, Any]], x: Head, uniform: float) -> str:
        """Return the verdict for a head."""
        affordable = self.budget >= self.exact_price(x)
        return verdict(
            rows, affordable=affordable, accept=self.accept, uniform=uniform,
            exact=exact_prices(x), metric=self.metric,
        )  # fmt: skip

    def measured(
        self,
        head: HeadSample,
        methods: Sequence[Method],
        held: Mapping[str, Sequence[Approximation]] | None = None,
    ) -> Iterator[tuple[dict[str, Any], Draws]]:
        """Yield the errors and the price of each method on one head, and its draws."""
        for drawn in draws(head, methods, trials=self.trials, seed=self.seed, held=held):
            asked = {**head.full.shape.given, "currency": self.currency}
            named = {
                "spec": str(drawn.method), "class": drawn.method.class_name,
                "budget": self.budget, "currency": self.currency,
                "affordable": drawn.method.within(self.budget, **asked) is not None,
            }  # fmt: skip
            yield named | drawn.row(head.full), drawn

    def run(self, shared: bool) -> list[dict[str, Any]]:
        head = self.sampled()
        x = head.full  # its Q and K last for this head only
        truth, proved = Expectation(x.Q, x.K, x.mask), self.metric == TV and x.sinks is None
        weights = Weights.from_head(head.sample) if proved else None
        best: dict[str, Any] | None = None
        given, left_out = _fitting(head, self)
        fitting = [method for method, _ in given]
        few, tried, lost = self.screened(head, fitting)
        unknown = dict.fromkeys(("bound", "certificate", "nonpositive_rows"), math.nan) | {
            "winner": False,
            "screened": True,
            "measured": len(few.picked),
        }
        known = {
            row["spec"]: row | self.theory(few, drawn, row, truth) | unknown
            for (row, drawn), out in zip(tried, lost)
            if out
        }
        held = {
            row["spec"]: drawn.estimates
            for (row, drawn), out in zip(tried, lost)
            if not out and drawn.is_stored and ROW_LOCAL not in drawn.method.tags
        }
        uniform_of_few = _uniform([row for row, _ in tried], self.metric)
        tried.clear()  # frees the estimates
        left = [one for one in fitting if str(one) not in known]
        for measured, drawn in tqdm(
            self.measured(head, left, held), "methods", len(left), leave=False,
            disable=not shared,
        ):  # fmt: skip
            row = measured | self.theory(head, drawn, measured, truth)
            row |= {"certificate": math.nan, "winner": False, "screened": False}
            row["bound"] = math.nan
            if weights is not None:
                method, estimate = drawn.method, drawn.estimates[-1]
                row["bound"] = bound(method, estimate, weights, stored=drawn.entries)
            known[row["spec"]] = row
            if winner([*known.values()], self.metric) is row:
                best, winning = row, drawn
        rows = [known[str(method)] | {"method": str(template)} for method, template in given]
        peaked = any(isinstance(method, Positive) for method in fitting)
        facts = _facts(head.sample)
        eps = caveats.collapsing_eps(x, facts["row_entropy"]) if peaked else None
        runnable = pd.DataFrame([row for row in rows if row["runnable"]], columns=[*rows[0]])
        line = set(undominated(runnable, damage=self.metric).spec)
        for row in rows:
            row["undominated"] = row["spec"] in line
            row["winner"] = row["spec"] == (best or {}).get("spec")
            if row["winner"] and proved:
                row["certificate"] = certificate(head, winning, trials=self.trials, seed=self.seed)
        uniform = _uniform(rows, self.metric)
        place = head.place() | {
            "metric": self.metric, "exact_price": self.exact_price(x), **exact_prices(x),
            "verdict": self.verdict(rows, x, uniform), "left_out": left_out,
        }  # fmt: skip
        for method, row in zip(fitting, rows):
            at = uniform_of_few if row["screened"] else uniform  # on the same queries
            row["warnings"] = list(caveats.warnings(x, method, place | row, at, eps, self.metric))
        return [place | row | facts for row in rows]

    def screened(
        self, head: HeadSample, methods: Sequence[Method]
    ) -> tuple[HeadSample, list[tuple[dict[str, Any], Draws]], Sequence[bool]]:
        """Return the head with few queries, the runs on them, and which methods cannot win."""
        alone = self.methods is None and not self.references  # classes compare all queries
        few = head.few(self.seed) if self.screen and alone else None
        if few is None:
            return head, [], []
        asked = {**head.full.shape.given, "currency": self.currency}
        could = [
            method for method in methods
            if not obstacle(method, head.full.mask) and method.within(self.budget, **asked)
        ]  # fmt: skip
        tried = list(self.measured(few, could))
        rows = pd.DataFrame([row for row, _ in tried])
        metric, other = self.metric, OUTPUT if self.metric == TV else TV
        lost = cannot_win(rows[metric].to_numpy(), rows[f"{metric}_stderr"].to_numpy())
        lost &= rows.spec != TRIVIAL  # every head needs its error
        # it may have the least other error
        lost &= rows.index != rows[other].fillna(math.inf).argmin()
        return few, tried, lost.tolist()

    def theory(
        self, head: HeadSample, drawn: Draws, measured: dict[str, Any], truth: Expectation
    ) -> dict[str, Any]:
        """Return the properties of a method on one head that need no measurement."""
        x, method, estimate = head.full, drawn.method, drawn.estimates[-1]
        expected: float | None = None
        if estimate.space == "kernel" and x.n * x.l <= MOST_ENTRIES:
            if method.deterministic and not (method.parts or len(head.picked) < x.n):
                expected = measured["kernel_relative_frobenius"]
            elif self.references or self.methods or _has_iid_frequencies(method):
                expected = truth.error(method)
        known = math.nan if expected is None else expected
        return {
            "expected_kernel_relative_frobenius": known,
            "features_needed": _needed(method, known),
            "pays_from": break_even(method, x.shape),
            "autoregressive": AUTOREGRESSIVE in method.tags,
            "oracle": ORACLE in method.tags,
            "standing": standing(method, self.metric, x.mask),
            "runnable": not obstacle(method, x.mask),
        }


def cannot_win(errors: Array, stderrs: Array) -> Array:
    """Return which errors exceed the second least one by more than a tie and chance allow.

    That is m − 1.05·m₂ > z·√(s² + (1.05·s₂)²) for errors m (methods,), of which m₂ is the second
    least, and their standard errors s.

    Examples
    --------
    >>> cannot_win(np.array([0.1, 0.2, 0.25, 0.5]), np.full(4, 0.02)).tolist()
    [False, False, False, True]
    """
    second = np.argsort(errors, kind="stable")[min(1, len(errors) - 1)]
    chance = np.hypot(stderrs, TIE * stderrs[second])
    with np.errstate(invalid="ignore"):  # inf − inf: not known to be worse
        return np.asarray(errors - TIE * errors[second] > -ndtri(WRONG) * chance)


def _fitting(
    head: HeadSample, about: Diagnosis
) -> tuple[list[tuple[Method, Method]], list[Sentence]]:
    """Return the methods to measure, filled to the budget, and why others are left out.

    Each has the method that was given beside it. What people deploy is there at any price.
    """
    x = head.full
    possible, left_out = measurable(head, about)
    capped = about.budget >= about.exact_price(x)  # more would not buy more of a template
    fitting: dict[str, tuple[Method, Method]] = {}
    lacking: list[Method] = []
    always = rivals() if about.currency != "stored" else []
    for method in possible:
        most = min(about.budget, about.exact_price(x)) if method.is_template else about.budget
        matched = budget.match([method], most, x, about.currency)
        deployed = [method] if method in always else []  # at its own price
        if deployed and method.is_template:
            deployed = [resized(method, budget.KEYS)] if about.methods is None else []
        for one in matched.fitting or deployed:
            fitting.setdefault(str(one), (one, method))
        lacking += [] if deployed else matched.absent
    absent = [_absent(method, capped) for method in lacking]
    if not fitting:
        amount = budget.amount_text(about.budget, about.currency)
        never = all(ADAPTIVE in one.tags or (capped and one.is_template) for one in lacking)
        why = "; ".join([*left_out, *absent]) if never else "raise the budget"
        raise ValueError(f"no method fits {amount} of {x.name}: {why}")
    return list(fitting.values()), left_out + absent


def _absent(method: Method, capped: bool) -> Sentence:
    """Return the reason why no size of a method fits; `capped`: the budget buys exact attention."""
    if method.is_template and not is_fillable(method):
        return Sentence(
            "{spec}: the inputs decide how much it reads, so a budget cannot set its sizes. "
            "Give the sizes, such as {sized}, and measure it by a sweep without budgets",
            spec=str(method),
            sized=str(with_sizes(method)),
        )
    if ADAPTIVE in method.tags:
        return Sentence(
            "{spec}: the inputs decide how much it reads, so no budget buys it. Measure it "
            "by a sweep without budgets",
            spec=str(method),
        )
    if method.is_template and capped:
        return Sentence("{spec}: every size costs more than exact attention", spec=str(method))
    return Sentence("{spec}: no size fits the budget", spec=str(method))


def _uniform(rows: Sequence[dict[str, Any]], metric: str) -> float:
    """Return the error of uniform attention, NaN if it was not measured."""
    return next((row[metric] for row in rows if row["spec"] == TRIVIAL), math.nan)


def exact_prices(x: Head) -> dict[str, float]:
    """Return the reads, multiply-adds and bytes of exact attention."""
    known = budget.amounts(price_at(Exact(), x.shape))
    return {f"exact_{name}": price for name, price in known.items() if name != "stored"}


def _facts(x: Head) -> dict[str, float]:
    """Return the statistics that make a head easy or hard for every method."""
    norms = {
        f"{name}_norm": float(np.median(np.linalg.norm(points, axis=1)))
        for name, points in (("query", x.Q), ("key", x.K))
    }
    return describe(x) | norms


def _has_iid_frequencies(method: Method) -> TypeGuard[RandomFeatures]:
    return isinstance(method, RandomFeatures) and method.projection == "iid"


def _needed(method: Method, expected: float) -> float:
    """Return m·(expected/target)²: with iid frequencies an unbiased error falls as m^{−1/2}."""
    if not _has_iid_frequencies(method):
        return math.nan
    ratio = expected / caveats.TARGET
    return float(method.m or 0) * (ratio * ratio)  # a power beyond the largest float is no inf
