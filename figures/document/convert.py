r"""One Markdown document into a self-contained HTML page and into a PDF.

pandoc reads the Markdown into its JSON tree. The tree is made harmless and is numbered here, where
it is data and not markup, and only then written: as HTML with MathML, or as typst markup that the
typst wheel turns into a PDF. Nothing is downloaded, and no text of the document is ever code.

Notes
-----
The Markdown is pandoc's: YAML metadata (``title``, ``subtitle``, ``author``, ``date``, ``lang``,
``abstract``; anything else is dropped), ``$...$`` and ``$$...$$``, pipe tables with a caption
``: text {#tbl:x}``, figures ``![caption](figures/x.svg){#fig:x width=100%}``, footnotes, code.
``@fig:x`` and ``@tbl:x`` become links "Figure 1", "Table 1". A paragraph ``[TOC]`` is where the
PDF has its contents, with page numbers, which a page has beside it; from the first heading that is
an ``{.appendix}`` on it is set smaller. Raw HTML, TeX and typst stay plain
text; ``\label`` and ``\tag`` of a formula, and attributes other than an identifier, a width and a
height, are dropped.

A figure is described to those who do not see it by the title in its SVG. Beside
``figures/x.svg``, a folder ``figures/x`` with ``t=0.5.svg``, ``t=1.svg`` … holds the same figure at
one temperature each: the page shows these, with a slider, where scripts run.
"""

import json
import re
import shutil
import tempfile
from pathlib import Path

from analysis.compute.output_files import replacing
from analysis.inputs import array_files
from analysis.inputs.array_files import one_line
from figures import fonts as shipped
from figures.document.formulas import html_formula, polished, with_typst_formulas
from figures.document.notes import merged, notes as own_notes
from figures.document.page import SCRIPT, Page, script_hash, with_appendices
from figures.document.pandoc import executable, first_useful_line, run
from figures.document.tree import (
    CONTENTS,
    WORDS,
    FigureCopies,
    Links,
    Node,
    Numbers,
    at_mark,
    authors,
    before_appendix,
    deeper,
    harmless,
    identifiers,
    language,
    text_value,
    walk,
)
from figures.words.glossary import with_tips

