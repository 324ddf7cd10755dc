"""Drawings inside a page: what repeats is there once, and nothing in them is code.

A drawing that is part of the page, unlike a picture, can say what its curves are. Only parts and
attributes that are known here get there; a drawing with any other stays a picture.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
PARTS = (
    "svg", "g", "defs", "path", "use", "clipPath", "image", "rect", "circle", "ellipse", "line",
    "polygon", "polyline",
)  # fmt: skip
PASSED_OVER = ("title", "desc", "metadata")
EVERYWHERE = "*{stroke-linejoin: round; stroke-linecap: butt}"  # of matplotlib, as in style.css
ATTRIBUTES = (
    "d", "x", "y", "width", "height", "transform", "points", "r", "rx", "ry", "cx", "cy", "x1",
    "y1", "x2", "y2", "data-x", "data-y", "data-x-name", "data-y-name", "data-curve", "data-band",
    "data-entry", "data-handle", "data-edges",
)  # fmt: skip
PIXELS = ("href", "width", "height", "class")  # of a picture, wherever it is
ROUNDED = ("d", "x", "y", "width", "height", "points")
DIGITS = 3  # of a place, in points
_STYLE = re.compile(r"[\w\s:;#.,%-]*")
_PIXELS = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")
_CLIP = re.compile(r"url\(#([^()]+)\)")
_LONG = re.compile(rf"-?\d+\.\d{{{DIGITS + 1},}}")


class _UnknownError(ValueError):
    """A drawing has a part that is not known here."""


class Drawings:
    """The drawings of a page, and what they share."""

    def __init__(self) -> None:
        self._shared: dict[str, str] = {}  # what others refer to, and its name
        self._styles: dict[str, str] = {}  # declarations, and the class that has them

    def inline(self, file: Path, attributes: dict[str, str]) -> str | None:
        """Return an SVG as an element with these attributes; None if it has an unknown part.

        One with a picture of pixels in it is of the class "pictured", too.
        """
        root = ElementTree.parse(file).getroot()
        try:
            _check(root)
            names = {x.attrib["id"]: self._define(x) for x in _referred(root)}
            inside = "".join(self._written(child, names) for child in root)
            view = root.attrib["viewBox"]
        except (_UnknownError, KeyError, RecursionError):
            return None
        kind = "drawing pictured" if root.find(f".//{SVG}image") is not None else "drawing"
        return f"<svg{pairs({'class': kind, **attributes, 'viewBox': view})}>{inside}</svg>"

    def rules(self) -> str:
        """Return the style rules of the drawings."""
        return "".join(f".{name}{{{rule}}}\n" for rule, name in self._styles.items())

    def definitions(self) -> str:
        """Return an element with what the drawings share; nothing of it is seen."""
        inside = "".join(
            re.sub(r"^<\w+", rf'\g<0> id="{name}"', text) for text, name in self._shared.items()
        )
        return f'<svg class="shared" aria-hidden="true">{inside}</svg>' if inside else ""

    def _define(self, element: Element) -> str:
        """Return the name in the page of what others refer to."""
        return self._share(self._written(element, {}))

    def _share(self, text: str) -> str:
        return self._shared.setdefault(text, f"d{len(self._shared)}")

    def _class(self, element: Element) -> str:
        """Return the class that has the style of an element, "" where it has none."""
        parts = element.attrib.get("style", "").split(";")
        rule = ";".join(part.strip().replace(": ", ":") for part in parts if part.strip())
        return self._styles.setdefault(_rounded(rule), f"s{len(self._styles)}") if rule else ""

    def _written(self, element: Element, names: dict[str, str], style: str = "") -> str:
        """Return an element as text, but for what others refer to; its parent has a style."""
        tag = _tag(element)
        if tag in PASSED_OVER or tag == "style" or element.attrib.get("id") in names:
            return ""
        given = {key: _rounded(x) if key in ROUNDED else x for key, x in element.attrib.items()}
        given = {key: given[key] for key in ATTRIBUTES if key in given}
        own = self._class(element)
        if tag == "g" and not own:
            own = inherited = self._of_all(list(element))
        else:
            inherited = ""
        if own and own != style:
            given["class"] = own
        if clip := element.attrib.get("clip-path"):
            given["clip-path"] = f"url(#{names[_clipped(clip)]})"
        if link := _link(element):
            given["href"] = f"#{names[link[1:]]}" if link[0] == "#" else "".join(link.split())
        if tag == "image":
            return self._image(given)
        inside = "".join(self._written(child, names, inherited) for child in element)
        if tag in ("defs", "g") and not inside:
            return ""
        if tag == "defs" or (tag == "g" and not given):
            return inside
        return f"<{tag}{pairs(given)}>{inside}</{tag}>" if inside else f"<{tag}{pairs(given)} />"

    def _of_all(self, children: list[Element]) -> str:
        """Return the style that many uses of one thing have, which their group can have for them.

        Opacity is not inherited; that of fill and stroke is.
        """
        styles = {child.attrib.get("style", "") for child in children}
        uses = all(_tag(child) == "use" for child in children)
        if len(styles) != 1 or not uses or re.search(r"(?<!-)opacity", "".join(styles)):
            return ""
        return self._class(children[0])

    def _image(self, given: dict[str, str]) -> str:
        """Return the use of a picture of pixels, which many drawings may have."""
        pixels = {key: x for key, x in given.items() if key in PIXELS}
        place = {key: x for key, x in given.items() if key not in PIXELS}
        return f"<use{pairs({**place, 'href': '#' + self._share(f'<image{pairs(pixels)} />')})} />"


def _tag(element: Element) -> str:
    return str(element.tag).removeprefix(SVG)


def _link(element: Element) -> str:
    return element.attrib.get(LINK, element.attrib.get("href", ""))


def _clipped(value: str) -> str:
    match = _CLIP.fullmatch(value)
    if match is None:
        raise _UnknownError(value)
    return match[1]


def _check(element: Element) -> None:
    """Raise an error unless every part of a drawing is known to be harmless."""
    tag = _tag(element)
    if tag in PASSED_OVER or (tag == "style" and (element.text or "").strip() == EVERYWHERE):
        return
    if tag not in PARTS:
        raise _UnknownError(tag)
    for key, value in element.attrib.items():
        if key == "style" and not _STYLE.fullmatch(value):
            raise _UnknownError(value)
        if key not in (*ATTRIBUTES, LINK, "id", "style", "href", "clip-path", "viewBox", "version"):
            raise _UnknownError(key)
    link = _link(element)
    if link and not link.startswith("#") and not (tag == "image" and _PIXELS.fullmatch(link)):
        raise _UnknownError(link)
    for child in element:
        _check(child)


def _referred(root: Element) -> Iterator[Element]:
    """Yield every element that another refers to."""
    names = {_link(x).removeprefix("#") for x in root.iter()}
    names |= {_clipped(x.attrib["clip-path"]) for x in root.iter() if "clip-path" in x.attrib}
    return (x for x in root.iter() if x.attrib.get("id") in names - {""})


def _rounded(text: str) -> str:
    """Return numbers with no more digits than can be seen, and no more blanks than are needed.

    Examples
    --------
    >>> _rounded("M 53.048529 -561.200041")
    'M53.049-561.2'
    """
    text = _LONG.sub(lambda x: f"{float(x[0]):.{DIGITS}f}".rstrip("0").rstrip("."), text)
    return re.sub(r"(?<=[A-Za-z]) | (?=[-A-Za-z])", "", " ".join(text.split()))


def pairs(attributes: dict[str, str]) -> str:
    """Return the attributes of an element as text."""
    return "".join(f' {key}="{html.escape(value)}"' for key, value in attributes.items())
