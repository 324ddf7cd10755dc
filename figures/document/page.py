"""What the page has beyond the document: drawings, boxes that scroll, appendices, sliders, scripts.

Whatever may be wider than a phone scrolls sideways in a box of its own, which the keyboard reaches.
The scripts are few enough to be read, and none is anybody else's: a library that follows the
reading is longer than these, and would still have to be told what a curve is.
"""

import base64
import hashlib
import html
import math
from pathlib import Path

from figures.document.page_drawings import Drawings, pairs
from figures.document.tree import APPENDIX, Node, plain

# The first has what the others use.
SCRIPTS = ("appendices", "contents", "slider", "curves")
SCRIPT = "\n".join(
    (Path(__file__).parent / "scripts" / f"{name}.js").read_text(encoding="utf-8").strip()
    for name in SCRIPTS
)


def script_hash() -> str:
    """Return how a Content-Security-Policy names the script, and with it no other."""
    digest = hashlib.sha256(SCRIPT.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


class Page:
    """Puts drawings into the page, what is wide into boxes that scroll, panels behind a slider.

    Parameters
    ----------
    build : Path
        Where the figures are.
    words : dict
        What is said in the language of the page.
    titles : dict
        Of each figure.
    panels : dict
        Of each figure those at one temperature, by temperature.
    """

    def __init__(
        self,
        build: Path,
        words: dict[str, str],
        titles: dict[str, str],
        panels: dict[str, dict[str, str]],
    ) -> None:
        self.build, self.words, self.titles, self.panels = build, words, titles, panels
        self.drawings = Drawings()
        self._inline: dict[str, str] = {}

    def __call__(self, node: Node) -> Node:
        """Put a picture, a table, a figure or a formula where it is to be."""
        if isinstance(node, list):
            return node
        if node["t"] == "Image":
            return self._image(node)
        if node["t"] == "Table":
            return self._table(node)
        if node["t"] == "Figure":
            return self._figure(node)
        if node["t"] == "Math" and node["c"][0]["t"] == "DisplayMath":
            return {"t": "Span", "c": [_scrolling(self.words["formula"]), [node]]}
        return node

    def drawn(self) -> list[str]:
        """Return the drawings, whose names of curves are text of the page."""
        return list(self._inline.values())

    def filled(self, page: str) -> str:
        """Return the page with the drawings, which pandoc need not read, in their places."""
        for place, drawing in self._inline.items():
            page = page.replace(place, drawing, 1)
        return page.replace("<body>", f"<body>\n{self.drawings.definitions()}", 1)

    def _drawn(self, copy: str, label: str, attributes: dict[str, str]) -> str | None:
        """Return the place of a drawing in the page; None of what has to stay a picture."""
        if not copy.endswith(".svg"):
            return None
        said = {"role": "img", "aria-label": label} if label else {"aria-hidden": "true"}
        drawing = self.drawings.inline(self.build / copy, {**said, **attributes})
        if drawing is None:
            return None
        place = f"<!--drawing {len(self._inline) + 1}-->"
        self._inline[place] = drawing
        return place

    def _image(self, node: Node) -> Node:
        (identifier, _, sizes), description, (copy, _) = node["c"]
        size = "".join(f"{key}:{value};" for key, value in sizes if key in ("width", "height"))
        attributes = {"id": identifier, "style": size}
        place = self._drawn(
            copy, plain(description), {key: value for key, value in attributes.items() if value}
        )
        return node if place is None else {"t": "RawInline", "c": ["html", place], "of": copy}

    def _table(self, node: Node) -> Node:
        attributes, caption, *rest = node["c"]
        bare = {"t": "Table", "c": [["", [], []], [None, []], *rest]}
        box = {"t": "Div", "c": [_scrolling(_label(caption) or self.words["Table"]), [bare]]}
        if not caption[1]:
            return box
        return {"t": "Figure", "c": [[attributes[0], ["table"], []], caption, [box]]}

    def _figure(self, node: Node) -> Node:
        attributes, caption, blocks = node["c"]
        label = _label(caption) or self.words["Figure"]
        boxes = [{"t": "Div", "c": [_scrolling(label), blocks]}]
        for copy in _pictures(blocks):
            if panels := self.panels.get(copy):
                boxes.append({"t": "RawBlock", "c": ["html", self._slider(label, panels)]})
        return {"t": "Figure", "c": [attributes, caption, boxes]}

    def _slider(self, label: str, panels: dict[str, str]) -> str:
        """Return panels and their slider, hidden until the script shows them."""
        first = min(range(len(panels)), key=lambda place: abs(math.log(float([*panels][place]))))
        quantity = html.escape(self.words["temperature"])
        pictures = []
        for value, copy in panels.items():
            said = self.titles[copy] or f"{label}, {self.words['temperature']} {value}"
            place = self._drawn(copy, said, {"data-value": value})
            picture = {"src": copy, "data-value": value, "alt": said}
            pictures.append(place or f"<img{pairs(picture)} />")
        shown = "\n".join(pictures)
        return f"""<div class="panels" hidden="">
<p><label>{quantity} <input type="range" min="0" max="{len(panels) - 1}" value="{first}"
autocomplete="off" /></label> <output aria-live="off"></output></p>
<div class="scroll" tabindex="0" role="group" aria-label="{html.escape(label)}">
{shown}
</div>
</div>"""


def with_appendices(blocks: list[Node]) -> list[Node]:
    """Return the blocks of a document with every section that is marked an appendix in a box.

    The box is open; where scripts run, it closes.
    """
    written: list[Node] = []
    ends = 0  # the level of the heading at which an open box ends
    for block in blocks:
        level = block["c"][0] if block["t"] == "Header" else None
        if ends and level is not None and level <= ends:
            written.append(_raw("</details>"))
            ends = 0
        if level is not None and not ends and APPENDIX in block["c"][1][1]:
            written += [
                _raw('<details class="appendix" open="">\n<summary>'),
                block,
                _raw("</summary>"),
            ]
            ends = level
        else:
            written.append(block)
    return [*written, _raw("</details>")] if ends else written


def _raw(text: str) -> Node:
    return {"t": "RawBlock", "c": ["html", text]}


def _scrolling(label: str) -> Node:
    """Return the attributes of a box that the keyboard can scroll."""
    return ["", ["scroll"], [["tabindex", "0"], ["role", "group"], ["aria-label", label]]]


def _label(caption: Node) -> str:
    """Return the number that begins a caption, such as "Table 1"; "" without one."""
    first = caption[1][0]["c"][0] if caption[1] else None
    return plain(first) if first is not None and first["t"] == "Strong" else ""


def _pictures(node: Node) -> list[str]:
    """Return the file of every picture below a node, drawn or not."""
    if isinstance(node, list):
        return [copy for item in node for copy in _pictures(item)]
    if not isinstance(node, dict):
        return []
    if node.get("t") == "Image":
        return [node["c"][2][0]]
    return [node["of"]] if "of" in node else _pictures(node.get("c"))
