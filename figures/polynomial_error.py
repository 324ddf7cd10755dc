"""Attention error of every polynomial at equal width across temperatures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import inputs as data
from analysis.inputs import Inputs
from analysis.metrics import compare
from approx import exact, parse
from figures import style
from figures.profile import Profile, Row

TITLE = "Polynomials at equal width"
COLUMNS = (
    "input",
    "n",
    "l",
    "d",
    "temperature",
    "bound",
    "degree",
    "polynomial",
    "metric",
    "value",
)
D, COUNT = 8, 512
TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0)
DEGREES = tuple(range(1, 9))
METRICS = ("attention_tv", "negative_fraction", "nonpositive_rows")
TAYLOR, NARROW = "Taylor", "relative minimax on ±3σ"
SPECS = {  # {n} degree, {s} three standard deviations
    TAYLOR: "taylor({n})",
    "(1 + x/n)ⁿ": "tensor_power({n})",
    "Richardson of two powers": "richardson({half})",
    "Chebyshev truncation on ±max": "chebyshev({n})",
    "absolute minimax on ±max": "minimax({n}, weight='absolute')",
    "relative minimax on ±max": "minimax({n})",
    NARROW: "minimax({n}, bound={s!r})",
    "least squares, relative": "least_squares({n})",
    "least squares, absolute": "least_squares({n}, weight='absolute')",
}
LOOKS = {
    name: {"color": style.PALETTE[i], "linestyle": line, "marker": marker}
    for name, i, line, marker in zip(
        SPECS, (1, 3, 3, 0, 2, 2, 4, 6, 6), ("-", "-", "--", "-", "--", "-", "-", "-", "--"),
        "phHosDXv^",
    )
}  # fmt: skip
SHOWN = (0.5, 1.0, 2.0)


class _Task(NamedTuple):
    inputs: Inputs
    temperature: float


def _study(task: _Task) -> list[Row]:
    x = task.inputs.at_temperature(task.temperature)
    rows: list[Row] = []
    logits = np.asarray(exact.logits(x.Q, x.K), np.float64)
    bound, spread = float(np.abs(logits).max()), float(3 * logits.std())
    for name, spec in SPECS.items():
        for n in DEGREES:
            if name.startswith("Richardson") and n % 2:
                continue
            method = parse(spec.format(n=n, half=n // 2, s=spread))
            found = compare(method.approximate(x.Q, x.K), x.Q, x.K)
            head = (x.name, x.n, x.l, x.d, task.temperature, bound, n, name)
            rows += [(*head, metric, float(found[metric])) for metric in METRICS]
    return rows


def compute(profile: Profile) -> pd.DataFrame:
    """Return errors and signs of the attention of every polynomial, on Gaussian inputs of d = 8."""
    count = min(COUNT, max(x.n for x in profile.inputs))
    x = data.gaussian(count, D, rng=profile.seed)
    tasks = [_Task(x, t) for t in TEMPERATURES]
    return profile.study(_study, tasks, "errors", COLUMNS)


def draw(table: pd.DataFrame) -> Figure:
    """Draw total variation, and below it negative weights, against degree; a column a t."""
    with style.style():
        figure = Figure(figsize=(7.0, 5.6))
        axes = figure.subplots(2, len(SHOWN), sharex=True, sharey="row", height_ratios=(2, 1))
        for column, t in enumerate(SHOWN):
            for name, look in LOOKS.items():
                part = table[(table.temperature == t) & (table.polynomial == name)]
                for row, metric in enumerate(METRICS[:2]):
                    values = part[part.metric == metric]
                    axes[row, column].plot(values.degree, values.value, label=name, **look)
            bound = table[table.temperature == t].bound.iloc[0]
            axes[0, column].set(yscale="log", title=f"t = {t:g}, max |x| = {bound:.1f}")
            axes[1, column].set(xlabel="degree", xticks=DEGREES[1::2])
        axes[0, 0].set_ylabel("attention total variation")
        axes[1, 0].set_ylabel("negative weights")
        style.legend(figure, list(axes.flat))
    return figure


def caption(table: pd.DataFrame) -> str:
    """Return what the figure shows, with the numbers of its table."""
    tv = table[table.metric == "attention_tv"]
    at = tv.set_index(["temperature", "degree", "polynomial"]).value
    wins: dict[str, int] = {}
    cells = 0
    for _, part in tv.groupby(["temperature", "degree"]):
        values = part.set_index("polynomial").value
        cells += 1
        for name in values.index[values < values[TAYLOR]]:
            wins[name] = wins.get(name, 0) + 1
    better = ", ".join(f"{name} in {count}" for name, count in wins.items()) or "none"
    signs = table[table.metric != "attention_tv"]
    negative = signs[signs.metric == "negative_fraction"].set_index(
        ["temperature", "degree", "polynomial"]
    ).value  # fmt: skip
    lost = signs[(signs.metric == "nonpositive_rows") & (signs.value > 0)]
    worst = lost.groupby("polynomial").value.max().astype(int)
    rows = ", ".join(f"{name} up to {count}" for name, count in worst.items()) or "none"

    def line(t: float, n: int) -> str:
        names = (TAYLOR, "Chebyshev truncation on ±max", "relative minimax on ±max", NARROW)
        values = " / ".join(f"{at[t, n, name]:.2g}" for name in names)
        return f"t = {t:g}, degree {n}: {values}"

    chebyshev = "Chebyshev truncation on ±max"
    return (
        f"Attention total variation at equal degree, so equal width C({table.d.iloc[0]} + n, n); "
        f"Gaussian queries and keys, n = l = {table.n.iloc[0]}. Polynomials that are best in the "
        f"worst case on ±max spend their degrees on tails that hold few logits, and mostly "
        f"lose to Taylor, exact at 0 where the logits are. Taylor / Chebyshev / relative "
        f"minimax on ±max / on ±3σ: {line(1.0, 4)}; {line(1.0, 6)}; {line(2.0, 6)}. "
        f"Below Taylor, of {cells} pairs of temperature and degree: {better}. Negative weights "
        f"are counted, never clamped: Taylor of degree 3 has "
        f"{negative[0.5, 3, TAYLOR]:.1%} at t = 0.5 and {negative[1.0, 3, TAYLOR]:.1%} at t = 1, "
        f"of degree 4 {negative[0.5, 4, TAYLOR]:.1%}; the "
        f"Chebyshev truncation of degree 4 {negative[0.5, 4, chebyshev]:.1%} at t = 0.5. Rows "
        f"without a positive sum, of {table.n.iloc[0]}, each counted as an error of 1: {rows}."
    )
