"""Facts that SmolLM2 finds in a text, exactly and with cheaper attention.

``python -m studies.lm.retrieval MODEL --summary studies/lm/retrieval.md`` asks four kinds of
questions (`analysis.models.retrieval`), after a prompt that was read exactly. A stopped run goes on
in the folder ``--out``.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.costs.candidates import FEW_BITS
from analysis.models.checkpoints import read
from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan
from analysis.models.retrieval import DEPTHS, EXACT, KINDS, LEVEL, ORACLE, comparisons, retrieval
from approx import Method, parse
from studies.lm import pages, sample
from studies.lm.plans import FOLDER, NEEDLE

TEXTS = "persuasion.txt", "gettysburg_constitution.txt"  # the second where the first is too short
CODES = [f"rounded_values({FEW_BITS[0].format(bits=bits)}, bits={bits})" for bits in (2, 4)]
METHODS = (
    "columns(by='h2o', recent=5)", "sink_window()", "projected_top_k(k=32, r=8, by='channels')",
    *CODES,
)  # fmt: skip
PLANS = "smollm2-32-keys", NEEDLE
MOST = 1024  # tokens of texts on which all methods run
LONG = METHODS[1], CODES[-1]  # on longer texts, beside the oracle


def choices(tokens: int) -> dict[str, Method | Plan]:
    """Return the methods and the plans that are compared at a length, by name."""
    if tokens > MOST:
        return {spec: parse(spec) for spec in (ORACLE, *LONG)}
    plans = {name: Plan.read(FOLDER / f"{name}.json") for name in PLANS}
    return {spec: parse(spec) for spec in (ORACLE, *METHODS)} | plans


def counts(found: pd.DataFrame) -> pd.DataFrame:
    """Return a row per length and method: its price, and of each kind what it finds.

    A cell has the answers whose tokens all have rank 1, of those that exact attention finds, and
    the mean log-probability of these. Exact attention has all cells as the total.
    """
    rows = []
    for (tokens, method), part in found.groupby(["tokens", "method"], sort=False):
        row = {"tokens": str(tokens), "method": f"`{method}`", "bytes read": part.price.max()}
        for kind in dict.fromkeys(found.kind):
            few = part[part.kind == kind]
            right = f"{(few['rank'] == 1).sum()} of {len(few)}"
            row[kind] = f"{right} ({few.log_probability.mean():.1f})" if len(few) else ""
        rows.append(row)
    table = pd.DataFrame(rows)
    table["bytes read"] = [f"{x:,.0f}" if x == x else "" for x in table["bytes read"]]
    return table.sort_values("tokens", key=lambda x: x.astype(int), kind="stable")


def markdown(found: pd.DataFrame, name: str, left: Sequence[str] = ()) -> list[str]:
    """Return what was asked, what was found, and the test of the line, as paragraphs.

    ``left`` has what the run still asks for.
    """
    exact = found[found.method == EXACT]
    judged = int((exact["rank"] == 1).sum())
    depths = ", ".join(f"{depth:g}" for depth in dict.fromkeys(found.depth))
    tests = comparisons(found)
    lines = [
        (f"`{x.first}`", f"`{x.second}`", f"{x.cells}", f"{x.first_higher}", f"{x.second_higher}",
         f"{x.p:.2g}", x.line)
        for x in tests.itertuples(index=False)
    ]  # fmt: skip
    titles = "first", "second", "questions", "first higher", "second higher", "p", "line"
    stopped = [f"This run is not at its end. Not yet measured: {', '.join(left)}."] if left else []
    return [
        "# Facts in a text",
        *stopped,
        f"All heads of {name} by one method or plan at a time, measured on {pages.date()}. The "
        "text, a novel with facts in it, is read exactly, and what is kept of it is chosen before "
        f"the question is read. Depths: {depths}. Templates are filled to "
        f"{found.budget.iloc[0]:,.0f} bytes read per new token of a group of heads, the price of "
        "32 exact keys and values.",
        "A cell of the table: answers whose tokens all have rank 1, of those that exact attention "
        "finds so, and in brackets the mean log-probability of these answers. `exact` has all "
        "questions as the total. Where it fails, no method is judged: a model this small may know "
        "the number, and not whose it is. A guess among the numbers in the text is right in one of "
        "four cases of needles, and in one of two of chain and of repeated.",
        pages.table(counts(found).columns, counts(found).to_numpy().tolist()),
        f"The line exact ≥ `{ORACLE}` ≥ method, over the {judged} of {len(exact)} questions that "
        "exact attention answers; a pair counts those on which both ran. Hypothesis: in a "
        "question, either of two is equally likely to have the higher log-probability. p is that "
        "of the two-sided sign test, without ties: n questions give at least 2/2ⁿ. The "
        f"line holds or is broken if p is at most {LEVEL:g}. Questions share words, so that they "
        "are not independent, as the test assumes. Only methods that fit into the budget are "
        f"compared with `{ORACLE}`.",
        pages.table(titles, lines),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Ask all questions, and write the tables after each kind and length."""
    parser = pages.parser(".retrieval", __doc__)
    parser.add_argument("model", type=Path, help="a folder or a GGUF file")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--trials", type=int, default=1, help="draws of names and numbers [1]")
    parser.add_argument("--depths", type=float, nargs="+", default=DEPTHS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="threads [all]")
    parser.add_argument("--out", type=Path, default=Path("out/lm/retrieval"))
    arguments = parser.parse_args(argv)
    model = LanguageModel.open(arguments.model)
    filler = "\n\n".join(read(sample.DATA / name) for name in TEXTS)
    found = []
    cells = [*itertools.product(arguments.tokens, arguments.kinds)]
    for done, (tokens, kind) in enumerate(cells, start=1):
        found.append(retrieval(
            model, filler, choices(tokens), kinds=[kind], tokens=[tokens], depths=arguments.depths,
            trials=arguments.trials, setting="prompt", jobs=arguments.jobs,
            progress=sys.stderr.isatty(), finished=arguments.out,
        ))  # fmt: skip
        left = [f"{kind} at {tokens} tokens" for tokens, kind in cells[done:]]
        table = pd.concat(found, ignore_index=True)
        pages.write(arguments, *markdown(table, model.name, left))


if __name__ == "__main__":
    main()
