"""The report: everything is there, made again the same, numbers from tables, an edit survives."""

import dataclasses
import functools
import html
import inspect
import json
import math
import re
import shutil
import sys
from collections import Counter
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polib
import pytest
from drawing import english, has_the_columns, numbers, text_of
from refusals import refuses
from test_model_page import made_up
from typeset import compiled, faults

from analysis import inputs, moments
from analysis.experiments import decomposition
from analysis.experiments.profile import ADVISED, Profile, profile
from analysis.runs import output_files, tasks
from analysis.runs.store import Store
from approx import METHODS, Mask, parse
from approx.method import Label
from figures.document import figure_files
from figures.drawing import style
from figures.fonts import SERIF, lacks
from figures.gallery import CORE, FIGURES, REPORTED, reported, summary
from figures.report import build as report, duration, references, sentences, tables, theory
from figures.words import translation
from figures.words.translation import speaking, tr

PARTS = "decomposition", "winners", "advice", "polynomial_rank"  # tables that no figure draws
OWN = "question", "method", "rank", "moments", "error", "meaning"  # sections with a question
HOSTILE = '*a* $x$ <b> #set page() "q" \\n `c` -- --- ... [l](u) @fig:no {{ 1 }} {#i}'


def cut(**options):
    """Return a profile of a full and a causal head of 40 tokens."""
    heads = [inputs.gaussian(40, 8, rng=0), *inputs.sample().heads()][:2]
    one, other = (x.first(40) for x in heads)
    two = one, dataclasses.replace(other, mask="causal")
    asked = {"budget": 16.0, "trials": 2, "draws": 50} | options
    return Profile("small", two, (0.25, 1.0, 8.0), **asked)


@pytest.fixture(scope="module")
def small():
    return cut()


def empty(figure, kind, title=None):
    """Return a picture of the size of a figure: drawings have tests of their own."""
    width, height = 72 * figure.get_size_inches()
    size = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
    return f"{size}<title>{html.escape(title)}</title></svg>".encode()


