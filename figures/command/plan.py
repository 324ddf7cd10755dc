"""``expqk plan``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from figures.command import options

HELP = "A method for every head of a model, at a price or for a KL."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL_DIR", help="a folder, or a .gguf file")
    parser.add_argument(
        "text", type=Path, nargs="+", metavar="TEXT", help="UTF-8 files that the plan is chosen on"
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "--budget",
        type=float,
        metavar="B",
        help="what a query row of a head may cost on average, in the unit of --currency",
    )
    asked.add_argument(
        "--kl",
        type=float,
        metavar="NATS",
        help="instead: the cheapest plan whose KL(model ‖ replaced) per token is at most so much",
    )
    parser.add_argument(
        "--currency",
        choices=options.CURRENCIES,
        default="reads",
        help="unit of prices: values stored per query row, numbers read per new query, "
        "multiply-adds or bytes per query row [reads]",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="plan.json")
    parser.add_argument(
        "--held-out", type=Path, metavar="TEXT", help="a text that chooses nothing, to measure on"
    )
    parser.add_argument(
        "--method", action="append", metavar="SPEC", help="instead of the usual ones; repeatable"
    )
    options.add_tokens(parser, "of each text that are read")
    options.add_language(parser)
    options.add_seed(parser)
    options.add_jobs(parser, "threads")


def run(arguments: argparse.Namespace) -> int:
    from analysis.models import checkpoints
    from analysis.models.planner import plan
    from approx import parse
    from figures.show import plans
    from figures.words.translation import speaking

    checkpoints.texts(arguments.model, *arguments.text, arguments.held_out)
    if arguments.out.is_dir():
        raise IsADirectoryError(f"--out must be a file, got the folder {arguments.out}")
    found = plan(
        arguments.model,
        arguments.text,
        budget=arguments.budget,
        kl=arguments.kl,
        currency=arguments.currency,
        methods=None if arguments.method is None else [parse(s) for s in arguments.method],
        held_out=arguments.held_out,
        max_tokens=arguments.max_tokens,
        seed=arguments.seed,
        jobs=arguments.jobs,
        progress=sys.stderr.isatty(),
    )
    found.write(arguments.out)
    with speaking(arguments.lang):
        print(plans.text(found))
    print(arguments.out, file=sys.stderr)
    return 0
