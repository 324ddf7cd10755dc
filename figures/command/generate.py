"""``expqk generate``."""

import argparse
from pathlib import Path

from figures.command import options

HELP = "Generate text with a plan, token by token."
EXAMPLES = ("expqk generate MODEL_DIR --plan plan.json --prompt TEXT --compare",)


def add(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--plan", type=Path, metavar="FILE", help="a file that `expqk plan` wrote")
    asked.add_argument(
        "--method",
        metavar="SPEC",
        help="in place of a plan: one method, for all heads or for --heads",
    )
    parser.add_argument(
        "--heads", type=options.heads, metavar="L.H,…", help="heads that --method computes [all]"
    )
    parser.add_argument(
        "--prompt",
        required=True,
        metavar="TEXT",
        help="the words, or a UTF-8 file that contains them",
    )
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="number of tokens of the prompt to read [all]"
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=64,
        metavar="N",
        help="number of tokens to generate, at most [64]",
    )
    parser.add_argument(
        "--compare", action="store_true", help="also generate with exact attention, and compare"
    )
    options.add(parser, "lang", "seed", "jobs", "json")


def run(arguments: argparse.Namespace) -> int:
    from analysis.models import checkpoints, generate
    from analysis.models.plan import Plan
    from approx import parse
    from figures.show import generation
    from figures.words.translation import speaking

    checkpoints.texts(arguments.model)
    words = arguments.prompt
    if len(words) < 256 and Path(words).is_file():
        [words] = checkpoints.texts(arguments.model, words)
    choice = Plan.read(arguments.plan) if arguments.plan else parse(arguments.method)
    said = generate(
        arguments.model,
        words,
        choice,
        tokens=arguments.tokens,
        heads=arguments.heads,
        max_tokens=arguments.max_tokens,
        compare=arguments.compare,
        seed=arguments.seed,
        jobs=arguments.jobs,
    )
    with speaking(arguments.lang):
        print(options.as_json(generation.facts(said)) if arguments.json else generation.text(said))
    return 0
