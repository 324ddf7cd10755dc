"""What a reader edited in the folder of a report is never lost, and notes beside it join it."""

import json
import re

import pytest

from figures.command.cli import main
from figures.document.convert import to_html, to_pdf
from figures.document.manuscript import to_tex
from figures.document.notes import Note, merged, notes
from figures.report import build as report

NAME = "report.md"


def files(folder):
    return {path.name: path.read_text("utf-8") for path in folder.glob("report.md*")}


def test_a_report_keeps_an_edited_one_and_says_so(tmp_path, monkeypatch, capsys):
    """The command, with nothing to compute, in this process: another one has no patches."""
    nothing = dict.fromkeys(("error", "winners", "advice"))
    monkeypatch.setattr(report, "_computed", lambda *_: dict(nothing))
    for name in ("with_advice", "compose"):
        monkeypatch.setattr(report.summary, name, lambda *_: None)
    monkeypatch.setattr(report, "reported", lambda profile: ())
    monkeypatch.setattr(report.style, "save_table", lambda *_: None)
    monkeypatch.setattr(report, "render", lambda *_, **__: "generated")
    monkeypatch.setattr(report, "PAGES", {})
    command = ["report", "--profile", "quick", "--out", str(tmp_path), "--jobs", "1"]
    for _ in range(2):
        assert main(command) == 0
    assert capsys.readouterr().err == ""
    for name in (NAME, "notes.md"):
        (tmp_path / name).write_text("<!-- after: rank -->\nmine" if name == "notes.md" else "mine")
    assert main(command) == 0
    assert (tmp_path / "notes.md").read_text() == "<!-- after: rank -->\nmine"
    said = capsys.readouterr().err
    assert said == f"expqk: report.md was edited: it is kept as {tmp_path / 'report.md.1'}\n"
    assert files(tmp_path) == {NAME: "generated", f"{NAME}.1": "mine"}
    assert json.loads((tmp_path / "manifest.json").read_text("utf-8"))["seed"] == 0


# Notes


DOCUMENT = """---
title: A report
---

# First

One.

## Inner

![A figure.](x.svg){#fig:x}

| a |
|---|
| 1 |

: A table. {#tbl:y}

# Second

Two.
"""
NOTES = """<!-- after: x -->
Behind the figure, as @tbl:y says.

<!-- after: first -->
## Mine

Behind the first section, see [the first](#first).

<!-- after: tbl:y -->
![Mine.](x.svg){#fig:mine}

<!-- after: second -->
Behind @fig:mine.
"""


@pytest.fixture
def folder(tmp_path):
    picture = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><circle r="1"/></svg>'
    (tmp_path / "x.svg").write_text(picture)
    (tmp_path / NAME).write_text(DOCUMENT)
    return tmp_path


def test_notes_stand_behind_their_places_and_may_refer_to_figures(folder):
    (folder / "notes.md").write_text(NOTES, "utf-8")
    to_html(folder / NAME, folder / "page", notes=folder / "notes.md")
    page = (folder / "page").read_text("utf-8")
    page = page[page.index("<main") :]
    marks = (
        'id="first"', "One.", 'id="inner"', 'id="fig:x"', "Behind the figure", 'id="tbl:y"',
        'id="fig:mine"', "Behind the first", 'id="second"', "Two.", "Behind <",
    )  # fmt: skip
    places = [page.index(mark) for mark in marks]
    assert places == sorted(places)
    for number in ("Table\N{NO-BREAK SPACE}1</a>", "Figure\N{NO-BREAK SPACE}2</a>"):
        assert number in page
    to_pdf(folder / NAME, folder / "pdf", notes=folder / "notes.md")
    without = folder / "without"
    to_pdf(folder / NAME, without, notes=folder / "none.md")
    assert len((folder / "pdf").read_bytes()) > len(without.read_bytes())


def test_a_rebuild_merges_the_notes_and_leaves_both_sources_as_they_are(folder):
    (folder / "notes.md").write_text("<!-- after: second -->\nMy view.", "utf-8")
    report.rebuild(folder)
    assert "My view." in (folder / "index.html").read_text("utf-8")
    assert (folder / "report.pdf").read_bytes().startswith(b"%PDF")
    assert (folder / NAME).read_text() == DOCUMENT


@pytest.mark.parametrize(("text", "message"), [
    ("<!-- after: secnd -->\nx", "unknown place 'secnd', did you mean 'second'. Known: first, in"),
    ("<!-- after: fig:y -->\nx", "notes.md: unknown place 'fig:y'"),
    ("\nText.", "line 2 of notes.md must be a mark such as <!-- after: fig:error -->"),
    ("<!-- after: first -->\nx\n<!-- after first -->", "line 3 of notes.md must be a mark"),
])  # fmt: skip
def test_a_mark_that_leads_nowhere_is_said(folder, text, message):
    (folder / "notes.md").write_text(text)
    with pytest.raises(ValueError, match=message):
        to_html(folder / NAME, folder / "page", notes=folder / "notes.md")
    assert not (folder / "page").exists()


