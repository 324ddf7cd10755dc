"""The command line: exit codes, messages, files; every README command that is quick enough."""

import argparse
import dataclasses
import json
import os
import re
import runpy
import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawing import has_the_columns

from analysis import inputs
from analysis.experiments.profile import Profile, watch
from approx import METHODS, parse
from approx.method.tags import ORACLE
from approx.projections import PROJECTIONS
from figures.command import methods as listing_of, options, report
from figures.command.cli import COMMANDS, _failed, main, parser
from figures.command.methods import listing
from figures.document import figure_files
from figures.drawing import style
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


def test_methods_lists_the_registry(printed):
    text = printed("methods")
    assert all(re.search(rf"^{name}\(", text, re.MULTILINE) for name in METHODS)
    assert json.loads(printed("methods", "--json")) == listing()


@pytest.mark.parametrize(("name", "parts"), {
    "positive": ("exp(ω_r·x − |x|²/2)", "(e^{|q+k|²} − 1)/m", "Cost:", "ICLR 2021",
                 f"Projections: {', '.join(PROJECTIONS)}"),
    "regularized": ("Projections: regularized, regularized_iid.\n",),
    "snapkv": ("snapkv = columns(by='snapkv', recent=16, window=16)    [draws: none; runnable]",),
    "magicpig": ("Under a mask: by default a row depends on more than what came before",),
    "StreamingLLM": ("streaming_llm = sink_window(sinks=4)",),  # as people know it
    "flash": ("FLASH is mixed chunk attention. FlashAttention is exact attention",),
}.items())  # fmt: skip
def test_a_method_is_described_with_its_own_fields(name, parts, printed):
    text = printed("methods", name)
    assert [part for part in parts if part not in text] == []


def test_a_description_for_machines_and_who_can_run_it(printed):
    assert "Projections" not in printed("methods", "taylor")
    found = json.loads(printed("methods", "positive", "--json"))
    assert found["method"] == "positive(m, projection='iid')"
    assert found["description"] in printed("methods", "positive")
    assert found["projections"] == list(PROJECTIONS)
    for name, use in {"snapkv": "runnable", "columns": "all logits"}.items():
        assert json.loads(printed("methods", name, "--json"))["use"] == use


def test_figures_of_a_file(tensors, tmp_path, printed):
    out = tmp_path / "out"
    written = printed(
        "figures", "rank", "--qk", tensors, "--heads", "1.2,0.0", "--profile", "quick",
        "--jobs", 1, "--format", "png", "--out", out,
    ).splitlines()  # fmt: skip
    files = "data/rank.csv", "figures/rank.txt", "figures/rank.png"
    assert written == [str(out / name) for name in files]
    table = pd.read_csv(out / files[0])
    text = f"{FIGURES['rank'].TITLE}\n\n{figure_files.wording('rank', table)}\n"
    assert (out / files[1]).read_text("utf-8") == text
    assert "my heads 1.2" in (out / files[0]).read_text("utf-8")


