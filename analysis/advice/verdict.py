"""Verdicts from measurements: the method to use on a head, and the possible gain of another."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from analysis.advice.caveats import price_ratios, price_warnings
from analysis.costs.budget import MEMORY
from analysis.costs.candidates import TRIVIAL
from analysis.sentences import thousandths
from approx.method import TV

VERDICTS = USE, TIED, KEEP = "use", "tie", "keep exact"
TIE = 1.05  # below this ratio of the runner-up's error to the winner's, the two tie
OUTPUT = "output_relative_error"
NAMES = {TV: "total variation", OUTPUT: "output error"}


def metric_of(table: pd.DataFrame) -> str:
    """Return the metric that ranks a table of `diagnose`; tv if the table has no such column."""
    return str(table.metric.iloc[0]) if "metric" in table else TV


def verdict(
    rows: Sequence[dict[str, Any]],
    *,
    affordable: bool,
    accept: float,
    uniform: float,
    exact: Mapping[str, float],
    metric: str = TV,
) -> str:
    """Return "use", "tie" or "keep exact" for a head.

    Parameters
    ----------
    rows : sequence of dict
        The measurements on the head, a row per method.
    affordable : bool
        Whether the budget buys every visible entry.
    accept : float
        The largest share of uniform attention's error at which a method is advised.
    uniform : float
        Uniform attention's error.
    exact : mapping
        ``exact_reads``, ``exact_multiply_adds`` and ``exact_bytes``.
    metric : {"attention_tv", "output_relative_error"}
    """
    best = winner(rows, metric)
    if (
        best is None
        or affordable
        or best[metric] > accept * uniform
        or not is_cheaper({**best, **exact})
    ):
        return KEEP
    errors = sorted(row[metric] for row in _could_win(rows))
    return TIED if len(errors) > 1 and errors[1] < TIE * errors[0] else USE


def is_cheaper(row: Mapping[Any, Any]) -> bool:
    """Return whether a method costs less than exact attention in any currency except stored values.

    It returns True if no other currency is known.

    Examples
    --------
    >>> exact = {"exact_reads": 64.0, "exact_multiply_adds": 64.0}
    >>> is_cheaper({"reads": 64.0, "multiply_adds": 90.0} | exact)
    False
    >>> is_cheaper({"reads": 60.0} | exact)
    True
    """
    known = price_ratios(row).values()
    return not known or min(known) < 1


def winner(rows: Sequence[dict[str, Any]], metric: str = TV) -> dict[str, Any] | None:
    """Return the runnable row with the least error, then the fewest stored values, or None.

    A ``screened`` row cannot win, nor one that is not ``affordable``.

    Examples
    --------
    >>> row = {"runnable": True, "attention_tv": 0.5, "stored": 32.0}
    >>> winner([row, row | {"stored": 2.0}])["stored"]
    2.0
    """
    return min(_could_win(rows), key=lambda row: rank(row, metric), default=None)


def _could_win(rows: Sequence[dict[Any, Any]]) -> list[dict[Any, Any]]:
    return [
        row
        for row in rows
        if row["runnable"] and not row.get("screened") and row.get("affordable", True)
    ]


def choices(table: pd.DataFrame) -> pd.DataFrame:
    """Return the methods that can be run on all heads, with their prices and errors there.

    Returns
    -------
    DataFrame
        One row per method as it was given: ``spec`` on the first head, the means over heads of
        ``bytes_read``, ``bytes``, ``bytes_4096``, …, the median of the metric, and ``about``:
        whether the errors on some heads are of a few queries only. A method without a price in
        bytes is left out.
    """
    metric, heads = metric_of(table), len(table.drop_duplicates(["input", "layer", "head"]))
    runs = table[table.runnable].groupby("method", sort=False)
    found = runs[["bytes_read", "bytes", *MEMORY]].mean().join(runs[metric].median())
    found = found.assign(spec=runs.spec.first(), about=runs.screened.any())
    return found[runs.size() == heads].dropna(subset=["bytes_read"]).reset_index()


def rank(row: dict[str, Any], metric: str = TV) -> tuple[float, float]:
    """Return the sort key of which the winner has the least: error, then stored values."""
    return row[metric], row["stored"]


def gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Return the best reference and the best runnable method of each class on each head.

    Parameters
    ----------
    table : DataFrame
        The result of `analysis.advice.diagnose.diagnose`.

    Returns
    -------
    DataFrame
        One row per (input, layer, head, class):

        - ``oracle``, ``best``: the specs with the lowest ``attention_tv`` among methods that need
          all logits, and among runnable ones; "" if there are none
        - ``oracle_attention_tv``, ``best_attention_tv``: their errors; ``gap``: the difference of
          the two errors
        - ``standing`` of ``oracle`` in this metric (`analysis.costs.candidates.standing`)
        - ``bound``: the least bound of the class; NaN if a method of the class has no bound
        - ``gain``: ``best_attention_tv`` − ``bound``, the largest gain that any other choice in
          this class could bring

        In a table that ranks by another metric, its name replaces ``attention_tv``.
    """
    metric = metric_of(table)
    rows = []
    known = table[table.affordable] if "affordable" in table else table
    for place, part in known.groupby(["input", "layer", "head", "class"], sort=False):
        (oracle, least, says), (best, error, _) = (
            _least(part[part[which]], metric) for which in ("oracle", "runnable")
        )
        bound = float(part.bound.min(skipna=False))
        rows.append((*place, oracle, least, says, best, error, error - least, bound, error - bound))
    names = (
        "input", "layer", "head", "class", "oracle", f"oracle_{metric}", "standing",
        "best", f"best_{metric}", "gap", "bound", "gain",
    )  # fmt: skip
    return pd.DataFrame(rows, columns=list(names))


