"""``expqk target``."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.advice.target import by_method, cheapest, choices, needed
from analysis.runs import output_files
from approx.sparse.exact import Exact
from figures.command import options
from figures.drawing import looks
from figures.show import price_line, scarcity
from figures.show.diagnosis import HEAD, head_name, left_out, masks, names_of, section
from figures.words.amounts import UNITS
from figures.words.numbers import percent, three_digits
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import mark, speaking, tr

EXAMPLES = ("expqk target qk.npz --tv 0.1",)
ERRORS = {  # option → metric of `analysis.advice.target`, and its help
    "tv": ("attention_tv", "of the attention weights: their total variation, such as 0.1"),
    "output": ("output_relative_error", "of the output P V, relative; FILE has v"),
    "kl": ("attention_kl", "of the attention weights: KL(exact ‖ estimate)"),
    "kl-reverse": ("attention_kl_reverse", "of the attention weights: KL(estimate ‖ exact)"),
    "frobenius": ("attention_relative_frobenius", "of the attention weights: relative Frobenius"),
    "kernel-frobenius": ("kernel_relative_frobenius", "of exp(q·k): relative Frobenius"),
    "kernel-max": ("kernel_relative_max", "of exp(q·k): largest entry, relative"),
}
HEADS = (
    mark("head"), mark("cheapest"), mark("size"), mark("error"), mark("price"), mark("all logits"),
    mark("price"),
)  # fmt: skip
METHODS = (
    mark("method"), mark("cheapest"), mark("reached"), mark("size"), mark("price"), mark("spec"),
)  # fmt: skip
NAME = 24  # columns of a method's name
MOST_SPECS = 12  # heads whose specs are written out, to be pasted
EXACT = str(Exact())


def add(parser: argparse.ArgumentParser) -> None:
    options.add_file(parser)
    group = parser.add_argument_group("the largest error, one of")
    allowed = group.add_mutually_exclusive_group(required=True)
    for name, (_, about) in ERRORS.items():
        allowed.add_argument(f"--{name}", type=float, metavar="E", help=about)
    options.add(parser, "currency", "method", "references", "trials", "rows")
    options.add(parser, "lang", "seed", "jobs", "scheduler")
    options.add(parser, "json", help="one object per (layer, head, method)")
    about = "folder for the table and the finished heads; a stopped run continues there"
    options.add(parser, "out", help=about)


def run(arguments: argparse.Namespace) -> int:
    options.refuse_idle(arguments, "method", "references")
    if arguments.out is not None:
        from figures.drawing import style
        from figures.show import price_figure

        output_files.usable(arguments.out, style.files("needed"))
    errors = {m: getattr(arguments, name.replace("-", "_")) for name, (m, _) in ERRORS.items()}
    ((metric, target),) = ((m, error) for m, error in errors.items() if error is not None)
    asked = options.measured(arguments) | {"target": target, "metric": metric}
    with speaking(arguments.lang):
        table = needed(**asked, progress=sys.stderr.isatty())
        options.show(arguments, table, _text)
        if arguments.out is not None:
            print(style.save_table("needed", table, arguments.out), file=sys.stderr)
            known = choices(table)
            labels = known.method.map(_names(table))
            drawn = price_figure.draw(
                known.assign(name=labels), "bytes", limit=known.bytes_read.min(),
                about=tr("bytes held"),
            )  # fmt: skip
            print(price_figure.write(drawn, arguments.out), file=sys.stderr)
    return 0


def _text(table: pd.DataFrame) -> str:
    """Return a line per head, a line per method, what the numbers are, and the specs to paste."""
    best = cheapest(table)
    heads = table.drop_duplicates(HEAD)
    names = _names(table)
    found = by_method(table)
    lines = [_head(row, names) for row in best.itertuples()]
    rows = [_method(row, names) for row in found[found.reached > 0].to_dict("records")]
    every = [tuple(map(tr, HEADS)), *lines]
    shown = every if table.oracle.any() else [line[:-2] for line in every]  # without references
    parts = [
        *_deployed(table, names),
        aligned(shown, wrapped={1: NAME, 5: NAME}),
        aligned([tuple(map(tr, METHODS)), *rows], cut=-1, wrapped={0: NAME}),
    ]
    if never := [names[method] for method in found.method[found.reached == 0]]:
        parts[-1] += "\n" + paragraphs([tr("On no head: {names}.", names=tr(", ").join(never))])
    used = best[best.spec != EXACT]
    pasted = [f'  {head_name(row)}  --method "{row.spec}"' for row in used.itertuples()]
    parts += [
        paragraphs(_legend(best, heads)),
        section(tr("To paste:"), pasted if len(used) <= MOST_SPECS else []),
        section(tr("Not measured:"), left_out(heads.left_out)),
    ]
    return "\n\n".join(filter(None, parts))


def _names(table: pd.DataFrame) -> dict[str, str]:
    some = table.drop_duplicates("method")  # a label needs a size
    labels = names_of(list(some.spec))
    names = {method: labels[spec] for method, spec in zip(some.method, some.spec)}
    return names | {EXACT: tr("exact attention")}


def _deployed(table: pd.DataFrame, names: dict[str, str]) -> Iterator[str]:
    """Yield the methods of which no other reads and holds less, and what to deploy."""
    known, heads = choices(table), len(table.drop_duplicates(HEAD))
    known = known.assign(name=known.method.map(names))
    first = table.iloc[0]
    yield paragraphs([
        tr(
            "No other measured method reads less than these without holding more. read, held: "
            "bytes of all heads that share keys (here {group}), after {tokens} tokens, in the mean "
            "over {heads} heads; where a method does not reach the target, exact attention is "
            "kept. KiB: what their cache holds after more tokens; no error is measured there.",
            heads=heads, group=first.group, tokens=first.l,
        )
    ])  # fmt: skip
    yield price_line.line(
        known, "bytes", tr("reached"), lambda row: tr("{below} of {heads}", below=row.reached,
                                                      heads=heads)
    )  # fmt: skip
    read, held = (known.iloc[int(known[by].argmin())] for by in ("bytes_read", "bytes"))
    exact = known.loc[known.method == EXACT].iloc[0]
    yield paragraphs([
        tr(
            "If bandwidth is scarce: {name}. It reads {share:.0%} of what exact attention reads, "
            "the least of what was measured.",
            name=read["name"], share=read.bytes_read / exact.bytes_read,
        ),
        tr(
            "If memory is scarce: {name}. Its cache holds {share:.0%} of what exact attention's "
            "does, the least of what was measured.",
            name=held["name"], share=held.bytes / exact.bytes,
        ),
        tr("If neither is scarce: exact attention, which has no error."), scarcity.of_heads(),
    ])  # fmt: skip


def _head(row: Any, names: dict[str, str]) -> tuple[str, ...]:
    oracle = names[row.oracle] if row.oracle else "–"
    beside = oracle, percent(row.oracle_share)
    if row.spec == EXACT:
        return head_name(row), tr("not with less than exact"), "", "", percent(row.share), *beside
    error = (
        three_digits(row.error) if row.sure else tr("about {error}", error=three_digits(row.error))
    )
    return (
        head_name(row), names[row.method], _size(row.size), error, percent(row.share), *beside,
    )  # fmt: skip


def _method(row: Mapping[Any, Any], names: dict[str, str]) -> tuple[str, ...]:
    wins = tr(row["standing"]) if row["oracle"] else f"{row['cheapest']}"
    reached = tr("{below} of {heads}", below=row["reached"], heads=row["heads"])
    size, price = _size(row["size"]), percent(row["share"])
    return names[row["method"]], wins, reached, size, price, row["method"]


def _size(value: float) -> str:
    return f"{value:g}" if value == value else ""


def _legend(best: pd.DataFrame, heads: pd.DataFrame) -> Iterator[str]:
    first = heads.iloc[0]
    yield tr(
        "Target {metric} ≤ {target:g}, t = {t:g}, mask {mask}. price: {what}, as a share of "
        "exact attention's. size: the smallest found that reaches the target, in the unit of "
        "the method; if the parts of a method share a budget, in keys.",
        metric=first.metric, target=first.target, t=first.temperature, mask=masks(heads),
        what=tr(UNITS[first.currency]),
    )  # fmt: skip
    yield tr(
        "On {cheaper} of {heads} heads a method that is cheaper than exact attention reaches the "
        "target. The cheapest method that can be run costs a median of {share} of exact attention.",
        cheaper=int((best.spec != EXACT).sum()), heads=len(best),
        share=percent(best.share.median()),
    )  # fmt: skip
    if best.oracle_share.notna().any():
        yield tr(
            "The cheapest reference, which sees all logits, costs a median of {oracle}.",
            oracle=percent(best.oracle_share.median()),
        )
        yield looks.references()
    if not best.sure.all():
        yield tr(
            "about: the mean over draws is below the target, but we are less than 95 % sure "
            "of it. More draws (--trials) would tell."
        )
    if len(sampled := heads[heads.measured < heads.n]):
        yield tr(
            "On {count} heads, {measured} of {n} queries were measured.",
            measured=sampled.measured.iloc[0], n=sampled.n.iloc[0], count=len(sampled),
        )  # fmt: skip
