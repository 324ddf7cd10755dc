"""Numbers before captions, and links in place of references, in pandoc's tree of a document."""

import functools
import html
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from approx import checks
from figures.words.terminal_columns import width

Node = Any  # one node of pandoc's JSON tree: dict, list, str, number or None
NONE: list[Any] = ["", [], []]  # attributes
CHARACTERS = 80  # of a line of the page of a word processor
_CHINESE = re.compile("[\u3001-\u9fff\uff01-\uff5e]$")
# pandoc escapes these only where it would also write quotation marks for typst to turn
_SHORTHAND = re.compile(r"--|-\?|\.\.\.")
# fonts of TeX have these in formulas only: Greek, superscripts beyond Latin-1, arrows, operators
_SYMBOLS = re.compile("[\u0370-\u03ff\u2070-\u209f\u2190-\u22ff]+")


def plain(node: Node) -> str:
    """Return the text of a node, without its markup."""
    if isinstance(node, list):
        return "".join(map(plain, node))
    if not isinstance(node, dict):
        return ""
    kind = node.get("t")
    if kind in ("Str", "MetaString"):
        return str(node["c"])
    return " " if kind in ("Space", "SoftBreak", "LineBreak") else plain(node.get("c"))


def walk(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the tree with every element changed, leaves first."""
    if isinstance(node, list):
        return [walk(item, change) for item in node]
    if isinstance(node, dict):
        node = {key: walk(value, change) for key, value in node.items()}
        return change(node) if "t" in node else node
    return node


def raw(kind: str, markup: str, form: str = "Block") -> Node:
    """Return markup of a kind of document, a block or inline."""
    return {"t": f"Raw{form}", "c": [kind, markup]}


def _joined(inlines: list[Node]) -> list[Node]:
    """Return inlines without the space that an @ needs behind a Chinese character."""
    wide = [_CHINESE.search(plain(before)) for before in [{}, *inlines]]
    cited = [after.get("t") == "Cite" for after in [*inlines[1:], {}]]
    return [x for x, *joined in zip(inlines, wide, cited) if x["t"] != "Space" or not all(joined)]


def check_inside(folder: Path, name: str) -> None:
    """Refuse a figure that is not in the folder of its document: pandoc would embed it."""
    file = (folder / name.partition("#")[0]).resolve()
    if re.search(r"[\\:\0]|^//", name) or not file.is_relative_to(folder.resolve()):
        raise ValueError(f"a figure must lie in the folder of its document, got {name!r}")


class Numbering:
    """Puts "Figure 1" and "Table 1" before captions, and links with these in place of @fig:x.

    LaTeX counts by itself. For a page it puts what may be wider than a phone into boxes that
    scroll, which the keyboard reaches, and the panels of a figure behind a slider.

    Parameters
    ----------
    folder : Path
        The document's.
    words : dict
        Those of its language.
    form : str
        What is written: "html", "typst", "docx" or "latex".
    sources : dict
        The number of each reference, by its key.
    """

    def __init__(
        self, folder: Path, words: dict[str, str], form: str, sources: dict[str, int]
    ) -> None:
        self.folder, self.words, self.form, self.sources = folder, words, form, sources
        self.count: Counter[str] = Counter()
        self.labels: dict[str, str] = {}

    def numbered(self, node: Node) -> Node:
        """Return a figure, a table or a formula as the document shows it."""
        kind = node["t"]
        if kind in ("Para", "Plain"):
            return {"t": kind, "c": _joined(node["c"])}
        if kind == "Image":
            check_inside(self.folder, unquote(node["c"][2][0]))
        if kind == "Str" and self.form == "typst" and _SHORTHAND.search(node["c"]):
            return raw("typst", f"#{json.dumps(node['c'], ensure_ascii=False)};", "Inline")
        if kind == "Str" and self.form == "latex" and _SYMBOLS.search(node["c"]):
            return {"t": "Span", "c": [NONE, _symbols(node["c"])]}
        if kind == "Math" and node["c"][0]["t"] == "DisplayMath" and self.form == "html":
            return {"t": "Span", "c": [_scrolling(self.words["formula"]), [node]]}
        if kind not in ("Figure", "Table"):
            return node
        attributes, (short, blocks), *body = node["c"]
        label = self.words[kind]
        if blocks:
            self.count[kind] += 1
            label = f"{label}\N{NO-BREAK SPACE}{self.count[kind]}"
            self.labels[attributes[0]] = label
            attributes = [attributes[0] or f"{kind}-{self.count[kind]}".lower(), *attributes[1:]]
            head = [{"t": "Strong", "c": [_text(label)]}, _text(self.words["after"])]
            if self.form != "latex":
                blocks = [{"t": "Plain", "c": head + blocks[0]["c"]}, *blocks[1:]]
        caption = [short, blocks]
        described = walk(body[0], functools.partial(self._described, label))
        if self.form in ("docx", "latex"):
            body = [described] if kind == "Figure" else [_widths(*body), *body[1:]]
        if self.form != "html":
            return {"t": kind, "c": [attributes, caption, *body]}
        if kind == "Figure":
            sliders = [self._slider(target, label) for target in _targets(body[0])]
            box = {"t": "Div", "c": [_scrolling(label), described]}
            return {"t": kind, "c": [attributes, caption, [box, *filter(None, sliders)]]}
        bare = {"t": "Table", "c": [["", [], []], [None, []], *body]}
        box = {"t": "Div", "c": [_scrolling(label), [bare]]}
        attributes = [attributes[0], ["table"], []]
        return {"t": "Figure", "c": [attributes, caption, [box]]} if blocks else box

    def _described(self, label: str, node: Node) -> Node:
        """Return the picture of a figure, described by its title and not again by its caption."""
        if node["t"] != "Image":
            return node
        attributes, _, target = node["c"]
        title = _title(self.folder / unquote(target[0])) or label
        return {"t": "Image", "c": [attributes, [_text(title)], target]}

    def _slider(self, target: str, label: str) -> Node | None:
        """Return the panels of a figure and their slider, hidden until the script shows them."""
        folder = (self.folder / unquote(target)).with_suffix("")
        panels = sorted(folder.glob("t=*.svg"), key=lambda panel: float(panel.stem[2:]))
        if not panels:
            return None
        first = min(range(len(panels)), key=lambda i: abs(math.log(float(panels[i].stem[2:]))))
        pictures = "\n".join(
            f'<img src="{quote(panel.relative_to(self.folder).as_posix())}" '
            f'data-value="{panel.stem[2:]}" alt="{html.escape(_title(panel))}" />'
            for panel in panels
        )
        panel = f"""<div class="panels" hidden="">
<p><label>{self.words["temperature"]} <input type="range" min="0" max="{len(panels) - 1}"
value="{first}" autocomplete="off" /></label> <output aria-live="off"></output></p>
<div class="scroll" tabindex="0" role="group" aria-label="{label}">
{pictures}
</div>
</div>"""
        return raw("html", panel)

    def linked(self, node: Node) -> Node:
        """Return a reference as a link; "[1]" if it leads to a source."""
        if node["t"] != "Cite":
            return node
        links: list[Node] = []
        for one in node["c"][0]:
            key, bare = one["citationId"], one["citationMode"]["t"] == "AuthorInText"
            figure = key.startswith(("fig:", "tbl:"))
            if bare and not figure and key not in self.sources:
                return {"t": "Span", "c": [NONE, node["c"][1]]}  # no reference: a name of somebody
            links += [_text(", ")] * bool(links)
            before, after = one["citationPrefix"], one["citationSuffix"]
            link = self._figure(key) if figure else self._source(key)
            whole = [*before, *[{"t": "Space"}] * bool(before), link, *after]
            links += whole if figure else [_text("["), *whole, _text("]")]
        return {"t": "Span", "c": [NONE, links]}

    def _figure(self, key: str) -> Node:
        if key not in self.labels:
            raise ValueError(f"@{key} refers to no figure or table with a caption")
        label = self.labels[key]
        if self.form == "latex":
            return raw("latex", f"{label.partition(chr(0xA0))[0]}~\\ref{{{key}}}", "Inline")
        return {"t": "Link", "c": [NONE, [_text(label)], [f"#{key}", ""]]}

    def _source(self, key: str) -> Node:
        if key not in self.sources:
            how = "Add it below <!-- references --> in notes.md"
            raise ValueError(checks.unknown("reference", key, list(self.sources), how))
        return {"t": "Link", "c": [NONE, [_text(f"{self.sources[key]}")], [f"#ref-{key}", ""]]}


def _symbols(text: str) -> list[Node]:
    """Return a text whose symbols are formulas."""
    parts = re.split(f"({_SYMBOLS.pattern})", text)
    formulas = ({"t": "Math", "c": [{"t": "InlineMath"}, part]} for part in parts[1::2])
    return [_text(parts[0]), *(x for pair in zip(formulas, map(_text, parts[2::2])) for x in pair)]


def _widths(columns: list[Node], head: Node, bodies: list[Node], _: Node) -> list[Node]:
    """Return the columns of a table with their shares of a page: LibreOffice needs widths."""
    rows = [row[1] for row in (*head[1], *(row for body in bodies for row in body[3]))]
    texts = [[_visible(row[i][4]) for row in rows] for i in range(len(columns))]
    shares = [2.0 + max(map(width, column)) for column in texts]
    words = [re.findall("[^ \u2e80-\uffef]+|.", " ".join(column)) for column in texts]
    least = [2.0 + max(map(width, column), default=0) for column in words]
    if sum(shares) > CHARACTERS:  # what no word needs goes to long cells
        free = max(CHARACTERS - sum(least), 0) / max(sum(shares) - sum(least), 1)
        shares = [low + free * (most - low) for low, most in zip(least, shares)]
    whole = max(sum(shares), CHARACTERS)
    sizes = [{"t": "ColWidth", "c": round(share / whole, 3)} for share in shares]
    return [[align, size] for (align, _), size in zip(columns, sizes)]


def _visible(node: Node) -> str:
    """Return the text of a cell, about as wide as it is shown; a formula is never broken."""

    def shown(part: Node) -> Node:
        if part["t"] == "Math":  # a command is one sign
            return _text(re.sub(r"[\s{}_^]", "", re.sub(r"\\(?:[a-zA-Z]+|.)", "x", part["c"][1])))
        return _text(part["c"][1]) if part["t"] == "Code" else part

    return plain(walk(node, shown))


def _text(text: str) -> Node:
    return {"t": "Str", "c": text}


def _scrolling(label: str) -> Node:
    """Return the attributes of a box that the keyboard can scroll."""
    return ["", ["scroll"], [["tabindex", "0"], ["role", "group"], ["aria-label", label]]]


def _targets(node: Node) -> list[str]:
    """Return the file of every picture below a node."""
    if isinstance(node, list):
        return [target for item in node for target in _targets(item)]
    if not isinstance(node, dict):
        return []
    return [node["c"][2][0]] if node.get("t") == "Image" else _targets(node.get("c"))


def _title(file: Path) -> str:
    """Return the title of an SVG, "" without one."""
    drawn = file.suffix == ".svg" and file.is_file()
    text = file.read_text("utf-8", errors="replace") if drawn else ""
    title = re.search(r"<svg\b[^>]*>\s*<title>([^<]*)</title>", text)
    return " ".join(html.unescape(title[1]).split()) if title else ""