def _least(part: pd.DataFrame, column: str) -> tuple[str, float, str]:
    if not len(part):
        return "", math.nan, ""
    row = part.iloc[int(part[column].argmin())]
    return str(row.spec), float(row[column]), str(row.standing)


class MethodErrors(NamedTuple):
    """A method, "" if there is none, and both of its errors."""

    spec: str = ""
    attention_tv: float = math.nan
    output_relative_error: float = math.nan

    def error(self, metric: str) -> float:
        """Return the error in one of the two metrics."""
        return float(getattr(self, metric))


class Advice(NamedTuple):
    """The advice for one head: the verdict, the winner, and its errors and margins.

    ``bound`` ≤ ``attention_tv`` ≤ ``certificate``: a lower bound on the tv of every estimate of the
    winner's class with equal storage, the measured tv, and the upper bound that the winner's
    estimates prove. ``reads``, ``multiply_adds`` and ``bytes`` are shares of the cost of exact
    attention. ``metric`` decides the verdict, the winner, the runner-up, the margin and the oracle.
    ``other`` is the runnable method with the least of the other error, if not the winner.
    """

    layer: int
    head: int
    metric: str
    verdict: str
    winner: str
    bound: float
    attention_tv: float
    certificate: float
    output_relative_error: float
    reads: float
    multiply_adds: float
    bytes: float
    runner_up: str
    margin: float
    uniform: MethodErrors
    oracle: MethodErrors
    other: MethodErrors
    sentence: str = ""

    @property
    def error(self) -> float:
        """The winner's error in the metric."""
        return float(getattr(self, self.metric))

    @property
    def guaranteed(self) -> float:
        """The winner's certificate; NaN if it is useless: above half of uniform attention's tv."""
        return self.certificate if self.certificate <= self.uniform.attention_tv / 2 else math.nan


def advice(table: pd.DataFrame) -> list[Advice]:
    """Return the advice for each head, from the table of `diagnose`."""
    known, heads = {OUTPUT: math.nan, "screened": False}, dict[Any, list[_Row]]()
    for row in table.to_dict("records"):
        heads.setdefault((row["input"], row["layer"], row["head"]), []).append(known | row)
    return [_advice(rows) for rows in heads.values()]


_Row = dict[Any, Any]


