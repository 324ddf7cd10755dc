"""``expqk theory``."""

import argparse
import math
import sys

import pandas as pd

from analysis.bounds import theory
from analysis.costs.budget import KEYS
from analysis.inputs import Head
from analysis.runs import engines
from analysis.runs.tasks import Application
from analysis.sentences import power_of_ten
from figures.command import options
from figures.show.diagnosis import HEAD, mask_name
from figures.words.terminal_columns import COLUMNS, aligned, wrap
from figures.words.translation import mark, speaking, tr

EXAMPLES = ("expqk theory qk.npz",)
MORE = "Bounds, whether the head meets their hypotheses, and what is measured beside them."
SHOWN = 8  # heads that have a table of their own
NAMES = (
    mark("theory"), mark("value"), mark("asks"), mark("met"), mark("predicted"), mark("measured"),
)  # fmt: skip
OVER_HEADS = mark("theory"), mark("met"), mark("value"), mark("predicted"), mark("measured")


def add(parser: argparse.ArgumentParser) -> None:
    options.add_file(parser)
    options.add(parser, "lang", "seed", "jobs")
    options.add(parser, "json", help="one object per (layer, head, theorem)")


def run(arguments: argparse.Namespace) -> int:
    chosen, jobs = options.heads_of_file(arguments)
    heads = [x.at_temperature(arguments.temperature) for each in chosen for x in each.heads()]
    pieces = [Application(_theory, (x, arguments.seed)) for x in heads]
    tables = engines.results(pieces, jobs=jobs, progress=sys.stderr.isatty(), label="heads")
    with speaking(arguments.lang):
        options.show(arguments, pd.concat(tables, ignore_index=True), _text)
    return 0


def _theory(x: Head, seed: int) -> pd.DataFrame:
    return theory.predictions(x, keys=min(KEYS, x.n, x.l), seed=seed)


def _text(table: pd.DataFrame) -> str:
    """Return a table per head, or medians where there are many, and what the theories say."""
    heads = list(table.groupby(HEAD, sort=False))
    parts = [_head(part) for _, part in heads] if len(heads) <= SHOWN else []
    if len(heads) > 1:
        parts.append(_over_heads(table, len(heads)))
    if len(heads) > SHOWN:
        parts.append(tr("Of more than {shown} heads, --json has each.", shown=SHOWN))
    return "\n\n".join([*parts, _legend(table)])


def _medians(table: pd.DataFrame) -> list[tuple[str, int, float, float, float]]:
    """Return of each theory in how many heads its hypothesis is met, and medians over heads."""
    found = []
    for name, part in table.groupby("theory", sort=False):
        numbers = (float(part[column].median()) for column in ("value", "predicted", "measured"))
        value, predicted, measured = numbers
        found.append((str(name), int(part.met.sum()), value, predicted, measured))
    return found


def _head(part: pd.DataFrame) -> str:
    first = part.iloc[0]
    title = tr(
        "{input}: n = {n}, d = {d}, mask {mask}",
        input=first.input, n=first.n, d=first.d, mask=mask_name(first["mask"]),
    )  # fmt: skip
    rows = [
        (
            tr(row["theory"]), _number(row["value"]),
            f"{row['number']:.3g} < {row['limit']:.3g}" if math.isfinite(row["limit"]) else "",
            tr("yes") if row["met"] else tr("no"), _number(row["predicted"]),
            _number(row["measured"]),
        )
        for row in part.to_dict("records")
    ]  # fmt: skip
    return "\n".join([title, aligned([tuple(map(tr, NAMES)), *rows], cut=0)])


def _over_heads(table: pd.DataFrame, count: int) -> str:
    rows = [
        (tr(name), tr("{met} of {heads}", met=met, heads=count), *map(_number, numbers))
        for name, met, *numbers in _medians(table)
    ]
    drawn = aligned([tuple(map(tr, OVER_HEADS)), *rows], cut=0)
    return "\n".join([tr("Medians over {count} heads:", count=count), drawn])


def _legend(table: pd.DataFrame) -> str:
    first = table.iloc[0]
    lines = wrap(
        tr(
            "ε = {epsilon:g}, k = {keys}. met: whether this head, at this size, meets the "
            "hypothesis. One head cannot decide what holds as n grows or up to a constant; "
            "the constant is taken as 1.",
            epsilon=first.epsilon,
            keys=first["keys"],
        ),
        COLUMNS,
    )
    for row in table.drop_duplicates("theory").to_dict("records"):
        said = tr(
            "{name}: {quantity}. Bound: {bound}. It asks: {hypothesis}. Compared: {compared}. "
            "{source}.",
            name=tr(row["theory"]), quantity=tr(row["quantity"]), bound=tr(row["bound"]),
            hypothesis=tr(row["hypothesis"]), compared=tr(row["compared"]), source=row["source"],
        )  # fmt: skip
        lines += ["", *wrap(said, COLUMNS)]
    return "\n".join(lines)


def _number(value: float) -> str:
    """Return a number as the table shows it.

    Examples
    --------
    >>> _number(0.02617), _number(3e24), _number(math.nan), _number(math.inf)
    ('0.0262', '10^24.5', '–', 'none')
    """
    if math.isnan(value):
        return "–"
    return tr("none") if math.isinf(value) else power_of_ten(value)
