"""What `analysis.advice.target` found, as text: the cheapest way to a target, head by head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.advice.target import cheapest, summary
from approx.sparse.exact import Exact
from figures.show import optimality
from figures.show.diagnosis import head_name, left_out, mask_name, names_of, number, percent
from figures.words.amounts import UNITS
from figures.words.terminal_columns import COLUMNS, aligned, wrap
from figures.words.translation import mark, tr

HEADS = (
    mark("head"), mark("cheapest"), mark("size"), mark("error"), mark("price"), mark("all logits"),
    mark("price"),
)  # fmt: skip
METHODS = (
    mark("method"),
    mark("cheapest"),
    mark("reached"),
    mark("size"),
    mark("price"),
    mark("spec"),
)
NAME = 24  # columns of a method's name
MOST_SPECS = 12  # heads whose specs are written out, to be pasted
EXACT = str(Exact())


def text(table: pd.DataFrame) -> str:
    """Return a line per head, a line per method, what the numbers are, and the specs to paste.

    Parameters
    ----------
    table : DataFrame
        That of `analysis.advice.target.needed`, of one target.
    """
    best = cheapest(table)
    heads = table.drop_duplicates(["input", "layer", "head"])
    some = table.drop_duplicates("method")  # a label needs a size
    labels = names_of(list(some.spec))
    names = {method: labels[spec] for method, spec in zip(some.method, some.spec)}
    found = summary(table)
    lines = [_head(row, names) for row in best.itertuples()]
    rows = [_method(row, names) for row in found[found.reached > 0].to_dict("records")]
    parts = [
        aligned([tuple(map(tr, HEADS)), *lines], wrapped={1: NAME, 5: NAME}),
        aligned([tuple(map(tr, METHODS)), *rows], cut=-1, wrapped={0: NAME}),
    ]
    if never := [names[method] for method in found.method[found.reached == 0]]:
        said = tr("On no head: {names}.", names=tr(", ").join(never))
        parts[-1] += "\n" + "\n".join(wrap(said, COLUMNS))
    parts.append("\n".join(_legend(best, heads)))
    used = best[best.spec != EXACT]
    if 0 < len(used) <= MOST_SPECS:
        pasted = [f'  {head_name(row)}  --method "{row.spec}"' for row in used.itertuples()]
        parts.append("\n".join([tr("To paste:"), *pasted]))
    if reasons := left_out(heads):
        parts.append("\n".join([tr("Not measured:"), *reasons]))
    return "\n\n".join(parts)


def _head(row: Any, names: dict[str, str]) -> tuple[str, ...]:
    oracle = names[row.oracle] if row.oracle else "–"
    beside = oracle, percent(row.oracle_share)
    if row.spec == EXACT:
        return head_name(row), tr("not with less than exact"), "", "", percent(row.share), *beside
    error = number(row.error) if row.sure else tr("about {error}", error=number(row.error))
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


def _legend(best: pd.DataFrame, heads: pd.DataFrame) -> list[str]:
    first = heads.iloc[0]
    kept = int((best.spec == EXACT).sum())
    said = [
        tr(
            "Target {metric} ≤ {target:g}, t = {t:g}, mask {mask}. price: {what}, as a share of "
            "what exact attention costs. size: the smallest found that reaches the target, in the "
            "method's own unit; of a method whose parts share a budget, in keys.",
            metric=first.metric,
            target=first.target,
            t=first.temperature,
            mask=tr(", ").join(sorted(map(mask_name, set(heads["mask"])))),
            what=tr(UNITS[first.currency]),
        ),
        tr(
            "Not with less than exact attention: {kept} of {heads} heads. The cheapest that can be "
            "run costs a median of {share} of exact attention, the cheapest that needs all logits "
            "{oracle}.",
            kept=kept,
            heads=len(best),
            share=percent(best.share.median()),
            oracle=percent(best.oracle_share.median()),
        ),
    ]
    said.append(optimality.words())
    if not best.sure.all():
        said.append(
            tr(
                "about: the mean over draws is below the target, but not with a confidence of "
                "95 %; more draws (--trials) would tell."
            )
        )
    if (sampled := heads[heads.measured < heads.n]).shape[0]:
        said.append(
            tr(
                "Heads of which {measured} of {n} queries were measured: {count}.",
                measured=sampled.measured.iloc[0],
                n=sampled.n.iloc[0],
                count=len(sampled),
            )
        )
    return [line for one in said for line in wrap(one, COLUMNS)]
