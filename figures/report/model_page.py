"""What happens to a language model: its own page, a section of a report, and their files.

`expqk model` writes what it found beside its page; a report of the same model's heads reads it
there and says the same.
"""

import math
import shlex
import string
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.advice.verdict import KEEP, TIED, advice
from analysis.experiments.profile import Profile
from analysis.models.language_model import HeadIndex
from analysis.models.next_tokens import Change
from analysis.models.pipeline import Results, Run
from analysis.models.plan import Plan
from analysis.models.replacement import SKIP, Estimated
from analysis.runs import output_files
from analysis.sentences import one_line
from figures.document.convert import check_notes, executable, to_html
from figures.document.notes import NAME as NOTES
from figures.drawing import looks, style
from figures.report import templates
from figures.show import head_cells, plans, price_figure
from figures.show.head_cells import GREY
from figures.words.amounts import amount_text
from figures.words.numbers import or_infinity
from figures.words.translation import mark, share, tr

SOURCE, PAGE, PLAN = "report.md", "index.html", "plan.json"
HEADS, PRICE = "model_heads", "model_price"  # figures and tables; no other figure has the name
FIGURES = HEADS, PRICE
HOLDS = "what expqk model found"  # the folder of `expqk model`
COMMAND, FOUND = "command", "found"  # of the manifest: as it was given, and what no table holds

WIDTH = 7.0  # inches of a figure
COLOURS = [colour for colour in looks.PALETTE if colour not in ("#94a4a2", "#717581")]  # no greys
LETTERED = 40  # with more layers, a head has no room for a letter
MOST_NAMED = 3  # methods of a plan that a sentence names


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
    drawn = [file for name in FIGURES for file in style.files(name)]
    output_files.usable(out, (SOURCE, PAGE, PLAN, output_files.MANIFEST, *drawn), HOLDS)
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
    text, rest = source(found, out, command), _rest(found)
    draw(found, out, ("svg", "png"))
    output_files.describe(out, {"holds": HOLDS, COMMAND: command, **found.about, FOUND: rest})
    with output_files.recorded(out, PLAN) as path:
        found.plan.write(path)
    with output_files.recorded(out, SOURCE) as path:
        path.write_text(text, encoding="utf-8", errors="replace")
    with output_files.recorded(out, PAGE) as path:
        to_html(out / SOURCE, path, notes=out / NOTES)
    return [out / PAGE, out / SOURCE, out / PLAN]


def source(found: Results, out: Path, command: str) -> str:
    """Return the page as pandoc's Markdown; every number is one that was found."""
    plan = shlex.quote(str(out / PLAN))
    model = context(found)
    return templates.render("model", model=model, plan=plan, command=command).rstrip() + "\n"


def _rest(found: Results) -> dict[str, Any]:
    """Return the results that stand neither in the plan nor in a table beside a figure."""
    return {
        "differing": found.differing,
        "positions": found.positions,
        "best": found.best,
        "gain": found.gain and [_plain(number) for number in found.gain],
        "changes": [change._asdict() for change in found.changes],
    }


