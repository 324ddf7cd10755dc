"""Layers × heads of a model as a grid of coloured cells, each with a word in it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

GREY = "0.75"  # of heads that keep exact attention


class ColouredCell(NamedTuple):
    """A colour, the word in it and its colour."""

    colour: Any
    word: str
    ink: str


def draw(
    ax: Axes,
    cells: Mapping[tuple[int, int], ColouredCell],
    columns: Sequence[int],
    rows: Sequence[int],
    *,
    size: float,
    edge: float | None = None,
) -> None:
    """Draw the cells of (column, row), the first row on top.

    ``size`` is that of words, in points, and ``edge`` the width of white lines between cells.
    """
    for (column, row), cell in cells.items():
        x, y = columns.index(column), rows.index(row)
        ax.add_patch(
            Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=cell.colour, edgecolor="white", lw=edge)
        )
        if cell.word:
            ax.text(x, y, cell.word, ha="center", va="center", fontsize=size, color=cell.ink)
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    ax.grid(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
