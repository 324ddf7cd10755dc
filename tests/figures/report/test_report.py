"""The report: everything is there, made again the same, numbers from tables, an edit survives."""

import dataclasses
import functools
import html
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
from drawing import english, has_the_columns, in_full, long, numbers, text_of
from test_model_page import made_up

from analysis import claims, inputs, moments
from analysis.advice.diagnose import diagnose
from analysis.advice.verdict import KEEP
from analysis.compute import finished, output_files
from analysis.costs.candidates import TRIVIAL
from analysis.experiments import decomposition
from analysis.experiments.profile import ADVISED, Profile, profile
from analysis.moments import simulation
from approx import Mask, parse
from figures.document import album
from figures.fonts import SERIF, lacks
from figures.gallery import CORE, FIGURES, REPORTED, reported, summary
from figures.report import build as report, claims_document, front, sentences, tables
from figures.report.references import REFERENCES
from figures.words.translation import share, speaking, tr

PARTS = "decomposition", "winners", "advice", "claims"  # tables that no figure draws
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


def built(profile, ledger, folder):
    """Write a report, of which the acceptance tests write all: it has few claims."""
    write = claims_document.write
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(report, "check", lambda: ledger)
        patch.setattr(claims_document, "write", lambda ledger, out: write(ledger.head(9), out))
        report.build(profile, Path("mine"), command="expqk report --out mine")
        return Path("mine").resolve()


@pytest.fixture(scope="module")
def made(small, ledger, tmp_path_factory):
    return built(small, ledger, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def found(made):
    return {p.stem: pd.read_csv(p) for p in (made / "data").glob("*.csv")}


@pytest.fixture
def edited(made, tmp_path):
    """Return a folder where a source can be converted; its figures are empty, and quick to read."""
    for path in (made / "figures").rglob("*.svg"):
        copy = tmp_path / "mine" / path.relative_to(made)
        copy.parent.mkdir(parents=True, exist_ok=True)
        title = re.search("<title>.*?</title>", path.read_text("utf-8"))[0]
        copy.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="7" height="4">{title}</svg>', "utf-8"
        )
    return tmp_path / "mine"


def test_all_parts_are_there(made):
    names = {str(p.relative_to(made)) for p in made.rglob("*") if p.is_file()}
    assert {"report.md", "index.html", "report.pdf", "manifest.json"} <= names
    assert {"claims.html", "claims.pdf"} <= names
    for name in REPORTED["quick"]:
        assert {f"data/{name}.csv", f"figures/{name}.svg"} <= names


def test_every_file_is_recorded_and_checked_before_anything_is_computed(made, small):
    record = (made / output_files.RECORD).read_text("utf-8")
    written = {line.partition("  ")[2] for line in record.splitlines()}
    names = {path.relative_to(made).as_posix() for path in made.rglob("*.*") if path.is_file()}
    kept = {name for name in names if name.startswith("store/")}
    assert written == names - kept - {output_files.RECORD}
    assert written - {"report.md"} <= {*report._files(small, made, None)}


def test_what_is_corrected_is_in_the_report_and_links_to_the_claims(made):
    """The other claims, and all their numbers, are in a document of their own."""
    table = pd.read_csv(made / "data" / "claims.csv")
    assert list(dict.fromkeys(table.id)) == claims.ids()
    wrong = table[table.id.str.contains("-E") | ~table.verdict.str.startswith("holds")]
    linked = re.findall(r"\]\(claims\.html#([\w-]+)\)", (made / "report.md").read_text("utf-8"))
    assert linked == sorted(set(wrong.id), key=linked.index)
    assert set(linked) == set(wrong.id)


def test_times_are_in_the_manifest_only(made):
    manifest = json.loads((made / "manifest.json").read_text("utf-8"))
    assert manifest["command"] == "expqk report --out mine"
    assert {"numpy", "numba", "typst"} <= set(manifest["versions"])
    assert manifest["blas"]
    rest = {*PARTS, "pages of the claims", *report.PAGES}
    assert set(manifest["seconds"]) == {*REPORTED["quick"]} | rest
    assert manifest["kept"] == []
    assert not re.search(r"\d (?:s|seconds)\b", (made / "report.md").read_text("utf-8"))


