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
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from analysis.inputs import text_files
from analysis.runs.output_files import replacing
from figures import fonts
from figures.document import layout
from figures.document.notes import NAME, merged, notes as own_notes, sources
from figures.document.numbering import Node, Numbering, plain, raw, walk
from figures.words.translation import speaking, tr

_HERE = Path(__file__).parent
_READER = (
    "markdown-raw_attribute-raw_html-raw_tex-native_divs-native_spans-markdown_in_html_blocks"
    "-latex_macros+east_asian_line_breaks"
)
_SECONDS = 60  # the longest that pandoc may take
# pandoc calls these warnings; a report without its formula or its figure is worse than none
_LOST = re.compile(
    r"\[WARNING\] (Could not (?:convert (?:TeX math|image)|fetch resource).*?)(?:, rendering|$)",
    re.MULTILINE,
)


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
    document, words = prepared(markdown, notes, "html")
    style = (_HERE / "style.css").read_text("utf-8")
    face = fonts.face(json.dumps([document, words], ensure_ascii=False))
    script = (_HERE / "slider.js").read_text("utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    titled = "title" in document["meta"]
    document["meta"] |= {"style": _written(style + face), "script": _written(script)}
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

    Arguments and errors are those of `to_html`, and RuntimeError if typst fails. Every figure and
    table is in its section, as `figures.document.layout` says. Chinese is shown in the font of this
    project; a document with characters that it lacks, Korean or rare ones, uses the fonts of the
    machine.
    """
    try:
        import typst
    except ImportError as error:
        raise ImportError("a PDF needs typst: pip install -e '.[report]'") from error
    document, words = prepared(markdown, notes, "typst")
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
        "author": ", ".join(map(plain, people)),
        "fonts": json.dumps([fonts.SERIF_FAMILY] * chinese),
    }
    how: dict[str, Any] = {
        "root": markdown.parent,
        "font_paths": [fonts.SERIF.parent] * chinese,
        # two machines may have two versions of a font
        "ignore_system_fonts": not fonts.lacks(source),
    }

    @functools.cache
    def typeset(fit: str) -> Any:
        """Return a compiler, which typesets once for places and for the PDF."""
        return typst.Compiler(source.encode(), sys_inputs=inputs | {"fit": fit}, **how)

    def places(fit: layout.Fit) -> list[layout.Position]:
        answer = typeset(json.dumps(fit)).query("<places>", field="value", one=True)
        return layout.places(json.loads(answer))

    try:
        fit = json.dumps(layout.fitted(places))
        pdf: bytes = typeset(fit).compile(format="pdf", timestamp=0)
    except RuntimeError as error:
        raise RuntimeError(f"typst: {_first_line(str(error))}") from error
    with replacing(out) as temporary:
        temporary.write_bytes(pdf)


def check_notes(markdown: Path | None, notes: Path) -> None:
    """Raise an error if notes cannot be read, or merged into a document, if that is there."""
    if not notes.exists():
        return
    own_notes(text_files.read_text(notes))
    if markdown is not None and markdown.is_file():
        prepared(markdown, notes, "docx")


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
    """Return the first line that is no mere notice, and what its colon announces."""
    lines = (line.strip() for line in messages.replace(":\n", ": ").splitlines())
    return next((x for x in lines if x and not x.startswith(("[WARNING]", "[INFO]"))), "no message")


def _read(text: str, folder: Path, *more: str) -> Node:
    """Return pandoc's tree of a text; the columns of a table are as wide as their cells."""
    how = (f"--from={_READER}{''.join(more)}", "--to=json", "--sandbox", "--columns=100000")
    return json.loads(pandoc(*how, text=text, folder=folder))


def _tree(text: str, own: str, folder: Path) -> Node:
    """Return pandoc's tree of a document, with notes in it."""
    tree = _read(text, folder)
    # a heading of a note has no identifier, which the document might have already
    read = [
        (one.place, _read(one.text, folder, "-auto_identifiers")["blocks"])
        for one in own_notes(own)
    ]
    tree["blocks"] = merged(tree["blocks"], read)
    return tree


def prepared(markdown: Path, notes: Path | None, form: str) -> tuple[Node, dict[str, str]]:
    """Return the tree of `markdown`, numbered and with its links, and the words of its language."""
    own = text_files.read_text(notes) if notes is not None and notes.exists() else ""
    tree = _tree(text_files.read_text(markdown), own, markdown.parent)
    meta = tree["meta"]
    meta.setdefault("lang", {"t": "MetaString", "c": "en"})
    if "title" not in meta:
        meta["pagetitle"] = {"t": "MetaString", "c": markdown.stem}
    words = _words("zh" if plain(meta["lang"]).startswith("zh") else "en")
    numbers = _with_sources(tree["blocks"], own, words, markdown.parent)
    if form == "typst":
        tree["blocks"] = _set(tree["blocks"], words)
    else:
        contents = [raw("latex", r"\tableofcontents")] if form == "latex" else []
        each = (contents if _is_contents(block) else [block] for block in tree["blocks"])
        tree["blocks"] = [block for blocks in each for block in blocks]
    numbering = Numbering(markdown.parent, words, form, numbers)
    return walk(walk(tree, numbering.numbered), numbering.linked), words


def _with_sources(
    blocks: list[Node], notes: str, words: dict[str, str], folder: Path
) -> dict[str, int]:
    """Add the references of notes to those of a document; return the number of each, by key."""
    lists = [block for block in blocks if block["t"] == "OrderedList" and _key(block["c"][1][0])]
    own = _entries(sources(notes), folder)
    if not lists and own:
        title = ["references", ["unnumbered"], []]
        lists = [{"t": "OrderedList", "c": [[1, {"t": "Decimal"}, {"t": "Period"}], []]}]
        blocks += [
            {"t": "Header", "c": [1, title, [{"t": "Str", "c": words["references"]}]]},
            *lists,
        ]
    numbers: dict[str, int] = {}
    for one in lists[-1:]:
        known = [_key(item) for item in one["c"][1]]
        for key, text in own.items():
            if key in known:
                raise ValueError(f"{NAME}: the report has a reference {key} already: rename yours")
            name = {"t": "Span", "c": [[f"ref-{key}", [], []], text[:1]]}
            one["c"][1].append([{"t": "Plain", "c": [name, *text[1:]]}])
        numbers = {key: i for i, key in enumerate([*known, *own], 1)}
    return numbers


def _key(item: list[Node]) -> str:
    """Return the key of a reference, "" of another item of a list."""
    first = item[0]["c"][0] if item and item[0]["t"] in ("Plain", "Para") else {"t": ""}
    name = first["c"][0][0] if first["t"] == "Span" else ""
    return str(name).removeprefix("ref-") if name.startswith("ref-") else ""


def _entries(text: str, folder: Path) -> dict[str, list[Node]]:
    """Return the text of each reference, BibTeX or in a list ``- @key: text``, by its key."""
    entry = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])?[ \t]*@([^\s:]+):[ \t]+(\S.*)$", re.MULTILINE)
    # as a line of verse, which begins no list
    found = [(k, _read(f"| {t}", folder)["blocks"][0]["c"][0]) for k, t in entry.findall(text)]
    rest = entry.sub("", text)
    if keys := re.findall(r"^\s*@\w+\s*\{\s*([^\s,{}]+)\s*,", rest, re.MULTILINE):
        try:
            how = "--from=bibtex", "--to=json", "--citeproc", "--sandbox"
            blocks = json.loads(pandoc(*how, text=rest, folder=folder))["blocks"]
        except RuntimeError as error:
            raise ValueError(f"{NAME}: the references are no BibTeX: {error}") from error
        parts = [part for block in blocks for part in block["c"][1]]
        entries = {part["c"][0][0].removeprefix("ref-"): part["c"][1][0]["c"] for part in parts}
        found += [(key, entries[key]) for key in keys if key in entries]  # a comment is none
    elif line := rest.strip():
        raise ValueError(
            f"{NAME}: a reference must be BibTeX, or a line such as - @smith2020: A. Smith, "
            f"*Title*, 2020, got {line.splitlines()[0]!r}"
        )
    for key in (key for i, (key, _) in enumerate(found) if key in dict(found[:i])):
        raise ValueError(f"{NAME}: two references have the key {key}: rename one")
    return dict(found)


