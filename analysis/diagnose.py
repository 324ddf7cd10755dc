"""Advice for the heads of a model: which approximation at this budget, and whether it will hold.

Every method is run: the winner of a head is the one with the lowest measured error at the budget,
among those that a model with the head's mask could run. Oracles, which need every logit, stand
apart, as the best found of their class. Where nothing is much better than the mean of V, or the
budget buys all that is seen, the advice is to keep exact attention.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import scipy.linalg
from tqdm import tqdm

from analysis import budget, candidates, metrics, operations
from analysis.candidates import TRIVIAL
from analysis.describe import describe
from analysis.inputs import Inputs
from analysis.moments import expected_error
from analysis.parallel import parallel
from analysis.pitfalls import concentration, with_eps
from analysis.rank import measures
from analysis.regimes import crossing
from analysis.seeds import seed_sequence
from approx import Approximation, Method, checks, memory
from approx.checks import Array
from approx.prices import CURRENCIES, entries
from approx.random_features.features import RandomFeatures
from approx.random_features.positive import Positive
from approx.sparse.exact import Exact
from approx.textbook.attention import softmax
from approx.threads import one_thread

TRIALS = 5
MOST_TRIALS = 1024  # more draws would not improve medians and ranges, and would take hours
TARGET = 0.1  # the relative Frobenius error of the kernel for which features are counted
LADDER = tuple(2.0**e for e in (-2, -1, 0, 1, 2, 3))  # factors of t at which regimes may cross
EPS = (1e-6, 1e-4)  # public code adds one of these to features
WIDTH = 256  # the number of such features
VERDICTS = USE, TIED, KEEP = "use", "tie", "keep exact"
COLLAPSED, PEAKED = 0.05, 0.2  # 1 − normalised entropy, with eps and of exact attention
ACCEPT = 0.5  # the largest share of uniform's error at which a method is advised
TIE = 1.05  # the least ratio of the runner-up's error to the winner's that is no tie
SAMPLE = 256  # queries that are measured where there are more than MOST_QUERIES
MOST_QUERIES = 4096
MOST_ENTRIES = 2**22  # of a matrix that is decomposed; oracles of larger ones are left out
SHARE = 8  # an 8th of the memory limit holds the estimates that are compared together
SPREAD = 1.5  # a larger ratio of the largest to the least error over draws gives a warning


class Sentence(str):
    """A sentence that also keeps its format and its numbers, so that it can be translated.

    Parameters
    ----------
    message : str
        A format; where there are no values, the text itself.
    **values
        The values of the format.

    Examples
    --------
    >>> one = Sentence("needs {count} features", count=7)
    >>> one, one.message, one.values
    ('needs 7 features', 'needs {count} features', {'count': 7})
    """

    message: str
    values: dict[str, Any]

    def __new__(cls, message: str, **values: Any) -> Self:
        """Return the sentence in English."""
        self = super().__new__(cls, message.format(**values) if values else message)
        self.message, self.values = message, values
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Return the arguments that make the same sentence in another process."""
        return (self.message,), self.values


