"""The page of a run over a model: what it says, and that an edited one stays."""

import math
import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pandas as pd
import pytest
from drawing import english, long, numbers
from refusals import refuses

from analysis.models.next_tokens import Change
from analysis.models.pipeline import Results
from analysis.models.plan import Plan
from analysis.models.replacement import Estimated
from analysis.runs import output_files
from approx import parse
from figures.document.convert import to_html
from figures.drawing import style
from figures.report import model_page, templates
from figures.show import plans
from figures.words import translation
from figures.words.translation import speaking

WINDOW, HITTERS = "sink_window(k=32)", "columns(k=31, by='h2o', recent=16)"


def measured(price, kl, **others):
    return {
        "price": price, "predicted_kl": kl / 2, "least_predicted_kl": kl / 4, "exact_heads": 1,
        "kl": kl, "kl_stderr": None if kl is None else kl / 8, "same_top_1": 0.75,
        "perplexity": 12.5, "bytes_read": 2 * price, "bytes": 2 * price,
        "memory": {"4096": 1e6, "32768": 2e6, "131072": 4e6},
    } | others  # fmt: skip


def made_up(single=0.75, changes=None, stderr=0.0625, diagnosed=True):
    """Return what a run over four heads of a model with an odd name might find."""
    verdicts = {(0, 0): "use", (0, 1): "tie", (1, 0): "keep exact", (1, 1): "use"}
    rows = [
        {"input": "a*b", "layer": layer, "head": head, "n": 200, "l": 200, "d": 64,
         "temperature": 1.0, "spec": spec, "budget": 4096.0, "attention_tv": tv,
         "bound": 0.125, "certificate": float("nan"), "exact_price": 25600.0,
         "exact_reads": 25600.0, "oracle": False, "reads": 4096.0, "runnable": True,
         "stored": 32.0, "verdict": verdict, "winner": spec == WINDOW, "currency": "reads"}
        for (layer, head), verdict in verdicts.items()
        for spec, tv in ((WINDOW, 0.25), (HITTERS, 0.375), ("uniform()", 0.875))
    ]  # fmt: skip
    frontier = [measured(2048.0, 1.5), measured(4000.0, 0.5), measured(8192.0, 0.0625)]
    heads = {(0, 0): parse(WINDOW), (0, 1): parse(HITTERS), (1, 1): parse(WINDOW)}
    facts = {
        "budget": 4096.0, "currency": "reads", "chosen_on": ["t.txt, first half"],
        "measured_on": "t.txt, second half", "tokens": 200, "exact_perplexity": 10.0,
        "exact_price": 25600.0, "group": 2, **frontier[1], "frontier": frontier,
        "singles": [] if single is None else [measured(4096.0, single, method=WINDOW)],
    }  # fmt: skip
    change = Change(80, "we the *people*", " of", " of", 0.75, " and", 0.5, 1.25)
    about = {
        "model": "a*b", "model_sha256": {"a.gguf": "b1" * 32}, "text": "t.txt",
        "text_sha256": "7" * 64, "held_out": None, "held_out_sha256": None, "tokens": 200,
        "budget": None, "currency": "reads", "seed": 0, "version": "0", "date": "2026-11-23",
        "versions": {"torch": "2.13.0"}, "python": "3.11.7",
    }  # fmt: skip
    predicted = measured(3000.0, 0.8, method=HITTERS)
    for name in ("kl", "kl_stderr", "same_top_1", "perplexity"):
        del predicted[name]
    exact = measured(25600.0, 0.0, method="exact()", kl_stderr=0.0)
    facts["singles"] += [predicted, exact]
    gain = None if single is None else Estimated(single - 0.5, stderr)
    every = [change] if changes is None else changes
    return Results(
        about, pd.DataFrame(rows) if diagnosed else heads_alone(), Plan("a*b", heads, facts),
        every, 34, 136, None if single is None else WINDOW, gain,
    )  # fmt: skip


