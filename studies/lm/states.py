"""How near m states come to causal heads of a language model: ``python -m studies.lm.states FILE``.

FILE is of ``expqk capture`` or ``python -m studies.lm``. Two tables go into ``--summary``: errors
by the number of states, and methods that a model can run at equal reads of a new token.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import tqdm

from analysis import inputs
from analysis.costs.budget import match
from analysis.inputs import Head
from analysis.ranks import rank, state_rank
from analysis.ranks.recurrence import recurrence, ungated
from approx import Method, parse
from approx.estimate import exact

STATES = (8, 16, 32, 64, 128)
FITTED = 64  # states, beyond which a recurrence is not fitted
SWEEPS = 2
FAMILIES = (
    "sink_window()",
    "top_k()",
    "positive()",
    "positive(projection='orthogonal')",
    "uniform()",
    *(
        f"hierarchical(leaf={leaf}, basis='{basis}', sinks=1)"
        for basis in ("mean", "pivots")
        for leaf in (8, 16, 32)
    ),
)
MEASURES = ("attention_tv", "attention_relative_frobenius", "output_relative_error")


def bounds(x: Head) -> dict[tuple[str, int], float]:
    """Return errors of a head by what is near to it and its states, relative in Frobenius norm."""
    P = exact.softmax(x.Q, x.K, x.mask)
    found: dict[tuple[str, int], float] = {}
    s, ordered = rank.singular_values(P), -np.sort(-P, axis=1)
    total = np.linalg.norm(P)
    for partition, name in (("dyadic", "lower bound"), ("best", "lower bound, best partition")):
        values = state_rank.lower_bound(P, STATES, mask=x.mask, partition=partition)
        found |= {(name, m): float(value) for m, value in zip(STATES, values)}
    for m in STATES:
        if m <= FITTED:
            found["m states, best found", m] = recurrence(P, m, sweeps=SWEEPS).error
            found["m features without gates, best found", m] = ungated(P, m, sweeps=20)
        found["rank m of the whole matrix", m] = float(np.linalg.norm(s[m:]) / total)
        found["m largest entries per row", m] = float(np.linalg.norm(ordered[:, m:]) / total)
    return found


def at_reads(budget: float, x: Head) -> list[Method]:
    """Return methods of each family at their largest size that reads at most so many numbers."""
    return [m for m in match(map(parse, FAMILIES), budget, x, "reads").fitting if keeps_leaf(m)]


def keeps_leaf(method: Method) -> bool:
    """Return whether the leaves of a hierarchical method are those that it names."""
    return getattr(method, "exact_below", None) == getattr(method, "leaf", None)


def medians(heads: Sequence[Head], keys: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both tables, as medians over heads."""
    errors = pd.DataFrame([bounds(x) for x in tqdm.tqdm(heads, "states", file=sys.stderr)])
    middle = errors.median()
    middle.index = pd.MultiIndex.from_tuples(middle.index)
    by_states = middle.unstack(sort=False).reindex(columns=STATES)
    x = heads[0]
    methods = at_reads(keys * 2 * x.d, x)
    rows = []
    for method in tqdm.tqdm(methods, "methods", file=sys.stderr):
        price = method.price(n=x.n, l=x.l, d=x.d, mask=x.mask)
        found = pd.DataFrame([h.compare(h.approximate(method, rng=0)) for h in heads])
        reads = None if price is None or price.reads is None else price.reads / (2 * x.d)
        stored = None if price is None else price.stored
        rows.append({"method": f"`{method}`", "reads": reads, "stored": stored}
                    | {name: found[name].median() for name in MEASURES})  # fmt: skip
    return by_states, pd.DataFrame(rows).sort_values("attention_tv")


def markdown(table: pd.DataFrame, digits: int = 3) -> str:
    """Return a table in Markdown, with so many significant digits."""
    head = [str(name) for name in table.columns]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in table.to_numpy(object):
        cells = [x if isinstance(x, str) else "" if pd.isna(x) else f"{x:.{digits}g}" for x in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure some heads of a file, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m studies.lm.states", description=__doc__)
    parser.add_argument("file", type=Path, help="Q, K and V of a language model")
    parser.add_argument("--heads", type=int, default=12, help="at equal distances [12]")
    parser.add_argument("--tokens", type=int, default=1024, help="the first ones [1024]")
    parser.add_argument("--keys", type=int, default=32, help="keys that a token may read [32]")
    parser.add_argument("--summary", type=Path, required=True, help="a .md file")
    arguments = parser.parse_args(argv)
    every = list(inputs.load(arguments.file).heads())
    places = np.linspace(0, len(every) - 1, min(arguments.heads, len(every))).round().astype(int)
    heads = [every[i].first(min(arguments.tokens, every[i].n)) for i in places]
    by_states, methods = medians(heads, arguments.keys)
    today = datetime.datetime.now(datetime.UTC).date()
    where = f"{len(heads)} heads of {arguments.file.stem}, {heads[0].n} tokens, measured on {today}"
    arguments.summary.write_text(
        f"Medians over {where}: relative Frobenius error of attention by m.\n\n"
        f"{markdown(by_states.rename_axis('').reset_index())}\n\n"
        f"Medians over the same heads: methods that read at most {arguments.keys} keys with their "
        "values, or as many numbers, to answer the last token; top_k needs all logits. Reads are "
        f"in keys, stored values per query row.\n\n{markdown(methods)}\n",
        encoding="utf-8",
    )
    print(arguments.summary)


if __name__ == "__main__":
    main()
