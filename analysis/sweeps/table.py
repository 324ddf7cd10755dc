"""The tidy table of a sweep: one row per number."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsFloat

import pandas as pd

if TYPE_CHECKING:
    from analysis.inputs import Head

KINDS: dict[str, type] = {
    "input": str, "layer": int, "head": int, "n": int, "l": int, "d": int, "temperature": float,
    "method": str, "budget": float, "trial": int, "metric": str, "value": float, "stderr": float,
}  # fmt: skip
COLUMNS = tuple(KINDS)
CHUNK = 100_000  # rows held as Python objects at once

Row = tuple[Any, ...]
Number = SupportsFloat


def head(x: Head, method: object, budget: float = -1.0, trial: int = -1) -> Row:
    """Return the leading columns of a row, up to its trial; −1 stands for no budget or no trial."""
    return (
        x.name, x.layer, x.head, x.n, x.l, x.d, x.temperature, str(method), budget, trial,
    )  # fmt: skip


def numbers(place: Row, /, **values: Number | tuple[Number, Number]) -> list[Row]:
    """Return a row for each named number: place, name, value, and standard error or NaN.

    Examples
    --------
    >>> numbers(("x",), bias=0.5, mean=(1.0, 0.1))
    [('x', 'bias', 0.5, nan), ('x', 'mean', 1.0, 0.1)]
    """
    pairs = {name: x if isinstance(x, tuple) else (x, math.nan) for name, x in values.items()}
    return [(*place, name, float(value), float(error)) for name, (value, error) in pairs.items()]


def typed(row: Iterable[Any]) -> Row:
    """Return a row with plain values of each column's type; every NaN becomes the same NaN.

    Text cannot hold the sign and the payload of a NaN.
    """
    values = [kind(value) for kind, value in zip(KINDS.values(), row, strict=True)]
    return tuple(math.nan if value != value else value for value in values)


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Return rows as a DataFrame whose column types do not depend on the rows."""
    kinds = {name: kind for name, kind in KINDS.items() if kind is not str}
    left, parts = iter(rows), []
    while part := list(itertools.islice(left, CHUNK)):
        parts.append(pd.DataFrame(part, columns=list(COLUMNS)).astype(kinds))
    if not parts:
        return pd.DataFrame(columns=list(COLUMNS)).astype(kinds)
    return pd.concat(parts, ignore_index=True)


def with_currency(table: pd.DataFrame, currency: str) -> pd.DataFrame:
    """Return a table with a column for the currency of its budgets, unless it is stored values."""
    if currency != "stored" and "budget" in table:
        table = table.copy()
        table.insert(list(table.columns).index("budget") + 1, "currency", currency)
    return table


def harmless(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which no spreadsheet takes a text for a formula, for people to read.

    An apostrophe comes before a text that begins with =, +, - or @ and is no number.

    Examples
    --------
    >>> harmless(pd.DataFrame({"input": ["=1+1", "-2", "a=b"], "value": -1})).values.tolist()
    [["'=1+1", -1], ['-2', -1], ['a=b', -1]]
    """
    table = table.copy()
    for name in table.select_dtypes(exclude=["number", "bool"]):
        table[name] = [
            f"'{x}" if isinstance(x, str) and re.match(r"[=+@-](?![\d.]*$)", x) else x
            for x in table[name]
        ]
    return table


def as_csv(rows: Iterable[Row]) -> str:
    r"""Return rows as CSV without a header; floats read back to the last bit.

    Examples
    --------
    >>> row = ("a, b", -1, -1, 2, 2, 1, 0.1, "zero()", 8.0, -1, "rank", -0.0, math.nan)
    >>> as_csv([row])
    '"a, b",-1,-1,2,2,1,0.1,zero(),8.0,-1,rank,-0.0,nan\n'
    >>> str(parsed(as_csv([row]))) == str([row])
    True
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def parsed(lines: str) -> list[Row]:
    """Return the rows of a text that `as_csv` wrote; raise ValueError for any other text."""
    return [typed(row) for row in csv.reader(io.StringIO(lines, newline=""), strict=True)]
