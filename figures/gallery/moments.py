"""Bias and variance against temperature: closed form as lines, Monte Carlo as markers."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.moments import compute as compute
from analysis.moments.simulation import DISTANCE, MEAN, VARIANCE
from figures.drawing import looks, style
from figures.words.numbers import raised_power
from figures.words.translation import tr

TITLE = "Bias and variance against temperature"
ORDER = 40
DRAWN = "positive", "trigonometric"
FLOOR, CEILING = 1e-3, 1e8  # limits of the axis
MOST = 600.0  # the largest logarithm whose exponential is taken


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel an input: the standard deviation, draws at the edge where beyond it."""
    inputs, temperatures = table.input.unique().tolist(), sorted(table.temperature.unique())
    with style.style():
        x, y = tr("temperature t"), style.lines(tr("standard deviation over exp(q·k)"), 20)
        figure, axes = style.tiles(len(inputs), x, y, height=1.9)
        for ax, name in zip(axes, inputs):
            for spec in looks.order(looks.of_methods(table, *DRAWN).method):
                part = table[(table.input == name) & (table.method == spec)]
                at = {m: p.set_index("temperature") for m, p in part.groupby("metric")}
                if part.empty or not np.isfinite(at["log_relative_variance"].value).any():
                    continue  # it fits the budget on other inputs only
                variance = at["log_relative_variance"].value
                deviation = np.exp((variance / 2).clip(upper=MOST))
                look = looks.look(spec) | {"marker": "o"}
                ax.plot(deviation.index, deviation, **look | {"marker": ""})
                if "believable" not in at:
                    continue
                for believable in (0.0, 1.0):
                    marks = np.sqrt(
                        at["sampled_variance"].value[at["believable"].value == believable]
                    )
                    face = {"markerfacecolor": look["color"] if believable else "white"}
                    dots = look | {"linestyle": "", "label": None} | face
                    ax.plot(marks.index, marks, **dots)
                    style.beyond(ax, marks, (FLOOR, CEILING), **dots)
            ax.set(xscale="log", yscale="log", ylim=(FLOOR / 2, CEILING * 2), title=name)
            style.ticks(ax, temperatures)
        style.key(
            axes[0],
            line=tr("closed form"),
            mark=tr("measured"),
            hollow=tr("measured, not reliable"),
        )
        style.legend(figure, axes, columns=2)
    return figure


def hidden(table: pd.DataFrame) -> pd.Series | None:
    """Return the place at which draws show least of the deviation of positive features.

    It has input, temperature, and the logarithms of the closed-form and the sampled deviation;
    None where no positive feature fits the budget.
    """
    part = looks.of_methods(table, "positive")
    if "sampled_variance" not in set(part.metric):
        return None
    keys = ["input", "temperature"]
    wide = part.pivot_table(index=keys, columns="metric", values="value", sort=False).reset_index()
    with np.errstate(divide="ignore"):
        wide = wide.assign(
            closed=wide.log_relative_variance / 2, sampled=np.log(wide.sampled_variance) / 2
        )
    wide = wide[np.isfinite(wide.closed)]
    return None if wide.empty else wide.loc[(wide.closed - wide.sampled).idxmax()]


def finding(table: pd.DataFrame) -> str:
    worst = hidden(table)
    if worst is None:
        return tr("Nothing random fits this budget.")
    return tr(
        "Draws hide the variance: {name} at t = {t:g} has deviation {closed}, its draws show "
        "{sampled}.",
        name=worst.input,
        t=worst.temperature,
        closed=raised_power(worst.closed),
        sampled=raised_power(worst.sampled),
    )


def caption(table: pd.DataFrame) -> str:
    return tr("Standard deviation of one estimate of exp(q·k), over exp(q·k).")


def criterion() -> str:
    """Return the criterion by which a sample is reliable."""
    return tr(
        "A sample is reliable if three things hold. The closed-form standard error of the mean is "
        "at most {mean:.0%} of exp(q·k), or of the expectation if that is larger. The standard "
        "error of the sample variance is at most {variance:.0%} of that variance. The sample "
        "variance is within {distance:g} standard errors of its closed form.",
        mean=math.sqrt(MEAN),
        variance=math.sqrt(VARIANCE),
        distance=DISTANCE,
    )


def z_scores(table: pd.DataFrame) -> pd.Series:
    """Return |sampled − closed-form bias| in standard errors, where Monte Carlo is reliable."""
    keys = ["input", "method", "temperature"]
    if "believable" not in set(table.metric):  # nothing random fits the budget
        return pd.Series(dtype=float)
    wide = table.pivot_table(index=keys, columns="metric", values="value")
    stderr = table[table.metric == "sampled_bias"].set_index(keys).stderr
    wide = wide[wide.believable == 1.0]
    return ((wide.sampled_bias - wide.relative_bias) / stderr.reindex(wide.index)).abs()
