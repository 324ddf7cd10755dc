"""The gallery's page: every figure in order, its picture, its sentence, its command."""

import io
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis.experiments.profile import profile
from figures.document import album, figure_pages
from figures.drawing import style
from figures.gallery import FIGURES
from figures.words.translation import speaking, tr

ROOT = Path(__file__).parents[3]
MOST = 2.5e6  # bytes of all pictures: they are in git


@pytest.mark.listed
def test_the_page_shows_every_figure_in_order():
    text = (ROOT / album.PAGE).read_text("utf-8")
    parts = re.split(r"^## (\w+)\n", text, flags=re.MULTILINE)
    assert parts[1::2] == list(FIGURES), "run make gallery"
    for name, part in zip(parts[1::2], parts[2::2]):
        picture = re.search(r"!\[.*\]\((.*)\)", part)[1]
        assert (ROOT / album.PAGE.parent / picture).resolve() == ROOT / f"docs/gallery/{name}.png"
        assert f"{album.sentence(name)} `expqk figures {name}`" in part
        assert "\n\n**" in part, "run make gallery"
        assert re.search(r"\.png\)\n\n\S", part), "no caption: run make gallery"


@pytest.mark.listed
def test_the_chinese_page_says_the_same():
    """The same figures, pictures and numbers; titles are Chinese."""
    english, chinese = (
        figure_pages.sections((ROOT / path).read_text("utf-8")) for path in album.PAGES.values()
    )
    assert list(chinese) == list(english), "run make gallery"
    for name, (title, body) in chinese.items():
        with speaking("zh"):
            assert title == tr(FIGURES[name].TITLE)
        assert f"](../gallery/{name}.png)" in body
        assert numbers(body) == numbers(english[name][1].partition(f"`expqk figures {name}`")[2])


def numbers(text):
    """How often each number with a point stands in a text."""
    return Counter(re.findall(r"[0-9]+\.[0-9]+", text))


@pytest.mark.listed
def test_pictures_are_there_and_small():
    pictures = {p.stem: p for p in (ROOT / album.PICTURES).glob("*.png")}
    assert set(pictures) == set(FIGURES)
    assert sum(p.stat().st_size for p in pictures.values()) < MOST
    for path in pictures.values():
        with Image.open(path) as image:
            assert 600 <= image.width <= 1000  # inches of the style times album.DPI


def test_a_picture_is_the_figure():
    """The same at every pixel up to the 256 colours, whose nearest is close."""
    table = FIGURES["break_even"].compute(profile("quick"))
    exact = io.BytesIO()
    with style.style():
        FIGURES["break_even"].draw(table).savefig(exact, format="png", dpi=album.DPI)
    images = [
        np.asarray(Image.open(f).convert("RGB"), dtype=float)
        for f in (exact, io.BytesIO(album.picture(table, "break_even")))
    ]
    assert images[0].shape == images[1].shape
    # of 256 levels; a colour that is not in the palette is that of a pixel at an edge
    assert np.abs(images[0] - images[1]).mean() < 1


def test_a_missing_table_is_named(tmp_path, capsys):
    with pytest.raises(ValueError, match="has no table of summary, error"):
        album.write(tmp_path, tmp_path)
    assert album.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_figure_without_a_table_keeps_its_section(tmp_path):
    root = tmp_path / "root"
    for path in album.PAGES.values():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / path).read_text("utf-8")
        (root / path).write_text(text.replace("break_even --lang zh", "old"), "utf-8")
    (root / album.PICTURES).mkdir(parents=True)
    style.save_table("break_even", FIGURES["break_even"].compute(profile("quick")), tmp_path)
    assert len(album.write(tmp_path, root)) == 3  # its picture, and the two pages
    for path in album.PAGES.values():
        assert (root / path).read_text("utf-8") == (ROOT / path).read_text("utf-8")


def test_each_figure_has_a_page_and_a_notebook_whose_five_lines_make_it(
    tmp_path, monkeypatch, capsys
):
    pages = figure_pages.files((ROOT / album.PAGE).read_text("utf-8"))
    assert {*pages} == {f"{name}.{kind}" for name in FIGURES for kind in ("md", "ipynb")} | {
        "index.md"
    }
    page = pages["break_even.md"]
    assert page.startswith(f"# {FIGURES['break_even'].TITLE}\n\n")
    code = re.search("```python\n(.*?)```", page, re.DOTALL)[1]
    assert code.count("\n") == 5
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "break_even.md", "exec"), {})
    said = capsys.readouterr().out
    finding, _, _ = said.partition(". ")
    assert f"**{finding}.**\n\n![" in page
    assert album.github(said.removeprefix(f"{finding}. ").strip()) in page
    with Image.open("break_even.png") as image:
        assert image.width > 600
    cells = [cell["source"] for cell in json.loads(pages["break_even.ipynb"])["cells"][1:]]
    lines = "\n".join(cells).splitlines()
    assert lines[0] == "%matplotlib inline"
    assert lines[1:] == re.sub(r"\.savefig\(.*?\)", "", code).splitlines()


def test_the_chinese_pages_have_the_same_code():
    english, chinese = (
        figure_pages.files((ROOT / path).read_text("utf-8"), language)
        for language, path in album.PAGES.items()
    )
    assert {name.replace(".zh-CN", "") for name in chinese} == {*english}
    assert not {*english} & {*chinese}
    for name, page in english.items():
        stem, kind = name.split(".")
        twin = chinese[f"{stem}.zh-CN.{kind}"]
        if kind == "ipynb":
            assert code_of(twin) == code_of(page)
        elif stem != "index":
            blocks = [
                re.findall("```(?:python|sh)\n(.*?)```", text, re.DOTALL) for text in (page, twin)
            ]
            assert blocks[1] == [blocks[0][0], blocks[0][1].replace("\n", " --lang zh\n")]
            assert f"]({stem}.zh-CN.md)" in page
            assert f"]({stem}.md)" in twin
            assert f"<{stem}.zh-CN.ipynb>" in twin
    assert all(f"]({name}.zh-CN.md)" in chinese["index.zh-CN.md"] for name in FIGURES)


def code_of(notebook):
    return [cell["source"] for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
