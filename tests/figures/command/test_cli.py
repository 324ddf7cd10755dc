"""The command line: exit codes, messages, files; every README command that is quick enough."""

import argparse
import json
import os
import re
import runpy
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from approx import METHODS, parse
from approx.method.tags import ORACLE
from approx.projections import PROJECTIONS
from figures.command import methods as listing_of, report
from figures.command.cli import COMMANDS, main, parser
from figures.command.methods import listing
from figures.document import figure_files
from figures.gallery import FIGURES, NAMES
from figures.words.terminal_columns import width

ROOT = Path(__file__).parents[3]


def run(*arguments):
    return main([str(a) for a in arguments])


@pytest.fixture
def tensors(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "my heads.npz"
    q, k, v = (rng.standard_normal((2, 3, 24, 4)) for _ in range(3))
    np.savez(path, q=q, k=k, v=v)
    return path


def test_every_file_of_the_command_folder_is_a_subcommand():
    files = {p.stem for p in (ROOT / "figures/command").glob("[!_]*.py")} - {"cli", "options"}
    assert files == COMMANDS.keys()


@pytest.mark.parametrize("installed", [True, False])
def test_the_version_is_that_of_the_project(installed, monkeypatch, capsys):
    if not installed:
        monkeypatch.setattr(metadata.Distribution, "discover", lambda **_: iter(()))
    with pytest.raises(SystemExit) as end:
        run("--version")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert capsys.readouterr().out == f"expqk {project['version']}\n"
    assert end.value.code == 0


def test_methods_lists_the_registry(capsys):
    assert run("methods") == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^{name}\(", text, re.MULTILINE) for name in METHODS)
    assert run("methods", "--json") == 0
    assert json.loads(capsys.readouterr().out) == listing()


def test_methods_describes_one(capsys):
    assert run("methods", "positive") == 0
    text = capsys.readouterr().out
    for part in ("exp(ω_r·x − |x|²/2)", "(e^{|q+k|²} − 1)/m", "Cost:", "ICLR 2021"):
        assert part in text
    assert f"Projections: {', '.join(PROJECTIONS)}" in text
    assert run("methods", "regularized") == 0
    assert capsys.readouterr().out.endswith("Projections: regularized, regularized_iid.\n")
    assert run("methods", "taylor") == 0
    assert "Projections" not in capsys.readouterr().out
    assert run("methods", "positive", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["method"] == "positive(m, projection='iid')"
    assert found["description"] in text
    assert found["projections"] == list(PROJECTIONS)


def test_a_familiar_name_is_described_with_its_own_fields(capsys):
    for name, page in {
        "snapkv": "snapkv = columns(by='snapkv', recent=16, window=16)    [draws: none; runnable]",
        "magicpig": "Under a mask: by default a row depends on more than what came before",
    }.items():
        assert run("methods", name) == 0
        assert page in capsys.readouterr().out
    for name, use in {"snapkv": "runnable", "columns": "all logits"}.items():
        assert run("methods", name, "--json") == 0
        assert json.loads(capsys.readouterr().out)["use"] == use


def test_figures_of_a_file(tensors, tmp_path, capsys):
    out = tmp_path / "out"
    status = run(
        "figures", "spectrum", "--qk", tensors, "--heads", "1.2,0.0", "--profile", "quick",
        "--jobs", 1, "--format", "png", "--out", out,
    )  # fmt: skip
    assert status == 0
    written = capsys.readouterr().out.splitlines()
    files = "data/spectrum.csv", "figures/spectrum.txt", "figures/spectrum.png"
    assert written == [str(out / name) for name in files]
    table = pd.read_csv(out / files[0])
    text = f"{FIGURES['spectrum'].TITLE}\n\n{figure_files.wording('spectrum', table)}\n"
    assert (out / files[1]).read_text("utf-8") == text
    assert "my heads 1.2" in (out / "data/spectrum.csv").read_text("utf-8")


def test_figures_without_names_are_listed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("figures") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FIGURES)
    assert run("figures", "--lang", "zh") == 0
    assert not set(lines) & set(capsys.readouterr().out.splitlines())
    assert not list(tmp_path.iterdir())


def test_a_figure_is_drawn_from_its_csv_unless_told_otherwise(tmp_path, capsys, monkeypatch):
    out, computed = tmp_path / "out", []
    module = FIGURES["break_even"]
    compute = module.compute
    monkeypatch.setattr(module, "compute", lambda p: computed.append(p.name) or compute(p))

    def draw(*more):
        command = "figures", "break_even", "--jobs", 1, "--format", "svg", "--out", out, *more
        return run(*command), capsys.readouterr().err

    assert draw() == (0, "")
    drawn = {p: p.read_bytes() for p in out.glob("*/*.*")}
    status, said = draw()
    assert (status, said.endswith("--recompute computes it anew\n")) == (0, True), said
    assert computed == ["default"]
    assert {p: p.read_bytes() for p in out.glob("*/*.*")} == drawn
    table = pd.read_csv(out / "data/break_even.csv")
    table.assign(value=table.value * 2).to_csv(out / "data/break_even.csv", index=False)
    assert draw()[0] == 0  # what is edited there is drawn
    assert (out / "figures/break_even.svg").read_bytes() != drawn[out / "figures/break_even.svg"]
    assert draw("--recompute")[0] == 1  # and is not lost
    (out / "data/break_even.csv").unlink()
    assert draw("--recompute") == (0, "")
    assert {p: p.read_bytes() for p in out.glob("*/*.*")} == drawn
    assert draw("--profile", "quick") == draw("--seed", 1) == (0, "")
    assert computed == ["default", "default", "quick", "default"]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\0\0", "a,b\n1,2,3,4\n5\n"])
def test_a_csv_that_is_no_table_of_the_figure_is_one_line(text, tmp_path, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/break_even.csv").write_text(text)
    assert run("figures", "break_even", "--out", tmp_path) == 1
    said = capsys.readouterr().err
    assert re.search("no table of the figure break_even .*: move it, and it is computed", said)
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figures", "eror"], f"did you mean 'error'? `expqk figures` lists all {len(NAMES)}\n"),
        (["figures", "xyz"], f"unknown figure 'xyz'. `expqk figures` lists all {len(NAMES)}\n"),
        (
            ["methods", "postive"],
            "unknown method 'postive', did you mean 'positive' or 'shifted_positive'? "
            f"`expqk methods` lists all {len(METHODS)}\n",
        ),
        (
            ["claims", "FL-Z"],
            "unknown claim 'FL-Z', did you mean 'FL-9', 'FL-8' or 'FL-7'? Without an id, all 83",
        ),
        (["figures", "--seed", "1"], "which figures? Names of them, or all"),
        (["figures", "all", "--qk", "nowhere.npz"], "no such file"),
        (["figures", "all", "--budget", "nan"], "budget must be finite and > 0"),
        (["figures", "all", "--seed", "-1"], "seed must be >= 0"),
        (["report", "--rebuild", "--out", "nowhere"], "there is no nowhere"),
        (["report", "--rebuild", "--out", "no where"], "report.md: run without --rebuild first"),
    ],
)
def test_errors_are_one_line_and_exit_1(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("expqk: ")
    assert captured.err.count("\n") == 1
    assert not captured.out


def test_reports_with_one_folder_name_are_told_apart():
    asked = [[], ["--profile=full"], ["--qk=a/qk.npz"], ["--qk=b/qk.npz"], ["--qk=full.npz"]]
    given = [parser("report").parse_args(["report", *one]) for one in asked]
    assert len({report._holds(one, Path("out")) for one in given}) == 5
    assert [str(report._folder(one, "zh")) for one in given[1:]] == [
        "report-full-zh", "report-qk-zh", "report-qk-zh", "report-full-zh",
    ]  # fmt: skip
    assert report._holds(given[2], Path("a/out")) == "the default report on ../qk.npz, in en"
    usual = parser("report").parse_args(["report", "--profile=default"])
    assert report._holds(usual, Path("out")) == report._holds(given[0], Path("out"))


@pytest.mark.parametrize(
    "line",
    [
        "model MODEL TEXT --out out --budget -1",
        "model MODEL TEXT --held-out TEXT --out out",
        "capture MODEL TEXT --out x.pt",
        "capture MODEL TEXT --out x.npz --max-tokens 1",
        "substitute MODEL TEXT",
        "substitute MODEL TEXT --method postive",
        "substitute MODEL TEXT --plan nowhere.json",
        "plan MODEL TEXT --budget 64 --out .",
        "plan MODEL TEXT TEXT --budget -1 --method postive --out plan.json",
    ],
)
def test_the_first_that_is_wrong_is_said_the_model_before_the_text(
    line, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "short.txt").write_text("a")
    for text in ("nowhere.txt", "short.txt"):
        assert run(*line.replace("MODEL", "nowhere").replace("TEXT", text).split()) == 1
        said = capsys.readouterr().err
        assert said.startswith("expqk: a model is a local folder with a config.json or a GGUF file")
        assert said.endswith("got nowhere\n")
    (tmp_path / "model/config.json").write_text("{}")
    assert run(*line.replace("MODEL", "model").replace("TEXT", "nowhere.txt").split()) == 1
    assert capsys.readouterr().err == "expqk: there is no text nowhere.txt\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["methods", "positive", "--lang", "zh"],
        ["report", "--heads", "3"],
        ["report", "--profile", "huge"],
        ["report", "--max-memory", "much"],
        ["figures", "--format", "gif"],
    ],
)
def test_usage_errors_exit_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        run(*arguments)
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"expqk {arguments[0]}: " if arguments[1:] else "expqk: ")
    assert said.count("\n") == 1


