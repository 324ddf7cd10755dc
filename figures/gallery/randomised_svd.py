"""Error of the randomised SVD against oversampling and power steps, beside its bounds."""

import math

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from analysis.experiments.randomised_svd import OVERSAMPLING, STEPS, K, compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Randomised SVD against its bounds"
ORDER = 65
COLOURS = style.PALETTE[0], style.PALETTE[2], style.PALETTE[4]
MARKERS = "osD"
NAMES = mark("no power step"), mark("1 step"), mark("2 steps")
LEAST_NAME = mark("best of rank k + p")
NORMS = {"spectral": mark("spectral error over σ₁"), "frobenius": mark("Frobenius error over σ₁")}
TYPICAL = 8  # of oversampling, in the texts


def draw(table: pd.DataFrame) -> Figure:
    """Draw the error against oversampling: above spectral, below Frobenius; a column a temperature.

    Bounds are dotted, in the colour of their curve.
    """
    temperatures = sorted(table.temperature.unique())
    with style.style():
        figure = Figure(figsize=(7.0, 5.0))
        axes = figure.subplots(2, len(temperatures), sharex=True, squeeze=False)
        for column, t in enumerate(temperatures):
            for ax, (norm, label) in zip(axes[:, column], NORMS.items()):
                part = table[table.temperature == t]
                ends = []
                least = part[part.metric == f"{norm}_least"]
                ax.plot(least.oversampling, least.value, color="0.45", linestyle="--")
                ends.append((tr(LEAST_NAME), least.value.iloc[-1], "0.45"))
                for steps, name, colour, marker in zip(STEPS, NAMES, COLOURS, MARKERS):
                    part_of = part[part.steps == steps]
                    curve = part_of[part_of.metric == norm]
                    bound = part_of[part_of.metric == f"{norm}_bound"]
                    ax.plot(curve.oversampling, curve.value, color=colour, marker=marker)
                    ax.plot(bound.oversampling, bound.value, color=colour, linestyle=":")
                    ends.append((tr(name), curve.value.iloc[-1], colour))
                wanted = part[(part.metric == norm) & (part.steps == -1)].value.iloc[0]
                ax.axhline(wanted, color="0.7", linewidth=0.8, zorder=0)
                ends.append((tr("best of rank {k}", k=K), wanted, "0.55"))
                ax.set(xscale="log", yscale="log", xlim=(OVERSAMPLING[0] / 1.1, 70))
                style.ticks(ax, OVERSAMPLING)
                ax.set_ylim(top=10 ** math.ceil(math.log10(ax.get_ylim()[1])))
                ax.yaxis.set_minor_formatter(NullFormatter())
                if column == len(temperatures) - 1:
                    style.direct(ax, ends, apart=0.075)
                if column == 0:
                    ax.set_ylabel(tr(label))
            name = part.input.iloc[0]
            axes[0, column].set_title(tr("{name}, t = {t:g}", name=name, t=t))
            axes[1, column].set_xlabel(tr("oversampling p"))
    return figure


def _values(table: pd.DataFrame) -> pd.Series:
    keys = ["temperature", "metric", "steps", "oversampling"]
    return table.set_index(keys).value.sort_index()


def finding(table: pd.DataFrame) -> str:
    at, t = _values(table), table.temperature.min()
    return tr(
        "One power step lowers the spectral error from {none:.2g} to {one:.2g} times the least "
        "possible at rank {k} (t = {t:g}, p = {p}); the bounds say {loose:.2g} and {tight:.2g}.",
        none=at[t, "spectral", 0, TYPICAL] / at[t, "spectral", -1, 0],
        one=at[t, "spectral", 1, TYPICAL] / at[t, "spectral", -1, 0],
        loose=at[t, "spectral_bound", 0, TYPICAL] / at[t, "spectral", -1, 0],
        tight=at[t, "spectral_bound", 1, TYPICAL] / at[t, "spectral", -1, 0],
        k=K,
        t=t,
        p=TYPICAL,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean error of {k} + p random columns for softmax rows. Dotted: its bounds.",
        k=K,
    )