def load_results(folder: Path) -> Results:
    """Return the results of `expqk model`, from the folder that it wrote.

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
        return Results(
            {name: about[name] for name in about if name not in (COMMAND, "holds")},
            pd.read_csv(folder / "data" / f"{HEADS}.csv"),
            Plan.read(folder / PLAN),
            [Change(**change) for change in rest["changes"]],
            rest["differing"],
            rest["positions"],
            rest["best"],
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


def context(found: Results) -> dict[str, Any]:
    """Return what the template of the page, or of the section of a report, speaks of."""
    about, facts = found.about, found.plan.facts
    return {
        "found": found,
        "title": title(found),
        "summary": answers(found),
        "heads": _heads(found),
        "share": f"{facts['price'] / facts['exact_price']:.1%}",
        "same": f"{facts['same_top_1']:.0%}",
        "kl": kl_of(facts),
        "skip": SKIP,
        "heads_finding": finding_map(found),
        "heads_caption": caption_map(found),
        "plan_table": plan_table(found),
        "price_finding": finding_frontier(found),
        "price_caption": caption_frontier(found),
        "price_table": plans.table_of_choices(found.plan),
        "price_legend": plans.legend(found.plan),
        "texts": [(about[name], about[f"{name}_sha256"]) for name in ("text", "held_out")],
    }


def beforehand(run: Run) -> str:
    """Return the steps of the run."""
    return tr(
        "{model}: {layers} layers of {heads} heads; {tokens} tokens to choose on, {tokens} "
        "to measure on. If you stop it, the same command continues where it was.",
        model=run.model.name,
        layers=run.model.layers,
        heads=run.model.heads,
        tokens=run.settings["tokens"],
    )


def title(found: Results) -> str:
    """Return the title of the page."""
    return tr("What cheaper attention does to {model}", model=found.about["model"])


def answers(found: Results) -> list[str]:
    """Return what to deploy, the question, and what the plan does, each in a sentence or two."""
    facts = found.plan.facts
    planned, paid = plans.method_counts(found.plan), plans.nothing_to_approximate(found.plan)
    asked = tr(
        "The question: which cheaper methods can compute the {heads} attention heads of "
        "{model}? The budget is {budget} and group of {group} heads on average, {share:.1%} of "
        "what exact attention costs after {tokens} tokens.",
        heads=_heads(found), model=found.about["model"], tokens=facts["tokens"],
        budget=amount_text(facts["budget"], facts["currency"]), group=facts["group"],
        share=facts["budget"] / facts["exact_price"],
    )  # fmt: skip
    together = tr(
        "All heads together: the plan pays more where the model is sensitive, and less elsewhere; "
        "its methods are {methods}.",
        methods=_counted(planned, MOST_NAMED),
    )
    text = found.about["held_out"] or tr("the second half of {text}", text=found.about["text"])
    after = tr(
        "On {positions} positions of {text}, which was not used for choosing, the plan keeps "
        "the model's likeliest next word at {same:.0%} and moves its next-word distribution "
        "by a KL of {kl} nats. Its perplexity on tokens {first}…{last} goes from "
        "{before:.3g} to {perplexity}.",
        positions=found.positions, text=text, first=facts["tokens"] - found.positions + 2,
        last=facts["tokens"], same=facts["same_top_1"], kl=kl_of(facts),
        before=facts["exact_perplexity"], perplexity=or_infinity(facts["perplexity"], ".3g"),
    )  # fmt: skip
    alone = [paid or _alone(found)] if paid or found.diagnosed else []
    deployed = plans.deployed(found.plan)
    return [*deployed, asked, *alone, together, after, _against_single(found, _beside(found))]


def _alone(found: Results) -> str:
    """Return on how many heads a method is worth using, each head by itself."""
    advised = advice(found.advice)
    kept = sum(one.verdict == KEEP for one in advised)
    used = Counter(looks.label(one.winner) for one in advised if one.verdict != KEEP)
    one = (
        mark("Each head alone: on {used} of the heads a method is cheaper than exact attention "
             "and has less than half of uniform attention's error, most often {best}. On {kept} "
             "of the heads there is none.")
        if used
        else mark("Each head alone: on none of the {kept} heads a method is cheaper than exact "
                  "attention and has less than half of uniform attention's error.")
    )  # fmt: skip
    return tr(one, used=len(advised) - kept, best=_counted(used, 2), kept=kept)


def _heads(found: Results) -> int:
    return len(found.advice.drop_duplicates(["layer", "head"]))


def _against_single(found: Results, one: dict[str, Any] | None) -> str:
    """Return a comparison of the plan with the best single method at its budget."""
    if found.gain is None or one is None:
        return tr("No single method for all heads is so cheap.")
    known = {
        "name": tr("{name} ({count})", name=looks.label(one["method"]), count=one["method"]),
        "kl": kl_of(one),
        "gain": f"{found.gain.mean:.2f} ± {found.gain.stderr:.2f}",
    }
    gain, twice = found.gain.mean, 2 * found.gain.stderr
    if gain == math.inf or gain > twice:
        said = mark(
            "The best single method for all heads at that price, by prediction, is {name}. "
            "It does worse, by {gain}: its KL is {kl}."
        )
    elif gain == -math.inf or gain < -twice:
        said = mark(
            "The best single method for all heads at that price, by prediction, is {name}. "
            "It does better, so use it and not the plan: its KL is {kl}."
        )
    else:
        said = mark(
            "The best single method for all heads at that price, by prediction, is {name}. It "
            "has KL {kl}, {gain} more than the plan: which of them is better is not resolved."
        )
    return tr(said, **known)


def _beside(found: Results) -> dict[str, Any] | None:
    """Return the single method that is predicted to be the best at the budget, or None."""
    every = (one for one in found.plan.facts["singles"] if "kl" in one)
    return next((one for one in every if one["method"] == found.best), None)


def _counted(names: Counter[str], most: int) -> str:
    return tr(", ").join(
        tr("{name} ({count})", name=name, count=count) for name, count in names.most_common(most)
    )


def kl_of(one: Mapping[str, Any]) -> str:
    """Return a KL and its standard error, which a line does not part."""
    digits = _digits(one)
    kl = or_infinity(one["kl"], digits)
    error = one["kl_stderr"]
    return kl if error is None else f"{kl} ± {error:{digits}}".replace(" ", "\N{NO-BREAK SPACE}")


def _digits(one: Mapping[str, Any]) -> str:
    return ".3f" if (one["kl"] or 1.0) < 0.1 else ".2f"


def plan_table(found: Results) -> pd.DataFrame:
    """Return a row per method of the plan: its sizes, and how many heads have it."""
    specs = Counter(str(method) for method in found.plan.heads.values())
    rows: dict[str, Counter[str]] = {}
    for spec, count in specs.items():
        rows.setdefault(looks.label(spec), Counter())[spec] = count
    table = [
        {
            tr("method"): name,
            tr("heads"): part.total(),
            tr("most often"): tr(", ").join(f"`{spec}` {n}" for spec, n in part.most_common(2)),
        }
        for name, part in sorted(rows.items(), key=lambda item: -item[1].total())
    ]
    exact = found.plan.facts["exact_heads"]
    if exact:
        table.append(
            {tr("method"): tr("exact attention"), tr("heads"): exact, tr("most often"): "–"}
        )
    return pd.DataFrame(table)


def draw(found: Results, out: Path, formats: tuple[str, ...] = style.FORMATS) -> None:
    """Draw both figures, each with its table and its title, into OUT/figures and OUT/data."""
    for name, table, drawn, title, said in (
        (
            HEADS, found.advice, draw_map(found), finding_map(found),
            caption_map(found),
        ),
        (
            PRICE, frame(found), draw_frontier(found),
            finding_frontier(found), caption_frontier(found),
        ),
    ):  # fmt: skip
        style.save(name, table, drawn, out, formats, f"{title} {said}", title)


def frame(found: Results) -> pd.DataFrame:
    """Return the numbers of the line, a row a choice, without the memory at other lengths."""
    return plans.choices(found.plan).drop(columns="memory")


def draw_map(found: Results) -> Figure:
    """Draw layers × heads: the plan and, if asked for, the best method of each head alone above."""
    rows = found.advice
    places: list[HeadIndex] = list(zip(rows.layer.tolist(), rows["head"].tolist()))
    planned = {at: str(method) for at, method in found.plan.heads.items()}
    verdicts, winners, tied = {}, {}, set()
    if found.diagnosed:
        verdicts = dict(zip(places, rows.verdict))
        winners = {at: spec for at, spec, won in zip(places, rows.spec, rows.winner) if won}
        tied = {at for at, verdict in verdicts.items() if verdict == TIED}
    specs = looks.order([*winners.values(), *planned.values()])
    labels = {spec: looks.label(spec) for spec in specs}
    alone = {at: "" if verdict == KEEP else labels[winners[at]] for at, verdict in verdicts.items()}
    plan = dict.fromkeys(places, "") | {at: labels[spec] for at, spec in planned.items()}
    shown = {*alone.values(), *plan.values()}
    names = [name for name in dict.fromkeys(labels.values()) if name in shown]
    swatches = {name: (COLOURS[i % len(COLOURS)], string.ascii_uppercase[i % 26])
             for i, name in enumerate(names)}  # fmt: skip
    layers, heads = (1 + max(at[i] for at in places) for i in (0, 1))
    cell = (WIDTH - 0.9) / max(layers, 12)
    maps = [(tr("all heads together: the plan"), plan, set[HeadIndex]())]
    if found.diagnosed:
        maps.insert(0, (tr("each head by itself: the nearest method"), alone, tied))
    with style.style():
        height = len(maps) * (heads * cell + 0.5) + 0.25 * (len(names) / 3 + 1) + 0.3
        figure = Figure(figsize=(WIDTH, height))
        every = figure.subplots(len(maps), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, cells, small) in zip(every, maps):
            _cells(axes, cells, swatches, layers, heads, small)
            axes.set_title(title)
        every[-1].set_xlabel(tr("layer"))
        handles = [
            Patch(facecolor=colour, edgecolor="0.6", lw=0.4, label=f"{letter}  {name}")
            for name, (colour, letter) in swatches.items()
        ]
        handles.append(Patch(facecolor=GREY, edgecolor="0.6", lw=0.4, label=tr("exact")))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _cells(
    ax: Axes,
    names: Mapping[HeadIndex, str],
    swatches: Mapping[str, tuple[str, str]],
    layers: int,
    heads: int,
    tied: set[HeadIndex],
) -> None:
    """Draw a cell for each head, in the colour of its method, with its letter, small if tied."""
    cells = {}
    for at, name in names.items():
        colour, letter = swatches.get(name, (GREY, ""))
        dark = float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) < 0.4
        word = letter.lower() if at in tied else letter
        cells[at] = head_cells.ColouredCell(
            colour, word if layers <= LETTERED else "", "white" if dark else "black"
        )  # fmt: skip
    head_cells.draw(ax, cells, range(layers), range(heads), size=style.SMALL, edge=0.5)
    ax.set_ylabel(tr("head"))
    ax.set_aspect("equal")
    ax.set_yticks(range(0, heads, max(1, heads // 8)))
    ax.set_xticks(range(0, layers, max(1, layers // 15)))


def finding_map(found: Results) -> str:
    """Return how many heads the plan keeps exact, and on how many a method is worth using alone."""
    exact = _heads(found) - len(found.plan.heads)
    if not found.diagnosed:
        return tr(
            "The plan keeps {exact} of {heads} heads exact.", exact=exact, heads=_heads(found)
        )
    verdicts = found.advice.drop_duplicates(["layer", "head"]).verdict
    return tr(
        "A method is worth using on {share}; the plan keeps {exact} exact.",
        share=share(int((verdicts != KEEP).sum()), len(verdicts), mark("attention heads")),
        exact=exact,
    )


def caption_map(found: Results) -> str:
    """Return the caption of the map."""
    facts = found.plan.facts
    budget = amount_text(facts["budget"], facts["currency"])
    if not found.diagnosed:
        return tr(
            "The methods of the plan at {budget} of a group of heads on average; grey where exact.",
            budget=budget,
        )  # fmt: skip
    return tr(
        "Above: the best method at {budget}, a small letter for a tie, grey where none is "
        "worth using. Below: the plan, grey where exact.",
        budget=budget,
    )


def draw_frontier(found: Results) -> Figure:
    """Draw the KL of plans, and of single methods for all heads, against bytes read."""
    known = plans.choices(found.plan)
    known = known[np.isfinite(known.kl)]
    names = known["name"].where(known.method == plans.PLANNED, known.method.map(looks.label))
    about = tr("KL(model ‖ replaced), nats")
    known, limit = known.assign(name=names), plans.limit(found.plan)
    return price_figure.draw(known, "kl", limit=limit, about=about, log=True)


def finding_frontier(found: Results) -> str:
    """Return the effect of the plan, and of one method for all, on the next word at the budget."""
    facts, one = found.plan.facts, _beside(found)
    known = {
        "share": facts["price"] / facts["exact_price"],
        "kl": or_infinity(facts["kl"], _digits(facts)),
    }
    if one is None:
        return tr("At {share:.1%} of exact attention's price the plan has a KL of {kl}.", **known)
    return tr(
        "At {share:.1%} of exact attention's price the plan has a KL of {kl}, one method for all "
        "heads {single}.",
        **known,
        single=or_infinity(one["kl"], _digits(one)),
    )


def caption_frontier(found: Results) -> str:
    """Return the caption of the frontier."""
    return tr(
        "KL of the next word over {positions} held-out positions, with standard errors, against "
        "bytes read. The line joins what nothing cheaper beats; dotted: the budget.",
        positions=found.positions,
    )
