"""``expqk diagnose``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from figures.command import options

HELP = "Advice for every head of a file: which method at this budget?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=".npz, .safetensors, folder")
    parser.add_argument("--heads", type=options.heads, metavar="L.H,…", help="of FILE; all")
    options.add_budget(parser)
    parser.add_argument("--temperature", type=float, default=1.0, metavar="t", help="[1]")
    parser.add_argument(
        "--method", action="append", metavar="SPEC", help="instead of the usual ones; repeatable"
    )
    parser.add_argument("--trials", type=int, default=5, help="draws of a random method [5]")
    parser.add_argument(
        "--rows", type=int, metavar="N", help="queries to measure [all; 256 of more than 4096]"
    )
    parser.add_argument(
        "--accept",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="of uniform's error, above which exact attention is kept [0.5]",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be measured, and about how long"
    )
    options.add_language(parser)
    parser.add_argument("--seed", type=int, default=0, help="[0]")
    options.add_jobs(parser)
    parser.add_argument("--json", action="store_true", help="one object per (layer, head, method)")
    parser.add_argument("--out", type=Path, help="folder for the table and a map of the winners")


def run(arguments: argparse.Namespace) -> int:
    from analysis import budget, files
    from analysis.diagnose import diagnose, dry_run
    from analysis.experiments.profile import KEYS
    from analysis.inputs import load
    from approx import parse
    from figures import diagnosis, style
    from figures.language import speaking

    if arguments.out is not None:
        files.usable(arguments.out)
    whole = load(arguments.file)
    chosen = [whole] if arguments.heads is None else [whole.at(*one) for one in arguments.heads]
    currency, paid = arguments.currency or "stored", arguments.budget
    if paid is None:
        paid = budget.of_keys(KEYS, next(chosen[0].heads()), currency)
    asked = {
        "budget": paid,
        "currency": currency,
        "methods": None if arguments.method is None else [parse(s) for s in arguments.method],
        "temperature": arguments.temperature,
        "trials": arguments.trials,
        "rows": arguments.rows,
        "accept": arguments.accept,
        "seed": arguments.seed,
        "jobs": arguments.jobs,
    }
    with speaking(arguments.lang):
        if arguments.dry_run:
            print(diagnosis.plan(dry_run(chosen, **asked)))
            return 0
        table = diagnose(chosen, **asked, progress=sys.stderr.isatty())
        if arguments.json:
            print(json.dumps(diagnosis.objects(table), ensure_ascii=False, indent=2))
        else:
            print(diagnosis.text(table))
        if arguments.out is not None:
            drawn, said = diagnosis.draw(table), diagnosis.caption(table)
            for path in style.save("diagnosis", table, drawn, arguments.out, caption=said):
                print(path, file=sys.stderr)
    return 0
