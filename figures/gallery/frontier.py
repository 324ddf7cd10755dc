"""Error against each of four currencies: which methods are worth their price in each."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.frontier import compute as compute, frontier, medians
from figures.drawing import looks, style
from figures.words.amounts import NAMES, UNITS
from figures.words.translation import in_words, mark, share, tr

TITLE = "Error against what is paid, in four currencies"
ORDER = 220
FLOOR, CEILING = 1e-3, 1.1  # limits of the axis


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel per currency: the frontier of medians over heads; a dot is a sized method."""
    points = medians(table)
    figure = Figure(figsize=(7.0, 5.4))
    axes = figure.subplots(2, 2, sharey=True)
    for ax, (currency, name) in zip(axes.flat, NAMES.items()):
        _panel(ax, points, currency)
        ax.set(title=tr(name), xlabel=tr(UNITS[currency]))
    for ax in axes[:, 0]:
        ax.set_ylabel(tr("total variation"))
    style.legend(figure, list(axes.flat), columns=3)
    return figure


def _panel(ax: Axes, points: pd.DataFrame, currency: str) -> None:
    whole = points.set_index("asked")[currency]["exact()"]
    on = frontier(points, currency)
    price, tv = on[currency], on.attention_tv.clip(lower=FLOOR)
    if len(on):
        steps = [*price, whole], [*tv, tv.iloc[-1]]
        ax.step(*steps, where="post", color="0.6", lw=1.0, label=tr("best at its price"))
    ax.axvline(whole, color="0.35", ls=":", lw=1.2, label=tr("price of exact attention"))
    for spec, x, y in zip(on.asked, price, tv):
        ax.plot(x, y, **looks.look(spec) | {"linestyle": "", "markersize": 6})
    ax.set(xscale="log", yscale="log", ylim=(FLOOR / 1.3, CEILING * 1.15))
    ax.minorticks_off()


def _on_frontier(points: pd.DataFrame) -> dict[str, list[str]]:
    """Return the names of the methods on the frontier of each currency, cheapest first."""
    found = {currency: frontier(points, currency) for currency in NAMES}
    return {c: list(dict.fromkeys(map(looks.label, on.asked))) for c, on in found.items()}


def finding(table: pd.DataFrame) -> str:
    names = _on_frontier(medians(table))
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
        "everything cheaper.",
        heads=in_words(len(table.groupby(["input", "layer", "head"]))),
    )
