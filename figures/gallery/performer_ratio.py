"""Sines and cosines against positive features: the ratio of their mean squared errors."""

import math

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from scipy.optimize import brentq

from analysis.experiments.profile import Profile
from analysis.sweeps.table import Row
from approx.checks import Array, required
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Sines and cosines against positive features"
ORDER = 80
COLUMNS = ("length", "angle", "columns", "metric", "value")
ANGLES = {"π/4": 0.25, "π/2": 0.5, "3π/4": 0.75, "0.9π": 0.9, "0.99π": 0.99}  # over π
QUOTED = (1.0, 2.0)
SLICES = (0.5, 1.0, 1.5, 2.0)
LIMIT = 4.0  # decades shown
TICKS = [-math.pi, -math.pi / 2, 0.0, math.pi / 2, math.pi]
NAMES = ["−π", "−π/2", "0", "π/2", "π"]


def log_ratio(length: float, angles: Array, columns: int = 1) -> Array:
    """Return log of the error of one frequency of sin/cos over that of some positive features.

    q = (|q|, 0), k = |q| (cos φ, sin φ).
    """
    Q = np.array([[length, 0.0]])
    K = length * np.column_stack([np.cos(angles), np.sin(angles)])
    waves, positive = (required(x.moments(Q, K)) for x in (Trigonometric(m=2), Positive(m=columns)))
    return np.asarray(waves.log_relative_variance[0] - positive.log_relative_variance[0])


def crossover(length: float, columns: int) -> float:
    """Return the angle below which sines and cosines have the smaller error."""
    return float(brentq(lambda a: log_ratio(length, np.array([a]), columns)[0], 0.1, 3.1))


def compute(profile: Profile) -> pd.DataFrame:
    """Return the ratio in closed form; the profile does not matter.

    Columns: length |q| = |k|, angle φ, columns of the positive features (1: as many
    frequencies; 2: as many columns as sin/cos). Metrics: map_log10 (log10 r on the grid), ratio
    (r along φ), quoted (r at the angles of the caption), crossover (an angle where r = 1).
    """
    rows: list[Row] = []
    across = np.linspace(-math.pi, math.pi, 160)  # even counts: neither |q| = 0 nor φ = 0: 0/0
    for length in np.linspace(-2.0, 2.0, 80):
        values = log_ratio(length, across) / math.log(10)
        rows += [(length, a, 1, "map_log10", v) for a, v in zip(across, values)]
    fine = np.linspace(-math.pi, math.pi, 360)
    for length in sorted({*np.linspace(0.1, 2.0, 39).round(9).tolist(), *SLICES}):
        rows += [(length, np.nan, c, "crossover", crossover(length, c)) for c in (1, 2)]
    for length in SLICES:
        ratio = np.exp(np.clip(log_ratio(length, fine), -690, 690))
        rows += [(length, a, 1, "ratio", v) for a, v in zip(fine, ratio)]
    places = math.pi * np.array(list(ANGLES.values()))
    for length in QUOTED:
        rows += [
            (length, a, 1, "quoted", v) for a, v in zip(places, np.exp(log_ratio(length, places)))
        ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


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