def test_max_memory_refuses_before_allocating(capsys):
    assert run("figures", "spectrum", "--profile", "quick", "--max-memory", "10K") == 1
    said = capsys.readouterr().err
    assert "would take 1.13 MiB, and the limit is 10 KiB: lower the number of heads" in said


def test_every_command_wants_one_job_or_more_and_takes_all_processors_by_default(capsys):
    two = ["model", "text"]
    given = {
        "report": [], "figures": [], "diagnose": ["x.npz"], "theory": ["x.npz"],
        "target": ["x.npz", "--tv", "0.1"], "sweep": ["x.toml", "--store", "x"],
        "verify": ["x"], "claims": [], "substitute": [*two, "--method", "exact()"],
        "generate": ["model", "--method", "exact()", "--prompt", "x"],
        "plan": [*two, "--budget", "9", "--out", "x.json"], "model": [*two, "--out", "x"],
    }  # fmt: skip
    (added,) = (a for a in parser(*COMMANDS)._actions if isinstance(a, argparse._SubParsersAction))
    have = {name for name, one in added.choices.items() if "--jobs" in one._option_string_actions}
    assert have == {*given}
    for name, required in given.items():
        assert parser(name).parse_args([name, *required]).jobs == (os.cpu_count() or 1)
        assert run(name, *required, "--jobs", 0) == 1
        assert capsys.readouterr().err == "expqk: jobs must be >= 1, got 0\n"


