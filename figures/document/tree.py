"""The tree of a document: made harmless, its figures copied, its parts numbered and linked.

pandoc's JSON tree is data. Attributes are reduced to an identifier and a size, links and figures
to what is allowed; nothing that a document says is ever code.
"""

import html
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from PIL import Image

from analysis.inputs.array_files import one_line

_TEX_LABEL = re.compile(r"\\(?:label|tag)\*?\s*\{[^{}]*\}")
APPENDIX = "appendix"  # the class of a heading whose section a page closes
_CLASSES = ("unnumbered", "unlisted", APPENDIX)
_SCHEMES = ("http", "https", "mailto")
# What lies beside a page of ours, and what says the same beside its PDF: the only files to link to.
SIBLINGS = {"index.html": "report.pdf", "claims.html": "claims.pdf"}
# The title of a drawing, and not one of its parts; the name of a panel.
_SVG_TITLE = re.compile(r"<svg\b[^>]*>\s*<title>([^<]*)</title>")
_PANEL = re.compile(r"t=(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\.svg")
_SVG = "{http://www.w3.org/2000/svg}"
_DEEPEST_DRAWING = 200
_FIGURE_TYPES = (".svg", ".png", ".jpg", ".jpeg")
WORDS = {
    "en": {
        "Figure": "Figure",
        "Table": "Table",
        "after": ".\N{EN SPACE}",
        "contents": "Contents",
        "abstract": "Abstract",
        "skip": "Skip to the text",
        "formula": "Formula",
        "temperature": "temperature",
    },
    "zh": {
        "Figure": "图",
        "Table": "表",
        "after": "\N{IDEOGRAPHIC SPACE}",
        "contents": "目录",
        "abstract": "摘要",
        "skip": "跳到正文",
        "formula": "公式",
        "temperature": "温度",
    },
}
CONTENTS = "[TOC]"  # a paragraph of its own, where a PDF has its contents
Node = Any  # one node of pandoc's JSON tree: dict, list, str, number or None


def language(meta: dict[str, Node]) -> str:
    """Return the language tag of the metadata, "en" without one."""
    language = plain(meta["lang"]) if "lang" in meta else "en"
    if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", language):
        raise ValueError(f"lang must be a language tag such as en or zh-CN, got {language!r}")
    return language


def authors(meta: dict[str, Node]) -> list[str]:
    """Return the names of the authors as plain text; of an author with more fields, the name."""
    author = meta.get("author", {"t": "MetaList", "c": []})
    people = author["c"] if author["t"] == "MetaList" else [author]
    return [plain(x["c"].get("name") if x["t"] == "MetaMap" else x) for x in people]


def text_value(text: str) -> Node:
    """Return a metadata value that is plain text."""
    return {"t": "MetaInlines", "c": [_text(text)]}


def plain(node: Node) -> str:
    """Return the text of inline content, without its markup."""
    if isinstance(node, list):
        return "".join(map(plain, node))
    if not isinstance(node, dict):
        return ""
    if node["t"] in ("Str", "MetaString"):
        return str(node["c"])
    return " " if node["t"] in ("Space", "SoftBreak", "LineBreak") else plain(node.get("c"))


def at_mark(blocks: list[Node], mark: str, block: Node | None) -> list[Node]:
    """Return the blocks with this one in place of each paragraph that is the mark, or without it.

    Examples
    --------
    >>> at_mark([{"t": "Para", "c": [{"t": "Str", "c": "[TOC]"}]}], "[TOC]", None)
    []
    """
    found = [b["t"] == "Para" and plain(b["c"]) == mark for b in blocks]
    placed = [] if block is None else [block]
    return [x for b, here in zip(blocks, found) for x in (placed if here else [b])]


def before_appendix(blocks: list[Node], block: Node) -> list[Node]:
    """Return the blocks with this one before the first heading that is an appendix, if there is."""
    for i, one in enumerate(blocks):
        if one["t"] == "Header" and "appendix" in one["c"][1][1]:
            return [*blocks[:i], block, *blocks[i:]]
    return blocks


