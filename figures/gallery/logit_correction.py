"""Half the variance subtracted from a logit: what it gains where some keys are exact."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.logit_correction import BITS, FORMS, compute as compute
from figures.drawing import style
from figures.gallery.key_bits import NAMES as FORMED
from figures.words.translation import mark, tr

TITLE = "Half the variance off a logit"
ORDER = 396
KEYS = ["form", "bits", "recent"]
NAMES = FORMED | {"channel": (mark("equal steps by channel"), style.PALETTE[3], "X")}


def _by_head(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each head, form, bits and number of exact keys, a column for each number."""
    parts = table.method.str.split("/", expand=True)
    named = table.assign(form=parts[0], bits=parts[1].astype(int), recent=parts[2].astype(int))
    one = ["input", "layer", "head", *KEYS]
    return named.pivot_table(index=one, columns="metric", values="value")


def errors(table: pd.DataFrame) -> pd.DataFrame:
    """Return tv without (False) and with (True) the correction, medians over heads."""
    wide = _by_head(table)[["tv_False", "tv_True"]].set_axis([False, True], axis=1)
    return wide.groupby(level=KEYS).median()


def gains(table: pd.DataFrame) -> pd.DataFrame:
    """Return tv of the correction over tv without it, medians over heads, and the exact share."""
    wide = _by_head(table)
    ratio = (wide["tv_True"] / wide["tv_False"]).groupby(level=KEYS).median()
    share = wide["exact_share"].groupby(level=KEYS).median()
    return pd.DataFrame({"ratio": ratio, "share": share})


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel for each number of bits, a line for each form."""
    rows = gains(table)
    with style.style():
        x = tr("share of exact keys")
        figure, axes = style.panels(
            1, len(BITS), x, tr("tv with the correction / without"), height=3
        )
        for ax, bits in zip(axes.flat, BITS):
            for form in FORMS:
                name, colour, marker = NAMES[form]
                part = rows.loc[form].loc[bits]
                ax.plot(part.share, part.ratio, color=colour, marker=marker, label=tr(name))
            ax.axhline(1.0, color="0.35", lw=0.9, ls="--")
            ax.set_title(tr("{bits} bits", bits=bits))
        style.legend(figure, list(axes.flat), columns=3)
    return figure


def finding(table: pd.DataFrame) -> str:
    rows = gains(table).ratio.xs(BITS[0], level="bits")
    form, recent = min(rows.index, key=lambda at: float(rows[at]))
    return tr(
        "At {bits} bits the correction helps most with {recent} exact keys: {gain:.0%} less total "
        "variation for {name}.",
        bits=BITS[0],
        recent=recent,
        name=tr(NAMES[form][0]),
        gain=1 - rows.min(),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Medians over {heads} causal heads at t = 1, means of draws. Below 1 it helps. The last "
        "keys are exact.",
        heads=len(table.drop_duplicates(["input", "layer", "head"])),
    )
