"""Where the figures and tables of a PDF stand: in their sections, on pages that are full.

A figure stands where its text has it. If the page has no room for it, the pictures of the page
shrink a little; if that is not enough, the figure goes to the top of the next page, and text of
its section fills this one.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

BOTTOM = 270.0  # mm from the top of the paper, where the text of a page of template.typ ends
EMPTY = 15.0  # mm below a text that need not be filled
APART = 5.0  # mm between a figure and what is above it
LONG = 120.0  # mm of a table that breaks: half of a page
SMALLEST = 0.8  # of the size of a picture: letters of 7 points then have 5.6

Fit = dict[str, tuple[float, str]]  # by label: the size of its picture; "here", "next" or "breaks"


class Position(NamedTuple):
    """Where a figure or table stands, in mm on its page; or where a paragraph, nameless, ends."""

    name: str
    image: bool
    page: int
    top: float
    bottom: float
    picture: float  # the height of what can shrink


def places(marks: list[Any]) -> list[Position]:
    """Return the places that the marks (name, image?, page, mm) of template.typ show.

    Examples
    --------
    >>> figure = [["fig:x", True, 1, 45.0], ["fig:x", True, 1, 90.0], ["fig:x", True, 1, 100.0]]
    >>> places([["", False, 1, 40.0], *figure])[1]
    Position(name='fig:x', image=True, page=1, top=45.0, bottom=100.0, picture=45.0)
    """
    grouped: dict[Any, list[Any]] = {}
    for i, mark in enumerate(marks):  # of a paragraph there is one
        grouped.setdefault(mark[0] or i, []).append(mark)
    return [
        Position(name, image, page, at[0][3], bottom, at[len(at) // 2][3] - at[0][3])
        for at in grouped.values()
        for name, image, page, bottom in at[-1:]
    ]


def fitted(places: Callable[[Fit], list[Position]]) -> Fit:
    """Return sizes and places of figures that would leave much of a page empty in their places.

    `places` maps a fit to all positions of the document, in the order of its text.
    """
    positions = places({})
    long = [x.name for x in positions if x.name and not x.image and x.bottom - x.top > LONG]
    fit: Fit = dict.fromkeys(long, (1.0, "breaks"))
    positions = places(fit) if fit else positions
    before = {x.name: x for x in positions}
    decided = set(fit)
    while late := next(_late(positions, fit, decided, before), None):
        name, page, smaller = late
        decided.add(name)
        if smaller:
            tried = places(fit | smaller)
            if any(x.name == name and x.page == page for x in tried):
                fit, positions = fit | smaller, tried
                continue
        tried = places(fit | {name: (1.0, "next")})
        if any(x.name == name and x.page > page for x in tried):  # not at the top of this one
            fit, positions = fit | {name: (1.0, "next")}, tried
    return fit


def _late(
    positions: list[Position], fit: Fit, decided: set[str], before: dict[str, Position]
) -> Iterator[tuple[str, int, Fit]]:
    """Yield figures that leave their page, the page, and sizes of pictures that give it room."""
    flow, floating = Position("", False, 1, 0, 0, 0), {False: (0, 0.0), True: (0, 0.0)}
    for one in positions:
        if fit.get(one.name, (1, ""))[1] == "next":
            floating[one.image] = one.page, one.bottom
            continue
        if one.name and one.name not in decided:
            last = max(x.bottom for x in (flow, *positions) if x.page == flow.page)
            if (one.page, one.bottom) < floating[one.image]:  # it would overtake another
                yield one.name, one.page, {}
            elif one.page > flow.page and BOTTOM - last > EMPTY:
                needed = last + APART + before[one.name].bottom - before[one.name].top - BOTTOM
                there = [x.name for x in positions if x.image and (x == one or x.page == flow.page)]
                behind = floating[one.image][0] > flow.page
                smaller = {} if behind else _smaller([before[x] for x in there], fit, needed)
                yield one.name, flow.page, smaller
        flow = one


def _smaller(figures: list[Position], fit: Fit, needed: float) -> Fit:
    """Return sizes of pictures that are so much less high together; none if that is too small."""
    sizes = {x.name: fit.get(x.name, (1.0, "here")) for x in figures}
    high = {x.name: x.picture * sizes[x.name][0] for x in figures if sizes[x.name][1] == "here"}
    factor = 1 - needed / max(sum(high.values()), 1e-9)
    smaller: Fit = {name: (round(sizes[name][0] * factor, 3), "here") for name in high}
    return smaller if high and min(smaller.values())[0] >= SMALLEST else {}
