"""The page of ten results: its code, what it prints, its sentences, and its pictures."""

import contextlib
import importlib.util
import io
import re
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image
from test_docs import differences

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
    files = {path.stem: path for path in pictures.PICTURES.iterdir()}
    assert {*files} == {*pictures.DRAWN}
    for section in SECTIONS:
        assert section.code.count("\n") <= 3
        assert max(map(len, section.code.splitlines())) <= 100
        with Image.open(files[section.picture]) as image:
            shows = image.text[pictures.SHOWS]
        assert shows == section.digest, "python docs/pictures.py draws them anew"
    assert sum(path.stat().st_size for path in files.values()) < 1.5e5


@pytest.mark.listed
def test_every_number_of_a_sentence_is_computed_below_it():
    for section in SECTIONS:
        said, there = (
            set(re.findall(r"\d+(?:\.\d+)?%?", text))
            for text in (section.title, section.code + section.printed)
        )
        assert said <= there, (section.title, said - there)
