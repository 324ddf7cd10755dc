"""From a profile to a folder: figures, data, report.md, index.html, report.pdf, manifest.json."""

import dataclasses
import functools
import platform
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.advice import measurement
from analysis.advice.verdict import TIE
from analysis.costs.budget import amount_text
from analysis.experiments import decomposition, moments as experiment, polynomial_rank, rational
from analysis.experiments.profile import Profile, nearest_to_one, rank_1_price
from analysis.inputs import text_files
from analysis.models.pipeline import Results
from analysis.runs import engines, output_files, tasks
from analysis.runs.store import Store
from analysis.runs.tasks import Task
from figures.document import figure_files
from figures.document.convert import check_notes, to_html, to_pdf
from figures.document.manuscript import to_docx, to_tex
from figures.document.notes import NAME as NOTES, skeleton, unanswered
from figures.drawing import style
from figures.gallery import FIGURES, FigureModule, moments, reported, summary
from figures.report import duration, model_page, references, sentences, tables, templates, theory
from figures.words import amounts, numbers
from figures.words.translation import in_words, mark, share_of, speaking, spoken, tr

SOURCE = "report.md"
STORE = "store"  # the tables of finished studies, in the folder of a report
SUMMARY, ADVICE = "summary", "advice"
BY_CELL = ("error",)  # a study of many short cells, shared by all processes; any other has one
LONG = "winners", "moments", "frontier"  # begun first, as a long one at the end runs alone
TITLE = mark("Rank, bias, variance and error of exp(q·k) across temperatures")
ABOUT_NOTES = mark(
    "Write your text below a mark: it takes the place of the question. Then: expqk report "
    "--rebuild --out DIR"
)
ABOUT_SOURCES = mark(
    "Your references: BibTeX, or lines such as - @smith2020: A. Smith, *Title*, 2020. Cite one as "
    "[@smith2020]."
)
PACKAGES = (
    "expqk", "numpy", "scipy", "numba", "pandas", "matplotlib", "typst", "pypandoc_binary",
)  # fmt: skip


def build(
    profile: Profile,
    out: Path,
    *,
    command: str | None = None,
    title: str | None = None,
    authors: Iterable[str] = (),
    model: Results | None = None,
    beside: Iterable[Path] = (),
    holds: str = "report",
    formats: Iterable[str] = ("html", "pdf"),
    final: bool = False,
    announce: Callable[[str], None] | None = None,
) -> Path | None:
    """Compute everything and write the report.

    A report.md that was edited since it was written is never overwritten: it gets another name.
    Any other file that was edited, or that expqk did not write, is refused.
    What notes.md holds is merged into the pages, as `figures.document.notes` says; if there is
    none, it is begun with the questions of the report.
    The table of a study is kept when it is computed. A report of the same inputs and settings, in
    the same folder and of the same code, does not compute it again.

    Parameters
    ----------
    profile : Profile
    out : Path
        Folder: report.md, index.html, report.pdf, notes.md, manifest.json, figures/, data/, store/.
    command : str, optional
        As it was given; sys.argv by default.
    title : str, optional
        Plain text: nothing in it is markup.
    authors : iterable of str
        The same.
    model : Results, optional
        What `expqk model` found about the model whose heads these are: a section of its own.
    beside : iterable of Path
        Folders of the same report in other languages, whose tables are used again.
    holds : str
        What the folder holds then; one that holds anything else is refused.
    formats : iterable of str
        Of `FORMATS`; what is there in another and was not edited is made again, too.
    final : bool
        Make no pages if a question has no answer in notes.md.
    announce : callable, optional
        Takes a line on how long this takes, before anything is computed.

    Returns
    -------
    Path, optional
        Where a report.md that had been edited is now.

    Raises
    ------
    FileExistsError
        The folder holds another report, or a file that would be replaced is not of expqk.
    """
    least = rank_1_price(profile.inputs, profile.currency)
    if model is not None:
        model_page.refuse_other(model, profile)
    if profile.budget < least:
        raise ValueError(
            f"budget must be at least {amount_text(least, profile.currency)}, the price of rank 1, "
            f"got {profile.budget:g}"
        )
    pages = _asked(formats, out)
    output_files.usable(out, [*pages, *_files(profile, out, model)], holds)
    ours = not output_files.edited(out, SOURCE)
    check_notes(out / SOURCE if ours else None, out / NOTES)
    command = command or shlex.join(["expqk", *sys.argv[1:]])
    seconds: dict[str, float] = {}
    folder = out.absolute()  # a worker keeps its own current folder
    store = Store(
        output_files.inside(folder, folder / STORE / "KEY").parent,
        *(other.absolute() / STORE for other in beside),
    )
    computed = _computed(profile, store, seconds, announce)
    kept, shown = [name for name in computed if name not in seconds], reported(profile)
    computed["winners"] = summary.with_advice(profile, computed["winners"], computed[ADVICE])
    computed[SUMMARY] = summary.compose(computed["error"], computed["winners"])
    parts = [Part(name, functools.partial(_drawn, name, folder), i) for i, name in enumerate(shown)]
    _results(profile, seconds, "drawing", parts, [computed[name] for name in shown])
    for name in sorted(computed.keys() - {*shown}):
        style.save_table(name, computed[name], out)
    if model is not None:
        model_page.draw(model, out)
    text = render(profile, computed, command, title=title, authors=authors, model=model)
    edited = output_files.put(out, SOURCE, text)
    if not (out / NOTES).exists():
        with output_files.replacing(out / NOTES) as temporary:
            temporary.write_text(skeleton(text, tr(ABOUT_NOTES), tr(ABOUT_SOURCES)), "utf-8")
    if final:
        _refuse_open(out)
    parts = [Part(name, functools.partial(_pages, [name])) for name in pages]
    _results(profile, seconds, "pages", parts, [folder])
    about = {"holds": holds, "command": command, "seed": profile.seed, "kept": kept}
    output_files.describe(out, {**about, "seconds": seconds, **_machine()})
    return edited