def heads_alone():
    rows = [(layer, head, 64) for layer in (0, 1) for head in (0, 1)]
    return pd.DataFrame(rows, columns=["layer", "head", "d"])


def test_sentences_before_the_run_and_after_it():
    tiny = SimpleNamespace(name="tiny", layers=30, heads=9)
    said = model_page.beforehand(SimpleNamespace(model=tiny, settings={"tokens": 400}))
    assert "tiny: 30 layers of 9 heads; 400 tokens to choose on, 400 to measure on." in said
    said = [one.replace("\N{NO-BREAK SPACE}", " ") for one in model_page.answers(made_up())]
    bandwidth, memory, more, neither, asked, alone, together, after, single = said
    assert bandwidth.startswith("If bandwidth is scarce: the plan at 4,000. Of the measured")
    assert "at most 8,000 bytes for a group" in memory
    assert more.startswith("For a KL of at most 0.1, read more: the plan at")
    assert neither.startswith("If neither is scarce: exact attention. No cheaper measured choice")
    plain = model_page.answers(made_up(diagnosed=False))
    assert len(plain) == 8
    assert not any("Each head alone" in one for one in plain)
    assert "4 attention heads of a*b? The budget is 4096 numbers read per new query" in asked
    assert "and group of 2 heads on average" in asked
    assert "16.0% of what exact attention costs after 200 tokens" in asked
    assert "on 3 of the heads a method is cheaper than exact attention and has less than" in alone
    assert "most often sink and window (3). On 1 of the heads there is none" in alone
    assert "are sink and window (2), heavy hitters (H2O) (1), exact attention (1)." in together
    assert "On 136 positions of the second half of t.txt, which was not used for choosing" in after
    assert "at 75% and moves its next-word distribution by a KL of 0.50 ± 0.06 nats" in after
    assert "Its perplexity on tokens 66…200 goes from 10 to 12.5" in after
    assert f"sink and window ({WINDOW}). It does worse, by 0.25 ± 0.06: its KL is 0.75" in single


def test_a_plan_that_loses_ties_or_pays_for_everything_is_said_to():
    assert "does better, so use it" in model_page.answers(made_up(single=0.25))[-1]
    assert "is not resolved" in model_page.answers(made_up(stderr=0.25))[-1]
    assert "No single method" in model_page.answers(made_up(single=None))[-1]
    infinite = made_up()._replace(gain=Estimated(-math.inf, math.inf))
    assert "does better, so use it" in model_page.answers(infinite)[-1]
    found = made_up()
    found.plan.facts["budget"] = 25600.0
    alone = model_page.answers(found)[5]
    assert "pays for exact attention in every head, which costs 25600 numbers read" in alone


def test_tables_have_a_row_a_method_and_a_row_a_price():
    found = made_up()
    plan = model_page.plan_table(found)
    assert plan.heads.tolist() == [2, 1, 1]
    assert plan["most often"].tolist() == [f"`{WINDOW}` 2", f"`{HITTERS}` 1", "–"]
    shown = plans.table_of_choices(found.plan)
    for column, cells in {
        "choice": [
            "the plan at 2,048 *", "the plan at 4,000 *",
            "sink and window (sink_window(k=32))", "the plan at 8,192 *", "exact attention *",
        ],
        "bytes read": ["4,096", "8,000", "8,192", "16,384", "51,200"],
        "of exact": ["8.0%", "15.6%", "16.0%", "32.0%", "100.0%"],
        "KL predicted": ["0.75", "0.25", "0.375", "0.0312", "0"],
        "KL measured": ["1.5 ±0.19", "0.5 ±0.062", "0.75 ±0.094", "0.0625 ±0.0078", "0"],
        "MB at 32k": ["2"] * 5,
    }.items():  # fmt: skip
        assert shown[column].tolist() == cells
    assert plans.legend(found.plan)[1].startswith("Further single methods in the plan's file: 1.")


