"""Every head of SmolLM2-135M at fixed budgets: ``python -m studies.lm MODEL``, a part of ``make
lm-study``.

The model is captured on the first tokens of the bundled text, `diagnose` measures its heads, and
the answers are grouped by the kind of head. A table of all heads and methods is written into the
folder ``--out``, and the summary, with its date, into ``--summary``. At its end are the heads whose
winner depends on the currency of the budget.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.advice.diagnose import diagnose
from analysis.costs.budget import amount_text as priced
from analysis.inputs import head_kinds, load
from analysis.models.capture import capture, save
from studies.lm import currencies, pages, sample
from studies.lm.pages import HEAD


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per method: median and quartiles of tv over heads, and wins by kind of head.

    Parameters
    ----------
    table : DataFrame
        Columns layer, head, spec, standing, attention_tv, reads, exact_reads, runnable, winner and
        kind.

    Returns
    -------
    DataFrame
        Lowest median first. ``wins`` and the counts by kind are NaN for references.
    """
    tv = table.groupby("spec").attention_tv
    rows = pd.DataFrame(
        {
            "heads": tv.size(),
            "median_tv": tv.median(),
            "lower_quartile": tv.quantile(0.25),
            "upper_quartile": tv.quantile(0.75),
            "reads": (table.reads / table.exact_reads).groupby(table.spec).median(),
        }
    )
    rows["standing"] = table.groupby("spec").standing.first()
    won = table[table.winner.astype(bool)]
    runnable = table.groupby("spec").runnable.all()
    rows["wins"] = won.groupby("spec").size().reindex(rows.index, fill_value=0)
    for kind in head_kinds.KINDS:
        mine = won[won.kind == kind].groupby("spec").size()
        rows[kind] = mine.reindex(rows.index, fill_value=0)
    rows.loc[~runnable, ["wins", *head_kinds.KINDS]] = float("nan")
    return rows.sort_values("median_tv", kind="stable").reset_index()


def markdown(rows: pd.DataFrame, kinds: pd.Series, title: str) -> str:
    """Return a summary as a Markdown table, with the number of heads of each kind."""
    counts = kinds.value_counts().reindex(head_kinds.KINDS, fill_value=0)
    named = (f"{kind} ({count})" for kind, count in counts.items())
    titles = "method", "median tv", "quartiles", "reads", f"wins ({len(kinds)})", *named
    lines = []
    for row in rows.to_dict("records"):
        wins = ["" if pd.isna(n) else f"{n:.0f}" for n in (row[k] for k in ("wins", *counts.index))]
        reads = "" if pd.isna(row["reads"]) else f"{row['reads']:.1%}"
        quartiles = f"{row['lower_quartile']:.3f}–{row['upper_quartile']:.3f}"
        lines.append((
            f"`{row['spec']}`", f"{row['median_tv']:.3f}", quartiles, reads,
            wins[0] or row["standing"], *wins[1:],
        ))  # fmt: skip
    return f"{title}\n\n{pages.table(titles, lines)}"


def main(argv: Sequence[str] | None = None) -> None:
    """Capture, diagnose at every budget, and write the tables."""
    parser = pages.parser("", __doc__)
    pages.add_model(parser, 512)
    parser.add_argument(
        "--budgets",
        default="32,reads=4096",
        help="per query row, such as 16,32 stored values or reads=4096 [32,reads=4096]",
    )
    parser.add_argument(
        "--keys",
        type=int,
        default=32,
        help="exact keys whose price is paid in every currency; 0: no such comparison [32]",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [all]")
    parser.add_argument("--layers", type=int, nargs="+", help="these only, to try it [all]")
    parser.add_argument("--out", type=Path, default=Path("out/lm"), help="[out/lm]")
    arguments = parser.parse_args(argv)

    start = time.perf_counter()
    captured = capture(
        arguments.model,
        sample.DATA / "persuasion.txt",
        layers=arguments.layers,
        max_tokens=arguments.tokens,
    )
    path = arguments.out / f"smollm2-{arguments.tokens}.safetensors"
    save(captured, path)
    heads = sample.table(captured)
    heads["kind"] = pages.kinds(heads).to_numpy()
    said = _spent("captured", start)

    parts = []
    for asked in arguments.budgets.split(","):
        start = time.perf_counter()
        currency, _, amount = asked.rpartition("=")
        budget, currency = float(amount), currency or "stored"
        found = diagnose(
            load(path),
            budget=budget,
            currency=currency,
            references=True,
            screen=False,
            jobs=arguments.jobs,
            progress=True,
        )
        table = found.merge(heads, on=HEAD, validate="many_to_one")
        written = arguments.out / f"smollm2-{arguments.tokens}-{currency}-{budget:g}.csv"
        table.drop(columns=["warnings", "left_out"]).to_csv(
            written, index=False, float_format="%.6g"
        )
        said += "; " + _spent(f"diagnosed at {priced(budget, currency)}", start)
        title = _title(captured.model, table, priced(budget, currency))
        parts.append(markdown(summary(table), heads.kind, title))
    if arguments.keys:
        start = time.perf_counter()
        each = list(load(path).heads())
        won = currencies.compared(each, arguments.keys, arguments.jobs)
        won.to_csv(arguments.out / f"smollm2-{arguments.tokens}-winners.csv", index=False)
        parts.append(currencies.section(each, won))
        said += "; " + _spent("compared the currencies", start)
    print(said, file=sys.stderr)
    pages.write(arguments, *parts)


def _spent(what: str, start: float) -> str:
    return f"{what} in {time.perf_counter() - start:.0f} s"


def _title(model: str, table: pd.DataFrame, budget: str) -> str:
    """Return a title: what was measured, where and when."""
    count = len(table.drop_duplicates(HEAD))
    return (
        f"{count} heads of {model}, {table.n.iloc[0]} tokens, "
        f"{budget}, measured on {pages.today()}; reads are shares of what exact attention reads:"
    )


if __name__ == "__main__":
    main()