def _files(profile: Profile, out: Path, model: Results | None) -> Iterator[str]:
    """Yield the names of all files that `build` may write, but for its pages, source and notes."""
    yield output_files.MANIFEST
    drawn = () if model is None else model_page.FIGURES
    for name in (SUMMARY, *_studies(profile), *drawn):
        yield from figure_files.files(name, out)


@dataclasses.dataclass(frozen=True)
class Part(Task):
    """A study, a figure or a page of a report: a task whose outcome is a table.

    `make` maps the shared object to a table, or writes files, which gives an empty one. `decisive`
    is what decides the outcome beside the name.
    """

    name: str
    make: Callable[[Any], pd.DataFrame | None]
    place: int = 0
    decisive: tuple[str, ...] = ()
    language: str = dataclasses.field(default_factory=spoken)

    def about(self) -> dict[str, Any]:
        """Return what decides the outcome."""
        return {"name": self.name, "decisive": self.decisive}

    def run(self, shared: Any) -> pd.DataFrame:
        """Return the table, made in the language; its attribute "seconds" is not stored."""
        start = time.perf_counter()
        with speaking(self.language):
            made = self.make(shared)
        table = pd.DataFrame() if made is None else made
        table.attrs["seconds"] = time.perf_counter() - start
        return table


def _results(
    profile: Profile,
    seconds: dict[str, float],
    label: str,
    parts: Sequence[Part],
    shared: Sequence[Any],
    store: Store | None = None,
) -> dict[str, pd.DataFrame]:
    """Return the table of each part, by name, and add how many seconds it took now."""
    made = engines.results(
        parts, shared, jobs=profile.jobs, progress=profile.progress, label=label, store=store
    )
    for part, table in zip(parts, made):
        if "seconds" in table.attrs:  # it was not in the store
            seconds[part.name] = seconds.get(part.name, 0.0) + table.attrs.pop("seconds")
    return {part.name: table for part, table in zip(parts, made)}


def _computed(
    profile: Profile,
    store: Store,
    seconds: dict[str, float],
    announce: Callable[[str], None] | None = None,
) -> dict[str, pd.DataFrame]:
    """Return the tables of all studies; only those that are in no folder are computed."""
    made_by = tasks.code("figures"), *_hardware().values(), profile.key
    parts = [Part(name, make, 0, made_by) for name, make in _studies(profile).items()]
    if announce is not None:
        kept = [part.name for part in parts if store.done(part.key)]
        announce(duration.forecast(profile, kept, [part.name for part in parts]))
    parts.sort(key=lambda part: part.name not in LONG)
    whole = [part for part in parts if part.name in BY_CELL]
    others = [part for part in parts if part.name not in BY_CELL]
    single = dataclasses.replace(profile, jobs=1, progress=False)
    computed = _results(single, seconds, "studies", whole, [profile], store)
    computed |= _results(profile, seconds, "studies", others, [single], store)
    store.keep_only([part.key for part in parts])
    return computed


