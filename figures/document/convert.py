r"""One Markdown document into a self-contained HTML page and into a PDF.

pandoc reads the Markdown into its JSON tree. Captions are numbered there and references become
links; then pandoc writes HTML with MathML, or typst markup that the typst wheel turns into a PDF.
Nothing is downloaded.

Notes
-----
The Markdown is pandoc's: YAML metadata (``title``, ``subtitle``, ``author``, ``date``, ``lang``,
``abstract``), ``$...$`` and ``$$...$$``, pipe tables with a caption ``: text {#tbl:x}``, figures
``![caption](figures/x.svg){#fig:x width=100%}``, footnotes, code. Raw HTML, TeX and typst are text.
``@fig:x`` and ``@tbl:x`` become links "Figure 1", "Table 1". A paragraph ``[TOC]`` is where the
PDF has its contents, which a page has beside it; from the first heading that is an
``{.appendix}`` on, the PDF is set smaller.

A figure is described to those who do not see it by the title in its SVG. Beside
``figures/x.svg``, a folder ``figures/x`` with ``t=0.5.svg``, ``t=1.svg`` … holds the same figure at
one temperature each: the page shows these, with a slider, where scripts run.
"""

import base64
import functools
import hashlib
import html
import json
import math
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from analysis.inputs import text_files
from analysis.runs.output_files import replacing
from figures import fonts
from figures.document import layout
from figures.document.notes import Note, merged, notes as own_notes
from figures.words.translation import speaking, tr

_HERE = Path(__file__).parent
_READER = (
    "markdown-raw_attribute-raw_html-raw_tex-native_divs-native_spans-markdown_in_html_blocks"
    "-latex_macros+east_asian_line_breaks"
)
_SECONDS = 60  # the longest that pandoc may take
# pandoc calls these warnings; a report without its formula or its figure is worse than none
_LOST = re.compile(
    r"\[WARNING\] (Could not (?:convert TeX math|fetch resource).*?)(?:, rendering|$)", re.MULTILINE
)
# pandoc escapes these only where it would also write quotation marks for typst to turn
_SHORTHAND = re.compile(r"--|-\?|\.\.\.")
_NONE: list[Any] = ["", [], []]  # attributes
Node = Any  # one node of pandoc's JSON tree: dict, list, str, number or None


