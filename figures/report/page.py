"""What the page has beyond the document: boxes that scroll, sliders and their script.

Whatever may be wider than a phone scrolls sideways in a box of its own, which the keyboard reaches.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
from pathlib import Path

from figures.report.document import Node, plain

SCRIPT = Path(__file__).with_name("slider.js").read_text(encoding="utf-8").strip()


def script_hash() -> str:
    """Return how a Content-Security-Policy names the script, and with it no other."""
    digest = hashlib.sha256(SCRIPT.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


class Page:
    """Puts tables, figures and formulas into boxes that scroll, and panels behind a slider."""

    def __init__(
        self, words: dict[str, str], titles: dict[str, str], panels: dict[str, dict[str, str]]
    ) -> None:
        self.words, self.titles, self.panels = words, titles, panels
        self.sliders = 0

    def __call__(self, node: Node) -> Node:
        """Put a table, a figure or a formula into its box."""
        if isinstance(node, list):
            return node
        if node["t"] == "Table":
            return self._table(node)
        if node["t"] == "Figure":
            return self._figure(node)
        if node["t"] == "Math" and node["c"][0]["t"] == "DisplayMath":
            return {"t": "Span", "c": [_scrolling(self.words["formula"]), [node]]}
        return node

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
        for image in _images(blocks):
            if panels := self.panels.get(image["c"][2][0]):
                boxes.append({"t": "RawBlock", "c": ["html", self._slider(label, panels)]})
        return {"t": "Figure", "c": [attributes, caption, boxes]}

    def _slider(self, label: str, panels: dict[str, str]) -> str:
        """Return panels and their slider, hidden until the script shows them."""
        self.sliders += 1
        first = min(range(len(panels)), key=lambda place: abs(math.log(float([*panels][place]))))
        quantity = html.escape(self.words["temperature"])
        pictures = "\n".join(
            f'<img src="{copy}" data-value="{value}" '
            f'alt="{html.escape(self.titles[copy] or f"{label}, {quantity} {value}")}" />'
            for value, copy in panels.items()
        )
        return f"""<div class="panels" hidden="">
<p><label>{quantity} <input type="range" min="0" max="{len(panels) - 1}" value="{first}"
autocomplete="off" /></label> <output aria-live="off"></output></p>
<div class="scroll" tabindex="0" role="group" aria-label="{html.escape(label)}">
{pictures}
</div>
</div>"""


def _scrolling(label: str) -> Node:
    """Return the attributes of a box that the keyboard can scroll."""
    return ["", ["scroll"], [["tabindex", "0"], ["role", "group"], ["aria-label", label]]]


def _label(caption: Node) -> str:
    """Return the number that begins a caption, such as "Table 1"; "" without one."""
    first = caption[1][0]["c"][0] if caption[1] else None
    return plain(first) if first is not None and first["t"] == "Strong" else ""


def _images(node: Node) -> list[Node]:
    """Return every image below a node."""
    if isinstance(node, list):
        return [image for item in node for image in _images(item)]
    if not isinstance(node, dict):
        return []
    return [node] if node.get("t") == "Image" else _images(node.get("c"))
