import base64
import html
import io
import re
import shutil
import struct
import subprocess
import sys
import zlib

import matplotlib
import pytest
from drawing import text_of
from fontTools.ttLib import TTFont
from matplotlib.figure import Figure

from figures.document.convert import _without_shorthand, to_html, to_pdf
from figures.fonts import FAMILY, FONT

MARKDOWN = r"""---
title: How well is $\exp(q\cdot k)$ approximated?
subtitle: A small report
author: [Ada Lovelace, "Carl #panic() Gauß"]
date: 2025-11-21
lang: en
abstract: |
  The kernel $\kappa = \exp(q\cdot k/\tau)$; see @tbl:errors.
---

# Introduction {#intro}

Positive features $\phi$ are unbiased, $\mathbb{E}\,\widehat{\kappa}(q,k)=\exp(q\cdot k)$, at a
cost of $O(n\log n)$, on sets $A\cap B$ of $10{,}000$ points. See @fig:error,
[@fig:rank; @tbl:errors], [the introduction](#intro), <https://example.org/paper> and a@b.c.[^note]

[^note]: A footnote with $\|x\|_2^2$.

$$\operatorname{Var}\bigl[\widehat\kappa\bigr] = \frac1m\sum_{r=1}^m e^{\lVert q+k\rVert^2}
\qquad q^{\otimes 2} = q\otimes q, \quad \bigotimes_i q_i\odot k$$

$$f(x)=\begin{cases} 1 & x>0 \\ 0 & \text{otherwise}\end{cases}\quad
\begin{pmatrix} a & b\\ c & d\end{pmatrix}\quad \left\lVert\frac{x}{2}\right\rVert_F^2$$

## Results

![Error at $\tau = 1$, falling like $m^{-1/2}$.](figures/error.svg){#fig:error width=100%}

![Rank of $\lVert E\rVert_F$](figures/rank.svg){#fig:rank width=60%}

| method | error $\lVert E\rVert_F$ |
|:--|--:|
| `positive(m=64)` | $1.2\cdot 10^{-3}$ |
| `top_k(k=32)` | $\le 1$ |

: Errors at $\tau = 1$. {#tbl:errors}

核函数的近似。

```python
method = parse("positive(m=64)")  # #panic()
```
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("document")
    (folder / "figures").mkdir()
    for name, fonttype in (("error", "path"), ("rank", "none")):
        with matplotlib.rc_context({"svg.hashsalt": "expqk", "svg.fonttype": fonttype}):
            figure = Figure(figsize=(4, 2))
            figure.subplots().set(title=name, xlabel=r"$\tau$", ylabel="relative error")
            figure.savefig(folder / "figures" / f"{name}.svg", metadata={"Date": None})
    (folder / "figures" / "broken.svg").write_text("no picture")
    (folder / "figures" / "page.svg").write_text("<html/>")
    (folder / "figures" / "other.svg").write_text('<svg xmlns="urn:x"/>')
    for name, inner in (("deep", "<g>" * 300 + "</g>" * 300), ("shows", "<image href='/etc/x'/>")):
        drawing = f'<svg xmlns="http://www.w3.org/2000/svg">{inner}</svg>'
        (folder / "figures" / f"{name}.svg").write_text(drawing)
    size = struct.pack(">II5B", 60_000, 60_000, 8, 2, 0, 0, 0)
    header = b"IHDR" + size + struct.pack(">I", zlib.crc32(b"IHDR" + size))
    data = struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + data
    (folder / "figures" / "bomb.png").write_bytes(bomb)
    (folder / "figures" / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "report.md").write_text(MARKDOWN, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def page(folder):
    to_html(folder / "report.md", folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pdf(folder):
    to_pdf(folder / "report.md", folder / "report.pdf")
    return (folder / "report.pdf").read_bytes()


def written(folder, markdown):
    """A document of its own beside the figures."""
    path = folder / "other.md"
    path.write_text(markdown, encoding="utf-8")
    return path


def pages_of(pdf):
    assert pdf.startswith(b"%PDF-")
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def test_page_asks_for_nothing_outside(page):
    """Links may lead away; nothing that a browser fetches by itself may."""
    assert re.findall(r'href="(?!#)([^"]*)"', page) == ["https://example.org/paper"]
    sources = re.findall(r'\ssrc\s*=\s*"([^"]*)"', page)
    assert len(sources) == 1  # of the figure whose letters are no paths
    assert all(source.startswith("data:image/svg+xml") for source in sources)
    assert page.count('<svg class="drawing"') == 1
    assert not re.search(r"""<link|<iframe|@import|url\((?!["']?data:|#)""", page)
    assert page.count("<script") == 1
    assert "default-src 'none'" in html.unescape(page)


def test_page_has_title_contents_and_numbers(page):
    assert re.search(r'<html[^>]* lang="en"', page)
    assert "Ada Lovelace" in page
    assert "prefers-color-scheme: dark" in page
    assert re.search(r'<span\s+class="header-section-number">1\.1</span>\s+Results', page)
    assert '<nav id="TOC"' in page
    for label in ("Figure\N{NO-BREAK SPACE}1", "Figure\N{NO-BREAK SPACE}2"):
        assert f"<strong>{label}</strong>" in page
    assert re.search('href="#tbl:errors"[^>]*>Table\N{NO-BREAK SPACE}1</a>', page)
    assert 'id="tbl:errors"' in page


def test_page_has_formulas_as_mathml(page):
    assert page.count("<math") == MARKDOWN.count("$$") // 2 + len(
        re.findall(r"(?<!\$)\$[^$]+\$(?!\$)", MARKDOWN)
    )
    assert 'display="block"' in page
    assert "⊗" in page
    # n log n, with the thin spaces that MathML does not add
    assert re.search("<mi>n</mi><mrow><mspace [^>]*></mspace><mi[^>]*>log</mi>", page)
    # ∥, a relation, would stand apart from what it encloses
    assert "∥" not in page
    # a comma is not parted from its formula
    assert re.search(r'<span class="unbroken"><math.*?</math>,</span>', page, re.DOTALL)


def test_pdf_has_text_captions_and_numbers_and_no_date(pdf):
    assert not re.search(rb"CreationDate|ModDate|CreateDate|ModifyDate", pdf)
    assert pages_of(pdf) in (1, 2)
    text = text_of(pdf)
    if text is None:
        return
    words = " ".join(text.split())
    for part in ("Ada Lovelace, Carl #panic() Gauß", "1 Introduction", "1.1 Results", "otherwise"):
        assert part in words
    for label in ("Figure 1.", "Figure 2.", "Table 1.", "https://example.org/paper"):
        assert label in words.replace("\N{NO-BREAK SPACE}", " ")
    for symbol in "⊗⨂⊙∩":
        assert symbol in words
    assert "10,000" in words


@pytest.mark.parametrize(("convert", "fixture"), [(to_html, "page"), (to_pdf, "pdf")])
def test_same_bytes_again(convert, fixture, folder, tmp_path, request):
    first = request.getfixturevalue(fixture)
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    convert(copy / "report.md", copy / "again")
    again = (copy / "again").read_bytes()
    assert again == (first.encode() if isinstance(first, str) else first)


CODE = r"""---
title: "#panic() <script>alert(1)</script>"
header-includes: "#panic()"
include-before: dropped
css: https://evil.example/x.css
mainfont: '"; #panic()'
---

```{=typst}
#panic()
#read("/etc/passwd")
```

`#panic()`{=typst} #panic() [word]{typst:text:fill='panic()' onclick='alert(1)'}
<img src="https://evil.example/x.png"> $\text{"#panic()}\label{a>#panic()<b}$ \input{/etc/passwd}

::: {#"x> typst:block:fill='panic()' style="background: url(https://evil.example)"}
inside
:::

![](figures/error.svg){.inline-svg width='1%; #panic()' onload='alert(1)'}
"""


def test_markup_in_the_text_stays_text(folder, tmp_path):
    """panic() would end the PDF with an error; read() would not find its file."""
    source = written(folder, CODE)
    to_pdf(source, tmp_path / "x.pdf")
    to_html(source, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert page.count("<script") == 1  # of every page
    assert "dropped" not in page
    assert not re.search(r"<[^>]*(onclick|onload|evil\.example)", page)
    text = text_of((tmp_path / "x.pdf").read_bytes())
    assert text is None or '#read("/etc/passwd")' in text


@pytest.mark.parametrize(
    "target",
    [
        "../secret.svg",
        "figures/../../secret.svg",
        "figures/%2e%2e/%2e%2e/secret.svg",
        "/etc/secret.svg",
        "file:///etc/secret.svg",
        "https://evil.example/x.svg",
        "//evil.example/x.svg",
        "data:image/svg+xml,x.svg",
        r"..\\secret.svg",
        "report.md",
        "figures/link.svg",
        "linked/error.svg",
    ],
)
def test_figure_outside_the_folder_is_refused(target, folder, tmp_path):
    inner = tmp_path / "inner"
    shutil.copytree(folder, inner)
    (tmp_path / "secret.svg").write_text("<svg/>")
    (inner / "figures" / "link.svg").symlink_to(tmp_path / "secret.svg")
    (inner / "linked").symlink_to(inner / "figures")
    with pytest.raises(ValueError, match="a figure must"):
        to_html(written(inner, f"![x]({target})"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


PDF = ("](/etc", "/none.svg", "$")  # what is refused before either is converted is asked of one


@pytest.mark.parametrize(
    ("markdown", "error", "message"),
    [
        ("![x](figures/none.svg)", FileNotFoundError, "figure 'figures/none.svg' is missing"),
        ("See @fig:none.", ValueError, "@fig:none refers to no figure"),
        ("[x](#nowhere)", ValueError, "#nowhere"),
        ("[x](javascript:alert(1))", ValueError, "a link must be one of http"),
        ("[x](java&#9;script:alert(1))", ValueError, "a link must be one of http"),
        ("[x](/etc/passwd)", ValueError, "a link must be one of http.*, got '/etc/passwd'"),
        ("[x](claims.html#a:b)", ValueError, "or #, or lead to index.html or claims.html, got"),
        ("[x](./claims.html)", ValueError, "a link must be one of http"),
        ("[x](claims.pdf)", ValueError, "a link must be one of http"),
        ("[x](//host/x)", ValueError, "a link must be one of http"),
        ("[x](error.csv)", ValueError, "a link must be one of http"),
        (">" * 400 + " x", ValueError, "lists, quotes or emphasis nest too"),
        ("- " * 300 + "x", ValueError, "lists, quotes or emphasis nest too"),
        ("\n".join("  " * i + "- x" for i in range(3000)), ValueError, "nest too deeply"),
        ("t\n" + "\n".join("    " * i + ":   t" for i in range(60)), ValueError, "nest too deeply"),
        ("$" + "x_{" * 13 + "}" * 13 + "$", ValueError, "braces nest more than 12 deep in the"),
        ("see [" + "[" * 10 + "x" + "]" * 11, ValueError, r"brackets nest more than 6 deep at '"),
        ("![x](figures/broken.svg)", ValueError, "figure 'figures/broken.svg' is no SVG: syntax"),
        ("![x](figures/cut.png)", ValueError, "figure 'figures/cut.png' is no PNG: "),
        ("![x](figures/page.svg)", ValueError, "is no SVG: its root is not <svg>"),
        ("![x](figures/other.svg)", ValueError, "'figures/other.svg' is no SVG: its root is not"),
        ("![x](figures/deep.svg)", ValueError, "'figures/deep.svg' .*: its elements nest more"),
        ("![x](figures/bomb.png)", ValueError, "figure 'figures/bomb.png' is no PNG: Image size"),
        ("---\nlang: 'en\" onload=x'\n---", ValueError, "lang must be a language tag"),
        (r"$\nonsense{x}$", RuntimeError, r"Could not convert TeX math \\nonsense{x}$"),
        ("---\ntitle: [\n---", RuntimeError, "pandoc: .*YAML"),
    ],
)
def test_errors_say_what_is_wrong(markdown, error, message, folder, tmp_path):
    for convert in (to_html, to_pdf) if any(x in markdown for x in PDF) else (to_html,):
        with pytest.raises(error, match=message):
            convert(written(folder, markdown), tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_page_links_to_the_claims_beside_it_and_a_pdf_to_theirs(folder, tmp_path):
    source = written(folder, "[x](claims.html#FL-7), [y](index.html)")
    to_html(source, tmp_path / "x")
    page = (tmp_path / "x").read_text("utf-8")
    assert re.findall('href="([^"#]+[^"]*)"', page) == ["claims.html#FL-7", "index.html"]
    to_pdf(source, tmp_path / "x")
    found = re.findall(rb"/URI\(([^)]*)\)", (tmp_path / "x").read_bytes())
    assert found == [b"claims.pdf", b"report.pdf"]


def test_brackets_in_code_and_formulas_are_no_links(folder, tmp_path):
    text = "`" + "[" * 9 + "` and $" + "[" * 9 + "x" + "]" * 9 + r"$ and \\[\\[\\[\\[\\[\\[\\[\\["
    to_html(written(folder, text.replace(r"\\", "\\")), tmp_path / "out")
    assert "[" * 9 in (tmp_path / "out").read_text("utf-8")


@pytest.mark.parametrize(
    ("convert", "module"), [(to_html, "pypandoc"), (to_pdf, "pypandoc"), (to_pdf, "typst")]
)
def test_missing_extra_names_the_install_line(convert, module, folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=re.escape("pip install -e '.[report]'")):
        convert(folder / "report.md", tmp_path / "out")


def test_output_replaces_a_symlink(folder, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("kept")
    (tmp_path / "out").symlink_to(kept)
    to_html(written(folder, "text"), tmp_path / "out")
    assert kept.read_text() == "kept"
    assert not (tmp_path / "out").is_symlink()


CHINESE = """---
title: 中文
lang: zh-CN
abstract: 文
---

# 中 {#a}

中
文，见 @tbl:a。

|中|
|-|
|文|

: 文 {#tbl:a}
"""


def test_chinese_uses_the_given_font(folder, tmp_path):
    (tmp_path / "fonts").mkdir()
    shutil.copy(FONT, tmp_path / "fonts")
    for fonts in (FONT, tmp_path / "fonts"):
        to_pdf(written(folder, CHINESE), tmp_path / "x.pdf", fonts=fonts)
        pdf = (tmp_path / "x.pdf").read_bytes()
        assert FAMILY.replace(" ", "").encode() in pdf
        assert b"ExpqkSerifSC" not in pdf


def test_chinese_has_its_words_and_needs_no_font_of_the_machine(folder, tmp_path):
    source = written(folder, CHINESE)
    to_pdf(source, tmp_path / "x.pdf")
    pdf = (tmp_path / "x.pdf").read_bytes()
    assert b"ExpqkSerifSC" in pdf
    assert pages_of(pdf) == 1
    to_html(source, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    font = re.search(r"data:font/woff;base64,([\w+/=]+)", page)
    assert "font-src data:" in page
    shown = TTFont(io.BytesIO(base64.b64decode(font[1]))).getBestCmap()
    assert set("中文见，。表目录摘要") <= set(map(chr, shown))
    assert ord("秩") not in shown  # it says nothing of ranks
    assert 'lang="zh-CN"' in page
    for words in ("目录", "摘要", "<strong>表\N{NO-BREAK SPACE}1</strong>", "<p>中文，见"):
        assert words in page
    to_html(written(folder, "English"), tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "font-src" not in page
    assert "@font-face" not in page


def test_fonts_are_checked(folder, tmp_path):
    source = written(folder, "text")
    with pytest.raises(FileNotFoundError, match="fonts must be"):
        to_pdf(source, tmp_path / "x.pdf", fonts=tmp_path / "none")
    with pytest.raises(ValueError, match="fonts must be"):
        to_pdf(source, tmp_path / "x.pdf", fonts=source)


def test_wide_table_fits_and_long_table_breaks(folder, tmp_path):
    names = ["kernel_relative_frobenius", "attention_relative_frobenius", "output_relative_error"]
    head = "| " + " | ".join(names * 4) + " |\n" + "|--:" * 12 + "|\n"
    rows = ("| " + " | ".join(["6.370e-01"] * 12) + " |\n") * 60
    to_pdf(written(folder, head + rows), tmp_path / "x.pdf")
    pdf = (tmp_path / "x.pdf").read_bytes()
    assert pages_of(pdf) >= 2
    if shutil.which("pdftotext") is None:
        return
    command = ["pdftotext", "-bbox", "-", "-"]
    boxes = subprocess.run(command, input=pdf, capture_output=True, check=True).stdout.decode()
    left = min(float(x) for x in re.findall(r'<word xMin="([\d.]+)"', boxes))
    right = max(float(x) for x in re.findall(r'<word[^>]* xMax="([\d.]+)"', boxes))
    margin, point = 25, 25.4 / 72  # in mm
    assert left * point >= margin - 0.5
    assert right * point <= 210 - margin + 0.5
    assert boxes.count(">6.370e-01<") == 12 * 60  # numbers that touch would be one word


def test_tables_of_every_width(folder, tmp_path):
    """Also where the columns just do not fit, and none has a word to break."""
    tables = [
        "|" + " 6.37e-01 |" * columns + "\n" + "|--:" * columns + "|\n" + "| 1 " * columns + "|\n"
        for columns in range(1, 25)
    ]
    to_pdf(written(folder, "\n\n".join(tables)), tmp_path / "x.pdf")
    assert pages_of((tmp_path / "x.pdf").read_bytes()) >= 1


def test_two_hyphens_stay_two_hyphens_in_the_pdf():
    # neither typst's shorthand nor the ligature of the font; pdftotext cannot see the latter
    word = {"t": "Str", "c": 'a--"\\'}
    code = r'#text(ligatures: false, "a--\"\\");'
    assert _without_shorthand(word) == {"t": "RawInline", "c": ["typst", code]}
    assert _without_shorthand({"t": "Str", "c": "a-b."}) == {"t": "Str", "c": "a-b."}


def test_what_typst_says_of_a_figure_has_its_name(folder, tmp_path):
    with pytest.raises(RuntimeError, match=r"linked image /etc/x.*: figure 'figures/shows\.svg'"):
        to_pdf(written(folder, "![x](figures/shows.svg)"), tmp_path / "out")


def test_what_typst_cannot_nest_is_refused_in_the_same_words(folder, tmp_path):
    source = written(folder, "> " * 90 + "x")
    to_html(source, tmp_path / "out")
    with pytest.raises(ValueError, match="nest too deeply"):
        to_pdf(source, tmp_path / "out")


def test_pandoc_has_a_limit_of_memory(folder, tmp_path, monkeypatch):
    """Seven lines of YAML, aliases of aliases, took 1 GB in a minute, and would have gone on."""
    monkeypatch.setattr("figures.document.pandoc._MEMORY", "16m")
    with pytest.raises(RuntimeError, match=r"pandoc: .*[Hh]eap"):
        to_html(written(folder, "many *words* " * 20_000), tmp_path / "out")
