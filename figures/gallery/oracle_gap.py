"""Scatterbrain against what sparse + low-rank could do: the split at its budget, Robust PCA."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.oracle_gap import CUT, ERROR, PURSUIT, SHARE, compute as compute
from figures.drawing import style
from figures.gallery.entropy import medians
from figures.show import optimality
from figures.words.translation import mark, tr

TITLE = "Scatterbrain, Robust PCA and the split at equal budget"
ORDER = 180
LOOK = {"label": mark("Robust PCA, cut to the budget"), "color": style.PALETTE[8], "marker": "P"}
TICKS = (0.5, 0.9, 0.99)
FLOOR, CEILING = 1e-3, 5.0


def _look(spec: str) -> dict[str, Any]:
    if spec == CUT:
        return LOOK | {"label": tr(LOOK["label"]), "linestyle": "--"}
    return style.look(spec) | {"label": optimality.label(spec, ERROR)}


def draw(table: pd.DataFrame) -> Figure:
    """Draw one column of panels an input: error at the budget; stored values of Robust PCA."""
    names = table.input.unique().tolist()
    with style.style():
        figure = Figure(figsize=(7.0, 4.7))
        axes = figure.subplots(2, len(names), sharex=True, sharey="row", height_ratios=[1.6, 1])
        for (above, below), name in zip(axes.T, names):
            part = table[table.input == name]
            errors = part[(part.metric == ERROR) & (part.method != PURSUIT)]
            for spec in [*style.order(errors.method[errors.method != CUT]), CUT]:
                middle = errors[errors.method == spec].groupby("entropy").value.median()
                above.plot(middle.index, middle.clip(upper=1e300), **_look(spec))
            share = part[(part.metric == "share") & (part.method == PURSUIT)]
            look = style.look(PURSUIT) | {"linestyle": "-"}
            below.plot(share.entropy, share.value, **look)
            below.axhline(1.0, color="black", linewidth=0.8)
            below.axhline(1 / SHARE, color="0.5", linewidth=0.8)
            above.set(yscale="log", ylim=(FLOOR, CEILING), title=name)
            below.set(xscale="logit", ylim=(0.0, None))
            below.set_xlabel(tr("row entropy / its largest"), fontsize=6.5)
            style.ticks(below, TICKS)
        axes[0, 0].set_ylabel(tr("relative error"))
        axes[1, 0].set_ylabel(tr("stored / exact"))
        style.legend(figure, list(axes.flat), columns=2)
    return figure


def finding(table: pd.DataFrame) -> str:
    wide = medians(table)
    times = (wide["scatterbrain"] / wide["godec"]).dropna().groupby("input").median()
    return tr(
        "Scatterbrain is {least:.2g} to {most:.2g} times above the best split found at its budget "
        "(medians of the inputs).",
        least=times.min(),
        most=times.max(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Above: relative Frobenius error of row-normalised attention at 1/{part} of exact "
        "attention's values. Below: what Robust PCA stores. Grey: the budget.",
        part=SHARE,
    )
