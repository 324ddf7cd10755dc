r"""One Markdown document into a self-contained HTML page and into a PDF.

pandoc reads the Markdown into its JSON tree. The tree is made harmless and is numbered here, where
it is data and not markup, and only then written: as HTML with MathML, or as typst markup that the
typst wheel turns into a PDF. Nothing is downloaded, and no text of the document is ever code.

Notes
-----
The Markdown is pandoc's: YAML metadata (``title``, ``subtitle``, ``author``, ``date``, ``lang``,
``abstract``; anything else is dropped), ``$...$`` and ``$$...$$``, pipe tables with a caption
``: text {#tbl:x}``, figures ``![caption](figures/x.svg){#fig:x width=100%}``, footnotes, code.
``@fig:x`` and ``@tbl:x`` become links "Figure 1", "Table 1". Raw HTML, TeX and typst stay plain
text; ``\label`` and ``\tag`` of a formula, and attributes other than an identifier, a width and a
height, are dropped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

_HERE = Path(__file__).parent

_READER = (
    "markdown-raw_attribute-raw_html-raw_tex-native_divs-native_spans-markdown_in_html_blocks"
    "-latex_macros+east_asian_line_breaks"
)
_METADATA = ("title", "subtitle", "author", "date", "lang", "abstract")
_CLASSES = ("unnumbered", "unlisted")
_SCHEMES = ("http", "https", "mailto")
_FIGURE_TYPES = (".svg", ".png", ".jpg", ".jpeg")
_PATIENCE = 120
# pandoc calls these warnings; a report without its formula or its figure is worse than none
_LOST = re.compile(
    r"\[WARNING\] (Could not (?:convert TeX math|fetch resource).*?)(?:, rendering|$)", re.MULTILINE
)
_WORDS = {
    "en": {
        "Figure": "Figure",
        "Table": "Table",
        "after": ".\N{EN SPACE}",
        "contents": "Contents",
        "abstract": "Abstract",
    },
    "zh": {
        "Figure": "图",
        "Table": "表",
        "after": "\N{IDEOGRAPHIC SPACE}",
        "contents": "目录",
        "abstract": "摘要",
    },
}
# Han, kana and hangul, with their punctuation and full-width forms: no font inside typst has them.
_EAST_ASIAN = re.compile(
    "[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
_CONTENT_SECURITY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\" />\n"
)
# What pandoc 3.9 gets wrong on the way from TeX, said otherwise before it. Bars of a norm become
# relations with wide spaces, and \lVert, which does not grow in TeX, grows. For typst, \! becomes
# -1em and \; 0em, and sized bars become words; the triple bar stands for a norm that does not grow
# until _TYPST_SYMBOLS has its turn.
_BARS = (r"\|", r"\Vert", r"\lVert", r"\rVert")
_TEX_FOR_HTML = {bar: r"\Vert " for bar in _BARS} | {
    rf"\{side}{bar}": rf"\{side}\Vert " for side in ("left", "right") for bar in _BARS
}
_TEX_FOR_TYPST = {
    **_TEX_FOR_HTML,
    **{rf"\{big}{side}": " " for big in ("big", "Big", "bigg", "Bigg") for side in ("", *"lmr")},
    **{bar: " ⦀ " for bar in _BARS},
    r"\!": " ",
    r"\;": r"\:",
}
_TEX_TOKEN = re.compile(r"(?:\\(?:left|right)\s*(?=\\))?\\(?:[A-Za-z]+|.)", re.DOTALL)
_TEX_THOUSANDS = re.compile(r"\d+(?:\{,\}\d{3})+")
# And after it: names that typst 0.15 has changed, and bars, which typst would set apart from what
# they enclose wherever there is a blank in the source.
_TYPST_SYMBOLS = {
    r"\|": ' class("normal", bar.v)',
    "bar.v.triple": ' class("normal", bar.v.double)',
    "sect": "inter",
    "minus.circle": "minus.o",
    "times.circle": "times.o",
    "dot.circle": "dot.o",
    "bracket.l.double": "bracket.l.stroked",
    "bracket.r.double": "bracket.r.stroked",
}
_TYPST_TOKEN = re.compile(
    r"(?P<raw>(?:upright|bold|italic|sans|mono|label)\(|delim: )?"
    r'(?P<string>"(?:[^"\\]|\\.)+")|\\.|[A-Za-z]+(?:\.[A-Za-z]+)*',
    re.DOTALL,
)
_TEX_LABEL = re.compile(r"\\(?:label|tag)\*?\s*\{[^{}]*\}")

# pandoc writes n\log n without the thin spaces that TeX puts around log, and MathML adds none.
_MATHML_OPERATOR = re.compile(
    "(?P<before></m(?:i|n|row|sub|sup|subsup|frac|sqrt)>)?"
    "(?<!<msub>)(?<!<msup>)(?<!<msubsup>)(?<!<munder>)(?<!<mover>)(?<!<munderover>)"
    r'<mrow>(?P<name><mi mathvariant="normal">[^<]+</mi><mo>(?:\u2061|&\#8289;)</mo>)</mrow>'
    r"(?P<after>(?=<m(?:i|n|row|sub|sup|subsup|frac|sqrt|over)\b))?"
)
_MATHML_PUNCTUATED = re.compile(
    r'<math display="inline"(?:(?!</math>).)*</math>[,.;:!?)\]’”…，。；：！？）】、]+', re.DOTALL
)
_THIN_SPACE = '<mspace width="0.167em"></mspace>'

Node = Any  # one node of pandoc's JSON tree: dict, list, str, number or None


def to_html(markdown: Path, out: Path) -> None:
    """Write `markdown` as one HTML page that asks the network for nothing.

    Parameters
    ----------
    markdown : Path
        The document; its figures lie in its own folder or below.
    out : Path
        The page to write; an existing file is replaced.

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
    pandoc = _pandoc()
    with tempfile.TemporaryDirectory(prefix="expqk-") as name:
        build = Path(name)
        document, words = _prepared(pandoc, markdown, build)
        document = _walk(_walk(document, _table_in_figure), _html_formula)
        shutil.copyfile(_HERE / "style.css", build / "style.css")
        (build / "security.html").write_text(_CONTENT_SECURITY, encoding="utf-8")
        page = _run(
            pandoc,
            "--from=json",
            "--to=html5",
            "--standalone",
            "--embed-resources",
            "--mathml",
            "--number-sections",
            "--toc",
            "--toc-depth=2",
            "--css=style.css",
            "--include-in-header=security.html",
            f"--variable=toc-title:{words['contents']}",
            f"--variable=abstract-title:{words['abstract']}",
            text=json.dumps(document),
            folder=build,
        )
    _write(out, _polished(page).encode())


