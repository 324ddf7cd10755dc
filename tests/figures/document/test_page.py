"""The HTML page without a browser: its script, panels, alt texts, headings, boxes."""

import base64
import hashlib
import html.parser
import re
import shutil

import pytest

from figures.document.convert import to_html

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{}<circle r="{}"/></svg>'
STRICT = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MARKDOWN = r"""---
title: A page
lang: en
---

# Results

![How $x$ moves.](figures/x.svg){#fig:x width=100%}

![How $y$ does not.](figures/y.svg){#fig:y}

![](figures/x.svg) and ![](figures/y.svg) and ![said](figures/y.svg) stand in a line.

## Results

| a |
|---|
| 1 |

| b |
|---|
| 2 |

: Numbers. {#tbl:b}

$$x = y$$
"""


class Elements(html.parser.HTMLParser):
    """Every element that a text begins: (name, attributes)."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def __call__(self, *names):
        return [attributes for tag, attributes in self.found if tag in names]


def document(folder, markdown=MARKDOWN):
    (folder / "figures" / "x").mkdir(parents=True)
    drawings = {
        "x": "How &lt;x&gt; moves",
        "x/t=10": "At ten",
        "x/t=0.25": "At a quarter",
        "x/t=1": "",
    }
    for radius, (name, title) in enumerate(drawings.items()):
        title = f"<title>{title}</title>" if title else ""
        path = folder / "figures" / f"{name}.svg"
        path.write_text(SVG.format(title, radius), encoding="utf-8")
    (folder / "figures" / "y.svg").write_text(SVG.format("<g><title>part</title></g>", 9))
    (folder / "figures" / "x" / "notes.svg").write_text("no panel")
    (folder / "report.md").write_text(markdown, encoding="utf-8")


def page_of(folder):
    to_html(folder / "report.md", folder / "index.html")
    return (folder / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    document(folder)
    return page_of(folder)


def policy(elements):
    return next(x["content"] for x in elements("meta") if "http-equiv" in x)


def test_only_the_script_of_the_page_may_run(page):
    (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy(Elements(page)) == f"{STRICT}; script-src 'sha256-{digest}'"


def test_a_figure_with_panels_has_a_slider(page):
    elements = Elements(page)
    (slider,) = elements("input")
    assert {key: slider[key] for key in ("type", "min", "max", "value")} == {
        "type": "range", "min": "0", "max": "2", "value": "1",
    }  # fmt: skip
    panels = [x for x in elements("img") if "data-value" in x]
    assert [x["data-value"] for x in panels] == ["0.25", "1", "10"]  # by number; t = 1 first
    said = ["At a quarter", "Figure\N{NO-BREAK SPACE}1, temperature 1", "At ten"]
    assert [x["alt"] for x in panels] == said
    pictures = [base64.b64decode(x["src"].split(",")[1]).decode() for x in panels]
    assert [re.search(r'r="(\d)"', picture)[1] for picture in pictures] == ["2", "3", "1"]
    assert re.search(r'<div class="panels" hidden', page)
    assert "<label>temperature <input" in page


def test_figures_are_described_by_their_title_once(page):
    figures = [x["alt"] or "" for x in Elements(page)("img") if "data-value" not in x]
    titled, number = "How <x> moves", "Figure\N{NO-BREAK SPACE}2"
    assert figures == [titled, number, titled, "", "said"]


def test_headings_landmarks_and_identifiers(page):
    elements = Elements(page)
    levels = [int(tag[1]) for tag, _ in elements.found if re.fullmatch("h[1-6]", tag)]
    assert levels == [1, 2, 2, 3]  # title, contents, sections
    assert len(elements("main")) == len(elements("nav")) == len(elements("header")) == 1
    assert elements("html") == [{"lang": "en"}]
    names = [x["id"] for _, x in elements.found if "id" in x]
    assert len(set(names)) == len(names)
    (skip,) = [x for x in elements("a") if x.get("class") == "skip"]
    assert skip["href"].removeprefix("#") in names
    (viewport,) = [x["content"] for x in elements("meta") if x.get("name") == "viewport"]
    assert viewport == "width=device-width, initial-scale=1"


def test_boxes_that_scroll_are_reached_by_keyboard_and_have_a_name(page):
    boxes = [x for _, x in Elements(page).found if x.get("class") == "scroll"]
    assert all((x["tabindex"], x["role"]) == ("0", "group") for x in boxes)
    assert [x["aria-label"].replace("\N{NO-BREAK SPACE}", " ") for x in boxes] == [
        "Figure 1", "Figure 1", "Figure 2", "Table", "Table 1", "Formula",
    ]  # fmt: skip


def test_words_are_of_the_language(tmp_path):
    document(tmp_path, MARKDOWN.replace("lang: en", "lang: zh"))
    shutil.rmtree(tmp_path / "figures" / "x")
    page = page_of(tmp_path)
    assert policy(Elements(page)).startswith(f"{STRICT}; font-src data:; ")  # of the Chinese font
    assert re.search(r'class="skip"[^>]*>跳到正文<', page)
    assert 'aria-label="公式"' in page


def test_sections_marked_as_appendices_are_boxes_that_scripts_close(tmp_path):
    text = "# A {.appendix}\n\none\n\n## B\n\ntwo\n\n# C {.appendix}\n\n# D\n\nthree"
    document(tmp_path, text)
    page = page_of(tmp_path)
    main = page[page.index("<main") : page.index("</main>")]
    parts = re.findall(r'<(details class="appendix" open|/details|h1|h2)|>(one|two|three)<', main)
    begins = 'details class="appendix" open'
    assert ["".join(part) for part in parts] == [
        begins, "h1", "one", "h2", "two", "/details", begins, "h1", "/details", "h1", "three",
    ]  # fmt: skip
    assert re.search(r"<summary>\s*<h1[^>]* id=\"a\"", main)


def test_a_panel_behind_a_link_is_refused(tmp_path):
    document(tmp_path)
    (tmp_path / "figures" / "x" / "t=2.svg").symlink_to(tmp_path / "figures" / "y.svg")
    with pytest.raises(ValueError, match="a figure must be a file, not a symlink"):
        page_of(tmp_path)
