"""How often bounds of sampled rows fail, against what they promise, and how wide valid ones are."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.bounds.concentration import PROVED
from analysis.experiments.coverage import (
    HEAVY,
    PLACES,
    RULE,
    compute as compute,
)
from figures.drawing import style
from figures.words.translation import mark, share, tr

TITLE = "Whether bounds of sampled rows hold"
ORDER = 300
COLOURS = {HEAVY: style.PALETTE[0], PLACES: style.PALETTE[1]}
PROMISES = {"normal": (mark("normal interval"), "o"), RULE: (mark("(ε, δ) rule"), "^")}
WIDTHS = {  # kind and range: label, colour, marker
    ("empirical_bernstein", "boxes"): (mark("empirical Bernstein, boxes"), "0.55", "v"),
    ("betting", "boxes"): (mark("bets, boxes"), style.PALETTE[7], "D"),
    ("empirical_bernstein", "held"): (mark("empirical Bernstein, top-k"), style.PALETTE[4], "v"),
    ("betting", "held"): (mark("bets, top-k"), style.PALETTE[2], "D"),
    ("normal", "boxes"): (mark("normal, no bound"), "black", "o"),
}
DELTA = 0.05  # of the middle and the right panel
ROW = ["input", "layer", "head", "query", "support"]
LEAST = 1e-4  # of both axes on the right
APART = 0.06  # of the series on the left, as a power of 10


def failures(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return how often the row sums of each row fail, and the share that the largest key has."""
    found = table[(table.kind == kind) & (table.metric == "failure")]
    share = table[table.metric == "largest_of_rest"].set_index(ROW).value.rename("share")
    return found[found.largest.isin(("boxes", "none"))].join(share, on=ROW)


def widths(table: pd.DataFrame, kind: str, largest: str) -> pd.DataFrame:
    """Return the median bound of each row beside the error that it is to bound."""
    some = table[(table.kind == kind) & (table.largest == largest) & (table.delta == DELTA)]
    error = table[(table.metric == "error") & (table.delta == DELTA)].set_index(ROW).value
    return some[some.metric == "row_sum"].join(error.rename("error"), on=ROW)


def draw(table: pd.DataFrame) -> Figure:
    """Draw failures against δ and against the largest key, and widths against errors."""
    with style.style():
        figure, axes = style.panels(1, 3, height=2.8)
        left, middle, right = axes.flat
        deltas = sorted(table.delta.dropna().unique())
        for place, (kind, (label, marker)) in enumerate(PROMISES.items()):
            for side, (support, colour) in enumerate(COLOURS.items()):
                found = failures(table, kind)
                found = found[found.support == support]
                shift = 10 ** (APART * (2 * place + side - 1.5))
                left.plot(
                    found.delta * shift, found.value, alpha=0.4, markeredgewidth=0,
                    label="_", **style.dots(colour, marker, 3),
                )  # fmt: skip
                middles = found.groupby("delta").value.median()
                left.plot(middles.index * shift, middles, color=colour, linewidth=0.8)
                name = f"{tr(label)}, {style.label(support)}"
                left.plot([], [], label=name, **style.dots(colour, marker, 4))
        left.plot(deltas, deltas, color="black", linewidth=0.9, label=tr("promised"))
        left.set(xscale="log", xlabel="δ", ylabel=tr("share of draws that fail"), ylim=(-0.02, 1))
        style.ticks(left, [*deltas[:2], *deltas[3:]])  # the third has no room
        normal = failures(table, "normal")
        for support, colour in COLOURS.items():
            found = normal[(normal.support == support) & (normal.delta == DELTA)]
            bars = [found.value - found.low, found.high - found.value]
            middle.errorbar(
                found.share, found.value, yerr=bars, fmt="o", color=colour, markersize=2.6,
                linewidth=0.6, label="_",
            )  # fmt: skip
        middle.axhline(DELTA, color="black", linewidth=0.9)
        middle.set(
            xscale="log", xlabel=style.lines(tr("largest key / sum of the rest"), 20),
            title=tr("normal, δ = {delta:g}", delta=DELTA), ylabel=tr("share of draws that fail"),
        )  # fmt: skip
        middle.minorticks_off()
        for (kind, largest), (label, colour, marker) in WIDTHS.items():
            found = widths(table, kind, largest)
            right.plot(
                found.error.clip(lower=LEAST), found.value.clip(lower=LEAST), alpha=0.7,
                markeredgewidth=0, label=tr(label), **style.dots(colour, marker, 3),
            )  # fmt: skip
        ends = [LEAST, 1]
        right.plot(ends, ends, color="black", linewidth=0.9)
        right.set(
            xscale="log", yscale="log", xlabel=style.lines(tr("1 − δ quantile of the error"), 20),
            title=tr("median bound, δ = {delta:g}", delta=DELTA),
        )  # fmt: skip
        style.legend(figure, right)
        handles, names = left.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower left", ncols=2)
    return figure


def finding(table: pd.DataFrame) -> str:
    normal = failures(table, next(iter(PROMISES)))
    normal = normal[normal.delta == DELTA]
    proved = table[table.kind.isin(PROVED) & table.metric.isin(("failure", "tv_failure"))]
    return tr(
        "The normal interval fails in more than {delta:.0%} of draws on {share}, proved bounds "
        "in {most:.1%} at most.",
        delta=DELTA,
        share=share(_certain(normal), len(normal), mark("rows")),
        most=proved.value.max(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Left and middle: failures for sums of drawn keys, with 95 % intervals. Right: proved "
        "bounds beside errors."
    )


def _certain(found: pd.DataFrame) -> int:
    """Return of how many rows even the least end of the interval is above δ."""
    return int((found.low > found.delta).sum())
