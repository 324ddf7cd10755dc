"""The tutorials: their notebooks, their Chinese twins; tests/acceptance runs their code."""

import ast
import contextlib
import importlib.util
import io
import json
import math
import re
import sys
from pathlib import Path

import pytest
from acceptance.pages import BLOCK, blocks
from matplotlib.figure import Figure
from PIL import Image

from approx import METHODS
from approx.testing import check_method

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def differences(said, found):
    r"""Return the lines that differ otherwise than in the last digits of a number.

    Examples
    --------
    >>> differences("tv 0.251\nbest 2", "tv 0.252\nbest 3")
    [('best 2', 'best 3')]
    """
    pairs = list(zip(said.splitlines(), found.splitlines()))
    return [pair for pair in pairs if not same(*pair)]


def same(said, found):
    if NUMBER.sub("#", said).split() != NUMBER.sub("#", found).split():
        return False
    numbers = (NUMBER.findall(text.replace("−", "-")) for text in (said, found))
    # another BLAS adds in another order: two units of the last of three digits, printed
    return all(
        math.isclose(float(a), float(b), rel_tol=0.02, abs_tol=2e-3) for a, b in zip(*numbers)
    )


PAGES, NOTEBOOKS = (
    [path for path in sorted(TUTORIALS.glob(f"*.{kind}")) if ".zh-CN" not in path.name]
    for kind in ("md", "ipynb")
)


def test_the_method_that_a_tutorial_adds_keeps_the_contract():
    page = (TUTORIALS / "adding_a_method.md").read_text("utf-8")
    code = next(code for language, code in blocks(page) if language == "python")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "adding_a_method.md", "exec"), {"__name__": "tutorial"})
    for _, check in check_method(METHODS.pop("key_means")):
        check()


def shown(source, names, count):
    """Run a numbered cell of a notebook; return what it prints, and its last expression."""
    printed = io.StringIO()
    tree = ast.parse(source)
    last = tree.body.pop().value if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last), "cell", "eval"), names)
    found = []
    if printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": printed.getvalue()})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        result = {"data": data, "metadata": {}, "output_type": "execute_result"}
        found.append(result | {"execution_count": count})
    return found


def executed(notebook):
    """Run the cells of a notebook from top to bottom, and put what they show into it."""
    names = {"__name__": "__main__"}
    code = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for count, cell in enumerate(code, 1):
        cell |= {"outputs": shown(cell["source"], names, count), "execution_count": count}
    return notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_says(path, tmp_path):
    text = path.read_text("utf-8")
    anew = json.dumps(executed(json.loads(text)), ensure_ascii=False, indent=1) + "\n"
    written = tmp_path / path.name
    written.write_text(anew, "utf-8")
    assert len(anew.splitlines()) == len(text.splitlines()), f"copy {written} to {path}"
    assert not differences(text, anew), f"copy {written} to {path}"


def chinese(path):
    return path.with_suffix(f".zh-CN{path.suffix}")


TWINS = [path for path in [*TUTORIALS.parents[1].glob("*.md"), *TUTORIALS.parent.rglob("*.md")]
         if chinese(path).exists()]  # fmt: skip


def bare(code):
    return re.sub(r"\s*(?<![^\s])# .*| --lang zh\b", "", code)


def alike(one, same):
    """Return whether two blocks differ in comments only, or in the words of what is printed."""
    words = same[0] == "text" and re.search(r"[\u4e00-\u9fff]", same[1])
    left, right = (sorted(NUMBER.findall(x[1])) if words else bare(x[1]) for x in (one, same))
    return (one[0], left) == (same[0], right)


@pytest.mark.listed
@pytest.mark.parametrize("path", TWINS, ids=lambda path: path.stem)
def test_a_page_in_chinese_has_the_code_numbers_and_parts_of_the_english_one(path):
    """What the code prints is checked in English; here it must be the same."""
    english, other = (p.read_text("utf-8") for p in (path, chinese(path)))
    prose = [BLOCK.sub("", text) for text in (english, other)]
    for one, same in zip(blocks(english), blocks(other), strict=True):
        assert alike(one, same), same
        assert not re.search(r"# [A-Za-z]+ [a-z]+ [^\u4e00-\u9fff]*$", same[1], re.MULTILINE), same
    one, same = (re.findall(r"^!\[.+\]\((.*)\)$", text, re.MULTILINE) for text in prose)
    assert same == [str(chinese(Path(picture))) for picture in one]
    assert all((path.parent / picture).is_file() for picture in same)
    one, same = (len(re.findall(r"^(?:-|\d\.) ", text, re.MULTILINE)) for text in prose)
    assert one == same  # items of lists
    one, same = (re.findall(r"^(?:#| *\|).*", text, re.MULTILINE) for text in prose)
    for pair in zip(one, same, strict=True):
        assert len({tuple(sorted(NUMBER.findall(line))) for line in pair}) == 1, pair
    assert f"[中文]({chinese(path).name})" in english
    assert f"[English]({path.name})" in other


@pytest.mark.listed
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_in_chinese_has_the_cells_of_the_english_one(path):
    english, other = (json.loads(p.read_text("utf-8"))["cells"] for p in (path, chinese(path)))
    assert [c["cell_type"] for c in english] == [c["cell_type"] for c in other]
    for one, same in zip(english, other):
        both = [cell | {"source": bare(cell["source"])} for cell in (one, same)]
        assert both[0] == both[1] or one["cell_type"] == "markdown"
        assert one["source"].count("`") == same["source"].count("`")


# The page of ten results: its code, what it prints, its sentences, and its pictures


FILE = Path(__file__).parents[1] / "docs" / "pictures.py"
spec = importlib.util.spec_from_file_location(FILE.stem, FILE)
pictures = sys.modules["pictures"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pictures)

FIRST, SECTIONS = pictures.sections(pictures.PAGE.read_text("utf-8"))


def test_every_result_prints_what_it_says_and_is_drawn():
    names = {"__name__": "two_lines"}
    exec(compile(FIRST, "two_lines", "exec"), names)
    for section in SECTIONS:
        found = io.StringIO()
        with contextlib.redirect_stdout(found):
            exec(compile(section.code, section.title, "exec"), names)
        assert section.printed.count("\n") == found.getvalue().count("\n")
        assert not differences(section.printed, found.getvalue()), found.getvalue()
        ax = Figure().subplots()
        pictures.DRAWN[section.picture](ax, names)
        assert ax.has_data()
        assert ax.get_xlabel()


@pytest.mark.listed
def test_ten_results_of_three_lines_at_most_with_pictures_of_what_they_print():
    assert len(SECTIONS) == 10
    assert [section.picture for section in SECTIONS] == list(pictures.DRAWN)
    files = [*pictures.PICTURES.iterdir()]
    assert {path.name for path in files} == {
        f"{name}{end}" for name in pictures.DRAWN for end in (".png", ".zh-CN.png")
    }
    for section in SECTIONS:
        assert section.code.count("\n") <= 3
        assert max(map(len, section.code.splitlines())) <= 100
        for path in pictures.PICTURES.glob(f"{section.picture}.*"):
            with Image.open(path) as image:
                shows = image.text[pictures.SHOWS]
            assert shows == section.digest, "python docs/pictures.py draws them anew"
    assert sum(path.stat().st_size for path in files) < 3e5


@pytest.mark.listed
def test_every_number_of_a_sentence_is_computed_below_it():
    for section in SECTIONS:
        said, there = (
            set(re.findall(r"\d+(?:\.\d+)?%?", text))
            for text in (section.title, section.code + section.printed)
        )
        assert said <= there, (section.title, said - there)
