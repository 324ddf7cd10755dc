"""The reads that heads need as a text gets longer, measured on its last queries.

``python -m studies.lm.lengths FILE …`` reads files of ``expqk capture --queries R`` for texts of
several lengths. On every head, for methods that a model can run, it searches for the least reads
with a total variation of at most 0.1. A table shows them and the cheapest method.

    python -m studies.lm.lengths out/lm/last64-*.safetensors --summary studies/lm/lengths.md
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import inputs
from analysis.advice.target import cheapest, needed
from approx import parse
from studies.lm import pages
from studies.lm.pages import HEAD

METHODS = (
    "sink_window()",
    "pages(current=True)",
    "projected_top_k(r=4, by='channels')",
    "projected_top_k(r=16, by='channels')",
    "hierarchical(basis='mean', sinks=1)",
)
EXACT = "exact()"
TARGET = 0.1
QUARTILES = [0.25, 0.5, 0.75]


def lengths(file: Path, *, jobs: int, every: int = 1, out: Path | None = None) -> pd.DataFrame:
    """Return the cheapest method for each head of a file; exact attention is a candidate, too."""
    heads = list(inputs.load(file).heads())[::every]
    table = needed(
        heads, TARGET, currency="reads", methods=[parse(spec) for spec in METHODS], jobs=jobs,
        progress=sys.stderr.isatty(), finished=out,
    )  # fmt: skip
    best = cheapest(table)
    return best.assign(l=heads[0].l, queries=heads[0].n)


def counts(found: pd.DataFrame) -> pd.DataFrame:
    """Return the number of heads on which each family is cheapest, a row per length."""
    wins = found.groupby("l").method.value_counts().unstack(fill_value=0)
    return wins.reindex(columns=[*METHODS, EXACT], fill_value=0).rename_axis(columns=None)


def markdown(found: pd.DataFrame) -> str:
    """Return a table with a row for each length."""
    wins, count = counts(found), found.groupby("l").size()
    rows = []
    for l, part in found.groupby("l"):
        low, middle, high = (f"{share:.1%}" for share in part.share.quantile(QUARTILES))
        price = part.price.median()
        named = [str(wins.loc[l, name]) for name in wins]
        rows.append([f"{l}", *named, f"{price:,.0f}", middle, f"{low}–{high}"])
    titles = [
        "tokens", *(f"`{name}`" for name in wins), "reads", "of exact attention", "quartiles",
    ]  # fmt: skip
    steps = found[found.method != EXACT].set_index([*HEAD, "l"]).price.unstack("l").dropna()
    slope = np.polyfit(np.log(steps.columns.astype(float)), np.log(steps).T, 1)[0]
    said = (
        f"{len(steps)} of {count.max()} heads need less than exact attention at every length. On "
        f"average over these, reads grow as l^{slope.mean():.2f} (standard error "
        f"{slope.std(ddof=1) / len(slope) ** 0.5:.2f}); those of exact attention grow as l^1."
    )
    return f"{pages.table(titles, rows)}\n\n{said}"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the heads of files, and write a table."""
    parser = pages.parser(".lengths", __doc__)
    parser.add_argument("files", type=Path, nargs="+", help="of one model, a length each")
    parser.add_argument("--every", type=int, default=1, help="every so many-th head [1]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [all]")
    parser.add_argument("--out", type=Path, help="a folder that keeps each head that is done")
    arguments = parser.parse_args(argv)
    how = {"jobs": arguments.jobs, "every": arguments.every, "out": arguments.out}
    one = functools.partial(lengths, **how)
    found = pd.concat(map(one, arguments.files), ignore_index=True)
    longest = found[found.l == found.l.max()].share.median()
    which = f" (every {arguments.every}th)" if arguments.every > 1 else ""
    heads = len(found.drop_duplicates(HEAD))
    said = (
        f"The fewest reads at which the last {found.queries.iloc[0]} queries of a text have a tv "
        f"of at most {TARGET:g}, on {heads} heads of a model{which}, measured on {pages.date()}. "
        "Where no method gets there with fewer reads, a head counts for exact attention. The "
        "columns of methods say on how many heads each method is the cheapest; reads are medians "
        "over heads, and quartiles are of the share. H2O is missing, because its sums need the "
        f"queries of all tokens. At {found.l.max()} tokens the median head needs {longest:.1%} of "
        "exact attention's reads."
    )
    pages.write(arguments, said, markdown(found))


if __name__ == "__main__":
    main()