def test_captions_have_the_numbers_of_the_run():
    found = made_up()
    assert model_page.finding_map(found) == (
        "A method is worth using on three of the four attention heads; the plan keeps 1 exact."
    )
    assert "best method at 4096 numbers read per new query" in model_page.caption_map(found)
    plain = made_up(diagnosed=False)
    assert model_page.finding_map(plain) == "The plan keeps 1 of 4 heads exact."
    assert model_page.caption_map(plain).startswith("The methods of the plan at 4096 numbers")
    assert "over 136 held-out positions" in model_page.caption_frontier(found)
    assert model_page.finding_frontier(found) == (
        "At 15.6% of exact attention's price the plan has a KL of 0.50, one method for all heads "
        "0.75."
    )
    assert model_page.finding_frontier(made_up(single=None)).endswith(" a KL of 0.50.")
    for language, most in (("en", 47), ("zh", 90)):  # 45 words, and two of markup
        with speaking(language):
            lines = model_page.source(found, Path("mine"), "expqk").splitlines()
            drawn = [line for line in lines if line.startswith("![")]
            assert len(drawn) == 2
            assert max(map(long, drawn)) <= most


def test_the_page_shows_names_and_words_as_they_are_in_both_languages(tmp_path, monkeypatch):
    found = made_up()
    monkeypatch.setattr(translation, "_WORDS", ())  # small counts are digits in Chinese only
    for diagnosed in (True, False):
        page = model_page.source(made_up(diagnosed=diagnosed), tmp_path, "expqk")
        assert ("what serves each head by itself" in page) == diagnosed
        model_page.draw(made_up(diagnosed=diagnosed), tmp_path / "drawn", ("png",))
    said = model_page.source(found, tmp_path, "expqk model M T --out DIR")
    assert r"… we the \*people\* **▁**" in said
    assert "The model: **of** (75%). The plan: **and** (50%). The text: of. KL 1.25 at" in said
    assert "At 34 of 136 positions the likeliest next word" in said
    assert "expqk plan MODEL_DIR TEXT --budget 8192 --currency reads --out" in said
    plain = said.replace("\\", "")
    assert "a*b: a.gguf (SHA-256 b1b1b1b1b1b1b1b1…); text: t.txt (SHA-256 7777777777777" in plain
    assert "), 200 tokens to choose on and as many to measure on; seed 0; 2026-11-23;" in plain
    assert "Python 3.11.7, torch 2.13.0." in plain
    with speaking("zh"):
        chinese = model_page.source(found, tmp_path, "expqk model M T --out DIR")
        assert not english("\n".join(model_page.answers(found)[:-1]))  # the last has a spec
    assert numbers(chinese) == numbers(said)
    assert re.findall(r"[@#](?:fig|tbl):\w+", chinese) == re.findall(r"[@#](?:fig|tbl):\w+", said)
    (tmp_path / "report.md").write_text(said, encoding="utf-8")
    model_page.draw(found, tmp_path, ("svg",))
    to_html(tmp_path / "report.md", tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "What cheaper attention does to a*b</h1>" in page
    assert "we the *people*" in page


@pytest.fixture
def quick(monkeypatch):
    """Let a page be made of its source alone."""
    only_table = lambda name, table, _, out, *__: [style.save_table(name, table, out)]  # noqa: E731
    monkeypatch.setattr(model_page, "to_html", lambda source, out, **_: out.write_text("page"))
    monkeypatch.setattr(style, "save", only_table)
    for name in ("draw_map", "draw_frontier"):
        monkeypatch.setattr(model_page, name, lambda _: None)


def test_what_was_edited_is_never_overwritten(tmp_path, quick):
    found = made_up()
    for _ in range(2):  # what it wrote itself it may write anew
        model_page.build(found, tmp_path, command="expqk")
    assert Plan.read(tmp_path / "plan.json") == found.plan
    for name in ("report.md", "index.html", "plan.json"):
        before = (tmp_path / name).read_text("utf-8")
        (tmp_path / name).write_text("mine")
        with pytest.raises(FileExistsError, match=f"{name} was edited.* never overwritten"):
            model_page.build(found, tmp_path, command="expqk")
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).write_text(before, "utf-8")