def _advice(part: list[_Row]) -> Advice:
    about = part[0]
    metric = str(about.get("metric", TV))
    other = OUTPUT if metric == TV else TV
    rows = sorted(part, key=lambda row: (*_last(row[metric]), *_last(row["stored"])))
    others = [row for row in _could_win(rows) if not row["winner"]]
    first = next((row for row in rows if row["winner"]), {})
    uniform = next((row for row in rows if row["spec"] == TRIVIAL), {})
    oracle = next((row for row in rows if row["oracle"]), {})
    second = next(iter(others), {})
    rival = min(others, key=lambda row: _last(row[other]), default={})
    if not rival.get(other, math.nan) < first.get(other, math.nan):
        rival = {}
    won, share = _errors(first), price_ratios(first)
    margin = second[metric] / won.error(metric) if second and won.error(metric) > 0 else math.nan
    one = Advice(
        layer=int(about["layer"]),
        head=int(about["head"]),
        metric=metric,
        verdict=str(about["verdict"]),
        winner=won.spec,
        bound=float(first.get("bound", math.nan)),
        attention_tv=won.attention_tv,
        certificate=float(first.get("certificate", math.nan)),
        output_relative_error=won.output_relative_error,
        reads=share.get("reads", math.nan),
        multiply_adds=share.get("multiply_adds", math.nan),
        bytes=share.get("bytes", math.nan),
        runner_up=str(second.get("spec", "")),
        margin=margin,
        uniform=_errors(uniform),
        oracle=_errors(oracle),
        other=_errors(rival),
    )
    affordable = bool(about["budget"] >= about["exact_price"])
    return one._replace(sentence=_sentence(one, first, affordable))


def _errors(row: _Row) -> MethodErrors:
    errors = {metric: float(row.get(metric, math.nan)) for metric in (TV, OUTPUT)}
    return MethodErrors(str(row.get("spec", "")), **errors)


def _last(x: float) -> tuple[bool, float]:
    """Return a sort key of numbers that puts NaN last."""
    return math.isnan(x), 0.0 if math.isnan(x) else x


def _sentence(one: Advice, best: Mapping[str, Any], affordable: bool) -> str:
    spec, name, uniform = one.winner, NAMES[one.metric], one.uniform.error(one.metric)
    if not spec:
        return "keep exact attention: none of these methods can be run"
    if one.verdict == KEEP:
        if affordable:
            return "keep exact attention: the budget buys every entry that is seen"
        text = "keep exact attention"
        if not is_cheaper(best):
            text += f": the best, {spec}, saves nothing but stored values; it costs as much or more"
            text += " in " + ", ".join(price_ratios(best)).replace("_", "-")
        elif spec == TRIVIAL:
            text += f": nothing at this budget beats uniform in {name}"
        elif uniform > 0:
            text += f": the best, {spec}, has {one.error / uniform:.2f} of uniform's {name}"
        return text + _rival(one)
    text = f"{spec}: " + ("" if math.isnan(one.bound) else f"{thousandths(one.bound)} ≤ ")
    text += f"total variation {thousandths(one.attention_tv)}"
    text += "" if math.isnan(one.guaranteed) else f" ≤ {thousandths(one.guaranteed)}"
    if math.isfinite(one.output_relative_error):
        text += f", output error {thousandths(one.output_relative_error)}"
    if math.isfinite(one.reads):
        text += f" at {one.reads:.1%} of the reads of exact attention"
    if uniform > 0 and one.error > 0:
        text += f", {name} {uniform / one.error:.2f}× below uniform"
    if one.verdict == TIED:
        text += f", a tie with {one.runner_up}"
    elif one.runner_up:
        text += f", {one.margin:.2f}× below {one.runner_up}"
    return "; ".join([text, *price_warnings(best)]) + _rival(one)


def _rival(one: Advice) -> str:
    """Return the words about a method with less of the other error than the winner, or ""."""
    if not one.other.spec:
        return ""
    by, own, less = NAMES[OUTPUT], one.output_relative_error, one.other.output_relative_error
    if one.metric == OUTPUT:
        by, own, less = NAMES[TV], one.attention_tv, one.other.attention_tv
    return f"; by {by} {one.other.spec} is better, {thousandths(less)} < {thousandths(own)}"
