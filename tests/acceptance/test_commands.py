"""Every command that a page prints is run as a user would: from a wheel, on files with blanks."""

import itertools
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from test_docs import bare, differences
from test_pages_lm import WITH_TORCH  # `make lm` runs them

from acceptance import pages
from acceptance.pages import FOLDER, HEADS, ROOT, TENSORS
from figures.command.cli import COMMANDS as KNOWN, guide, parser

NAMES = {  # what stands on a page for something of the reader's
    "FILE": FOLDER,
    "qk.npz": HEADS,
    "qk.safetensors": TENSORS,
    "figures/configs/quick.toml": "my sweep (最终).toml",
    "NAME": "top_k",
    "名字": "top_k",
}
FEW = " --profile quick --jobs 1"
ENGLISH = f"expqk report --qk qk.npz{FEW}"
CHINESE = f'{ENGLISH} --lang zh --title "My title" --author "My Name"'
SMALLER = {  # what is too slow for each run of the tests: what is run instead
    **{f"expqk report{of}": ENGLISH for of in ("", " --qk qk.npz", " --qk qk.safetensors")},
    "expqk report --lang zh": CHINESE,
    'expqk report --profile full --lang zh --title "My title" --author "My Name"': CHINESE,
    'expqk report --qk qk.npz --lang zh --author "My Name"': CHINESE,
    "expqk claims": "expqk claims FL-E",
    "expqk claims --lang zh": "expqk claims FL-E --lang zh --jobs 1",
    "expqk diagnose analysis/data/minilm.npz --currency stored":
        "expqk diagnose analysis/data/minilm.npz --currency stored --heads 4.4 --trials 1",
    "expqk diagnose qk.npz": "expqk diagnose qk.npz --heads 0.1,1.2 --trials 1",
    "expqk figures error --qk qk.npz": f"expqk figures error --qk qk.npz --heads 0.3{FEW}",
    "expqk target qk.npz --tv 0.1": "expqk target qk.npz --tv 0.1 --heads 0.1 --trials 1",
    "expqk figures concentration": "expqk figures concentration --format svg --jobs 1",
    "expqk figures explore": f"expqk figures explore --format svg{FEW}",
    "expqk figures performer_error": f"expqk figures performer_error --format svg{FEW}",
}  # fmt: skip
BEFORE = {  # what a reader has done before
    "expqk exercise check 7 answers.json":
        'printf \'{"sigma": 1, "factor": 1.6487, "corrected": 1}\' > answers.json',
    **dict.fromkeys(
        [f"expqk report --rebuild{more}" for more in ("", " --format pdf,docx,tex", " --final")],
        "mkdir report && printf '# 最终\\n' > report/report.md"),
    "expqk report --rebuild --out mine":
        "mkdir mine && printf '# 最终\\n\\n$e^{q\\\\cdot k}$\\n' > mine/report.md",
}  # fmt: skip
TOLD = re.compile(
    r"^expqk: ((about|more than) \d+ (s|minutes) on \d+ core|unanswered: ).*\n?", re.MULTILINE
)
REPORT = ("index.html", "report.pdf", "report.md", "notes.md", "manifest.json")
# `make report` and `make test` do the same from a bare clone.
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VENV = r"python3 -m venv \.venv"
INSTALL = rf"{VENV}|(?:{VENV} && \.venv/bin/)?pip install (?:-c constraints\.txt )?-e '\.\[(\w+)\]'"


def helps():
    """Return what `expqk` and every ``--help`` print, by name."""
    commands = parser(*KNOWN)._subparsers._group_actions[0].choices
    return {"expqk": guide()} | {name: commands[name].format_help() for name in KNOWN}


def printed():
    """Return every command of a page or a help text."""
    helped = ((f"{name} --help", each) for name, text in helps().items()
              for each in pages.examples(text))  # fmt: skip
    return [*pages.printed(), *itertools.starmap(pages.Printed, helped)]


def runs(printed):
    """Return the commands that are run here, whole reports first; pages run theirs themselves."""
    own = {each.command for each in printed if each.command.startswith(("expqk ", "pytest "))}
    return sorted(own - WITH_TORCH.keys() - ON_PAGES,
                  key=lambda x: ("expqk report" not in x, x in SMALLER, x))  # fmt: skip


def unrun(printed):
    """Return what neither is run nor is a target of make, a module or an extra of the tree."""
    run = {*runs(printed), *WITH_TORCH, *ON_PAGES}
    return [each for each in printed if each.command not in run and not _of_tree(each.command)]


