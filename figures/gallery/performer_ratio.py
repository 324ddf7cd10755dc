"""Sines and cosines against positive features: the ratio of their mean squared errors."""

import math

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from analysis.experiments.performer_ratio import SLICES, compute as compute
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Sines and cosines against positive features"
ORDER = 80
LIMIT = 4.0  # decades shown
TICKS = [-math.pi, -math.pi / 2, 0.0, math.pi / 2, math.pi]
NAMES = ["−π", "−π/2", "0", "π/2", "π"]


def draw(table: pd.DataFrame) -> Figure:
    """Draw the map with the lines r = 1 and r = ½, and slices at fixed |q|."""
    wide = table[table.metric == "map_log10"].pivot(index="length", columns="angle", values="value")
    with style.style():
        figure = Figure(figsize=(7.0, 3.1))
        left, right = figure.subplots(1, 2, width_ratios=[1.1, 1])
        angles, lengths = (places.to_numpy(float) for places in (wide.columns, wide.index))
        a, b = angles[1] - angles[0], lengths[1] - lengths[0]
        extent = angles[0] - a / 2, angles[-1] + a / 2, lengths[0] - b / 2, lengths[-1] + b / 2
        least, most = 10.0**-LIMIT, 10.0**LIMIT
        mesh = left.imshow(
            (10.0**wide).clip(least, most), cmap="RdBu_r", norm=LogNorm(least, most),
            extent=extent, origin="lower", aspect="auto", interpolation="none",
        )  # fmt: skip
        for columns, line in ((1, "-"), (2, ":")):
            part = table[(table.metric == "crossover") & (table["columns"] == columns)]
            what = tr("frequencies") if columns == 1 else tr("columns")
            for sign in (1, -1):  # r is even in φ and in |q|
                for other in (1, -1):
                    label = tr("equal errors, as many {what}", what=what)
                    at = {"color": "black", "linestyle": line, "label": label, "linewidth": 1.2}
                    left.plot(sign * part.value, other * part.length, **at)
        left.grid(False)
        title = tr("r = error of sin/cos over error of positive")
        left.set(xlabel=tr("angle φ of q and k"), ylabel=tr("|q| = |k|, mirrored"), title=title)
        ticks = 10.0 ** np.arange(-LIMIT, LIMIT + 1, 2)
        bar = figure.colorbar(mesh, ax=left, extend="both", ticks=ticks)
        bar.ax.minorticks_off()
        shades = colormaps["viridis"](np.linspace(0, 0.85, len(SLICES)))
        for (length, part), shade in zip(table[table.metric == "ratio"].groupby("length"), shades):
            width = 2.2 if length == 1.0 else 1.2
            right.plot(
                part.angle,
                part.value.clip(1e-5, 1e5),
                color=shade,
                linewidth=width,
                label=f"|q| = {length:g}",
            )
        right.axhline(1.0, color="black", linewidth=0.8)
        right.axhspan(1e-5, 1.0, color=style.PALETTE[0], alpha=0.08, linewidth=0)
        right.text(0.0, 0.4, tr("sin/cos better"), ha="center", va="top", fontsize=8)
        right.text(0.0, 2.5, tr("positive better"), ha="center", va="bottom", fontsize=8)
        right.set(
            yscale="log",
            ylim=(1e-5, 1e5),
            xlabel=tr("angle φ of q and k"),
            title=tr("r at fixed |q|"),
        )
        for ax in (left, right):
            ax.set_xticks(TICKS, NAMES)
            ax.set_xlim(-math.pi, math.pi)
        style.legend(figure, [left, right], columns=3)
    return figure


def finding(table: pd.DataFrame) -> str:
    wins = table[table.metric == "map_log10"].value < 0
    return tr(
        "Sines and cosines beat positive features where q and k point the same way: on {share:.0%} "
        "of this map.",
        share=wins.mean(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Ratio of their mean squared errors in closed form, one frequency each, |q| = |k|.")