def to_pdf(markdown: Path, out: Path, *, fonts: Path | None = None) -> None:
    """Write `markdown` as a PDF of A4 pages, without a date: the same input gives the same bytes.

    Parameters
    ----------
    markdown : Path
        The document; its figures lie in its own folder or below.
    out : Path
        The PDF to write; an existing file is replaced.
    fonts : Path, optional
        A font file, or a folder of them, for the characters that typst's own fonts lack. With
        none, a document with Chinese, Japanese or Korean text uses the fonts of the machine.

    Raises
    ------
    ImportError
        Without ``expqk[report]``.
    FileNotFoundError
        If a figure, or `fonts`, is missing.
    ValueError
        If a figure, a link or a reference is refused, or `lang` is no language tag.
    RuntimeError
        If pandoc or typst fails, or pandoc cannot read a formula.
    """
    pandoc = _pandoc()
    if fonts is not None and not fonts.exists():
        raise FileNotFoundError(f"fonts must be a font file or a folder of them, got {fonts}")
    with tempfile.TemporaryDirectory(prefix="expqk-") as name:
        build = Path(name)
        document, words = _prepared(pandoc, markdown, build)
        source = _run(
            pandoc,
            "--from=json",
            "--to=typst-smart",
            "--standalone",
            "--wrap=none",
            f"--template={_HERE / 'template.typ'}",
            f"--variable=abstract-title:{words['abstract']}",
            text=json.dumps(_with_typst_formulas(pandoc, document, build)),
            folder=build,
        )
        (build / "report.typ").write_text(source, encoding="utf-8")
        pdf = _typst(build, fonts, author=", ".join(_authors(document["meta"])))
    _write(out, pdf)


def _pandoc() -> str:
    """Return the path of pandoc, the wheel's own before any other on the machine."""
    try:
        import pypandoc

        own = Path(pypandoc.__file__).parent / "files" / f"pandoc{'.exe' * (os.name == 'nt')}"
        return str(own if own.is_file() else pypandoc.get_pandoc_path())
    except (ImportError, OSError) as error:
        raise ImportError("a report needs pandoc: pip install 'expqk[report]'") from error