def walk(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the tree with every element and every attribute changed, leaves first."""
    if isinstance(node, list):
        node = [walk(item, change) for item in node]
        return change(node) if _is_attributes(node) else node
    if isinstance(node, dict):
        node = {key: walk(value, change) for key, value in node.items()}
        return change(node) if "t" in node else node
    return node


def deeper(node: Node, levels: int) -> bool:
    """Return whether a tree has more levels than so many, without recursion.

    Examples
    --------
    >>> deeper([{"t": "Str", "c": ["x"]}], 3), deeper([{"t": "Str", "c": ["x"]}], 4)
    (True, False)
    """
    level = [node]
    for _ in range(levels):
        level = [x for item in level for x in _children(item)]
    return bool(level)


def _children(node: Node) -> Iterable[Node]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def _is_attributes(node: list[Node]) -> bool:
    """Whether a list is pandoc's [identifier, classes, [key, value] pairs]: nothing else has it."""
    return len(node) == 3 and [type(part) for part in node] == [str, list, list]


def identifiers(node: Node) -> Iterator[str]:
    """Yield every identifier that a link may point to."""
    if isinstance(node, list):
        if _is_attributes(node) and node[0]:
            yield node[0]
        for item in node:
            yield from identifiers(item)
    elif isinstance(node, dict):
        for value in node.values():
            yield from identifiers(value)


def _text(text: str) -> Node:
    return {"t": "Str", "c": text}


def harmless(node: Node) -> Node:
    """Keep of attributes what is known to be safe, and turn raw markup into code to look at.

    An attribute can be code: HTML takes ``onclick=``, pandoc's typst writer takes ``typst:...=``.
    """
    if isinstance(node, list):
        identifier, classes, pairs = node
        return [
            identifier if re.fullmatch(r"\w[\w:.-]*", identifier) else "",
            [name for name in classes if name in _CLASSES],
            [
                [key, value]
                for key, value in pairs
                if key in ("width", "height")
                and re.fullmatch(r"\d+(\.\d+)?(%|px|pt|mm|cm|in|em)?", value)
            ],
        ]
    if node["t"] in ("RawInline", "RawBlock"):
        kind = "Code" if node["t"] == "RawInline" else "CodeBlock"
        return {"t": kind, "c": [["", [], []], node["c"][1]]}
    if node["t"] == "Math":
        return {"t": "Math", "c": [node["c"][0], _TEX_LABEL.sub("", node["c"][1])]}
    if node["t"] == "ColWidth":  # pandoc's guess from the Markdown; both writers do better
        return {"t": "ColWidthDefault"}
    return node


class FigureCopies:
    """Copies every figure into `build` and names the copy instead.

    `titles` says of a copy what its file is titled; `panels` which copies show the same figure at
    one temperature each: of figures/x.svg those in figures/x/, called t=0.5.svg and so on.
    """

    def __init__(self, folder: Path, build: Path) -> None:
        self.folder, self.build = folder.resolve(), build
        self.copies: dict[Path, str] = {}
        self.titles: dict[str, str] = {}
        self.panels: dict[str, dict[str, str]] = {}

    def __call__(self, node: Node) -> Node:
        """Copy the figure of an image node, and point the node at the copy."""
        if isinstance(node, list) or node["t"] != "Image":
            return node
        attributes, description, (target, title) = node["c"]
        copy = self._copy(unquote(target))
        folder = PurePosixPath(unquote(target)).with_suffix("")
        matches = (_PANEL.fullmatch(path.name) for path in (self.folder / folder).glob("*"))
        values = sorted((match[1] for match in matches if match), key=float)
        self.panels[copy] = {value: self._copy(f"{folder}/t={value}.svg") for value in values}
        if not description:  # a screen reader must be told something, and be it nothing
            text = self.titles.get(copy)
            description = [_text(text)] if text else []
            attributes = [*attributes[:2], [*attributes[2], *([] if text else [["alt", ""]])]]
        return {"t": "Image", "c": [attributes, description, [copy, title]]}

    def in_words(self, message: str) -> str:
        """Return a message about a copy, or about what a copy shows, with the figure's name."""
        linked = re.search(r"linked image (\S+)", message)
        for source, copy in self.copies.items():
            name = source.relative_to(self.folder).as_posix()
            if copy in message:
                return message.replace(copy, name)
            if linked and linked[1] in source.read_text("utf-8", "replace"):
                return f"{message}: figure {name!r}"
        return message

    def _copy(self, name: str) -> str:
        source = _figure(self.folder, name)
        if source not in self.copies:
            _check(source, name)
            copy = f"figure-{len(self.copies) + 1}{source.suffix.lower()}"
            shutil.copyfile(source, self.build / copy)
            self.copies[source] = copy
            if source.suffix.lower() == ".svg":
                title = _SVG_TITLE.search(source.read_text(encoding="utf-8", errors="replace"))
                self.titles[copy] = " ".join(html.unescape(title[1]).split()) if title else ""
        return self.copies[source]


def _figure(folder: Path, name: str) -> Path:
    """Return the file of a figure, refusing what lies outside `folder` or behind a symlink."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or re.search(r"[\\:\0]", name):
        raise ValueError(f"a figure must lie in the folder of its document, got {name!r}")
    if path.suffix.lower() not in _FIGURE_TYPES:
        raise ValueError(f"a figure must be one of {', '.join(_FIGURE_TYPES)}, got {name!r}")
    file = folder
    for part in path.parts:
        file = file / part
        if file.is_symlink():
            raise ValueError(f"a figure must be a file, not a symlink, got {name!r}")
    if not file.is_file():
        raise FileNotFoundError(f"figure {name!r} is missing in {folder}")
    return file


def _check(file: Path, name: str) -> None:
    """Raise ValueError unless the file of a figure is what its ending says."""
    kind = file.suffix.lower().removeprefix(".")
    try:
        if kind == "svg":
            _check_drawing(ElementTree.fromstring(file.read_text(encoding="utf-8")))
        else:
            with Image.open(file, formats=["PNG" if kind == "png" else "JPEG"]) as image:
                image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = one_line(str(error).replace(str(file), name), 120)
        raise ValueError(f"figure {name!r} is no {kind.upper()}: {reason}") from None


def _check_drawing(root: ElementTree.Element) -> None:
    """Raise ValueError for a drawing that typst would refuse without saying which it is."""
    if root.tag != f"{_SVG}svg":
        raise ValueError("its root is not <svg> of http://www.w3.org/2000/svg")
    level = [root]
    for _ in range(_DEEPEST_DRAWING):
        level = [child for element in level for child in element]
    if level:
        raise ValueError(f"its elements nest more than {_DEEPEST_DRAWING} deep")


class Numbers:
    """Puts "Figure 1" and "Table 1" before captions; `labels` says which identifier has which.

    An image that its caption describes is described by its title instead, or else by that number.
    """

    def __init__(self, words: dict[str, str], titles: dict[str, str]) -> None:
        self.words, self.titles = words, titles
        self.count = {"Figure": 0, "Table": 0}
        self.labels: dict[str, str] = {}

    def __call__(self, node: Node) -> Node:
        """Put its number before the caption of a figure or table."""
        if isinstance(node, list) or node["t"] not in self.count or not node["c"][1][1]:
            return node
        (identifier, _, _), (_, blocks) = attributes, caption = node["c"][:2]
        self.count[node["t"]] += 1
        label = f"{self.words[node['t']]}\N{NO-BREAK SPACE}{self.count[node['t']]}"
        if identifier:
            self.labels[identifier] = label
        head = [{"t": "Strong", "c": [_text(label)]}, _text(self.words["after"])]
        inlines = blocks[0]["c"]
        numbered = [{"t": "Plain", "c": head + inlines}, *blocks[1:]]
        body = walk(node["c"][2:], _described(inlines, self.titles, label))
        return {"t": node["t"], "c": [attributes, [caption[0], numbered], *body]}


def _described(caption: Node, titles: dict[str, str], label: str) -> Callable[[Node], Node]:
    """Return the change of images that repeat `caption`: a screen reader need not say it twice."""

    def change(node: Node) -> Node:
        if isinstance(node, dict) and node["t"] == "Image" and node["c"][1] == caption:
            attributes, _, target = node["c"]
            return {
                "t": "Image",
                "c": [attributes, [_text(titles.get(target[0]) or label)], target],
            }
        return node

    return change


class Links:
    """Turns @fig:x and @tbl:x into links, and refuses links that lead nowhere or run code.

    In a PDF, a link to one of `SIBLINGS` leads to the PDF beside it.
    """

    def __init__(self, identifiers: set[str], labels: dict[str, str], *, pdf: bool) -> None:
        self.identifiers, self.labels, self.pdf = identifiers, labels, pdf

    def __call__(self, node: Node) -> Node:
        """Turn a reference into a link, and check every link."""
        if isinstance(node, dict) and node["t"] == "Cite":
            return self._reference(node)
        if isinstance(node, dict) and node["t"] == "Link":
            attributes, inlines, (target, title) = node["c"]
            return {"t": "Link", "c": [attributes, inlines, [self._checked(target), title]]}
        return node

    def _reference(self, node: Node) -> Node:
        keys = [citation["citationId"] for citation in node["c"][0]]
        if not any(key.startswith(("fig:", "tbl:")) for key in keys):
            return {"t": "Span", "c": [["", [], []], node["c"][1]]}
        links: list[Node] = []
        for key in keys:
            if key not in self.labels:
                raise ValueError(f"@{key} refers to no figure or table with a caption")
            target = [f"#{key}", ""]
            links += [_text(", ")] * bool(links)
            links.append({"t": "Link", "c": [["", [], []], [_text(self.labels[key])], target]})
        return {"t": "Span", "c": [["", [], []], links]}

    def _checked(self, target: str) -> str:
        if target.startswith("#"):
            if unquote(target[1:]) not in self.identifiers:
                near = one_line(target, 120)
                raise ValueError(f"a link must lead to a place in the document, got {near!r}")
            return unquote(target)
        page, _, place = target.partition("#")
        if page in SIBLINGS and re.fullmatch(r"[\w.-]*", place):
            return SIBLINGS[page] if self.pdf else target
        scheme = re.match(r"([^/?#]*?):", unquote(target))
        if not scheme or scheme[1].lower() not in _SCHEMES:  # a file is not there for other readers
            raise ValueError(
                f"a link must be one of {', '.join(_SCHEMES)} or #, or lead to "
                f"{' or '.join(SIBLINGS)}, got {one_line(target, 120)!r}"
            )
        return target
