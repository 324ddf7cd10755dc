"""The winners of `analysis.advice.diagnose` as a map of layers × heads, and beside bytes read."""

import string
from collections import Counter

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.advice.verdict import KEEP, advice, metric_of
from figures.drawing import looks, style
from figures.show import head_cells, price_figure
from figures.show.diagnosis import ABOUT, limit, names_of, runnable_choices
from figures.show.head_cells import GREY
from figures.words import amounts
from figures.words.terminal_columns import wrap
from figures.words.translation import tr

WIDE = 40  # columns of text beside the map


def draw_line(table: pd.DataFrame) -> Figure | None:
    """Draw error against bytes read, with the line that nothing cheaper beats."""
    metric = metric_of(table)
    known = runnable_choices(table, names_of(list(dict.fromkeys(table.spec))))
    if known is None:
        return None
    return price_figure.draw(known, metric, limit=limit(table), about=tr(ABOUT[metric]))


def draw(table: pd.DataFrame) -> Figure:
    """Draw the heads of each layer, coloured by error, with the letter of the method to use.

    Heads that keep exact attention are grey.
    """
    advised, about = advice(table), tr(ABOUT[metric_of(table)])
    layers = sorted({one.layer for one in advised})
    heads = sorted({one.head for one in advised})
    wins = Counter(one.winner for one in advised if one.verdict != KEEP)
    specs = sorted(looks.order(list(wins)), key=lambda spec: -wins[spec])
    names = names_of(specs)
    letters = dict(zip(specs, string.ascii_letters))
    with style.style():
        figure = Figure(figsize=(max(4.4, 0.52 * len(heads) + 1.9), 0.42 * len(layers) + 1.9))
        ax = figure.subplots()
        shades = ScalarMappable(Normalize(0.0, 1.0), "viridis_r")
        cells = {}
        for one in advised:
            kept = one.verdict == KEEP
            cells[one.head, one.layer] = head_cells.ColouredCell(
                GREY if kept else shades.to_rgba(np.array(one.error)),
                "" if kept else f"{letters[one.winner]}\n{one.error:.2f}",
                "white" if one.error > 0.5 else "0.1",
            )
        head_cells.draw(ax, cells, heads, layers, size=7)
        ax.set(xlabel=tr("head"), ylabel=tr("layer"))
        ax.set_xticks(range(len(heads)), [str(h) for h in heads])
        ax.set_yticks(range(len(layers)), [str(layer) for layer in layers])
        figure.colorbar(shades, ax=ax, label=about)
        counted = {
            spec: "\n".join(wrap(tr("{name} {count}", name=names[spec], count=wins[spec]), WIDE))
            for spec in specs
        }
        handles: list[Artist] = [
            Line2D([], [], ls="", marker=f"${letters[spec]}$", ms=7, c="0.1", label=counted[spec])
            for spec in specs
        ]
        if grey := len(advised) - wins.total():
            label = tr("{name} {count}", name=tr("keep exact"), count=grey)
            handles.append(Patch(facecolor=GREY, label=label))
        figure.legend(handles=handles, loc="outside lower center", ncols=1 + (len(heads) > 6))
    return figure


def caption(table: pd.DataFrame) -> str:
    """Return the caption of the map, with the numbers of its table."""
    advised = advice(table)
    used = [one for one in advised if one.verdict != KEEP]
    wins = pd.Series([looks.label(one.winner) for one in used], dtype=str).value_counts()
    text = tr(
        "The method with the lowest {error} on each head, at a budget of {budget}, t = "
        "{t:g}; only methods that can be run under the mask. Below its letter and in colour: "
        "the error, median over draws. Grey: {kept} of {heads} heads keep exact attention.",
        error=tr(ABOUT[metric_of(table)]), budget=amounts.budget(table),
        t=table.temperature.iloc[0], kept=len(advised) - len(used), heads=len(advised),
    )  # fmt: skip
    if used:
        text += tr(
            " To use: {names}.",
            names=tr(", ").join(tr("{name} {count}", name=x, count=n) for x, n in wins.items()),
        )
    return text
