"""What a target needs against length: on heads of a language model, and of Gaussian logits."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.scaling import (
    LAW,
    TARGET,
    compute as compute,
    exponents,
)
from figures.drawing import style
from figures.words.translation import tr

TITLE = "How the size that a target needs grows with length"
ORDER = 450


def draw(table: pd.DataFrame) -> Figure:
    """Draw sizes against length, as medians over heads, and the share of keys of Gaussian logits.

    Where half of the heads need exact attention there is no point.
    """
    heads, made = table[table.sigma < 0], table[table.sigma >= 0]
    needed = heads.assign(value=heads.value.where(heads.reached, np.inf))
    with style.style():
        figure = Figure(figsize=(7.0, 3.3))
        left, right = figure.subplots(1, 2)
        ends: list[tuple[str, float, Any]] = []
        shares: list[tuple[str, float, Any]] = []
        for method in style.order(heads.method):
            looks = style.look(method)
            middle = needed[needed.method == method].groupby("l").value.median()
            some = middle[np.isfinite(middle)]
            if len(some):
                left.plot(some.index, some, **looks, markersize=4)
                ends.append((looks["label"], float(some.iloc[-1]), looks["color"]))
        every = np.array([heads.l.min(), heads.l.max()])
        left.plot(every, every, color="0.4", lw=0.8, linestyle=":")
        ends.append((tr("all keys"), float(every[-1]), "0.4"))
        for place, (sigma, part) in enumerate(made.groupby("sigma")):
            colour = style.PALETTE[place % len(style.PALETTE)]
            top = part[part.method != LAW]
            law = part[part.method == LAW]
            right.plot(top.l, top.share, "o", color=colour, markersize=4, label=f"σ = {sigma:g}")
            right.plot(law.l, law.share, color=colour, lw=0.8)
            shares.append((f"σ = {sigma:g}", float(top.share.iloc[-1]), colour))
        left.set(xlabel=tr("keys"), ylabel=tr("size"), title=tr("heads of a language model"))
        right.set(xlabel=tr("keys"), ylabel=tr("share of keys"), title=tr("Gaussian logits"))
        for ax, part in ((left, heads), (right, made)):
            ax.set(xscale="log", yscale="log")
            style.ticks(ax, sorted(part.l.unique())[::2])
        style.direct(left, [(style.lines(name, 20), *end) for name, *end in ends], apart=0.1)
        style.direct(right, shares)
    return figure


def finding(table: pd.DataFrame) -> str:
    found = exponents(table[table.sigma < 0])
    every = found[(found.kind == "all") & (found.heads > 1)].sort_values("exponent")
    low, high = every.iloc[0], every.iloc[-1]
    return tr(
        "For a tv of {target:g} the size grows with length as l^({least:.2f}) ({method}) to "
        "l^({most:.2f}) ({other}).",
        target=TARGET,
        least=low.exponent,
        method=style.label(str(low.method)),
        most=high.exponent,
        other=style.label(str(high.method)),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Left: medians over heads of {name}. Right: keys that top-k needs of Gaussian logits; "
        "lines: the limit of many keys.",
        name=table.input[table.sigma < 0].iloc[0],
    )
