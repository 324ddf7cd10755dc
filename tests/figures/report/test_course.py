"""The course report: a professor's checklist, places for own text, numbers from tables."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from drawing import english, numbers, text_of
from matplotlib.collections import PolyCollection
from matplotlib.container import ErrorbarContainer
from test_report import _places, _unnamed, cut

from analysis import inputs
from analysis.compute import output_files
from analysis.experiments import polynomial_rank
from analysis.experiments.profile import profile
from figures.gallery import FIGURES, NAMES, REPORTED, reported
from figures.report import build as report, course
from figures.words.translation import speaking, tr

SECTIONS = {  # and the figure or table that has the measurement
    "approximation": "fig:rational", "rank": "tbl:bounds", "moments": "fig:moments",
    "error": "fig:error",
}  # fmt: skip


@pytest.fixture(scope="module")
def small():
    return dataclasses.replace(cut(trials=3), name=course.NAME)


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("course")
    report.build(small, out, command="expqk report --profile course", authors=["A. Student"])
    return out


@pytest.fixture(scope="module")
def text(made):
    return (made / "report.md").read_text("utf-8")


@pytest.fixture(scope="module")
def found(made):
    return {path.stem: pd.read_csv(path) for path in (made / "data").glob("*.csv")}


def section(text, name):
    return re.search(rf"^# [^\n]*\{{#{name}\}}$(.*?)(?=^# |\Z)", text, re.DOTALL | re.M)[1]


# A professor's checklist


def reproducible(made, text, found, small):
    """Command, seed, version of every package and the content of the inputs stand in it."""
    end = text[text.index("# Appendix: how this was made") :]
    assert "```\nexpqk report --profile course\n```" in end
    assert f"seed {small.seed}," in end
    manifest = json.loads((made / "manifest.json").read_text("utf-8"))
    for version in manifest["versions"].values():
        assert version in end
    for x in small.inputs:
        assert x.digest()[:16] in end
    assert {p.stem for p in (made / "figures").glob("*.svg")} <= found.keys()
    again = report.render(small, found, "expqk report --profile course", authors=["A. Student"])
    assert again == text  # every number comes from the tables beside it


def error_bars(made, text, found, small):
    """What is drawn at random has bars or bands, and the text says what they are."""
    for name, kind in (("error", PolyCollection), ("moments", ErrorbarContainer)):
        axes = FIGURES[name].draw(found[name]).axes
        drawn = [part for ax in axes for part in (*ax.collections, *ax.containers)]
        assert any(isinstance(part, kind) for part in drawn), name
        assert f"@fig:{name}" in section(text, "method")
    for words in ("Bands span all draws", "one standard error", "3 times"):
        assert words in section(text, "method").replace("\n", " ")


def theory(made, text, found, small):
    """Each section says what theory predicts, then what was measured, then what it means."""
    for name, place in SECTIONS.items():
        marks = [section(text, name).index(f"**{m}") for m in ("Theory.", "Measured", "Meaning.")]
        assert marks == sorted(marks), name
        assert place in section(text, name)
        assert re.search(r"\$[^$]+\$", section(text, name)[marks[0] : marks[1]])
    rows = re.findall(r"^\| (\w[\w ]*) \|", section(text, "meaning"), re.MULTILINE)
    assert rows == ["quantity", "degree", "rank", "bias", "variance"]


def units(made, text, found, small):
    """Every figure names both of its axes; errors and prices have their norm and unit."""
    for name in reported(small):
        axes = FIGURES[name].draw(found[name]).axes
        assert any(ax.get_xlabel() for ax in axes), name
        assert any(ax.get_ylabel() for ax in axes), name
    assert "**Units**" in section(text, "method")
    assert "16 stored values per query row" in section(text, "method")
    assert text.count("relative Frobenius error") > 3


def limits(made, text, found, small):
    """The size of the study and what it leaves out are said."""
    said = section(text, "limits")
    assert said.count("\n- ") >= 4
    assert "2 inputs of at most 40 tokens" in said
    assert "3 draws" in said


CHECKLIST = (reproducible, error_bars, theory, units, limits)


@pytest.mark.parametrize("ticked", CHECKLIST, ids=lambda each: each.__name__)
def test_a_professor_ticks(ticked, made, text, found, small):
    ticked(made, text, found, small)


@pytest.mark.parametrize(
    ("ticked", "old", "new"),
    [
        (reproducible, "seed 0,", "some seed,"), (error_bars, "Bands span", "Bands are"),
        (theory, "**Theory.**", ""), (units, "**Units**", ""), (limits, "3 draws", "few draws"),
    ],
)  # fmt: skip
def test_the_checklist_notices_what_is_missing(ticked, old, new, made, text, found, small):
    with pytest.raises((AssertionError, ValueError)):
        ticked(made, text.replace(old, new), found, small)


# Its text


def test_figures_and_tables_are_spoken_of_before_they_appear(text):
    assert _unnamed(text) == []
    shown = re.findall(r"\(figures/(\w+)\.svg\)\{#fig:\1 ", text)
    assert sorted(shown) == sorted(name for name in REPORTED["course"] if name in NAMES)
    listed = re.findall(r"\{#ref-(\w+)\}", text)
    assert set(listed) == set(re.findall(r"\(#ref-(\w+)\)", text))
    assert len(listed) >= 5


def test_it_says_the_same_in_chinese(small, found, text):
    with speaking("zh"):
        chinese = report.render(
            small, found, "expqk report --profile course", authors=["A. Student"]
        )
    assert numbers(chinese) == numbers(text)
    assert _places(chinese) == _places(text)
    assert re.findall(r"^::: .*", chinese, re.MULTILINE) == re.findall(r"^::: .*", text, re.M)
    prose = chinese[chinese.index("# 问题") : chinese.index("# 参考文献")]
    for kept in (r"\$\$?.*?\$\$?", r"`[^`]*`", r"!\[.*?\]\(.*?\)", r"\{[#.].*?\}", r"@\w+:\w+"):
        prose = re.sub(kept, "", prose, flags=re.DOTALL)
    assert english(re.sub(r"\]\(#ref-\w+\)|::: ", "", prose)) == set()


def test_a_model_is_refused(small, tmp_path):
    with pytest.raises(ValueError, match="a course report has no model in it"):
        report.build(small, tmp_path, model=object())


def test_a_course_has_gaussian_inputs_beside_the_heads_of_a_file(tmp_path):
    q = np.random.default_rng(0).normal(size=(1, 9, 30, 4))
    np.savez(tmp_path / "a 'b' (最终).npz", q=q, k=q)
    own = profile("course", path=tmp_path / "a 'b' (最终).npz")
    assert [(x.name[:8], x.n) for x in own.inputs] == [("gaussian", 30)] + [("a 'b' (最", 30)] * 3


# Own text


def test_own_text_takes_the_place_of_a_question(made, tmp_path, monkeypatch):
    notes = (made / "notes.md").read_text("utf-8")
    places = re.findall(r"<!-- after: (\S+) -->\n<!-- Your text\. ([^\n]+\?)", notes)
    assert [place for place, _ in places] == [
        f"own-{name}" for name in ("question", "method", "rank", "moments", "error", "meaning")
    ]
    monkeypatch.delitem(report.PAGES, "report.pdf")
    for name in ("report.md", "index.html", output_files.RECORD):
        (tmp_path / name).write_text((made / name).read_text("utf-8"), "utf-8")
    shutil.copytree(made / "figures", tmp_path / "figures")
    (tmp_path / "notes.md").write_text(
        re.sub(r"(after: own-rank -->\n)", r"\1My *view* of the rank.\n", notes), "utf-8"
    )
    before = (tmp_path / "index.html").read_text("utf-8")
    report.rebuild(tmp_path.resolve())
    after = (tmp_path / "index.html").read_text("utf-8")
    question = "At which temperature has your input"
    assert question in before
    assert question not in after
    assert "My <em>view</em> of the rank." in after
    assert after.count("<blockquote") == before.count("<blockquote") - 1 == 5


def test_what_was_written_is_never_overwritten(small, found, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PAGES", {})
    monkeypatch.setattr(report.album, "save", lambda *_: [])
    monkeypatch.setattr(report, "parallel", lambda f, each, **_: [f(x) for x in each])
    for module in (*(FIGURES[name] for name in reported(small)), polynomial_rank):
        name = module.__name__.split(".")[-1]
        monkeypatch.setattr(module, "compute", lambda *_, name=name: found[name])
    monkeypatch.setattr(report.decomposition, "compute", lambda *_: found["decomposition"])
    assert report.build(small, tmp_path, command="x") is None
    note = "<!-- after: rank -->\nMine."
    for name, text in {"notes.md": note, "report.md": "mine"}.items():
        (tmp_path / name).write_text(text, "utf-8")
    assert report.build(small, tmp_path, command="x") == tmp_path / "report.md.1"
    assert (tmp_path / "report.md.1").read_text("utf-8") == "mine"
    assert (tmp_path / "notes.md").read_text("utf-8") == note


# Its numbers


def test_ranks_stand_beside_their_bounds(small, found):
    """Both counted anew for the Gaussian input of the table."""
    table = course.rank_table(found["polynomial_rank"])
    assert list(table.columns)[2:] == [f"t = {t:g}" for t in course.SHOWN]
    x = inputs.gaussian(40, 4, rng=small.seed)
    for t in course.SHOWN:
        s = np.linalg.svd(np.exp(x.q @ x.k.T / (t * 2)), compute_uv=False)
        exact, bound = map(int, table[f"t = {t:g}"][0].replace("\N{NO-BREAK SPACE}", "").split("≤"))
        assert exact == (s > 0.01 * s[0]).sum() <= bound <= 40


def test_the_interval_of_the_polynomials_holds_the_logits(small):
    said = course.interval(small)
    for x in small.inputs:
        logits = x.q @ x.k.T / np.sqrt(x.d)
        seen = np.abs(logits[np.ones_like(logits) * x.mask.is_full + np.tri(40) > 0]).max()
        (shown,) = re.findall(rf"{re.escape(x.name)} from t = (\S+) on", said)
        assert seen / 4 <= float(shown) < 1.1 * seen / 4  # two digits, rounded up


def test_theory_and_measurement_are_compared(found):
    table = course.comparison(found).set_index("quantity")
    moments = found["moments"].pivot_table("value", ["input", "method", "temperature"], "metric")
    sure = moments[moments.believable == 1]
    assert len(sure)
    ratio = sure.sampled_variance / np.exp(sure.log_relative_variance)
    assert table.measured["variance"].startswith(f"{ratio.min():.2f} to {ratio.max():.2f} of it")
    stderr = found["moments"][found["moments"].metric == "sampled_bias"]
    stderr = stderr.set_index(["input", "method", "temperature"]).stderr.reindex(sure.index)
    z = ((sure.sampled_bias - sure.relative_bias) / stderr).abs()
    assert f"the largest of {len(z)} |z| is {z.max():.1f}; chance" in table.measured["bias"]
    assert course._limit(1) == pytest.approx(1.96, abs=0.001)
    assert "nothing measured contradicts it" in course.agreement(found)
    wrong = found["moments"].assign(
        value=found["moments"].value + (found["moments"].metric == "sampled_bias")
    )
    assert "exceeds what chance allows" in course.agreement(found | {"moments": wrong})


def test_nothing_reliable_is_said(found):
    none = {
        name: table.assign(value=table.value.where(table.metric != "believable", 0.0))
        for name, table in found.items()
        if name == "moments"
    }
    table = course.comparison(found | none)
    assert (table.measured == "no draw is reliable").sum() == 2
    assert "No sample here" in course.agreement(none)
    assert not re.search(r"\bnan\b", table.to_string())


@pytest.mark.slow  # the whole report, as the command writes it
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_bundled_heads_fill_eight_to_ten_pages(language, tmp_path):
    with speaking(language):
        report.build(profile("course", jobs=2), tmp_path, command="expqk report --profile course")
        title = tr(course.TITLE)
    pdf = (tmp_path / "report.pdf").read_bytes()
    assert 8 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 10
    seen = text_of(pdf)
    assert seen is None or "".join(title.split()) in "".join(seen.split())