BIBTEX = """```bibtex
@comment{mine, 1}
@article{smith, author={Smith, Ann}, title={On $x^2$}, journal={J. Things}, year={2020}}
@book{li2021,
  author = {Li, Lei}, title = {Other}, publisher = {P}, year = {2021}}
```"""
OWN = (
    "<!-- after: second -->\nSee [@li2021; @known] and [see @smith, *page 3*], not @home.\n"
    "<!-- references -->\n"
)
LISTED = "# References\n\n1. [A. Known]{#ref-known}, *Title*, 1999.\n"


IN_HTML, IN_TEX = r"<[^>]*>", r"\\hyperref\[[^]]*\]|[{}]|\\item"


@pytest.mark.parametrize(("given", "write", "seen"), [
    (BIBTEX, to_tex, IN_TEX),
    ("- @smith: Ann Smith, 2020.\n- @li2021: Lei Li, *Other*.", to_html, IN_HTML),
    (f"1. @smith: Ann Smith, 2020.\n@book{BIBTEX.partition('@book')[2]}", to_html, IN_HTML),
])  # fmt: skip
def test_own_references_are_numbered_after_those_of_the_report(given, write, seen, folder):
    (folder / NAME).write_text(f"{DOCUMENT}\n{LISTED}")
    (folder / "notes.md").write_text(OWN + given)
    write(folder / NAME, folder / "out", notes=folder / "notes.md")
    text = " ".join(re.sub(seen, "", (folder / "out").read_text("utf-8")).split())
    assert re.search(r"See \[3\], \[1\] and \[see 2, (\\emph)?page 3\], not @home\.", text)
    places = [text.index(word) for word in ("A. Known", "Smith", "Other")]
    assert places == sorted(places)
    (folder / "notes.md").write_text(OWN.replace("@smith", "@smit") + given)
    with pytest.raises(ValueError, match=r"unknown reference 'smit', did you mean 'smith'\?"):
        to_html(folder / NAME, folder / "out", notes=folder / "notes.md")


@pytest.mark.parametrize(("given", "message"), [
    ("Smith, 2020", "must be BibTeX, or a line such as"),
    ("- @known: mine", "the report has a reference known already"),
    ("@article{smith, author={", r"are no BibTeX: .*line 3, column 1.*: unexpected end of input"),
    ("- @a: A, 2020.\n@book{a, title={A}, year={2020}}", "two references have the key a: rename"),
])  # fmt: skip
def test_references_that_cannot_be_read_are_said(folder, given, message):
    (folder / NAME).write_text(f"{DOCUMENT}\n{LISTED}")
    (folder / "notes.md").write_text(f"<!-- references -->\n{given}\n")
    with pytest.raises(ValueError, match=message):
        to_html(folder / NAME, folder / "out", notes=folder / "notes.md")


def test_to_hand_in_every_question_needs_an_answer(folder, capsys):
    (folder / NAME).write_text("::: {#own-a}\n> Why?\n:::\n\n::: {#own-b}\n> How?\n:::\n")
    (folder / "notes.md").write_text("<!-- after: own-a -->\nSo.\n")
    command = ["report", "--rebuild", "--out", str(folder), "--format", "docx"]
    assert main(command) == 0
    said = f"expqk: unanswered: own-b: write them in {folder / 'notes.md'}\n"
    assert capsys.readouterr().err == said
    before = (folder / "report.docx").read_bytes()
    assert main([*command, "--final"]) == 1
    assert "unanswered: own-b" in capsys.readouterr().err
    assert (folder / "report.docx").read_bytes() == before
    (folder / "notes.md").write_text("<!-- after: own-a -->\n1\n<!-- after: own-b -->\n2\n")
    assert main([*command, "--final"]) == 0
    assert capsys.readouterr().err == ""
    assert not (folder / "index.html").exists()


def test_notes_are_what_follows_their_marks():
    text = "\n  <!--after:a-->\n1\n\n2\n\n<!-- after: b -->\n<!-- why? -->\n<!-- after: a -->\n3"
    assert notes(text) == [Note("a", "1\n\n2"), Note("a", "3")]  # no text, no note
    assert notes("\n") == []
    header = {"t": "Header", "c": [1, ["a", [], []], []]}
    said = [{"t": "Para", "c": []}]
    assert merged([header], [("a", said), ("a", said)]) == [header, *said * 2]
