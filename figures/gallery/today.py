"""What people use today, at equal price in each currency: the best of each class."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.today import compute as compute
from figures.drawing import style
from figures.words.amounts import NAMES
from figures.words.translation import tr

TITLE = "What people use today, at equal price"
ORDER = 210
LINES = {  # a class's colour and marker
    "columns": (style.PALETTE[1], "P"), "pages": (style.PALETTE[3], "d"),
    "lines": (style.PALETTE[9], "^"), "window": (style.PALETTE[7], "s"),
    "entries": (style.PALETTE[6], "v"), "sampled": (style.PALETTE[8], "*"),
    "hierarchical": (style.PALETTE[0], "o"), "low rank": (style.PALETTE[2], "D"),
    "sparse + low rank": (style.PALETTE[4], "X"), "compressed logits": (style.PALETTE[5], "h"),
}  # fmt: skip


FADED = "sampled", "lines", "pages", "window", "sparse + low rank"
MARKS = {"magicpig": "P", "vattention": "*", "guarded": "s"}


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Return medians over heads, of what has a size at each budget on every head."""
    heads = len(table.drop_duplicates(["input", "layer", "head"]))
    keys = ["currency", "keys", "class", "asked", "oracle", "runnable"]
    found = table.groupby(keys).value.agg(["median", "size"]).reset_index()
    return found[found["size"] == heads].rename(columns={"median": "tv"})


def best(table: pd.DataFrame, which: str) -> pd.DataFrame:
    """Return the nearest method of each class, "runnable" or "oracle", at each budget."""
    some = medians(table)
    some = some[some[which] & (some["keys"] > 0)]
    return some.loc[some.groupby(["currency", "keys", "class"]).tv.idxmin()]


def adaptive(table: pd.DataFrame) -> pd.DataFrame:
    """Return the methods whose number of keys follows from the inputs, at what they store."""
    return table[table["keys"] < 0]


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per currency: medians of the best of each class, dashed with all logits.

    What chooses its own number of keys is a point where it stores so many values, and where it
    reads as much as the numbers of so many keys with their values, if that is known.
    """
    runs, oracles = best(table, "runnable"), best(table, "oracle")
    with style.style():
        x = style.lines(tr("price of so many exact keys per query row"), 24)
        figure, axes = style.panels(2, 2, x, tr("total variation"), height=2.4)
        for ax, (currency, name) in zip(axes.flat, NAMES.items()):
            for found, line in ((runs, "-"), (oracles, "--")):
                for kind, part in found[found.currency == currency].groupby("class"):
                    colour, marker = LINES[str(kind)]
                    ax.plot(
                        part["keys"], part.tv, line, color=colour, marker=marker, markersize=4,
                        label=tr(str(kind)),
                    )  # fmt: skip
            keys = table[(table.currency == currency) & (table["keys"] > 0)]
            one = (keys[currency] / keys["keys"]).max()  # the price of one exact key
            for spec, part in adaptive(table).groupby("asked"):
                if currency not in ("stored", "reads") or part[currency].isna().any():
                    continue
                look = style.look(str(spec))
                ax.plot(
                    part[currency].median() / one, part.value.median(), label=look["label"],
                    **style.dots(look["color"], MARKS.get(str(spec).partition("(")[0], "*"), 7),
                )  # fmt: skip
            ax.set(xscale="log", yscale="log", title=tr(name))
            style.ticks(ax, sorted(k for k in table["keys"].unique() if k > 0))
        style.legend(figure, list(axes.flat), columns=4, faded=_faded(table))
    return figure


def _faded(table: pd.DataFrame) -> list[str]:
    """Return the names of what is grey: classes which the title names never are."""
    kinds = {tr(str(row["class"])) for row in _nearest(table)}
    asked = [str(spec) for spec in adaptive(table).asked.unique()]
    own = [style.label(spec) for spec in asked if not spec.startswith("guarded")]
    return [*({tr(kind) for kind in FADED} - kinds), *own]


def _nearest(table: pd.DataFrame) -> list[pd.Series]:
    """Return the nearest method that can be run, by stored values and by reads, at some keys."""
    runs = best(table, "runnable")
    at = runs[runs["keys"] == min(runs["keys"], key=lambda k: abs(k - 32))]
    return [at[at.currency == paid].sort_values("tv").iloc[0] for paid in ("stored", "reads")]


def finding(table: pd.DataFrame) -> str:
    nearest = _nearest(table)
    return tr(
        "At the price of {keys} keys, {stored} has the least tv by stored values ({tv:.2g}), "
        "and {reads} by reads ({other:.2g}).",
        keys=nearest[0]["keys"],
        stored=style.label(nearest[0].asked),
        tv=nearest[0].tv,
        reads=style.label(nearest[1].asked),
        other=nearest[1].tv,
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Medians over causal heads, the best of each class; dashed: needs all logits; points: "
        "methods with their own number of keys."
    )
