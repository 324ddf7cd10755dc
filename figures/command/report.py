"""``expqk report``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from figures.command import options

if TYPE_CHECKING:
    from analysis.models.pipeline import Results

MORE = "Its figures are SVG: `expqk figures NAME --out OUT` draws them as PDF and PNG, too."
EXAMPLES = (
    "expqk report --qk qk.safetensors",
    'expqk report --profile full --lang zh --title "My title" --author "My Name"',
)


def add(parser: argparse.ArgumentParser) -> None:
    options.add_profile(parser)
    parser.add_argument(
        "--out",
        type=Path,
        help="folder to write to; a stopped run continues there [report, with FILE, profile and "
        "language if they are given: report-qk-full-zh]",
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="DIR",
        help="folder of `expqk model`: adds what happens to the model whose heads FILE has",
    )
    parser.add_argument("--title", metavar="TEXT", help="title of the report, as plain text")
    parser.add_argument("--author", action="append", metavar="NAME", help="an author; repeatable")
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="only make the pages again, from your edited OUT/report.md and OUT/notes.md",
    )
    parser.add_argument(
        "--format",
        type=options.kinds("html", "pdf", "docx", "tex"),
        default=("html", "pdf"),
        help="html, pdf, docx (Word), tex (XeLaTeX or LuaLaTeX), separated by commas [html,pdf]",
    )
    parser.add_argument(
        "--final", action="store_true", help="to hand in: refuse a question without your text"
    )


def run(arguments: argparse.Namespace) -> int:
    from figures.document.convert import executable
    from figures.document.notes import NAME as NOTES
    from figures.report.build import FORMATS, SOURCE, build, open_questions, rebuild
    from figures.words.translation import speaking

    out = arguments.out or _folder(arguments, arguments.lang)
    beside = [_folder(arguments, language) for language in options.LANGUAGES]
    holds = _holds(arguments, out)
    written = [*(FORMATS[kind] for kind in arguments.format), SOURCE]
    if arguments.rebuild:
        if arguments.title or arguments.author or arguments.model:
            raise ValueError("--rebuild takes all but notes.md from report.md: edit it there")
        folder = ("qk", "profile", "lang") if arguments.out else ()  # else it has their names
        options.refuse_idle(arguments, "rebuild", "heads", "budget", "currency", "seed", *folder)
        rebuild(out, arguments.format, final=arguments.final)
    else:
        executable()  # fails before anything is computed

        model = _found(arguments)  # complains of a folder without a run before tensors are read
        with speaking(arguments.lang):
            edited = build(
                options.profile(arguments),
                out,
                title=arguments.title,
                authors=arguments.author or (),
                model=model,
                beside=beside,
                holds=holds,
                formats=arguments.format,
                final=arguments.final,
                announce=lambda line: print(f"expqk: {line}", file=sys.stderr, flush=True),
            )
        if edited:
            print(f"expqk: report.md was edited: it is kept as {edited}", file=sys.stderr)
        written.append(NOTES)
    for name in written:
        print(out / name)
    if left := open_questions(out):
        print(f"expqk: unanswered: {', '.join(left)}: write them in {out / NOTES}", file=sys.stderr)
    return 0


def _folder(arguments: argparse.Namespace, language: str) -> Path:
    profile = arguments.profile if arguments.profile != "default" else None
    file = arguments.qk and arguments.qk.name.removesuffix(".npz").removesuffix(".safetensors")
    language = language if language != "en" else ""
    return Path("-".join(filter(None, ["report", file, profile, language])))


def _holds(arguments: argparse.Namespace, out: Path) -> str:
    """Return the identity of a report in its folder; another report does not replace it."""
    file = os.path.relpath(arguments.qk, out) if arguments.qk else "the bundled heads"
    return f"the {arguments.profile or 'default'} report on {file}, in {arguments.lang}"


def _found(arguments: argparse.Namespace) -> Results | None:
    """Return the results of `expqk model`, if its folder is given."""
    from figures.report import model_page

    if arguments.model is None:
        return None
    if arguments.qk is None:
        raise ValueError("--model goes with --qk: give the heads of that model, too")
    return model_page.load_results(arguments.model)