_HERE = Path(__file__).parent
_READER = (
    "markdown-raw_attribute-raw_html-raw_tex-native_divs-native_spans-markdown_in_html_blocks"
    "-latex_macros+east_asian_line_breaks"
)
_MOST_BRACKETS = 6  # pandoc takes seconds for 8 and minutes for 12
_MARGIN = re.compile(r"(?:[ \t>]|[-+*:~](?=[ \t])|\d{1,9}[.)](?=[ \t]))*")  # what a line is in
_WIDEST_MARGIN = 200  # a hundred lists, for which pandoc takes a second
_MOST_BRACES = 12  # of a formula: pandoc takes seconds for 18 subscripts of subscripts
TOO_DEEP = "lists, quotes or emphasis nest too deeply in the document: flatten them"
_MOST_LEVELS = 256  # of pandoc's tree, some four for each list in a list
_LITERAL = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$", re.DOTALL)
_METADATA = ("title", "subtitle", "author", "date", "lang", "abstract")
# pandoc escapes these only where it would also write quotation marks for typst to turn
_SHORTHAND = re.compile(r"--|-\?|\.\.\.")


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
    FileNotFoundError
        If a figure is missing.
    ValueError
        If a figure, a link or a reference is refused, or `lang` is no language tag.
    RuntimeError
        If pandoc fails, or cannot read a formula.
    """
    pandoc = executable()
    with tempfile.TemporaryDirectory(prefix="expqk-") as name:
        build = Path(name)
        document, words, figures = _prepared(pandoc, markdown, build, notes, pdf=False)
        document["blocks"] = at_mark(document["blocks"], CONTENTS, None)
        page = Page(build, words, figures.titles, figures.panels)
        document = walk(walk(document, html_formula), page)
        document["blocks"] = with_appendices(document["blocks"])
        style = (_HERE / "style.css").read_text("utf-8") + page.drawings.rules()
        said = json.dumps([document, words, page.drawn()], ensure_ascii=False)
        face = shipped.face(said)
        (build / "style.css").write_text(style + face, encoding="utf-8")
        titled = "title" in document["meta"]
        written = run(
            pandoc,
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
            f"--variable=toc-title:{words['contents']}",
            f"--variable=abstract-title:{words['abstract']}",
            f"--variable=skip:{words['skip']}",
            f"--variable=script:{SCRIPT}",
            f"--variable=script-hash:{script_hash()}",
            *(["--variable=font"] if face else []),
            text=json.dumps(document),
            folder=build,
        )
    language = "zh" if words is WORDS["zh"] else "en"
    _write(out, page.filled(with_tips(polished(written), language)).encode())


def to_pdf(
    markdown: Path,
    out: Path,
    *,
    notes: Path | None = None,
    fonts: Path | None = None,
    landscape: bool = False,
) -> None:
    """Write `markdown` as a PDF of A4 pages, without a date: the same input gives the same bytes.

    Parameters
    ----------
    markdown : Path
        The document; its figures lie in its own folder or below.
    out : Path
        The PDF to write; an existing file is replaced.
    notes : Path, optional
        As in `to_html`.
    fonts : Path, optional
        A font file, or a folder of them, for the characters that typst's own fonts lack. With
        none, Chinese is shown in the font of this project, and a document with characters that
        it lacks as well, Korean or rare ones, uses the fonts of the machine.
    landscape : bool
        Whether the pages are wider than high, for wide tables.

    Raises
    ------
    FileNotFoundError
        If `fonts` is missing; otherwise as `to_html`.
    RuntimeError
        If typst fails.
    """
    pandoc = executable()
    if fonts is not None and not fonts.exists():
        raise FileNotFoundError(f"fonts must be a font file or a folder of them, got {fonts}")
    with tempfile.TemporaryDirectory(prefix="expqk-") as name:
        build = Path(name)
        document, words, figures = _prepared(pandoc, markdown, build, notes, pdf=True)
        contents = f"#contents[{words['contents']}]\n#show: floating\n"
        document["blocks"] = at_mark(document["blocks"], CONTENTS, _typst_block(contents))
        document["blocks"] = before_appendix(document["blocks"], _typst_block("#show: smaller\n"))
        source = run(
            pandoc,
            "--from=json",
            "--to=typst-smart",
            "--standalone",
            "--wrap=none",
            f"--template={_HERE / 'template.typ'}",
            f"--variable=abstract-title:{words['abstract']}",
            *(["--variable=landscape"] if landscape else []),
            text=json.dumps(walk(with_typst_formulas(pandoc, document, build), _without_shorthand)),
            folder=build,
        )
        (build / "report.typ").write_text(source, encoding="utf-8")
        try:
            pdf = _typst(build, fonts, author=", ".join(authors(document["meta"])))
        except RuntimeError as error:
            raise RuntimeError(figures.in_words(str(error))) from error
    _write(out, pdf)


def _typst_block(markup: str) -> Node:
    return {"t": "RawBlock", "c": ["typst", markup]}


def _without_shorthand(node: Node) -> Node:
    """Return a word that would be set otherwise: -- as a dash, by typst or by a ligature."""
    if isinstance(node, list) or node["t"] != "Str" or not _SHORTHAND.search(node["c"]):
        return node
    word = node["c"].replace("\\", "\\\\").replace('"', '\\"')
    return {"t": "RawInline", "c": ["typst", f'#text(ligatures: false, "{word}");']}


def _typst(build: Path, fonts: Path | None, *, author: str) -> bytes:
    """Return the PDF of report.typ in `build`, the only folder typst may read."""
    try:
        import typst
    except ImportError as error:
        raise ImportError("a PDF needs typst: pip install -e '.[report]'") from error
    source = build / "report.typ"
    text = source.read_text(encoding="utf-8")
    # Where known fonts do, the fonts of the machine could only make two machines differ.
    known_fonts_do = fonts is not None or not shipped.lacks(text)
    if fonts is None and shipped.EAST_ASIAN.search(text):
        fonts = shipped.SERIF
    folders = [] if fonts is None else [_font_folder(fonts, build)]
    given = typst.Fonts(
        include_system_fonts=False, include_embedded_fonts=False, font_paths=folders
    ).families()
    if fonts is not None and not given:
        raise ValueError(f"fonts must be a font file or a folder of them, got {fonts}")
    try:
        pdf: bytes = typst.compile(
            source,
            root=build,
            font_paths=folders,
            ignore_system_fonts=known_fonts_do,
            sys_inputs={"author": author, "fonts": json.dumps(sorted(given))},
            package_path=build / "packages",
            package_cache_path=build / "packages",
            format="pdf",
            timestamp=0,
        )
    except RuntimeError as error:
        if "depth exceeded" in str(error):
            raise ValueError(TOO_DEEP) from error
        raise RuntimeError(f"typst: {first_useful_line(str(error))}") from error
    return pdf


def _font_folder(fonts: Path, build: Path) -> Path:
    """Return a folder with the fonts: typst passes over a font file without a word."""
    if fonts.is_dir():
        return fonts
    folder = build / "fonts"
    folder.mkdir()
    shutil.copy(fonts, folder)
    return folder


def _write(out: Path, content: bytes) -> None:
    """Put `content` at `out` in one step; a symlink at `out` is replaced, never followed."""
    with replacing(out) as temporary:
        temporary.write_bytes(content)


def check_notes(markdown: Path | None, notes: Path) -> None:
    """Raise an error if notes cannot be read, or merged into a document, if that is there."""
    if notes.exists() and markdown is not None and markdown.is_file():
        with tempfile.TemporaryDirectory(prefix="expqk-") as name:
            _tree_with_notes(executable(), markdown, Path(name), notes)
    elif notes.exists():
        own_notes(array_files.text(notes))


def _tree_with_notes(pandoc: str, markdown: Path, build: Path, notes: Path | None) -> Node:
    """Return pandoc's tree of a document, with the notes in it if there are any."""
    tree = _tree(pandoc, array_files.text(markdown), build)
    if notes is not None and notes.exists():
        tree["blocks"] = merged(
            tree["blocks"],
            own_notes(array_files.text(notes)),
            lambda text: _tree(pandoc, text, build)["blocks"],
        )
    return tree


