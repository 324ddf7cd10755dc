"""What to use on a head, and how much another choice could gain, from what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from analysis.candidates import TRIVIAL
from approx import checks, notebook

VERDICTS = USE, TIED, KEEP = "use", "tie", "keep exact"
TIE = 1.05  # the least ratio of the runner-up's error to the winner's that is no tie


def thousandths(x: float) -> str:
    """Return a number to three decimals, or to one digit where these would be 0 and it is not.

    Examples
    --------
    >>> thousandths(0.0), thousandths(0.12345), thousandths(0.00002)
    ('0.000', '0.123', '2e-05')
    """
    return f"{x:.0e}" if 0 < abs(x) < 5e-4 else f"{x:.3f}"


def verdict(
    rows: Sequence[dict[str, Any]], *, affordable: bool, accept: float, uniform: float
) -> str:
    """Return whether to use the winner, that it ties with another, or to keep exact attention.

    Parameters
    ----------
    rows : sequence of dict
        What was measured on one head.
    affordable : bool
        The budget buys every entry that is seen.
    accept : float
        The largest share of uniform attention's error at which a method is advised.
    uniform : float
        That error.
    """
    tvs = sorted(row["attention_tv"] for row in rows if row["runnable"])
    if not tvs or affordable or tvs[0] > accept * uniform:
        return KEEP
    return TIED if len(tvs) > 1 and tvs[1] < TIE * tvs[0] else USE


def winner(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the runnable row with the lowest attention_tv, then stored values, or None.

    Examples
    --------
    >>> row = {"runnable": True, "attention_tv": 0.5, "values_per_row": 32.0}
    >>> winner([row, row | {"values_per_row": 2.0}])["values_per_row"]
    2.0
    """
    runnable = [row for row in rows if row["runnable"]]
    return min(runnable, key=rank, default=None)


def rank(row: dict[str, Any]) -> tuple[float, float]:
    """Return what the winner has least of."""
    return row["attention_tv"], row["values_per_row"]


def gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Return for each head and class what is nearest with all logits, and of what can be run.

    Parameters
    ----------
    table : DataFrame
        That of `analysis.diagnose.diagnose`.

    Returns
    -------
    DataFrame
        One row per (input, layer, head, class): ``oracle`` and ``best``, specs with the lowest
        ``attention_tv`` of what needs all logits and of what a model with this mask can run, ""
        where there is none; ``oracle_tv``, ``best_tv``, NaN where there is none; ``standing`` of
        the first in this metric (`analysis.standing.standing`); ``gap``, their difference;
        ``bound``, the least of the class, and ``gain``, the difference of ``best_tv`` and that:
        more than this no better way to choose can gain within the class, NaN where no bound is
        known of one of its methods.

    """
    rows = []
    for place, part in table.groupby(["input", "layer", "head", "class"], sort=False):
        (oracle, least, says), (best, tv, _) = (
            _nearest(part[part[which]]) for which in ("oracle", "runnable")
        )
        bound = float(part.bound.min(skipna=False))
        rows.append((*place, oracle, least, says, best, tv, tv - least, bound, tv - bound))
    names = (
        "input", "layer", "head", "class",
        "oracle", "oracle_tv", "standing", "best", "best_tv", "gap", "bound", "gain",
    )  # fmt: skip
    return pd.DataFrame(rows, columns=list(names))


def _nearest(part: pd.DataFrame) -> tuple[str, float, str]:
    if not len(part):
        return "", math.nan, ""
    row = part.iloc[int(part.attention_tv.argmin())]
    return str(row.spec), float(row.attention_tv), str(row.standing)


class Advice(NamedTuple):
    """One head: what to use, and by how much.

    ``bound`` ≤ ``attention_tv`` ≤ ``certificate``: what none of the winner's class is below that
    stores as much, what was measured, and what its estimates prove of themselves. ``reads`` is the
    share that it reads of what exact attention reads for a new query.
    """

    layer: int
    head: int
    verdict: str
    winner: str
    bound: float
    attention_tv: float
    certificate: float
    reads: float
    uniform_tv: float
    runner_up: str
    margin: float
    oracle: str
    oracle_tv: float
    sentence: str


class Advised(list[Advice]):
    """Advice for heads, one each, which shows itself as a table in a notebook."""

    def __repr__(self) -> str:
        said = ", ".join(
            f"{verdict} {sum(one.verdict == verdict for one in self)}" for verdict in VERDICTS
        )
        return f"<Advice for {checks.counted(len(self), 'head')}: {said}>"

    def _repr_html_(self) -> str:
        names = [
            "head",
            "verdict",
            "winner",
            "bound",
            "tv",
            "proven",
            "reads",
            "uniform",
            "all logits",
        ]
        rows = [
            (
                f"{one.layer}.{one.head}", one.verdict, one.winner, one.bound, one.attention_tv,
                one.certificate, one.reads, one.uniform_tv, one.oracle_tv,
            )
            for one in self
        ]  # fmt: skip
        return notebook.table("bound ≤ tv ≤ proven; reads as a share of exact", names, rows)


def advice(table: pd.DataFrame) -> Advised:
    """Return one piece of advice per head, from the table of `diagnose`."""
    groups = table.groupby(["input", "layer", "head"], sort=False)
    return Advised(_advice(part) for _, part in groups)


def _advice(part: pd.DataFrame) -> Advice:
    rows = part.sort_values(["attention_tv", "values_per_row"], kind="stable")
    uniform = rows[rows.spec == TRIVIAL].attention_tv
    trivial = float(uniform.iloc[0]) if len(uniform) else math.nan
    best, others = rows[rows.winner], rows[rows.runnable & ~rows.winner]
    bounds = rows[rows.oracle]
    verdict = str(part.verdict.iloc[0])
    affordable = bool(part.budget.iloc[0] >= part.exact_price.iloc[0])
    spec = str(best.spec.iloc[0]) if len(best) else ""
    bound, tv, proven = (
        float(best[name].iloc[0]) if len(best) else math.nan
        for name in ("bound", "attention_tv", "certificate")
    )
    reads = float(best.reads.iloc[0] / best.exact_reads.iloc[0]) if len(best) else math.nan
    second = str(others.spec.iloc[0]) if len(others) else ""
    margin = float(others.attention_tv.iloc[0]) / tv if len(others) and tv > 0 else math.nan
    oracle = str(bounds.spec.iloc[0]) if len(bounds) else ""
    limit = float(bounds.attention_tv.iloc[0]) if len(bounds) else math.nan
    return Advice(
        int(part.layer.iloc[0]), int(part["head"].iloc[0]), verdict, spec, bound, tv, proven,
        reads, trivial, second,
        margin, oracle, limit,
        _sentence(verdict, spec, bound, tv, proven, reads, trivial, second, margin, affordable),
    )  # fmt: skip


def _sentence(
    verdict: str,
    spec: str,
    bound: float,
    tv: float,
    proven: float,
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
    text = f"{spec}: " + ("" if math.isnan(bound) else f"{thousandths(bound)} ≤ ")
    text += f"total variation {thousandths(tv)}"
    text += "" if math.isnan(proven) else f" ≤ {thousandths(proven)}"
    if math.isfinite(reads):
        text += f" at {reads:.1%} of the reads of exact attention"
    if uniform > 0 and tv > 0:
        text += f", {uniform / tv:.2f}× below uniform"
    if verdict == TIED:
        return text + f", a tie with {second}"
    return text + (f", {margin:.2f}× below {second}" if second else "")
