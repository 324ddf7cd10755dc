"""Weighing drawn keys by 1/π against replacing: which is nearer, and what the rule says of it."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.weights import (
    DRAWN,
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
MUCH = 0.75  # of the attention


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


def details(table: pd.DataFrame) -> str:
    found = wide(table)
    bare, taylor, features = (
        found[found.low_rank == spec] for spec in (NOTHING, POLYNOMIAL, FEATURES)
    )
    sure = bare[(bare.output - 1).abs() > 3 * bare.stderr]
    much = (bare.support == SUPPORTS[0]) & (bare.mass > MUCH)
    return tr(
        "Mean squared error of a row where drawn keys have the weight 1/π, over that where they "
        "replace what stands for them: {drawn} keys are drawn without replacement, beside the "
        "{drawn} largest, or the first key and the last {last}, which are exact. Queries of {n} "
        "tokens at most, t from {coldest:g} to {hottest:g}; what is beyond the axes is drawn at "
        "their ends. Across: N_eff of the rest (median {number:.0f}) over 1 + (1 + v/b²)/π, with "
        "π = (k + 1)/(N − 1) for k different keys of N, and b, v those of the row. Row sums, in "
        "closed form: with nothing beneath, weighing is nearer in {sums:.0%} of {count} rows, and "
        "the rule is right in {right:.0%}. Around Taylor's polynomial, whose b differs from key to "
        "key, it is right in {right_taylor:.0%}. Around features, which are unbiased, it says "
        "never (left end), but keys share their frequencies: weighing is nearer in {shared:.0%}, "
        "and in {hot:.0%} of those at t = {hottest:g}. The effective number of errors is right in "
        "{exact:.0%}. Normalised outputs, by Monte Carlo ({sure} rows are over three standard "
        "errors from 1): weighing is nearer in {outputs:.0%}; the rule for row sums is right in "
        "{rule:.0%} of the sure ones, the error to first order in {first:.0%}. Weighing is nearer "
        "in {much:.0%} of the {many} rows where the largest keys are exact and the rest still "
        "holds over {share:.0%} of the attention, and in {other:.0%} of all others.",
        drawn=DRAWN,
        last=DRAWN - 1,
        n=int(table.n.max()),
        coldest=table.temperature.min(),
        hottest=table.temperature.max(),
        number=bare.effective_number.median(),
        sums=_nearer(bare.row_sum),
        count=len(bare),
        right=_agree(bare.rule, bare.row_sum),
        right_taylor=_agree(taylor.rule, taylor.row_sum),
        shared=_nearer(features.row_sum),
        hot=_nearer(features[features.temperature == table.temperature.max()].row_sum),
        exact=_agree(found.exact_rule, found.row_sum),
        sure=len(sure),
        outputs=_nearer(bare.output),
        rule=_agree(sure.rule, sure.output),
        first=_agree(1 / sure.output_to_first_order, sure.output),
        much=_nearer(bare[much].output),
        many=int(much.sum()),
        share=MUCH,
        other=_nearer(bare[~much].output),
    )


def _nearer(ratio: pd.Series) -> float:
    """Return the share of rows in which weighing is nearer, 0 of none."""
    return float((ratio < 1).mean()) if len(ratio) else 0.0


def _agree(rule: pd.Series, ratio: pd.Series) -> float:
    """Return the share of rows in which the rule says which is nearer."""
    return float(((rule > 1) == (ratio < 1)).mean()) if len(ratio) else 0.0
