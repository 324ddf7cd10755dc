"""Advice for the heads of a model: which approximation at this budget, and whether it will hold.

Every method is run: the winner of a head is the one with the lowest measured error at the budget,
among those that a user could run. Oracles, which need every logit, stand apart, as a bound on what
their class can reach.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import scipy.linalg

from analysis import budget, operations
from analysis.describe import describe
from analysis.inputs import Inputs
from analysis.moments import expected_error
from analysis.parallel import parallel
from analysis.pitfalls import concentration, with_eps
from analysis.rank import measures
from analysis.regimes import crossing
from analysis.seeds import seed_sequence
from approx import Approximation, Method, checks, parse
from approx.random_features.features import RandomFeatures
from approx.random_features.positive import Positive
from approx.textbook.attention import softmax
from approx.threads import one_thread

RUNNABLE = (
    "uniform()",
    "positive()",
    "positive(projection='orthogonal')",
    "generalized_exponential(projection='orthogonal')",
    "shifted_positive()",
    "nystrom()",
    "linformer()",
    "nystromformer()",
    "eva()",
    "sliding_window()",
    "smyrf()",
    "reformer()",
    "scatterbrain(low_rank=positive(projection='orthogonal'), sparse=sliding_window())",
    "scatterbrain(low_rank=shifted_positive(), sparse=smyrf())",
)
ORACLES = ("truncated_svd(space='attention')", "top_k()", "godec(space='attention')")
TRIVIAL = "uniform()"
TRIALS = 5
MOST_TRIALS = 1024  # more draws would not improve medians and ranges, and would take hours
TARGET = 0.1  # the relative Frobenius error of the kernel for which features are counted
LADDER = tuple(2.0**e for e in (-2, -1, 0, 1, 2, 3))  # factors of t at which regimes may cross
EPS = (1e-6, 1e-4)  # public code adds one of these to features
WIDTH = 256  # the number of such features
COLLAPSED, PEAKED = 0.05, 0.2  # 1 − normalised entropy, with eps and of exact attention
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
    methods: Sequence[Method] | None = None,
    temperature: float = 1.0,
    trials: int = TRIALS,
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
        Stored values per query row.
    methods : sequence of Method, optional
        Templates are filled to the budget; those of which nothing fits are absent. The default is
        what a user could run (`RUNNABLE`) and the oracles of each class (`ORACLES`).
    temperature : float
        t.
    trials : int
        Draws of a random method, at most 1024.
    seed, jobs, progress
        See `analysis.sweep.sweep`.

    Returns
    -------
    DataFrame
        One row per (layer, head, method): ``spec``, ``budget``, ``values_per_row`` paid;
        ``attention_tv``, the median over trials, and its range ``tv_least``, ``tv_most``;
        ``kernel_error`` (relative Frobenius) and ``output_error``, medians, NaN where there is
        none; ``expected``, the kernel error in closed form, NaN where none is known;
        ``features_needed``, how many iid frequencies give a kernel error of 10 %; ``pays_from``,
        the length from which on the method needs fewer operations than exact attention, without
        those that find a support; ``runnable``; ``winner``, the runnable method with the lowest
        ``attention_tv``, or the cheaper of equal ones; ``warnings``, a list of `Sentence`. Every
        row also has facts of its head: ``logit_min``, ``logit_max``, ``logit_std``, ``query_norm``
        and ``key_norm`` (medians of the scaled rows), ``row_entropy``, ``median_squared_sum``,
        ``epsilon_rank``, ``stable_rank`` and ``effective_rank`` of softmax attention, and
        ``crossing``, the temperature at which the largest entries and the truncated SVD do equally
        well at the budget (NaN if there is none from t/4 to 8t).

    Raises
    ------
    ValueError
        A budget or a temperature is ≤ 0, or no method fits.

    Notes
    -----
    Cost: for each head, trials times each method and its errors, and a few singular value
    decompositions of an (n, l) matrix.
    """
    checks.positive("budget", budget)
    at = checks.positive("temperature", temperature)
    checks.integer("trials", trials, least=1, most=MOST_TRIALS)
    checks.integer("seed", seed, least=0)
    checks.integer("jobs", jobs, least=1)
    files = [inputs] if isinstance(inputs, Inputs) else inputs
    checks.instance("inputs", files, Sequence, "an Inputs or a sequence of them")
    for file in files:
        checks.instance("every input", file, Inputs, "an Inputs")
    if methods is not None:
        checks.instance("methods", methods, Sequence, "a sequence of methods")
    chosen = [parse(s) for s in (*RUNNABLE, *ORACLES)] if methods is None else list(methods)
    heads = [x for file in files for x in file.heads()]
    if not heads:
        raise ValueError("inputs must not be empty")
    head = functools.partial(
        _head, t=at, methods=chosen, size=float(budget), trials=trials, seed=seed
    )
    per_head = parallel(head, heads, jobs=jobs, progress=progress, label="heads")
    return pd.DataFrame([row for rows in per_head for row in rows])


