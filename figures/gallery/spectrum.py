"""Singular values of exp(q·k) and of its softmax rows, across temperatures."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure

from analysis.experiments.profile import Profile
from analysis.inputs import Head
from analysis.ranks import rank
from analysis.sweeps.table import Row, head
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Singular values across temperatures"
ORDER = 60
NAMES = {"kernel": "exp(q·k)", "attention": mark("softmax rows")}
FLOOR = 1e-8


def _one(inputs: Head, t: float, space: str) -> list[Row]:
    x = inputs.at_temperature(t)
    s = rank.exact_singular_values(x, space)
    place = head(x, f"exact {space}")
    return [(*place, f"singular_value_{i}", v, np.nan) for i, v in enumerate(s / s[0], start=1)]


def compute(profile: Profile) -> pd.DataFrame:
    """Return s_i/s_1 of every input at every temperature, in both spaces."""
    grid = [(x, t, s) for x in profile.inputs for t in profile.temperatures for s in NAMES]
    return profile.study(_one, grid, "spectra")


def draw(table: pd.DataFrame) -> Figure:
    """Draw one row of panels a space, one column an input, one line a temperature."""
    inputs, temperatures = table.input.unique().tolist(), sorted(table.temperature.unique())
    shades = colormaps["viridis"](np.linspace(0, 0.9, len(temperatures)))
    with style.style():
        figure = Figure(figsize=(7.0, 4.6))
        axes = figure.subplots(len(NAMES), len(inputs), sharex=True, sharey=True, squeeze=False)
        for row, (space, label) in enumerate(NAMES.items()):
            for column, name in enumerate(inputs):
                ax = axes[row, column]
                part = table[(table.input == name) & (table.method == f"exact {space}")]
                for t, shade in zip(temperatures, shades):
                    values = part[part.temperature == t].value.to_numpy()
                    ax.plot(np.arange(1, len(values) + 1), values, color=shade, label=f"t = {t:g}")
                ax.set(xscale="log", yscale="log", ylim=(FLOOR, 2))
                if row == 0:
                    ax.set_title(name)
                else:
                    ax.set_xlabel(tr("index i"))
            axes[row, 0].set_ylabel(tr("$s_i/s_1$ of {space}", space=tr(label)))
        style.legend(figure, list(axes.flat), columns=6)
    return figure


def finding(table: pd.DataFrame) -> str:
    above = table[(table.value > 1e-2) & (table.method == "exact attention")]
    counts = above.groupby(["temperature", "input"]).size()
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
    return tr("Singular values relative to the largest, of exp(q·k) and of the softmax rows.")
