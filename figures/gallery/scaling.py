"""What a target needs against length: on heads of a language model, and of Gaussian logits."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.scaling import (
    LAW,
    TARGET,
    compute as compute,
    exponents,
)
from figures.drawing import looks, style
from figures.words.translation import tr

TITLE = "How the size that a target needs grows with length"
ORDER = 450


def _heads(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of heads, of methods that reach the target on each at every length."""
    heads = table[table.sigma < 0]
    longest = heads.l.max()
    return heads.groupby("method").filter(lambda x: x.reached.all() and x.l.max() == longest)


def draw(table: pd.DataFrame) -> Figure:
    """Draw sizes against length, as medians over heads, and shares of Gaussian logits."""
    heads, made = _heads(table), table[table.sigma >= 0]
    figure, (left, right) = style.row(2, 3.6)
    ends = []
    for method in looks.order(heads.method):
        middle = heads[heads.method == method].groupby("l").value.median()
        left.plot(middle.index, middle, **looks.look(method))
    for place, (sigma, part) in enumerate(made.groupby("sigma")):
        colour = looks.PALETTE[place]
        top, law = part[part.method != LAW], part[part.method == LAW]
        right.plot(top.l, top.share, **style.dots(colour, "o", 4))
        right.plot(law.l, law.share, color=colour, label="_")
        ends.append((f"σ = {sigma:g}", top.share.iloc[-1], colour))
    style.key(right, line=tr("limit of many keys"), mark=tr("measured"))
    left.set(title=tr("median head of a language model"))
    left.set_ylabel(tr("keys needed for total variation ≤ {target:g}", target=TARGET))
    right.set(title=tr("top-k, Gaussian logits of deviation σ"), ylabel=tr("share of keys needed"))
    for ax, part in ((left, heads), (right, made)):
        ax.set(xscale="log", yscale="log", xlabel=tr("keys"))
        style.ticks(ax, sorted(part.l.unique())[::2])
    style.direct(right, ends)
    style.legend(figure, [left, right])
    return figure


def finding(table: pd.DataFrame) -> str:
    found = exponents(_heads(table))
    every = found[found.kind == "all"].sort_values("exponent")
    low, high = every.iloc[0], every.iloc[-1]
    return tr(
        "For a tv of {target:g} the keys needed grow with length as l^({least:.2f}) ({method}) to "
        "l^({most:.2f}) ({other}).",
        target=TARGET,
        least=low.exponent,
        method=looks.label(str(low.method)),
        most=high.exponent,
        other=looks.label(str(high.method)),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Left: medians over heads of {name}, of methods that always reach the target. Right: keys "
        "that top-k needs of Gaussian logits.",
        name=table.input[table.sigma < 0].iloc[0],
    )
