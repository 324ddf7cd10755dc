"""Largest error of polynomials and of rational functions for exp against degree."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.rational import compute as compute
from figures.drawing import looks, style
from figures.words.numbers import raised_power
from figures.words.translation import mark, tr

TITLE = "Polynomials and rational functions"
ORDER = 325
ROUNDING = 1e-13  # below it, what is measured in float64 is rounding
PANELS = {
    "interval": {
        "taylor": (mark("Taylor polynomial"), looks.PALETTE[1], "p"),
        "minimax": (mark("best polynomial"), looks.PALETTE[2], "s"),
        "pade": (mark("Padé, rational"), looks.PALETTE[4], "D"),
        "aaa": (mark("AAA, rational"), looks.PALETTE[0], "v"),
    },
    "half_line": {
        "inverse_taylor": (mark("1/Taylor(−x)"), looks.PALETTE[5], "h"),
        "aaa": (mark("AAA, rational"), looks.PALETTE[0], "v"),
        "best": (mark("best rational"), looks.PALETTE[6], "^"),
    },
}


def draw(table: pd.DataFrame) -> Figure:
    """Draw the error against degree, on [−B, B] and on (−∞, 0]."""
    figure, axes = style.row(2, 3.0, sharey=True)
    for ax, (interval, curves) in zip(axes, PANELS.items()):
        part = table[table.interval == interval]
        for method, (name, colour, marker) in curves.items():
            curve = _seen(part[part.method == method])
            ax.plot(curve.degree, curve.value, color=colour, marker=marker, label=tr(name))
        ax.set(yscale="log", xlim=(0, None), ylim=(ROUNDING, None), xlabel=tr("degree"))
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_title(tr("x from −{b:g} to {b:g}", b=table.bound.min()))
    axes[1].set_title(tr("x ≤ 0"))
    axes[0].set_ylabel(tr("largest error of exp(x) / largest exp(x)"))
    style.legend(figure, axes)
    return figure


def _seen(curve: pd.DataFrame) -> pd.DataFrame:
    """Return a curve up to its first value that may be rounding."""
    return curve[(curve.value > ROUNDING).cummin()]


def _errors(table: pd.DataFrame) -> pd.Series:
    return table.set_index(["interval", "method", "degree"]).value.sort_index()


def finding(table: pd.DataFrame) -> str:
    at = _errors(table)
    n = int(table[(table.interval == "interval") & (table.method == "pade")].degree.max()) // 2
    return tr(
        "At degree {n} on [−{b:g}, {b:g}] the best polynomial errs by {minimax}, Padé by {pade}; "
        "on (−∞, 0] the best rational by {best}.",
        n=n,
        b=table.bound.min(),
        minimax=raised_power(np.log(at["interval", "minimax", n])),
        pade=raised_power(np.log(at["interval", "pade", n])),
        best=raised_power(np.log(at["half_line", "best", n])),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Largest error for exp against degree, on [−{b:g}, {b:g}] over its largest value there, "
        "and on (−∞, 0].",
        b=table.bound.min(),
    )
