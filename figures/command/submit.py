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
from approx.testing import verdicts
from figures.command import options
from figures.drawing import looks
from figures.words.terminal_columns import aligned, wrap
from figures.words.translation import mark, speaking, tr

EXAMPLES = ("expqk submit my_method.py",)
MORE = "The command runs the file, which defines one approx.Method: give it code that you trust."
BESIDE = "uniform()", "positive", "nystrom", "top_k", "truncated_svd(space='attention')"
COLUMNS = {"rank": ".0f", "stored": ".3g", "attention_tv": ".2f", "output_relative_error": ".2g"}
ABOUT = mark(
    "Budget: {budget:g} stored values per query row, t = 1. tv: total variation of the "
    "attention weights, median of 5 draws; output: relative error of P V."
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="METHOD.py", help="a Python file, one method")
    options.add(parser, "budget", default=32.0, help="values stored for each query row [32]")
    options.add(parser, "lang", "seed")


def run(arguments: argparse.Namespace) -> int:
    """Print what each check says of the method, and its rows among others, with an arrow."""
    own, heads, budget = load(arguments.file), list(sample().heads()), arguments.budget
    asked: dict[str, Any] = {"trials": 5, "seed": arguments.seed, "budget": budget}
    with _blamed(arguments.file, own.__name__):
        table = sweep([mine := own()], heads, [1.0], **asked)
        checked = verdicts(own)
    if table.empty:
        raise ValueError(f"nothing of {mine} fits {budget:g} stored values: raise --budget")
    own_specs, beside = set(table.method), [*map(parse, BESIDE)]
    table = pd.concat([table, sweep(beside, heads, [1.0], **asked)])
    wide = table.pivot_table("value", ["input", "method"], "metric", aggfunc="median", sort=False)
    with speaking(arguments.lang):
        lines: list[tuple[str, ...]] = [
            (tr(x), tr("{spec}: {reason}", spec=tr(name), reason=why) if why else tr(name))
            for name, x, why in checked
        ]
        print(aligned(lines, wrapped={1: 65}))
        titles = "", tr("method"), tr("rank"), tr("stored"), tr("tv"), tr("output")
        body: list[tuple[str, ...]] = [titles]
        for head, rows in wide.groupby("input", sort=False):
            body.append(("", str(head), "", "", "", ""))
            rows = rows.sort_values("attention_tv", kind="stable").reset_index("method")
            for row in rows.to_dict("records"):
                spec, ours = str(row["method"]), row["method"] in own_specs
                cells = [f"{row[name]:{form}}" for name, form in COLUMNS.items()]
                body.append(("→" * ours, spec if ours else looks.label(spec), *cells))
        print("", aligned(body, wrapped={1: 30}), "", *wrap(tr(ABOUT, budget=budget), 80), sep="\n")
    return int(any(x == "failed" for _, x, _ in checked))


def load(path: Path) -> type[Method]:
    """Run a user's Python file, and return the method that it defines."""
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"a method is a Python file, such as my_method.py, got {path}")
    with _blamed(path):
        values = runpy.run_path(str(path), run_name=path.stem).values()
    classes = {x for x in values if isinstance(x, type) and x.__module__ == path.stem}
    found = [x for x in classes if issubclass(x, Method) and dataclasses.is_dataclass(x)]
    if len(found) != 1 or getattr(found[0], "name", None) in {None, *METHODS}:
        names = ", ".join(x.__name__ for x in found) or "none"
        rule = "one subclass of approx.Method, a frozen dataclass with a new name"
        raise ValueError(f"{path.name} must define {rule}, got {names}")
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
