"""How an error of the residual stream grows layer by layer in a language model, and its bound."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.experiments.propagation import EVERY, compute as compute, findings
from analysis.models.propagation import growth
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "What a layer makes of the errors of those before it"
ORDER = 420
LINES = {  # of the panel of growth: label, colour, line
    "bound": (mark("a bound by norms"), style.PALETTE[4], "--"),
    "jacobian": (mark("norm of the Jacobian"), style.PALETTE[0], "-."),
    "noise": (mark("noise of that size"), style.PALETTE[3], ":"),
    "carried": (mark("the error"), "0.1", "-"),
}


def draw(table: pd.DataFrame) -> Figure:
    """Draw relative errors behind each layer, growth by layer, and what each layer adds."""
    single, every = table[table.replaced != EVERY], table[table.replaced == EVERY]
    with style.style():
        figure = Figure(figsize=(7.4, 3.4))
        left, middle, right = figure.subplots(1, 3)
        for spec in style.order(table.method):
            look = style.look(spec) | {"marker": "", "linestyle": "-"}
            for _, part in single[single.method == spec].groupby("replaced"):
                left.plot(part.layer, part.left_relative, **look | {"label": None}, lw=0.8)
                left.plot(part.layer[:1], part.left_relative[:1], ".", color=look["color"])
            whole = every[every.method == spec]
            left.plot(whole.layer, whole.left_relative, **look, lw=2)
            right.plot(whole.layer, whole.left, **look, lw=2)
            right.plot(whole.layer, whole.made, **look | {"label": None, "linestyle": ":"}, lw=1)
        behind = single[single.layer > single.replaced]
        ends: list[tuple[str, float, str]] = []
        for name, (label, colour, line) in LINES.items():
            if name == "jacobian":
                mine = behind.groupby("layer").jacobian.first()
            else:
                mine = growth(behind, name).query("layer >= 0").set_index("layer").growth
            middle.plot(mine.index, mine, color=colour, linestyle=line, label=tr(label))
            ends.append((style.lines(tr(label), 12), float(mine.iloc[-1]), colour))
        right.plot([], [], ":", color="0.4", lw=1, label=tr("made in the layer itself"))
        middle.axhline(1, color="0.7", lw=0.8)
        left.set(ylabel=tr("error over the residual stream"))
        middle.set(title=tr("grows in a layer by"))
        left.set(title=tr("behind each layer"))
        right.set(title=tr("every layer replaced"), ylabel=tr("error (norm)"))
        for ax in (left, middle, right):
            ax.set(xlabel=tr("layer"), yscale="log")
        style.direct(middle, ends, apart=0.11)
        style.legend(figure, right, columns=3)
    return figure


def finding(table: pd.DataFrame) -> str:
    return tr(
        "An error grows by {growth:.3f} ± {stderr:.3f} a layer, as noise does by {noise:.3f}; the "
        "bound by norms is {bound:.2g}.",
        **findings(table),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "SmolLM2-135M with one layer replaced (thin) or every layer (thick). Middle: what a "
        "layer makes of an error. Right: what it adds."
    )
