"""Text in columns of a terminal, where a Chinese character takes two."""

from __future__ import annotations

import re
import textwrap
import unicodedata

PIECES = re.compile(r"\s+|([\u2e80-\uffef]|[^\s\u2e80-\uffef]+)[、。，：；）」》？！]*")


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

    Examples
    --------
    >>> wrap("秩至多为 rank，而非更多。", 8)
    ['秩至多为', 'rank，而', '非更多。']
    """
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