def _of_tree(command):
    if install := re.fullmatch(INSTALL, command):
        return install[1] is None or install[1] in PROJECT["optional-dependencies"]
    if target := re.match(r"make ([\w-]+)", command):
        rule = rf"^{target[1]}:"
        return re.search(rule, (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE) is not None
    if module := re.match(r"python -m ([\w.]+)", command):
        path = ROOT.joinpath(*module[1].split("."))
        return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
    return False


def as_typed(command, smaller=True):
    """Return a printed command with the names of the reader's files, and the options that it has.

    Examples
    --------
    >>> as_typed("expqk diagnose qk.safetensors --budget 24")
    "expqk diagnose 'my heads (最终).safetensors' --budget 24"
    """
    words = shlex.split(SMALLER.get(command, command) if smaller else command)
    return shlex.join([NAMES.get(word, word) for word in words])


def settled(done):
    assert (done.status, TOLD.sub("", done.stderr)) == (0, "")
    assert done.stdout.strip()


def settled_with_files(command, shell):
    """Run a command; what it writes must be there, and nothing of it empty."""
    before = set(shell.folder.rglob("*"))
    settled(done := shell(command, new=command in FIRST.values()))
    files = [path for path in set(shell.folder.rglob("*")) - before if path.is_file()]
    assert [str(path) for path in files if not path.stat().st_size] == []
    words = shlex.split(command)
    if words[0] == "pytest":  # its caches
        assert "1 passed" in done.stdout
        return
    writes = words[1] in ("report", "figures") or {"--out", "--export", "--store"} & {*words}
    assert bool(files) == (bool(writes) and "--dry-run" not in words)
    if words[1] == "report" and "--rebuild" not in words:
        out = Path(done.stdout.splitlines()[0]).parent
        assert {*REPORT} <= {path.name for path in (shell.folder / out).iterdir()}


BLOCKS = {page: pages.blocks(text) for page, text in pages.pages().items()}
# Every page with Python, and behind its code the commands of its Chinese twin, whose code is the
# same; test_docs.py runs the page of ten results.
RUN = {
    page: [*blocks, *pages.shown(BLOCKS.get(page.replace(".md", ".zh-CN.md"), ()))]
    for page, blocks in BLOCKS.items()
    if "python" in dict(blocks) and ".zh-CN" not in page and page != "docs/two_lines.md"
}
ON_PAGES = {each for blocks in RUN.values() for x in blocks for each in pages.typed(*x)}
COMMANDS = runs(printed())
TYPED = {as_typed(command): command for command in COMMANDS}  # what becomes the same is run once
FIRST = {x.split()[1]: x for x in reversed(TYPED)}  # of each kind: begun as a shell begins it
THEN = {  # what is done next in the same folder; a report in Chinese takes the tables of this one
    as_typed(ENGLISH): as_typed(CHINESE),
    as_typed("expqk sweep figures/configs/quick.toml --store quick"): "expqk verify quick",
}


@pytest.mark.parametrize("typed", [typed for typed in TYPED if typed not in THEN.values()])
def test_a_command_does_what_the_page_says(typed, shell):
    if before := BEFORE.get(TYPED[typed]):
        assert shell(before).status == 0
    settled_with_files(typed, shell)
    if typed in THEN:
        settled_with_files(THEN[typed], shell)


@pytest.mark.slow
@pytest.mark.parametrize("command", SMALLER)
def test_a_command_does_it_at_its_full_size(command, shell):
    settled_with_files(as_typed(command, smaller=False), shell)


def test_every_command_of_a_page_is_run_and_exists():
    assert unrun(printed()) == []
    assert {*SMALLER, *BEFORE} <= {*COMMANDS}
    assert {*THEN, *THEN.values()} <= {*TYPED}
    assert WITH_TORCH.keys() <= {each.command for each in printed()}
    for page, text in pages.pages().items():
        assert set(re.findall(r"`expqk (\w+)", text)) <= KNOWN.keys(), page
    rule = re.search(r"^report:.*\n\t(.*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert rule[1] == "$(BIN)/expqk report $(and $(REPORT),--out '$(REPORT)') $(ARGS)"


@pytest.mark.parametrize("language", ["", ".zh-CN"])
def test_the_method_of_the_first_page_is_that_of_the_tutorial(language):
    tutorial = {bare(code) for _, code in BLOCKS["docs/tutorials/adding_a_method.md"]}
    codes = [bare(code) for _, code in BLOCKS[f"README{language}.md"] if "MyFeatures" in code]
    assert len(codes) == 2
    assert {*codes} <= tutorial


def test_a_command_that_nothing_runs_is_noticed(shell):
    text = "```sh\n.venv/bin/expqk report --qk my.npz  # new\n```\n`python -m new`, `make nothing`"
    found = [pages.Printed("page", each) for each in pages.commands(text)]
    assert [each.command for each in unrun(found)] == ["python -m new", "make nothing"]
    assert runs(found) == ["expqk report --qk my.npz"]
    assert shell(as_typed("expqk report --qk my.npz")).status == 1


@pytest.mark.parametrize("name", ["", *KNOWN])
def test_help_is_help(name, shell):
    settled(shell(f"expqk {name} --help"))


# Every Python snippet that a page prints runs, and prints what the page says, from a wheel


@pytest.mark.parametrize("page", RUN)
def test_a_page_prints_what_it_says(page, shell):
    blocks = RUN[page]
    (shell.folder / "page (最终).py").write_text(pages.script(blocks), "utf-8")
    done = shell("python -P 'page (最终).py'")
    assert (done.status, done.stderr) == (0, "")
    for code, said, found in pages.outputs(blocks, done.stdout):
        if page == "README.md":  # which does not say what it prints
            assert found.startswith("(512, 32) 0.4") or (not found and "print(" not in code)
            continue
        assert len(said.splitlines()) == len(found.splitlines()), f"{code}\nprints\n{found}"
        assert not differences(said, found), found
