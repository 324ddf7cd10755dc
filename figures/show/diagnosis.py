"""The table of `analysis.advice.diagnose` as text."""

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from analysis.advice.caveats import READ
from analysis.advice.diagnose import DryRun
from analysis.advice.measurement import FEW
from analysis.advice.verdict import (
    KEEP,
    OUTPUT,
    TIED,
    USE,
    Advice,
    advice,
    choices,
    gaps,
    is_cheaper,
    metric_of,
)
from analysis.costs.budget import KEYS
from analysis.costs.candidates import TRIVIAL
from analysis.sentences import Sentence, thousandths
from approx import Method, parse
from approx.method import TV
from approx.sparse.exact import Exact
from figures.drawing import looks
from figures.show import price_line, scarcity
from figures.words import amounts
from figures.words.numbers import percent, three_digits
from figures.words.terminal_columns import COLUMNS, aligned, indented, paragraphs, short, wrap
from figures.words.translation import mark, tr

HEAD = ["input", "layer", "head"]
EXACT = str(Exact())
NAME = 25  # columns of a method's name in a table
MOST_OTHERS = 12  # heads that are listed because another method has less of the other error
ABOUT = {TV: mark("total variation"), OUTPUT: mark("relative output error")}
HEADS = (
    mark("head"), mark("use"), mark("best possible"), mark("measured"), mark("guaranteed"),
    mark("output"), mark("uniform"), mark("margin"), mark("all logits"),
)  # fmt: skip
BY_OUTPUT = mark("head"), mark("use"), mark("output"), mark("tv"), *HEADS[6:]
TWO_LINES = "all logits", "below uniform", "best possible"
FAMILIES = (
    mark("method"), mark("wins"), mark("tv"), mark("output"), mark("reads"), mark("below uniform"),
    mark("spec"),
)  # fmt: skip
CLASSES = (
    mark("class"), mark("bound"), mark("all logits"), mark("can be run"), mark("gap"),
    mark("best to run"),
)  # fmt: skip
OF_CLASSES = (  # as `Method.class_name` names them
    mark("columns"), mark("pages"), mark("lines"), mark("window"), mark("entries"),
    mark("sampled"), mark("hierarchical"), mark("compressed logits"), mark("sparse + low rank"),
    mark("low rank"),
)  # fmt: skip
MASKS = mark("full"), mark("causal"), mark("intervals")  # as `Mask` names itself
MOST_MARGIN = 99
SLACK = 1e-6  # relative: an error so near the bound, which is rounded down, counts as equal


def _said(sentence: Sentence) -> str:
    return tr(sentence.message, **sentence.values)


def plan(dry: DryRun) -> str:
    """Return the methods that would be measured, and about how long it takes."""
    first = tr(
        "{count} methods on {heads} heads, about {seconds:.0f} s:",
        count=len(dry.methods), heads=dry.heads, seconds=dry.seconds,
    )  # fmt: skip
    parts = [first, *(line for spec in dry.methods for line in indented(spec))]
    absent = section(tr("Not measured:"), left_out([dry.left_out]))
    return "\n".join(filter(None, [*parts, absent]))


def text(table: pd.DataFrame) -> str:
    """Return what to deploy, a line per head, a line per method, specs to paste, and warnings."""
    advised = advice(table)
    heads = table.drop_duplicates(HEAD)
    names = names_of(list(dict.fromkeys(table.spec)))
    lines = [_head(row, one, names) for row, one in zip(heads.itertuples(), advised)]
    titles = HEADS if metric_of(table) == TV else BY_OUTPUT
    parts = [
        *deployed(table, names),
        aligned(_known([_titles(titles), *lines]), wrapped={1: NAME}),
        aligned(_known([_titles(FAMILIES), *_families(table, names)]), cut=-1, wrapped={0: NAME}),
    ]
    if table.oracle.any() and (classes := _classes(table, names)):
        shown = _known([tuple(map(tr, CLASSES)), *classes])
        parts.append(aligned(shown, wrapped={len(shown[0]) - 1: NAME}))
    parts += [
        paragraphs(_legend(table, advised)), "\n".join(_others(heads, advised, names)),
        section(tr("To paste:"), _specs(advised)),
        section(tr("Not measured:"), left_out(heads.left_out)),
        section(tr("Warnings (number of heads):"), _warnings(table, names)),
    ]  # fmt: skip
    return "\n\n".join(filter(None, parts))