def test_figures_without_names_are_listed(printed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = printed("figures").splitlines()
    assert [line.split()[0] for line in lines] == list(FIGURES)
    assert not {*lines} & {*printed("figures", "--lang", "zh").splitlines()}
    assert not list(tmp_path.iterdir())


@pytest.fixture
def sketched(monkeypatch):
    """Draw a figure as the numbers of its lines."""

    def numbers(figure, kind, title=None):
        lines = [line for ax in figure.axes for line in ax.lines]
        return str([line.get_xydata().tolist() for line in lines]).encode()

    monkeypatch.setattr(style, "drawing", numbers)


def test_a_figure_is_drawn_from_its_csv_unless_told_otherwise(
    tmp_path, capsys, monkeypatch, sketched
):
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
    assert draw("--profile", "quick")[0] == draw("--seed", 1)[0] == 0
    assert computed == ["default", "default", "quick", "default"]


SMALLER = {  # what takes the time of a figure, and decides on no option
    "analysis.costs.candidates.RUNNABLE": ("uniform()", "positive()", "sliding_window()"),
    "analysis.experiments.collision.SUPPORTS": ("random(k=6)",),
    "analysis.experiments.collision.MORE": 2,
    "analysis.experiments.concentration.COUNTS": (4, 8),
    "analysis.experiments.float_softmax.LENGTHS": (16, 32),
    "analysis.experiments.frontier.specs": lambda x: ["positive()", "sliding_window()"],
    "analysis.experiments.moments.GRIDS": {"quick": (4.0,), "default": (4.0,)},
    "analysis.experiments.moments.MANY": 64,
    "analysis.experiments.performer_error.M": 32,
    "analysis.experiments.performer_error.SIZES": (16,),
    "analysis.experiments.randomised_svd.N": 96,
    "analysis.experiments.rational.DEGREES": (1, 2),
    "figures.gallery.error.SPECS": ("uniform", "positive", "top_k"),
    "figures.gallery.key_bits.BITS": (1, 2),
    "figures.gallery.price.BUDGETS": (4.0, 16.0),
    "figures.gallery.sketches.SIZES": (32,),
    "figures.gallery.sketches.TEMPERATURES": (1.0, 2.0),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_depends_on_the_options_that_it_is_not_said_to_ignore(name, monkeypatch):
    for place, value in SMALLER.items():
        monkeypatch.setattr(place, value)
    made, real = inputs.gaussian(12, 4, rng=0), inputs.sample("smollm2").at(0, 0).first(24)
    small = Profile("small", (made, real), (1.0,), 8.0, trials=2, draws=30)
    cut = made.first(10), real.first(20)
    changed = {
        "heads": {"inputs": (made, cut[1])},
        "seed": {"seed": 1, "inputs": (inputs.gaussian(12, 4, rng=1), real)},
        "profile": {"inputs": cut, "temperatures": (2.0,), "trials": 3, "draws": 1000},
        "budget": {"budget": 12.0}, "currency": {"currency": "reads"},
    }  # fmt: skip
    watched, fields = watch(small)
    table = FIGURES[name].compute(watched)
    left = options.unused(argparse.Namespace(qk=None, **changed), fields, small, table)
    others = {key: value for one in left for key, value in changed[one[2:]].items()}
    if {"--heads", "--seed"} <= {*left}:
        others["inputs"] = (inputs.sphere(40, 6, rng=1),)
    has_the_columns(name, table)
    assert FIGURES[name].compute(dataclasses.replace(small, **others)).equals(table)
    for option in {"seed", "budget"} - {one[2:] for one in left}:
        other = FIGURES[name].compute(dataclasses.replace(small, **changed[option]))
        # of random matrices, position_rank has the ranks of the theory
        assert other.equals(table) == (name == "position_rank"), option


def test_options_that_do_nothing_are_named(tensors, tmp_path, capsys, sketched):
    command = "figures", "jacobian", "rounding", "--format", "svg", "--out", tmp_path, "--jobs", 1
    assert run(*command, "--qk", tensors, "--seed", 1) == run(*command, "--recompute") == 0
    lines = [f"expqk: nothing in {name} depends on --qk" for name in ("jacobian", "rounding")]
    assert capsys.readouterr().err == "\n".join([*lines]) + ", --seed\n"


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\0\0", "a,b\n1,2,3,4\n5\n"])
def test_a_csv_that_is_no_table_of_the_figure_is_one_line(text, tmp_path, refused):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/break_even.csv").write_text(text)
    said = refused("figures", "break_even", "--out", tmp_path)
    assert re.search("no table of the figure break_even .*: move it, and it is computed", said)


@pytest.mark.parametrize(("line", "message"), [
    ("figures eror", f"did you mean 'error'? `expqk figures` lists all {len(NAMES)}\n"),
    ("figures xyz", f"unknown figure 'xyz'. `expqk figures` lists all {len(NAMES)}\n"),
    ("methods postive", "unknown method 'postive', did you mean 'positive' or 'shifted_positive'? "
                        f"`expqk methods` lists all {len(METHODS)}\n"),
    ("claims FL-Z", "unknown claim 'FL-Z', did you mean 'FL-9', 'FL-8' or 'FL-7'? Without an id, "
                    "all 83"),
    ("figures --seed 1", "which figures? Names of them, or all"),
    ("figures all --qk nowhere.npz", "no such file"),
    ("figures all --budget nan", "budget must be finite and > 0"),
    ("figures all --seed -1", "seed must be >= 0"),
    ("report --rebuild --out nowhere", "there is no nowhere"),
    ("report --rebuild --title x", "--rebuild takes all but notes.md from report.md"),
    ("report --rebuild --out 'no where'", "report.md: run without --rebuild first"),
    ("report --rebuild --seed 1 --out x --lang zh", "--rebuild makes no use of --lang, --seed\n"),
    ("diagnose x.npz --dry-run --json --out x", "--dry-run makes no use of --json, --out\n"),
    ("diagnose x.npz --references --no-screen", "--references makes no use of --no-screening\n"),
    ("target x.npz --tv 1 --method x --references", "--method makes no use of --references\n"),
    ("sweep quick.toml --store x --dry --scheduler local", "--dry-run makes no use of --scheduler"),
    ("plan model.gguf text.txt --check x --from y", "--check makes no use of TEXT, --from\n"),
    ("plan model.gguf text.txt --export kvpress", "--export makes no use of TEXT\n"),
    ("plan model.gguf --export kvpress", "--export writes a plan, --from FILE, or one --method"),
    ("plan model.gguf text.txt --kl 1 --nearest", "--nearest belongs to --export\n"),
    ("substitute model.gguf text.txt --method x --retrieval --skip 9", "no use of --skip\n"),
    ("substitute model.gguf text.txt --method x --chat", "--chat is for --retrieval"),
    ("substitute model.gguf text.txt --plan x --budget 9 --layers 0", "no use of --budget, --lay"),
    ("figures spectrum --profile quick --max-memory 10K",
     "would take 1.13 MiB, and the limit is 10 KiB: lower the number of heads"),
    ("substitute model.gguf text.txt --method exct()", "did you mean 'exact'"),
    ("substitute model.gguf text.txt --plan none.json", "there is no file"),
])  # fmt: skip
def test_errors_are_one_line_and_exit_1(line, message, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.gguf").touch()
    (tmp_path / "text.txt").write_text("we the people", "utf-8")
    said = refused(*shlex.split(line))
    assert message in said
    assert said.startswith("expqk: ")


def test_an_argument_that_a_message_begins_with_is_an_option(capsys):
    assert _failed(ValueError("max_tokens must be >= 2"), argparse.Namespace(max_tokens=1)) == 1
    assert capsys.readouterr().err == "expqk: --max-tokens must be >= 2\n"


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


@pytest.mark.parametrize("line", [
    "model MODEL TEXT --out out --budget -1",
    "model MODEL TEXT --held-out TEXT --out out",
    "capture MODEL TEXT --out x.pt",
    "capture MODEL TEXT --out x.npz --max-tokens 1",
    "substitute MODEL TEXT",
    "substitute MODEL TEXT --method postive",
    "substitute MODEL TEXT --plan nowhere.json",
    "plan MODEL TEXT --budget 64 --out .",
    "plan MODEL TEXT TEXT --budget -1 --method postive --out plan.json",
])  # fmt: skip
def test_the_first_that_is_wrong_is_said_the_model_before_the_text(
    line, refused, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "short.txt").write_text("a")
    for text in ("nowhere.txt", "short.txt"):
        said = refused(*line.replace("MODEL", "nowhere").replace("TEXT", text).split())
        assert said.startswith("expqk: a model is a local folder with a config.json or a GGUF file")
        assert said.endswith("got nowhere\n")
    (tmp_path / "model/config.json").write_text("{}")
    said = refused(*line.replace("MODEL", "model").replace("TEXT", "nowhere.txt").split())
    assert said == "expqk: there is no text nowhere.txt\n"
    assert not (tmp_path / "out").exists()


SWEEP = "sweep own.toml --store out"


@pytest.mark.parametrize("line", [
    "nonsense", "methods positive --lang zh", "report --heads 3", "report --profile huge",
    "report --max-memory much", "figures --format gif", f"{SWEEP} --shard 0/3",
    f"{SWEEP} --shard 4/3", f"{SWEEP} --shard 1", f"{SWEEP} --shard 1/0",
    f"{SWEEP} --scheduler localhost", f"{SWEEP} --scheduler tcp://nowhere", f"{SWEEP} --jobs many",
])  # fmt: skip
def test_usage_errors_exit_2(line, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, *more = line.split()
    assert refused(command, *more, status=2).startswith(f"expqk {command}: " if more else "expqk: ")
    assert not list(tmp_path.iterdir())


def test_every_command_wants_one_job_or_more_and_takes_all_processors_by_default(refused):
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
        assert refused(name, *required, "--jobs", 0) == "expqk: jobs must be >= 1, got 0\n"


def test_lengths_that_do_not_fit_are_those_of_the_file(tensors, refused):
    said = refused("theory", tensors, "--jobs", 1, "--max-memory", "40K")
    assert "matrices of a head would take 45 KiB, and the limit is 40 KiB: lower n or l" in said
    assert said.endswith("lengths of q and k in my heads.npz: a shorter text has less\n")


@pytest.mark.parametrize(("tokens", "said"), [
    (5, "All 5 tokens of the text; "),
    (90, "The text is cut to the first 5 of its 90 tokens (--max-tokens); "),
    (None, "The first 5 tokens of the text (--max-tokens); "),
])  # fmt: skip
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


def test_the_command_alone_is_a_guide(capsys, printed, monkeypatch):
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
    assert printed("help") == said


def test_help_of_a_command_is_its_help_and_a_wrong_one_is_corrected(capsys, refused):
    for arguments in (["help", "methods"], ["methods", "--help"]):
        with pytest.raises(SystemExit) as end:
            run(*arguments)
        assert end.value.code == 0
    one, other = capsys.readouterr().out.split("usage: ")[1:]
    assert one == other
    wrong = "unknown command 'diagnos', did you mean 'diagnose'? `expqk` lists all"
    for arguments in (["diagnos", "qk.npz"], ["help", "diagnos"]):
        assert refused(*arguments, status=2) == f"expqk: {wrong} {len(COMMANDS)}\n"


@pytest.mark.parametrize("columns", [60, 120])
def test_methods_fit_a_terminal(columns, printed, monkeypatch):
    on_a_terminal(monkeypatch, columns)
    lines = printed("methods").splitlines()
    assert max(map(width, lines)) <= columns
    assert sorted(re.findall(r"^  (\w+)", "\n".join(lines), re.MULTILINE)) == sorted(METHODS)
    starred = {line.split("*")[0].strip() for line in lines if re.match(r"  \w+\*", line)}
    assert starred == {name for name in METHODS if ORACLE in parse(name).tags}


def test_methods_that_run_in_a_model(printed):
    """Sizes and bytes of 32 keys at 4096 tokens, by hand; no features among caches of keys."""
    rows = {row["method"]: row for row in json.loads(printed("methods", "--runs", "--json"))}
    every = 4096 * 128 * 2
    for spec, read, held, after in (
        ("sink_window(k=32, sinks=4)", 32 * 128 * 2, 32 * 128 * 2, False),
        ("columns(k=32, by='snapkv', recent=16, window=16)", 32 * 128 * 2, 32 * 128 * 2, True),
        ("columns(k=32, by='h2o', recent=16)", 32 * 129 * 2, 32 * 129 * 2, False),
        ("exact()", every, every, False),
        # 4 bits a number of a key, two bounds for each, and a value
        ("quantised()", 4096 * (32 + 4 + 128), 4096 * (32 + 4 + 128), False),
    ):  # fmt: skip
        row = rows[spec]
        assert (row["bytes_read"], row["bytes_held"], row["after_prompt"]) == (read, held, after)
    table = printed("methods", "--runs-in-a-model")
    shown, last = table.split("Also autoregressive")
    assert "performer" not in shown
    assert "performer" in last
    assert {"streaming_llm", "snapkv", "h2o", "tova", "quest", "sparq", "kivi"} <= set(
        re.findall(r"\w+", shown)
    )
    assert (
        rows["pages(k=32, current=True)"]["kind"]
        == "Every key and value, of which each token reads some"
    )


def test_a_table_is_cut_on_a_terminal_only(tensors, printed, monkeypatch):
    command = (
        "diagnose",
        tensors,
        "--heads",
        "0.0",
        "--budget",
        8,
        "--currency",
        "stored",
        "--jobs",
        1,
        "--trials",
        1,
    )
    specs = "scatterbrain(low_rank=positive(m=1), sparse=sink_window(k=6, sinks=1))", "uniform()"
    command += tuple(part for spec in specs for part in ("--method", spec))
    whole = printed(*command)
    rows = [line for line in whole.splitlines() if line.startswith(("Scatterbrain", "uniform"))]
    found = [str(parse(spec)) for spec in specs]
    assert [any(row.endswith(spec) for row in rows) for spec in found] == [True, True]
    assert max(map(width, whole.splitlines())) > 80
    on_a_terminal(monkeypatch, 80)
    assert 75 < max(map(width, printed(*command).splitlines())) <= 80
    on_a_terminal(monkeypatch, 50)
    _, prose = printed(*command).split("Budget 8 stored")
    prose = re.split("Not measured|Warnings", prose)[0]
    assert max(map(width, prose.splitlines())) <= 50


@pytest.mark.listed
def test_the_first_page_is_short():
    for path in ROOT.glob("README*.md"):  # what is more goes to a page in docs/
        assert path.read_text("utf-8").count("\n") <= 220


@pytest.mark.listed
def test_the_list_of_methods_is_that_of_the_registry():
    how = "write it by: python -m figures.command.methods"
    assert (ROOT / "docs/methods.md").read_text("utf-8") == listing_of.page(), how
