"""The command ``expqk``, which imports the module of the one command that is asked for."""

import argparse
import contextlib
import errno
import importlib
import io
import os
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import Any, NoReturn, TextIO

from figures.command import options

COMMANDS = {  # modules of figures.command, each imported when it is asked for
    "report": "Write a report with figures and tables, as HTML and PDF.",
    "figures": "List the figures, or draw those named.",
    "diagnose": "Name the best method for each head of a file, at a budget.",
    "target": "Find the cheapest method with a given error, head by head.",
    "theory": "Print what theorems say of each head of a file.",
    "sweep": "Compute methods × inputs × temperatures × budgets × trials.",
    "verify": "Compute a random part of a store again and compare the bits.",
    "methods": "List the methods, or describe one.",
    "claims": "Check statements of five notes: expected, observed, verdict.",
    "capture": "Write Q, K, V of a local transformer or GGUF file on a text.",
    "substitute": "Replace attention in a model, and measure the effect.",
    "plan": "Choose a method for every head of a model, for a price or a KL.",
    "generate": "Generate text with a plan, token by token.",
    "model": "Do all of it for one model: advice, a plan, its effect, a page.",
    "exercise": "Check the answers to an exercise of docs/exercises.",
    "submit": "Check a method of your own, and measure it beside others.",
}
ABOUT = "How well do cheap attention methods approximate exp(q·k), and which one fits?"
FIRST = (  # what a student, a researcher with arrays and the owner of a model type first
    ("expqk report", "figures and numbers, as HTML and PDF"),
    ("expqk diagnose FILE", "your arrays q and k: which method where?"),
    ("expqk model MODEL TEXT --out DIR", "a model of yours: what it would lose"),
    ("expqk methods performer", "what a method is, and what it costs"),
)
WIDTH = 78  # columns of the description of a command
MOST_CHARACTERS = 800  # characters of an error message
FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO


def main(argv: list[str] | None = None) -> int:
    """Run a command; return 0, 1 where it failed, 2 for a usage error, 130 after Ctrl-C."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell, >&-
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):  # the terminal may lack some letters
            stream.reconfigure(errors="replace")
    if not sys.stderr.isatty():  # a log has no use for the progress bars of transformers
        os.environ.setdefault("TQDM_DISABLE", "1")
    # torch's threads wait for work in a loop unless told otherwise, also while ours compute
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    arguments = argparse.Namespace()
    try:
        arguments = _parsed(sys.argv[1:] if argv is None else argv)
        with warnings.catch_warnings():
            warnings.showwarning = _warned
            status: int = arguments.run(arguments)
    except SystemExit:
        _flush()
        raise
    except (
        ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError, RuntimeError,
    ) as error:  # fmt: skip
        status = _failed(error, arguments)
    except KeyboardInterrupt:
        _say("interrupted")
        status = 130
    return _flush() or status


def _parsed(given: list[str]) -> argparse.Namespace:
    """Return the parsed arguments; raise SystemExit where the parser answers or refuses."""
    if not given or given == ["help"]:
        return argparse.Namespace(run=_guide)
    if given[0] == "help":
        given = [*given[1:], "--help"]
    top = parser(given[0])
    if not given[0].startswith("-") and given[0] not in COMMANDS:
        from approx import checks

        listed = f"`expqk` lists all {len(COMMANDS)}"
        top.exit(2, f"expqk: {checks.unknown('command', given[0], [*COMMANDS], listed)}\n")
    if given[0] in COMMANDS:
        top.prog += f" {given[0]}"  # which has the options
    arguments = top.parse_args(given)
    if arguments.max_memory is not None:
        from approx.estimate import memory

        memory.set_limit(arguments.max_memory)
    if arguments.jobs < 1:
        from approx import checks

        checks.integer("jobs", arguments.jobs, least=1)  # raises in its words, before any work
    return arguments


def _guide(_: argparse.Namespace) -> int:
    print(guide())
    return 0


def _failed(error: Exception, arguments: argparse.Namespace) -> int:
    """Say in one line what failed; return 1."""
    from analysis.sentences import one_line

    if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
        error.filename = f"standard output or {tempfile.gettempdir()}"  # all else has a name
    if not isinstance(error, BrokenPipeError):
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            text = f"{error.filename}: {error.strerror}"  # without the number of the error
        name, blank, rest = text.partition(" ")  # a check names the argument first
        if "_" in name and name in vars(arguments):
            text = f"--{name.replace('_', '-')}{blank}{rest}"
        file = getattr(arguments, "file", None) or getattr(arguments, "qk", None)
        if file is not None and {"n", "l"} & set(getattr(error, "lower", ())):
            text += f"; n and l are the lengths of q and k in {file.name}: a shorter text has less"
        said = one_line(text, MOST_CHARACTERS)
        _say(said or type(error).__name__)
    return 1


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"expqk: {text}", file=sys.stderr)


def _flush() -> int:
    """Write what is left to both streams; return 1 if standard output does not take it."""
    status = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        # a full disk or a closed pipe: Python must not write again when it ends
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if stream is sys.stdout:
                status = 1
                if not isinstance(error, BrokenPipeError):
                    _say(f"standard output: {error.strerror}")
    return status


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Say in one line what is doubtful about a file; show another warning as Python does."""
    from analysis.inputs.array_files import InputFileWarning
    from analysis.sentences import one_line

    if issubclass(category, InputFileWarning):
        _say(one_line(message, MOST_CHARACTERS))
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


def guide() -> str:
    """Return the first steps, and every command with a line of its own."""
    from figures.words.terminal_columns import aligned, indented

    first = [f"  {line}" for line in aligned(list(FIRST)).splitlines()]
    lines = [ABOUT, "", "Begin with", *first, "", "Commands"]
    size = max(map(len, COMMANDS))
    for name, about in COMMANDS.items():
        lines += indented(about, f"  {name:<{size}}  ")
    return "\n".join([*lines, "", "`expqk COMMAND --help` has the options of a command."])


def parser(*asked: str) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the options of those that are asked for."""
    top = _Parser(prog="expqk", description=ABOUT)
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    added = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, about in COMMANDS.items():
        one = added.add_parser(
            name, help=about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in asked:
            command = importlib.import_module(f"figures.command.{name}")
            more = getattr(command, "MORE", "")
            one.description = textwrap.fill(f"{about} {more}".rstrip(), WIDTH)
            one.epilog = "\n".join(["examples:", *(f"  {each}" for each in command.EXAMPLES)])
            one.set_defaults(run=command.run, parser=one, jobs=1)  # of commands without the option
            options.add(one, "max-memory")
            command.add(one)
    return top


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and not every option that there is."""

    def error(self, message: str) -> NoReturn:
        said = " ".join(message.split())[:MOST_CHARACTERS]
        self.exit(2, f"{self.prog}: {said}; `{self.prog} --help` has the options\n")


class _Version(argparse.Action):
    """Print the version, which only this option looks up."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print("expqk", _version())
        parser.exit()


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("expqk")
    except metadata.PackageNotFoundError:
        import tomllib

        text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
        return str(tomllib.loads(text)["project"]["version"])