def _run(pandoc: str, *arguments: str, text: str, folder: Path) -> str:
    """Return what pandoc makes of `text`, working in `folder` and with no settings of the user."""
    try:
        process = subprocess.run(
            [pandoc, f"--data-dir={folder}", *arguments],
            input=text.encode(),
            capture_output=True,
            cwd=folder,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"pandoc: no answer within {_PATIENCE} s") from None
    messages = process.stderr.decode(errors="replace")
    if lost := _LOST.search(messages):
        raise RuntimeError(f"pandoc: {lost[1]}")
    if process.returncode:
        raise RuntimeError(f"pandoc: {_first_useful_line(messages)}")
    return process.stdout.decode()


def _typst(build: Path, fonts: Path | None, *, author: str) -> bytes:
    """Return the PDF of report.typ in `build`, the only folder typst may read."""
    try:
        import typst
    except ImportError as error:
        raise ImportError("a PDF needs typst: pip install 'expqk[report]'") from error
    source = build / "report.typ"
    folders = [] if fonts is None else [_font_folder(fonts, build)]
    given = typst.Fonts(
        include_system_fonts=False, include_embedded_fonts=False, font_paths=folders
    ).families()
    if fonts is not None and not given:
        raise ValueError(f"fonts must be a font file or a folder of them, got {fonts}")
    # Where typst's own fonts do, the fonts of the machine could only make two machines differ.
    own_fonts_do = fonts is not None or not _EAST_ASIAN.search(source.read_text(encoding="utf-8"))
    try:
        pdf: bytes = typst.compile(
            source,
            root=build,
            font_paths=folders,
            ignore_system_fonts=own_fonts_do,
            sys_inputs={"author": author, "fonts": json.dumps(sorted(given))},
            package_path=build / "packages",
            package_cache_path=build / "packages",
            format="pdf",
            timestamp=0,
        )
    except RuntimeError as error:
        raise RuntimeError(f"typst: {_first_useful_line(str(error))}") from error
    return pdf


def _font_folder(fonts: Path, build: Path) -> Path:
    """Return a folder with the fonts: typst passes over a font file without a word."""
    if fonts.is_dir():
        return fonts
    folder = build / "fonts"
    folder.mkdir()
    shutil.copy(fonts, folder)
    return folder


def _first_useful_line(messages: str) -> str:
    """Return the first line that is neither blank nor a mere notice."""
    lines = (line.strip() for line in messages.splitlines())
    return next((x for x in lines if x and not x.startswith(("[WARNING]", "[INFO]"))), "no message")


def _write(out: Path, content: bytes) -> None:
    """Put `content` at `out` in one step; a symlink at `out` is replaced, never followed."""
    descriptor, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, out)
    except BaseException:
        os.unlink(name)
        raise


def _prepared(pandoc: str, markdown: Path, build: Path) -> tuple[dict[str, Node], dict[str, str]]:
    """Return the tree of `markdown`, harmless and numbered, and the words of its language.

    Figures are copied into `build`, under names of our own.
    """
    text = markdown.read_text(encoding="utf-8-sig")
    arguments = (f"--from={_READER}", "--to=json", "--sandbox")
    tree = json.loads(_run(pandoc, *arguments, text=text, folder=build))
    meta = {key: tree["meta"][key] for key in _METADATA if key in tree["meta"]}
    language = _language(meta)
    meta["lang"] = {"t": "MetaString", "c": language}
    if "author" in meta:
        meta["author"] = {"t": "MetaList", "c": [_text_value(name) for name in _authors(meta)]}
    if "title" not in meta:
        meta["pagetitle"] = _text_value(markdown.stem)
    words = _WORDS["zh" if language.lower().startswith("zh") else "en"]
    document: dict[str, Node] = {**tree, "meta": meta}
    document = _walk(document, _harmless)
    document = _walk(document, _FigureCopies(markdown.parent, build))
    numbers = _Numbers(words)
    document = _walk(document, numbers)
    document = _walk(document, _Links(set(_identifiers(document)), numbers.labels))
    return document, words


def _language(meta: dict[str, Node]) -> str:
    """Return the language tag of the metadata, "en" without one."""
    language = _plain(meta["lang"]) if "lang" in meta else "en"
    if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", language):
        raise ValueError(f"lang must be a language tag such as en or zh-CN, got {language!r}")
    return language


