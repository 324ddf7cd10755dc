"""What became of a method of a user's file: its checks, and its row beside others."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.experiments.decomposition import SAMPLES
from analysis.experiments.submission import Check
from analysis.moments.tail_shape import reliable_k
from figures.drawing import style
from figures.show.diagnosis import LEAST_SHOWN
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import mark, tr

HEADS = (
    mark("method"), mark("rank"), mark("stored"), mark("tv"), mark("output"),
    mark("bias²"), mark("variance"),
)  # fmt: skip
NAME = 30  # columns of a method's name
PLACE = ["input", "method"]


def rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row an input and method, the nearest first: medians over draws, and the range."""
    values = table.pivot_table("value", PLACE, "metric", aggfunc="median", sort=False)
    tv = table[table.metric == "attention_tv"].groupby(PLACE, sort=False).value
    wide = values.assign(tv_least=tv.min(), tv_most=tv.max(), draws=tv.size()).reset_index()
    columns = (
        "rank", "values_per_row", "attention_tv", "tv_least", "tv_most", "output_relative_error",
        "log_squared_bias", "log_variance", "closed_form", "pareto_k", "reliable", "draws",
    )  # fmt: skip
    wide = wide.reindex(columns=[*PLACE, *columns])
    order = {name: place for place, name in enumerate(table.input.unique())}
    return wide.sort_values(
        ["input", "attention_tv"],
        key=lambda column: column.map(order) if column.name == "input" else column,
        kind="stable", ignore_index=True,
    )  # fmt: skip


def text(name: str, checked: Sequence[Check], table: pd.DataFrame) -> str:
    """Return the checks, a line an input and method, and what the columns are."""
    checks: list[tuple[str, ...]] = [
        (f"  {tr(c.name.message)}", tr(c.seen.message, **c.seen.values)) for c in checked
    ]
    lines: list[tuple[str, ...]] = [("", *map(tr, HEADS))]
    before = ""
    for row in rows(table).itertuples():
        if row.input != before:
            before = str(row.input)
            lines.append(("", before, *[""] * (len(HEADS) - 1)))
        own = str(row.method).partition("(")[0] == name
        label = str(row.method) if own else style.label(str(row.method))
        lines.append(("→" if own else "", label, *_cells(row)))
    about = tr(
        "Budget: {budget:g} stored values per query row, t = {t:g}. tv: total variation of the "
        "attention weights, median of the draws and their range; output: relative error of P V. "
        "bias², variance: of exp(q·k), over ‖exact‖²_F; ≈: of {draws} draws, else in closed form; "
        "k̂: not reliable, because the draws have a heavy tail (a Pareto k̂ above {limit:g}).",
        budget=table.budget.max(),
        t=table.temperature.iloc[0],
        draws=SAMPLES,
        limit=reliable_k(SAMPLES),
    )
    first = "\n".join([tr("Checks"), aligned(checks)])
    return "\n\n".join([first, aligned(lines, wrapped={1: NAME}), paragraphs([about])])


def _cells(row: Any) -> tuple[str, ...]:
    tv = f"{row.attention_tv:.2f}" if row.attention_tv >= LEAST_SHOWN else f"< {LEAST_SHOWN:g}"
    if row.tv_most - row.tv_least >= LEAST_SHOWN:
        tv = f"{tv} ({row.tv_least:.2f}–{row.tv_most:.2f})"
    sampled = "≈ " if row.closed_form == 0 else ""
    parts = _power(row.log_squared_bias), _power(row.log_variance)
    if row.reliable == 0:
        sampled, parts = "", (f"k̂ {row.pareto_k:.2g}",) * 2
    output = "–" if math.isnan(row.output_relative_error) else f"{row.output_relative_error:.2g}"
    rank, stored = f"{row.rank:.0f}", f"{row.values_per_row:.3g}"
    return rank, stored, tv, output, *(p if p in ("–", "0") else sampled + p for p in parts)


def _power(log: float) -> str:
    """Return e^log with two digits, as a power of ten beyond 10⁴; a dash where there is none."""
    if math.isnan(log):
        return "–"
    tens = log / math.log(10)
    return f"10^{tens:.1f}" if tens >= 4 else f"{math.exp(log):.2g}"


def objects(
    spec: str, checked: Sequence[Check], table: pd.DataFrame, about: dict[str, Any]
) -> dict[str, Any]:
    """Return the same for JSON, with seed and versions."""
    listed = rows(table).replace([np.inf, -np.inf, np.nan], None).to_dict("records")
    checks = [{"check": str(c.name), "holds": c.holds, "seen": str(c.seen)} for c in checked]
    return {"method": spec, **about, "checks": checks, "rows": listed}
