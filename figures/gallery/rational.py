"""Largest error of polynomials and of rational functions for exp against degree."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.rational import compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Polynomials and rational functions"
ORDER = 325
LEAST = 1e-13  # below it, what is measured in float64 is rounding
PANELS = {
    "interval": {
        "tensor_power": ("(1 + x/n)ⁿ", style.PALETTE[3], "h"),
        "taylor": ("Taylor", style.PALETTE[1], "p"),
        "chebyshev": ("Chebyshev", style.PALETTE[0], "o"),
        "minimax": (mark("minimax"), style.PALETTE[2], "s"),
        "pade": ("Padé (n, n)", style.PALETTE[4], "D"),
        "aaa": ("AAA", style.PALETTE[6], "v"),
    },
    "half_line": {
        "inverse_power": ("(1 − x/n)⁻ⁿ", style.PALETTE[3], "h"),
        "inverse_taylor": (mark("1/Taylor(−x)"), style.PALETTE[1], "p"),
        "aaa": ("AAA", style.PALETTE[6], "v"),
        "best": (mark("best rational"), style.PALETTE[2], "s"),
    },
}
THEORY = {"interval": "bessel_tail", "half_line": "halphen"}


def draw(table: pd.DataFrame) -> Figure:
    """Draw the error against degree, on [−B, B] and on (−∞, 0]; theory dotted."""
    with style.style():
        figure = Figure(figsize=(7.0, 3.4))
        axes = figure.subplots(1, 2, sharey=True)
        for ax, (interval, looks) in zip(axes, PANELS.items()):
            part = table[(table.interval == interval) & (table.metric == "error")]
            bound = float(part.bound.iloc[0])
            ends = []
            for method, (name, colour, marker) in looks.items():
                curve = _seen(part[part.method == method])
                ax.plot(curve.degree, curve.value, color=colour, marker=marker, markersize=3)
                ends.append((tr(name), curve.degree.iloc[-1], curve.value.iloc[-1], colour))
            line = _seen(part[part.method == THEORY[interval]])
            ax.plot(line.degree, line.value, color="0.2", linestyle=":", linewidth=2, zorder=5)
            last = part.degree.max()
            ax.set(yscale="log", ylim=(LEAST, 3), xlim=(0.5, last + 0.5), xlabel=tr("degree n"))
            style.direct(
                ax, [(name, value, colour) for name, at, value, colour in ends if at == last]
            )
            for name, at, value, colour in ends:
                if at < last:
                    ax.annotate(
                        name, (at, value), (4, 2), textcoords="offset points", color=colour,
                        fontsize=style.SMALL, ha="left", va="bottom",
                    )  # fmt: skip
            if np.isfinite(bound):
                ax.axvline(bound, color="0.7", linewidth=0.8)
                ax.set_title(tr("on [−{b:g}, {b:g}], over its largest value", b=bound))
                ax.annotate(
                    "n = B", (bound, 1e-12), (3, -6), textcoords="offset points", color="0.4",
                    fontsize=style.SMALL,
                )  # fmt: skip
                _equioscillation(ax, table)
            else:
                ax.set_title(tr("on (−∞, 0]"))
        axes[0].set_ylabel(tr("largest error"))
    return figure


def _equioscillation(ax: Axes, table: pd.DataFrame) -> None:
    """Draw the error of the best polynomial over its x in a corner of a panel."""
    small = ax.inset_axes((0.01, 0.02, 0.2, 0.28))
    curve, peaks = (table[table.metric == metric] for metric in ("signed", "peak"))
    small.plot(curve.x, curve.value, color=style.PALETTE[2], linewidth=1)
    small.plot(peaks.x, peaks.value, "o", color=style.PALETTE[2], markersize=2)
    small.axis("off")
    ax.annotate(
        f"n = {curve.degree.iloc[0]}", (0.05, 0.32), xycoords="axes fraction",
        color=style.PALETTE[2], fontsize=style.SMALL,
    )  # fmt: skip


def _seen(curve: pd.DataFrame) -> pd.DataFrame:
    """Return a curve up to its first value that may be rounding."""
    return curve[(curve.value > LEAST).cummin()]


def _errors(table: pd.DataFrame) -> pd.Series:
    table = table[table.metric == "error"]
    return table.set_index(["interval", "method", "degree"]).value.sort_index()


def finding(table: pd.DataFrame) -> str:
    at = _errors(table)
    n = int(table[(table.interval == "interval") & (table.method == "pade")].degree.max()) // 2
    return tr(
        "At degree {n} on [−{b:g}, {b:g}] the best polynomial errs by {minimax:.1g}, Padé by "
        "{pade:.1g}; on (−∞, 0] the best rational by {best:.1g}.",
        n=n,
        b=table.bound.min(),
        minimax=at["interval", "minimax", n],
        pade=at["interval", "pade", n],
        best=at["half_line", "best", n],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Largest error for exp against degree. Dotted: Bessel tail, falling from n = B = {b:g}; "
        "2 · 9.28903^(−n−1/2).",
        b=table.bound.min(),
    )
