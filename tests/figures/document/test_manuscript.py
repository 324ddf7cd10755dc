"""Word and LaTeX have every part of a document, and open."""

import json
import re
import shutil
import subprocess
import zipfile
from xml.etree import ElementTree

import pytest
from test_convert import CHINESE, MARKDOWN

from figures.document.convert import pandoc
from figures.document.manuscript import to_docx, to_tex

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
FORMULAS = MARKDOWN.count("$$") // 2 + len(re.findall(r"(?<!\$)\$[^$]+\$(?!\$)", MARKDOWN))
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="45"><circle r="9"/></svg>'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("error", "rank"):
        (tmp_path / f"figures/{name}.svg").write_text(SVG)
    (tmp_path / "report.md").write_text(MARKDOWN, "utf-8")
    (tmp_path / "chinese.md").write_text(CHINESE, "utf-8")
    return tmp_path


def parts_of(docx):
    with zipfile.ZipFile(docx) as parts:
        assert parts.testzip() is None
        return {name: parts.read(name) for name in parts.namelist()}


def test_word_has_headings_figures_tables_formulas_and_no_broken_relation(folder):
    to_docx(folder / "report.md", folder / "one.docx")
    parts = parts_of(folder / "one.docx")
    body = ElementTree.fromstring(parts["word/document.xml"])
    texts = {}
    for paragraph in body.iter(f"{WORD}p"):
        style = paragraph.find(f"{WORD}pPr/{WORD}pStyle")
        text = "".join(node.text or "" for node in paragraph.iter(f"{WORD}t"))
        texts.setdefault(style is not None and style.get(f"{WORD}val"), []).append(text)
    assert [*texts["Heading1"], *texts["Heading2"]] == ["1Introduction", "1.1Results"]
    shown = [text.replace("\N{NO-BREAK SPACE}", " ") for text in texts["ImageCaption"]]
    assert [text[:9] for text in shown] == ["Figure 1.", "Figure 2."]
    assert texts["TableCaption"][0].startswith("Table\N{NO-BREAK SPACE}1.")
    assert len([*body.iter(f"{WORD}tbl")]) == 1
    rows = [[part.tag for part in row.find(f"{WORD}trPr")] for row in body.iter(f"{WORD}tr")]
    assert rows == [[f"{WORD}tblHeader"], *[[f"{WORD}cantSplit"]] * 2]
    widths = [int(column.get(f"{WORD}w")) for column in body.iter(f"{WORD}gridCol")]
    assert len(widths) == 2
    assert min(widths) > 500  # of 7920 twentieths of a point
    assert len([*body.iter(MATH)]) >= FORMULAS - 1  # with that of the title, in plain text
    anchors = {node.get(f"{WORD}anchor") for node in body.iter(f"{WORD}hyperlink")}
    marks = {node.get(f"{WORD}name") for node in body.iter(f"{WORD}bookmarkStart")}
    assert {"fig:error", "fig:rank", "tbl:errors", "intro"} <= anchors - {None} <= marks
    pictures = [parts[name] for name in parts if name.startswith("word/media/")]
    assert [picture[:4] for picture in pictures] == [b"\x89PNG"] * 2
    for name in [name for name in parts if name.endswith(".rels")]:
        place = name.replace("_rels/", "").removesuffix(".rels")
        for link in ElementTree.fromstring(parts[name]):
            target = f"{place.rpartition('/')[0]}/{link.get('Target')}".lstrip("/")
            assert link.get("TargetMode") == "External" or target in parts, target
    assert not any(str(folder.parent).encode() in part for part in parts.values())
    to_docx(folder / "report.md", folder / "two.docx")
    assert (folder / "one.docx").read_bytes() == (folder / "two.docx").read_bytes()


def test_word_knows_the_language_and_a_chinese_font(folder):
    to_docx(folder / "chinese.md", folder / "chinese.docx")
    styles = parts_of(folder / "chinese.docx")["word/styles.xml"].decode()
    assert 'w:eastAsia="SimSun"' in styles
    assert "eastAsiaTheme" not in styles
    assert re.search(r'<w:lang [^>]*w:(eastAsia|val)="zh-CN"', styles)


@pytest.mark.parametrize("name", ["report", "chinese"])
def test_latex_has_every_part_and_compiles(name, folder):
    to_tex(folder / f"{name}.md", folder / f"{name}.tex")
    source = (folder / f"{name}.tex").read_text("utf-8")
    chinese = name == "chinese" or re.search("[一-鿿]", MARKDOWN)
    assert ("{ctexart}" in source) == bool(chinese)
    assert ("scheme=plain" in source) == (name == "report")  # its words for "Figure" are English
    drawings = re.findall(r"\\include\w+\[.*?\]\{(.*?)\}", source)
    assert len(drawings) == (2 if name == "report" else 0)
    for file in drawings:
        assert (folder / file).read_bytes().startswith(b"%PDF")
    labels = set(re.findall(r"\\label\{(.*?)\}", source))
    assert {*re.findall(r"\\ref\{(.*?)\}", source)} <= labels
    plain = re.sub(r"\\[{}\\%]", "", source)
    assert plain.count("{") == plain.count("}")
    begun, ended = (re.findall(rf"\\{word}\{{(\w+)", plain) for word in ("begin", "end"))
    assert sorted(begun) == sorted(ended)
    again = json.loads(pandoc("--from=latex", "--to=json", text=source, folder=folder))["blocks"]
    kinds = [block["t"] for block in again]
    expected = (2, 2) if name == "report" else (1, 0)
    assert (kinds.count("Header"), kinds.count("Figure")) == expected
    assert kinds.count("Table") + json.dumps(again).count('"t": "Table"') >= 1
    engine = next(filter(shutil.which, ("xelatex", "lualatex", "tectonic")), None)
    if engine and drawings:  # the longer document, which has Chinese words, too
        done = subprocess.run([engine, f"{name}.tex"], cwd=folder, capture_output=True, input=b"x")
        assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("word", ["words ", "文"])
def test_formulas_and_words_that_stay_together_fit_their_columns(word, folder):
    formula = r"$\frac1m\sum_{r=1}^m e^{\omega_r\cdot z-(\lVert q\rVert^2+\lVert k\rVert^2)/2}$"
    table = f"|a|b|c|\n|-|-|-|\n|{word * 100}|{formula}|24144\\ (37\\ %)|\n"
    (folder / "table.md").write_text(table, "utf-8")
    to_tex(folder / "table.md", folder / "table.tex")
    source = (folder / "table.tex").read_text("utf-8")
    shares = [float(share) for share in re.findall(r"\\real\{(.*?)\}", source)]
    line = 80  # letters
    assert shares[1] * line > 20  # that the formula takes
    assert shares[2] * line > len("24144 (37 %)")
    assert sum(shares) == pytest.approx(1, abs=0.01)
