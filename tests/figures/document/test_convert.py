import base64
import hashlib
import html
import io
import re
import shutil
import subprocess
import sys

import matplotlib
import pytest
from drawing import text_of
from fontTools.ttLib import TTFont
from matplotlib.figure import Figure

from figures.document.convert import to_html, to_pdf
from figures.fonts import characters
from figures.report import templates
from figures.report.tables import literal

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
cost of $O(n\log n)$, on sets $A\cap B$. See @fig:error,
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
    (folder / "report.md").write_text(MARKDOWN, encoding="utf-8")
    return folder


def converted(convert, folder, markdown):
    """Write a document beside the figures; return its page, or the bytes of its PDF."""
    source, out = folder / "other.md", folder / "out"
    source.write_text(markdown, encoding="utf-8")
    out.unlink(missing_ok=True)
    convert(source, out)
    return out.read_text(encoding="utf-8") if convert is to_html else out.read_bytes()


@pytest.fixture(scope="module")
def page(folder):
    return converted(to_html, folder, MARKDOWN)


@pytest.fixture(scope="module")
def pdf(folder):
    return converted(to_pdf, folder, MARKDOWN)


def pages_of(pdf):
    assert pdf.startswith(b"%PDF-")
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def test_a_page_has_all_its_parts_and_asks_for_nothing_outside(page):
    """Links may lead away; nothing that a browser fetches by itself may."""
    assert re.findall(r'href="(?!#)([^"]*)"', page) == ["https://example.org/paper"]
    sources = re.findall(r'\ssrc\s*=\s*"([^"]*)"', page)
    assert len(sources) == 2
    assert all(source.startswith("data:image/svg+xml") for source in sources)
    assert not re.search(r"""<link|<iframe|@import|url\((?!["']?data:)""", page)
    assert page.count("<script") == 1
    assert "default-src 'none'" in html.unescape(page)
    assert re.search(r'<html[^>]* lang="en"', page)
    assert "Ada Lovelace" in page
    assert "prefers-color-scheme: dark" in page
    assert re.search(r'<span\s+class="header-section-number">1\.1</span>\s+Results', page)
    assert '<nav id="TOC"' in page
    for label in ("Figure\N{NO-BREAK SPACE}1", "Figure\N{NO-BREAK SPACE}2"):
        assert f"<strong>{label}</strong>" in page
    assert re.search('href="#tbl:errors"[^>]*>Table\N{NO-BREAK SPACE}1</a>', page)
    assert 'id="tbl:errors"' in page
    assert page.count("<math") == MARKDOWN.count("$$") // 2 + len(
        re.findall(r"(?<!\$)\$[^$]+\$(?!\$)", MARKDOWN)
    )
    assert 'display="block"' in page
    assert "⊗" in page


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


@pytest.mark.parametrize(("convert", "fixture"), [(to_html, "page"), (to_pdf, "pdf")])
def test_same_bytes_again(convert, fixture, folder, tmp_path, request):
    shutil.copytree(folder, tmp_path / "elsewhere")
    first = request.getfixturevalue(fixture)
    assert converted(convert, tmp_path / "elsewhere", MARKDOWN) == first


CODE = r"""```{=typst}
#panic()
```

`#panic()`{=typst} #panic() <img src="https://evil.example/x.png"> <script>x</script> a\-\-b
"""


def test_markup_in_the_text_stays_text(folder):
    """panic() would end the PDF with an error."""
    page, pdf = (converted(convert, folder, CODE) for convert in (to_html, to_pdf))
    assert page.count("<script") == 1  # of every page
    assert not re.search(r"<[^>]*evil\.example", page)
    text = text_of(pdf)
    assert text is None or "a--b" in text


HOSTILE = [
    "</title></style><script>alert(1)</script>",
    "](javascript:x) [x](file:///etc/passwd) ![x](../../secret.svg) {onclick=x}",
    '"}\n---\ntitle: x\n# `#read("/etc/passwd")`{=typst} $\\input{/etc/passwd}$ @fig:x [TOC]',
    "| a | \n\n: b {#tbl:x} <!-- after: x --> *a* _b_ ~c~ ^d^ 头 & &lt; #panic()",
]