def _words(language: str) -> dict[str, str]:
    """Return the words that a document in a language has beside its text."""
    with speaking(language):
        return {
            "Figure": tr("Figure"),
            "Table": tr("Table"),
            "after": tr(".\N{EN SPACE}"),
            "toc-title": tr("Contents"),
            "abstract-title": tr("Abstract"),
            "references": tr("References"),
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
            placed.append(raw("typst", f"#contents[{words['toc-title']}]"))
            continue
        if _is_appendix(block) and not any(map(_is_appendix, placed)):
            placed.append(raw("typst", "#show: smaller"))
        text = block if block["t"] in ("Figure", "Table") else walk(block, _ended)
        formula = block["t"] == "Para" and "DisplayMath" in str(block)
        whole = formula and len(plain(block["c"])) < 2000  # no page parts it from its words
        set_as = "lead" if _leads(block, after) else "whole" if whole else ""
        placed += [raw("typst", f"#{set_as}["), text, raw("typst", "]")] if set_as else [text]
    return placed


def _ended(node: Node) -> Node:
    """Return a paragraph with a mark for the layout before its last word.

    A mark after it would go to the next page with what follows.
    """
    if node["t"] not in ("Para", "Plain"):
        return node
    inlines: list[Node] = []
    for one in node["c"]:
        marked = one["t"] == "Str" and one["c"][0] in "，。；：、）"
        if marked and inlines and inlines[-1]["t"] == "Math":  # no line begins with the mark
            inlines.append(raw("typst", "#sym.wj;", "Inline"))
        inlines.append(one)
    return node | {"c": [*inlines[:-1], raw("typst", "#ended;", "Inline"), *inlines[-1:]]}


def _leads(block: Node, after: Node) -> bool:
    """Return whether a paragraph belongs to what follows, and does not end a page."""
    if block["t"] != "Para" or not after or after["t"] in ("Header", "Figure", "Table"):
        return False
    return plain(block["c"]).endswith((":", "：")) or [x["t"] for x in block["c"]] == ["Strong"]


def _is_contents(block: Node) -> bool:
    return block["t"] == "Para" and plain(block["c"]) == "[TOC]"


def _is_appendix(block: Node) -> bool:
    return block["t"] == "Header" and "appendix" in block["c"][1][1]


def _written(text: str) -> Node:
    """Return a metadata value that is written into a page as it is; an argument has a limit."""
    return {"t": "MetaInlines", "c": [raw("html", text, "Inline")]}