def test_lengths_that_do_not_fit_are_those_of_the_file(tensors, capsys):
    assert run("theory", tensors, "--jobs", 1, "--max-memory", "40K") == 1
    said = capsys.readouterr().err
    assert "matrices of a head would take 45 KiB, and the limit is 40 KiB: lower n or l" in said
    assert said.endswith("lengths of q and k in my heads.npz: a shorter text has less\n")


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (5, "All 5 tokens of the text; "),
        (90, "The text is cut to the first 5 of its 90 tokens (--max-tokens); "),
        (None, "The first 5 tokens of the text (--max-tokens); "),
    ],
)
def test_a_text_that_is_cut_is_said_to_be(tokens, said, tmp_path, capsys, monkeypatch):
    from analysis.models import capture, checkpoints

    q = np.ones((1, 2, 5, 4))
    found = capture.Capture(q, q, q, 0.5, True, np.arange(5), tokens=tokens)
    monkeypatch.setattr(capture, "capture", lambda *_, **__: found)
    monkeypatch.setattr(checkpoints, "texts", lambda *_: [])
    out = tmp_path / "my x.npz"
    check = tokens == 5
    assert run("capture", tmp_path, "text.txt", "--out", out, *(["--check"] * check)) == 0
    printed, checked = capsys.readouterr().err, "the model gives the same outputs (--check).\n"
    assert (checked in printed) == check
    printed = printed.rpartition(checked)[2]
    assert printed.endswith(f"Next: expqk diagnose '{out}'\n")
    assert printed.startswith(f"{said}2 heads of width 4, causal")


def on_a_terminal(monkeypatch, columns):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))