def test_a_name_of_a_user_is_text_wherever_it_stands(folder):
    """Of a head, of an input, of an author, of a report: each goes through `literal`."""
    name = " ".join(HOSTILE)
    said = literal(name)
    beginning = '{% from "parts.j2" import header with context %}{{ header() }}'
    template = templates.environment().from_string(beginning)
    head = template.render(title=said, authors=[said], lang="en")
    source = f"""{head}

# {said}

| {said} |
|--|
| {said} |

: {said} {{#tbl:own}}

![{said}](figures/error.svg){{#fig:own}}
"""
    page = converted(to_html, folder, source)
    body = page[page.index("<body>") : page.index("<script>")]
    plain = " ".join(html.unescape(re.sub("<[^>]*>", "", body)).split())
    assert plain.count(" ".join(name.split())) == 8  # with the contents
    assert page.count("<script") == 1
    leads = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert all(target.startswith(("#", "data:image/svg")) for target in leads)
    assert not re.search(r"<[^>]*\sonclick=", page)
    assert page.count("<table>") == 1
    assert page.count("<img") == 1
    text = text_of(converted(to_pdf, folder, source))
    assert text is None or "root:" not in text


@pytest.mark.parametrize("target", [
    "../secret.svg", "figures/%2e%2e/%2e%2e/secret.svg", "/etc/secret.svg",
    "file:///etc/secret.svg", "https://evil.example/x.svg", "//evil.example/x.svg",
    "data:image/svg+xml,x.svg", r"..\\secret.svg", "figures/link.svg",
])  # fmt: skip
@pytest.mark.parametrize("write", [to_html, to_pdf])
def test_a_figure_outside_the_folder_is_refused(write, target, folder, tmp_path):
    inner = tmp_path / "inner"
    shutil.copytree(folder, inner)
    (tmp_path / "secret.svg").write_text("<svg/>")
    (inner / "figures" / "link.svg").symlink_to(tmp_path / "secret.svg")
    with pytest.raises(ValueError, match="a figure must lie in the folder"):
        converted(write, inner, f"![x]({target})")
    assert not (inner / "out").exists()


@pytest.mark.parametrize(("write", "markdown", "message"), [
    (to_html, "![x](figures/none.svg)", "pandoc: Could not fetch resource figures/none"),
    (to_pdf, "![x](figures/none.svg)", r"typst: .*figures/none\.svg"),
    (to_html, "See @fig:none.", "@fig:none refers to no figure"),
    (to_html, r"$\nonsense{x}$", r"Could not convert TeX math \\nonsense{x}$"),
    (to_html, "---\ntitle: [\n---", "pandoc: .*YAML"),
])  # fmt: skip
def test_errors_say_what_is_wrong(write, markdown, message, folder):
    with pytest.raises(ValueError if "@" in markdown else RuntimeError, match=message):
        converted(write, folder, markdown)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("convert", "module"), [(to_html, "pypandoc"), (to_pdf, "pypandoc"), (to_pdf, "typst")]
)
def test_missing_extra_names_the_install_line(convert, module, folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=re.escape("pip install -e '.[report]'")):
        convert(folder / "report.md", tmp_path / "out")


def test_output_replaces_a_symlink(folder, tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "out").symlink_to(tmp_path / "kept")
    (folder / "other.md").write_text("English")
    to_html(folder / "other.md", tmp_path / "out")
    assert (tmp_path / "kept").read_text() == "kept"
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


def test_chinese_has_its_words_and_needs_no_font_of_the_machine(folder):
    pdf = converted(to_pdf, folder, CHINESE)
    assert b"ExpqkSerifSC" in pdf
    assert pages_of(pdf) == 1
    many = "".join(sorted(c for c in characters() if "\u4e00" <= c < "\u6000"))
    page = converted(to_html, folder, f"{CHINESE}\n{many}")  # more than an argument may hold
    font = re.search(r"data:font/woff;base64,([\w+/=]+)", page)
    assert "font-src data:" in page
    shown = TTFont(io.BytesIO(base64.b64decode(font[1]))).getBestCmap()
    assert set("中文见，。表目录摘要") <= set(map(chr, shown))
    assert ord("秩") not in shown  # it says nothing of ranks
    assert 'lang="zh-CN"' in page
    for words in ("目录", "摘要", "<strong>表\N{NO-BREAK SPACE}1</strong>"):
        assert words in page
    assert re.search("<p>中文，见(<span>)?<a ", page)  # without the space before the @
    page = converted(to_html, folder, "English")
    assert "font-src" not in page
    assert "@font-face" not in page


