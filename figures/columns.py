"""Text in columns of a terminal, where a Chinese character takes two."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import unicodedata

COLUMNS = 80  # of a terminal
PIECES = re.compile(r"\s+|([\u2e80-\uffef]|[^\s\u2e80-\uffef]+)[、。，：；）」》？！]*")


def terminal() -> int | None:
    """Return the columns of the terminal that is written to; None elsewhere: a pipe gets all."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def width(text: str) -> int:
    """Return the columns of a text: accents that are characters of their own take none.

    Examples
    --------
    >>> width("rank"), width("秩")
    (4, 2)
    """
    return sum(
        2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
        if not unicodedata.combining(character)
    )


def pad(text: str, size: int) -> str:
    """Return a text with blanks up to so many columns."""
    return text + " " * (size - width(text))


def wrap(text: str, size: int) -> list[str]:
    """Return lines of at most so many columns; Chinese breaks anywhere but before a stop.

    On a narrower terminal they are as long as it is wide.

    Examples
    --------
    >>> wrap("秩至多为 rank，而非更多。", 8)
    ['秩至多为', 'rank，而', '非更多。']
    """
    size = min(size, max(terminal() or size, 20))
    if all(unicodedata.east_asian_width(character) not in "WF" for character in text):
        return textwrap.wrap(text, size)
    lines = [""]
    for match in PIECES.finditer(text):
        piece = match[0]
        while width(lines[-1] + piece.rstrip()) > size:
            if lines[-1].strip():
                lines[-1] = lines[-1].rstrip()
                lines.append("")
                piece = piece.lstrip()
            else:  # longer than a line
                fit = max(i for i in range(1, size + 1) if width(piece[:i]) <= size)
                lines[-1], piece = piece[:fit], piece[fit:]
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return [line.rstrip() for line in lines]


def indented(text: str, lead: str = "  ") -> list[str]:
    """Return the lines of a text that fit a terminal after a lead, which only the first one has."""
    first, *rest = wrap(text, COLUMNS - len(lead)) or [""]
    return [lead + first, *(" " * len(lead) + line for line in rest)]


def aligned(rows: list[tuple[str, ...]], cut: int | None = None) -> str:
    """Return rows as a table whose columns are aligned to the left.

    One column is cut where the table would be wider than the terminal, if it is named.

    Examples
    --------
    >>> print(aligned([("head", "tv"), ("0.1", "0.25")]))
    head  tv
    0.1   0.25
    """
    widths = [max(map(width, column)) for column in zip(*rows)]
    most = terminal()
    over = 0 if most is None else sum(widths) + 2 * len(widths) - 2 - most
    if cut is not None and over > 0:
        column, size = cut % len(widths), max(widths[cut] - over, 1)
        rows = [(*row[:column], short(row[column], size), *row[column + 1 :]) for row in rows]
        widths[column] = size
    return "\n".join("  ".join(map(pad, row, widths)).rstrip() for row in rows)


def short(name: str, size: int) -> str:
    """Return a name of at most so many columns, cut at its end."""
    if width(name) <= size:
        return name
    while width(name) > size - 1:
        name = name[:-1]
    return name + "…"


def ends(name: str, size: int) -> str:
    """Return a name of at most so many columns, cut in the middle.

    Examples
    --------
    >>> ends("columns(k=32, recent=16)", 15)
    'columns…ent=16)'
    """
    if width(name) <= size:
        return name
    first, last = name[: len(name) // 2], name[len(name) // 2 :]
    while width(first) + width(last) > size - 1:
        if width(first) >= width(last):
            first = first[:-1]
        else:
            last = last[1:]
    return f"{first}…{last}"