def test_what_an_earlier_run_computed_is_kept_in_the_folder(small, tmp_path, monkeypatch):
    """Whoever stops a report, or wants it in Chinese, does not pay for its tables twice."""
    counted = Counter()

    def table(name):
        counted[name] += 1
        return pd.DataFrame({"name": [name], "value": [0.1 + 0.2]})

    def run(asked, code="one", folder=tmp_path / "mine", cache=None):
        names = "error", "price", report.LEDGER
        studies = {name: functools.partial(table, name) for name in names}
        monkeypatch.setattr(report, "_studies", lambda profile: studies)
        monkeypatch.setattr(finished, "code", lambda *packages: code * (packages == ("figures",)))
        seconds = {}
        store = finished.Finished(folder / report.STORE, cache)
        return report._computed(asked, store, cache, seconds), [*seconds]

    first, taken = run(small)
    other = tmp_path / "mine" / report.STORE / "settings.json"  # of somebody else
    other.write_text("{}")
    again, nothing = run(dataclasses.replace(small, jobs=2))
    assert taken == ["error", "price", report.LEDGER]
    assert not nothing
    for name, one in first.items():
        pd.testing.assert_frame_equal(one, again[name])
    assert run(dataclasses.replace(small, seed=1))[1] == ["error", "price"]  # the same claims
    hot = tuple(x.at_temperature(2.0) for x in small.inputs)
    assert run(dataclasses.replace(small, inputs=hot))[1] == ["error", "price"]
    assert run(small, "two")[1] == taken
    assert len([*(tmp_path / "mine" / report.STORE).iterdir()]) == 4  # of the latest alone
    assert other.exists()
    assert counted == {"error": 4, "price": 4, report.LEDGER: 2}
    # what no input decides is computed once for all folders
    assert run(small, folder=tmp_path / "a", cache=tmp_path / "cache")[1] == taken
    assert run(small, folder=tmp_path / "b", cache=tmp_path / "cache")[1] == ["error", "price"]
    assert run(small, folder=tmp_path / "b", cache=tmp_path / "cache")[1] == []
    run(small, "two", tmp_path / "c", tmp_path / "cache")
    assert len([*(tmp_path / "cache").iterdir()]) == 1  # of the latest code only
    (tmp_path / "full").write_text("")
    assert run(small, folder=tmp_path / "d", cache=tmp_path / "full")[1] == taken


def test_the_appendix_says_how_it_was_made(made, small):
    text = (made / "report.md").read_text("utf-8")
    appendix = text[text.index("# Appendix: how this was made") :]
    assert "```\nexpqk report --out mine\n```" in appendix
    versions = json.loads((made / "manifest.json").read_text("utf-8"))["versions"]
    for name, version in versions.items():
        assert f"{tables.literal(name)} {version}" in appendix
    for x in small.inputs:
        assert x.digest()[:16] in appendix


@pytest.mark.parametrize("name", [name for name in REPORTED["quick"] if name != "summary"])
def test_a_table_computed_again_is_that_of_the_csv_and_caption(name, small, found):
    has_the_columns(name, found[name])
    assert set(found[name].input) == {x.name for x in small.inputs}
    pd.testing.assert_frame_equal(FIGURES[name].compute(small), found[name], check_exact=True)


