"""Text in columns of a terminal, where a Chinese character takes two."""

import itertools
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping

COLUMNS = 80  # of a terminal whose width is unknown
LEAST_WIDTH = 12  # the least width of a column of names
# where a name goes on in the next line: behind a blank, the opening of a spec, a Chinese character
BREAKS = re.compile(
    r"(?<=[\s,])|(?<=\w[(=])|(?<=[\u2e80-\u9fff])(?![、。，：；）」》？！)])|(?<=）)(?![、。，：；」》？！])"
)
PIECES = re.compile(r"\s+|[（「《]*(?:[\u2e80-\uffef]|[^\s\u2e80-\uffef]+)[、。，：；）」》？！]*")


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


def balanced(text: str, size: int) -> list[str]:
    """Return as many lines as `wrap` does, as equal as they can be.

    Examples
    --------
    >>> balanced("stored values per query row", 24)
    ['stored values', 'per query row']
    """
    count = len(wrap(text, size))
    least = max((width(piece[0]) for piece in PIECES.finditer(text)), default=1)
    sizes = range(max(least, -(-width(text) // max(count, 1))), size)
    return next((lines for at in sizes if len(lines := wrap(text, at)) == count), wrap(text, size))


def paragraphs(texts: Iterable[str]) -> str:
    """Return texts below each other, each in lines that fit a terminal."""
    return "\n".join(line for text in texts for line in wrap(text, COLUMNS))


def indented(text: str, lead: str = "  ") -> list[str]:
    """Return the lines of a text that fit a terminal after a lead, which only the first one has."""
    first, *rest = wrap(text, COLUMNS - len(lead)) or [""]
    return [lead + first, *(" " * len(lead) + line for line in rest)]


def aligned(
    rows: list[tuple[str, ...]], cut: int | None = None, wrapped: Mapping[int, int] | None = None
) -> str:
    """Return rows as a table whose columns are aligned to the left.

    Parameters
    ----------
    rows : list of tuple of str
        Cells, which may have several lines.
    cut : int, optional
        The column that is cut where the table would be wider than the terminal.
    wrapped : mapping of int to int, optional
        Columns of names, which go on in the next line behind so many columns of text; behind fewer
        where no column is cut and the table would be wider than the terminal, or than 80 elsewhere.

    Examples
    --------
    >>> print(aligned([("head", "tv"), ("0.1", "0.25")]))
    head  tv
    0.1   0.25
    >>> print(aligned([("Linformer, means", "0.25")], wrapped={0: 10}))
    Linformer,  0.25
    means
    """
    sizes, most = dict(wrapped or {}), terminal()
    while True:
        cells = [[_lines(cell, sizes.get(i)) for i, cell in enumerate(row)] for row in rows]
        widths = [max(width(line) for cell in column for line in cell) for column in zip(*cells)]
        over = sum(widths) + 2 * len(widths) - 2 - (COLUMNS if most is None else most)
        wide = [i for i, size in sizes.items() if size > LEAST_WIDTH]
        if cut is not None or over <= 0 or not wide:
            break
        sizes[max(wide, key=sizes.__getitem__)] -= 1
    if cut is not None and most is not None and over > 0:
        i = cut % len(widths)
        size = max(widths[i] - over, 1)
        cells = [[*row[:i], [short(line, size) for line in row[i]], *row[i + 1 :]] for row in cells]
        widths[i] = size
    return "\n".join(
        "  ".join(map(pad, line, widths)).rstrip()
        for row in cells
        for line in itertools.zip_longest(*row, fillvalue="")
    )


def _lines(text: str, size: int | None) -> list[str]:
    """Return the lines of a text, of at most so many columns as far as its words are no longer."""
    lines = text.split("\n")
    if size is None:
        return lines
    wrapped = []
    for line in lines:
        wrapped.append("")
        for piece in BREAKS.split(line):
            if wrapped[-1] and width(wrapped[-1] + piece.rstrip()) > size:
                wrapped.append("")
            wrapped[-1] += piece
    return [line.rstrip() for line in wrapped]


def short(name: str, size: int) -> str:
    """Return a name of at most so many columns, cut at its end."""
    if width(name) <= size:
        return name
    while width(name) > size - 1:
        name = name[:-1]
    return name + "…"


def ends(name: str, size: int) -> str:
    """Return the name of a file's head in at most so many columns, cut in the middle.

    Examples
    --------
    >>> ends("my heads_v1.2 17.3", 12)
    'my he…2 17.3'
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