def _studies(profile: Profile) -> dict[str, Callable[[Profile], pd.DataFrame]]:
    """Return the function of each table; a study of `BY_CELL` has all processes for itself."""
    asked = dict.fromkeys([*BY_CELL, *reported(profile), "polynomial_rank"])
    studies: dict[str, Callable[[Profile], pd.DataFrame]] = {
        name: FIGURES[name].compute for name in asked if name != SUMMARY
    }
    return studies | {
        "decomposition": decomposition.compute, "winners": summary.elsewhere,
        ADVICE: sentences.advised,
    }  # fmt: skip


def _drawn(name: str, folder: Path, table: pd.DataFrame) -> None:
    """Draw a figure for the pages, and again what `expqk figures` has written there before."""
    there = {path.suffix.removeprefix(".") for path in (folder / "figures").glob(f"{name}.*")}
    formats = tuple(kind for kind in style.FORMATS if kind == "svg" or kind in there)
    figure_files.save(
        name,
        table,
        folder,
        formats,
        figure_files.title_and_text(name, table) if "txt" in there else None,
    )


def rebuild(out: Path, formats: Iterable[str] = ("html", "pdf"), *, final: bool = False) -> None:
    """Turn report.md, perhaps edited, and notes.md into pages, as `build` does."""
    if not (out / SOURCE).exists():
        raise FileNotFoundError(f"there is no {out / SOURCE}: run without --rebuild first")
    if final:
        _refuse_open(out)
    _pages(_asked(formats, out), out)


def open_questions(out: Path) -> list[str]:
    """Return the places of a report's questions that notes.md does not answer."""
    notes = text_files.read_text(out / NOTES) if (out / NOTES).exists() else ""
    return unanswered(text_files.read_text(out / SOURCE), notes)


def _refuse_open(out: Path) -> None:
    if left := open_questions(out):
        raise ValueError(f"unanswered: {', '.join(left)}; write your text in {out / NOTES}")


def _asked(formats: Iterable[str], out: Path) -> list[str]:
    """Return the names of the pages to make: what is asked for, and what is there as written."""
    names = {FORMATS[kind] for kind in formats}
    names |= {x for x in PAGES if (out / x).is_file() and not output_files.edited(out, x)}
    return [name for name in PAGES if name in names]


def _pages(names: Iterable[str], out: Path) -> None:
    output_files.refuse_edited(out, names)
    for name in names:
        with output_files.recorded(out, name) as path:
            PAGES[name](out / SOURCE, path, notes=out / NOTES)


PAGES: dict[str, Callable[..., None]] = {
    "index.html": to_html, "report.pdf": to_pdf, "report.docx": to_docx, "report.tex": to_tex,
}  # fmt: skip
FORMATS = {name.rpartition(".")[2]: name for name in PAGES}


def render(
    profile: Profile,
    computed: dict[str, pd.DataFrame],
    command: str,
    *,
    title: str | None = None,
    authors: Iterable[str] = (),
    model: Results | None = None,
) -> str:
    """Fill the Markdown template; every number in it comes from a table.

    `computed` has the table of every figure that the profile asks for, and of the studies beside
    them. Command, title and authors are text, not markup.
    """
    context = {
        "title": tables.literal(title or tr(TITLE)),
        "authors": [tables.literal(author) for author in authors],
        "command": command.encode(errors="replace").decode(),  # what is no UTF-8 becomes "?"
        "model": None if model is None else model_page.context(model),
        "fence": "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0)),
        **_context(*_in_markdown(profile, computed)),
    }
    return templates.render("report", **context).strip() + "\n"


