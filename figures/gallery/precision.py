"""Rounding error against approximation error: float32 arithmetic, bfloat16 inputs."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.precision import EXACT, compute as compute
from figures.drawing import style
from figures.words.translation import mark, share_of, tr

TITLE = "Rounding against approximation"
ORDER = 360
LABELS = {
    "approximation": mark("approximation, float64"),
    "float32": mark("rounding, float32"),
    "bfloat16": mark("rounding, bfloat16 inputs"),
}
FADED = "trigonometric", "scatterbrain", "taylor", "tensor_power"
FLOOR, CEILING = 1e-8, 30.0


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Return the median over trials: a row an input, temperature and method, a column an error."""
    keys = ["input", "temperature", "method"]
    return table.pivot_table(
        index=keys, columns="metric", values="value", aggfunc="median", sort=False
    ).reset_index()


def draw(table: pd.DataFrame) -> Figure:
    """Draw a column an input; above the approximation error, then rounding in each format."""
    wide, names = medians(table), table.input.unique().tolist()
    ts = sorted(table.temperature.unique())
    with style.style():
        figure = Figure(figsize=(7.4, 6.2))
        axes = figure.subplots(len(LABELS), len(names), sharex=True, sharey=True, squeeze=False)
        for column, name in enumerate(names):
            part = wide[wide.input == name]
            for row, (metric, text) in enumerate(LABELS.items()):
                ax = axes[row, column]
                for spec in style.order(part.method[part.method != EXACT].tolist()):
                    line = part[part.method == spec].sort_values("temperature")
                    ax.plot(line.temperature, line[metric].clip(FLOOR, CEILING), **style.look(spec))
                floor = part[part.method == EXACT].sort_values("temperature")
                if metric != "approximation":
                    ax.plot(
                        floor.temperature,
                        floor[metric],
                        color="black",
                        lw=2.2,
                        label=tr("exact attention"),
                    )
                ax.set(xscale="log", yscale="log", ylim=(FLOOR, CEILING))
                style.x_ticks(ax, ts)
                if column == 0:
                    ax.set_ylabel(tr(text))
            axes[0, column].set_title(name)
            axes[-1, column].set_xlabel(tr("temperature t"))
        faded = [style.label(s) for s in table.method.unique() if s.startswith(FADED)]
        style.legend(figure, list(axes.flat), faded=faded)
    return figure


def finding(table: pd.DataFrame) -> str:
    wide = medians(table)
    run = wide[wide.method != EXACT]
    single, short = (
        share_of(run[form] > run.approximation, mark("cases")) for form in ("float32", "bfloat16")
    )
    return tr(
        "Rounding exceeds approximation in {single} in float32, and in {short} in bfloat16.",
        single=single,
        short=short,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Relative error of the output by rounding and by approximation, against float64 with "
        "the same draws; medians over trials."
    )