def diagnose(
    inputs: Inputs | Sequence[Inputs],
    *,
    budget: float,
    currency: str = "stored",
    methods: Sequence[Method] | None = None,
    temperature: float = 1.0,
    trials: int = TRIALS,
    rows: int | None = None,
    accept: float = ACCEPT,
    seed: int = 0,
    jobs: int = 1,
    progress: bool = False,
) -> pd.DataFrame:
    """Return the errors of every method on every head at a budget, and which one wins.

    Parameters
    ----------
    inputs : Inputs or sequence of Inputs
        One head or many.
    budget : float
        What a query row may cost.
    currency : {"stored", "reads", "multiply_adds", "bytes"}
        What the budget is counted in, see `approx.Price`: by default stored values per query row,
        or numbers read to answer one new query.
    methods : sequence of Method, optional
        Templates are filled to the budget; those of which nothing fits are left out. The default
        is `analysis.candidates.methods`: what can be run under the mask, and the oracles.
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
    seed, jobs, progress
        See `analysis.sweep.sweep`.

    Returns
    -------
    DataFrame
        One row per (layer, head, method).

        Of the method: ``spec``; ``class``, within which an oracle is the best found; ``budget``,
        ``currency``, ``values_per_row`` stored, and ``reads``, the numbers read to answer one new
        query, NaN where they are not known before; ``attention_tv``, the median
        over trials, its range ``tv_least``, ``tv_most``, and its standard error ``tv_stderr`` from
        the queries that were measured (0 if all were); ``negative_fraction`` of the entries;
        ``kernel_error`` (relative Frobenius) and ``output_error``, medians, NaN where there is
        none; ``nonpositive_rows``; ``expected``, the kernel error in closed form, NaN where none is
        known; ``features_needed``, how many iid frequencies give a kernel error of 10 %;
        ``pays_from``, the length from which on the method needs fewer operations than exact
        attention of what is seen, without those that find a support; ``autoregressive``;
        ``oracle``; ``runnable``, which means that it is not an oracle, and that it is
        autoregressive if the mask looks back; ``winner``, the runnable method with the lowest
        ``attention_tv``, or the cheaper of equal ones; ``warnings``, a list of `Sentence`.

        Of its head: ``mask``; ``measured``, the number of queries; ``exact_price``, what exact
        attention costs in the currency, and ``exact_reads``, what it reads; ``verdict``, which is
        "use" the winner, "tie" with the runner-up (a ratio below 1.05), or "keep exact", because no
        method has less than ``accept`` of uniform
        attention's error, or the budget buys every entry that is seen; ``left_out``, sentences that
        say which methods were not measured, and why; ``logit_min``, ``logit_max``, ``logit_std``,
        ``query_norm`` and ``key_norm`` (medians of the scaled rows), ``row_entropy``,
        ``median_squared_sum``, ``epsilon_rank``, ``stable_rank`` and ``effective_rank`` of softmax
        attention, and ``crossing``, the temperature at which the largest entries and the truncated
        SVD do equally well at the budget (NaN if there is none from t/4 to 8t). Under a mask the
        SVD is that of the matrix with 0 where nothing is seen: a triangular matrix has full rank,
        so these say little. Ranks and crossing are NaN where the matrix has more than 2^22 entries.

    Raises
    ------
    ValueError
        A budget, a temperature or accept is out of range, the currency is unknown, or no method
        fits.

    Notes
    -----
    Cost: for each head, trials times each method and its errors, for which Q Kᵀ is computed once
    per group of estimates that fit an eighth of the memory limit together; and a few singular value
    decompositions of an (n, l) matrix.
    """
    heads, about = _asked(
        inputs, budget, methods, temperature, trials, rows, accept, seed, jobs, currency
    )
    alone = progress and min(jobs, len(heads)) == 1
    head = functools.partial(_head, about=about, progress=alone)
    per_head = parallel(head, heads, jobs=jobs, progress=progress, label="heads")
    return pd.DataFrame([row for every in per_head for row in every])


def winners(
    inputs: Inputs | Sequence[Inputs],
    *,
    budget: float,
    temperatures: Sequence[float],
    trials: int = TRIALS,
    seed: int = 0,
    jobs: int = 1,
    progress: bool = False,
) -> pd.DataFrame:
    """Return what `diagnose` names as winner and verdict, of its candidates at some temperatures.

    Parameters
    ----------
    inputs, budget, trials, seed, jobs, progress
        As in `diagnose`.
    temperatures : sequence of float

    Returns
    -------
    DataFrame
        One row per (layer, head, temperature): ``mask``, ``budget``; ``winner``, the spec of the
        runnable candidate with the lowest ``attention_tv``, or the cheaper of equal ones;
        ``attention_tv`` and ``uniform_tv``; ``verdict``. They are those of `diagnose` to the bit.

    Raises
    ------
    ValueError
        A budget or a temperature is out of range, or no candidate fits.

    Notes
    -----
    Cost: that of `diagnose` without its oracles, expected errors, ranks and crossings; a third.
    """
    places = []
    for t in temperatures:
        heads, about = _asked(inputs, budget, None, t, trials, None, ACCEPT, seed, jobs)
        places += [(place, x, about) for place, x in enumerate(heads)]
    places.sort(key=lambda task: task[0])
    rows = parallel(_winner, places, jobs=jobs, progress=progress, label="winners")
    return pd.DataFrame(rows)