def _context(profile: Profile, computed: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Return the variables of the templates."""
    shown = {name: (FIGURES[name], computed[name]) for name in reported(profile)}
    errors, best, advice = computed["error"], computed["winners"], computed[ADVICE]
    parts, samples = computed["decomposition"], computed["moments"]
    believed = samples[samples.metric == "believable"].value == 1.0
    crossings, ranks = tables.crossing_table(errors), theory.bounded(computed["polynomial_rank"])
    return {
        "inputs": [x.name for x in profile.inputs],
        "temperatures": [f"{t:g}" for t in profile.temperatures],
        "budget": amounts.amount_text(profile.budget, profile.currency),
        "counted": profile.currency,
        "exact_cost": sentences.exact_cost(profile),
        "rows_sentence": sentences.rows_taken(profile),
        "own": len(profile.advised),
        "trials": profile.trials,
        "draws": profile.draws,
        "matrix_draws": min(profile.draws, experiment.MOST_DRAWS),
        "matrix_size": min(experiment.COUNT, max(x.n for x in profile.inputs)),
        "seed": profile.seed,
        "profile": profile.name,
        "n": max(max(x.n, x.l) for x in profile.inputs),
        "queries": max(x.n for x in profile.inputs),
        "masks": sentences.masks(profile.inputs),
        "input_table": pd.DataFrame(map(tables.facts, profile.inputs)),
        "contents": tr(", ").join(f"{x.name} `{x.digest()[:16]}`" for x in profile.inputs),
        "captions": {name: tables.raised(_said(name, *one)) for name, one in shown.items()},
        "versions": tr(", ").join(
            f"{tables.literal(name)} {version}"
            for name, version in ({"Python": platform.python_version()} | versions()).items()
        ),
        "summary_sentence": sentences.summary_sentence(computed[SUMMARY], advice),
        "answers_table": sentences.answers(computed),
        "bound": f"{rational.B:g}",
        "epsilon": f"{polynomial_rank.EPSILON:g}",
        "ranked": ranks.n.max(),
        "rank_temperatures": [f"{t:g}" for t in sorted(ranks.temperature.unique())],
        "rank_table": theory.rank_table(ranks),
        "quantile": numbers.spaced_percent(experiment.QUANTILE),
        "features": sentences.features(samples),
        "criterion": moments.criterion(min(profile.draws, experiment.MOST_DRAWS)),
        "bias_sentence": sentences.bias_of_polynomials(samples),
        "needed_sentence": sentences.features_needed(samples),
        "lies_table": tables.lies_table(computed["moments"]),
        "crossing_table": None if crossings.empty else crossings,
        "nearest": f"{nearest_to_one(profile.temperatures):g}",
        "least_sentence": theory.least(parts),
        "decomposition_table": tables.decomposition_table(parts),
        "decomposed": min(decomposition.COUNT, max(x.n for x in profile.inputs)),
        "samples": decomposition.SAMPLES,
        "comparison_table": theory.comparison(computed),
        "agreement": theory.agreement(computed["moments"]),
        "reliable": share_of(believed, mark("samples")),
        "to_use": sentences.to_use(advice),
        "advice_table": sentences.advice_table(advice),
        "advised_trials": in_words(measurement.TRIALS),
        "tie": f"{TIE:g}×",
        "best_table": tables.best_table(best),
        "best_sources": tr(", ").join(map(references.cited, best.winner.unique())),
    }


def _in_markdown(
    profile: Profile, computed: dict[str, pd.DataFrame]
) -> tuple[Profile, dict[str, pd.DataFrame]]:
    """Return both with the names of all inputs as pandoc's Markdown.

    They are the user's, and text; a name from either finds its rows in the other.
    """
    groups = {group: getattr(profile, group) for group in ("inputs", "advised")}
    names = {x.name: tables.literal(x.name) for group in groups.values() for x in group}
    renamed: dict[str, Any] = {
        group: tuple(dataclasses.replace(x, name=names[x.name]) for x in own)
        for group, own in groups.items()
    }
    return dataclasses.replace(profile, **renamed), {
        key: table.assign(input=table.input.replace(names)) if "input" in table else table
        for key, table in computed.items()
    }


def _said(name: str, module: FigureModule, table: pd.DataFrame) -> str:
    """Return the finding of a figure, in bold, and the caption; the first begins the report."""
    found = "" if name == SUMMARY else f"**{module.finding(table)}** "
    return found + module.caption(table)


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide the numbers and the pages."""
    return {name: metadata.version(name) for name in PACKAGES}


def _machine() -> dict[str, Any]:
    return {"versions": versions(), "python": platform.python_version(), **_hardware()}


def _hardware() -> dict[str, Any]:
    """Return the processor and the kernels of BLAS, which decide last digits."""
    from threadpoolctl import threadpool_info

    return {
        "machine": platform.machine(),
        "blas": sorted({i["architecture"] for i in threadpool_info() if i["user_api"] == "blas"}),
    }
