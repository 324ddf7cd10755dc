"""The standard figure of any tidy table of methods: errors of every input, in one call."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from figures.drawing import style
from figures.words.translation import mark, tr

LABELS = {
    "attention_tv": mark("attention total variation"),
    "attention_relative_frobenius": mark("relative Frobenius error of attention"),
    "kernel_relative_frobenius": mark("relative Frobenius error of exp(q·k)"),
    "output_relative_error": mark("relative error of the output"),
    "rank": mark("rank"),
}
AXES = {"temperature": mark("temperature t"), "budget": mark("stored values per query row")}


def plot(table: pd.DataFrame, metric: str = "attention_tv") -> Figure:
    """Return the figure of a table that `sweep` or `submit` returned, a panel an input.

    Medians over trials, with their range as a band or a bar, are drawn against the temperature, or
    against the budget where there is one temperature; where there is one of both, each method has a
    line of its own, the least error on top.

    Parameters
    ----------
    table : DataFrame
        With the columns of a sweep.
    metric : str
        One of its metrics.

    Raises
    ------
    ValueError
        The table has no such metric.

    Examples
    --------
    >>> from analysis.inputs import gaussian
    >>> from analysis.sweeps.sweep import sweep
    >>> from approx import parse
    >>> specs = [parse("uniform()"), parse("top_k(k=2)")]
    >>> table = sweep(specs, [gaussian(8, 2, rng=0)], [0.5, 1.0], trials=1, seed=0)
    >>> plot(table).axes[0].get_xlabel()
    'temperature t'
    """
    part = table[(table.metric == metric) & np.isfinite(table.value)]
    if part.empty:
        known = ", ".join(sorted(set(table.metric)))
        raise ValueError(f"metric must be one of {known}, with finite values, got {metric!r}")
    varied = next((name for name in AXES if part[name].nunique() > 1), None)
    label = tr(LABELS[metric]) if metric in LABELS else metric
    with style.style():
        return _ranked(part, label) if varied is None else _curves(part, varied, label)


def _curves(part: pd.DataFrame, varied: str, label: str) -> Figure:
    inputs = part.input.unique().tolist()
    figure, axes = style.tiles(len(inputs), tr(AXES[varied]), label)
    part = part.assign(known=part.method.map(_family)) if varied == "budget" else part
    lines = "known" if varied == "budget" else "method"
    for ax, name in zip(axes, inputs):
        own = part[part.input == name]
        for spec in style.order(own[lines].unique().tolist()):
            values = own[own[lines] == spec].groupby(varied).value
            look = style.look(own[own[lines] == spec].method.iloc[0])
            look |= {"label": spec} if lines == "known" else {}
            ax.plot(values.median().index, values.median(), **look)
            if values.size().max() > 1:
                ax.fill_between(
                    values.min().index, values.min(), values.max(), color=look["color"],
                    alpha=0.15, linewidth=0,
                )  # fmt: skip
        ax.set(xscale="log", yscale="log" if (part.value > 0).all() else "linear", title=name)
        style.ticks(ax, sorted(part[varied].unique()))
    style.legend(figure, axes, columns=2)
    return figure


def _family(spec: str) -> str:
    return spec.split("(")[0]


def _ranked(part: pd.DataFrame, label: str) -> Figure:
    inputs = part.input.unique().tolist()
    most = int(part.groupby("input").method.nunique().max())
    figure = Figure(figsize=(7.0, len(inputs) * (0.23 * most + 0.55) + 0.3))
    axes = figure.subplots(len(inputs), 1, sharex=True, squeeze=False)[:, 0]
    for ax, name in zip(axes, inputs):
        values = part[part.input == name].groupby("method").value
        middle = values.median().sort_values(ascending=False)
        least, greatest = values.min()[middle.index], values.max()[middle.index]
        for place, (spec, value) in enumerate(middle.items()):
            look = style.look(str(spec))
            dot = style.dots(look["color"], look["marker"] or "|", 5)
            bar = [[value - least[spec]], [greatest[spec] - value]]
            ax.errorbar(value, place, xerr=bar, capsize=2, clip_on=False, **dot)
        ax.set(title=name, ylim=(-0.6, len(middle) - 0.4))
        ax.set_yticks(range(len(middle)), [style.label(str(spec)) for spec in middle.index])
    axes[-1].set(xlabel=label, xlim=(min(0.0, part.value.min()), None))
    return figure