def _prepared(
    pandoc: str, markdown: Path, build: Path, notes: Path | None, *, pdf: bool
) -> tuple[dict[str, Node], dict[str, str], FigureCopies]:
    """Return the tree of `markdown`, harmless and numbered, the words of its language, its figures.

    Figures are copied into `build`, under names of our own.
    """
    tree = _tree_with_notes(pandoc, markdown, build, notes)
    meta = {key: tree["meta"][key] for key in _METADATA if key in tree["meta"]}
    tag = language(meta)
    meta["lang"] = {"t": "MetaString", "c": tag}
    if "author" in meta:
        meta["author"] = {"t": "MetaList", "c": [text_value(name) for name in authors(meta)]}
    if "title" not in meta:
        meta["pagetitle"] = text_value(markdown.stem)
    words = WORDS["zh" if tag.lower().startswith("zh") else "en"]
    document: dict[str, Node] = {**tree, "meta": meta}
    document = walk(document, harmless)
    figures = FigureCopies(markdown.parent, build)
    document = walk(document, figures)
    numbers = Numbers(words, figures.titles)
    document = walk(document, numbers)
    document = walk(document, Links(set(identifiers(document)), numbers.labels, pdf=pdf))
    return document, words, figures


def _tree(pandoc: str, text: str, build: Path) -> dict[str, Node]:
    """Return pandoc's tree of a document."""
    _refuse_nested_brackets(text)
    _refuse_nested_braces(text)
    _refuse_deep_margins(text)
    arguments = (f"--from={_READER}", "--to=json", "--sandbox")
    written = run(pandoc, *arguments, text=text, folder=build)
    try:
        tree: dict[str, Node] | None = json.loads(written)
    except RecursionError:
        tree = None
    if tree is None or deeper(tree, _MOST_LEVELS):
        raise ValueError(TOO_DEEP)
    return tree


def _refuse_deep_margins(text: str) -> None:
    """Raise ValueError before pandoc takes minutes for the lists and quotes that a line is in."""
    for line in _LITERAL.sub("", text).splitlines():
        margin = _MARGIN.match(line)
        if margin and len(margin[0]) > _WIDEST_MARGIN and re.search(r"[-+*:~>.)]", margin[0]):
            raise ValueError(TOO_DEEP)


def _refuse_nested_braces(text: str) -> None:
    """Raise ValueError before pandoc takes minutes for the braces of a formula."""
    for literal in _LITERAL.finditer(text):
        if literal[0][0] == "$" and _too_deep(literal[0], "{}", _MOST_BRACES) is not None:
            near = one_line(literal[0], 40)
            raise ValueError(f"braces nest more than {_MOST_BRACES} deep in the formula {near!r}")


def _too_deep(text: str, pair: str, most: int) -> int | None:
    """Return where the marks of a pair nest deeper than so many, None where they do not."""
    depth = 0
    for one in re.finditer(rf"\\.|[{re.escape(pair)}]", text):
        depth = max(0, depth + {pair[0]: 1, pair[1]: -1}.get(one[0], 0))
        if depth > most:
            return one.start()
    return None


def _refuse_nested_brackets(text: str) -> None:
    """Raise ValueError if brackets outside of code and formulas nest deeper than links ever do."""
    for paragraph in re.split(r"\n\s*\n", _LITERAL.sub("", text)):
        if (at := _too_deep(paragraph, "[]", _MOST_BRACKETS)) is not None:
            near = one_line(paragraph[max(0, at - 20) :], 40)
            raise ValueError(
                f"brackets nest more than {_MOST_BRACKETS} deep at {near!r}: write \\[ for those "
                "that begin no link"
            )
