"""Error of one entry against q·k: LSH alone, random features, and Scatterbrain of the two."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.entry_error import (
    HASHES,
    NORMS,
    PLAIN,
    PUBLISHED,
    compute as compute,
)  # fmt: skip
from figures.drawing import style
from figures.words.translation import mark, tr

TITLE = "Error of one entry against q·k"
ORDER = 240
LOOKS = {
    "lsh": (mark("LSH alone (Reformer in the paper)"), style.PALETTE[6], "-", "^"),
    "performer": ("Performer", style.PALETTE[0], "-", "o"),
    "hyperbolic": (mark("hyperbolic features"), style.PALETTE[0], "--", "v"),
    "scatterbrain": (mark("Scatterbrain: Performer + LSH"), style.PALETTE[4], "-", "D"),
    "scatterbrain_hyperbolic": (
        mark("Scatterbrain: hyperbolic features + LSH"), style.PALETTE[4], "--", "s",
    ),
}  # fmt: skip


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel a norm and a number of hashes; below, what the script has."""
    with style.style():
        figure = Figure(figsize=(7.2, 8.6))
        axes = figure.subplots(len(HASHES) + 1, len(NORMS))
        for row, hashes in enumerate(HASHES):
            for column, norm in enumerate(NORMS):
                ax = axes[row, column]
                part = table[(table.norm == norm) & table.hashes.isin([0, hashes])]
                _lines(ax, part, "mse")
                _dots(ax, part)
                ax.set(yscale="log", ylim=(1e-5, None))
                ax.minorticks_off()
                if row == 0:
                    ax.set_title(f"|q| = |k| = {norm:g}")
            joined = tr("one hash") if hashes == 1 else tr("{hashes} hashes", hashes=hashes)
            axes[row, 0].set_ylabel(tr("{joined} a round\nmean squared error", joined=joined))
        coded, exact, collision, split = axes[-1]
        _lines(coded, table, "published_mse")
        _lines(exact, table, "corrected_mse")
        for ax, title in ((coded, tr("as published")), (exact, tr("same, right formulas"))):
            ax.set(yscale="log", ylim=(1e-5, 20), title=title)
            ax.minorticks_off()
        coded.set_ylabel(tr("{published} hashes a round\nmean squared error", published=PUBLISHED))
        _probabilities(collision, table)
        _parts(split, table)
        for ax in axes[-2:].flat:
            ax.set_xlabel("q·k")
        style.legend(figure, list(axes[:-1].flat), columns=2)
    return figure


def _lines(ax: Axes, table: pd.DataFrame, metric: str) -> None:
    for curve, (label, colour, line, _) in LOOKS.items():
        part = table[(table.curve == curve) & (table.metric == metric)]
        below = curve in PLAIN  # a wider line, seen where Scatterbrain's is on top of it
        look: dict[str, Any] = {"linewidth": 2.6, "alpha": 0.6} if below else {"linewidth": 1.2}
        ax.plot(part.logit, part.value, color=colour, linestyle=line, label=tr(label), **look)


def _dots(ax: Axes, table: pd.DataFrame) -> None:
    believable = table[table.metric == "believable"].set_index(["curve", "logit"]).value
    for curve, (_, colour, _, marker) in LOOKS.items():
        part = table[(table.curve == curve) & (table.metric == "sampled_mse")]
        full = believable[curve].reindex(part.logit).to_numpy() == 1.0
        look = style.dots(colour, marker, 2.8)
        solid, hollow = part[full], part[~full]
        ax.errorbar(solid.logit, solid.value, solid.stderr, elinewidth=0.8, **look)
        ax.plot(hollow.logit, hollow.value, markerfacecolor="white", markeredgewidth=0.7, **look)


def _shades() -> dict[int, tuple[float, ...]]:
    known = (*HASHES, PUBLISHED)
    return dict(zip(known, colormaps["viridis"](np.linspace(0, 0.85, len(known)))))


def _probabilities(ax: Axes, table: pd.DataFrame) -> None:
    for hashes, shade in _shades().items():
        part = table[(table.metric == "collision") & (table.hashes == hashes)]
        ax.plot(part.logit, part.value, color=shade, label=f"{hashes}")
    part = table[table.metric == "published_collision"]
    ax.plot(
        part.logit,
        part.value,
        color="black",
        linestyle=":",
        label=tr("{published}, coded", published=PUBLISHED),
    )
    ax.set(title=tr("P[collision]"), ylim=(0, 1.05))
    small: dict[str, Any] = {"fontsize": 6.5, "title_fontsize": 6.5, "borderaxespad": 0.1}
    ax.legend(loc="upper left", title=tr("hashes"), handlelength=1.4, **small)


def _parts(ax: Axes, table: pd.DataFrame) -> None:
    for metric, line, label in (
        ("bias_squared", "-", mark("bias²")),
        ("variance", "--", mark("variance")),
    ):
        for hashes, shade in _shades().items():
            part = table[(table.metric == metric) & (table.hashes == hashes)]
            first = hashes == HASHES[0]
            ax.plot(
                part.logit,
                part.value,
                color=shade,
                linestyle=line,
                label=tr(label) if first else None,
            )
    ax.set(title=tr("error of LSH alone"), ylabel=tr(r"over $e^{2q\cdot k}$"), ylim=(0, 1.05))
    ax.legend(loc="center left", fontsize=6.5, handlelength=1.8, borderaxespad=0.1)


def finding(table: pd.DataFrame) -> str:
    low, high = (_gain(table, norm) for norm in (min(NORMS), max(NORMS)))
    return tr(
        "Features beat hashes alone on {low:.0%} of the range of q·k at |q| = |k| = {short:g}, on "
        "{high:.0%} at {long:g}.",
        low=low,
        short=min(NORMS),
        high=high,
        long=max(NORMS),
    )


def caption(table: pd.DataFrame) -> str:
    return tr(
        "Mean squared error of one estimate. Lines: closed form; markers: Monte Carlo, hollow "
        "where not reliable. Last row: as published."
    )


def _gain(table: pd.DataFrame, norm: float) -> float:
    part = table[(table.metric == "mse") & (table.norm == norm)]
    sparse = part[(part.curve == "lsh") & (part.hashes == HASHES[0])].value.to_numpy()
    return float((part[part.curve == "performer"].value.to_numpy() < sparse).mean())
