"""Which error of a head predicts its damage to SmolLM2-135M: ``python -m studies.lm.damage
MODEL``.

Each head is replaced alone by several methods in turn, on held-out text. The table is written layer
by layer into the folder ``--out``, so that a stopped run continues; the correlations, with their
date, are written into ``--summary``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.models import sensitivity
from analysis.models.language_model import LanguageModel
from analysis.models.replacement import Estimated, Passage
from approx import parse
from studies.lm import pages, sample

TEXT = sample.DATA / "gettysburg_constitution.txt"  # persuasion.txt chose heads and methods
TOKENS = 256
METHODS = (
    "sliding_window(width=16)",
    "sink_window(k=16)",
    "columns(k=32, by='h2o', recent=16)",
    "top_k(k=8)",
    "hierarchical(rank=2, basis='mean', sinks=1)",
    "positive(m=64, projection='orthogonal')",
)


def measured(passage: Passage, path: Path) -> pd.DataFrame:
    """Return the table of `sensitivity.singles`; ``path`` stores the finished layers."""
    known = pd.read_csv(path) if path.exists() else pd.DataFrame({"layer": []})
    left = sorted(set(range(passage.model.layers)) - set(known.layer))
    heads = [(layer, head) for layer in left for head in range(passage.model.heads)]
    parts = [known] if len(known) else []
    methods = [parse(spec) for spec in METHODS]
    for part in sensitivity.singles(passage, methods, heads=heads, progress=True) if heads else ():
        parts.append(part)
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.concat(parts).to_csv(path, index=False, float_format="%.6g")
    return pd.concat(parts, ignore_index=True)


def together(passage: Passage, table: pd.DataFrame) -> pd.DataFrame:
    """Return the damage with all heads replaced, beside the sums over single heads.

    Returns
    -------
    DataFrame
        One row per method: ``singles``, the sum of the KL of heads replaced alone; ``fisher``, the
        sum of their predictions; ``all``, KL with all heads replaced, and ``all_stderr``.
    """
    rows = []
    for spec, part in table.groupby("method", sort=False):
        kl = Estimated.from_positions(passage.replace(passage.everywhere(parse(str(spec)))).kl)
        rows.append(
            {"method": spec, "singles": part.kl.sum(), "fisher": part.fisher.sum()}
            | {"all": kl.mean, "all_stderr": kl.stderr}
        )
    return pd.DataFrame(rows)


def summary(passage: Passage, table: pd.DataFrame, sums: pd.DataFrame) -> str:
    """Return the correlations, the sums and the worst heads as Markdown."""
    found = sensitivity.correlations(table)
    whole = found[found.method == "all"].set_index("predictor")
    each = found.pivot(index="predictor", columns="method", values="spearman")
    numbers = {spec: f"({i + 1})" for i, spec in enumerate(METHODS)}
    lines = [
        f"{len(table.drop_duplicates(pages.HEAD))} heads of {passage.model.name}, replaced "
        f"one at a time by {len(METHODS)} methods; {TEXT.name}, tokens {passage.skip} to "
        f"{len(passage.ids) - 1}, measured on {pages.today()}. The damage is "
        "KL(model ‖ replaced) of the next token. Spearman's rank correlation of the "
        "damage with what could predict it, with 95 % intervals over heads, and "
        "within each method:",
        "",
    ]
    rows: list[tuple[object, ...]] = []
    for name in whole.sort_values("spearman", ascending=False).index:
        row = whole.loc[name]
        inside = [f"{each.loc[name, spec]:.2f}" for spec in METHODS]
        rows.append((f"`{name}`", f"{row.spearman:.3f}", f"{row.low:.3f}–{row.high:.3f}", *inside))
    lines += [
        pages.table(["predictor", "all", "interval", *numbers.values()], rows),
        "",
        "Does the sum over single heads predict what becomes of the model with all heads replaced?",
        "",
    ]
    sides = ("singles", "fisher", "all", "all_stderr")
    rows = [
        (f"{numbers[row['method']]} `{row['method']}`", *(f"{row[side]:.2f}" for side in sides))
        for row in sums.to_dict("records")
    ]
    titles = "method", "sum of single KL", "sum of `fisher`", "KL with all replaced", "±"
    lines += [pages.table(titles, rows), "", "The heads that cost most alone:", ""]
    columns = ("kl", "kl_stderr", "attention_tv", "fisher")
    rows = [
        (
            f"{row['layer']}.{row['head']}", numbers[row["method"]],
            *(f"{row[column]:.2f}" for column in columns),
        )
        for row in table.sort_values("kl", ascending=False).head(8).to_dict("records")
    ]  # fmt: skip
    lines.append(pages.table(("head", "method", "KL", "±", "tv", "`fisher`"), rows))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the table and the summary."""
    parser = pages.parser(".damage", __doc__)
    pages.add_model(parser, TOKENS)
    parser.add_argument("--out", type=Path, default=Path("out/lm"), help="[out/lm]")
    arguments = parser.parse_args()
    model = LanguageModel.open(arguments.model)
    passage = Passage(model, model.tokens(TEXT, arguments.tokens), jobs=1)
    table = measured(passage, arguments.out / f"damage-{arguments.tokens}.csv")
    pages.write(arguments, summary(passage, table, together(passage, table)))


if __name__ == "__main__":
    main()
