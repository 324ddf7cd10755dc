"""Weighing drawn keys by 1/π against replacing: which is nearer, and what the rule says of it."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.weights import (
    FEATURES,
    NOTHING,
    POLYNOMIAL,
    SUPPORTS,
    compute as compute,
)
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "When to weigh what is drawn, and when to replace"
ORDER = 280
LOOKS = {
    ("output", NOTHING): (mark("normalised output, nothing beneath"), style.PALETTE[2]),
    ("row_sum", FEATURES): (mark("row sum, around positive features"), style.PALETTE[4]),
    ("row_sum", POLYNOMIAL): (mark("row sum, around Taylor"), style.PALETTE[1]),
    ("row_sum", NOTHING): (mark("row sum, nothing beneath"), style.PALETTE[0]),
}
MARKERS = dict(zip(SUPPORTS, "^o"))
LIMITS = 1e-2, 1e2  # of both axes; what is beyond is drawn there


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per query, with a column for each metric and the stderr of the output."""
    keys = ["input", "layer", "head", "temperature", "support", "low_rank", "query"]
    outputs = table[table.metric == "output"].set_index(keys)
    found = table.pivot_table("value", keys, "metric", sort=False, dropna=True)
    return found.join(outputs.stderr).reset_index()


def draw(table: pd.DataFrame) -> Figure:
    """Draw one panel per head: the ratio of the two errors against N_eff over its threshold."""
    found = wide(table)
    heads = list(found.groupby(["input", "layer", "head"], sort=False))
    with style.style():
        x, y = "N$_{eff}$ / (1 + (1 + v/b²)/π)", tr("error², weighed / replaced")
        figure, axes = style.heads(len(heads), x, y, height=2.0, size=7.5)
        for ax, ((name, *_), part) in zip(axes, heads):
            for (metric, low_rank), (label, colour) in LOOKS.items():
                for support, marker in MARKERS.items():
                    some = part[(part.low_rank == low_rank) & (part.support == support)]
                    ax.plot(
                        some.rule.clip(*LIMITS), some[metric].clip(*LIMITS), alpha=0.5,
                        markeredgewidth=0, label="_", **style.dots(colour, marker, 2.6),
                    )  # fmt: skip
                ax.plot([], [], label=tr(label), **style.dots(colour, "s", 4))
            for support, marker in MARKERS.items():
                ax.plot([], [], label=style.label(support), **style.dots("0.3", marker, 4))
            for line in (ax.axhline, ax.axvline):
                line(1.0, color="black", linewidth=0.8)
            ax.set(xscale="log", yscale="log", xlim=LIMITS, ylim=LIMITS, title=name)
            ax.minorticks_off()
        for ax in axes[-4:]:
            ax.tick_params(labelbottom=True)  # also above a place without a head
            ax.set_xlabel(x, fontsize=7.5)
        bare = found[(found.low_rank == NOTHING) & (found.temperature == 1.0)]
        figure.suptitle(
            tr(
                "Weighting wins for {sums:.0%} of row sums, and for {outputs:.0%} of outputs "
                "(t = 1)",
                sums=(bare.row_sum < 1).mean(),
                outputs=(bare.output < 1).mean(),
            ),
            fontsize=9,
        )
        style.legend(figure, axes, columns=3)
    return figure


def finding(table: pd.DataFrame) -> str:
    found = wide(table)
    bare = found[found.low_rank == NOTHING]
    return tr(
        "Weighting drawn keys beats replacing in {sums:.0%} of {count} rows; the rule "
        "predicts which in {right:.0%}.",
        sums=_nearer(bare.row_sum),
        count=bare.row_sum.size,
        right=_agree(bare.rule, bare.row_sum),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean squared error of a row with weights 1/π over that without. Across: N_eff of the rest "
        "over 1 + (1 + v/b²)/π, the rule."
    )


def _nearer(ratio: pd.Series) -> float:
    """Return the share of rows in which weighing is nearer, 0 of none."""
    return float((ratio < 1).mean()) if len(ratio) else 0.0


def _agree(rule: pd.Series, ratio: pd.Series) -> float:
    """Return the share of rows in which the rule says which is nearer."""
    return float(((rule > 1) == (ratio < 1)).mean()) if len(ratio) else 0.0