def test_the_first_figure_is_made_of_errors_and_winners(found):
    has_the_columns("summary", found["summary"])
    made_again = summary.compose(found["error"], found["winners"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(made_again.replace("", np.nan), found["summary"])


def test_a_figure_drawn_again_from_its_csv_has_the_same_bytes(made, found, tmp_path):
    """One figure, and one of the panels of another; a study draws each figure."""
    written = album.save("rank", found["rank"], tmp_path, ("svg",))
    one = found["explore"][found["explore"].temperature == 1]
    written += album.save("explore", one, tmp_path, ())[-1:]
    assert [path.name for path in written[-2:]] == ["rank.svg", "t=1.svg"]
    for path in written:
        assert path.read_bytes() == (made / path.relative_to(tmp_path)).read_bytes(), path.name


def test_a_page_made_again_has_the_same_bytes(made, tmp_path, monkeypatch):
    """Of a PDF a test of `to_pdf` says so."""
    shutil.copytree(made / "figures", tmp_path / "figures")
    shutil.copy(made / "report.md", tmp_path)
    monkeypatch.delitem(report.PAGES, "report.pdf")
    report.rebuild(tmp_path)
    assert (tmp_path / "index.html").read_bytes() == (made / "index.html").read_bytes()


@pytest.mark.slow  # its parts are above: tables, figures, and pages; `render` is below
def test_the_same_command_gives_the_same_bytes(made, small, ledger, tmp_path):
    again = built(small, ledger, tmp_path)
    files, others = (
        sorted(p.relative_to(out) for p in out.rglob("*") if p.is_file()) for out in (made, again)
    )
    assert {p.suffix for p in files} == {".md", ".html", ".pdf", ".json", ".csv", ".svg"}
    assert files == others
    for path in files:
        if path.name != "manifest.json":
            assert (again / path).read_bytes() == (made / path).read_bytes(), path


def test_title_authors_and_names_of_inputs_are_text(small, edited, found):
    name = "_x_ 1.2 --y... ^z^"
    renamed = [dataclasses.replace(x, name=name) for x in small.inputs[:1]]
    found = {
        key: table.assign(input=table.input.replace(small.inputs[0].name, name))
        if "input" in table
        else table
        for key, table in found.items()
    }
    text = report.render(
        dataclasses.replace(small, inputs=(*renamed, *small.inputs[1:])),
        found,
        f"expqk report --title '{HOSTILE} ```'",
        title=HOSTILE,
        authors=(HOSTILE[::-1], "李\n雷"),
    )
    (edited / "report.md").write_text(text, "utf-8")
    report._page("index.html", edited)
    (edited / "report.md").write_text(_about(text), "utf-8")
    report._page("report.pdf", edited)
    page = html.unescape(re.sub("<[^<>]*>", "", (edited / "index.html").read_text("utf-8")))
    page = " ".join(page.split())  # what is seen
    for said in (HOSTILE, HOSTILE[::-1], "李 雷", f"--title '{HOSTILE} ```'"):
        assert said in page
    assert page.count(name) > 20
    seen = text_of((edited / "report.pdf").read_bytes())
    for said in (HOSTILE, HOSTILE[::-1]):  # a line may end at a hyphen, which is then not shown
        assert seen is None or _flat(said) in _flat(seen)


def _about(text):
    """Return title, authors and abstract of a report."""
    return text[: text.index("\n---\n", 4)] + "\n---\n"


def _flat(text):
    return "".join(text.replace("-", "").split())


def test_what_was_drawn_in_other_formats_is_drawn_again(found, tmp_path):
    """A PDF beside the new SVG must not show the table of an earlier report."""
    report._drawn("rank", found["rank"], tmp_path)
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {"rank.svg"}
    for ending in ("pdf", "txt"):
        with output_files.recorded(tmp_path, f"figures/rank.{ending}") as path:
            path.write_bytes(b"old")
    report._drawn("rank", found["rank"], tmp_path)
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {
        "rank.svg",
        "rank.pdf",
        "rank.txt",
    }
    assert (tmp_path / "figures/rank.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "figures/rank.txt").read_text("utf-8").startswith(FIGURES["rank"].TITLE)


@pytest.mark.parametrize(
    ("module", "name"), [("pypandoc", "pandoc"), ("platformdirs", "platformdirs")]
)
def test_what_is_missing_is_said_before_anything_is_computed(
    module, name, tmp_path, monkeypatch, capsys
):
    from figures.command.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(report, "build", lambda *given, **options: pytest.fail("computed"))
    assert main(["report"]) == 1
    assert f"a report needs {name}: pip install" in capsys.readouterr().err


def test_title_and_authors_of_the_command_reach_the_report(tmp_path, monkeypatch):
    from figures.command.cli import main

    given = {}
    monkeypatch.setattr(report, "build", lambda profile, out, **about: given.update(about))
    options = ["--title", HOSTILE, "--author", "A", "--author", "B"]
    assert main(["report", "--profile", "quick", "--out", str(tmp_path), *options]) == 0
    assert given.pop("cache").name == "expqk"
    assert {path.name for path in given.pop("beside")} == {"report-quick", "report-quick-zh"}
    assert given.pop("holds") == "the quick report on the bundled heads, in en"
    assert given == {"title": HOSTILE, "authors": ["A", "B"], "model": None}


def test_the_title_is_the_usual_one_and_rebuild_takes_none(made, capsys):
    from figures.command.cli import main

    assert main(["report", "--rebuild", "--out", str(made), "--title", "x"]) == 1
    assert "--rebuild takes all but notes.md from report.md" in capsys.readouterr().err
    assert f'title: "{report.TITLE}"'.replace(",", "\\\\,") in (made / "report.md").read_text(
        "utf-8"
    )


def test_every_figure_of_the_gallery_has_one_place(small, found, monkeypatch):
    caption = SimpleNamespace(**dict.fromkeys(album.PARTS, lambda table: "what it shows"))
    monkeypatch.setattr(report, "FIGURES", dict.fromkeys(FIGURES, caption))
    everything = dict.fromkeys(FIGURES, found["error"]) | found
    text = report.render(small, everything, "expqk report")
    assert sorted(re.findall(r"\(figures/(\w+)\.svg\)\{#fig:\1 ", text)) == sorted(FIGURES)
    with speaking("zh"):
        assert _places(report.render(small, everything, "expqk report")) == _places(text)
    text = report.render(small, {k: found[k] for k in found if k in (*CORE, *PARTS)}, "")
    assert sorted(re.findall(r"\{#fig:(\w+)", text)) == sorted(CORE)
    assert set(re.findall(r"@fig:(\w+)", text)) <= set(CORE)


def _places(text):
    """Return headings, places and references in their order, and the formulas."""
    marks = (r"^#+ ", r"\{#[\w:]+", r"@fig:\w+")
    return [re.findall(mark, text, re.MULTILINE) for mark in marks], _formulas(text)


def _captions(text):
    return dict(
        (name, caption) for caption, name in re.findall(r"!\[(.*?)\]\(figures/(\w+)\.svg\)", text)
    )


def _unnamed(text):
    """Return the figures and tables to which the text does not refer before they appear."""
    places = [(m[1], m.start()) for m in re.finditer(r"\{#((?:fig|tbl):\w+)", text)]
    assert len(places) > 10
    return [name for name, place in places if not re.search(rf"@{name}\b", text[:place])]


def test_the_text_refers_to_every_figure_and_table_before_it_appears(made, chinese):
    english = (made / "report.md").read_text("utf-8")
    assert _unnamed(english) == _unnamed(chinese) == []
    assert _unnamed(english.replace("@tbl:needed", "", 1)) == ["tbl:needed"]


def test_captions_begin_with_a_finding(made, chinese):
    english = _captions((made / "report.md").read_text("utf-8"))
    assert set(english) == set(_captions(chinese)) == set(REPORTED["quick"])
    assert all(caption.startswith("**") for caption in english.values())
    assert long("**Three words here.** And three^2^ more.") == 6


def test_bars_within_the_cells_of_a_table_do_not_end_them():
    table = pd.DataFrame({"size": ["|q + k|", "2"]})
    assert tables.markdown(table) == "| size |\n|---|\n| \\|q + k\\| |\n| 2 |"
    escaped = pd.DataFrame({"input": [tables.literal("a|b \\|")]})
    assert tables.markdown(escaped).endswith("\n| a\\|b \\\\\\| |")


def test_profiles_ask_for_figures_that_there_are_and_each_for_more():
    quick, default = (set(REPORTED[name]) for name in ("quick", "default"))
    assert set(CORE) < quick < default < set(reported(profile("full"))) == set(FIGURES)


def test_every_reference_is_cited_and_every_citation_has_one():
    templates = [resources.files("figures.report") / f"{x}.md.j2" for x in ("report", "course")]
    text = "".join(template.read_text("utf-8") for template in templates)
    cited = re.findall(r'"(\w+)"', " ".join(re.findall(r"cite\(([^)]*)\)", text)))
    assert set(cited) == set(REFERENCES)


def test_queries_and_keys_of_an_input_are_counted(small):
    x = dataclasses.replace(small.inputs[0], k=small.inputs[0].k[:30], v=small.inputs[0].v[:30])
    for language in ("en", "zh"):
        with speaking(language):
            facts = tables.facts(x)
        assert (facts["n"], facts["l"], facts["d"]) == ("40", "30", "8")


# In Chinese


@pytest.fixture(scope="module")
def chinese(small, found):
    with speaking("zh"):
        return report.render(small, found, "expqk report --out mine", title=tr(report.TITLE))


def test_both_languages_have_the_same_numbers_formulas_and_places(made, chinese):
    text = (made / "report.md").read_text("utf-8")
    assert numbers(chinese) == numbers(text)
    assert _places(chinese) == _places(text)
    assert numbers(chinese.replace("1", "2", 1)) != numbers(text)


def test_nothing_but_names_stays_english(chinese):
    prose = chinese[chinese.index("# 问题") : chinese.index("# 参考文献")]
    for kept in (r"\$\$.*?\$\$", r"`[^`]*`", r"!\[.*?\]\(.*?\)", r"\{[#.].*?\}", r"@\w+:\w+"):
        prose = re.sub(kept, "", prose, flags=re.DOTALL)
    prose = re.sub(r"\[\w+\]\(claims\.html.*|\]\(#ref-\w+\)|\*[^*\n]*\*", "", prose)
    assert english(prose) == set()


def test_chinese_is_emphasised_by_weight(chinese):
    """No Chinese font is slanted: typst leaves such emphasis out, browsers bend the characters."""

    def slanted(text):
        return re.findall(r"\*[^*\n]+\*", re.sub(r"\$[^$]*\$|\\\*|\*\*", "", text))

    def chinese_among(texts):
        return [x for x in texts if re.search("[一-鿿]", x)]

    said = polib.pofile(str(resources.files("figures") / "locale" / "zh_CN.po"))
    assert "*Scatterbrain*" in slanted(chinese)
    assert chinese_among(slanted(chinese) + [x for e in said for x in slanted(e.msgstr)]) == []
    assert chinese_among(slanted("它*确实*是 **低秩**加*sparse*")) == ["*确实*"]


def test_the_font_has_every_character_of_the_report(chinese):
    source = resources.files("figures.report").joinpath("report.zh.md.j2").read_text("utf-8")
    assert lacks(chinese) == lacks(source) == set()
    assert lacks("龘") == {"龘"}


def test_the_pdf_in_chinese_has_headings_and_the_font(chinese, edited):
    (edited / "report.md").write_text(chinese, "utf-8")
    report._page("report.pdf", edited)
    pdf = (edited / "report.pdf").read_bytes()
    assert SERIF.stem.encode() in pdf
    seen = text_of(pdf)
    for heading in re.findall(r"^#+ ([^{\n]+)", chinese, re.MULTILINE):
        assert seen is None or _flat(heading) in _flat(seen)


def _formulas(text):
    found = re.findall(r"\$\$.*?\$\$|\$[^$\n]+\$", text, re.DOTALL)
    return Counter(re.sub(r"\\text\{[^{}]*\}|\s", "", formula) for formula in found)


# Bias and variance


@pytest.mark.parametrize("spec", ["positive(m=8)", "taylor(degree=2)", "lsh(hashes=2)"])
def test_the_parts_make_the_expected_error(spec, small):
    x, method = small.inputs[0].at_temperature(2.0), parse(spec)
    parts = decomposition._closed(method, x)
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
    place = {"method": "nystrom(rank=4)", "temperature": 1.0, "budget": 8.0}
    values = {"log_squared_bias": 0.0, "log_variance": 0.0, "closed_form": 0.0}
    rows = [
        place | {"input": name, "metric": metric, "value": value}
        for name, fine in (("a", 1.0), ("b", 0.0))
        for metric, value in {**values, "reliable": fine}.items()
    ]
    found = tables.decomposition_table(pd.DataFrame(rows), 1.0)
    assert found[["a", "b"]].values.tolist() == [["1 + 1", "not reliable"]]


# Sentences


def test_a_budget_below_rank_1_is_refused_before_anything_is_computed(small, tmp_path):
    poor = dataclasses.replace(small, budget=1.0)
    with pytest.raises(ValueError, match=r"at least 2 stored values per query row, .* got 1"):
        report.build(poor, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_moments_are_drawn_where_not_every_method_fits_every_input(found):
    table = found["moments"]
    random = table.budget > 0
    for part in (table[~random], table[~(random & (table.input == table.input.iloc[0]))]):
        what = in_full(FIGURES["moments"], part)
        assert "nan" not in what
        assert len(FIGURES["moments"].draw(part).axes) == part.input.nunique()


def test_a_sampled_bias_below_the_noise_is_not_called_unbiased(found):
    table = found["decomposition"]
    sampled = table.method.str.startswith("nystrom")
    assert not table[sampled & (table.metric == "closed_form")].value.any()
    zero = sampled & (table.metric == "log_squared_bias")
    lucky = table.assign(value=table.value.mask(zero, -np.inf))
    assert sentences.parts_of_error(lucky) == sentences.parts_of_error(table)
    rows = table[table.metric == "closed_form"].assign(metric="reliable", value=0.0)
    unsure = pd.concat([table[table.metric != "reliable"], rows])  # without a warning
    assert tables.decomposed(unsure).total.isna().all()


def _other(table):
    """The table of another world: what is large there is small here, but for logarithms."""
    if "uniform_tv" in table:
        return table.assign(winner=TRIVIAL, attention_tv=table.uniform_tv, verdict=KEEP)
    if "standing" in table:
        return table.assign(verdict=KEEP)
    if "verdict" in table:
        return table.assign(verdict=table.verdict.iloc[::-1].to_numpy())
    logs = table.metric.str.startswith("log_")
    return table.assign(value=np.where(logs, 1.3 * table.value, 1 / (abs(table.value) + 0.01)))


def test_the_report_names_the_advisors_winners(small, found):
    """Also under a mask: both draw on one list of candidates."""
    assert [x.mask.is_full for x in small.inputs] == [True, False]
    for t in small.temperatures:
        table = diagnose(small.inputs, budget=small.budget, temperature=t)
        named = found["winners"][found["winners"].temperature == t].reset_index(drop=True)
        best = table[table.winner].reset_index(drop=True)
        assert named.winner.tolist() == best.spec.tolist()
        for column in ("input", "mask", "attention_tv", "verdict"):
            assert named[column].tolist() == best[column].tolist(), column
        uniform = table[table.spec == TRIVIAL]
        assert named.uniform_tv.tolist() == uniform.attention_tv.tolist()
    said = sentences.uniform_wins(found["winners"])
    kept = (found["winners"].verdict == KEEP).sum()
    assert f"advises exact attention in {share(kept, len(found['winners']), 'cases')}:" in said


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("winners", sentences.uniform_wins),
        ("winners", sentences.runnable_conclusion),
        ("error", sentences.scatterbrain_conclusion),
        ("moments", sentences.variance_conclusion),
        ("decomposition", sentences.parts_of_error),
        ("rank", FIGURES["rank"].finding),
        ("moments", sentences.lies),
        ("claims", sentences.verdicts),
        ("advice", front.to_use),
    ],
)
def test_a_sentence_says_another_thing_of_another_table(name, sentence, found):
    said = sentence(found[name])
    assert sentence(found[name]) == said
    assert "nan" not in said
    assert sentence(_other(found[name])) != said


def test_reliable_samples_come_with_the_criterion_of_the_code(found, monkeypatch):
    said = sentences.lies(found["moments"])
    for percent in (
        f"mean is at most {math.sqrt(simulation.MEAN):.0%}",
        f"at most {math.sqrt(simulation.VARIANCE):.0%} of that variance",
        f"within {simulation.DISTANCE:g} standard errors",
    ):
        assert percent in said
    x = inputs.gaussian(1, 2, rng=0).at_temperature(64.0)
    for name in ("MEAN", "VARIANCE", "DISTANCE"):
        sample = moments.monte_carlo(parse("positive(m=4)"), x.Q, x.K, draws=500, rng=0)
        assert sample.believable.all()
        with monkeypatch.context() as patch:
            patch.setattr(simulation, name, 0.0)
            sample = moments.monte_carlo(parse("positive(m=4)"), x.Q, x.K, draws=500, rng=0)
        assert not sample.believable.any(), name


def test_the_advice_says_what_it_costs_in_multiply_adds(small, found):
    said = front.advice_table(found["advice"])["multiply-adds"]
    for x, spec, cell in zip(small.inputs, found["advice"].spec[found["advice"].winner], said):
        paid = parse(spec).price(**x.shape.given).multiply_adds
        full = (x.d + x.v.shape[1]) * x.mask.entries / x.n  # two products over what is seen
        assert cell.replace("\N{NO-BREAK SPACE}", " ") == f"{paid:.0f} ({paid / full:.0%})".replace(
            "%", " %"
        )


def test_where_spaces_agree_normalisation_changes_nothing(found):
    errors = found["error"]
    kernel = errors[errors.metric == "kernel_relative_frobenius"]
    turned = kernel.assign(metric="attention_relative_frobenius", value=1.0 / kernel.value)
    assert "In none of the six cases" in sentences.normalisation_conclusion(
        pd.concat([kernel, turned])
    )
    both = [kernel, kernel.assign(metric="attention_relative_frobenius")]
    assert "In all six cases" in sentences.normalisation_conclusion(pd.concat(both))


def test_costs_are_those_of_the_width_and_the_features():
    # 4nmd < 2n²d from n = 2m + 1 on; with n·s·(m + 2d) more from n > 2m + s(m + 2d)/(2d)
    assert "from n = 33 on" in sentences.cost_conclusion(64, 16)
    assert f"from n = {2 * 16 + math.floor(16 * (16 + 128) / 128) + 1} on" in (
        sentences.cost_conclusion(64, 16)
    )
    assert sentences.cost_conclusion(64, 16) != sentences.cost_conclusion(64, 32)


def test_features_are_what_the_budget_buys_in_its_currency():
    d = 64  # a feature stores 2 values a row, reads ω and a state: d + (d + 1)
    for budget, currency, m in ((33.0, "stored", 16), (1.0, "stored", 1), (2064.0, "reads", 16)):
        assert tables.features(cut(budget=budget, currency=currency), d) == m


def test_a_report_says_its_currency_and_not_the_default(small, found):
    paid = 16.0 * 64  # 16 exact keys of 32 + 32 numbers
    other = cut(budget=paid, currency="reads")
    errors = found["error"]
    known = errors[~errors.method.str.startswith("godec")]  # what it reads follows from the inputs
    named = {
        name: table.assign(currency="reads") if "budget" in table else table
        for name, table in (found | {"error": known, "explore": found["explore"]}).items()
    }
    for name in ("error", "explore"):
        named[name] = named[name].assign(budget=paid)
    text = report.render(other, named, "expqk report")
    title = "Error at t = 1 against stored values per"
    assert "values per query row" not in text.replace(title, "")
    assert text.count("1024 numbers read per new query") >= 3
    assert "{#tbl:crossing}" not in text
    with speaking("zh"):
        assert report.render(other, named, "x").count("每个新查询读取 1024 个数") >= 3


def test_a_file_has_its_heads_first_and_says_what_is_left_out(small, found, tmp_path):
    many = np.random.default_rng(0).normal(size=(2, 12, 150, 8))
    np.savez(tmp_path / "mine.npz", q=many[0], k=many[1])
    own = profile("quick", path=tmp_path / "mine.npz", heads=[(0, 3)])
    assert [x.name for x in own.inputs] == ["mine 0.3"]
    assert [x.name for x in own.synthetic] == ["gaussian"]
    assert 1 < len(own.advised) <= ADVISED
    assert "mine 0.3" in [x.name for x in own.advised]
    assert {x.n for x in (*own.inputs, *own.advised)} == {128}
    said = front.rows_taken(own)
    assert "The file has 12 heads. This report shows mine 0.3;" in said
    assert "The report measures the first 128 of 150 queries of each head" in said
    assert front.rows_taken(small) == ""  # which is made by hand, of all there is
    mine = dataclasses.replace(
        small, synthetic=small.inputs[:1], advised=small.inputs, given=(9, 40)
    )
    text = report.render(mine, found | {"synthetic": found["winners"][:3]}, "expqk report")
    assert "The file has 9 heads. This report shows gaussian and MiniLM easy;" in text
    assert _unnamed(text) == []
    model = made_up()
    with_model = report.render(mine, found | {"synthetic": found["winners"][:3]}, "", model=model)
    assert _unnamed(with_model) == []
    places = [
        "**What happens to the model:**", "{#tbl:answers", "{#tbl:best", "{#fig:model_price",
        "# Appendix: a synth",
    ]  # fmt: skip
    assert (at := [with_model.index(place) for place in places]) == sorted(at)
    assert "--model DIR" in text
    assert "--model DIR" not in with_model
    assert text.index("{#fig:advice") < text.index("[TOC]")
    assert text.index("# Appendix: a synthetic input") < text.index("{#tbl:synthetic}")


def test_a_name_with_marks_finds_its_rows(small, found):
    """Only the advised heads have the second name, as most heads of a file."""
    awkward = {"gaussian": "my *heads*_v1.2 a|b^2 0.3", "MiniLM easy": "`<script>[l](u) $x$ 0.4"}
    shown, more = (dataclasses.replace(x, name=awkward[x.name]) for x in small.inputs)
    own = dataclasses.replace(small, inputs=(shown,), advised=(shown, more), synthetic=(shown,))
    named = {
        key: table.assign(input=table.input.replace(awkward)) if "input" in table else table
        for key, table in found.items()
    }
    first = {  # what only the shown head is in
        key: table[table.input == shown.name] if "input" in table and key != "advice" else table
        for key, table in named.items()
    }
    text = report.render(own, first | {"synthetic": first["winners"]}, "expqk report")
    assert "my *heads*_v1.2" not in text
    assert "<script>" not in text
    assert "[l](u)" not in text
    advised = text[text.index("| input | use |") :].split("\n\n")[0]
    assert "| my \\*heads\\*\\_v1\\.2 a\\|b\\^2 0\\.3 |" in advised
    assert text.count("a\\|b\\^2 0\\.3") == text.count("a\\|b")  # neither cut nor raised
    assert "| \\`\\<script\\>\\[l\\]\\(u\\) \\$x\\$ 0\\.4 |" in advised


def test_a_mask_is_spoken_of_where_there_is_one(small, made, found):
    text = (made / "report.md").read_text("utf-8")
    assert "on MiniLM easy it sees its own and earlier keys." in text
    assert "| MiniLM easy | 40 | 40 | 32 | causal | " in text
    assert "exact attention stores 20–40." in text  # 20.5 keys on average
    unmasked = tuple(dataclasses.replace(x, mask=None) for x in small.inputs)
    other = report.render(dataclasses.replace(small, inputs=unmasked), found, "expqk report")
    assert "| MiniLM easy | 40 | 40 | 32 | full | " in other
    for words in ("it sees", "triangular", "Under a mask", "Under a causal mask"):
        assert words in text
        assert words not in other


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


def test_a_causal_mask_makes_cheaper_attention_pay_off_later():
    # 4nmd < n(n + 1)d from n = 4m on; with s(m + 2d) more from n > 4m − 1 + s(m + 2d)/d
    said = sentences.causal_cost(64, 16)
    assert "from n = 64 on" in said
    assert f"from n = {4 * 16 + math.floor(16 * (16 + 128) / 64)} on" in said
    count = sum(2 * 64 * (i + 1) for i in range(tables.LENGTH))
    assert f"{count:,}".replace(",", "\N{NO-BREAK SPACE}") in said


def test_the_source_is_made_of_the_tables_beside_it(small, made, found):
    text = report.render(small, found, "expqk report --out mine")
    assert text == (made / "report.md").read_text("utf-8")


def test_the_default_budget_of_few_queries_of_many_keys_pays_for_rank_1(tmp_path):
    """As `capture --queries` makes them: rank 1 stores (n + l)/n values per row, and a sum."""
    k = np.random.default_rng(0).normal(size=(400, 4))
    np.savez(tmp_path / "late.npz", q=k[-4:], k=k, causal=1)
    late = profile("quick", path=tmp_path / "late.npz")
    assert late.budget == (4 + 400) / 4
    front.advised(late)
    short = profile("quick")
    assert short.budget == 32