def to_html(markdown: Path, out: Path, *, notes: Path | None = None) -> None:
    """Write `markdown` as one HTML page that asks the network for nothing.

    Parameters
    ----------
    markdown : Path
        The document; its figures lie in its own folder or below.
    out : Path
        The page to write; an existing file is replaced.
    notes : Path, optional
        Text to merge into the document, as `figures.document.notes` has it; it need not be there.

    Raises
    ------
    ImportError
        Without ``expqk[report]``.
    ValueError
        If a reference leads to no figure or table, or a figure lies outside the folder.
    RuntimeError
        If pandoc fails, or cannot read a formula or a figure.
    """
    document, words = _prepared(markdown, notes, pdf=False)
    style = (_HERE / "style.css").read_text("utf-8")
    face = fonts.face(json.dumps([document, words], ensure_ascii=False))
    script = (_HERE / "slider.js").read_text("utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    titled = "title" in document["meta"]
    document["meta"] |= {"style": _raw(style + face), "script": _raw(script)}
    page = pandoc(
        "--from=json",
        "--to=html5",
        "--standalone",
        "--embed-resources",
        "--mathml",
        "--number-sections",
        f"--shift-heading-level-by={int(titled)}",  # the title alone is of the first level
        "--toc",
        f"--toc-depth={2 + titled}",
        f"--template={_HERE / 'template.html'}",
        *(f"--variable={word}:{words[word]}" for word in ("toc-title", "abstract-title", "skip")),
        f"--variable=script-hash:sha256-{digest}",  # no other script may run
        *(["--variable=font"] if face else []),
        text=json.dumps(document),
        folder=markdown.parent,
    )
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")


def to_pdf(markdown: Path, out: Path, *, notes: Path | None = None) -> None:
    """Write `markdown` as a PDF of A4 pages, without a date: the same input gives the same bytes.

    Every figure and table is in its section, as `figures.document.layout` says.

    Chinese is shown in the font of this project; a document with characters that it lacks as
    well, Korean or rare ones, uses the fonts of the machine.

    Parameters
    ----------
    markdown, out, notes
        As in `to_html`.

    Raises
    ------
    ImportError, ValueError
        As `to_html`.
    RuntimeError
        The same, or if typst fails.
    """
    try:
        import typst
    except ImportError as error:
        raise ImportError("a PDF needs typst: pip install -e '.[report]'") from error
    document, words = _prepared(markdown, notes, pdf=True)
    source = pandoc(
        "--from=json",
        "--to=typst-smart",
        "--standalone",
        "--wrap=none",
        f"--template={_HERE / 'template.typ'}",
        f"--variable=abstract-title:{words['abstract-title']}",
        text=json.dumps(document),
        folder=markdown.parent,
    )
    chinese = fonts.EAST_ASIAN.search(source) is not None
    author = document["meta"].get("author", {"t": "MetaList", "c": []})
    people = author["c"] if author["t"] == "MetaList" else [author]
    inputs = {
        "author": ", ".join(map(_plain, people)),
        "fonts": json.dumps([fonts.SERIF_FAMILY] * chinese),
    }
    how: dict[str, Any] = {
        "root": markdown.parent,
        "font_paths": [fonts.SERIF.parent] * chinese,
        # two machines may have two versions of a font
        "ignore_system_fonts": not fonts.lacks(source),
    }

    def places(fit: layout.Fit) -> list[layout.Place]:
        given = inputs | {"fit": json.dumps(fit)}
        answer = typst.query(
            source.encode(), "<places>", field="value", one=True, sys_inputs=given, **how
        )
        return layout.places(json.loads(answer))

    try:
        inputs["fit"] = json.dumps(layout.fitted(places))
        pdf: bytes = typst.compile(
            source.encode(), sys_inputs=inputs, format="pdf", timestamp=0, **how
        )
    except RuntimeError as error:
        raise RuntimeError(f"typst: {_first_line(str(error))}") from error
    with replacing(out) as temporary:
        temporary.write_bytes(pdf)


def check_notes(markdown: Path | None, notes: Path) -> None:
    """Raise an error if notes cannot be read, or merged into a document, if that is there."""
    if not notes.exists():
        return
    own = own_notes(text_files.read_text(notes))
    if markdown is not None and markdown.is_file():
        text = text_files.read_text(markdown)
        _tree(text, own, markdown.parent)


def executable() -> str:
    """Return the path of pandoc, the wheel's own before any other on the machine."""
    try:
        import pypandoc

        own = Path(pypandoc.__file__).parent / "files" / f"pandoc{'.exe' * (os.name == 'nt')}"
        return str(own if own.is_file() else pypandoc.get_pandoc_path())
    except (ImportError, OSError) as error:
        raise ImportError("a report needs pandoc: pip install -e '.[report]'") from error


def pandoc(*arguments: str, text: str, folder: Path) -> str:
    """Return the output of pandoc for `text`, working in `folder`, without settings of the user."""
    try:
        process = subprocess.run(
            [executable(), f"--data-dir={_HERE}", *arguments],
            input=text.encode(),
            capture_output=True,
            cwd=folder,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"pandoc: no answer within {_SECONDS} s") from None
    messages = process.stderr.decode(errors="replace")
    if lost := _LOST.search(messages):
        raise RuntimeError(f"pandoc: {lost[1]}")
    if process.returncode:
        raise RuntimeError(f"pandoc: {_first_line(messages)}")
    return process.stdout.decode()


def _first_line(messages: str) -> str:
    """Return the first line that is neither blank nor a mere notice."""
    lines = (line.strip() for line in messages.splitlines())
    return next((x for x in lines if x and not x.startswith(("[WARNING]", "[INFO]"))), "no message")


def _plain(node: Node) -> str:
    """Return the text of a node, without its markup."""
    if isinstance(node, list):
        return "".join(map(_plain, node))
    if not isinstance(node, dict):
        return ""
    kind = node.get("t")
    if kind in ("Str", "MetaString"):
        return str(node["c"])
    return " " if kind in ("Space", "SoftBreak", "LineBreak") else _plain(node.get("c"))


def _read(text: str, folder: Path, *more: str) -> Node:
    """Return pandoc's tree of a text; the columns of a table are as wide as their cells."""
    how = (f"--from={_READER}{''.join(more)}", "--to=json", "--sandbox", "--columns=100000")
    return json.loads(pandoc(*how, text=text, folder=folder))


def _tree(text: str, own: list[Note], folder: Path) -> Node:
    """Return pandoc's tree of a document, with notes in it."""
    tree = _read(text, folder)
    # a heading of a note has no identifier, which the document might have already
    read = [(one.place, _read(one.text, folder, "-auto_identifiers")["blocks"]) for one in own]
    tree["blocks"] = merged(tree["blocks"], read)
    return tree


def _prepared(markdown: Path, notes: Path | None, *, pdf: bool) -> tuple[Node, dict[str, str]]:
    """Return the tree of `markdown`, numbered and with its links, and the words of its language."""
    own = own_notes(text_files.read_text(notes)) if notes is not None and notes.exists() else []
    tree = _tree(text_files.read_text(markdown), own, markdown.parent)
    meta = tree["meta"]
    meta.setdefault("lang", {"t": "MetaString", "c": "en"})
    if "title" not in meta:
        meta["pagetitle"] = {"t": "MetaString", "c": markdown.stem}
    words = _words("zh" if _plain(meta["lang"]).startswith("zh") else "en")
    if pdf:
        tree["blocks"] = _set(tree["blocks"], words)
    else:
        tree["blocks"] = [block for block in tree["blocks"] if not _is_contents(block)]
    numbers = _Numbering(markdown.parent, words, pdf=pdf)
    return _walk(_walk(tree, numbers.numbered), numbers.linked), words


def _words(language: str) -> dict[str, str]:
    """Return the words that a document in a language has beside its text."""
    with speaking(language):
        return {
            "Figure": tr("Figure"),
            "Table": tr("Table"),
            "after": tr(".\N{EN SPACE}"),
            "toc-title": tr("Contents"),
            "abstract-title": tr("Abstract"),
            "skip": tr("Skip to the text"),
            "formula": tr("Formula"),
            "temperature": tr("temperature"),
        }


def _set(blocks: list[Node], words: dict[str, str]) -> list[Node]:
    """Return the blocks with the contents at their mark, and marks for the layout of pages.

    From an appendix on the text is smaller.
    """
    placed: list[Node] = []
    for block, after in zip(blocks, [*blocks[1:], None]):
        if _is_contents(block):
            placed.append(_typst(f"#contents[{words['toc-title']}]"))
            continue
        if _is_appendix(block) and not any(map(_is_appendix, placed)):
            placed.append(_typst("#show: smaller"))
        text = block if block["t"] in ("Figure", "Table") else _walk(block, _ended)
        leads = _leads(block, after)
        placed += [_typst("#lead["), text, _typst("]")] if leads else [text]
    return placed


def _ended(node: Node) -> Node:
    """Return a paragraph with a mark for the layout before its last word.

    A mark after it would go to the next page with what follows.
    """
    if node["t"] not in ("Para", "Plain"):
        return node
    return node | {"c": [*node["c"][:-1], _typst("#ended;", "Inline"), *node["c"][-1:]]}


def _leads(block: Node, after: Node) -> bool:
    """Return whether a paragraph belongs to what follows, and does not end a page."""
    if block["t"] != "Para" or not after or after["t"] in ("Header", "Figure", "Table"):
        return False
    return _plain(block["c"]).endswith((":", "：")) or [x["t"] for x in block["c"]] == ["Strong"]


def _typst(markup: str, kind: str = "Block") -> Node:
    return {"t": f"Raw{kind}", "c": ["typst", markup]}


def _is_contents(block: Node) -> bool:
    return block["t"] == "Para" and _plain(block["c"]) == "[TOC]"


def _is_appendix(block: Node) -> bool:
    return block["t"] == "Header" and "appendix" in block["c"][1][1]


def _walk(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the tree with every element changed, leaves first."""
    if isinstance(node, list):
        return [_walk(item, change) for item in node]
    if isinstance(node, dict):
        node = {key: _walk(value, change) for key, value in node.items()}
        return change(node) if "t" in node else node
    return node


def _check_inside(folder: Path, name: str) -> None:
    """Refuse a figure that is not in the folder of its document: pandoc would embed it."""
    file = (folder / name.partition("#")[0]).resolve()
    if re.search(r"[\\:\0]|^//", name) or not file.is_relative_to(folder.resolve()):
        raise ValueError(f"a figure must lie in the folder of its document, got {name!r}")


class _Numbering:
    """Puts "Figure 1" and "Table 1" before captions, and links with these in place of @fig:x.

    For a page it puts what may be wider than a phone into boxes that scroll, which the keyboard
    reaches, and the panels of a figure behind a slider.
    """

    def __init__(self, folder: Path, words: dict[str, str], *, pdf: bool) -> None:
        self.folder, self.words, self.pdf = folder, words, pdf
        self.count: Counter[str] = Counter()
        self.labels: dict[str, str] = {}

    def numbered(self, node: Node) -> Node:
        """Return a figure, a table or a formula as the document shows it."""
        kind = node["t"]
        if kind == "Image":
            _check_inside(self.folder, unquote(node["c"][2][0]))
        if kind == "Str" and self.pdf and _SHORTHAND.search(node["c"]):
            return _typst(f"#{json.dumps(node['c'], ensure_ascii=False)};", "Inline")
        if kind == "Math" and node["c"][0]["t"] == "DisplayMath" and not self.pdf:
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
            blocks = [{"t": "Plain", "c": head + blocks[0]["c"]}, *blocks[1:]]
        caption = [short, blocks]
        if self.pdf:
            return {"t": kind, "c": [attributes, caption, *body]}
        if kind == "Figure":
            sliders = [self._slider(target, label) for target in _targets(body[0])]
            described = _walk(body[0], functools.partial(self._described, label))
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
        said = f"""<div class="panels" hidden="">
<p><label>{self.words["temperature"]} <input type="range" min="0" max="{len(panels) - 1}"
value="{first}" autocomplete="off" /></label> <output aria-live="off"></output></p>
<div class="scroll" tabindex="0" role="group" aria-label="{label}">
{pictures}
</div>
</div>"""
        return {"t": "RawBlock", "c": ["html", said]}

    def linked(self, node: Node) -> Node:
        """Return a reference as a link."""
        keys = [one["citationId"] for one in node["c"][0]] if node["t"] == "Cite" else []
        if not any(key.startswith(("fig:", "tbl:")) for key in keys):
            return {"t": "Span", "c": [_NONE, node["c"][1]]} if keys else node
        links: list[Node] = []
        for key in keys:
            if key not in self.labels:
                raise ValueError(f"@{key} refers to no figure or table with a caption")
            links += [_text(", ")] * bool(links)
            links.append({"t": "Link", "c": [_NONE, [_text(self.labels[key])], [f"#{key}", ""]]})
        return {"t": "Span", "c": [_NONE, links]}


def _raw(text: str) -> Node:
    """Return a metadata value that is written into a page as it is; an argument has a limit."""
    return {"t": "MetaInlines", "c": [{"t": "RawInline", "c": ["html", text]}]}


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
