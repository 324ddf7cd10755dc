"""Every head of SmolLM2-135M at fixed budgets: ``python -m studies.lm MODEL``, a part of ``make
lm-study``.

The model is captured on the first tokens of the bundled text into ``--out``, and `diagnose`
measures its heads; the answers are grouped by the kind of head and by the currency of the budget.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.advice.diagnose import diagnose, winners
from analysis.costs import candidates
from analysis.costs.budget import amount_text, match, price_of_keys
from analysis.inputs import Head, load
from analysis.models.capture import capture, save
from approx.method.prices import CURRENCIES
from studies.lm import head_kinds, pages, sample
from studies.lm.pages import HEAD


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per method, lowest median first: tv over heads, and wins by kind of head.

    ``wins`` and the counts by kind are NaN for references.
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


def compared(heads: Sequence[Head], keys: int = 32, jobs: int = 1) -> pd.DataFrame:
    """Return the winner of every head at the price of ``keys`` exact keys, in each currency.

    ``asked`` is the winner without its size; other columns are those of `winners`.
    """
    parts, x = [], heads[0]
    templates = candidates.methods(x.mask)
    for currency in CURRENCIES:
        budget = price_of_keys(keys, x, currency)
        found = winners(heads, budget=budget, currency=currency, temperatures=[1.0], jobs=jobs)
        names = {
            str(m): str(template)
            for template in templates
            for m in match([template], budget, x, currency).fitting
        }
        parts.append(found.assign(currency=currency, asked=found.winner.map(names)))
    return pd.concat(parts, ignore_index=True)


def by_currency(first: Head, table: pd.DataFrame) -> str:
    """Return in Markdown how many heads each method wins in each currency."""
    budgets = table.drop_duplicates("currency").set_index("currency").budget
    words = [amount_text(budgets[currency], currency) for currency in CURRENCIES]
    wide = table.pivot(index=HEAD, columns="currency", values="asked")
    change = wide.nunique(axis=1) > 1
    same = ", ".join(
        f"{one} and {two} on {(wide[one] == wide[two]).sum()}".replace("_", "-")
        for one, two in itertools.combinations(CURRENCIES, 2)
    )
    counts = table.groupby(["asked", "currency"]).size().unstack(fill_value=0)
    counts = counts.reindex(columns=list(CURRENCIES), fill_value=0)
    order = counts.sum(axis=1).sort_values(ascending=False, kind="stable").index
    rows = [[f"`{asked}`", *counts.loc[asked]] for asked in order]
    return (
        "Where the currency changes the winner: the nearest that can be run at the price of "
        f"{budgets['stored'] / price_of_keys(1, first):g} exact keys, by what is counted. It is "
        f"not the same method in every currency on {change.sum()} of {len(change)} heads. "
        f"Two of them name the same method: {same}. Heads won at\n\n"
        f"{pages.table(['method', *words], rows)}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Capture, diagnose at every budget, and write the tables."""
    parser = pages.parser("", __doc__)
    pages.add_model(parser, 512)
    parser.add_argument("--budgets", default="32,reads=4096", help="per row [32,reads=4096]")
    parser.add_argument("--keys", type=int, default=32, help="exact keys, in every currency [32]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [all]")
    parser.add_argument("--layers", type=int, nargs="+", help="these only, to try it [all]")
    parser.add_argument("--out", type=Path, default=Path("out/lm"), help="[out/lm]")
    arguments = parser.parse_args(argv)

    text, few = sample.DATA / "persuasion.txt", {"layers": arguments.layers}
    captured = capture(arguments.model, text, max_tokens=arguments.tokens, **few)
    path = arguments.out / f"smollm2-{arguments.tokens}.safetensors"
    save(captured, path)
    heads = sample.table(captured)
    heads["kind"] = pages.kinds(heads).to_numpy()

    parts = []
    for asked in arguments.budgets.split(","):
        currency, _, amount = asked.rpartition("=")
        budget, currency = float(amount), currency or "stored"
        found = diagnose(
            load(path), budget=budget, currency=currency, references=True, screen=False,
            jobs=arguments.jobs, progress=True,
        )  # fmt: skip
        table = found.merge(heads, on=HEAD, validate="many_to_one")
        title = (
            f"{len(heads)} heads of {captured.model}, {table.n.iloc[0]} tokens, "
            f"{amount_text(budget, currency)}, measured on {pages.date()}; reads are shares of "
            "what exact attention reads:"
        )
        parts.append(markdown(summary(table), heads.kind, title))
    each = list(load(path).heads())
    parts.append(by_currency(each[0], compared(each, arguments.keys, arguments.jobs)))
    pages.write(arguments, *parts)


if __name__ == "__main__":
    main()
