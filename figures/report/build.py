"""From a profile to a folder: figures, data, report.md, index.html, report.pdf, manifest.json."""

import contextlib
import dataclasses
import functools
import platform
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from analysis.advice import measurement
from analysis.advice.verdict import TIE
from analysis.claims import check
from analysis.compute import finished, output_files
from analysis.compute.executors import parallel
from analysis.costs.budget import amount_text
from analysis.experiments import decomposition, moments, polynomial_rank
from analysis.experiments.profile import Profile, rank_1_price
from analysis.models.pipeline import Results
from approx.polynomials.monomials import width
from figures.document import album
from figures.document.convert import check_notes, to_html, to_pdf
from figures.document.notes import NAME as NOTES, skeleton
from figures.drawing import style
from figures.gallery import FIGURES, FigureModule, rank, reported, summary
from figures.report import claims_document, course, front, model_sections, sentences, tables
from figures.report.references import REFERENCES
from figures.show import claims_ledger, diagnosis
from figures.words import amounts, glossary
from figures.words.translation import in_words, mark, speaking, spoken, tr

T = TypeVar("T")
SOURCE = "report.md"
STORE = "store"  # the tables of finished studies, in the folder of a report
SUMMARY, ADVICE, LEDGER, CLAIMS = "summary", "advice", "claims", "pages of the claims"
BY_CELL = ("error",)  # a study of many short cells, shared by all processes; any other has one
# begun first, as a long one at the end runs alone
LONG = ("price", "claims", "winners", "frontier")
TITLE = mark("Cheaper attention, measured")
ENDINGS = {"en": ".md.j2", "zh": ".zh.md.j2"}  # of the templates "report" and "course"
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
    cache: Path | None = None,
    beside: Iterable[Path] = (),
    holds: str = "report",
) -> Path | None:
    """Compute everything and write the report.

    A report.md that was edited since it was written is never overwritten: it gets another name.
    Any other file that was edited, or that expqk did not write, is refused.
    What notes.md holds is merged into the pages, as `figures.document.notes` says; a course report
    begins one with its questions, if there is none.
    The table of a study is kept when it is computed. A report of the same inputs and settings, in
    the same folder and of the same code, does not compute it again.

    Parameters
    ----------
    profile : Profile
    out : Path
        Folder: report.md, index.html, report.pdf, claims.html, claims.pdf,
        manifest.json, figures/, data/, store/; notes.md and no claims for a course.
    command : str, optional
        As it was given; sys.argv by default.
    title : str, optional
        Plain text: nothing in it is markup.
    authors : iterable of str
        The same.
    model : Results, optional
        What `expqk model` found about the model whose heads these are: a section of its own.
    cache : Path, optional
        Folder for what no input decides, the checked claims; reports in other folders take them
        from there.
    beside : iterable of Path
        Folders of the same report in other languages, whose tables are used again.
    holds : str
        What the folder holds then; one that holds anything else is refused.

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
    brief = profile.name == course.NAME
    if model is not None and brief:
        raise ValueError("a course report has no model in it: use another profile, or no model")
    if model is not None:
        model_sections.refuse_other(model, profile)
    if profile.budget < least:
        raise ValueError(
            f"budget must be at least {amount_text(least, profile.currency)}, the price of rank 1, "
            f"got {profile.budget:g}"
        )
    output_files.usable(out)
    output_files.refuse_another(out, holds)
    output_files.refuse_edited(out, _files(profile, out, model))
    ours = not output_files.edited(out, SOURCE)
    check_notes(out / SOURCE if ours else None, out / NOTES)
    command = command or shlex.join(["expqk", *sys.argv[1:]])
    seconds: dict[str, float] = {}
    together = functools.partial(_together, profile, seconds)
    folder = out.absolute()  # a worker keeps the folder it began in
    store = finished.Finished(
        output_files.inside(folder, folder / STORE / "KEY").parent,
        cache,
        *(other.absolute() / STORE for other in beside),
    )
    computed = _computed(profile, store, cache, seconds)
    kept, shown = [name for name in computed if name not in seconds], reported(profile)
    if SUMMARY in shown:
        computed[SUMMARY] = summary.compose(computed["error"], computed["winners"])
    files_of: dict[str, Callable[[], object]] = {}
    if not brief:
        files_of[CLAIMS] = functools.partial(claims_document.write, computed[LEDGER], folder)
    for name in shown:
        files_of[name] = functools.partial(_drawn, name, computed[name], folder)
    together("drawing", files_of)
    for name in sorted(computed.keys() - {*shown, ADVICE}):
        style.save_table(name, computed[name], out)
    if len(profile.advised) > 1 and not brief:
        title_of_map = front.worth(computed[ADVICE])
        drawn_map = diagnosis.draw(computed[ADVICE])
        style.save(ADVICE, computed[ADVICE], drawn_map, out, title=title_of_map)
    elif not brief:
        style.save_table(ADVICE, computed[ADVICE], out)
    if model is not None:
        model_sections.draw(model, out)
    text = render(profile, computed, command, title=title, authors=authors, model=model)
    edited = output_files.put(out, SOURCE, text)
    if brief and not (out / NOTES).exists():
        with output_files.replacing(out / NOTES) as temporary:
            temporary.write_text(skeleton(text, tr(course.ABOUT_NOTES)), "utf-8")
    pages = {name: functools.partial(_page, name, folder) for name in PAGES}
    together("pages", pages)
    about = {"holds": holds, "command": command, "seed": profile.seed, "kept": kept}
    output_files.describe(out, {**about, "seconds": seconds, **_machine()})
    return edited


def _files(profile: Profile, out: Path, model: Results | None) -> Iterator[str]:
    """Yield the names of all files that `build` may write, but for its source."""
    yield from (*PAGES, output_files.MANIFEST)
    if profile.name != course.NAME:
        yield from (claims_document.PAGE, claims_document.PDF)
    drawn = () if model is None else model_sections.FIGURES
    for name in (SUMMARY, *_studies(profile), *drawn):
        yield from album.files(name, out)


def _together(
    profile: Profile, seconds: dict[str, float], label: str, jobs: Mapping[str, Callable[[], T]]
) -> dict[str, T]:
    """Return the result of each job, by name, and add how many seconds it took."""
    taken = parallel(
        functools.partial(_timed, spoken()),
        [*jobs.values()],
        jobs=profile.jobs,
        progress=profile.progress,
        label=label,
    )
    for name, (passed, _) in zip(jobs, taken):
        seconds[name] = seconds.get(name, 0.0) + passed
    return {name: made for name, (_, made) in zip(jobs, taken)}


def _computed(
    profile: Profile, store: finished.Finished, cache: Path | None, seconds: dict[str, float]
) -> dict[str, pd.DataFrame]:
    """Return the tables of all studies; only those that are in no folder are computed."""
    studies = _studies(profile)
    made_by = finished.code("figures"), *_hardware().values()
    keys = {x: finished.key(x, *made_by, "" if x == LEDGER else profile.key) for x in studies}
    earlier = {name: store.get(key) for name, key in keys.items()}
    computed: dict[str, pd.DataFrame] = {x: t for x, t in earlier.items() if t is not None}
    left = {
        name: functools.partial(_stored, store, keys[name], study)
        for name, study in studies.items()
        if name not in computed
    }
    for name in BY_CELL:
        if name in left:
            seconds[name], computed[name] = _timed(spoken(), left.pop(name))
    begun = sorted(left, key=lambda name: name not in LONG)
    computed |= _together(profile, seconds, "studies", {name: left[name] for name in begun})
    store.keep_only(keys.values())
    if LEDGER in left:
        with contextlib.suppress(OSError):  # a home that cannot be written costs time, no report
            everywhere = finished.Finished(cache)
            everywhere.put(keys[LEDGER], computed[LEDGER])
            everywhere.keep_only([keys[LEDGER]])
    return computed


def _studies(profile: Profile) -> dict[str, Callable[[], pd.DataFrame]]:
    """Return how to compute each table; a study of `BY_CELL` has all processes for itself."""
    single = dataclasses.replace(profile, jobs=1, progress=False)
    studies: dict[str, Callable[[], pd.DataFrame]] = {
        name: functools.partial(FIGURES[name].compute, profile if name in BY_CELL else single)
        for name in dict.fromkeys([*BY_CELL, *reported(profile)])
        if name != SUMMARY
    }
    studies["decomposition"] = functools.partial(decomposition.compute, single)
    if profile.name == course.NAME:
        return studies | {"polynomial_rank": functools.partial(polynomial_rank.compute, single)}
    studies["winners"] = functools.partial(summary.winners, single)
    studies[ADVICE] = functools.partial(front.advised, single)
    studies[LEDGER] = _ledger
    if profile.synthetic:
        synthetic = dataclasses.replace(single, inputs=profile.synthetic)
        studies["synthetic"] = functools.partial(summary.winners, synthetic)
    return studies


def _drawn(name: str, table: pd.DataFrame, folder: Path) -> None:
    """Draw a figure for the pages, and again what `expqk figures` has written there before."""
    there = {path.suffix.removeprefix(".") for path in (folder / "figures").glob(f"{name}.*")}
    formats = tuple(kind for kind in style.FORMATS if kind == "svg" or kind in there)
    album.save(name, table, folder, formats, album.text(name, table) if "txt" in there else None)


def _timed(language: str, make: Callable[[], T]) -> tuple[float, T]:
    """Return how many seconds it took to make something in a language, and what was made."""
    start = time.perf_counter()
    with speaking(language):
        made = make()
    return time.perf_counter() - start, made


def _stored(store: finished.Finished, key: str, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Compute the table of a study and keep it."""
    table = make()
    store.put(key, table)
    return table


