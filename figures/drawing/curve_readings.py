"""What a page may say of a drawing: the name of every curve, and the scales to read it by.

A drawing holds it as ``data-`` attributes of its groups, which other readers of SVG pass over.
"""

import math
import re
from collections.abc import Iterator
from itertools import chain
from weakref import WeakKeyDictionary
from xml.sax.saxutils import quoteattr

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection, LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter

from figures.drawing.curve_labels import Names

POINTS = 72  # an inch, in which SVG places everything
_EDGES: WeakKeyDictionary[Axes, tuple[float, float]] = WeakKeyDictionary()
FORMULA = re.compile(r"(?<!\\)\$(.*?)(?<!\\)\$", re.DOTALL)  # a dollar of a name is escaped
CAPS = ("_", "|")  # markers at the ends of error bars


def edges(ax: Axes, least: float, most: float = math.inf) -> None:
    """Say that what is below one value or above the other is drawn there, so that a page does."""
    _EDGES[ax] = least, most


def marked(figure: Figure) -> dict[str, dict[str, str]]:
    """Return the attributes of groups by their identifiers, which the artists are given.

    ``curve`` is the name of a curve, ``band`` that of the curve which a band or a bar is around,
    ``entry`` that of the curve which a text of a legend or beside a curve names, ``handle`` that of
    the sample beside it. Axes say how a place is read: scale, two places, the values there; and
    what both axes are.

    The figure is laid out.
    """
    found: list[tuple[Artist, dict[str, str]]] = []
    names = _names(figure)
    for ax in figure.axes:
        parts = [part for part in (*ax.lines, *ax.collections) if part in names]
        if parts:
            found.append((ax, _scales(ax)))
        for part in parts:
            curve = isinstance(part, Line2D) and part.get_marker() not in CAPS
            found.append((part, {"curve" if curve else "band": names[part]}))
    drawn = set(names.values())
    for names_beside in figure.findobj(Names):
        found += [(x, {"band": _plain(n)}) for x, n in zip(names_beside.leads, names_beside.names)]
    for handle, text, said in _entries(figure):
        name = _plain(said)
        if name in drawn:
            found.append((text, {"entry": name}))
            if handle is not None:
                found.append((handle, {"handle": name}))
    attributes = {}
    for number, (artist, about) in enumerate(found, 1):
        identifier = f"part-{number}"
        artist.set_gid(identifier)
        attributes[identifier] = {f"data-{key}": value for key, value in about.items()}
    return attributes


def written(svg: str, attributes: dict[str, dict[str, str]]) -> str:
    """Return a drawing whose groups have these attributes, by their identifiers.

    Examples
    --------
    >>> written('<g id="part-1">', {"part-1": {"data-curve": "a < b"}})
    '<g id="part-1" data-curve="a &lt; b">'
    """
    for identifier, about in attributes.items():
        said = "".join(f" {key}={quoteattr(value)}" for key, value in about.items())
        svg = svg.replace(f' id="{identifier}"', f' id="{identifier}"{said}', 1)
    return svg


def _names(figure: Figure) -> dict[Artist, str]:
    """Return the name of every curve, band and bar.

    One without a name has that of the only curve that looks like it, or has its colour: in its
    panel, or in the figure if there is none. Many things are grey that belong to no curve.
    """
    names: dict[Artist, str] = {}
    for ax in figure.axes:
        for group in ax.containers:
            if isinstance(group, ErrorbarContainer) and (name := _name(group.get_label())):
                names |= dict.fromkeys(group.get_children(), name)
        names |= {line: name for line in ax.lines if (name := _name(line.get_label()))}
    given = dict(names)
    for ax in figure.axes:
        inside = {part: name for part, name in given.items() if part.axes is ax}
        for part in (*ax.lines, *ax.collections):
            colour = _colour(part)
            alike = {name for other, name in given.items() if _look(other) == _look(part)}
            here = {name for other, name in inside.items() if _colour(other) == colour}
            anywhere = {name for other, name in given.items() if _colour(other) == colour}
            known = [alike, *([here or anywhere] if len(set(colour[1::2])) > 1 else [])]
            if part not in names and (only := next((x for x in known if len(x) == 1), None)):
                names[part] = next(iter(only))
    return names


