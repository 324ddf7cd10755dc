"""The methods that nothing cheaper beats: a table with the memory of their caches."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from analysis.costs.allocation import undominated
from analysis.costs.budget import LENGTHS, MEMORY
from figures.words.numbers import percent
from figures.words.terminal_columns import aligned
from figures.words.translation import mark, tr

TITLES = mark("method"), mark("read"), mark("of exact"), mark("held")
NAME = 34  # columns of a method's name
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