def _authors(meta: dict[str, Node]) -> list[str]:
    """Return the names of the authors as plain text; of an author with more fields, the name."""
    author = meta.get("author", {"t": "MetaList", "c": []})
    people = author["c"] if author["t"] == "MetaList" else [author]
    return [_plain(x["c"].get("name") if x["t"] == "MetaMap" else x) for x in people]


def _text_value(text: str) -> Node:
    return {"t": "MetaInlines", "c": [_text(text)]}


def _plain(node: Node) -> str:
    """Return the text of inline content, without its markup."""
    if isinstance(node, list):
        return "".join(map(_plain, node))
    if not isinstance(node, dict):
        return ""
    if node["t"] in ("Str", "MetaString"):
        return str(node["c"])
    return " " if node["t"] in ("Space", "SoftBreak", "LineBreak") else _plain(node.get("c"))


def _walk(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the tree with every element and every attribute changed, leaves first."""
    if isinstance(node, list):
        node = [_walk(item, change) for item in node]
        return change(node) if _is_attributes(node) else node
    if isinstance(node, dict):
        node = {key: _walk(value, change) for key, value in node.items()}
        return change(node) if "t" in node else node
    return node


def _is_attributes(node: list[Node]) -> bool:
    """Whether a list is pandoc's [identifier, classes, [key, value] pairs]: nothing else has it."""
    return len(node) == 3 and [type(part) for part in node] == [str, list, list]


def _identifiers(node: Node) -> Iterator[str]:
    """Yield every identifier that a link may point to."""
    if isinstance(node, list):
        if _is_attributes(node) and node[0]:
            yield node[0]
        for item in node:
            yield from _identifiers(item)
    elif isinstance(node, dict):
        for value in node.values():
            yield from _identifiers(value)


def _text(text: str) -> Node:
    return {"t": "Str", "c": text}


def _harmless(node: Node) -> Node:
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


class _FigureCopies:
    """Copies every figure into `build` and names the copy instead."""

    def __init__(self, folder: Path, build: Path) -> None:
        self.folder, self.build = folder.resolve(), build
        self.copies: dict[Path, str] = {}

    def __call__(self, node: Node) -> Node:
        if isinstance(node, list) or node["t"] != "Image":
            return node
        attributes, description, (target, title) = node["c"]
        source = _figure(self.folder, unquote(target))
        if source not in self.copies:
            self.copies[source] = f"figure-{len(self.copies) + 1}{source.suffix.lower()}"
            shutil.copyfile(source, self.build / self.copies[source])
        return {"t": "Image", "c": [attributes, description, [self.copies[source], title]]}


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


class _Numbers:
    """Puts "Figure 1" and "Table 1" before captions; `labels` says which identifier has which."""

    def __init__(self, words: dict[str, str]) -> None:
        self.words = words
        self.count = {"Figure": 0, "Table": 0}
        self.labels: dict[str, str] = {}

    def __call__(self, node: Node) -> Node:
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
        body = _walk(node["c"][2:], _described_as(label, inlines))
        return {"t": node["t"], "c": [attributes, [caption[0], numbered], *body]}


def _described_as(label: str, caption: Node) -> Callable[[Node], Node]:
    """Return the change of images that repeat `caption`: a screen reader need not say it twice."""

    def change(node: Node) -> Node:
        if isinstance(node, dict) and node["t"] == "Image" and node["c"][1] == caption:
            return {"t": "Image", "c": [node["c"][0], [_text(label)], node["c"][2]]}
        return node

    return change


class _Links:
    """Turns @fig:x and @tbl:x into links, and refuses links that lead nowhere or run code."""

    def __init__(self, identifiers: set[str], labels: dict[str, str]) -> None:
        self.identifiers, self.labels = identifiers, labels

    def __call__(self, node: Node) -> Node:
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
                raise ValueError(f"a link must lead to a place in the document, got {target!r}")
            return unquote(target)
        scheme = re.match(r"([^/?#]*?):", unquote(target))
        if scheme and scheme[1].lower() not in _SCHEMES:
            raise ValueError(f"a link must be one of {', '.join(_SCHEMES)}, got {target!r}")
        return target


def _html_formula(node: Node) -> Node:
    """Say in a formula otherwise what pandoc's MathML writer gets wrong."""
    if isinstance(node, list) or node["t"] != "Math":
        return node
    return {"t": "Math", "c": [node["c"][0], _reworded(node["c"][1], _TEX_FOR_HTML)]}


def _polished(page: str) -> str:
    """Return the page with operators spaced, and no line break between a formula and its comma."""
    page = _MATHML_OPERATOR.sub(_with_thin_spaces, page)
    return _MATHML_PUNCTUATED.sub(r'<span class="unbroken">\g<0></span>', page)


def _with_thin_spaces(match: re.Match[str]) -> str:
    """Return an operator such as log with a space towards each neighbour that needs one.

    The spaces stand inside its own row: elsewhere they could become an operand of a fraction.
    """
    before, after = match["before"] or "", match["after"] is not None
    space_before, space_after = _THIN_SPACE * bool(before), _THIN_SPACE * after
    return f"{before}<mrow>{space_before}{match['name']}{space_after}</mrow>"


def _table_in_figure(node: Node) -> Node:
    """Put a table into a box that scrolls sideways, and its caption outside of the box."""
    if isinstance(node, list) or node["t"] != "Table":
        return node
    attributes, caption, *rest = node["c"]
    bare = {"t": "Table", "c": [["", [], []], [None, []], *rest]}
    box = {"t": "Div", "c": [["", ["scroll"], []], [bare]]}
    if not caption[1]:
        return box
    return {"t": "Figure", "c": [[attributes[0], ["table"], []], caption, [box]]}


def _formulas(node: Node) -> Iterator[Node]:
    """Yield every formula."""
    if isinstance(node, dict) and node.get("t") == "Math":
        yield node
    elif isinstance(node, (list, dict)):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _formulas(item)


def _with_typst_formulas(pandoc: str, document: Node, build: Path) -> Node:
    """Return the tree with every formula in typst's own words.

    pandoc writes them, each by itself, so that a correction cannot reach into the text.
    """
    distinct = {(node["c"][0]["t"], node["c"][1]): node for node in _formulas(document)}
    if not distinct:
        return document
    rule = {"t": "HorizontalRule"}
    blocks: list[Node] = []
    for (_, tex), node in distinct.items():
        formula = {"t": "Math", "c": [node["c"][0], _reworded(tex, _TEX_FOR_TYPST)]}
        blocks += [{"t": "Para", "c": [formula]}, rule]
    written = _run(
        pandoc,
        "--from=json",
        "--to=typst",
        "--wrap=none",
        text=json.dumps({**document, "meta": {}, "blocks": blocks}),
        folder=build,
    ).split("\n\n#horizontalrule\n")
    typst = dict(
        zip(distinct, (_corrected(formula.strip()) for formula in written[:-1]), strict=True)
    )

    def change(node: Node) -> Node:
        if isinstance(node, list) or node["t"] != "Math":
            return node
        return {"t": "RawInline", "c": ["typst", typst[node["c"][0]["t"], node["c"][1]]]}

    return _walk(document, change)


def _reworded(tex: str, words: dict[str, str]) -> str:
    r"""Return a formula with its commands replaced by those pandoc gets right.

    >>> print(_reworded(r"10{,}000\,\left\|x\right\|^2", _TEX_FOR_HTML))
    \text{10,000}\,\left\Vert x\right\Vert ^2
    """
    tex = _TEX_THOUSANDS.sub(lambda match: rf"\text{{{match[0].replace('{,}', ',')}}}", tex)
    return _TEX_TOKEN.sub(lambda match: words.get("".join(match[0].split()), match[0]), tex)


def _corrected(formula: str) -> str:
    """Return pandoc's typst formula in the words of typst 0.15, names of operators as operators.

    >>> _corrected('$x times.circle y, "Var" x, upright("sect")$')
    '$x times.o y, op("Var", limits: #false) x, upright("sect")$'
    """

    def change(match: re.Match[str]) -> str:
        if match["string"] and not match["raw"]:
            # of pandoc's names those with a blank, such as arg max, have their index below
            return f"op({match['string']}, limits: #{str(' ' in match['string']).lower()})"
        for old, new in _TYPST_SYMBOLS.items():
            if match[0] == old or match[0].startswith(f"{old}."):
                return new + match[0].removeprefix(old)
        return match[0]

    return _TYPST_TOKEN.sub(change, formula)
