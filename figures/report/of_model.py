"""The page of a run over a language model: report.md, index.html, plan.json, figures, data."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from analysis import files
from analysis.model import Found
from analysis.next_words import Change
from figures import model, style
from figures.language import spoken, tr
from figures.report import kept
from figures.report.convert import to_html
from figures.report.notes import NAME as NOTES
from figures.report.pandoc import executable
from figures.report.tables import literal, markdown

SOURCE, PAGE, PLAN = "report.md", "index.html", "plan.json"


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
    files.usable(out)
    for name in (SOURCE, PAGE, PLAN):
        if kept.edited(out / name):
            raise FileExistsError(
                f"{files.one_line(out / name)} was edited, or is of another command, and is never "
                "overwritten: move it, or give another --out"
            )


def build(found: Found, out: Path, *, command: str) -> list[Path]:
    """Write the page and all beside it; return the page, its source and the plan.

    Parameters
    ----------
    found : Found
    out : Path
    command : str
        As it was given.

    Raises
    ------
    FileExistsError
        A file was edited since, see `usable`.
    """
    usable(out)
    for name, table, drawn, said in (
        ("map", found.advice, model.draw_map(found), model.caption_map(found)),
        (
            "frontier", model.frame(found), model.draw_frontier(found),
            model.caption_frontier(found),
        ),
    ):  # fmt: skip
        style.save(name, table, drawn, out, ("svg", "png"), said, said)
    kept.describe(out, {"command": command, **found.about})
    with kept.recorded(out, PLAN) as path:
        found.plan.write(path)
    with kept.recorded(out, SOURCE) as path:
        path.write_text(source(found, out, command), encoding="utf-8")
    with kept.recorded(out, PAGE) as path:
        to_html(out / SOURCE, path, notes=out / NOTES)
    return [out / PAGE, out / SOURCE, out / PLAN]


def source(found: Found, out: Path, command: str) -> str:
    """Return the page as pandoc's Markdown; every number is one that was found."""
    facts, about = found.plan.facts, found.about
    quoted = literal(model.title(found)).replace("\\", "\\\\").replace('"', '\\"')
    sentences = [f"  {i}. {literal(one)}" for i, one in enumerate(model.summary(found), 1)]
    language = "zh-CN" if spoken() == "zh" else "en"
    parts = [
        "\n".join(
            ["---", f'title: "{quoted}"', f"lang: {language}", "abstract: |", *sentences, "---"]
        ),
        _section(tr("Each head by itself")),
        tr(
            "@fig:map shows what serves each head, @tbl:advice counts the methods. The error is "
            "the total variation of the attention weights, tv: 0 is exact, 1 is all on the wrong "
            "keys. A method is advised where its tv is below half of uniform attention's."
        ),
        _figure("map", model.caption_map(found)),
        _table(
            "advice", tr("What serves heads by themselves"), markdown(model.advice_table(found))
        ),
        _section(tr("All heads together: price and damage")),
        tr(
            "What a head's error does to the model depends on the head. The plan (@tbl:plan) gives "
            "each head the method and size with which the predicted damage of all is least at the "
            "average price; @fig:frontier and @tbl:frontier say what that does to the model at "
            "other prices. It need not agree with the map above, which looks at a head's attention "
            "and not at what the model makes of it."
        ),
        literal(model.enough(found)),
        _table("plan", tr("What the plan is made of"), markdown(model.plan_table(found))),
        _figure("frontier", model.caption_frontier(found)),
        _table("frontier", tr("Price and damage"), markdown(model.frontier_table(found))),
        _section(tr("Where the next word changes")),
        *_changes(found),
        _section(tr("What to do")),
        *_advised(found, out),
        _section(tr("Where the numbers come from")),
        _provenance(about, facts["tokens"]),
        f"    {command}",
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def _section(name: str) -> str:
    return f"# {name}"


def _figure(name: str, caption: str) -> str:
    return f"![{literal(caption)}](figures/{name}.svg){{#fig:{name} width=100%}}"


def _table(name: str, caption: str, table: str) -> str:
    return f"{table}\n\n: {literal(caption)} {{#tbl:{name}}}"


def _changes(found: Found) -> Iterable[str]:
    """Return the places where the next word is another one."""
    yield (
        tr(
            "At {differing} of {positions} positions the plan thinks another word the likeliest. "
            "Here are the one where it moves most, the one in the middle, and the one where it "
            "moves least; words are tokens of the model, and a percentage is what each gives its "
            "own word.",
            differing=found.differing,
            positions=found.positions,
        )
        if found.changes
        else tr(
            "At {differing} of {positions} positions the plan thinks another word the likeliest.",
            differing=found.differing,
            positions=found.positions,
        )
    )
    for change in found.changes:
        yield f"> … {literal(change.before)} **▁**"
        yield _three(change)


def _three(change: Change) -> str:
    return tr(
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


def _advised(found: Found, out: Path) -> Iterable[str]:
    """Return what to do with what was found."""
    plan = shlex.quote(str(out / PLAN))
    yield tr(
        "`plan.json` beside this page has a method for every head, and says what it costs and "
        "does. To measure it on another text, or to choose one at another price:"
    )
    yield (
        f"    expqk substitute MODEL_DIR TEXT --plan {plan}\n"
        f"    expqk plan MODEL_DIR TEXT --budget {2 * found.plan.facts['budget']:g}"
        f"{_currency(found)} --out plan.json"
    )
    layer, head = min(found.plan.heads, default=(0, 0))
    yield tr(
        "To look at one head more closely, and to make this page anew after editing its source:"
    )
    yield (
        f"    expqk capture MODEL_DIR TEXT --heads {layer}.{head} --out head.npz\n"
        "    expqk diagnose head.npz\n"
        f"    expqk report --rebuild --out {shlex.quote(str(out))}"
    )


def _currency(found: Found) -> str:
    counted = found.plan.facts["currency"]
    return "" if counted == "reads" else f" --currency {counted}"


def _provenance(about: dict[str, object], tokens: int) -> str:
    """Return the line that says what was computed with what, and when."""
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
        tokens=tokens,
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