def test_no_page_begins_with_a_formula_and_no_line_with_a_mark_after_one(folder):
    parts = [f"{'文' * (37 * i % 97)}公式\n$$F=0$$\n{'文' * i}见 $x+y$；又" for i in range(120)]
    pdf = converted(to_pdf, folder, "---\nlang: zh\n---\n" + "\n\n".join(parts))
    if shutil.which("pdftotext"):
        text = subprocess.run(["pdftotext", "-", "-"], input=pdf, capture_output=True).stdout
        assert not re.search(r"\f\s*𝐹|\n；", text.decode())


def test_wide_table_fits_and_long_table_breaks(folder):
    names = ["kernel_relative_frobenius", "attention_relative_frobenius", "output_relative_error"]
    head = "| " + " | ".join(names * 4) + " |\n" + "|--:" * 12 + "|\n"
    rows = ("| " + " | ".join(["6.370e-01"] * 12) + " |\n") * 60
    pdf = converted(to_pdf, folder, head + rows)
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


def test_tables_of_every_width(folder):
    """Also where the columns just do not fit, and none has a word to break."""
    tables = [
        "|" + " 6.37e-01 |" * columns + "\n" + "|--:" * columns + "|\n" + "| 1 " * columns + "|\n"
        for columns in (1, *range(6, 12), 24)
    ]
    assert pages_of(converted(to_pdf, folder, "\n\n".join(tables))) >= 1


PANELS = r"""---
title: A page
---

# Results

![How $x$ moves.](figures/x.svg){#fig:x width=100%}

![How $y$ does not.](figures/y.svg){#fig:y}

| a |
|---|
| 1 |

$$x = y$$
"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{}<circle r="{}"/></svg>'


def test_a_figure_with_panels_has_a_slider_and_each_picture_its_title(tmp_path):
    (tmp_path / "figures" / "x").mkdir(parents=True)
    titles = {"x": "How &lt;x&gt; moves", "x/t=10": "At ten", "x/t=0.25": "At a quarter",
              "x/t=1": "At one", "y": ""}  # fmt: skip
    for radius, (name, title) in enumerate(titles.items()):
        drawing = SVG.format(f"<title>{title}</title>" if title else "", radius)
        (tmp_path / "figures" / f"{name}.svg").write_text(drawing)
    page = converted(to_html, tmp_path, PANELS)
    assert re.search(r'type="range" min="0" max="2"\s+value="1"', page)  # t = 1 first
    pictures = re.findall(r"<img[^>]*>", page)
    alts = [html.unescape(re.search(r'alt="([^"]*)"', x)[1]) for x in pictures]
    said = ["How <x> moves", "At a quarter", "At one", "At ten", "Figure\N{NO-BREAK SPACE}2"]
    assert alts == said
    drawn = [base64.b64decode(re.search(r"base64,([^\"]*)", x)[1]).decode() for x in pictures]
    assert [re.search(r'r="(\d)"', x)[1] for x in drawn] == ["0", "2", "3", "1", "4"]
    assert '<div class="panels" hidden' in page
    boxes = re.findall(r'class="scroll"[^>]*tabindex="0"[^>]*aria-label="([^"]*)"', page)
    assert [x.replace("\N{NO-BREAK SPACE}", " ") for x in boxes] == [
        "Figure 1", "Figure 1", "Figure 2", "Table", "Formula",
    ]  # fmt: skip
    levels = re.findall(r"<h(\d)", page)
    assert levels == ["1", "2", "2"]  # title, contents, section


def test_only_the_script_of_the_page_may_run(page):
    (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', page)
    assert html.unescape(policy) == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; "
        f"script-src 'sha256-{digest}'"
    )
