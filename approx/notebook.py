"""Tables that represent objects in a notebook: plain HTML, with all text escaped."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from html import escape

MOST_ROWS = 24  # rows of a table; a last line counts the others


def facts(title: str, pairs: Iterable[tuple[str, object]]) -> str:
    """Return an HTML table of names and values under a title."""
    rows = "".join(f"<tr><th>{escape(name)}</th>{_cell(value)}</tr>" for name, value in pairs)
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an HTML table with a line of headings and at most `MOST_ROWS` rows."""
    lines = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"]
    lines += [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS]]
    if (more := len(rows) - MOST_ROWS) > 0:
        lines.append(f'<tr><td colspan="{len(head)}">and {more} more</td></tr>')
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def _cell(value: object) -> str:
    return f"<td>{escape(number(value) if isinstance(value, int | float) else str(value))}</td>"


def number(value: float) -> str:
    """Return a float to three digits, an integer with all digits, or a dash for NaN."""
    if isinstance(value, int):
        return str(value) if abs(value) < 10**15 else f"{Decimal(value):.2e}"
    return "–" if value != value else f"{value:.3g}"
