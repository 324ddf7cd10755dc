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


def line(
    choices: pd.DataFrame, damage: str, title: str = "", shown: Callable[[Any], str] | None = None
) -> str:
    """Return a table of the choices that nothing cheaper beats, cheapest first.

    Parameters
    ----------
    choices : DataFrame
        A row per choice: ``name``; ``bytes_read``, ``bytes`` and ``bytes_4096``, … of a group of
        heads. The row with the most bytes read is exact attention.
    damage : str
        The column that is small where a choice is good.
    title, shown : str, callable, optional
        A further column, and what it says of a row.
    """
    exact = choices.bytes_read.max()
    more = (title,) if shown else ()
    lengths = [f"{tokens // 1024}k" for tokens in LENGTHS]
    rows = [
        (
            *map(tr, TITLES), *more, tr("KiB at {length}", length=lengths[0]), *lengths[1:],
        )
    ]  # fmt: skip
    for row in undominated(choices, damage=damage).itertuples():
        rows.append((
            str(row.name), f"{row.bytes_read:,.0f}", percent(row.bytes_read / exact),
            f"{row.bytes:,.0f}", *((shown(row),) if shown else ()),
            *(_kibibytes(getattr(row, name)) for name in MEMORY),
        ))  # fmt: skip
    return aligned(rows, wrapped={0: NAME})


def _kibibytes(count: float) -> str:
    """Return bytes in KiB, with two digits at least."""
    return f"{count / 1024:,.0f}" if count >= 10 * 1024 else f"{count / 1024:.2g}"


def draw(choices: pd.DataFrame, damage: str, *, limit: float, about: str) -> Figure:
    """Draw each choice at its bytes read, and a line through those that nothing cheaper beats.

    ``limit`` is the price at which choices are compared, and ``about`` the name of the damage.
    """
    best = undominated(choices, damage=damage)
    with style.style():
        figure = Figure(figsize=(6.4, 4.0))
        ax = figure.subplots()
        ax.plot(choices.bytes_read, choices[damage], **style.dots("0.6", "o", 3))
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
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def write(figure: Figure, out: Path) -> Path:
    """Write the figure into a folder, and return its path."""
    path = out / "bytes-read.png"
    path.write_bytes(style.drawing(figure, "png"))
    return path
