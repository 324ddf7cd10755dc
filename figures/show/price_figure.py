"""Error against bytes read, as a figure, with the line that nothing cheaper beats."""

import string
from pathlib import Path

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.costs.allocation import undominated
from figures.drawing import looks, style
from figures.words.translation import tr

TICKS = 6  # of an axis at most, so that their numbers have room


def draw(
    choices: pd.DataFrame, damage: str, *, limit: float, about: str, log: bool = False
) -> Figure:
    """Draw each choice at its bytes read, and a line through those that nothing cheaper beats.

    ``limit`` is the price at which choices are compared, and ``about`` the name of the damage.
    Standard errors in a column such as ``kl_stderr`` are drawn. A damage of 0 has no place on a
    logarithmic axis.
    """
    best, stderr = undominated(choices, damage=damage), f"{damage}_stderr"
    if log:
        choices, best = (rows[rows[damage] > 0] for rows in (choices, best))
    with style.style():
        figure = Figure(figsize=(6.4, 4.0))
        ax = figure.subplots()
        errors = choices[stderr].fillna(0.0).astype(float) if stderr in choices else None
        dots = style.dots("0.6", "o", 3)
        ax.errorbar(choices.bytes_read, choices[damage], yerr=errors, capsize=2, zorder=1, **dots)
        ax.plot(
            best.bytes_read, best[damage], color=looks.PALETTE[0], marker="o", ms=4,
            drawstyle="steps-post",
        )  # fmt: skip
        ax.axvline(limit, color="0.7", lw=0.8, ls=":")
        handles: list[Artist] = []
        for letter, row in zip(string.ascii_lowercase, best.itertuples()):
            place = row.bytes_read, getattr(row, damage)
            ax.annotate(letter, place, (2, 4), textcoords="offset points", fontsize=style.SMALL)
            handles.append(
                Line2D([], [], ls="", marker=f"${letter}$", ms=6, c="0.1", label=row.name)
            )
        ax.set(xscale="log", xlabel=tr("bytes read by a group of heads"), ylabel=about)
        ax.set_yscale("log" if log else "linear")
        places = [2.0**k for k in range(60) if ax.get_xlim()[0] < 2.0**k < ax.get_xlim()[1]]
        places = places[:: 1 + len(places) // TICKS]
        style.ticks(ax, places)
        ax.set_xticklabels([f"{place:,.0f}" for place in places])
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def write(figure: Figure, out: Path) -> Path:
    """Write the figure into a folder, and return its path."""
    path = out / "bytes-read.png"
    out.mkdir(parents=True, exist_ok=True)
    path.write_bytes(style.drawing(figure, "png"))
    return path
