"""Sines and cosines against positive features: the ratio of their mean squared errors."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import brentq

from analysis.experiments.profile import Profile
from analysis.sweeps.table import Row
from approx.checks import Array, required
from approx.random_features.positive import Positive
from approx.random_features.trigonometric import Trigonometric
from figures.drawing import looks, style
from figures.words.translation import tr

TITLE = "Sines and cosines against positive features"
ORDER = 80
COLUMNS = ("length", "angle", "metric", "value")
SLICES = (0.5, 1.0, 1.5, 2.0)
TICKS = [0.0, math.pi / 4, math.pi / 2, 3 * math.pi / 4, math.pi]
NAMES = ["0", "45°", "90°", "135°", "180°"]
LOOKS = tuple(zip((*looks.PALETTE[:3], looks.PALETTE[4]), ("-", "--", "-.", ":")))


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

    Columns: length |q| = |k|, angle φ. Metrics: ratio (r of the errors along φ), crossover (the
    angle where r = 1).
    """
    rows: list[Row] = []
    fine = np.linspace(-math.pi, math.pi, 360)
    for length in SLICES:
        rows.append((length, np.nan, "crossover", crossover(length, 1)))
        ratio = np.exp(np.clip(log_ratio(length, fine), -690, 690))
        rows += [(length, a, "ratio", v) for a, v in zip(fine, ratio)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def draw(table: pd.DataFrame) -> Figure:
    """Draw the ratio against the angle, a line a length of q and k."""
    figure, (ax,) = style.row(1, 3.6)
    for (length, part), look in zip(table[table.metric == "ratio"].groupby("length"), LOOKS):
        colour, line = look
        ax.plot(part.angle, part.value, color=colour, ls=line, label=f"|q| = |k| = {length:g}")
    ax.axhline(1.0, color="black", linewidth=0.8)
    ax.axhspan(1e-5, 1.0, color=looks.PALETTE[0], alpha=0.08, linewidth=0)
    ax.text(0.15, 0.5, tr("sin/cos better"), va="top")
    ax.text(0.15, 2.0, tr("positive better"), va="bottom")
    ax.set(yscale="log", ylim=(1e-5, 1e5), xlim=(0, math.pi), xlabel=tr("angle of q and k"))
    ax.set_xticks(TICKS, NAMES)
    ax.set_ylabel(tr("squared error: sin/cos over positive"))
    style.legend(figure, ax, columns=4)
    return figure


def finding(table: pd.DataFrame) -> str:
    angles = table[table.metric == "crossover"].value
    return tr(
        "Sines and cosines beat positive features where the angle of q and k is below {least:.0f}° "
        "to {most:.0f}°.",
        least=math.degrees(angles.min()),
        most=math.degrees(angles.max()),
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Ratio of their mean squared errors in closed form, one frequency each, |q| = |k|.")
