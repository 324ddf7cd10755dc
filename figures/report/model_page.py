"""What happens to a language model: its own page, sections of a report, and their files.

`expqk model` writes what it found beside its page; a report of the same model's heads reads it
there and says the same.
"""

import math
import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.experiments.profile import Profile
from analysis.models.next_tokens import Change
from analysis.models.pipeline import Results
from analysis.models.plan import Plan
from analysis.models.replacement import SKIP, Estimated
from analysis.runs import output_files
from analysis.sentences import one_line
from figures.document.convert import check_notes, executable, to_html
from figures.document.notes import NAME as NOTES
from figures.drawing import style
from figures.report.tables import literal, markdown
from figures.show import model_run
from figures.words.translation import spoken, tr

SOURCE, PAGE, PLAN = "report.md", "index.html", "plan.json"
HEADS, PRICE = "model_heads", "model_price"  # figures and tables; no other figure has the name
FIGURES = HEADS, PRICE
HOLDS = "what expqk model found"  # the folder of `expqk model`
COMMAND, FOUND = "command", "found"  # of the manifest: as it was given, and what no table holds


def usable(out: Path) -> None:
    """Raise an error unless a page can be made here, before anything is computed.

    Raises
    ------
    ImportError, OSError
        pandoc is missing, or the folder cannot be written.
    FileExistsError
        A file that would be written was edited since, or is not of this command.
    """
    executable()
    output_files.usable(out)
    output_files.refuse_another(out, HOLDS)
    drawn = [file for name in FIGURES for file in style.files(name)]
    output_files.refuse_edited(out, (SOURCE, PAGE, PLAN, output_files.MANIFEST, *drawn))
    check_notes(out / SOURCE, out / NOTES)


def build(found: Results, out: Path, *, command: str) -> list[Path]:
    """Write the page and all beside it; return the page, its source and the plan.

    Parameters
    ----------
    found : Results
    out : Path
        A folder that is `usable`.
    command : str
        As it was given.
    """
    usable(out)
    write(found, out, command)
    draw(found, out, ("svg", "png"))
    with output_files.recorded(out, SOURCE) as path:
        path.write_text(source(found, out, command), encoding="utf-8", errors="replace")
    with output_files.recorded(out, PAGE) as path:
        to_html(out / SOURCE, path, notes=out / NOTES)
    return [out / PAGE, out / SOURCE, out / PLAN]


