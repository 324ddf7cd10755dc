"""``expqk diagnose``."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures.command import options

if TYPE_CHECKING:
    import pandas as pd

    from analysis.inputs import Head

OWN_PROCESS = 2**20  # entries of heads; fewer are measured before another process has begun
METRICS = {None: "attention_tv", "tv": "attention_tv", "output": "output_relative_error"}
HELP = "Advice for every head of a file, at a budget or for a target."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=".npz, .safetensors, folder")
    parser.add_argument("--heads", type=options.heads, metavar="L.H,…", help="of FILE [all]")
    options.add_budget(parser)
    parser.add_argument(
        "--target",
        type=float,
        metavar="E",
        help="instead of a budget: what an error of at most E, such as 0.1, costs",
    )
    parser.add_argument(
        "--metric", help="tv or output, the error that ranks methods; of a target others, too [tv]"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        metavar="t",
        help="relative: 1 is the file's own scaling [1]",
    )
    parser.add_argument(
        "--method", action="append", metavar="SPEC", help="instead of the usual ones; repeatable"
    )
    parser.add_argument("--trials", type=int, metavar="N", help="draws of a random method [5]")
    parser.add_argument(
        "--rows", type=int, metavar="N", help="query rows to measure [all; 256 of more than 4096]"
    )
    parser.add_argument(
        "--accept",
        type=float,
        metavar="SHARE",
        help="share of uniform attention's error, above which exact attention is kept [0.5]",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be measured, and about how long"
    )
    parser.add_argument(
        "--theory",
        action="store_true",
        help="what theory says of each head instead: bounds, their hypotheses, what is measured",
    )
    options.add_language(parser)
    options.add_seed(parser)
    options.add_jobs(parser)
    parser.add_argument("--json", action="store_true", help="one object per (layer, head, method)")
    parser.add_argument("--out", type=Path, help="folder for the table and a map of the winners")


def run(arguments: argparse.Namespace) -> int:
    from analysis.advice import measurement
    from analysis.inputs import array_files, load
    from approx import parse
    from figures.words.translation import speaking

    _agree(arguments)
    if arguments.out is not None:
        array_files.usable(arguments.out)
    whole = load(arguments.file)
    chosen = [whole] if arguments.heads is None else [whole.at(*one) for one in arguments.heads]
    entries = sum(x.n * x.l for each in chosen for x in each.heads())
    jobs = min(arguments.jobs, 1 + entries // OWN_PROCESS)
    asked = {
        "currency": arguments.currency or "stored",
        "metric": METRICS.get(arguments.metric, arguments.metric),
        "methods": None if arguments.method is None else [parse(s) for s in arguments.method],
        "temperature": arguments.temperature,
        "trials": measurement.TRIALS if arguments.trials is None else arguments.trials,
        "rows": arguments.rows,
        "seed": arguments.seed,
        "jobs": jobs,
    }
    with speaking(arguments.lang):
        if arguments.theory:
            _of_theory(arguments, chosen, jobs)
        elif arguments.target is None:
            _of_budget(arguments, chosen, asked)
        else:
            _of_target(arguments, chosen, asked)
    return 0


def _agree(arguments: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    if arguments.theory:
        for name in (
            "budget", "target", "metric", "currency", "method", "trials", "rows", "accept", "out",
            "dry_run",
        ):  # fmt: skip
            if _given(arguments, name):
                raise ValueError(f"--{name.replace('_', '-')} has no meaning with --theory")
    if arguments.target is None:
        return
    if arguments.budget is not None:
        raise ValueError(
            "--budget asks for the least error at a price, --target for the least price at an "
            "error: give one of them"
        )
    for name in ("dry_run", "accept"):
        if _given(arguments, name):
            raise ValueError(f"--{name.replace('_', '-')} has no meaning with --target")


def _given(arguments: argparse.Namespace, name: str) -> bool:
    """Return whether an option was given, be it as 0."""
    value = getattr(arguments, name)
    return value is not None and value is not False


def _of_budget(arguments: argparse.Namespace, chosen: list[Head], asked: dict[str, Any]) -> None:
    """Print which method has the least error at a budget."""
    from analysis.advice.diagnose import ACCEPT, diagnose, dry_run
    from analysis.costs import budget
    from analysis.costs.budget import KEYS
    from figures.drawing import style
    from figures.show import diagnosis

    paid = arguments.budget
    if paid is None:
        paid = budget.of_keys(KEYS, next(chosen[0].heads()), asked["currency"])
    asked |= {"budget": paid, "accept": ACCEPT if arguments.accept is None else arguments.accept}
    if arguments.dry_run:
        print(diagnosis.plan(dry_run(chosen, **asked)))
        return
    table = diagnose(chosen, **asked, progress=sys.stderr.isatty())
    _print(arguments, table, diagnosis.text)
    if arguments.out is not None:
        drawn, said = diagnosis.draw(table), diagnosis.caption(table)
        for path in style.save("diagnosis", table, drawn, arguments.out, caption=said):
            print(path, file=sys.stderr)


def _of_target(arguments: argparse.Namespace, chosen: list[Head], asked: dict[str, Any]) -> None:
    """Print which method has the least price at a target."""
    from analysis.advice.target import needed
    from figures.drawing import style
    from figures.show import targets

    table = needed(chosen, arguments.target, **asked, progress=sys.stderr.isatty())
    _print(arguments, table, targets.text)
    if arguments.out is not None:
        print(style.save_table("needed", table, arguments.out), file=sys.stderr)


def _of_theory(arguments: argparse.Namespace, chosen: list[Head], jobs: int) -> None:
    """Print what theory says of each head."""
    import pandas as pd

    from analysis.compute.parallel import parallel
    from figures.show import theories

    heads = [x.at_temperature(arguments.temperature) for each in chosen for x in each.heads()]
    tables = parallel(
        functools.partial(_theory, seed=arguments.seed),
        heads,
        jobs=jobs,
        progress=sys.stderr.isatty(),
        label="heads",
    )
    _print(arguments, pd.concat(tables, ignore_index=True), theories.text)


def _theory(x: Head, seed: int) -> pd.DataFrame:
    """Return what theory says of one head."""
    from analysis.bounds import theory
    from analysis.costs.budget import KEYS

    return theory.of(x, keys=min(KEYS, x.n, x.l), seed=seed)


def _print(
    arguments: argparse.Namespace, table: pd.DataFrame, text: Callable[[pd.DataFrame], str]
) -> None:
    """Print a table as JSON or as text."""
    from figures.show import diagnosis

    if arguments.json:
        print(json.dumps(diagnosis.objects(table), ensure_ascii=False, indent=2))
    else:
        print(text(table))
