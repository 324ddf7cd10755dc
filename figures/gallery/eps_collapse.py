"""The eps of public Performers: where it makes attention uniform."""

import math

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure

from analysis.experiments.eps_collapse import M, compute as compute
from approx.checks import Array
from figures.drawing import style
from figures.words.translation import tr

TITLE = "Where eps makes attention uniform"
ORDER = 130
SHOWN = (1e-6, 1e-4)  # of public code
COLLAPSED = 0.1  # of the concentration of exact attention
LIMIT = 2.0


def draw(table: pd.DataFrame) -> Figure:
    """Draw the map over (t, eps), and the concentration against t for some eps."""
    ratio = table[(table.metric == "ratio") & (table.eps > 0)]
    wide = ratio.pivot(index="eps", columns="temperature", values="value")
    values = table[table.metric == "concentration"]
    with style.style():
        figure = Figure(figsize=(7.0, 3.3))
        left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
        edges = (_edges(wide.columns), _edges(wide.index))
        title = tr("concentration over that of exact attention")
        mesh = left.pcolormesh(
            *edges, wide.clip(0, LIMIT), cmap="RdBu",
            vmin=0.0, vmax=LIMIT, rasterized=True,
        )  # fmt: skip
        predicted = table[table.metric == "predicted"]
        left.plot(
            predicted.temperature, predicted.eps, color="black", linestyle="--",
            label="|x|²/2 = ln(1/eps)",
        )  # fmt: skip
        left.grid(False)
        left.set(
            xscale="log", yscale="log", ylim=edges[1][[0, -1]], ylabel="eps", title=title,
        )  # fmt: skip
        figure.colorbar(mesh, ax=left, extend="max")
        exactly = values[values.method == "exact"]
        right.plot(exactly.temperature, exactly.value, color="black", label=tr("exact attention"))
        shades = colormaps["plasma"](np.linspace(0.45, 0.8, len(SHOWN)))
        looks = [style.look(f"positive(m={M})") | {"label": tr("positive features, eps = 0")}]
        looks += [
            {
                "color": c,
                "marker": marker,
                "label": tr("positive features, eps = {eps}", eps=style.power(eps)),
            }
            for eps, c, marker in zip(SHOWN, shades, ("s", "^"))
        ]
        for eps, look in zip((0.0, *SHOWN), looks):
            part = values[(values.method != "exact") & (values.eps == eps)]
            right.errorbar(
                part.temperature, part.value, part.stderr, capsize=1.5, markersize=3, **look
            )
        right.set(xscale="log", ylim=(-0.02, 1.02), title=tr("concentration of the rows"))
        for ax in (left, right):
            ax.set_xlabel(tr("temperature t"))
            ax.set_xticks([1 / 16, 0.25, 1, 4], ["1/16", "¼", "1", "4"])
            ax.minorticks_off()
        style.legend(figure, [left, right], columns=3)
    return figure


def _edges(places: pd.Index) -> Array:
    """Return the edges of cells around places that are equally far apart in their logarithms."""
    root = math.sqrt(places[1] / places[0])
    return np.append(places / root, places[-1] * root)


def finding(table: pd.DataFrame) -> str:
    eps = max(SHOWN)
    part = table[(table.metric == "ratio") & (table.eps == eps)]
    gone = part.temperature[part.value < COLLAPSED]
    if gone.empty:
        return tr("Added eps = {eps} leaves the concentration.", eps=style.power(eps))
    exactly = table[table.method == "exact"].set_index("temperature").value
    return tr(
        "Added eps = {eps} makes attention uniform up to t = {t:.2g}, where exact rows have a "
        "concentration of {exactly:.2f}.",
        eps=style.power(eps),
        t=gone.max(),
        exactly=exactly[gone.max()],
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Concentration, 1 − entropy/ln l, over that of exact rows; positive features with only "
        "max(ω·x) subtracted. Dashed: the largest feature is at eps."
    )
