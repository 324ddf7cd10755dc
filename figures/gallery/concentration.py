"""Error of random features against their number, beside theory."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.concentration import DELTA, compute as compute
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "Where random features concentrate"
ORDER = 115
LOOKS = (looks.PALETTE[0], "o"), (looks.PALETTE[4], "D"), (looks.PALETTE[2], "s")


def draw(table: pd.DataFrame) -> Figure:
    """Draw the typical error of positive features, and what few errors of sin/cos exceed."""
    panels = {
        "positive": ("median", "deviation", mark("standard deviation")),
        "trigonometric": ("quantile", "bernstein", mark("Bernstein's bound")),
    }
    figure, axes = style.row(2, 3.2, sharey=True)
    for ax, (family, (measured, theory, bound)) in zip(axes, panels.items()):
        part = table[table.family == family]
        name = "|q + k| = {s:g}" if family == "positive" else "|q − k| = {s:g}"
        ends = []
        distances = sorted(part.distance.unique())
        for s, (colour, marker) in zip((*distances[:2], distances[-1]), LOOKS):
            curve = part[part.distance == s]
            error, line = (curve[curve.metric == x] for x in (measured, theory))
            ax.plot(error.m, error.value, color=colour, marker=marker, markersize=3)
            ax.plot(line.m, line.value, color=colour, linestyle=":")
            ends.append((name.format(s=s), error.value.iloc[-1], colour))
        ax.set(xscale="log", yscale="log", xlabel=tr("frequencies m"))
        ax.set_xlim(part.m.min() / 1.3, part.m.max() * 1.3)
        style.direct(ax, ends)
        ax.plot([], [], ":", color="0.4", label=tr(bound))
        ax.legend(loc="lower left")
    axes[0].set_ylabel(tr("error over exp(q·k)"))
    axes[0].set_title(tr("positive features: median error"))
    share = 1 - DELTA
    axes[1].set_title(tr("sin/cos features: {share:.0%} of errors are below", share=share))
    return figure


def finding(table: pd.DataFrame) -> str:
    part = table[(table.family == "positive") & (table.metric == "median")]
    slopes = pd.Series(
        {s: np.polyfit(np.log(x.m), np.log(x.value), 1)[0] for s, x in part.groupby("distance")}
    )
    return tr(
        "At |q + k| = {low:g} the typical error falls as m^({light:.2f}), at {high:g} as "
        "m^({heavy:.2f}).",
        low=slopes.index[0],
        light=slopes.iloc[0],
        high=slopes.index[-1],
        heavy=slopes.iloc[-1],
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Dotted: closed-form standard deviation; Bernstein's bound.")
