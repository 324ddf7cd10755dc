"""Normalised attention: the error of its output, and the bias that a ratio brings by itself."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.ratio_bias import compute as compute
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Output error and ratio bias of normalised attention"
ORDER = 270
FLOOR, CEILING = 1e-4, 10.0


def draw(table: pd.DataFrame) -> Figure:
    """Draw one column of panels an input: output error, then bias of the weights."""
    names, ts = table.input.unique().tolist(), sorted(table.temperature.unique())
    with style.style():
        figure = Figure(figsize=(7.4, 4.6))
        axes = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
        for (above, below), name in zip(axes.T, names):
            part = table[table.input == name]
            for spec in style.order(part.method.tolist()):
                look, wide = style.look(spec), _wide(part[part.method == spec])
                above.plot(wide.index, wide.output_error.clip(upper=CEILING), **look)
                if look["label"] != style.look("uniform()")["label"]:
                    _biases(below, wide, look)
            for ax in (above, below):
                ax.set(xscale="log", yscale="log")
                style.ticks(ax, ts)
            above.set(title=name, ylim=(FLOOR, CEILING))
            below.set(xlabel=tr("temperature t"), ylim=(FLOOR, CEILING))
        axes[0, 0].set_ylabel(tr("output error"))
        axes[1, 0].set_ylabel(tr("bias of the weights"))
        style.legend(figure, list(axes.flat))
    return figure


def _wide(part: pd.DataFrame, index: str | list[str] = "temperature") -> pd.DataFrame:
    wide = part.pivot(index=index, columns="metric", values="value")
    return wide.reindex(columns=[*wide.columns.union(["delta_bias"])])


def _biases(ax: Axes, wide: pd.DataFrame, look: dict[str, Any]) -> None:
    """Draw sampled biases that stand out of their noise, and the line of the delta method."""
    seen = wide[wide.sampled_bias > 2 * wide.noise]
    ax.plot(seen.index, seen.sampled_bias, **look | {"linestyle": ""})
    known = wide.dropna(subset=["delta_bias"])
    ax.plot(known.index, known.delta_bias, **look | {"marker": "", "label": None})


def finding(table: pd.DataFrame) -> str:
    wide = _wide(table, ["input", "temperature", "method"]).reset_index()
    bias = wide[(wide.method != "uniform()") & (wide.temperature == 1.0)].sampled_bias
    return tr(
        "Unbiased estimates of exp(q·k), normalised, have a bias of {least:.2g} to {most:.2g} of "
        "attention at t = 1.",
        least=bias.min(),
        most=bias.max(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Above: error of the output. Below: bias of the weights over their norm; markers above "
        "twice their noise, lines by the delta method."
    )
