"""Error of the randomised SVD against oversampling and power steps, beside its bounds."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from analysis.experiments.randomised_svd import OVERSAMPLING, K, compute as compute
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "Randomised SVD against its bounds"
ORDER = 65
LOOKS = {  # number of power steps → look
    0: (mark("no power step"), looks.PALETTE[0], "o"), 1: (mark("1 step"), looks.PALETTE[2], "s"),
}  # fmt: skip
TYPICAL = 8  # the oversampling that finding and caption speak of


def draw(table: pd.DataFrame) -> Figure:
    """Draw the spectral error against oversampling, a panel a temperature.

    Bounds are dotted, in the colour of their curve.
    """
    temperatures = sorted(table.temperature.unique())
    figure, axes = style.panels(1, len(temperatures), tr("oversampling p"), height=2.9)
    for ax, t in zip(axes.flat, temperatures):
        part = table[table.temperature == t]
        least_name = tr("best of rank {k} + p", k=K)
        least = part[part.metric == "spectral_least"]
        ax.plot(least.oversampling, least.value, color="0.45", ls="--", label=least_name)
        for steps, (name, colour, marker) in LOOKS.items():
            curve, bound = (
                part[(part.steps == steps) & (part.metric == metric)]
                for metric in ("spectral", "spectral_bound")
            )
            look = {"color": colour, "label": tr(name)}
            ax.plot(curve.oversampling, curve.value, marker=marker, **look)
            bounds = tr("bound: {name}", name=tr(name))
            ax.plot(bound.oversampling, bound.value, ls=":", **look | {"label": bounds})
        wanted = part[(part.metric == "spectral") & (part.steps == -1)].value.iloc[0]
        ax.axhline(wanted, color="0.7", lw=0.8, label=tr("best of rank {k}", k=K))
        ax.set(xscale="log", yscale="log")
        ax.set_title(tr("{name}, t = {t:g}", name=part.input.iloc[0], t=t))
        style.ticks(ax, OVERSAMPLING)
        ax.yaxis.set_minor_formatter(NullFormatter())
    axes[0, 0].set_ylabel(tr("spectral error over σ₁"))
    style.legend(figure, list(axes.flat))
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