def _winner(task: tuple[int, Inputs, _Settings]) -> dict[str, Any]:
    """Return the winner and the verdict of one head at one temperature."""
    _, whole, about = task
    x = whole.at_temperature(about.t)
    runnable = tuple(m for m in candidates.methods(x.mask) if not m.oracle)
    head, about = _Sampled.of(x, about.rows), about._replace(methods=runnable)
    with one_thread():
        fitting, _ = _fitting(head, about)
        rows = [_measured(head, method, about)[0] | {"runnable": True} for method in fitting]
    best, uniform = min(rows, key=_rank), _uniform(rows)
    return {
        "input": x.name, "layer": x.layer, "head": x.head, "n": x.n, "l": x.l, "d": x.d,
        "temperature": x.temperature, "mask": str(x.mask), "budget": about.budget,
        "winner": best["spec"], "attention_tv": best["attention_tv"], "uniform_tv": uniform,
        "verdict": _verdict(rows, x, about, uniform),
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
    inputs: Inputs | Sequence[Inputs],
    *,
    budget: float,
    currency: str = "stored",
    methods: Sequence[Method] | None = None,
    temperature: float = 1.0,
    trials: int = TRIALS,
    rows: int | None = None,
    accept: float = ACCEPT,
    seed: int = 0,
    jobs: int = 1,
) -> DryRun:
    """Return what `diagnose` would measure with these arguments, and about how long it takes."""
    heads, about = _asked(
        inputs, budget, methods, temperature, trials, rows, accept, seed, jobs, currency
    )
    middle = heads[len(heads) // 2]
    _head(middle, about._replace(trials=1), progress=False)
    start = time.perf_counter()
    table = _head(middle, about, progress=False)
    spent = time.perf_counter() - start
    seconds = spent * math.ceil(len(heads) / min(jobs, len(heads)))
    specs = [row["spec"] for row in table]
    return DryRun(len(heads), specs, table[0]["left_out"], seconds)


class _Settings(NamedTuple):
    """What is asked of every head."""

    t: float
    methods: tuple[Method, ...] | None
    budget: float
    trials: int
    rows: int | None
    accept: float
    seed: int
    currency: str

    def keys(self, x: Inputs) -> float:
        """Return how many exact keys per row cost as much as the budget."""
        shape = dataclasses.replace(x.shape, mask=None)
        none, one = (getattr(entries(k, shape), self.currency) for k in (0, 1))
        return float((self.budget - none) / (one - none))

    def exact_price(self, x: Inputs) -> float:
        """Return what exact attention costs in the currency of the budget."""
        price = Exact().price(**x.shape.given)
        return float(getattr(price, self.currency))


def _asked(
    inputs: Inputs | Sequence[Inputs],
    budget: float,
    methods: Sequence[Method] | None,
    temperature: float,
    trials: int,
    rows: int | None,
    accept: float,
    seed: int,
    jobs: int,
    currency: str = "stored",
) -> tuple[list[Inputs], _Settings]:
    """Check the arguments of `diagnose`."""
    checks.positive("budget", budget)
    checks.one_of("currency", currency, CURRENCIES)
    at = checks.positive("temperature", temperature)
    checks.integer("trials", trials, least=1, most=MOST_TRIALS)
    checks.integer("seed", seed, least=0)
    checks.integer("jobs", jobs, least=1)
    share = checks.positive("accept", accept, most=1.0)
    if rows is not None:
        checks.integer("rows", rows, least=2)
    files = [inputs] if isinstance(inputs, Inputs) else inputs
    checks.instance("inputs", files, Sequence, "an Inputs or a sequence of them")
    for file in files:
        checks.instance("every input", file, Inputs, "an Inputs")
    if methods is not None:
        checks.instance("methods", methods, Sequence, "a sequence of methods")
        for method in methods:
            checks.instance("every method", method, Method, "a method")
    heads = [x for file in files for x in file.heads()]
    if not heads:
        raise ValueError("inputs must not be empty")
    chosen = None if methods is None else tuple(methods)
    return heads, _Settings(at, chosen, float(budget), trials, rows, share, seed, currency)


class _Sampled(NamedTuple):
    """A head, the queries that are measured, and the head with those alone."""

    whole: Inputs
    picked: Array
    part: Inputs

    @classmethod
    def of(cls, x: Inputs, rows: int | None) -> _Sampled:
        if rows is None:
            rows = x.n if x.n <= MOST_QUERIES else SAMPLE
        if rows >= x.n:
            return cls(x, np.arange(x.n), x)
        picked = (np.arange(rows) * x.n + x.n // 2) // rows
        part = dataclasses.replace(x, q=x.q[picked], mask=x.mask.take(picked))
        return cls(x, picked, part)


def _head(inputs: Inputs, about: _Settings, progress: bool) -> list[dict[str, Any]]:
    x = inputs.at_temperature(about.t)  # its Q and K last for this head only
    head = _Sampled.of(x, about.rows)
    with one_thread():
        fitting, left_out = _fitting(head, about)
        facts = _facts(head.part, about.keys(x))
        bar = tqdm(fitting, disable=not progress, desc="methods", leave=False)
        rows = [_row(head, method, about) for method in bar]
        eps = _collapsing_eps(x, facts["row_entropy"]) if _positive(fitting) else None
    best, uniform = winner(rows), _uniform(rows)
    place = {
        "input": x.name, "layer": x.layer, "head": x.head, "n": x.n, "l": x.l, "d": x.d,
        "temperature": x.temperature, "mask": str(x.mask), "measured": len(head.picked),
        "exact_price": about.exact_price(x),
        "exact_reads": _reads(Exact(), x),
        "verdict": _verdict(rows, x, about, uniform), "left_out": left_out,
    }  # fmt: skip
    for method, row in zip(fitting, rows):
        row["winner"] = row is best
        row["warnings"] = list(_warnings(x, method, row, uniform, eps))
    return [place | row | facts for row in rows]


def _fitting(head: _Sampled, about: _Settings) -> tuple[list[Method], list[Sentence]]:
    """Return the methods that are measured, filled to the budget, and why others are not."""
    x, left_out = head.whole, []
    chosen = candidates.methods(x.mask) if about.methods is None else list(about.methods)
    possible: list[Method] = []
    for method in chosen:
        large = len(head.picked) * x.l > MOST_ENTRIES
        if (reason := candidates.why_not(method, x.mask)) is not None:
            left_out.append(Sentence("{spec}: {reason}", spec=str(method), reason=reason))
        elif method.oracle and not method.row_local and large:
            left_out.append(
                Sentence(
                    "{spec}: it decomposes a matrix of more than {entries} entries",
                    spec=str(method),
                    entries=MOST_ENTRIES,
                )
            )
        else:
            possible.append(method)
    matched = budget.match(possible, about.budget, x, about.currency)
    absent = [_absent(method) for method in matched.absent]
    if not matched.fitting:
        what = {"stored": "values per row", "bytes": "bytes per row"}.get(
            about.currency, f"{about.currency.replace('_', '-')} per row"
        )
        never = all(method.adaptive for method in matched.absent)
        why = "; ".join([*left_out, *absent]) if never else "raise the budget"
        raise ValueError(f"no method fits {about.budget:g} {what} of {x.name}: {why}")
    return matched.fitting, left_out + absent


def _absent(method: Method) -> Sentence:
    """Return why nothing of a method fits a budget."""
    if method.adaptive:
        return Sentence(
            "{spec}: what it reads follows from the inputs, so that no budget buys it",
            spec=str(method),
        )
    return Sentence("{spec}: no size fits the budget", spec=str(method))


def _verdict(rows: Sequence[dict[str, Any]], x: Inputs, about: _Settings, uniform: float) -> str:
    """Return whether to use the winner, that it ties with another, or to keep exact attention."""
    tvs = sorted(row["attention_tv"] for row in rows if row["runnable"])
    if not tvs or about.budget >= about.exact_price(x) or tvs[0] > about.accept * uniform:
        return KEEP
    return TIED if len(tvs) > 1 and tvs[1] < TIE * tvs[0] else USE


def winner(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the runnable row with the lowest attention_tv, then price; None if no row is runnable.

    Examples
    --------
    >>> row = {"runnable": True, "attention_tv": 0.5, "values_per_row": 32.0}
    >>> winner([row, row | {"values_per_row": 2.0}])["values_per_row"]
    2.0
    """
    runnable = [row for row in rows if row["runnable"]]
    return min(runnable, key=_rank, default=None)


def _rank(row: dict[str, Any]) -> tuple[float, float]:
    """Return what the winner has least of."""
    return row["attention_tv"], row["values_per_row"]


def _uniform(rows: Sequence[dict[str, Any]]) -> float:
    """Return the error of uniform attention, NaN if it was not measured."""
    return next((row["attention_tv"] for row in rows if row["spec"] == TRIVIAL), math.nan)


def _facts(x: Inputs, budget: float) -> dict[str, float]:
    """Return the facts that make a head easy or hard, whatever the method."""
    entries = int(min(budget * x.n, x.mask.entries))  # a budget may exceed all entries
    rank = int(min(budget * x.n / (x.n + x.l), x.n, x.l))
    sparse, low_rank, ranks = [], [], dict[str, float]()
    for step in LADDER if x.n * x.l <= MOST_ENTRIES else ():
        weights = softmax(x.at_temperature(step * x.temperature).logits())
        s = scipy.linalg.svdvals(weights, check_finite=False)
        if step == 1:
            ranks = measures(s, weights.shape)
        squares = np.square(weights).ravel()
        rest = max(squares.size - entries, 0)
        sparse.append(math.sqrt(np.partition(squares, max(rest - 1, 0))[:rest].sum()))
        low_rank.append(float(np.linalg.norm(s[rank:])))
    at = math.nan
    if sparse:
        at = crossing(x.temperature * np.array(LADDER), sparse, low_rank)
    return describe(x) | {
        "query_norm": float(np.median(np.linalg.norm(x.Q, axis=1))),
        "key_norm": float(np.median(np.linalg.norm(x.K, axis=1))),
        "epsilon_rank": ranks.get("epsilon_rank", math.nan),
        "stable_rank": ranks.get("stable_rank", math.nan),
        "effective_rank": ranks.get("effective_rank", math.nan),
        "crossing": at,
    }


def _row(head: _Sampled, method: Method, about: _Settings) -> dict[str, Any]:
    """Return the errors and the price of one method on one head, and what theory says of them."""
    x = head.whole
    measured, estimate = _measured(head, method, about)
    in_kernel = estimate.space == "kernel" and x.n * x.l <= MOST_ENTRIES
    expected = expected_error(method, x.Q, x.K, mask=x.mask) if in_kernel else None
    known = math.nan if expected is None else expected
    return measured | {
        "expected": known,
        "features_needed": _needed(method, known),
        "pays_from": _pays_from(estimate, x),
        "autoregressive": method.autoregressive,
        "oracle": method.oracle,
        "runnable": candidates.runs(method, x.mask),
    }


def _measured(
    head: _Sampled, method: Method, about: _Settings
) -> tuple[dict[str, Any], Approximation]:
    """Return the errors and the price of one method on one head, and one of its estimates."""
    x = head.whole
    alone = len(head.picked) < x.n and method.row_local  # the other queries are not needed
    at = head.part if alone else x
    rng = np.random.default_rng(seed_sequence(about.seed, x.digest(), str(method)))
    errors: list[dict[str, float]] = []
    held: list[Approximation] = []
    for child in rng.spawn(about.trials if method.uses_rng else 1):
        held.append(at.approximate(method, rng=child))
        held[-1].low.prepare()  # what a comparison would build, so that it is counted
        if sum(estimate.nbytes for estimate in held) > memory.limit() // SHARE:
            errors += _compared(at, held, head)
            held, estimate = [], held[-1]
    errors += _compared(at, held, head)
    estimate = held[-1] if held else estimate
    table = pd.DataFrame(errors)
    middle, tv = table.median(), table.attention_tv
    row = {
        "spec": str(method),
        "class": candidates.class_of(method),
        "budget": about.budget,
        "currency": about.currency,
        "values_per_row": _stored(estimate, x),
        "reads": _reads(method, x),
        "attention_tv": float(middle.attention_tv),
        "tv_least": float(tv.min()),
        "tv_most": float(tv.max()),
        "tv_stderr": float(middle.get("attention_tv_stderr", 0.0)),
        "negative_fraction": float(middle.negative_fraction),
        "kernel_error": float(middle.get("kernel_relative_frobenius", math.nan)),
        "output_error": float(middle.get("output_relative_error", math.nan)),
        "nonpositive_rows": float(middle.nonpositive_rows),
    }
    return row, estimate


def _compared(
    x: Inputs, estimates: Sequence[Approximation], head: _Sampled
) -> list[dict[str, float]]:
    """Return the errors of estimates of one method, on the queries that are measured."""
    if not estimates:
        return []
    if x is head.part:
        population, rows = head.whole.n, None
    else:
        population, rows = None, head.picked
    return metrics.compare_all(
        estimates, x.Q, x.K, x.V, mask=x.mask, rows=rows, population=population
    )


def _stored(estimate: Approximation, x: Inputs) -> float:
    """Return the stored values per query of x, of which an estimate may have some rows only."""
    rows = estimate.shape[0]
    factors = estimate.low.parameters * (x.n + x.l) / (x.n * (rows + x.l))
    return factors + estimate.nnz / rows


def _reads(method: Method, x: Inputs) -> float:
    """Return the numbers that are read to answer one new query, NaN where that is not known."""
    price = method.price(**x.shape.given)
    return math.nan if price is None or price.reads is None else float(price.reads)


def _positive(methods: Sequence[Method]) -> bool:
    return any(isinstance(method, Positive) for method in methods)


def _needed(method: Method, expected: float) -> float:
    """Return m·(expected/target)²: an unbiased error falls as m^{−1/2} with iid frequencies."""
    if isinstance(method, RandomFeatures) and method.projection == "iid":
        ratio = expected / TARGET
        return float(method.m or 0) * (ratio * ratio)  # a power beyond the largest float is no inf
    return math.nan


def _pays_from(estimate: Approximation, x: Inputs) -> float:
    """Return the least n with fewer multiply-adds, at this rank and these entries per row.

    Exact attention skips what a causal query does not see.
    """
    d, entries = x.d, math.ceil(estimate.nnz / estimate.shape[0])
    window = int(x.mask.counts.max()) if x.mask.first.any() else None

    def cost(n: int) -> int:
        return operations.scatterbrain(n, d, estimate.rank, entries).total

    def whole(n: int) -> int:
        if x.mask.looks_back:
            return operations.causal_attention(n, d, window).total
        return operations.exact_attention(n, d).total

    length = operations.break_even(cost, whole)
    return math.inf if length is None else float(length)


def _collapsing_eps(x: Inputs, entropy: float) -> float | None:
    """Return the least eps of public code that makes peaked attention uniform, or None."""
    if not x.mask.is_full or 1 - entropy < PEAKED:
        return None
    for eps in EPS:
        if concentration(with_eps(Positive(m=WIDTH), x.Q, x.K, eps=eps, rng=0)) < COLLAPSED:
            return eps
    return None


def _warnings(
    x: Inputs, method: Method, row: dict[str, Any], uniform: float, eps: float | None
) -> Iterator[Sentence]:
    """Yield, in plain words, why a number is not to be trusted or a method not to be used."""
    loses = row["attention_tv"] >= uniform and row["spec"] != TRIVIAL
    if not row["runnable"]:
        yield (
            Sentence("needs every logit: the best found of its class, not a method to run")
            if method.oracle
            else Sentence("reads the future: a causal model cannot run it token by token")
        )
    if (features := row["features_needed"]) > x.l:
        variance = power(features * TARGET**2)
        yield (
            Sentence(
                "relative variance {variance}: random features of any size you can afford lose to "
                "uniform attention here",
                variance=variance,
            )
            if loses
            else Sentence(
                "relative variance {variance}: 10 % error needs {features} features",
                variance=variance,
                features=power(features),
            )
        )
    elif loses:
        yield Sentence("no better than uniform attention, the mean of V")
    if (rows := row["nonpositive_rows"]) >= 1:
        yield Sentence(
            "{rows:.0f} of {n} rows have no positive sum: their output is 0", rows=rows, n=x.n
        )
    if row["attention_tv"] > 1 and row["negative_fraction"] > 0:
        yield Sentence("its rows are not distributions: entries are negative, and tv exceeds 1")
    if row["tv_most"] > SPREAD * row["tv_least"] > 0:
        yield Sentence(
            "draws differ: total variation {least:.2g} to {most:.2g}",
            least=row["tv_least"],
            most=row["tv_most"],
        )
    if x.n < row["pays_from"] and row["runnable"]:
        yield (
            Sentence("exact attention needs fewer operations up to n = {n:.0f}", n=last)
            if (last := row["pays_from"] - 1) < math.inf
            else Sentence("exact attention needs fewer operations always")
        )
    if eps is not None and isinstance(method, Positive):
        yield Sentence(
            "eps = {eps:g} after the shift would turn this head into the mean of V", eps=eps
        )


def power(value: float) -> str:
    """Return a number as a power of ten where it is large.

    Examples
    --------
    >>> power(741.0), power(5.2e14), power(math.inf)
    ('741', '10^14.7', '>10^308')
    """
    if value == math.inf:
        return ">10^308"
    return f"{value:.3g}" if value < 1e4 else f"10^{math.log10(value):.1f}"


def gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each head and class what is best of it: the oracle, and what can be run.

    Parameters
    ----------
    table : DataFrame
        That of `diagnose`.

    Returns
    -------
    DataFrame
        One row per (input, layer, head, class): ``oracle`` and ``best``, specs with the lowest
        ``attention_tv`` of the oracles and of what a model with this mask can run, "" where there
        is none; ``oracle_tv``, ``best_tv``, NaN where there is none; and ``gap``, their difference,
        which is what a better way to choose could still gain within the class.

    Notes
    -----
    An oracle of a class is the best in tv where it takes the entries of most attention (the classes
    entries and pages); of the others it is the best found.
    """
    rows = []
    for place, part in table.groupby(["input", "layer", "head", "class"], sort=False):
        oracle, best = (_nearest(part[part[which]]) for which in ("oracle", "runnable"))
        rows.append((*place, *oracle, *best, best[1] - oracle[1]))
    names = "input", "layer", "head", "class", "oracle", "oracle_tv", "best", "best_tv", "gap"
    return pd.DataFrame(rows, columns=list(names))


def _nearest(part: pd.DataFrame) -> tuple[str, float]:
    if not len(part):
        return "", math.nan
    place = int(part.attention_tv.argmin())
    return str(part.spec.iloc[place]), float(part.attention_tv.iloc[place])


class Advice(NamedTuple):
    """One head: what to use, and by how much.

    ``reads`` is the share that it reads of what exact attention reads for a new query.
    """

    layer: int
    head: int
    verdict: str
    winner: str
    attention_tv: float
    reads: float
    uniform_tv: float
    runner_up: str
    margin: float
    oracle: str
    oracle_tv: float
    sentence: str


def advice(table: pd.DataFrame) -> list[Advice]:
    """Return one piece of advice per head, from the table of `diagnose`."""
    return [_advice(part) for _, part in table.groupby(["input", "layer", "head"], sort=False)]


def _advice(part: pd.DataFrame) -> Advice:
    rows = part.sort_values(["attention_tv", "values_per_row"], kind="stable")
    uniform = rows[rows.spec == TRIVIAL].attention_tv
    trivial = float(uniform.iloc[0]) if len(uniform) else math.nan
    best, others = rows[rows.winner], rows[rows.runnable & ~rows.winner]
    bounds = rows[rows.oracle]
    verdict = str(part.verdict.iloc[0])
    affordable = bool(part.budget.iloc[0] >= part.exact_price.iloc[0])
    spec = str(best.spec.iloc[0]) if len(best) else ""
    tv = float(best.attention_tv.iloc[0]) if len(best) else math.nan
    reads = float(best.reads.iloc[0] / best.exact_reads.iloc[0]) if len(best) else math.nan
    second = str(others.spec.iloc[0]) if len(others) else ""
    margin = float(others.attention_tv.iloc[0]) / tv if len(others) and tv > 0 else math.nan
    oracle = str(bounds.spec.iloc[0]) if len(bounds) else ""
    limit = float(bounds.attention_tv.iloc[0]) if len(bounds) else math.nan
    return Advice(
        int(part.layer.iloc[0]), int(part["head"].iloc[0]), verdict, spec, tv,
        reads, trivial, second,
        margin, oracle, limit,
        _sentence(verdict, spec, tv, reads, trivial, second, margin, affordable),
    )  # fmt: skip


def _sentence(
    verdict: str,
    spec: str,
    tv: float,
    reads: float,
    uniform: float,
    second: str,
    margin: float,
    affordable: bool,
) -> str:
    if not spec:
        return "keep exact attention: none of these methods can be run"
    if verdict == KEEP:
        if affordable:
            return "keep exact attention: the budget buys every entry that is seen"
        if spec == TRIVIAL:
            return "keep exact attention: nothing at this budget beats uniform"
        text = "keep exact attention"
        if uniform > 0:
            text += f": the best, {spec}, has {tv / uniform:.2f} of uniform's total variation"
        return text
    text = f"{spec}: total variation {tv:.3f}"
    if math.isfinite(reads):
        text += f" at {reads:.1%} of the reads of exact attention"
    if uniform > 0 and tv > 0:
        text += f", {uniform / tv:.2f}× below uniform"
    if verdict == TIED:
        return text + f", a tie with {second}"
    return text + (f", {margin:.2f}× below {second}" if second else "")
