"""The error of m states for causal heads of a language model: ``python -m studies.lm.states FILE``.

``expqk capture`` or ``python -m studies.lm`` writes FILE. Two tables are written to ``--summary``:
errors by the number of states, and methods that a model can run, at equal reads of a new token.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
import tqdm

from analysis.costs.budget import match
from analysis.inputs import Head
from analysis.ranks import rank, state_rank
from analysis.ranks.recurrence import recurrence, ungated
from approx import Method, parse
from approx.estimate import exact
from studies.lm import pages

STATES = (8, 16, 32, 64, 128)
FITTED = 64  # largest number of states for which a recurrence is fitted
SWEEPS = 2
FAMILIES = (
    "sink_window()", "top_k()", "positive()", "positive(projection='orthogonal')", "uniform()",
    *(f"hierarchical(leaf={leaf}, basis='{basis}', sinks=1)"
      for basis in ("mean", "pivots") for leaf in (8, 16, 32)),
)  # fmt: skip
MEASURES = ("attention_tv", "attention_relative_frobenius", "output_relative_error")


def bounds(x: Head) -> dict[tuple[str, int], float]:
    """Return {(approximation or bound, m): relative Frobenius error} of a head."""
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
    """Return the methods of each family at the largest size whose reads fit the budget."""
    return [m for m in match(map(parse, FAMILIES), budget, x, "reads").fitting if keeps_leaf(m)]


def keeps_leaf(method: Method) -> bool:
    """Return whether a hierarchical method has exactly the leaves that it names."""
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


def main(argv: Sequence[str] | None = None) -> None:
    """Measure some heads of a file, and write the tables."""
    parser = pages.parser(".states", __doc__)
    pages.add_heads(parser, 12, 1024)
    parser.add_argument("--keys", type=int, default=32, help="keys that a token may read [32]")
    arguments = parser.parse_args(argv)
    heads = pages.heads(arguments)
    by_states, methods = medians(heads, arguments.keys)
    pages.write(
        arguments,
        f"Medians over {len(heads)} heads of {arguments.file.stem}, {heads[0].n} tokens, measured "
        f"on {pages.date()}: relative Frobenius error of attention by m.",
        pages.numbers(by_states.rename_axis("").reset_index()),
        f"Medians over the same heads: methods that read at most {arguments.keys} keys with their "
        "values, or as many numbers, to answer the last token; top_k needs all logits. Reads are "
        "in keys, stored values per query row.",
        pages.numbers(methods),
    )


if __name__ == "__main__":
    main()