def test_the_command_alone_is_a_guide(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["expqk"])
    outputs = []
    for module in ("figures", "expqk"):  # python -m expqk
        with pytest.raises(SystemExit) as end:
            runpy.run_module(module, run_name="__main__")
        assert end.value.code == 0
        outputs.append(capsys.readouterr().out)
    said, other = outputs
    assert said == other
    assert max(map(len, said.splitlines())) <= 80
    for name, about in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(about)}$", said, re.MULTILINE), name
    for line in re.findall(r"^  expqk (\w+)", said, re.MULTILINE):
        assert line in COMMANDS
    assert run("help") == 0
    assert capsys.readouterr().out == said


def test_help_of_a_command_is_its_help_and_a_wrong_one_is_corrected(capsys):
    for arguments in (["help", "methods"], ["methods", "--help"]):
        with pytest.raises(SystemExit) as end:
            run(*arguments)
        assert end.value.code == 0
    one, other = capsys.readouterr().out.split("usage: ")[1:]
    assert one == other
    for arguments in (["diagnos", "qk.npz"], ["help", "diagnos"]):
        with pytest.raises(SystemExit) as end:
            run(*arguments)
        assert end.value.code == 2
        wrong = (
            f"unknown command 'diagnos', did you mean 'diagnose'? `expqk` lists all {len(COMMANDS)}"
        )
        assert capsys.readouterr().err == f"expqk: {wrong}\n"


@pytest.mark.parametrize("columns", [60, 120])
def test_methods_fit_a_terminal(columns, capsys, monkeypatch):
    on_a_terminal(monkeypatch, columns)
    assert run("methods") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(width, lines)) <= columns
    assert sorted(re.findall(r"^  (\w+)", "\n".join(lines), re.MULTILINE)) == sorted(METHODS)
    starred = {line.split("*")[0].strip() for line in lines if re.match(r"  \w+\*", line)}
    assert starred == {name for name in METHODS if ORACLE in parse(name).tags}


def test_methods_are_found_by_the_names_that_people_know(capsys):
    assert run("methods", "StreamingLLM") == 0
    assert capsys.readouterr().out.startswith("streaming_llm = sink_window(sinks=4)")
    assert run("methods", "flash") == 0
    said = capsys.readouterr().out
    assert said.startswith("FLASH is mixed chunk attention. FlashAttention is exact attention")


def test_a_table_is_cut_on_a_terminal_only(tensors, capsys, monkeypatch):
    command = "diagnose", tensors, "--heads", "0.0", "--budget", 8, "--jobs", 1, "--trials", 1
    specs = "scatterbrain(low_rank=positive(m=1), sparse=sink_window(k=6, sinks=1))", "uniform()"
    command += tuple(part for spec in specs for part in ("--method", spec))
    assert run(*command) == 0
    whole = capsys.readouterr().out
    rows = [line for line in whole.splitlines() if line.startswith(("Scatterbrain", "uniform"))]
    found = [str(parse(spec)) for spec in specs]
    assert [any(row.endswith(spec) for row in rows) for spec in found] == [True, True]
    assert max(map(width, whole.splitlines())) > 80
    on_a_terminal(monkeypatch, 80)
    assert run(*command) == 0
    cut = capsys.readouterr().out.splitlines()
    assert 75 < max(map(width, cut)) <= 80
    on_a_terminal(monkeypatch, 50)
    assert run(*command) == 0
    _, prose = capsys.readouterr().out.split("Budget 8 stored")
    prose = re.split("Not measured|Warnings", prose)[0]
    assert max(map(width, prose.splitlines())) <= 50


@pytest.mark.listed
def test_both_languages_have_the_same_code_pictures_and_numbers():
    def both(name, pattern):
        one, other = (
            re.findall(pattern, (ROOT / f"{name}{language}.md").read_text("utf-8"), re.S | re.M)
            for language in ("", ".zh-CN")
        )
        assert one
        assert one == other

    for pattern in (r"^```\w+\n.*?^```$", r"!\[[^]]*\]\((.*?)\)", "^##"):
        both("README", pattern)
    both("docs/measured", r"^\| (?:easy|middling|hard) \|.*?$")
    for path in ROOT.glob("README*.md"):  # what is more goes to a page in docs/
        assert path.read_text("utf-8").count("\n") <= 150


@pytest.mark.listed
def test_the_list_of_methods_is_that_of_the_registry():
    how = "write it by: python -m figures.command.methods"
    assert (ROOT / "docs/methods.md").read_text("utf-8") == listing_of.page(), how
