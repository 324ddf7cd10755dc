"""Bounds that an estimate carries with it, row by row, against the errors that they bound."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.certificates import BOXES, CODES, NORMS, compute as compute
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "What an estimate knows of its own error"
ORDER = 290
METRIC = "attention_tv"
LEAST = 1e-4  # smaller errors and bounds are drawn there
LOOKS: dict[Any, tuple[str, str, str]] = {  # by source and bits
    (BOXES.name, 0): (mark("boxes of {size} keys"), style.PALETTE[3], "s"),
    (BOXES.name, CODES[0].bits): (
        mark("boxes, and {bits} bits a coordinate"), style.PALETTE[1], "^",
    ),
    (BOXES.name, CODES[1].bits): (
        mark("boxes, and {bits} bits a coordinate"), style.PALETTE[0], "o",
    ),
    (NORMS.name, 0): (mark("norms of what was dropped"), style.PALETTE[2], "D"),
}  # fmt: skip


def of_metric(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are drawn."""
    return table[table.metric == METRIC]


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per method: a point per row of attention and source, and where both agree."""
    some = of_metric(table)
    with style.style():
        x, y = tr("total variation of a row"), tr("its bound")
        figure, axes = style.panels(2, 2, x, y, height=2.4)
        for ax, (method, part) in zip(axes.flat, some.groupby("method", sort=False)):
            for (source, bits), rows in part.groupby(["source", "bits"], sort=False):
                label, colour, marker = LOOKS[source, bits]
                ax.plot(
                    rows.truth.clip(LEAST), rows.value.clip(LEAST),
                    label=tr(label, size=int(rows["size"].iloc[0]), bits=bits), alpha=0.5,
                    markeredgewidth=0, **style.dots(colour, marker, 3),
                )  # fmt: skip
            ax.plot([LEAST, 1], [LEAST, 1], color="black", linewidth=0.8, label=tr("the error"))
            ax.set(xscale="log", yscale="log", title=style.label(str(method)))
        style.legend(figure, list(axes.flat), columns=3)
    return figure


def finding(table: pd.DataFrame) -> str:
    some = of_metric(table)
    rows = some[(some.truth > LEAST) & (some.source == BOXES.name)]
    ratio = (rows.value / rows.truth).groupby(rows.bits).median()
    bits = int(ratio.index.max())
    return tr(
        "Bounds from page boxes are {boxes:.0f} times the error of a row; with {bits} bits a "
        "coordinate of each key, {coded:.2g} times.",
        boxes=ratio[0],
        bits=bits,
        coded=ratio[bits],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Total variation of rows, and upper bounds that use no logit of an unread key; on "
        "the line, the bound equals the error."
    )
