"""Does screening change an answer? Winners with and without it, and its frequency of errors.

`analysis.advice.diagnose` measures methods that cannot win on 64 queries only. Here every method is
measured on all queries of every head, and samples of 64 queries are drawn repeatedly from these
measurements. How often is a method left out that is one of the two best, or ties with them?

    python -m studies.lm.screening out/lm/smollm2-512.safetensors --summary studies/lm/screening.md
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import inputs
from analysis.advice import measurement
from analysis.advice.diagnose import WRONG, cannot_win, diagnose
from analysis.advice.measurement import FEW, TRIALS, HeadSample
from analysis.advice.verdict import TIE
from analysis.costs import budget, candidates
from analysis.errors import metrics
from analysis.inputs import Head
from analysis.runs import engines
from analysis.runs.tasks import Application
from approx.checks import Array
from studies.lm import pages
from studies.lm.pages import HEAD

ANSWER = ["spec", "attention_tv", "verdict"]


def row_errors(x: Head, keys: float, seed: int) -> list[Array]:
    """Return the total variation of each query, (draws, n), for each candidate at a budget."""
    head = HeadSample.from_rows(x, None)
    methods = budget.match(candidates.methods(x.mask), keys, x, "stored").fitting
    found = []
    for drawn in measurement.draws(head, methods, trials=TRIALS, seed=seed):
        rows: list[Array] = []

        def keep(sums: metrics.RowSums, rows: list[Array] = rows) -> float:
            rows.append(sums["tv"])
            return 0.0

        metrics.compare_all(drawn.estimates, x.Q, x.K, mask=x.mask, extra={"rows": keep})
        found.append(np.array(rows))
    return found


def chance(x: Head, keys: float, repeats: int, seed: int = 0) -> tuple[int, int]:
    """Return how many tests of methods that could win there were, and how many left one out."""
    errors = row_errors(x, keys, seed)
    whole = np.array([np.median(e.mean(axis=1)) for e in errors])
    may_win = whole <= TIE * np.sort(whole)[1]
    rng, scale = np.random.default_rng(seed), np.sqrt((1 - FEW / x.n) / FEW)
    few = np.array([rng.choice(x.n, FEW, replace=False) for _ in range(repeats)])
    shares = [e[:, few] for e in errors]  # (draws, repeats, 64)
    means = np.array([np.median(s.mean(axis=2), axis=0) for s in shares])
    stderrs = np.array([np.median(s.std(axis=2, ddof=1), axis=0) * scale for s in shares])
    wrong = sum(int((cannot_win(*both) & may_win).sum()) for both in zip(means.T, stderrs.T))
    return repeats * int(may_win.sum()), wrong


def answers(heads: Sequence[Head], **asked: Any) -> tuple[pd.DataFrame, float]:
    """Return the answers of `diagnose`, and the share of methods measured on all queries."""
    table = diagnose(heads, **asked)
    return table[table.winner].set_index(HEAD)[ANSWER], float((~table.screened).mean())


def main(argv: Sequence[str] | None = None) -> None:
    """Compare the answers for the heads of files, and write a table."""
    parser = pages.parser(".screening", __doc__)
    parser.add_argument("files", type=Path, nargs="+", help="Q, K and V of a model each")
    parser.add_argument("--budgets", default="32", help="stored values per query row [32]")
    parser.add_argument("--every", type=int, default=1, help="every so many-th head [1]")
    parser.add_argument("--repeats", type=int, default=1000, help="choices of queries [1000]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [all]")
    arguments = parser.parse_args(argv)
    rows = []
    for file in arguments.files:
        heads = list(inputs.load(file).heads())[:: arguments.every]
        for keys in map(float, arguments.budgets.split(",")):
            asked = {"budget": keys, "jobs": arguments.jobs}
            plain, _ = answers(heads, screen=False, **asked)
            screened, whole = answers(heads, **asked)
            misled = engines.results(
                [Application(chance, (x, keys, arguments.repeats)) for x in heads],
                jobs=arguments.jobs, progress=sys.stderr.isatty(), label="heads",
            )  # fmt: skip
            asked_of, wrong = (sum(numbers) for numbers in zip(*misled))
            same = int((plain == screened).all(axis=1).sum())
            left = f"{wrong} of {asked_of}"
            rows.append((file.stem, f"{keys:g}", f"{same} of {len(heads)}", f"{whole:.0%}", left))
    titles = "heads", "budget", "same answer", "measured whole", "wrongly left out"
    said = (
        f"Winner, its tv and the verdict with and without screening, measured on {pages.date()}. "
        f"Wrongly left out: of methods that are among the two best or "
        f"tie with them, over {arguments.repeats} choices of {FEW} queries of each head; if means "
        f"of {FEW} queries were normal, it would be at most {WRONG:g} of them."
    )
    pages.write(arguments, said, pages.table(titles, rows))


if __name__ == "__main__":
    main()
