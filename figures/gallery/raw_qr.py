"""Orthogonal features from a raw QR decomposition: a bias that depends on the direction."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.raw_qr import NORMS, PROJECTIONS, WIDTHS, compute as compute
from figures.drawing import style
from figures.words.translation import mark, share_of, tr

TITLE = "Orthogonal features from raw QR are biased"
ORDER = 140
NAMES = {"raw QR": mark("raw QR"), "Haar": "Haar"}
LOOKS = {
    "e₁": (style.PALETTE[0], "o"),
    "1/√d": (style.PALETTE[2], "^"),
    "−1/√d": (style.PALETTE[6], "v"),
    "random": (style.PALETTE[8], "s"),
}


def draw(table: pd.DataFrame) -> Figure:
    """Draw one row of panels a projection, one column a norm of q + k."""
    with style.style():
        x, y = tr("width d"), tr("mean of estimate/exact")
        figure, axes = style.panels(len(PROJECTIONS), len(NORMS), x, y)
        for row, projection in enumerate(PROJECTIONS):
            for column, norm in enumerate(NORMS):
                ax = axes[row, column]
                part = table[(table.projection == projection) & (table.norm == norm)]
                for name, line in part.groupby("direction", sort=False):
                    colour, marker = LOOKS[str(name)]
                    ax.errorbar(
                        line.d, line.value, 2 * line.stderr, color=colour, marker=marker,
                        label=tr("q + k along {direction}", direction=_long(str(name))),
                        capsize=2, linewidth=1,
                    )  # fmt: skip
                ax.axhline(1.0, color="black", linewidth=0.8)
                ax.set(xscale="log", title=f"{tr(NAMES[projection])}, |q + k| = {norm:g}")
                style.ticks(ax, WIDTHS)
        style.legend(figure, list(axes.flat), columns=2)
    return figure


def finding(table: pd.DataFrame) -> str:
    z = ((table.value - 1) / table.stderr).abs()
    raw, haar = (share_of(z[table.projection == x] > 5, mark("cases")) for x in PROJECTIONS)
    return tr("Features from raw QR are biased in {raw}, Haar ones in {haar}.", raw=raw, haar=haar)


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean of estimate/exact over draws, two standard errors; biased: five from 1. Haar: Q "
        "with its signs corrected."
    )


def _long(name: str) -> str:
    return {"1/√d": "(1, …, 1)", "−1/√d": "−(1, …, 1)", "random": tr("a random direction")}.get(
        name, name
    )
