"""Mean log variance of every family of random features against the norm of the inputs."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.log_variance import M, compute as compute
from figures.drawing import style
from figures.words.translation import mark, share_of, tr

TITLE = "Log variance of random features against the norm of q and k"
ORDER = 100
LIMITS = -10.5, 12.5  # of the axis
NAMED = (
    "positive", "trigonometric", "geometric", "generalized_exponential", "dense_exponential",
    "shifted_positive",
)  # fmt: skip


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel a kind of input, one line a family."""
    with style.style():
        figure = Figure(figsize=(7.0, 3.3))
        names = table.input.unique()
        axes = figure.subplots(1, len(names), sharex=True, sharey=True, squeeze=False)[0]
        for ax, name in zip(axes, names):
            part = table[table.input == name]
            for place, spec in enumerate(style.order(part.method.tolist())):
                line = part[part.method == spec]
                look = style.look(spec) | {"markevery": (place % 4, 4), "markersize": 3.5}
                style.curve(ax, line.set_index("norm").value, LIMITS, **look)
            ax.axvline(table.d.iloc[0] ** 0.25, color="0.5", linewidth=0.8)
            ax.axhline(0.0, color="0.5", linewidth=0.8)
            ax.set(xscale="log", ylim=LIMITS, title=name, xlabel=tr("norm of q and of k"))
            ax.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
            ax.minorticks_off()
        axes[0].set_ylabel(tr("mean ln relative variance"))
        others = [s for s in table.method.unique() if s.partition("(")[0] not in NAMED]
        style.legend(figure, list(axes), columns=3, faded=map(style.label, others))
    return figure


def _typical(table: pd.DataFrame) -> tuple[float, float]:
    """Return the norm of scaled attention on entries of variance 1, and the nearest there is."""
    typical = float(table.d.iloc[0]) ** 0.25  # |q|² = √d at t = 1
    norms = table.norm.unique()
    return typical, float(norms[np.argmin(np.abs(np.log(norms / typical)))])


def finding(table: pd.DataFrame) -> str:
    here = table[table.norm == _typical(table)[1]]
    least = here.groupby("input", sort=False).value.min()
    return tr(
        "At the typical norm of scaled queries, some family has a deviation below 100 % on "
        "{share}.",
        share=share_of(least < 0, mark("kinds of input")),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean ln(relative variance), closed form, {m} columns, d = {d}. Vertical: that norm, "
        "d^¼^; horizontal: 100 %. Triangles: values off the scale.",
        m=M,
        d=int(table.d.iloc[0]),
    )
