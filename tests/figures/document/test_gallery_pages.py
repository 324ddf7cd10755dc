"""The gallery's page: every figure in order, its picture, its sentence, its command."""

import io
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis import inputs
from analysis.experiments.profile import profile
from approx import parse
from figures.document import gallery_pages
from figures.drawing import style
from figures.gallery import FIGURES
from figures.words.translation import speaking, tr, twin

ROOT = Path(__file__).parents[3]
MOST = 2.5e6  # bytes of all pictures: they are in git
NUMBER = re.compile(r"[0-9]+\.[0-9]+")


@pytest.mark.listed
def test_the_pages_show_every_figure_in_order_with_the_same_numbers():
    bodies = []
    for language, path in gallery_pages.pages().items():
        text = (ROOT / path).read_text("utf-8")
        _, *parts = re.split(r"^## (\w+)\n", text, flags=re.MULTILINE)
        assert parts[::2] == [*FIGURES], "run make gallery"
        bodies.append(parts[1::2])
        with speaking(language):
            for name, part in zip(*[iter(parts)] * 2):
                file = twin(gallery_pages.PICTURES / f"{name}.png")
                finding, caption = part.split(f"\n\n![{tr(FIGURES[name].TITLE)}](../{file})\n\n")
                assert "\n\n**" in finding, "run make gallery"
                assert caption.strip(), "no caption: run make gallery"
    for name, one, other in zip(FIGURES, *bodies):
        said = one.removeprefix(f"\n{gallery_pages.sentence(name)} `expqk figures {name}`")
        assert said != one
        # how often each number with a point stands in it
        assert Counter(NUMBER.findall(other)) == Counter(NUMBER.findall(said))


@pytest.mark.listed
def test_pictures_are_there_and_small():
    pictures = {p.stem: p for p in (ROOT / gallery_pages.PICTURES).glob("*.png")}
    assert set(pictures) == {*FIGURES, *(f"{name}.zh-CN" for name in FIGURES)}
    assert sum(p.stat().st_size for p in pictures.values()) < MOST
    for path in pictures.values():
        with Image.open(path) as image:
            assert 600 <= image.width <= 1000  # inches of the style times gallery_pages.DPI


BEST_FOUND = (  # of each class, at the storage of 32 values a query
    ("top_k()", "top_k(per='head')", "godec(rank=0, space='attention')"),
    ("truncated_svd(space='attention')", "truncated_svd(space='attention', refine='tv')"),
)


def test_no_printed_crossover_is_contradicted_by_the_best_found_of_both_classes(pytestconfig):
    """A tenth below a printed t the best sparse member has less tv than the best low rank found."""
    pages = (pytestconfig.rootpath / name for name in ("figures/README.md", "docs/measured.md"))
    gallery, measured = (page.read_text("utf-8") for page in pages)
    said = re.search(r"In total variation, the largest entries beat .* lose above", gallery)[0]
    printed = {name: float(t) for t, name in re.findall(r"([\d.]+) \((MiniLM \w+)\)", said)}
    row = re.search(r"\| tv \| [\d.]+ \|(.*)", measured)[1]
    assert [f"{t:.2f}" for t in printed.values()] == row.replace("|", " ").split()[:2]
    for x in inputs.sample().heads():
        for factor in (0.9, 1.1) if x.name in printed else ():
            at = x.at_temperature(factor * printed[x.name])
            tv = []
            for some in BEST_FOUND:
                members = (at.approximate(parse(s).within(32, **at.shape.given)) for s in some)
                tv.append(min(at.compare(member)["attention_tv"] for member in members))
            assert (tv[0] < tv[1]) == (factor < 1), (x.name, factor, tv)
    assert len(printed) == 2


def test_a_missing_table_is_named_and_its_section_kept(tmp_path, capsys):
    with pytest.raises(ValueError, match="has no table of summary, error"):
        gallery_pages.write(tmp_path, tmp_path)
    assert gallery_pages.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
    root = tmp_path / "root"
    for path in gallery_pages.pages().values():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / path).read_text("utf-8")
        (root / path).write_text(text.replace("break_even --lang zh", "old"), "utf-8")
    (root / gallery_pages.PICTURES).mkdir(parents=True)
    table = FIGURES["break_even"].compute(profile("quick"))
    style.save_table("break_even", table, tmp_path)
    assert len(gallery_pages.write(tmp_path, root)) == 4  # its pictures, and the two pages
    exact = io.BytesIO()
    with style.style():
        FIGURES["break_even"].draw(table).savefig(exact, format="png", dpi=gallery_pages.DPI)
    pixels = [np.asarray(Image.open(x).convert("RGB"), float)
              for x in (exact, root / gallery_pages.PICTURES / "break_even.png")]  # fmt: skip
    assert pixels[0].shape == pixels[1].shape
    assert np.abs(pixels[0] - pixels[1]).mean() < 1  # of 256 levels: all but some edges of letters
    for path in gallery_pages.pages().values():
        assert (root / path).read_text("utf-8") == (ROOT / path).read_text("utf-8")
