"""The reader's own text, in notes.md beside a report, merged into its pages at marked places."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from approx import checks

NAME = "notes.md"
_MARK = re.compile(r"<!--\s*(?:after:\s*(\S+)|(references))\s*-->")
_COMMENT = re.compile(r"<!--(?!\s*after\b).*-->")


class Note(NamedTuple):
    """A text and the place after which it stands: a section, a figure or a table."""

    place: str
    text: str


def notes(text: str) -> list[Note]:
    r"""Return the notes of a file: what follows a line ``<!-- after: PLACE -->``, up to the next.

    Other comments, each a line, are for whoever writes the notes, and a note without text is none.

    Raises
    ------
    ValueError
        Something stands before the first mark, or a mark is misspelt.

    Examples
    --------
    >>> notes("<!-- after: fig:error -->\nSo it is.")
    [Note(place='fig:error', text='So it is.')]
    """
    return [note for note in _marked(text) if note.place]


def _marked(text: str) -> list[Note]:
    """Return the notes of a file, and as a note without a place its references."""
    found: list[Note] = []
    for number, line in enumerate(text.splitlines(), 1):
        if mark := _MARK.fullmatch(line.strip()):
            found.append(Note(mark[1] or "", ""))
        elif _COMMENT.fullmatch(line.strip()):
            continue
        elif line.lstrip().startswith("<!-- after") or (line.strip() and not found):
            raise ValueError(
                f"line {number} of {NAME} must be a mark such as <!-- after: fig:error -->, which "
                "says behind which section, figure or table the text after it goes"
            )
        elif found:
            found[-1] = Note(found[-1].place, f"{found[-1].text}{line}\n")
    return [Note(note.place, note.text.strip("\n")) for note in found if note.text.strip()]


def sources(text: str) -> str:
    r"""Return the references of a file of notes: what follows ``<!-- references -->``.

    Examples
    --------
    >>> sources("<!-- after: rank -->\nSee [@a].\n<!-- references -->\n- @a: A. Smith, *T*, 2020.")
    '- @a: A. Smith, *T*, 2020.'
    """
    found = "\n".join(note.text for note in _marked(text) if not note.place)
    return re.sub(r"^\s*```.*$", "", found, flags=re.MULTILINE).strip()


def unanswered(markdown: str, text: str) -> list[str]:
    """Return the places of the questions of a document to which notes have no answer."""
    answered = {note.place for note in notes(text)}
    return [place for place, _ in _asked(markdown) if place not in answered]


def _asked(markdown: str) -> list[tuple[str, str]]:
    """Return the place and the text of each question of a document."""
    return re.findall(r"^::: \{#(\S+)\}\n((?:>.*\n)+):::$", markdown, re.MULTILINE)


def skeleton(markdown: str, first: str, last: str) -> str:
    r"""Return a file of notes with a mark for each question that a document asks its reader.

    A question is a quote in a ``::: {#PLACE}`` of its own. ``first`` is the first comment of the
    file, ``last`` that on references.

    Examples
    --------
    >>> print(skeleton("::: {#own-rank}\n> Why?\n:::\n", "Write below.", "Yours."))
    <!-- Write below. -->
    <BLANKLINE>
    <!-- after: own-rank -->
    <!-- Why? -->
    <BLANKLINE>
    <!-- references -->
    <!-- Yours. -->
    <BLANKLINE>
    """
    marks = [
        f"<!-- after: {place} -->\n<!-- {' '.join(re.sub('[>*]', '', quote).split())} -->\n"
        for place, quote in _asked(markdown)
    ]
    return "\n".join([f"<!-- {first} -->\n", *marks, f"<!-- references -->\n<!-- {last} -->\n"])


def merged(blocks: list[Any], notes: list[tuple[str, list[Any]]]) -> list[Any]:
    """Return the blocks of a document with those of notes after their places.

    A note goes to the end of a section, before the section that follows it, and in place of a
    question (a ``::: {#PLACE}`` of its own). Of ``fig:error`` and ``tbl:error`` the name ``error``
    is enough.

    Raises
    ------
    ValueError
        A place is unknown.
    """
    ends = {name: (end, -start) for name, start, end in _places(blocks)}
    placed: list[tuple[tuple[int, int], list[Any]]] = []
    answered: list[Any] = []
    for at, own in notes:
        place = next((name for name in (at, f"fig:{at}", f"tbl:{at}") if name in ends), None)
        if place is None:
            known = f"Known: {', '.join(ends)}"
            raise ValueError(f"{NAME}: {checks.unknown('place', at, list(ends), known)}")
        placed.append((ends[place], own))
        answered += [b for b in blocks if b["t"] == "Div" and b["c"][0][0] == place]
    joined = [*blocks]
    # of places with the same end, the later beginning comes first
    placed.sort(key=lambda one: one[0])
    for (end, _), own in reversed(placed):
        joined[end:end] = own
    return [block for block in joined if not any(block is one for one in answered)]


def _places(blocks: list[Any]) -> Iterator[tuple[str, int, int]]:
    """Yield the name of every section, figure, table and question, where it begins and ends."""
    for i, block in enumerate(blocks):
        if block["t"] == "Header":
            level, (identifier, *_), _ = block["c"]
            later = enumerate(blocks[i + 1 :], i + 1)
            ends = (j for j, other in later if other["t"] == "Header" and other["c"][0] <= level)
            yield identifier, i, next(ends, len(blocks))
        elif block["t"] in ("Figure", "Table", "Div") and block["c"][0][0]:
            yield block["c"][0][0], i, i + 1
