"""Singular values of the softmax rows of attention, across temperatures."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.ranks import rank
from analysis.sweeps.table import Row, head
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Singular values across temperatures"
ORDER = 60
FLOOR = 1e-8


def _one(inputs: Head, t: float) -> list[Row]:
    x = inputs.at_temperature(t)
    s = rank.exact_singular_values(x, "attention")
    place = head(x, "exact attention")
    return [(*place, f"singular_value_{i}", v, np.nan) for i, v in enumerate(s / s[0], start=1)]


def compute(profile: Profile) -> pd.DataFrame:
    """Return s_i/s_1 of the softmax rows of every input at every temperature."""
    return profile.study(
        _one, [(x, t) for x in profile.inputs for t in profile.temperatures], "spectra"
    )


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel an input, one line a temperature, six at most."""
    inputs, temperatures = table.input.unique().tolist(), sorted(table.temperature.unique())
    shown = temperatures[:: -(-len(temperatures) // 6)]
    shades = colormaps["viridis"](np.linspace(0, 0.9, len(shown)))
    figure, axes = style.tiles(len(inputs), tr("index i"), tr("$s_i/s_1$ of softmax rows"))
    for ax, name in zip(axes, inputs):
        part = table[table.input == name]
        for t, shade in zip(shown, shades):
            values = part[part.temperature == t].value.to_numpy()
            ax.plot(np.arange(1, len(values) + 1), values, color=shade, label=f"t = {t:g}")
        ax.set(xscale="log", yscale="log", ylim=(FLOOR, 2), title=name)
    style.legend(figure, axes, columns=6)
    return figure


def finding(table: pd.DataFrame) -> str:
    counts = table[table.value > 1e-2].groupby(["temperature", "input"]).size()
    cold, hot = (counts[t] for t in (table.temperature.min(), table.temperature.max()))
    return tr(
        "Singular values above 1 % of the largest: {least} to {most} at t = {coldest:g}, "
        "{low} to {high} at t = {hottest:g} (softmax rows).",
        least=cold.min(),
        most=cold.max(),
        coldest=table.temperature.min(),
        low=hot.min(),
        high=hot.max(),
        hottest=table.temperature.max(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Relative to the largest. The step: the linear part of exp has rank d + 1.")
