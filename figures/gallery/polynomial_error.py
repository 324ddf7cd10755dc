"""Attention error of every polynomial at equal width across temperatures."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.polynomial_error import (
    DEGREES,
    METRICS,
    TAYLOR,
    compute as compute,
)
from figures.drawing import style
from figures.words.translation import mark, share_of, tr

TITLE = "Polynomials at equal width"
ORDER = 330
LOOKS = {  # colour, line style, marker
    "Taylor": (style.PALETTE[1], "-", "p"),
    "(1 + x/n)ⁿ": (style.PALETTE[3], "-", "h"),
    mark("Richardson of two powers"): (style.PALETTE[3], "--", "H"),
    mark("Chebyshev truncation on ±max"): (style.PALETTE[0], "-", "o"),
    mark("absolute minimax on ±max"): (style.PALETTE[2], "--", "s"),
    mark("relative minimax on ±max"): (style.PALETTE[2], "-", "D"),
    mark("relative minimax on ±3σ"): (style.PALETTE[4], "-", "X"),
    mark("least squares, relative"): (style.PALETTE[6], "-", "v"),
    mark("least squares, absolute"): (style.PALETTE[6], "--", "^"),
}
FADED = "Richardson of two powers", "absolute minimax on ±max", "least squares, absolute"
SHOWN = (0.5, 1.0, 2.0)


def draw(table: pd.DataFrame) -> Figure:
    """Draw total variation, and below it negative weights, against degree; a column a t."""
    with style.style():
        figure = Figure(figsize=(7.0, 5.6))
        axes = figure.subplots(2, len(SHOWN), sharex=True, sharey="row", height_ratios=(2, 1))
        for column, t in enumerate(SHOWN):
            for name, (colour, line, marker) in LOOKS.items():
                look: dict[str, Any] = {"color": colour, "linestyle": line, "marker": marker}
                part = table[(table.temperature == t) & (table.polynomial == name)]
                for row, metric in enumerate(METRICS[:2]):
                    values = part[part.metric == metric]
                    axes[row, column].plot(values.degree, values.value, label=tr(name), **look)
            bound = table[table.temperature == t].bound.iloc[0]
            axes[0, column].set(
                yscale="log", title=tr("t = {t:g}\nmax |x| = {bound:.1f}", t=t, bound=bound)
            )
            axes[1, column].set(xlabel=tr("degree"), xticks=DEGREES[1::2])
        axes[0, 0].set_ylabel(tr("attention total variation"))
        axes[1, 0].set_ylabel(tr("negative weights"))
        style.legend(figure, list(axes.flat), faded=map(tr, FADED))
    return figure


def finding(table: pd.DataFrame) -> str:
    wide = table[table.metric == "attention_tv"].pivot_table(
        "value", ["temperature", "degree"], "polynomial"
    )
    best = "relative minimax on ±max"
    both = wide[[TAYLOR, best]].dropna()
    return tr(
        "The minimax polynomial has less attention error than Taylor's in {share}.",
        share=share_of(both[best] < both[TAYLOR], mark("cases")),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Total variation of attention at equal degree n, so at equal width C({d} + n, n); Gaussian "
        "queries and keys.",
        d=table.d.iloc[0],
    )