def _ledger() -> pd.DataFrame:
    return claims_ledger.frame(check())


def rebuild(out: Path) -> None:
    """Turn report.md, perhaps edited, and notes.md into index.html and report.pdf."""
    if not (out / SOURCE).exists():
        raise FileNotFoundError(f"there is no {out / SOURCE}: run without --rebuild first")
    output_files.refuse_edited(out, PAGES)
    for name in PAGES:
        _page(name, out)


def _page(name: str, out: Path) -> None:
    with output_files.recorded(out, name) as path:
        PAGES[name](out / SOURCE, path, notes=out / NOTES)


PAGES: dict[str, Callable[..., None]] = {"index.html": to_html, "report.pdf": to_pdf}


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

    Parameters
    ----------
    profile : Profile
    computed : dict of DataFrame
        The table of every figure that the profile asks for, and of the studies beside them.
    command, title, authors, model
        As in `build`: text, not markup.
    """
    try:
        import jinja2
    except ImportError:
        raise ImportError("the report needs: pip install -e '.[report]'") from None
    brief = profile.name == course.NAME
    templates = resources.files("figures.report")
    name = f"{course.NAME if brief else 'report'}{ENDINGS[spoken()]}"
    source = templates.joinpath(name).read_text("utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda part: templates.joinpath(part).read_text("utf-8")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        comment_start_string="<#",  # {# begins an identifier in pandoc's Markdown
        comment_end_string="#>",
    )
    about = {
        "title": tables.literal(title or tr(course.TITLE if brief else TITLE)),
        "lang": "zh-CN" if spoken() == "zh" else "en",
        "authors": [tables.literal(author) for author in authors],
        "command": command.encode(errors="replace").decode(),  # what is no UTF-8 becomes "?"
        "model_sentence": "" if model is None else model_sections.briefly(model),
        "model": "" if model is None else model_sections.section(model),
        "fence": "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0)),
    }
    profile, computed = _in_markdown(profile, computed)
    context = about | _common(profile, computed)
    context |= course.context(profile, computed) if brief else _context(profile, computed)
    placed = re.compile(r'figure\("(\w+)"\)|\{#fig:(\w+)').findall(source)
    context["others"] = [name for name in context["captions"] if name not in sum(placed, ())]
    template = environment.from_string(source)
    cited = re.findall(
        r"\]\(#ref-(\w+)\)", template.render(context, references=REFERENCES, words="")
    )
    context["references"] = {key: text for key, text in REFERENCES.items() if key in cited}
    words = glossary.used(template.render(context | {"words": ""}), spoken())
    return template.render(context | {"words": words}).rstrip() + "\n"


def _common(profile: Profile, computed: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Return what every template speaks of."""
    names = reported(profile) if profile.name == course.NAME else FIGURES
    shown = {name: (FIGURES[name], computed[name]) for name in names if name in computed}
    crossings, d = tables.crossing_table(computed["error"]), max(x.d for x in profile.inputs)
    return {
        "inputs": [x.name for x in profile.inputs],
        "temperatures": [f"{t:g}" for t in profile.temperatures],
        "budget": amounts.amount_text(profile.budget, profile.currency),
        "counted": profile.currency,
        "trials": profile.trials,
        "seed": profile.seed,
        "profile": profile.name,
        "n": max(max(x.n, x.l) for x in profile.inputs),
        "exact_cost": sentences.exact_cost(profile),
        "stored": amounts.span(round(x.mask.entries / x.n) for x in profile.inputs),
        "masks": sentences.masks(profile.inputs),
        "d": d,
        "width2": width(d, 2),
        "captions": {name: tables.raised(_said(*one)) for name, one in shown.items()},
        "input_table": tables.markdown(pd.DataFrame(map(tables.facts, profile.inputs))),
        "content_table": tables.markdown(pd.DataFrame(map(tables.contents, profile.inputs))),
        "crossing_table": "" if crossings.empty else tables.markdown(crossings),
        "lies_table": tables.markdown(tables.lies_table(computed["moments"])),
        "variance_sentence": sentences.variance_conclusion(computed["moments"]),
        "decomposed": min(decomposition.COUNT, max(x.n for x in profile.inputs)),
        "samples": decomposition.SAMPLES,
        "versions": tr(", ").join(
            f"{tables.literal(name)} {version}"
            for name, version in ({"Python": platform.python_version()} | versions()).items()
        ),
        "own": bool(profile.synthetic),
    }


