"""Trace error of Nyström's method against rank, for each choice of pivots, beside its bound."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.nystrom import compute as compute
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "Pivots of Nyström's method"
ORDER = 67
LOOKS = {
    ("uniform", "error"): (mark("uniform"), looks.PALETTE[1], "v"),
    ("leverage", "error"): (mark("leverage"), looks.PALETTE[4], "D"),
    ("random", "error"): (mark("random pivots"), looks.PALETTE[0], "o"),
    ("greedy", "error"): (mark("greedy"), looks.PALETTE[2], "s"),
    ("random", "bound"): (mark("bound for random pivots"), looks.PALETTE[0], ""),
    ("any", "best"): (mark("best of that rank"), "0.45", ""),
}
LINES = {"error": "-", "bound": ":", "best": "--"}
TYPICAL = 64  # the rank that finding and caption speak of, if there is one so large


def draw(table: pd.DataFrame) -> Figure:
    """Draw the share of the trace that is left against rank."""
    ts = sorted(table.temperature.unique())
    figure, axes = style.row(len(ts), 3.4)
    for ax, t in zip(axes, ts):
        part = table[(table.temperature == t) & (table.value > 0)]
        for (pivots, metric), (name, colour, marker) in LOOKS.items():
            curve = part[(part.pivots == pivots) & (part.metric == metric)]
            look = {"color": colour, "marker": marker, "linestyle": LINES[metric]}
            ax.plot(curve["rank"], curve.value, label=tr(name), markersize=3, **look)
        ax.set(xscale="log", yscale="log", xlabel=tr("pivots"))
        ax.set_title(tr("{name}, t = {t:g}", name=part.input.iloc[0], t=t))
        style.ticks(ax, sorted(part["rank"].unique()))
    axes[0].set_ylabel(tr("share of the trace left"))
    style.legend(figure, axes)
    return figure


def _errors(table: pd.DataFrame) -> pd.Series:
    return table.set_index(["temperature", "pivots", "metric", "rank"]).value.sort_index()


def _rank(table: pd.DataFrame) -> int:
    return int(table["rank"][table["rank"] <= TYPICAL].max())


def finding(table: pd.DataFrame) -> str:
    at, r = _errors(table), _rank(table)
    cold, hot = table.temperature.min(), table.temperature.max()
    return tr(
        "Of the trace, {r} pivots leave at t = {cold:g}: {uniform:.2g} if drawn uniformly, "
        "{random:.2g} if drawn by the remaining diagonal, {greedy:.2g} if greedy; at t = {hot:g}: "
        "{uniform_hot:.2g}, {random_hot:.2g} and {greedy_hot:.2g}.",
        r=r,
        cold=cold,
        hot=hot,
        uniform=at[cold, "uniform", "error", r],
        random=at[cold, "random", "error", r],
        greedy=at[cold, "greedy", "error", r],
        uniform_hot=at[hot, "uniform", "error", r],
        random_hot=at[hot, "random", "error", r],
        greedy_hot=at[hot, "greedy", "error", r],
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Trace error of exp(k·k′) against rank.")
