"""Expected Frobenius error, predicted in closed form, against the error of independent draws."""

import math
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.predicted_error import (
    SPECS,
    TEMPERATURES,
    compute as compute,
)
from figures.drawing import style
from figures.words.translation import mark, share, tr

TITLE = "Predicted and measured error of the whole matrix"
ORDER = 260
LOOKS = dict(
    zip(
        SPECS,
        (
            ("Performer", style.PALETTE[0], "o"),
            (mark("hyperbolic features"), style.PALETTE[9], "v"),
            ("FAVOR++", style.PALETTE[2], "s"),
            (mark("Scatterbrain, window"), style.PALETTE[5], "X"),
            (mark("Scatterbrain, random keys"), style.PALETTE[3], "P"),
            (mark("Scatterbrain, LSH"), style.PALETTE[4], "D"),
        ),
    )
)


def draw(table: pd.DataFrame) -> Figure:
    """Draw the errors above, measured over predicted squares below, one column an input."""
    with style.style():
        names = table.input.unique().tolist()
        figure = Figure(figsize=(7.2, 5.4))
        axes = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
        for column, name in zip(axes.T, names):
            for place, (spec, (label, colour, marker)) in enumerate(LOOKS.items()):
                part = table[(table.input == name) & (table.method == spec)]
                at = {m: p.set_index("temperature") for m, p in part.groupby("metric")}
                aside = 1.06 ** (place - (len(LOOKS) - 1) / 2)  # so that bars stand side by side
                predicted = at["predicted_error"].value
                column[0].plot(predicted.index, predicted, color=colour)
                full = at["believable"].value == 1.0
                measured, ratio = at["measured_error"], at["square_ratio"]
                look = style.dots(colour, marker, 3.5)
                empty = look | {"markerfacecolor": "white", "markeredgewidth": 0.8}
                column[0].plot([], [], **look | {"linestyle": "-", "label": tr(label)})
                for keep, dot in ((full, look), (~full, empty)):
                    column[0].plot(measured.index[keep], measured.value[keep], **dot)
                    column[1].plot(aside * ratio.index[keep], ratio.value[keep], **dot)
                sure = ratio[full]
                bar: dict[str, Any] = {"color": colour, "linestyle": "", "elinewidth": 0.8}
                column[1].errorbar(aside * sure.index, sure.value, 2 * sure.stderr, **bar)
            hollow = {"markerfacecolor": "white", "label": tr("not reliable")}
            column[0].plot([], [], color="black", linestyle="", marker="o", **hollow)
            column[0].set(xscale="log", yscale="log", ylim=(1e-3, 1e6), title=name)
            column[1].axhline(1.0, color="0.4", linewidth=0.9)
            column[1].set(ylim=(-0.06, 1.6), xlabel=tr("temperature t"))
            column[1].set_xticks(TEMPERATURES, [_short(t) for t in TEMPERATURES])
            for ax in column:
                ax.minorticks_off()
        axes[0, 0].set_ylabel(tr("relative Frobenius error"))
        axes[1, 0].set_ylabel(tr("measured over predicted square"))
        style.legend(figure, list(axes.flat))
    return figure


def _short(t: float) -> str:
    return "½" if t == 0.5 else f"{t:g}"


def finding(table: pd.DataFrame) -> str:
    wide = _wide(table)
    sure, rest = wide[wide.believable == 1.0], wide[wide.believable == 0.0]
    said = share(len(sure), len(wide), mark("cells"))
    if rest.empty:
        return tr("Draws are reliable in {share}, and agree with the closed form.", share=said)
    return tr(
        "Draws are reliable in {share}; elsewhere they show as little as {number} of the "
        "predicted squared error.",
        share=said,
        number=_number(rest.square_ratio.min()),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Relative Frobenius error of exp(q·k). Lines: closed form; markers: draws, hollow where "
        "not reliable. Below: ratios of squares."
    )


def _number(value: float) -> str:
    if 1e-3 <= value < 1e4:
        return f"{value:.2g}"
    power = math.floor(math.log10(value)) if 0 < value < math.inf else 0
    return f"{value / 10**power:.1f}·10^{power}^"


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    return table.pivot_table(
        index=["input", "method", "temperature"], columns="metric", values="value"
    )


def z_scores(table: pd.DataFrame) -> pd.Series:
    """Return |ratio − 1| in standard errors of the sample, where reliable."""
    keys = ["input", "method", "temperature"]
    ratio = table[table.metric == "square_ratio"].set_index(keys)
    ratio = ratio[_wide(table).believable.reindex(ratio.index) == 1.0]
    return (ratio.value - 1).abs() / ratio.stderr