def _name(label: object) -> str:
    """Return a label as plain text, "" where matplotlib made it."""
    return "" if label is None or str(label).startswith("_") else _plain(str(label))


def _plain(text: str) -> str:
    r"""Return a text of a figure without its marks and line breaks.

    Examples
    --------
    >>> _plain("rank $r = 10^{-2}$\nof all")
    'rank r = 10^-2 of all'
    >>> _plain(r"a \$x\$ {b}")
    'a $x$ {b}'
    """
    text = FORMULA.sub(lambda m: re.sub(r"\\mathrm|[{}]", "", m[1]), text)
    return " ".join(text.replace(r"\$", "$").split())


def _look(part: Artist) -> object:
    """Return what two lines of one curve have in common; nothing is like a band."""
    if not isinstance(part, Line2D):
        return part
    return part.get_linestyle(), part.get_marker(), part.get_linewidth(), _colour(part)


def _colour(part: Artist) -> str:
    """Return the colour of a line, a band or bars, "" of anything else."""
    if isinstance(part, Line2D):
        return to_hex(part.get_color())
    if not isinstance(part, (PolyCollection, LineCollection)):
        return ""
    filled: Collection = part
    colours = [*filled.get_facecolor(), *filled.get_edgecolor()]
    return to_hex(colours[0][:3]) if colours else ""


def _entries(figure: Figure) -> Iterator[tuple[Artist | None, Text, str]]:
    """Yield every text that may name a curve, with the sample of it in a legend, and the name."""
    for ax in figure.axes:
        yield from ((None, text, text.get_text()) for text in ax.texts)
    for beside in figure.findobj(Names):
        yield from zip(beside.samples, beside.texts, beside.names)
    own = (legend for ax in figure.axes if (legend := ax.get_legend()))
    for legend in chain(figure.legends, own):
        for handle, text in zip(legend.legend_handles, legend.get_texts()):
            yield handle if isinstance(handle, Artist) else None, text, text.get_text()


def _scales(ax: Axes) -> dict[str, str]:
    """Return how places on a drawing are read: "log 43.4 255.6 0.2 10" says the values of two."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    width, height = (POINTS * size for size in figure.get_size_inches())
    box = ax.get_position()
    places = {"x": (width * box.x0, width * box.x1)}
    places["y"] = (height * (1 - box.y0), height * (1 - box.y1))
    scales = {}
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        ends = (*places[name], *axis.get_view_interval())
        scales[name] = " ".join([_kind(axis), *(f"{end:.8g}" for end in ends)])
        scales[f"{name}-name"] = _plain(_of_axis(ax, name))
    if ax in _EDGES:
        scales["edges"] = "{:g} {:g}".format(*_EDGES[ax])
    return scales


def _kind(axis: Axis) -> str:
    """Return the kind of scale, with the level up to which a symmetric logarithm is linear."""
    given = isinstance(axis.get_major_formatter(), (FixedFormatter, FuncFormatter))
    words = given and any(
        re.search(r"[^\W\d_]{2}", label.get_text()) for label in axis.get_ticklabels()
    )
    if words:  # places have names, no values
        return "none"
    level = getattr(axis.get_transform(), "linthresh", None)
    return axis.get_scale() if level is None else f"{axis.get_scale()}:{level:g}"


def _of_axis(ax: Axes, name: str) -> str:
    """Return what an axis is: its own label, that of a panel in line with it, or the title."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    labels = [_label(other, name) for other in figure.axes if _in_line(ax, other, name)]
    near = [_label(ax, name), *labels]
    return next((label for label in near if label), ax.get_title() if name == "y" else "")


def _label(ax: Axes, name: str) -> str:
    return str(getattr(ax, f"get_{name}label")())


def _in_line(ax: Axes, other: Axes, name: str) -> bool:
    """Return whether panels of a column have the same x axis, of a row the same y axis."""
    mine, its = ax.get_subplotspec(), other.get_subplotspec()
    if mine is None or its is None:
        return False
    span = "colspan" if name == "x" else "rowspan"
    scale, ends = f"get_{name}scale", f"get_{name}lim"
    return all(getattr(ax, read)() == getattr(other, read)() for read in (scale, ends)) and getattr(
        mine, span
    ) == getattr(its, span)
