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
    asked.add_argument("--budget", type=float, help="per query row, on average")
    asked.add_argument(
        "--kl",
        type=float,
        help="instead: the cheapest plan that moves the model by at most so much",
    )
    parser.add_argument(
        "--currency",
        choices=options.CURRENCIES,
        default="reads",
        help="of prices [reads]",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="plan.json")
    parser.add_argument(
        "--held-out", type=Path, metavar="TEXT", help="a text that chooses nothing, to measure on"
    )
    parser.add_argument(
        "--method", action="append", metavar="SPEC", help="instead of the usual ones; repeatable"
    )
    parser.add_argument("--max-tokens", type=int, default=512, metavar="N", help="a text [512]")
    options.add_language(parser)
    parser.add_argument("--seed", type=int, default=0, help="[0]")
    options.add_jobs(parser, "threads")


def run(arguments: argparse.Namespace) -> int:
    from analysis import local_models
    from analysis.plan import plan
    from approx import parse
    from figures import planned
    from figures.language import speaking

    local_models.texts(arguments.model, *arguments.text, arguments.held_out)
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
        print(planned.text(found))
    print(arguments.out, file=sys.stderr)
    return 0
