"""``expqk substitute``."""

import argparse
import sys
from pathlib import Path

from figures.command import options

HELP = "Replace attention in a model, and measure the effect."
EXAMPLES = ('expqk substitute MODEL_DIR TEXT --method "sink_window(k=32)"',)


def add(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser, "a UTF-8 text file")
    parser.add_argument(
        "--method", action="append", default=[], metavar="SPEC", help="one run for each; repeatable"
    )
    parser.add_argument(
        "--plan", action="append", default=[], type=Path, metavar="FILE", help="one run for each"
    )
    options.add(parser, "budget", "currency")
    options.add_kept(parser, "computed by --method [all]")
    options.add(parser, "max-tokens")
    parser.add_argument(
        "--skip",
        type=int,
        default=64,
        metavar="N",
        help="number of first positions that are read but not measured [64]",
    )
    parser.add_argument(
        "--no-errors",
        action="store_true",
        help="do not measure the errors of heads: takes half the time",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        default="float32",
        help="number type of the model [float32]",
    )
    parser.add_argument(
        "--needle",
        action="store_true",
        help="instead: is a fact known that stands in TEXT at five depths, of 512, 1024, … tokens "
        "up to --max-tokens?",
    )
    options.add(parser, "lang", "seed", "jobs", "scheduler")
    options.add(parser, "json", help="one object per run")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder that keeps each run; a stopped command continues there",
    )


def run(arguments: argparse.Namespace) -> int:
    from analysis.models import checkpoints
    from analysis.models.plan import Plan
    from analysis.models.substitute import substitute
    from approx import parse
    from figures.show import substitution
    from figures.words.translation import speaking

    checkpoints.texts(arguments.model, arguments.text)
    if not (arguments.method or arguments.plan):
        raise ValueError("give at least one --method SPEC or --plan FILE")
    if arguments.needle:
        return _needle(arguments)
    found = substitute(
        arguments.model,
        arguments.text,
        {path.stem: Plan.read(path) for path in arguments.plan}
        | {spec: parse(spec) for spec in arguments.method},
        heads=arguments.heads,
        layers=arguments.layers,
        budget=arguments.budget,
        currency=arguments.currency,
        max_tokens=arguments.max_tokens,
        skip=arguments.skip,
        errors=not arguments.no_errors,
        dtype=arguments.dtype,
        seed=arguments.seed,
        jobs=arguments.jobs,
        scheduler=arguments.scheduler,
        progress=sys.stderr.isatty(),
        finished=arguments.out,
    )
    with speaking(arguments.lang):
        if arguments.json:
            print(options.as_json(substitution.objects(found)))
        else:
            print(substitution.text(found, arguments.text.name, arguments.skip))
    return 0


def _needle(arguments: argparse.Namespace) -> int:
    from analysis.models import checkpoints
    from analysis.models.checkpoints import Place
    from analysis.models.language_model import LanguageModel
    from analysis.models.needle import needle
    from analysis.models.plan import Plan, check_weights
    from approx import parse
    from figures.show import substitution
    from figures.words.translation import speaking

    choices = {path.stem: Plan.read(path) for path in arguments.plan}
    check_weights(choices.values(), [Place.from_path(arguments.model)])
    model = LanguageModel.open(arguments.model, dtype=arguments.dtype)
    found = needle(
        model,
        checkpoints.read(arguments.text),
        choices | {spec: parse(spec) for spec in arguments.method},
        max_tokens=arguments.max_tokens,
        seed=arguments.seed,
        jobs=arguments.jobs,
        progress=sys.stderr.isatty(),
        finished=arguments.out,
    )
    with speaking(arguments.lang):
        objects = found.to_dict("records")
        print(options.as_json(objects) if arguments.json else substitution.needle_text(found))
    return 0
