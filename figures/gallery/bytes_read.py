"""Few bits of every key, or every bit of few keys: errors against the bytes that a query reads."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.bytes_read import METRICS, compute as compute, medians
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Few bits of all keys, or all bits of few keys"
ORDER = 394
FAMILIES = {
    "channel": (mark("equal steps by channel (KIVI)"), style.PALETTE[9], "D"),
    "token": (mark("equal steps by token"), style.PALETTE[3], "X"),
    "mse": (mark("rotated, rounded (TurboQuant)"), style.PALETTE[0], "o"),
    "eden": (mark("EDEN's scale"), style.PALETTE[5], "<"),
    "product": (mark("rotated, rounded + signs"), style.PALETTE[1], "^"),
    "sparq": (mark("SparQ"), style.PALETTE[4], "v"),
    "h2o": (mark("heavy hitters (H2O)"), style.PALETTE[2], "P"),
    "window": (mark("sink and window"), style.PALETTE[7], "s"),
}
FADED = "token", "eden"
CHOSEN = "sparq", "h2o", "window"
ERRORS = mark("total variation"), mark("relative error of the output")


def draw(table: pd.DataFrame) -> Figure:
    """Draw total variation with 16-bit values, and the output's error with the best values."""
    rows = medians(table)
    whole = rows[rows.family == "exact"].bytes_read.max()
    rows = rows.assign(share_read=rows.bytes_read / whole)
    with style.style():
        figure, axes = style.panels(1, 2, tr("share of exact attention's bytes"), "", height=3.4)
        for ax, metric, label in zip(axes.flat, METRICS, ERRORS):
            for family, (name, colour, marker) in FAMILIES.items():
                part = front(rows[rows.family == family], metric)
                line = "--" if family in CHOSEN else "-"
                ax.plot(
                    part.share_read, part[metric], line, color=colour, marker=marker,
                    label=tr(name),
                )  # fmt: skip
            eight = rows[(rows.family == "exact") & (rows.bits == 8)].iloc[0]
            ax.plot(
                eight.share_read, eight[metric], label=tr("all in 8 bits"),
                **style.dots("black", "*", 8),
            )  # fmt: skip
            ax.set(xscale="log", yscale="log", ylabel=tr(label))
            ax.set_xticks([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1], ["1/16", "1/8", "1/4", "1/2", "1"])
            ax.minorticks_off()
        named = best(table, METRICS[1], 0.25).family  # by the title
        faded = [tr(FAMILIES[family][0]) for family in FADED if family != named]
        style.legend(figure, list(axes.flat), columns=4, faded=faded)
    return figure


def front(part: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the rows with less error than all that read no more, cheapest first.

    Total variation does not see values, and is shown with those of 16 bits.
    """
    if metric == METRICS[0]:
        return part[part.value_bits == 16].sort_values("bytes_read")
    part = part.sort_values(["bytes_read", metric])
    return part[part[metric] == part[metric].cummin()]


def best(table: pd.DataFrame, metric: str, share: float) -> pd.Series:
    """Return the least error that reads at most a share of exact attention's bytes."""
    rows = medians(table)
    whole = rows[rows.family == "exact"].bytes_read.max()
    some = rows[(rows.bytes_read <= share * whole) & (rows.family != "exact")]
    found: pd.Series = some.loc[some[metric].idxmin()]
    return found


def _named(row: pd.Series) -> str:
    name = tr(FAMILIES[row.family][0]) if row.family in FAMILIES else str(row.family)
    if row.family in CHOSEN:
        return name
    return tr(
        "{name}, keys {bits} and values {values} bits",
        name=name,
        bits=int(row.bits),
        values=int(row.value_bits),
    )


def finding(table: pd.DataFrame) -> str:
    row = best(table, METRICS[1], 0.25)
    return tr(
        "At a quarter of exact attention's bytes {name} has the least output error, {error:.2g}.",
        name=_named(row),
        error=row[METRICS[1]],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Medians over {heads} causal heads. Solid: all keys in few bits; dashed: few keys in 16. "
        "Right: with the best bits of values.",
        heads=len(table.drop_duplicates(["input", "layer", "head"])),
    )
