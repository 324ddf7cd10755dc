"""Predictions of theory for every head of a language model: ``python -m studies.lm.theory FILE``.

``expqk capture`` or ``python -m studies.lm`` writes FILE. The number of heads that meet each
hypothesis, and medians of predicted and measured values, are written into ``--summary``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import pandas as pd
import tqdm

from analysis.bounds import theory
from figures.show.theories import number
from studies.lm import pages


def markdown(table: pd.DataFrame) -> str:
    """Return a row per theory: heads that meet its hypothesis, quartiles, and its prediction."""
    heads = len(table.drop_duplicates(pages.HEAD))
    titles = (
        "theory", f"met (of {heads})", "value", "predicted", "measured", "value is",
        "predicted and measured are",
    )  # fmt: skip
    rows, lines = [], []
    for name, part in table.groupby("theory", sort=False):
        first = part.iloc[0]
        cells = [_quartiles(part[column]) for column in ("value", "predicted", "measured")]
        rows.append(
            (name, int(part.met.sum()), *cells, _cell(first.quantity), _cell(first.compared))
        )
        lines.append(f"- {name}: {first.bound}. It asks: {first.hypothesis}. {first.source}.")
    return "\n".join([pages.table(titles, rows), "", *lines])


def _cell(said: str) -> str:
    return said.replace("|", "\\|")


def _quartiles(values: pd.Series) -> str:
    """Return the median with the quartiles; "none" if more than half are infinite."""
    low, middle, high = (
        float(values.quantile(share, interpolation="nearest")) for share in (0.25, 0.5, 0.75)
    )
    if math.isnan(middle):
        return ""
    return f"{number(middle)} ({number(low)} to {number(high)})"


def main(argv: Sequence[str] | None = None) -> None:
    """Compute the predictions for every head of a file, and write the table."""
    parser = pages.parser(".theory", __doc__)
    pages.add_heads(parser, None, 256)
    arguments = parser.parse_args(argv)
    heads = tqdm.tqdm(pages.heads(arguments), "heads", file=sys.stderr)
    table = pd.concat([theory.predictions(x) for x in heads], ignore_index=True)
    pages.write(arguments, page(table, arguments.file.stem))


def page(table: pd.DataFrame, file: str) -> str:
    """Return the table with what was measured and when."""
    first, heads = table.iloc[0], len(table.drop_duplicates(pages.HEAD))
    return (
        f"What theory says of {heads} heads of {file}, {first.n} tokens, ε = {first.epsilon:g}, "
        f"k = {first['keys']}, measured on {pages.today()}; medians (quartiles):\n\n"
        f"{markdown(table)}\n"
    )


if __name__ == "__main__":
    main()
