"""Bounds that an estimate carries with it, row by row, against the errors that they bound."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.certificates import BOXES, CODES, compute as compute
from figures.drawing import looks, style
from figures.words.translation import mark, tr

TITLE = "What an estimate knows of its own error"
ORDER = 290
LEAST_ERROR = 1e-4  # rows with less error are left out
LOOKS = (  # by bits of a code
    (0, mark("bound from boxes of {size} keys"), looks.PALETTE[2], "s"),
    (CODES.bits, mark("bound from boxes and {bits} bits a coordinate"), looks.PALETTE[0], "o"),
)


def _bounds(table: pd.DataFrame) -> pd.DataFrame:
    return table[table.truth > LEAST_ERROR]


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per method: a point per row of attention and source, and where both agree."""
    some = _bounds(table)
    methods = some.method.unique()
    figure, axes = style.row(len(methods), 3.2, sharex=True, sharey=True)
    for ax, method in zip(axes, methods):
        for bits, label, colour, marker in LOOKS:
            rows = some[(some.method == method) & (some.bits == bits)]
            name = tr(label, size=BOXES.size, bits=bits)
            look = style.dots(colour, marker, 3) | {"alpha": 0.5, "markeredgewidth": 0}
            ax.plot(rows.truth, rows.value, label=name, **look)
        ax.plot([LEAST_ERROR, 1], [LEAST_ERROR, 1], color="black", label=tr("bound = error"))
        ax.set(xscale="log", yscale="log", title=looks.label(method))
        ax.set_xlabel(tr("error: total variation"))
    axes[0].set_ylabel(tr("upper bound of the error"))
    style.legend(figure, axes)
    return figure


def finding(table: pd.DataFrame) -> str:
    rows = _bounds(table)
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
