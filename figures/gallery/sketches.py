"""Sketches of exp and of its tensor power beside positive features: error against width and t."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.sketches import (
    BASELINES,
    EXPECTED,
    KERNEL,
    LIMIT,
    SIZES,
    TAYLOR,
    TEMPERATURE,
    TEMPERATURES,
    TV,
    D,
    M,
    compute as compute,
)  # fmt: skip
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Sketches beside positive features"
ORDER = 310
FADED = "squared_sketch()", "random_maclaurin(law='poisson')", TAYLOR  # unless they are best
LINES = {LIMIT: "-", TAYLOR: "-.", "uniform()": "--"}


def _families(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    label = table.method.map(lambda spec: style.look(spec)["label"])
    return {name: part for name, part in table.groupby(label, sort=False)}


def draw(table: pd.DataFrame) -> Figure:
    """Draw kernel error and total variation, against width and against temperature."""
    with style.style():
        figure = Figure(figsize=(7.0, 5.6))
        axes = figure.subplots(2, 2, sharex="col", sharey="row")
        for column, key in enumerate(("budget", "temperature")):
            fixed = table.temperature == TEMPERATURE if key == "budget" else table.budget == 2 * M
            for part in _families(table[fixed & (table.budget > 0)]).values():
                _line(axes[0, column], part, key, KERNEL, EXPECTED)
                _line(axes[1, column], part, key, TV, TV)
            for spec in BASELINES:
                part = table[(table.method == spec) & ((key != "budget") | fixed)]
                look = style.look(spec) | {"color": "0.4", "marker": "", "linestyle": LINES[spec]}
                for ax, metric in zip(axes[:, column], (KERNEL, TV)):
                    y = part[part.metric == metric].sort_values("temperature")
                    if key == "budget":
                        ax.axhline(y.value.iloc[0], **look)
                    else:
                        ax.plot(y.temperature, y.value, **look)
            axes[1, column].set(xscale="log")
            axes[1, column].minorticks_off()
        axes[0, 0].set(yscale="log", ylabel=tr("relative error of exp(q·k)"), ylim=(5e-4, 1e4))
        axes[1, 0].set(yscale="log", ylabel=tr("total variation of attention"), ylim=(1e-4, 20))
        axes[0, 0].set_title(tr("temperature {temperature:g}", temperature=TEMPERATURE))
        axes[0, 1].set_title(tr("width {m}", m=M))
        axes[1, 0].set(xlabel=tr("width m"))
        axes[1, 0].set_xticks(SIZES, [str(m) for m in SIZES])
        axes[1, 1].set(xlabel=tr("temperature"))
        axes[1, 1].set_xticks(TEMPERATURES, [f"{t:g}" for t in TEMPERATURES])
        faded = {*map(style.label, FADED)}
        style.legend(
            figure, list(axes.ravel()), columns=2, faded=faded - {style.label(best(table)[0])}
        )
    return figure


def _line(ax: Axes, part: pd.DataFrame, key: str, metric: str, line: str) -> None:
    """Draw a line, and markers of what was measured: hollow where a sample is not reliable."""
    look = style.look(part.method.iloc[0])
    marker = look.pop("marker")
    scale = 2.0 if key == "budget" else 1.0
    wide = part.pivot_table(index=key, columns="metric", values="value")
    wide.index = wide.index / scale
    ax.plot(wide.index, wide[line], **look)
    for heavy, filled in ((True, "none"), (False, look["color"])):
        cells = wide[(wide.believable < 0.5) == heavy]
        ax.plot(
            cells.index, cells[metric], linestyle="none", marker=marker,
            markeredgecolor=look["color"], markerfacecolor=filled, label=f"_{look['label']}",
        )  # fmt: skip


def best(table: pd.DataFrame) -> tuple[str, float]:
    """Return the method with the least total variation at the fixed width and temperature."""
    at = table[(table.temperature == TEMPERATURE) & (table.budget == 2 * M) & (table.metric == TV)]
    least = at.iloc[int(at.value.argmin())]
    return str(least.method), float(least.value)


def finding(table: pd.DataFrame) -> str:
    method, tv = best(table)
    return tr(
        "At t = {temperature:g} and width {m}, {method} has the least total variation, {tv:.2g}.",
        temperature=TEMPERATURE,
        m=M,
        method=style.label(method),
        tv=tv,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Gaussian q, k at d = {d}. Above: expected error of exp(q·k) in closed form; markers: "
        "draws, hollow where not reliable. Below: total variation.",
        d=D,
    )
