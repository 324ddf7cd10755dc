"""A document as a file to go on writing in, for Word or for LaTeX, with its pictures."""

import json
import os
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from analysis.runs.output_files import recorded, replacing
from figures import fonts
from figures.document.convert import pandoc, prepared
from figures.document.numbering import Node, plain, walk

DPI = 300
EAST_ASIAN = b"SimSun"  # Word has it, other programs take their own for it
PAPER = b"""<w:pgSz w:w="11906" w:h="16838" />
<w:pgMar w:top="1418" w:right="1418" w:bottom="1418" w:left="1418" w:header="709" w:footer="709"
w:gutter="0" />"""  # A4 and 25 mm, in twentieths of a point
PREAMBLE = (  # a figure stays where its text has it; captions of tables take the full width
    r"\usepackage{float,etoolbox,longtable}\floatplacement{figure}{H}"
    r"\AtBeginEnvironment{longtable}{\small}\AtBeginDocument{\setlength{\LTcapwidth}{\textwidth}}"
)
PAGE = "geometry:a4paper,margin=25mm", "colorlinks:true", "fontsize:11pt"


def to_docx(markdown: Path, out: Path, *, notes: Path | None = None) -> None:
    """Write `markdown` for Word: formulas that it can edit, pictures of 300 dots an inch.

    Arguments and errors are those of `figures.document.convert.to_html`.
    """
    document, _ = prepared(markdown, notes, "docx")
    with tempfile.TemporaryDirectory() as name, replacing(out) as temporary:
        folder = Path(name)

        def drawn(node: Node) -> Node:
            if picture := _svg(node):
                png = Path(picture).with_suffix(".png")
                (folder / png).parent.mkdir(parents=True, exist_ok=True)
                (folder / png).write_bytes(_picture(markdown.parent, picture, "png"))
                node["c"][2][0] = quote(png.as_posix())
            return node

        made = folder / "made.docx"
        pandoc(
            "--from=json", "--to=docx", "--number-sections", f"--output={made}",
            f"--resource-path={folder}{os.pathsep}.",  # the drawn ones before others of the name
            text=json.dumps(walk(document, drawn)), folder=markdown.parent,
        )  # fmt: skip
        with zipfile.ZipFile(made) as parts, zipfile.ZipFile(temporary, "w") as whole:
            for part in parts.infolist():  # its date is that of the format's beginning
                about = zipfile.ZipInfo(part.filename)
                whole.writestr(about, _finished(part.filename, parts.read(part)), 8)


def _finished(name: str, content: bytes) -> bytes:
    """Return a part of a file of Word: A4, text of 11 and tables of 9 points, and no date."""
    if name == "word/styles.xml":
        content = re.sub(rb'w:eastAsiaTheme="\w+"', b'w:eastAsia="%b"' % EAST_ASIAN, content)
        content = re.sub(rb'(<w:sz(?:Cs)? w:val=)"24"', rb'\1"22"', content)  # half points
        return content.replace(b"<w:tblPr>", b'<w:rPr><w:sz w:val="18" /></w:rPr><w:tblPr>')
    if name == "word/document.xml":
        content = content.replace(b'Layout w:type="fixed"', b'Layout w:type="autofit"')
        whole = b"<w:tr><w:trPr><w:cantSplit /></w:trPr><w:tc>"  # no row goes on on the next page
        content = content.replace(b"<w:tr><w:tc>", whole)
        return content.replace(b"</w:sectPr>", PAPER + b"</w:sectPr>")
    if name == "docProps/core.xml":
        return re.sub(rb"<dcterms:(created|modified)\b.*?</dcterms:\1>", b"", content)
    return content


def to_tex(markdown: Path, out: Path, *, notes: Path | None = None) -> None:
    """Write `markdown` for XeLaTeX or LuaLaTeX; its pictures become PDF beside those it has.

    Arguments and errors are those of `figures.document.convert.to_html`, and FileExistsError if a
    PDF of a picture was edited. `out` names the pictures from the folder of `markdown`.
    """
    document, _ = prepared(markdown, notes, "latex")
    folder = markdown.parent

    def drawn(node: Node) -> Node:
        if picture := _svg(node):
            name = Path(picture).with_suffix(".pdf").as_posix()
            with recorded(folder, name) as path:
                path.write_bytes(_picture(folder, picture, "pdf"))
            node["c"][2][0] = quote(name)
        return node

    document = walk(document, drawn)
    variables = [*PAGE, f"header-includes:{PREAMBLE}"]
    if fonts.EAST_ASIAN.search(json.dumps(document, ensure_ascii=False)):
        chinese = plain(document["meta"].pop("lang")).startswith("zh")
        # ctex finds the Chinese fonts of a system, and has Chinese words unless the scheme is plain
        variables += ["documentclass:ctexart", *(["classoption:scheme=plain"] * (not chinese))]
    text = json.dumps(document, ensure_ascii=False)
    source = pandoc(
        "--from=json", "--to=latex", "--standalone", "--number-sections", "--wrap=preserve",
        *(f"--variable={variable}" for variable in variables), text=text, folder=folder,
    )  # fmt: skip
    with replacing(out) as temporary:
        temporary.write_text(source, encoding="utf-8")


def _svg(node: Node) -> str:
    """Return the file of a picture that neither Word nor LaTeX shows; "" of another node."""
    file = unquote(node["c"][2][0]) if node["t"] == "Image" else ""
    return file if file.endswith(".svg") else ""


def _picture(folder: Path, name: str, kind: str) -> bytes:
    """Return an SVG as PNG or PDF."""
    import typst

    page = f"#set page(width: auto, height: auto, margin: 0pt)\n#image({json.dumps(name)})"
    how: dict[str, Any] = {"root": folder, "format": kind, "ppi": DPI, "timestamp": 0}
    drawing: bytes = typst.compile(page.encode(), ignore_system_fonts=True, **how)
    return drawing
