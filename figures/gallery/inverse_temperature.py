"""Log variance against 1/t: closed form through what Monte Carlo can see."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.inverse_temperature import SPECS, compute as compute
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Log variance against inverse temperature"
ORDER = 110


def draw(table: pd.DataFrame) -> Figure:
    """Draw lines in closed form, bands and markers by Monte Carlo, one panel a method."""
    line = table[table.metric == "log_relative_variance"]
    with style.style():
        specs = style.order(line.method.tolist())
        figure = Figure(figsize=(7.0, 4.4))
        axes = list(figure.subplots(2, 3, sharex=True, sharey=True).flat)
        for place, spec in enumerate(specs):  # curves that coincide show markers in turn
            part = line[line.method == spec]
            look = style.look(spec) | {"markevery": (2 * place, 10)}
            axes[0].plot(1 / part.temperature, part.value, **look)
        axes[0].set_title(tr("closed form"))
        for ax, spec in zip(axes[1:], specs):
            look = style.look(spec) | {"label": None}
            part = line[line.method == spec]
            ax.plot(1 / part.temperature, part.value, **look | {"marker": ""})
            at = {
                m: p.set_index("temperature").value
                for m, p in table[table.method == spec].groupby("metric")
            }
            low, high = (at[f"sampled_{end}"].clip(-40, 40) for end in ("low", "high"))
            ax.fill_between(1 / low.index, low, high, color=look["color"], alpha=0.25, linewidth=0)
            dots = at["sampled_log_variance"]
            for t, value, believed in zip(dots.index, dots, at["believable"].reindex(dots.index)):
                face = {"markerfacecolor": look["color"] if believed else "white"}
                ax.plot([1 / t], [value], **look | {"linestyle": "", "markersize": 4.5} | face)
            ax.set_title(str(style.look(spec)["label"]))
        for ax in axes:
            ax.set_ylim(-9.5, 8)
        for ax in axes[3:]:
            ax.set_xlabel(tr("inverse temperature 1/t"))
        for ax in axes[::3]:
            ax.set_ylabel(tr("ln relative variance"))
        style.legend(figure, axes, columns=3)
    return figure


def finding(table: pd.DataFrame) -> str:
    line = table[table.metric == "log_relative_variance"].set_index(["method", "temperature"]).value
    part = table[table.method == SPECS[0]]
    sure = part[(part.metric == "believable") & (part.value == 1.0)].temperature
    slope = _slope(line[SPECS[0]])
    if sure.empty:
        return tr(
            "At low temperature the log variance of positive features grows as {slope:.2g}/t.",
            slope=slope,
        )
    return tr(
        "At low temperature the log variance of positive features grows as {slope:.2g}/t; "
        "draws show it only down to t = {t:.2g}.",
        slope=slope,
        t=sure.min(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "ln of the relative variance of one estimate. Lines: closed form; bands: Monte Carlo, two "
        "standard errors; hollow: not reliable."
    )


def _slope(line: pd.Series) -> float:
    ends = line.sort_index().iloc[:2]
    (a, b), (x, y) = ends.to_numpy(), 1 / ends.index.to_numpy()
    return float((a - b) / (x - y))
