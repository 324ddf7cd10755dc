"""What theory says of every head of a language model: ``python -m studies.lm.theory FILE``.

FILE is of ``expqk capture`` or ``python -m studies.lm``. On how many heads each hypothesis is met,
and medians of what is predicted and measured, go into ``--summary``.
"""

from __future__ import annotations

import argparse
import datetime
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import tqdm

from analysis import inputs
from analysis.bounds import theory
from figures.show.theories import number


def markdown(table: pd.DataFrame) -> str:
    """Return a row a theory: how many heads meet its hypothesis, quartiles, and what it says."""
    heads = len(table.drop_duplicates(["layer", "head"]))
    lines = [
        f"| theory | met (of {heads}) | value | predicted | measured | value is | predicted and "
        "measured are |",
        "|---" * 7 + "|",
    ]
    for name, part in table.groupby("theory", sort=False):
        cells = [_quartiles(part[column]) for column in ("value", "predicted", "measured")]
        first = part.iloc[0]
        lines.append(
            f"| {name} | {int(part.met.sum())} | {' | '.join(cells)} | {_cell(first.quantity)} "
            f"| {_cell(first.compared)} |"
        )
    lines.append("")
    for name, part in table.groupby("theory", sort=False):
        first = part.iloc[0]
        lines.append(f"- {name}: {first.bound}. It asks: {first.hypothesis}. {first.source}.")
    return "\n".join(lines)


def _cell(said: str) -> str:
    return said.replace("|", "\\|")


def _quartiles(values: pd.Series) -> str:
    """Return the median, with the quartiles; "none" where more than half are infinite."""
    low, middle, high = (
        float(values.quantile(share, interpolation="nearest")) for share in (0.25, 0.5, 0.75)
    )
    if math.isnan(middle):
        return ""
    return f"{number(middle)} ({number(low)} to {number(high)})"


def main(argv: Sequence[str] | None = None) -> None:
    """Ask every head of a file, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.lm.theory", description=__doc__)
    parser.add_argument("file", type=Path, help="Q, K and V of a language model")
    parser.add_argument("--tokens", type=int, default=256, help="the first ones [256]")
    parser.add_argument("--summary", type=Path, required=True, help="a .md file")
    arguments = parser.parse_args(argv)
    heads = list(inputs.load(arguments.file).heads())
    parts = [
        theory.of(x.first(min(arguments.tokens, x.n)))
        for x in tqdm.tqdm(heads, "heads", file=sys.stderr)
    ]
    table = pd.concat(parts, ignore_index=True)
    arguments.summary.write_text(page(table, arguments.file.stem), encoding="utf-8")
    print(arguments.summary)


def page(table: pd.DataFrame, file: str) -> str:
    """Return the table with what was measured, and when."""
    first, today = table.iloc[0], datetime.datetime.now(datetime.UTC).date()
    heads = len(table.drop_duplicates(["layer", "head"]))
    return (
        f"What theory says of {heads} heads of {file}, {first.n} tokens, ε = {first.epsilon:g}, "
        f"k = {first['keys']}, measured on {today}; medians (quartiles):\n\n{markdown(table)}\n"
    )


if __name__ == "__main__":
    main()
