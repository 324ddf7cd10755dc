"""Bias and variance against temperature: closed form as lines, Monte Carlo as markers."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.moments import compute as compute
from analysis.experiments.profile import nearest_to_one
from approx.sample_moments import DISTANCE, MEAN, VARIANCE, reliable_k
from figures.drawing import looks, style
from figures.words.numbers import raised_power, spaced_percent
from figures.words.translation import mark, tr

TITLE = "Bias and variance against temperature"
ORDER = 40
FAMILIES = (  # in the order of the report; the features of one that is not named here come last
    "positive", "trigonometric", "taylor", "tensor_power", "scatterbrain",
)  # fmt: skip
PANELS = {
    ("kernel", "bias"): mark("exp(q·k): bias"),
    ("kernel", "deviation"): mark("exp(q·k): deviation"),
    ("attention", "bias"): mark("attention: bias"),
    ("attention", "deviation"): mark("attention: deviation"),
}
FLOOR, CEILING = 1e-4, 1e4  # limits of the axis
ZERO = FLOOR / 12  # where 0 is drawn, below the break of the axis


def draw(table: pd.DataFrame) -> Figure:
    """Draw bias and deviation of both matrices in four panels, with 0 below the axis."""
    part = looks.of_methods(table[table.metric.isin(_shown())], *FAMILIES)
    specs = looks.order(part.method)
    figure, axes = style.row(len(PANELS), 2.75, sharex=True, sharey=True)
    for ax, ((space, what), title) in zip(axes, PANELS.items()):
        ax.axhspan(ZERO / 2.5, FLOOR / 1.7, color="0.96", zorder=0)
        exact = 0
        for spec in specs:
            own = part[part.method == spec]
            wide = own.pivot_table("value", "temperature", "metric")
            look = looks.look(spec) | {"marker": "o"}
            values = _column(wide, f"{space}_{what}").dropna()
            height = ZERO * 1.5 ** (exact - 1)
            exact += int((values == 0).any())
            _line(ax, values.where(values != 0, height), height, look)
            _marks(ax, wide, space, what, look)
        ax.set(xscale="log", yscale="log", ylim=(ZERO / 2.5, CEILING), title=tr(title))
        ax.set_yticks([ZERO, *10.0 ** np.arange(-4, 5, 2)])
        ax.set_yticklabels(["0", *(f"$10^{{{power}}}$" for power in range(-4, 5, 2))])
        style.ticks(ax, sorted(part.temperature.unique()))
        ax.set_xlabel(tr("temperature t"))
    axes[0].set_ylabel(tr("relative Frobenius norm"))
    style.key(axes[0], mark=tr("measured"), hollow=tr("measured, not reliable"))
    style.legend(figure, axes)
    return figure


def _shown() -> list[str]:
    """Return the metrics of the matrices."""
    own = [f"{space}_{what}" for space, what in PANELS]
    rest = [f"sampled_{s}_{x}" for s in ("kernel", "attention") for x in ("noise", "reliable")]
    return [*own, *(f"sampled_{name}" for name in own), *rest]


def _column(wide: pd.DataFrame, name: str) -> pd.Series:
    return wide[name] if name in wide else pd.Series(np.nan, wide.index)


def _line(ax: Axes, values: pd.Series, zero: float, look: dict[str, Any]) -> None:
    """Draw the known values; what is below the axis, but not 0, ends at its floor."""
    inside = values.where((values >= FLOOR) | (values == zero))
    ax.plot(inside.index, inside, **look | {"marker": ""})
    style.beyond(ax, values[values != zero], (FLOOR, np.inf), color=look["color"])


def _marks(ax: Axes, wide: pd.DataFrame, space: str, what: str, look: dict[str, Any]) -> None:
    """Draw what was measured: a bias above twice its noise; of exp(q·k) if it is reliable."""
    values = _column(wide, f"sampled_{space}_{what}")
    noise, sure = (_column(wide, f"sampled_{space}_{x}") for x in ("noise", "reliable"))
    if space == "kernel":
        values = values.where(values >= FLOOR)
    values = values[(noise > 0) & ((values > 2 * noise) | (what == "deviation"))]
    thin = look | {"marker": "", "label": None, "linewidth": 0.7, "alpha": 0.6}
    if space == "attention":
        ax.plot(values.index, values.where(values >= FLOOR), **thin)
    for reliable in (0.0, 1.0) if space == "attention" else (1.0,):
        face = {"markerfacecolor": look["color"] if reliable else "white"}
        dots = look | {"linestyle": "", "label": None} | face
        some = values[sure == reliable]
        ax.plot(some.index, some.where(some >= FLOOR), **dots)
        style.beyond(ax, some, (FLOOR, CEILING), **dots)


def finding(table: pd.DataFrame) -> str:
    own = looks.of_methods(table, "positive")
    wide = own[own.metric.isin(_shown())].pivot_table(
        "value", ["input", "temperature"], "metric", sort=False
    ).reset_index()  # fmt: skip
    sure = wide[_column(wide, "sampled_attention_reliable") == 1.0]
    if sure.empty:
        return tr("No sample of positive features at this budget is reliable.")
    row = sure.loc[sure.temperature == nearest_to_one(sure.temperature)].iloc[0]
    log = math.log(row.kernel_deviation)
    return tr(
        "On {name} at t = {t:g}, positive features estimate exp(q·k) with bias {zero:g} and "
        "deviation {kernel}; normalised, with bias {bias:.2g} and deviation {deviation:.2g}.",
        name=row.input,
        t=row.temperature,
        zero=row.kernel_bias,
        kernel=raised_power(log) if log < math.inf else "> 10^308^",
        bias=row.sampled_attention_bias,
        deviation=row.sampled_attention_deviation,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Over the exact matrix's norm. Thick: closed form, delta method; thin: joins measurements. "
        "Measured biases exceed twice their noise."
    )


def criterion(draws: int) -> str:
    """Return when a sample of one entry, and one of so many matrices, is reliable."""
    return tr(
        "A sample is reliable if three things hold. The closed-form standard error of the mean is "
        "at most {mean} of exp(q·k), or of the expectation if that is larger. The standard "
        "error of the sample variance is at most {variance} of that variance. The sample "
        "variance is within {distance:g} standard errors of its closed form. A sample of matrices "
        "is reliable if Pareto k̂ of its squared distances from the mean is at most {shape:.2f}, "
        "and its variance within {variance} of the closed form, if there is one.",
        mean=spaced_percent(math.sqrt(MEAN)),
        variance=spaced_percent(math.sqrt(VARIANCE)),
        shape=reliable_k(draws),
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
