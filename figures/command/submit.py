"""``expqk submit``."""

import argparse
import contextlib
import dataclasses
import runpy
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.inputs import sample
from analysis.sweeps.sweep import sweep
from approx import METHODS, Method, parse
from figures.command import options
from figures.drawing import looks
from figures.words.terminal_columns import aligned, paragraphs
from figures.words.translation import speaking, tr

EXAMPLES = ("expqk submit my_method.py",)
MORE = (
    "The file defines one subclass of approx.Method, a frozen dataclass with evaluate. The command "
    "runs the file: give it only code that you trust."
)
BESIDE = "uniform()", "positive", "nystrom", "top_k", "truncated_svd(space='attention')"
COLUMNS = {  # metric → format
    "rank": ".0f", "stored": ".3g", "attention_tv": ".2f", "output_relative_error": ".2g",
}  # fmt: skip


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="METHOD.py", help="a Python file, one method")
    options.add(parser, "budget", default=32.0, help="values stored for each query row [32]")
    options.add(parser, "lang", "seed")


def run(arguments: argparse.Namespace) -> int:
    """Print the rows of each head, the nearest method first, with an arrow at one's own."""
    own, heads, budget = load(arguments.file), list(sample().heads()), arguments.budget
    asked: dict[str, Any] = {"trials": 5, "seed": arguments.seed, "budget": budget}
    with _blamed(arguments.file, own.__name__):
        table = sweep([mine := own()], heads, [1.0], **asked)
    if table.empty:
        raise ValueError(f"nothing of {mine} fits {budget:g} stored values: raise --budget")
    own_specs = set(table.method)
    table = pd.concat([table, sweep([*map(parse, BESIDE)], heads, [1.0], **asked)])
    wide = table.pivot_table("value", ["input", "method"], "metric", aggfunc="median", sort=False)
    with speaking(arguments.lang):
        titles = tr("method"), tr("rank"), tr("stored"), tr("tv"), tr("output")
        lines: list[tuple[str, ...]] = [("", *titles)]
        for head, rows in wide.groupby("input", sort=False):
            lines.append(("", str(head), *[""] * len(COLUMNS)))
            rows = rows.sort_values("attention_tv", kind="stable").reset_index("method")
            for row in rows.to_dict("records"):
                spec = str(row["method"])
                ours = spec in own_specs
                cells = [f"{row[column]:{form}}" for column, form in COLUMNS.items()]
                lines.append(("→" if ours else "", spec if ours else looks.label(spec), *cells))
        about = tr(
            "Budget: {budget:g} stored values per query row, t = 1. tv: total variation of the "
            "attention weights, median of five draws; output: relative error of P V.",
            budget=budget,
        )
        print(aligned(lines, wrapped={1: 30}), "", paragraphs([about]), sep="\n")
    return 0


def load(path: Path) -> type[Method]:
    """Run a user's Python file, and return the method that it defines."""
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"a method is a Python file, such as my_method.py, got {path}")
    with _blamed(path):
        values = runpy.run_path(str(path), run_name=path.stem).values()
    classes = {x for x in values if isinstance(x, type) and x.__module__ == path.stem}
    found = [x for x in classes if issubclass(x, Method) and dataclasses.is_dataclass(x)]
    if len(found) != 1 or getattr(found[0], "name", None) in {None, *METHODS}:
        raise ValueError(
            f"{path.name} must define one subclass of approx.Method, a frozen dataclass with a "
            f"new name, got {', '.join(x.__name__ for x in found) or 'none'}"
        )
    fields = dataclasses.fields(found[0])
    if bare := [x.name for x in fields if x.init and x.default is x.default_factory]:
        raise ValueError(f"{path.name}: give {bare[0]} a default: None, if the budget fills it")
    return found[0]


@contextlib.contextmanager
def _blamed(path: Path, name: str = "the file") -> Iterator[None]:
    """Raise ValueError in one sentence, with the line of the user's file, where its code fails."""
    try:
        yield
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f", line {x.lineno}" for x in frames if x.filename == str(path)]
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path.name}{''.join(lines[-1:])}: {name} fails: {what}") from None
