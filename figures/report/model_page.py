"""The page of a run over a language model: report.md, index.html, plan.json, figures, data."""

import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path

from analysis.compute import output_files
from analysis.models.pipeline import Results
from figures.document.convert import check_notes, executable, to_html
from figures.document.notes import NAME as NOTES
from figures.drawing import style
from figures.report import model_sections
from figures.report.model_sections import PLAN
from figures.report.tables import literal, metadata
from figures.show import model_run
from figures.words.translation import tr

SOURCE, PAGE = "report.md", "index.html"


def usable(out: Path) -> None:
    """Raise an error unless a page can be made here, before anything is computed.

    Raises
    ------
    ImportError
        pandoc is missing.
    FileExistsError
        A file that would be written was edited since, or is not of this command.
    OSError
        The folder cannot be made or written.
    """
    executable()
    output_files.usable(out)
    output_files.refuse_another(out, model_sections.HOLDS)
    drawn = [file for name in model_sections.FIGURES for file in style.files(name)]
    output_files.refuse_edited(out, (SOURCE, PAGE, PLAN, output_files.MANIFEST, *drawn))
    check_notes(out / SOURCE, out / NOTES)


def build(found: Results, out: Path, *, command: str) -> list[Path]:
    """Write the page and all beside it; return the page, its source and the plan.

    Parameters
    ----------
    found : Results
    out : Path
    command : str
        As it was given.

    Raises
    ------
    FileExistsError
        A file was edited since, see `usable`.
    """
    usable(out)
    model_sections.write(found, out, command)
    model_sections.draw(found, out, ("svg", "png"))
    with output_files.recorded(out, SOURCE) as path:
        path.write_text(source(found, out, command), encoding="utf-8", errors="replace")
    with output_files.recorded(out, PAGE) as path:
        to_html(out / SOURCE, path, notes=out / NOTES)
    return [out / PAGE, out / SOURCE, out / PLAN]


def source(found: Results, out: Path, command: str) -> str:
    """Return the page as pandoc's Markdown; every number is one that was found."""
    sentences = [f"{i}. {one}" for i, one in enumerate(model_sections.summary(found), 1)]
    parts = [
        metadata(literal(model_run.title(found)), sentences),
        *model_sections.sections(found, "#"),
        f"# {tr('What to do')}",
        *_advised(found, out),
        f"# {tr('Where the numbers come from')}",
        model_sections.provenance(found),
        textwrap.indent(command, "    "),  # a file's name may have several lines
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def _advised(found: Results, out: Path) -> Iterable[str]:
    """Return what to do with what was found."""
    plan = shlex.quote(str(out / PLAN))
    yield tr(
        "`plan.json` beside this page has a method for every head, and says what it costs and "
        "does. To measure it on another text, or to choose one at another price:"
    )
    yield textwrap.indent(
        f"expqk substitute MODEL_DIR TEXT --plan {plan}\n"
        f"expqk plan MODEL_DIR TEXT --budget {2 * found.plan.facts['budget']:g}"
        f"{_currency(found)} --out plan.json",
        "    ",
    )
    layer, head = min(found.plan.heads, default=(0, 0))
    yield tr(
        "To look at one head more closely, and to make this page anew after editing its source:"
    )
    yield textwrap.indent(
        f"expqk capture MODEL_DIR TEXT --heads {layer}.{head} --out head.npz\n"
        "expqk diagnose head.npz\n"
        f"expqk report --rebuild --out {shlex.quote(str(out))}",
        "    ",
    )


def _currency(found: Results) -> str:
    counted = found.plan.facts["currency"]
    return "" if counted == "reads" else f" --currency {counted}"
