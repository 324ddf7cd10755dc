"""The price that heads of a model need for a target: ``python -m studies.lm.needed FILE``.

``expqk capture`` or ``make lm`` writes FILE. For each target a table is written into ``--summary``:
for each method, how often it is the cheapest, its size and its price; references, which need all
logits, are listed, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis import inputs
from analysis.advice.target import by_method, cheapest, needed
from analysis.costs import candidates
from analysis.costs.budget import amount_text
from approx import Method
from approx.method.prices import CURRENCIES
from studies.lm import pages
from studies.lm.pages import HEAD

SLOW = ("godec", "truncated_svd")  # a decomposition of the matrix for each size


def methods(x: inputs.Head) -> list[Method]:
    """Return the candidates under the mask, without the slow ones."""
    return [m for m in candidates.methods(x.mask, references=True) if m.name not in SLOW]


def markdown(table: pd.DataFrame, kinds: pd.Series | None, title: str) -> str:
    """Return the summary of one target as Markdown, with the cheapest methods in words."""
    best, heads = cheapest(table).set_index(HEAD), len(table.drop_duplicates(["input", *HEAD]))
    lower, middle, upper = best.share.quantile([0.25, 0.5, 0.75])
    words = [
        f"Not with less than exact attention: {(best.spec == 'exact()').sum()} of {heads} heads. "
        f"The cheapest that can be run costs a median of {middle:.1%} of exact attention "
        f"(quartiles {lower:.1%} and {upper:.1%}), the cheapest that needs all logits "
        f"{best.oracle_share.median():.1%}."
    ]
    if kinds is not None:
        shares = best.share.groupby(kinds.reindex(best.index))
        listed = (f"{kind} ({len(part)}) {part.median():.1%}" for kind, part in shares)
        words.append(f"Medians by kind of head: {', '.join(listed)}.")
    rows = []
    for row in by_method(table).to_dict("records"):
        numbers = ["–"] * 3
        if row["reached"]:
            size = "" if pd.isna(row["size"]) else f"{row['size']:g}"
            quartiles = f"{row['lower']:.1%}–{row['upper']:.1%}"
            numbers = [size, f"{row['share']:.1%}", quartiles]
        wins = row["standing"] if row["oracle"] else row["cheapest"]
        rows.append((f"`{row['method']}`", wins, row["reached"], row["sure"], *numbers))
    titles = "method", f"cheapest ({heads})", "reached", "sure", "size", "price", "quartiles"
    return "\n\n".join([title, " ".join(words), pages.table(titles, rows)])


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the heads of a file, and write the tables."""
    parser = pages.parser(".needed", __doc__)
    parser.add_argument("file", type=Path, help="Q, K and V of a model")
    parser.add_argument("--name", help="of the model, for the titles [that of FILE]")
    parser.add_argument("--targets", default="0.1,0.05,0.2", help="of tv [0.1,0.05,0.2]")
    parser.add_argument("--currency", choices=CURRENCIES, default="reads", help="[reads]")
    parser.add_argument("--every", type=int, default=1, help="every so many-th head [1]")
    parser.add_argument("--kinds", type=Path, help="a table like analysis/data/smollm2.csv")
    parser.add_argument("--trials", type=int, default=5, help="draws of a random method [5]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [all]")
    arguments = parser.parse_args(argv)
    heads = list(inputs.load(arguments.file).heads())[:: arguments.every]
    table = needed(
        heads,
        [float(target) for target in arguments.targets.split(",")],
        currency=arguments.currency,
        methods=methods(heads[0]),
        trials=arguments.trials,
        jobs=arguments.jobs,
        progress=sys.stderr.isatty(),
    )
    kinds = None if arguments.kinds is None else pages.kinds(pd.read_csv(arguments.kinds))
    parts = []
    for target, part in table.groupby("target", sort=False):
        title = (
            f"{len(heads)} heads of {arguments.name or arguments.file.stem}, {heads[0].n} tokens, "
            f"mask {heads[0].mask}: what tv ≤ {target:g} needs, priced in "
            f"{amount_text('', arguments.currency).strip()}, measured on {pages.date()}:"
        )
        parts.append(markdown(part, kinds, title))
    pages.write(arguments, *parts)


if __name__ == "__main__":
    main()
