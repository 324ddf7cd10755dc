"""Error against each of four currencies: the whole registry, and who is worth its price in each."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.frontier import compute as compute, front, medians
from figures.drawing import style
from figures.words.amounts import NAMES, UNITS
from figures.words.translation import in_words, mark, share, tr

TITLE = "Error against what is paid, in four currencies"
ORDER = 220
FLOOR, CEILING = 1e-3, 1.1  # of the axis
LEFT = 12  # times the cheapest price, for names


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per currency: medians over heads, hollow with all logits, and the front.

    A dot is a method at a size.
    """
    points = medians(table)
    with style.style():
        figure = Figure(figsize=(7.0, 6.6))
        axes = figure.subplots(2, 2, sharey=True)
        for ax, (currency, name) in zip(axes.flat, NAMES.items()):
            _panel(ax, points, currency)
            ax.set(title=tr(name), xlabel=tr(UNITS[currency]))
        for ax in axes[:, 0]:
            ax.set_ylabel(tr("total variation"))
        style.legend(figure, list(axes.flat), columns=3)
    return figure


def _panel(ax: Axes, points: pd.DataFrame, currency: str) -> None:
    bound = points.set_index("asked")
    whole, uniform = bound[currency]["exact()"], bound.tv["uniform()"]
    shown = points[points[currency] > 0].assign(tv=points.tv.clip(FLOOR, CEILING))
    shown = shown[shown.asked != "exact()"]
    for oracle, label in ((False, mark("can be run")), (True, mark("sees all logits"))):
        part, face = shown[shown.oracle == oracle], "none" if oracle else "0.65"
        look = style.dots("0.65", "o", 3.2) | {"markerfacecolor": face, "markeredgewidth": 0.7}
        ax.plot(part[currency], part.tv, **look, label=tr(label))
    on = front(points, currency)
    price, tv = on[currency].tolist(), on.tv.clip(lower=FLOOR).tolist()
    if price:
        ax.step(
            [*price, whole],
            [*tv, tv[-1]],
            where="post",
            color="black",
            lw=1.0,
            label=tr("best at its price"),
        )
    ax.axhline(uniform, color="0.35", ls="--", lw=0.9, label=tr("uniform attention"))
    ax.axvline(whole, color="0.35", ls=":", lw=1.2, label=tr("price of exact attention"))
    ax.set(xscale="log", yscale="log", ylim=(FLOOR / 1.3, CEILING * 1.15))
    ax.set_xlim(shown[currency].min() / LEFT, whole * 2.5)
    ax.minorticks_off()
    named = on.assign(tv=tv, name=on.asked.map(style.label)).drop_duplicates("name")
    for name, place in zip(named.name, zip(named[currency], named.tv)):
        ax.plot(*place, **style.dots("black", "o", 3))
        style.Note(ax, style.lines(name, 20), place)


def _fronts(points: pd.DataFrame) -> dict[str, list[str]]:
    """Return the names of the methods on the front of each currency, cheapest first."""
    fronts = {currency: front(points, currency) for currency in NAMES}
    return {c: list(dict.fromkeys(map(style.label, on.asked))) for c, on in fronts.items()}


def finding(table: pd.DataFrame) -> str:
    names = _fronts(medians(table))
    every = set().union(*names.values())
    always = set(names["reads"]).intersection(*names.values())
    if len(always) == 1:
        return tr(
            "The best method depends on the cost measure: only {name} is on the frontier in all "
            "four.",
            name=always.pop(),
        )
    return tr(
        "The best method depends on the cost measure: {always} are on the frontier in all four.",
        always=share(len(always), len(every), mark("methods")),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Medians over {heads} causal heads at t = 1. Line: methods that can be run and beat "
        "everything cheaper. Hollow: sees all logits.",
        heads=in_words(len(table.groupby(["input", "layer", "head"]))),
    )