def source(found: Results, out: Path, command: str) -> str:
    """Return the page as pandoc's Markdown; every number is one that was found."""
    sentences = [f"{i}. {one}" for i, one in enumerate(answers(found), 1)]
    title = literal(model_run.title(found)).replace("\\", "\\\\").replace('"', '\\"')
    language = "zh-CN" if spoken() == "zh" else "en"
    abstract = textwrap.indent("\n".join(sentences), "  ")
    parts = [
        f'---\ntitle: "{title}"\nlang: {language}\nabstract: |\n{abstract}\n---',
        *sections(found, "#"),
        f"# {tr('What to do')}",
        *_advised(found, out),
        f"# {tr('Where the numbers come from')}",
        provenance(found),
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
    counted = found.plan.facts["currency"]
    currency = "" if counted == "reads" else f" --currency {counted}"
    yield textwrap.indent(
        f"expqk substitute MODEL_DIR TEXT --plan {plan}\n"
        f"expqk plan MODEL_DIR TEXT --budget {2 * found.plan.facts['budget']:g}"
        f"{currency} --out plan.json",
        "    ",
    )


def write(found: Results, out: Path, command: str) -> None:
    """Write what was found, all but the tables that `draw` writes beside its figures."""
    rest = {
        "differing": found.differing,
        "positions": found.positions,
        "gain": found.gain and [_plain(number) for number in found.gain],
        "changes": [change._asdict() for change in found.changes],
    }
    about = {"holds": HOLDS, COMMAND: command, **found.about, FOUND: rest}
    output_files.describe(out, about)
    with output_files.recorded(out, PLAN) as path:
        found.plan.write(path)


def draw(found: Results, out: Path, formats: tuple[str, ...] = style.FORMATS) -> None:
    """Draw both figures, each with its table and its title, into OUT/figures and OUT/data."""
    for name, table, drawn, title, said in (
        (
            HEADS, found.advice, model_run.draw_map(found), model_run.finding_map(found),
            model_run.caption_map(found),
        ),
        (
            PRICE, model_run.frame(found), model_run.draw_frontier(found),
            model_run.finding_frontier(found), model_run.caption_frontier(found),
        ),
    ):  # fmt: skip
        style.save(name, table, drawn, out, formats, f"{title} {said}", title)


def load_results(folder: Path) -> Results:
    """Return what `expqk model` found, from the folder that it wrote.

    Raises
    ------
    ValueError
        There is no such folder, or it holds no finished run of that command.
    """
    try:
        tables = [f"data/{name}.csv" for name in FIGURES]
        output_files.refuse_edited(folder, (output_files.MANIFEST, *tables, PLAN))
        about = output_files.manifest(folder)
        rest = about.pop(FOUND)
        price = pd.read_csv(folder / "data" / f"{PRICE}.csv")
        singles = price[price.method != model_run.PLANNED].to_dict("records")
        return Results(
            {name: about[name] for name in about if name not in (COMMAND, "holds")},
            pd.read_csv(folder / "data" / f"{HEADS}.csv"),
            Plan.read(folder / PLAN),
            [{str(name): _known(value) for name, value in one.items()} for one in singles],
            [Change(**change) for change in rest["changes"]],
            rest["differing"],
            rest["positions"],
            rest["gain"] and Estimated(*map(float, rest["gain"])),
        )
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{one_line(folder)} holds nothing that `expqk model` of this version found, or it was "
            "edited: give the folder that its --out named, once it is done"
        ) from error


def _plain(number: float) -> float | str:
    """Return a number as JSON holds it, which has none that is not finite."""
    return number if math.isfinite(number) else str(number)


def _known(value: Any) -> Any:
    """Return a cell of a table, None where it is empty."""
    return None if isinstance(value, float) and math.isnan(value) else value


def refuse_other(found: Results, profile: Profile) -> None:
    """Raise ValueError if a profile has a head that the model has not, or of another width."""
    places = found.advice[["layer", "head", "d"]].to_numpy(int).tolist()
    known = {(layer, head): d for layer, head, d in places}
    layers, heads = (1 + max(place[i] for place in known) for i in (0, 1))
    model_is = f"the run is over {found.about['model']}, {layers} layers of {heads} heads"
    if profile.given[0] > len(known):
        raise ValueError(
            f"{model_is}, and the file has {profile.given[0]} heads: give heads and run of one "
            "model"
        )
    for x in (*profile.inputs, *profile.advised):
        if known.get((x.layer, x.head)) != x.d:
            raise ValueError(
                f"{model_is} of width {places[0][-1]}, and the file has a head {x.layer}.{x.head} "
                f"of width {x.d}: give heads and run of one model"
            )


def answers(found: Results) -> list[str]:
    """Return what was asked and found, in five sentences of Markdown."""
    return [literal(one) for one in model_run.answers(found)]


def briefly(found: Results) -> str:
    """Return the sentence of a report's first page."""
    facts = found.plan.facts
    return tr(
        "**What happens to the model:** each of the {heads} heads of {model} gets a method, "
        "for {share:.1%} of the price of exact attention. The next word then stays the same "
        "at {same:.0%} of {positions} positions, and its distribution moves by a KL of {kl} "
        "(@fig:model_price).",
        heads=len(found.advice.drop_duplicates(["layer", "head"])),
        model=literal(str(found.about["model"])),
        share=facts["price"] / facts["exact_price"],
        same=facts["same_top_1"],
        positions=found.positions,
        kl=model_run.kl_of(facts),
    )