def deployed(table: pd.DataFrame, names: dict[str, str]) -> Iterator[str]:
    """Yield the methods that nothing cheaper beats, and what to deploy; nothing without exact."""
    if (known := runnable_choices(table, names)) is None:
        return
    metric, first = metric_of(table), table.iloc[0]
    yield paragraphs([
        tr(
            "No other measured method that reads as little has less error (median over {heads} "
            "heads). read, held: bytes of all heads that share keys (here {group}), after {tokens} "
            "tokens. KiB: what their cache holds after more tokens; no error is measured there.",
            heads=len(table.drop_duplicates(HEAD)), group=first.group, tokens=first.l,
        )
    ])  # fmt: skip
    title = tr(scarcity.ERRORS[metric])
    yield price_line.line(known, metric, title, lambda row: three_digits(getattr(row, metric)))
    said = scarcity.sentences(known, limit(table), metric)
    yield paragraphs([*said, scarcity.of_heads()])


def limit(table: pd.DataFrame) -> float:
    """Return the budget, or as many bytes as 32 exact keys have if it does not count bytes."""
    first = table.iloc[0]
    if first.currency in ("bytes", "bytes_read"):
        return float(first.budget)
    return float(KEYS / first.l * first.exact_bytes_read)


def runnable_choices(table: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame | None:
    """Return the methods that all heads can run, with exact attention; None if it is not there."""
    if EXACT not in set(table.spec):
        return None
    known = choices(table)
    about = known.about.map({True: "≈ ", False: ""})
    return known.assign(name=about + known.spec.map(names))


def section(title: str, lines: Sequence[str]) -> str:
    """Return lines below a title, "" if there are none."""
    return "\n".join([title, *lines]) if lines else ""


def _titles(names: Sequence[str]) -> tuple[str, ...]:
    """Return the titles of columns; long ones of two words have two lines."""
    return tuple(tr(name).replace(" ", "\n") if name in TWO_LINES else tr(name) for name in names)


def _known(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return a table without errors of the output, bounds and guarantees, where there are none."""
    columns = list(zip(*rows))
    optional = set(_titles(("output", "bound", "best possible", "guaranteed")))
    kept = [one for one in columns if one[0] not in optional or set(one[1:]) != {"–"}]
    return list(zip(*kept))


def _legend(table: pd.DataFrame, advised: list[Advice]) -> Iterator[str]:
    """Yield what the numbers are, and why exact attention is kept."""
    heads = table.drop_duplicates(HEAD)
    metric, known = metric_of(table), table.get(OUTPUT, pd.Series(math.nan)).notna().any()
    yield tr(
        "Budget {budget}, t = {t:g}, mask {mask}.",
        budget=amounts.budget(heads), t=heads.temperature.iloc[0], mask=masks(heads),
    )  # fmt: skip
    if metric == OUTPUT:
        yield tr(
            "Ranked by output, the relative error of the output P V. The columns uniform, "
            "margin and all logits are also errors of the output. tv: total variation of the "
            "attention weights. Both errors are medians over draws. Lower bounds and "
            "guarantees are known for tv only."
        )
    else:
        yield tr(
            "measured: total variation (tv) of the attention weights, median over draws. "
            "best possible: a lower bound on the tv of every method of this class with equal "
            "storage."
        )
        if any(math.isfinite(one.guaranteed) for one in advised):
            yield tr(
                "guaranteed: an upper bound on the tv that the estimate proves from what it "
                "read. It is shown where it is at most half of uniform attention's tv."
            )
        if known:
            yield tr(
                "output: the relative error of the output P V, median over draws. The order "
                "by output can differ from the order by tv; --metric output ranks by output."
            )
    if table.screened.any():
        yield tr(
            "≈: on some heads, {queries} queries show that the method cannot win; there it "
            "is measured on these queries only.",
            queries=FEW,
        )
    yield tr(
        "reads: numbers read for one new query, as a share of exact attention's. margin: the "
        "error of the second best over the best. all logits: the error of the best "
        "reference, which sees all logits; --references measures it."
    )
    references = table.oracle.any()
    if references:
        yield looks.references()
    if references and metric == OUTPUT:
        yield tr(
            "Classes, medians over heads: the best reference, which sees all logits; the "
            "best method that can be run; the gap between them."
        )
    elif references:
        yield tr(
            "Classes, medians over heads: the lower bound of the class; the best reference, "
            "which sees all logits (= if it is the bound, ≤ if it is the best found); the "
            "best method that can be run; the gap between the last two, which a better "
            "choice could still close."
        )
    if len(sampled := heads[heads.measured < heads.n]):
        yield tr(
            "On {count} heads, {measured} of {n} queries were measured. The largest standard "
            "error of a winner's {error} is {stderr:.2g}.",
            error=tr(ABOUT[metric]), measured=sampled.measured.iloc[0], n=sampled.n.iloc[0],
            count=len(sampled), stderr=table[table.winner][f"{metric}_stderr"].max(),
        )  # fmt: skip
    counts = Counter(one.verdict for one in advised)
    yield tr(
        "Heads: {use} with a method to use, {tie} with a tie between two, {keep} that keep "
        "exact attention.",
        use=counts[USE], tie=counts[TIED], keep=counts[KEEP],
    )  # fmt: skip
    if bought := int((heads.budget >= heads.exact_price).sum()):
        least, most = (f"{x:.4g}" for x in (heads.exact_price.min(), heads.exact_price.max()))
        price = least if least == most else f"{least}–{most}"
        yield tr(
            "In {bought} of {heads} heads the budget pays for exact attention, which costs "
            "{price}, so there is nothing to approximate. Choose a smaller budget.",
            bought=bought, heads=len(heads),
            price=amounts.amount_text(price, amounts.currency(heads)),
        )  # fmt: skip
    best = table[table.winner & (table.budget < table.exact_price)].to_dict("records")
    if dear := sum(not is_cheaper(row) for row in best):
        yield tr(
            "Exact attention is kept in {dear} of {heads} heads because the best method "
            "saves storage only, and none of the other known costs.",
            dear=dear, heads=len(heads),
        )  # fmt: skip
    if counts[KEEP] > bought + dear:
        yield tr(
            "Exact attention is kept where no method that can be run under the mask has less "
            "than the accepted share of uniform attention's error."
        )


def _others(heads: pd.DataFrame, advised: list[Advice], names: dict[str, str]) -> list[str]:
    """Return the heads on which the other error has another winner, and both errors of both."""
    apart = [(row, one) for row, one in zip(heads.itertuples(), advised) if one.other.spec]
    if not apart:
        return []
    said = {
        TV: mark(
            "On {count} of {heads} heads another method has a smaller output error than the winner:"
        ),
        OUTPUT: mark(
            "On {count} of {heads} heads another method has a smaller tv than the winner:"
        ),
    }[advised[0].metric]
    lines = wrap(tr(said, count=len(apart), heads=len(advised)), COLUMNS)
    for row, one in apart[:MOST_OTHERS]:
        said = tr(
            "{other}: output {other_output}, tv {other_tv}; {winner}: output {output}, tv {tv}",
            other=names[one.other.spec], other_output=three_digits(one.other.output_relative_error),
            other_tv=three_digits(one.other.attention_tv), winner=names[one.winner],
            output=three_digits(one.output_relative_error), tv=three_digits(one.attention_tv),
        )  # fmt: skip
        lines += indented(said, f"  {head_name(row)}  ")
    if (more := len(apart) - MOST_OTHERS) > 0:
        lines += wrap(tr("And {more} more: --json has every error.", more=more), COLUMNS)
    return lines


def _classes(table: pd.DataFrame, names: dict[str, str]) -> list[tuple[str, ...]]:
    """Return a row a class that has a bound or needs all logits, the nearest to run first."""
    found, metric = gaps(table), metric_of(table)
    oracle, best = f"oracle_{metric}", f"best_{metric}"
    found = found[(found.oracle != "") | found.bound.notna()]
    rows = []
    for name, part in found.groupby("class", sort=False):
        runs = part[part.best != ""]
        label = names[runs.best.mode().iloc[0]] if len(runs) else "–"
        sign = "= " if (part[oracle] <= part.bound * (1 + SLACK)).all() else "≤ "
        sign = sign if metric == TV else ""
        rows.append((str(name), part.median(numeric_only=True), sign, label))
    rows.sort(key=lambda row: (math.isnan(row[1][best]), row[1][best]))
    return [
        (
            tr(name), three_digits(middle.bound),
            sign + three_digits(middle[oracle]) if middle[oracle] >= 0 else "–",
            three_digits(middle[best]), three_digits(middle.gap), label,
        )
        for name, middle, sign, label in rows
    ]  # fmt: skip


def masks(heads: pd.DataFrame) -> str:
    """Return the masks of heads."""
    return tr(", ").join(sorted(map(mask_name, set(heads["mask"]))))


def mask_name(name: str) -> str:
    """Return the name of a mask in the language in force."""
    width = re.fullmatch(r"window\((\d+)\)", name)
    return tr("window({width})", width=width[1]) if width else tr(name)


def _specs(advised: list[Advice]) -> list[str]:
    """Return the winners that are advised as options of the command line, most frequent first."""
    won = pd.Series([one.winner for one in advised if one.verdict != KEEP], dtype=str)
    return [
        tr("{name} ({count})", name=f'  --method "{spec}" ', count=tr("heads: {count}", count=n))
        for spec, n in won.value_counts().items()
    ]


def left_out(heads: Iterable[Sequence[Sentence]]) -> list[str]:
    """Return why methods were not measured, each reason once with its methods."""
    reasons: dict[tuple[Any, ...], dict[str, None]] = {}
    for one in itertools.chain.from_iterable(heads):
        known = tuple(item for item in one.values.items() if item[0] != "spec")
        specs = reasons.setdefault((one.message, known), {})
        specs[one.values["spec"]] = None
    lines = []
    for (message, known), specs in reasons.items():
        names = dict.fromkeys(map(looks.label, specs) if len(specs) > 1 else specs)
        lines += indented(tr(message, spec=tr(", ").join(names), **dict(known)))
    return lines


def _head(row: Any, one: Advice, names: dict[str, str]) -> tuple[str, ...]:
    margin = "–" if one.margin != one.margin else f"{one.margin:.2f}×"
    margin = margin if not one.margin > MOST_MARGIN else f"> {MOST_MARGIN}×"
    output = three_digits(one.output_relative_error)
    errors: tuple[str, ...] = output, three_digits(one.attention_tv)
    if one.metric == TV:
        three = one.bound, one.attention_tv, one.guaranteed
        errors = *(thousandths(x) if math.isfinite(x) else "–" for x in three), output
    return (
        head_name(row), _use(one, names), *errors, three_digits(one.uniform.error(one.metric)),
        tr("tie") if one.verdict == TIED else margin, three_digits(one.oracle.error(one.metric)),
    )  # fmt: skip


def head_name(row: Any) -> str:
    """Return layer.head, or the name of inputs without them."""
    return short(str(row.input), 12) if row.layer < 0 else f"{row.layer}.{row.head}"


def _use(one: Advice, names: dict[str, str]) -> str:
    if one.verdict != KEEP:
        return names[one.winner]
    return tr("keep exact ({name})", name=names[one.winner]) if one.winner else tr("keep exact")


def names_of(specs: Sequence[str]) -> dict[str, str]:
    """Return the label of each spec; those that share one say in which fields they differ."""
    alike: dict[str, dict[str, dict[str, Any]]] = {}
    for spec in specs:
        alike.setdefault(looks.label(spec), {})[spec] = _fields(parse(spec))
    named = {}
    for label, some in alike.items():
        for spec, own in some.items():
            others = [fields for other, fields in some.items() if other != spec]
            apart = [
                f"{name}={value}"
                for name, value in own.items()
                if any(fields.get(name) != value for fields in others)
            ]
            named[spec] = tr(", ").join([label, *apart]) if apart or not others else spec
    return named


def _fields(method: Method) -> dict[str, Any]:
    """Return the fields of a method and its parts that are not their defaults."""
    known: dict[str, Any] = {}
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        value = getattr(method, field.name)
        if isinstance(value, Method):
            known |= _fields(value)
        elif value != field.default:
            known[field.name] = value
    return known


def _families(table: pd.DataFrame, names: dict[str, str]) -> list[tuple[str, ...]]:
    """Return a row a method: heads it wins, median errors, heads where it is below uniform."""
    metric, reads = metric_of(table), READ if READ in table else "reads"
    uniform = table[table.spec == TRIVIAL].set_index(HEAD)[metric]
    of_head = uniform.reindex(pd.MultiIndex.from_frame(table[HEAD])).to_numpy()
    every = table.assign(
        below=table[metric] < of_head, share=table[reads] / table[f"exact_{reads}"],
        affordable=table.get("affordable", True), output=table.get(OUTPUT, math.nan),
    ).groupby("spec")  # fmt: skip
    middles = every[["attention_tv", "negative_fraction", "share", "output"]].median()
    facts = every.agg(
        wins=("winner", "sum"), below=("below", "sum"), heads=("below", "size"),
        runnable=("runnable", "any"), affordable=("affordable", "any"),
        screened=("screened", "any"), oracle=("oracle", "all"), standing=("standing", "first"),
    )  # fmt: skip
    by = "output" if metric == OUTPUT else metric
    rows = middles.join(facts).sort_values(by, kind="stable")
    return [_family(row, names) for row in rows.itertuples()]


def _family(row: Any, names: dict[str, str]) -> tuple[str, ...]:
    wins = tr(row.standing) if row.oracle else f"{row.wins}"
    wins = wins if row.affordable else tr("above budget")
    signed = row.attention_tv > 1 and row.negative_fraction > 0
    about = "≈ " if row.screened else ""
    return (
        names[row.Index],
        wins if row.runnable or row.oracle else tr("not causal"),
        tr("not a distribution") if signed else about + three_digits(row.attention_tv),
        three_digits(row.output),
        percent(row.share),
        tr("{below} of {heads}", below=row.below, heads=row.heads),
        row.Index,
    )


def _warnings(table: pd.DataFrame, names: dict[str, str]) -> list[str]:
    """Return each kind of warning with its methods, and how many heads have it for one of them.

    A kind is a warning without its numbers; where these differ, those of one head are an example.
    """
    rows = table[~table.oracle]
    kinds: dict[str, tuple[dict[str, None], dict[str, set[tuple[Any, ...]]]]] = {}
    heads = zip(rows.input, rows.layer, rows["head"])
    for head, spec, warnings in zip(heads, rows.spec, rows.warnings):
        for sentence in warnings:
            told, methods = kinds.setdefault(sentence.message, ({}, {}))
            told[_said(sentence)] = None
            methods.setdefault(names[spec], set()).add(head)
    counts = {kind: len(set().union(*methods.values())) for kind, (_, methods) in kinds.items()}
    lines = []
    for kind in sorted(kinds, key=lambda kind: -counts[kind]):
        told, methods = kinds[kind]
        of = tr(", ").join(
            tr("{name} {count}", name=name, count=len(some))
            for name, some in sorted(methods.items(), key=lambda item: -len(item[1]))
        )
        first, *others = told
        what = tr("for example, {what}", what=first) if others else first
        said = tr("{what}: {methods}", what=what, methods=of)
        lines += indented(said, f"  {counts[kind]:3d}  ")
    return lines