def test_a_killed_build_leaves_nothing_that_seems_edited(tmp_path, quick):
    model_page.build(made_up(), tmp_path, command="expqk")
    killed = patch.object(model_page, "to_html", side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        model_page.build(made_up(changes=[]), tmp_path, command="expqk")
    model_page.build(made_up(), tmp_path, command="expqk")
    written = [x.split()[1] for x in (tmp_path / output_files.RECORD).read_text().splitlines()]
    counts = [written.count(name) for name in ("report.md", "plan.json", "index.html")]
    assert counts == [2, 1, 1]


def test_a_file_of_another_command_is_refused_before_anything_runs(tmp_path, refused):
    for name in ("config.json", "t.txt", "report.md"):
        (tmp_path / name).write_text("{}")
    said = refused("model", tmp_path, tmp_path / "t.txt", "--out", tmp_path)
    assert "report.md was edited, or is not of expqk" in said


def test_a_command_of_several_lines_stays_code(tmp_path, quick):
    out = tmp_path / "a\n# b"
    written = model_page.build(made_up(), out, command="expqk 'x\n\n# y' z\udcff")
    text = written[1].read_text("utf-8")
    assert "\n    expqk 'x\n\n    # y' z?\n" in text
    assert f"--plan '{tmp_path}/a\n    # b/plan.json'\n" in text


# In a report of the same heads


@pytest.mark.parametrize("stderr", [0.0625, math.inf])
def test_what_was_found_is_read_back(stderr, tmp_path, quick):
    found = made_up(stderr=stderr)
    beyond = measured(9000.0, 2.0, method=HITTERS) | {"kl": None}  # every float
    found.plan.facts["singles"].append(beyond)
    model_page.build(found, tmp_path, command="expqk")
    again = model_page.load_results(tmp_path)
    pd.testing.assert_frame_equal(again.advice, found.advice, check_exact=True)
    assert again._replace(advice=0) == found._replace(advice=0)


def test_a_folder_without_a_run_is_said_to_have_none(tmp_path, quick, refused):
    for folder in (tmp_path / "nothing", tmp_path):
        refuses("holds nothing that `expqk model` of this version", model_page.load_results, folder)
    output_files.describe(tmp_path, {"command": "expqk report", "seed": 0})
    for more, message in (
        (["--qk", tmp_path / "qk.npz"], "holds nothing that `expqk model`"),
        ([], "--model goes with --qk: give the heads of that model"),
        (["--rebuild"], "--rebuild takes all but notes.md from report.md"),
    ):
        assert message in refused("report", "--out", tmp_path, "--model", tmp_path, *more)


def test_heads_of_another_model_are_refused():
    heads = [SimpleNamespace(layer=a, head=b, d=64) for a in (0, 1) for b in (0, 1)]
    asked = SimpleNamespace(inputs=heads[:1], advised=heads, given=(6, 200))
    refuse = model_page.refuse_other
    refuses("2 layers of 2 heads, and the file has 6 heads: give", refuse, made_up(), asked)
    asked.given = (4, 200)
    refuse(made_up(), asked)
    for heads[3].layer, heads[3].d in ((2, 64), (1, 32)):
        what = f"has a head {heads[3].layer}.1 of width {heads[3].d}: give heads"
        refuses(what, refuse, made_up(), asked)


def test_a_report_says_what_the_page_says():
    found = made_up()
    said = templates.render("model", model=model_page.context(found))
    page = model_page.source(found, Path("mine"), "expqk")
    for line in filter(None, said.splitlines()):
        assert line.removeprefix("#") in page