def section(found: Results) -> str:
    """Return what a report says: the five sentences, all sections, and where they come from."""
    said = "\n".join(f"{i}. {one}" for i, one in enumerate(answers(found), 1))
    return "\n\n".join([said, *sections(found, "##"), provenance(found)])


def sections(found: Results, heading: str) -> Iterable[str]:
    """Return map, tables, price and damage, and places of the text; a heading begins with "##"."""
    return [
        f"{heading} {tr('Each head by itself')}",
        tr(
            "@fig:model_heads shows what serves each head. The error is the total variation of "
            "the attention weights, tv: 0 is exact, 1 is all on the wrong keys. A method is "
            "advised where its tv is below half of uniform attention's. Unlike KL below, tv "
            "counts the first {skip} positions, too.",
            skip=SKIP,
        ),
        _figure(HEADS, model_run.finding_map(found), model_run.caption_map(found)),
        f"{heading} {tr('All heads together: price and damage')}",
        tr(
            "The same error damages the model more on one head than on another. The plan "
            "(@tbl:model_plan) gives each head a method and a size, so that the predicted "
            "damage of all heads is least at the average price. @fig:model_price and "
            "@tbl:model_price show the damage at other prices. The plan need not agree with "
            "the map above: the map looks at the attention of a head, the plan at what the "
            "model makes of it."
        ),
        _table("model_plan", tr("What the plan is made of"), markdown(model_run.plan_table(found))),
        _figure(PRICE, model_run.finding_frontier(found), model_run.caption_frontier(found)),
        _table(PRICE, tr("Price and damage"), markdown(model_run.frontier_table(found))),
        f"{heading} {tr('Where the next word changes')}",
        *_changes(found),
    ]


def _figure(name: str, finding: str, caption: str) -> str:
    said = f"**{literal(finding)}** {literal(caption)}"
    return f"![{said}](figures/{name}.svg){{#fig:{name} width=100%}}"


def _table(name: str, caption: str, table: str) -> str:
    return f"{table}\n\n: {literal(caption)} {{#tbl:{name}}}"


def _changes(found: Results) -> Iterable[str]:
    """Return the places where the next word is another one."""
    said = tr(
        "At {differing} of {positions} positions the likeliest next word of the plan "
        "differs from the model's.",
        differing=found.differing,
        positions=found.positions,
    )
    if not found.changes:
        yield said
        return
    yield tr(
        "{said} Below are the largest change, the middle one and the smallest; a percentage is "
        "the probability that each gives its own word.",
        said=said,
    )
    for change in found.changes:
        yield f"> … {literal(change.before)} **▁**"
        yield tr(
            "The model: **{own}** ({own_share:.0%}). The plan: **{plan}** ({plan_share:.0%}). The "
            "text: {following}. KL {kl:.2f} at token {position}.",
            own=literal(change.own),
            own_share=change.own_probability,
            plan=literal(change.plan),
            plan_share=change.plan_probability,
            following=literal(change.following),
            kl=change.kl,
            position=change.position,
        )


def provenance(found: Results) -> str:
    """Return the line that says what was computed with what, and when."""
    about = found.about
    weights = about["model_sha256"]
    versions = about["versions"]
    assert isinstance(weights, dict)
    assert isinstance(versions, dict)
    texts = [(about["text"], about["text_sha256"]), (about["held_out"], about["held_out_sha256"])]
    return tr(
        "{model}: {weights}; text: {texts}, {tokens} tokens to choose on and as many to measure "
        "on; seed {seed}; {date}; Python {python}, {versions}.",
        model=literal(str(about["model"])),
        weights=_digests(weights.items()),
        texts=_digests((name, value) for name, value in texts if name is not None),
        tokens=found.plan.facts["tokens"],
        seed=about["seed"],
        date=about["date"],
        python=about["python"],
        versions=tr(", ").join(f"{name} {value}" for name, value in versions.items()),
    )


def _digests(named: Iterable[tuple[object, object]]) -> str:
    return tr(", ").join(
        tr("{name} (SHA-256 {digest}…)", name=literal(str(name)), digest=str(value)[:16])
        for name, value in named
    )