def _context(profile: Profile, computed: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Return what the template of all but a course speaks of, beside what is common to both."""
    errors, ledger = computed["error"], computed["claims"]
    best, advice = computed["winners"], computed["advice"]
    d = max(x.d for x in profile.inputs)
    m = tables.features(profile, d)
    map_of_heads = tr(
        "Layers and heads of the file, at {budget}. Letter, number and colour: the method and its "
        "total variation. Grey: keep exact attention.",
        budget=amounts.amount_text(profile.budget, profile.currency),
    )
    return {
        "causal_cost": sentences.causal_cost(d, m),
        "map_caption": f"**{front.worth(advice)}** {map_of_heads}",
        "mapped": len(profile.advised) > 1,
        "summary_sentence": front.summary_sentence(computed["summary"], advice),
        "answers_table": tables.markdown(front.answers(computed, profile, d)),
        "to_use": front.to_use(advice),
        "advice_table": tables.markdown(front.advice_table(advice)),
        "tie": f"{TIE:g}×",
        "scatterbrain_sentence": sentences.scatterbrain_conclusion(errors),
        "normalisation_sentence": sentences.normalisation_conclusion(errors),
        "best_table": tables.markdown(tables.best_table(best)),
        "best_sentence": sentences.uniform_wins(best),
        "runnable_sentence": sentences.runnable_conclusion(best),
        "advised_trials": in_words(measurement.TRIALS),
        "lies_sentence": sentences.lies(computed["moments"]),
        "decomposition_tables": {
            f"{t:g}": tables.markdown(tables.decomposition_table(computed["decomposition"], t))
            for t in decomposition.temperatures(profile)[: 1 + (profile.grid != "quick")]
        },
        "decomposition_sentence": sentences.parts_of_error(computed["decomposition"]),
        "needed_table": tables.markdown(tables.needed_table(computed["moments"])),
        "target": tables.percent(moments.TARGET),
        "rank_table": tables.markdown(tables.rank_table(computed["rank"])),
        "rank_sentence": rank.finding(computed["rank"]),
        "length": tables.LENGTH,
        "cost_sentence": sentences.cost_conclusion(d, m),
        "complexity_table": tables.markdown(tables.complexity_table(d, m, m)),
        "claims_sentence": sentences.verdicts(ledger),
        "errata_table": tables.markdown(tables.corrected_table(ledger)),
        "rows_sentence": front.rows_taken(profile),
        "synthetic_table": tables.markdown(pd.DataFrame(map(tables.facts, profile.synthetic)))
        if profile.synthetic
        else "",
        "synthetic_best": tables.markdown(tables.best_table(computed["synthetic"]))
        if profile.synthetic
        else "",
    }


def _in_markdown(
    profile: Profile, computed: dict[str, pd.DataFrame]
) -> tuple[Profile, dict[str, pd.DataFrame]]:
    """Return both with the names of all inputs as pandoc's Markdown.

    They are the user's, and text; a name from either finds its rows in the other.
    """
    groups = {group: getattr(profile, group) for group in ("inputs", "advised", "synthetic")}
    names = {x.name: tables.literal(x.name) for group in groups.values() for x in group}
    renamed: dict[str, Any] = {
        group: tuple(dataclasses.replace(x, name=names[x.name]) for x in own)
        for group, own in groups.items()
    }
    return dataclasses.replace(profile, **renamed), {
        key: table.assign(input=table.input.replace(names)) if "input" in table else table
        for key, table in computed.items()
    }


def _said(module: FigureModule, table: pd.DataFrame) -> str:
    """Return what a figure found, in bold, and what it shows."""
    return f"**{module.finding(table)}** {module.caption(table)}"


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
