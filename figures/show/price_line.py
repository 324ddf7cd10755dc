"""The methods that nothing cheaper beats: a table with the memory of their caches, and a figure."""

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.costs.allocation import undominated
from analysis.costs.budget import LENGTHS, MEMORY
from figures.drawing import looks, style
from figures.words.numbers import percent
from figures.words.terminal_columns import aligned
from figures.words.translation import mark, tr

TITLES = mark("method"), mark("read"), mark("of exact"), mark("held")
NAME = 34  # columns of a method's name
TICKS = 6  # of an axis at most, so that their numbers have room
UNITS = {"KiB": 2**10, "MiB": 2**20}


def line(
    choices: pd.DataFrame,
    damage: str,
    title: str = "",
    shown: Callable[[Any], str] | None = None,
    *,
    unit: str = "KiB",
) -> str:
    """Return a table of the choices that nothing cheaper beats, cheapest first.

    Parameters
    ----------
    choices : DataFrame
        A row per choice: ``name``; ``bytes_read`` and ``bytes`` of a group of heads; and
        ``bytes_4096``, …. The row with the most bytes read is exact attention.
    damage : str
        The column that is small where a choice is good.
    title, shown : str, callable, optional
        A further column, and what it says of a row.
    unit : {"KiB", "MiB"}
        Of the bytes after more tokens.
    """
    exact = choices.bytes_read.max()
    more = (title,) if shown else ()
    lengths = [f"{tokens // 1024}k" for tokens in LENGTHS]
    first = tr("{unit} at {length}", unit=unit, length=lengths[0])
    rows = [(*map(tr, TITLES), *more, first, *lengths[1:])]
    for row in undominated(choices, damage=damage).itertuples():
        rows.append((
            str(row.name), f"{row.bytes_read:,.0f}", percent(row.bytes_read / exact),
            f"{row.bytes:,.0f}", *((shown(row),) if shown else ()),
            *(_amount(getattr(row, name) / UNITS[unit]) for name in MEMORY),
        ))  # fmt: skip
    return aligned(rows, wrapped={0: NAME})


def _amount(x: float) -> str:
    """Return a number with two digits at least."""
    return f"{x:,.0f}" if x >= 10 else f"{x:.2g}"


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