def built(profile, folder):
    """Return the folder of a report, and how its PDF was made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        given = compiled(patch)
        report.build(profile, Path("mine"), command="expqk report --out mine")
        return Path("mine").resolve(), given


@pytest.fixture(scope="module")
def first(small, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "drawing", empty)
        return built(small, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def made(first):
    return first[0]


@pytest.fixture(scope="module")
def text(made):
    return (made / "report.md").read_text("utf-8")


@pytest.fixture(scope="module")
def found(made):
    return {p.stem: pd.read_csv(p) for p in (made / "data").glob("*.csv")}


@pytest.fixture
def edited(made, tmp_path):
    """Return a folder where a source can be converted."""
    return shutil.copytree(made / "figures", tmp_path / "mine/figures").parent


def test_all_parts_are_there_and_recorded_without_times(made, small):
    names = {str(p.relative_to(made)) for p in made.rglob("*") if p.is_file()}
    assert {"report.md", "index.html", "report.pdf", "notes.md", "manifest.json"} <= names
    for name in REPORTED["quick"]:
        assert {f"data/{name}.csv", f"figures/{name}.svg"} <= names
    record = (made / output_files.RECORD).read_text("utf-8")
    written = {line.partition("  ")[2] for line in record.splitlines()}
    names = {path.relative_to(made).as_posix() for path in made.rglob("*.*") if path.is_file()}
    kept = {name for name in names if name.startswith("store/")}
    assert written == names - kept - {output_files.RECORD, "notes.md"}
    pages = {"index.html", "report.pdf"}
    assert written - {"report.md"} <= {*report._files(small, made, None)} | pages
    manifest = json.loads((made / "manifest.json").read_text("utf-8"))
    assert manifest["command"] == "expqk report --out mine"
    assert {"numpy", "numba", "typst"} <= set(manifest["versions"])
    assert manifest["blas"]
    assert set(manifest["seconds"]) == {*REPORTED["quick"], *PARTS, *pages}
    assert manifest["kept"] == []
    assert not re.search(r"\d (?:s|seconds)\b", (made / "report.md").read_text("utf-8"))


def test_what_an_earlier_run_computed_is_kept_in_the_folder(small, tmp_path, monkeypatch):
    """Whoever stops a report, or wants it in Chinese, does not pay for its tables twice."""
    counted = Counter()

    def table(name, profile):
        counted[name] += 1
        return pd.DataFrame({"name": [name], "value": [0.1 + 0.2]})

    def run(asked, code="one", folder=tmp_path / "mine", beside=()):
        studies = {name: functools.partial(table, name) for name in ("error", "price")}
        monkeypatch.setattr(report, "_studies", lambda profile: studies)
        monkeypatch.setattr(tasks, "code", lambda *packages: code * (packages == ("figures",)))
        seconds = {}
        store = Store(folder / report.STORE, *beside)
        return report._computed(asked, store, seconds), [*seconds]

    first, taken = run(small)
    other = tmp_path / "mine" / report.STORE / "settings.json"  # of somebody else
    other.write_text("{}")
    again, nothing = run(dataclasses.replace(small, jobs=2))
    assert taken == ["error", "price"]
    assert not nothing
    for name, one in first.items():
        pd.testing.assert_frame_equal(one, again[name])
    assert not run(small, folder=tmp_path / "zh", beside=[tmp_path / "mine" / report.STORE])[1]
    hot = tuple(x.at_temperature(2.0) for x in small.inputs)
    for changed in ({"seed": 1}, {"inputs": hot}):
        assert run(dataclasses.replace(small, **changed))[1] == taken
    assert run(small, "two")[1] == taken
    assert len([*(tmp_path / "mine" / report.STORE).iterdir()]) == 3  # of the latest alone
    assert other.exists()
    assert counted == {"error": 4, "price": 4}


def test_the_first_figure_and_one_made_again_are_those_of_their_tables(small, found, tmp_path):
    for name in REPORTED["quick"]:
        has_the_columns(name, found[name])
        shown = {"error_by_rank": small.inputs[1:]}.get(name, small.inputs)
        assert set(found[name].get("input", [])) in (set(), {x.name for x in shown})
    made_again = summary.compose(found["error"], found["winners"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(made_again.replace("", np.nan), found["summary"])
    pd.testing.assert_frame_equal(FIGURES["rank"].compute(small), found["rank"], check_exact=True)
    # One figure, and one of the panels of another; a study draws each figure.
    one = found["explore"].query("temperature == 1 and input == 'gaussian'")
    written = []
    for folder in (tmp_path / "first", tmp_path / "again"):
        written += figure_files.save("rank", found["rank"], folder, ("svg",))[-1:]
        written += figure_files.save("explore", one, folder, ())[-1:]
    assert [path.name for path in written] == ["rank.svg", "t=1.svg"] * 2
    assert [x.read_bytes() for x in written[:2]] == [x.read_bytes() for x in written[2:]]


def test_a_word_file_that_was_edited_stays_and_one_that_was_not_is_made_again(edited):
    (edited / "report.md").write_text("# One\n")
    report.rebuild(edited, ["docx"])
    first = (edited / "report.docx").read_bytes()
    (edited / "report.md").write_text("# Two\n")
    report.rebuild(edited, ["html"])
    second = (edited / "report.docx").read_bytes()
    assert first != second
    (edited / "report.docx").write_bytes(b"mine")
    report.rebuild(edited, ["html"])
    assert (edited / "report.docx").read_bytes() == b"mine"
    with pytest.raises(FileExistsError, match=r"report\.docx was edited"):
        report.rebuild(edited, ["docx"])


def test_the_time_that_is_foretold_is_of_the_studies_and_of_their_inputs(monkeypatch):
    monkeypatch.setattr(duration, "_speed", lambda: 1.0)
    for name in ("quick", "default"):
        asked = profile(name)
        known = json.loads(duration.MEASURED.read_text("utf-8"))[name]["seconds"]
        assert {"index.html", "report.pdf"} <= known.keys()
        studies = report._studies(asked).keys()  # of a new figure the seconds are not known
        assert len(known.keys() & studies) > 0.8 * len(studies), "python -m figures.report.duration"
    whole = duration.expected(asked, [])
    assert duration.expected(asked, ["error"]) < whole
    assert duration.expected(dataclasses.replace(asked, inputs=asked.inputs * 9), []) > 2 * whole
    one = dataclasses.replace(asked, inputs=tuple(x.first(64) for x in asked.inputs[:1]))
    assert duration.expected(one, []) > duration.expected(profile("quick"), []) / 2
    studies = report._studies(asked).keys()
    for more, word in (({}, "about"), ({"new": None}, "more than")):
        line = duration.forecast(asked, ["error"], [*studies, *more])
        counted = f"; 1 of {len(studies) + len(more)} tables are kept"
        assert re.fullmatch(rf"{word} \d+ (s|minutes) on 1 core, .*{counted}", line)


@pytest.mark.slow  # its parts are above: tables, figures, and pages; `render` is below
def test_the_same_command_gives_the_same_bytes(small, tmp_path):
    found = []
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
        out, _ = built(small, tmp_path / name)
        timed = out / "manifest.json", out / "written.sha256"  # seconds, and their hash
        files = {path for path in out.rglob("*.*") if path.is_file()} - {*timed}
        found.append({path.relative_to(out): path.read_bytes() for path in files})
    assert {p.suffix for p in found[0]} == {".md", ".html", ".pdf", ".json", ".csv", ".svg"}
    assert found[0] == found[1]


def test_title_authors_and_names_of_inputs_are_text(small, edited, found):
    name = "_x_ 1.2 --y... ^z^ a|b"
    renamed = [dataclasses.replace(x, name=name) for x in small.inputs[:1]]
    found = {key: table.replace({"input": {small.inputs[0].name: name}}) if "input" in table
             else table for key, table in found.items()}  # fmt: skip
    mine = dataclasses.replace(small, inputs=(*renamed, *small.inputs[1:]))
    command, authors = f"expqk report --title '{HOSTILE} ```'", (HOSTILE[::-1], "李\n雷")
    text = report.render(mine, found, command, title=HOSTILE, authors=authors)
    beginning = text[: text.index("\n---\n", 4)] + "\n---\n"  # title, authors and abstract
    for source, page in ((text, "index.html"), (beginning, "report.pdf")):
        (edited / "report.md").write_text(source, "utf-8")
        report._pages([page], edited)
    page = html.unescape(re.sub("<[^<>]*>", "", (edited / "index.html").read_text("utf-8")))
    page = " ".join(page.split())  # what is seen
    for said in (HOSTILE, HOSTILE[::-1], "李 雷", f"--title '{HOSTILE} ```'"):
        assert said in page
    assert page.count(name) > 10
    seen = text_of((edited / "report.pdf").read_bytes())
    for said in (HOSTILE, HOSTILE[::-1]):  # a line may end at a hyphen, which is then not shown
        assert seen is None or _flat(said) in _flat(seen)


def _flat(text):
    return "".join(text.replace("-", "").split())


def test_what_was_drawn_in_other_formats_is_drawn_again(found, tmp_path, monkeypatch):
    """A PDF beside the new SVG must not show the table of an earlier report."""
    monkeypatch.setattr(style, "drawing", lambda figure, kind, title: b"new " + kind.encode())
    report._drawn("rank", tmp_path, found["rank"])
    assert [*tmp_path.glob("figures/*")] == [tmp_path / "figures/rank.svg"]
    for ending in ("pdf", "txt"):
        with output_files.recorded(tmp_path, f"figures/rank.{ending}") as path:
            path.write_bytes(b"old")
    report._drawn("rank", tmp_path, found["rank"])
    assert {p.suffix for p in tmp_path.glob("figures/rank.*")} == {".svg", ".pdf", ".txt"}
    assert (tmp_path / "figures/rank.pdf").read_bytes() == b"new pdf"
    assert (tmp_path / "figures/rank.txt").read_text("utf-8").startswith(FIGURES["rank"].TITLE)


def test_what_is_missing_or_too_small_is_said_before_anything_is_computed(
    tmp_path, monkeypatch, refused, small
):
    poor = dataclasses.replace(small, budget=1.0)
    refuses("at least 2 stored values per query row, .* got 1", report.build, poor, tmp_path / "no")
    assert not (tmp_path / "no").exists()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pypandoc", None)
    monkeypatch.setattr(report, "build", lambda *given, **options: pytest.fail("computed"))
    assert "a report needs pandoc: pip install" in refused("report")


def test_title_and_authors_reach_the_report(tmp_path, monkeypatch, printed, text):
    given = {}
    monkeypatch.setattr(report, "build", lambda profile, out, **about: given.update(about))
    monkeypatch.setattr(report, "open_questions", lambda out: [])
    options = ["--title", HOSTILE, "--author", "A", "--author", "B"]
    options += ["--format", "html,docx", "--final"]
    printed("report", "--profile", "quick", "--out", tmp_path, *options)
    assert {path.name for path in given.pop("beside")} == {"report-quick", "report-quick-zh"}
    assert given.pop("holds") == "the quick report on the bundled heads, in en"
    assert given.pop("announce")
    assert given == {"title": HOSTILE, "authors": ["A", "B"], "model": None,
                     "formats": ("html", "docx"), "final": True}  # fmt: skip
    assert tables.literal(report.TITLE).replace("\\", "\\\\") in text


def test_profiles_ask_for_figures_that_there_are_and_none_for_fewer():
    assert set(CORE) < set(REPORTED["default"]) < set(reported(profile("full"))) == set(FIGURES)
    known = [vars(x) for name, x in sys.modules.items() if name.startswith(("analysis", "figures"))]
    grids = [x for names in known for x in names.values() if isinstance(x, dict) and "quick" in x]
    assert all("default" in x for x in grids)


# In Chinese


@pytest.fixture(scope="module")
def chinese(small, found):
    with speaking("zh"):
        return report.render(small, found, "expqk report --out mine")


def test_chinese_is_emphasised_by_weight(chinese):
    """No Chinese font is slanted: typst leaves such emphasis out, browsers bend the characters."""

    def slanted(*texts):
        plain = (re.sub(r"\$[^$]*\$|\\\*|\*\*", "", text) for text in texts)
        found = [x for text in plain for x in re.findall(r"\*[^*\n]+\*", text)]
        return found, [x for x in found if re.search("[一-鿿]", x)]

    entries = polib.pofile(str(resources.files("figures") / "locale" / "zh_CN.po"))
    found, wrong = slanted(chinese, *(entry.msgstr for entry in entries))
    assert "*The approximation of one matrix by another of lower rank*" in found
    assert wrong == []
    assert slanted("它*确实*是 **低秩**加*sparse*")[1] == ["*确实*"]


def test_figures_stand_in_their_sections_on_full_pages(first):
    assert faults(first[1]) == []


def test_the_pdf_in_chinese_has_headings_and_every_character(chinese, edited, monkeypatch):
    (edited / "report.md").write_text(chinese, "utf-8")
    given = compiled(monkeypatch)
    report._pages(["report.pdf"], edited)
    assert faults(given) == []
    pdf = (edited / "report.pdf").read_bytes()
    assert SERIF.stem.encode() in pdf
    seen = text_of(pdf)
    for heading in re.findall(r"^#+ ([^{\n]+)", chinese, re.MULTILINE):
        assert seen is None or _flat(heading) in _flat(seen)
    source = resources.files("figures.report").joinpath("report.zh.md.j2").read_text("utf-8")
    assert lacks(chinese) == lacks(source) == set()
    assert lacks("龘") == {"龘"}


# Bias and variance


@pytest.mark.parametrize("spec", ["positive(m=8)", "taylor(degree=2)", "lsh(hashes=2)"])
def test_the_parts_make_the_expected_error(spec, small):
    x, method = small.inputs[0].at_temperature(2.0), parse(spec)
    parts = decomposition.closed_form(method, x)
    expected = moments.expected_error(method, x.Q, x.K) ** 2
    assert math.isclose(sum(map(math.exp, parts)), expected, rel_tol=1e-10)


def test_sampled_parts_make_the_mean_squared_error_of_their_draws(small):
    # ‖mean − truth‖² − v/T + v = ‖mean − truth‖² + (T − 1)/T v, the mean over draws exactly
    x, method = small.inputs[0].at_temperature(1.0), parse("nystrom(rank=4)")
    bias, variance, shape = decomposition._sampled(method, x, np.random.SeedSequence(0))
    assert variance > -np.inf
    assert math.isfinite(shape)
    truth = np.exp(x.Q @ x.K.T)
    streams = np.random.default_rng(np.random.SeedSequence(0)).spawn(decomposition.SAMPLES)
    errors = [method.approximate(x.Q, x.K, rng=rng).to_dense() - truth for rng in streams]
    squares = [np.linalg.norm(e) ** 2 / np.linalg.norm(truth) ** 2 for e in errors]
    assert math.isclose(math.exp(bias) + math.exp(variance), np.mean(squares), rel_tol=1e-9)


def test_moments_of_a_heavy_tailed_sample_are_not_printed():
    zero = "log_squared_bias", "log_variance", "closed_form"
    rows = [
        {"method": "nystrom(rank=4)", "temperature": 1.0, "budget": 8.0, "input": name,
         "metric": metric, "value": fine * (metric == "reliable")}
        for name, fine in (("a", 1.0), ("b", 0.0)) for metric in (*zero, "reliable")
    ]  # fmt: skip
    found = tables.decomposition_table(pd.DataFrame(rows))
    assert found[["a", "b"]].values.tolist() == [["1 + 1", "not reliable"]]


# Sentences


def test_a_report_says_its_currency_and_not_the_default(small, found):
    paid = 16.0 * 64  # 16 exact keys of 32 + 32 numbers
    other = cut(budget=paid, currency="reads")
    errors = found["error"]
    known = errors[~errors.method.str.startswith("godec")]  # what it reads follows from the inputs
    named = {
        name: table.assign(currency="reads") if "budget" in table else table
        for name, table in (found | {"error": known}).items()
    }
    for name in ("error", "explore"):
        named[name] = named[name].assign(budget=paid)
    roles = found["summary"].role  # what is matched by stored values is not measured
    named["summary"] = named["summary"][roles.isin(["uniform", summary.BEST])]
    text = report.render(other, named, "expqk report")
    assert "A method is worth its price in" in text
    assert "Both see all logits" not in text
    title = "Error at t = 1 against stored values per"
    assert "values per query row" not in text.replace(title, "")
    assert text.count("1024 numbers read per new query") >= 3
    assert "{#tbl:crossing}" not in text
    with speaking("zh"):
        assert report.render(other, named, "x").count("每个新查询读取 1024 个数") >= 3


def test_a_mask_is_spoken_of_where_there_is_one(small, made, found):
    text = (made / "report.md").read_text("utf-8")
    assert "on MiniLM easy it sees its own and earlier keys." in text
    assert "exact attention costs 20–40 stored" in text  # 20.5 keys on average
    unmasked = tuple(dataclasses.replace(x, mask=None) for x in small.inputs)
    other = report.render(dataclasses.replace(small, inputs=unmasked), found, "expqk report")
    for words in ("it sees", "triangular", "no formula gives", "Under a causal mask"):
        assert words in text
        assert words not in other


def test_of_one_input_a_number_is_no_range_and_a_method_has_no_count(found):
    first = next(iter(found["advice"].input))
    one = {name: table[table.input == first] for name, table in found.items() if "input" in table}
    said = sentences._runnable(one["advice"])[0]
    said += sentences.features_needed(one["moments"])
    said += sentences.bias_of_polynomials(one["moments"])
    for pattern in (r"total variation is [^ ]+, that", r"needed for", r"\(Taylor\) and [^ ]+ \("):
        assert re.search(pattern, said), said
    assert not re.search(r"(\S+) to \1| on one\b", said)
    both = sentences._runnable(found["advice"])[0]
    assert re.search(r"total variation is \S+ to \S+, that of", both)
    assert re.search(r" on \w+[.,]", both)


def test_what_the_queries_see_is_said_of_every_mask():
    x = inputs.gaussian(6, 2, rng=0)
    masks = None, "causal", Mask.window(6, 6, 2), Mask([0] * 6, [1, 2, 2, 5, 3, 4], 6)
    each = [dataclasses.replace(x, mask=mask, name=f"head {i}") for i, mask in enumerate(masks)]
    assert sentences.masks(each[:1]) == ""
    assert sentences.masks([*each, dataclasses.replace(each[1], name="head 4")]) == (
        "A query does not see every key: on head 1, head 4 it sees its own and earlier keys; on "
        "head 2 it sees the last 2 keys, its own included; on head 3 it sees an interval of 1 to 5 "
        "keys."
    )


def test_the_default_budget_of_few_queries_of_many_keys_pays_for_rank_1(tmp_path):
    """As `capture --queries` makes them: rank 1 stores (n + l)/n values per row, and a sum."""
    k = np.random.default_rng(0).normal(size=(400, 4))
    np.savez(tmp_path / "late.npz", q=k[-4:], k=k, causal=1)
    late = profile("quick", path=tmp_path / "late.npz")
    assert late.budget == (4 + 400) / 4
    sentences.advised(late)
    short = profile("quick")
    assert short.budget == 32


# Its places: of every figure, of the reader's own text, and the same in both languages


def _places(text):
    """Return headings, places, references and questions in their order, and the formulas."""
    marks = (r"^#+ ", r"\{#[\w:-]+", r"@fig:\w+")
    formulas = re.findall(r"\$\$.*?\$\$|\$[^$\n]+\$", text, re.DOTALL)
    plain = Counter(re.sub(r"\\text\{[^{}]*\}|\s", "", formula) for formula in formulas)
    return [re.findall(mark, text, re.MULTILINE) for mark in marks], plain


def _section(text, name):
    return re.search(rf"^# [^\n]*\{{#{name}\}}$(.*?)(?=^# |\Z)", text, re.DOTALL | re.M)[1]


def _unnamed(text):
    """Return the figures and tables to which the text does not refer before they appear."""
    places = [(m[1], m.start()) for m in re.finditer(r"\{#((?:fig|tbl):\w+)", text)]
    assert len(places) > 10
    return [name for name, place in places if not re.search(rf"@{name}\b", text[:place])]


def test_both_languages_have_the_same_numbers_formulas_and_places(
    small, found, chinese, monkeypatch
):
    monkeypatch.setattr(translation, "_WORDS", ())  # small counts are digits in Chinese only
    text = report.render(small, found, "expqk report --out mine")
    assert numbers(chinese) == numbers(text)
    assert _places(chinese) == _places(text)
    assert _unnamed(text) == _unnamed(chinese) == []
    assert _unnamed(text.replace("@tbl:bounds", "", 1)) == ["tbl:bounds"]
    assert numbers(chinese.replace("1", "2", 1)) != numbers(text)
    prose = chinese[chinese.index("# 问题") : chinese.index("# 参考文献")]
    for kept in (r"\$\$?.*?\$\$?", r"`[^`]*`", r"!\[.*?\]\(.*?\)", r"\{[#.].*?\}", r"@\w+:\w+"):
        prose = re.sub(kept, "", prose, flags=re.DOTALL)
    assert english(re.sub(r"\]\(#ref-\w+\)|::: |\*[^*\n]*\*", "", prose)) == set()


def test_every_figure_has_one_place_in_the_section_that_speaks_of_it(
    small, found, text, monkeypatch
):
    place = re.compile(r"\(figures/(\w+)\.svg\)\{#fig:\1 ")
    assert REPORTED["quick"] == REPORTED["default"]  # the full report is another
    assert sorted(place.findall(text)) == sorted(REPORTED["quick"])
    caption = SimpleNamespace(**dict.fromkeys(figure_files.PARTS, lambda table: "what it shows"))
    monkeypatch.setattr(report, "FIGURES", dict.fromkeys(FIGURES, caption))
    monkeypatch.setattr(report, "reported", lambda profile: tuple(FIGURES))
    everything = dict.fromkeys(FIGURES, found["error"]) | found
    text = report.render(small, everything, "expqk report")
    assert sorted(place.findall(text)) == sorted(FIGURES)
    assert _unnamed(text) == []
    for section in re.split(r"^# ", text, flags=re.MULTILINE):
        assert {*re.findall(r"\{#fig:(\w+)", section)} <= {*re.findall(r"@fig:(\w+)", section)}
    with speaking("zh"):
        assert _places(report.render(small, everything, "expqk report")) == _places(text)


WORKS = {name: references.works(inspect.getdoc(x) or "") for name, x in METHODS.items()}
LABELS = [(label, own) for name, own in WORKS.items() for label in Label(METHODS[name].label).names]


def _named(text):
    """Return the works on methods that a text names: a name in their title, a label in a table."""
    named = set()
    for label, own in ((label, own) for label, own in LABELS if own):
        names = re.findall(r"\b(?!Fourier|LSH)[A-Z]\w*[A-Za-z]", label)
        pairs = [(name, key) for name in names for key in own if name in own[key]]
        said, key = pairs[0] if pairs else (f"| {label.partition('{')[0]}", next(iter(own)))
        named |= {key} if re.search(rf"(?<!\w){re.escape(said)}", text) else set()
    return named


def test_every_method_that_is_named_is_cited_and_every_work_of_the_list(text, found):
    assert " ".join(name for name, own in WORKS.items() if not own) == (  # no paper has them
        "zero one constant uniform least_squares rounded_values exact threshold true_denominator "
        "centered"
    )
    proper = [(re.search(r"\((?!SVD)(\w+[A-Z]\w+)\)$", label), own) for label, own in LABELS]
    assert [name[1] for name, own in proper if name and name[1] not in str(own)] == []
    listed = re.findall(r"^\d+\. \[.*\{#ref-(\w+)\}", text, re.MULTILINE)
    cited = re.findall(r"\[(\d+)\]\(#ref-(\w+)\)", text)
    assert {key: int(number) for number, key in cited} == {k: i for i, k in enumerate(listed, 1)}
    named = _named(text[: text.index("# References")])
    assert {references.sources(parse(spec))[0] for spec in found["winners"].winner} <= named
    assert len(named) > 10
    assert named <= {*listed}
    source = resources.files("figures.report").joinpath("report.md.j2").read_text("utf-8")
    assert references.works(references.OTHERS).keys() <= {*re.findall(r'"(\w+)"', source)}
    command = "--title 'of [@nobody2026on]'"
    assert re.findall(r"\[@", text + references.numbered(command)) == ["[@"]


def test_own_text_takes_the_place_of_a_question(made, tmp_path, monkeypatch):
    notes = (made / "notes.md").read_text("utf-8")
    places = re.findall(r"<!-- after: (\S+) -->\n<!-- Your text\. ([^\n]+\?)", notes)
    assert [place for place, _ in places] == [f"own-{name}" for name in OWN]
    monkeypatch.delitem(report.PAGES, "report.pdf")
    shutil.copytree(made, tmp_path / "mine")
    own = re.sub(r"(after: own-rank -->\n)", r"\1My *view* of the rank.\n", notes)
    (tmp_path / "mine" / "notes.md").write_text(own, "utf-8")
    before = (made / "index.html").read_text("utf-8")
    report.rebuild(tmp_path / "mine")
    after = (tmp_path / "mine" / "index.html").read_text("utf-8")
    question = "At which temperature has your input"
    assert question in before
    assert question not in after
    assert "My <em>view</em> of the rank." in after
    assert after.count("<blockquote") == before.count("<blockquote") - 1 == len(OWN) - 1


def test_a_file_has_its_heads_and_says_what_is_left_out(small, found, tmp_path):
    many = np.random.default_rng(0).normal(size=(2, 12, 150, 8))
    np.savez(tmp_path / "mine.npz", q=many[0], k=many[1])
    own = profile("quick", path=tmp_path / "mine.npz", heads=[(0, 3)])
    assert [x.name for x in own.inputs] == ["mine 0.3"]
    assert 1 < len(own.advised) <= ADVISED
    assert "mine 0.3" in [x.name for x in own.advised]
    assert {x.n for x in (*own.inputs, *own.advised)} == {128}
    assert own.given == (12, 150)
    assert sentences.rows_taken(small) == ""  # which is made by hand, of all there is
    mine = dataclasses.replace(small, advised=small.inputs, given=(9, 40))
    model = made_up()
    text = report.render(mine, found, "expqk report")
    with_model = report.render(mine, found, "", model=model)
    assert "The file has 9 heads. This report shows gaussian and MiniLM easy;" in text
    assert _unnamed(text) == _unnamed(with_model) == []
    places = [
        "**What happens to the model:**", "{#tbl:answers", "{#fig:error", "{#fig:model_price",
        "{#tbl:advice",
    ]  # fmt: skip
    assert (at := [with_model.index(place) for place in places]) == sorted(at)
    assert r"each of the 4 heads of a\*b gets a method, for 15.6% of the price of" in with_model
    assert "stays the same at 75% of 136 positions, and its distribution moves by" in with_model
    assert "--model DIR" in text
    assert "--model DIR" not in with_model
    advised = "This advice is for the first 40 queries of the heads that are shown"
    assert f"{advised}.\n" in text
    more = dataclasses.replace(mine, advised=(*small.inputs, small.inputs[0]))
    said = report.render(more, found, "expqk report")
    assert f"{advised}, and of others evenly spaced among all heads of the file.\n" in said


# A professor's checklist


def test_it_can_be_made_again(made, text, found, small):
    """Command, seed, version of every package and the content of the inputs stand in it."""
    end = text[text.index("# Appendix: how this was made") :]
    assert "```\nexpqk report --out mine\n```" in end
    assert f"seed {small.seed}," in end
    manifest = json.loads((made / "manifest.json").read_text("utf-8"))
    for name, version in manifest["versions"].items():
        assert f"{tables.literal(name)} {version}" in end
    for x in small.inputs:
        assert x.digest()[:16] in end
    again = report.render(small, found, "expqk report --out mine")
    assert again == text  # every number comes from the tables beside it


def test_sections_say_theory_then_measurement_then_meaning(text):
    for name, place in {
        "approximation": "fig:rational", "rank": "tbl:bounds", "moments": "fig:moments",
        "error": "fig:error",
    }.items():  # fmt: skip
        said = _section(text, name)
        marks = [said.index(f"**{m}") for m in ("Theory.", "Measured", "Meaning.")]
        assert marks == sorted(marks), name
        assert f"#{place}" in said
        assert re.search(r"\$[^$]+\$", said[marks[0] : marks[1]])
    rows = re.findall(r"^\| (\w[\w ]*) \|", _section(text, "meaning"), re.MULTILINE)
    assert rows == ["quantity", "error at degree N", "rank", "bias", "variance"]


# Theory beside measurement


def test_ranks_stand_beside_their_bounds(small, found):
    """Both counted anew for the Gaussian input of the table."""
    table = theory.rank_table(theory.bounded(found["polynomial_rank"]))
    assert list(table.columns)[2:] == [f"t = {t:g}" for t in theory.SHOWN]
    x = inputs.gaussian(40, 4, rng=small.seed)
    for t in theory.SHOWN:
        s = np.linalg.svd(np.exp(x.q @ x.k.T / (t * 2)), compute_uv=False)
        exact, bound = map(int, table[f"t = {t:g}"][0].replace("\N{NO-BREAK SPACE}", "").split("≤"))
        assert exact == (s > 0.01 * s[0]).sum() <= bound <= 40


def test_what_contradicts_the_theory_is_said(found):
    assert theory._limit(1) == pytest.approx(2.576, abs=0.001)  # of the normal law, 1 % beyond
    assert "nothing measured contradicts it" in theory.agreement(found["moments"])
    shifted = found["moments"].metric == "sampled_bias"
    wrong = found["moments"].assign(value=found["moments"].value + shifted)
    assert "exceeds what chance allows" in theory.agreement(wrong)


def test_nothing_reliable_is_said(found):
    table = found["moments"]
    none = table.assign(value=table.value.where(table.metric != "believable", 0.0))
    shown = theory.comparison(found | {"moments": none})
    assert (shown.measured == "no draw is reliable").sum() == 2
    assert "No sample here" in theory.agreement(none)
    assert not re.search(r"\bnan\b", shown.to_string())
    fixed = table[table.metric != "believable"]  # nothing random fits the budget
    assert (theory.comparison(found | {"moments": fixed}).measured == "no draw is reliable").any()


@pytest.mark.slow  # the whole report, as the command writes it
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_bundled_heads_fill_eight_to_eleven_pages(language, tmp_path, monkeypatch):
    given = compiled(monkeypatch)
    with speaking(language):
        report.build(profile(), tmp_path, command="expqk report")
        title = tr(report.TITLE)
    pdf = (tmp_path / "report.pdf").read_bytes()
    assert 8 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 11
    seen = text_of(pdf)
    assert seen is None or "".join(title.split()) in "".join(seen.split())
    assert faults(given) == []
