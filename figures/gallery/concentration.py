"""Error of random features against their number, Bernstein's bound, and Pareto k̂."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.concentration import DELTA, DRAWS, compute as compute
from analysis.moments.tail_shape import reliable_k
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Where random features concentrate"
ORDER = 115
LOOKS = (style.PALETTE[0], "o"), (style.PALETTE[4], "D"), (style.PALETTE[2], "s")


def draw(table: pd.DataFrame) -> Figure:
    """Draw the typical error of positive features, that of sines and cosines, and k̂ of samples.

    Theory is dotted.
    """
    panels = {"positive": ("median", "deviation"), "trigonometric": ("quantile", "bernstein")}
    with style.style():
        figure = Figure(figsize=(7.0, 3.2))
        axes = figure.subplots(1, 3)
        for ax, (family, (measured, theory)) in zip(axes, panels.items()):
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
        axes[0].set_ylabel(tr("error over exp(q·k)"))
        axes[0].set_title(tr("positive: median error"))
        share = 1 - DELTA
        axes[1].set_title(tr("sin/cos: {share:.0%} of errors are below", share=share))
        tail, m = table[(table.family == "tail") & (table.metric == "k")], DRAWS[1]
        k, (colour, marker) = tail[tail.m == m], LOOKS[0]
        axes[2].plot(k.distance, k.value, color=colour, marker=marker, markersize=3)
        axes[2].axhline(reliable_k(m), color=colour, linewidth=0.8, linestyle=":")
        axes[2].set(xlabel="|q + k|", title=tr("positive: Pareto k̂"))
        axes[2].set_xticks([1, 2, 3, 4])
        ends = [(tr("{m:g} draws", m=m), k.value.iloc[-1], colour)]
        axes[2].set_xlim(right=k.distance.max() * 1.03)
        style.direct(axes[2], [*ends, (tr("limit"), reliable_k(m), colour)])
    return figure


def _crossing(tail: pd.DataFrame, m: int) -> float:
    """Return |q + k| at which k̂ passes its limit for m draws."""
    k = tail[(tail.metric == "k") & (tail.m == m)]
    return float(np.interp(reliable_k(m), np.maximum.accumulate(k.value), k.distance))


def _slopes(table: pd.DataFrame, family: str, metric: str) -> pd.Series:
    part = table[(table.family == family) & (table.metric == metric)]
    return pd.Series(
        {s: np.polyfit(np.log(x.m), np.log(x.value), 1)[0] for s, x in part.groupby("distance")}
    )


def finding(table: pd.DataFrame) -> str:
    slopes, tail = _slopes(table, "positive", "median"), table[table.family == "tail"]
    return tr(
        "At |q + k| = {low:g} the typical error falls as m^({light:.2f}), at {high:g} as "
        "m^({heavy:.2f}); k̂ of {draws} draws exceeds {limit:.2g} from |q + k| = "
        "{crossing:.1f} on.",
        low=slopes.index[0],
        light=slopes.iloc[0],
        high=slopes.index[-1],
        heavy=slopes.iloc[-1],
        draws=DRAWS[1],
        limit=reliable_k(DRAWS[1]),
        crossing=_crossing(tail, DRAWS[1]),
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Dotted: closed-form deviation; Bernstein's bound; the limit of k̂.")