def _head(
    inputs: Inputs, t: float, methods: list[Method], size: float, trials: int, seed: int
) -> list[dict[str, Any]]:
    x = inputs.at_temperature(t)  # its Q and K last for this head only
    with one_thread():
        fitting = budget.match(methods, size, x).fitting
        if not fitting:
            raise ValueError(
                f"no method fits {size:g} values per row of {x.name}: raise the budget"
            )
        facts = _facts(x, size)
        rows = [_row(x, method, size, trials, seed) for method in fitting]
        eps = _collapsing_eps(x, facts["row_entropy"]) if _positive(fitting) else None
    best = winner(rows)
    uniform = next((row["attention_tv"] for row in rows if row["spec"] == TRIVIAL), math.nan)
    head = {
        "input": x.name, "layer": x.layer, "head": x.head, "n": x.n, "l": x.l, "d": x.d,
        "temperature": x.temperature,
    }  # fmt: skip
    for method, row in zip(fitting, rows):
        row["winner"] = row is best
        row["warnings"] = list(_warnings(x, method, row, uniform, eps))
    return [head | row | facts for row in rows]


def winner(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the runnable row with the lowest attention_tv, then price; None if no row is runnable.

    Examples
    --------
    >>> row = {"runnable": True, "attention_tv": 0.5, "values_per_row": 32.0}
    >>> winner([row, row | {"values_per_row": 2.0}])["values_per_row"]
    2.0
    """
    runnable = [row for row in rows if row["runnable"]]
    return min(runnable, key=lambda row: (row["attention_tv"], row["values_per_row"]), default=None)


def _facts(x: Inputs, budget: float) -> dict[str, float]:
    """Return the facts that make a head easy or hard, whatever the method."""
    entries = int(min(budget * x.n, x.n * x.l))  # a budget may exceed all entries
    rank = int(min(budget * x.n / (x.n + x.l), x.l))
    sparse, low_rank, ranks = [], [], dict[str, float]()
    for step in LADDER:
        weights = softmax(x.at_temperature(step * x.temperature).logits())
        s = scipy.linalg.svdvals(weights, check_finite=False)
        if step == 1:
            ranks = measures(s, weights.shape)
        squares = np.square(weights).ravel()
        rest = max(squares.size - entries, 0)
        sparse.append(math.sqrt(np.partition(squares, max(rest - 1, 0))[:rest].sum()))
        low_rank.append(float(np.linalg.norm(s[rank:])))
    return describe(x) | {
        "query_norm": float(np.median(np.linalg.norm(x.Q, axis=1))),
        "key_norm": float(np.median(np.linalg.norm(x.K, axis=1))),
        "epsilon_rank": ranks["epsilon_rank"],
        "stable_rank": ranks["stable_rank"],
        "effective_rank": ranks["effective_rank"],
        "crossing": crossing(x.temperature * np.array(LADDER), sparse, low_rank),
    }


def _row(x: Inputs, method: Method, size: float, trials: int, seed: int) -> dict[str, Any]:
    """Return the errors and the price of one method on one head."""
    rng = np.random.default_rng(seed_sequence(seed, x.digest(), str(method)))
    errors = []
    for child in rng.spawn(trials if method.uses_rng else 1):
        estimate = x.approximate(method, rng=child)
        errors.append(x.compare(estimate))
    table = pd.DataFrame(errors)
    middle, tv = table.median(), table.attention_tv
    in_kernel = estimate.space == "kernel" and x.mask.is_full  # the closed form counts all entries
    expected = expected_error(method, x.Q, x.K) if in_kernel else None
    known = math.nan if expected is None else expected
    return {
        "spec": str(method),
        "budget": size,
        "values_per_row": budget.values_per_row(estimate),
        "attention_tv": float(middle.attention_tv),
        "tv_least": float(tv.min()),
        "tv_most": float(tv.max()),
        "kernel_error": float(middle.get("kernel_relative_frobenius", math.nan)),
        "output_error": float(middle.get("output_relative_error", math.nan)),
        "nonpositive_rows": float(middle.nonpositive_rows),
        "expected": known,
        "features_needed": _needed(method, known),
        "pays_from": _pays_from(estimate, x.d),
        "runnable": not method.oracle,
    }


def _positive(methods: Sequence[Method]) -> bool:
    return any(isinstance(method, Positive) for method in methods)


def _needed(method: Method, expected: float) -> float:
    """Return m·(expected/target)²: an unbiased error falls as m^{−1/2} with iid frequencies."""
    if isinstance(method, RandomFeatures) and method.projection == "iid":
        return float(method.m or 0) * (expected / TARGET) ** 2
    return math.nan


def _pays_from(estimate: Approximation, d: int) -> float:
    """Return the least n with fewer multiply-adds, at this rank and these entries per row."""
    entries = math.ceil(estimate.nnz / estimate.shape[0])

    def cost(n: int) -> int:
        return operations.scatterbrain(n, d, estimate.rank, entries).total

    length = operations.break_even(cost, lambda n: operations.exact_attention(n, d).total)
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
        yield Sentence(
            "needs every logit: a bound on what its class can reach, not a method to run"
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
    >>> power(741.0), power(5.2e14)
    ('741', '10^14.7')
    """
    return f"{value:.3g}" if value < 1e4 else f"10^{math.log10(value):.1f}"


class Advice(NamedTuple):
    """One head: what to use, and by how much."""

    layer: int
    head: int
    winner: str
    attention_tv: float
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
    bounds = rows[~rows.runnable]
    spec = str(best.spec.iloc[0]) if len(best) else ""
    tv = float(best.attention_tv.iloc[0]) if len(best) else math.nan
    second = str(others.spec.iloc[0]) if len(others) else ""
    margin = float(others.attention_tv.iloc[0]) / tv if len(others) and tv > 0 else math.nan
    oracle = str(bounds.spec.iloc[0]) if len(bounds) else ""
    limit = float(bounds.attention_tv.iloc[0]) if len(bounds) else math.nan
    return Advice(
        int(part.layer.iloc[0]), int(part["head"].iloc[0]), spec, tv, trivial, second, margin,
        oracle, limit, _sentence(spec, tv, trivial, second, margin),
    )  # fmt: skip


def _sentence(spec: str, tv: float, uniform: float, second: str, margin: float) -> str:
    if not spec:
        return "none of these methods can be run"
    if spec == TRIVIAL:
        return "nothing at this budget beats uniform"
    text = f"{spec}: total variation {tv:.3f}"
    if uniform > 0 and tv > 0:
        text += f", {uniform / tv:.2f}× below uniform"
    return text + (f", {margin:.2f}× below {second}" if second else "")
