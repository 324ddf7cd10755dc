"""``expqk model``."""

import argparse
import shlex
import sys

from figures.command import options

EXAMPLES = ("expqk model MODEL_DIR TEXT --out mine",)


def add(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser, "UTF-8; its first half chooses, the second measures")
    about = "folder for the page; a stopped run continues there"
    options.add(parser, "out", required=True, help=about)
    about = "a text to measure on, instead of the second half of TEXT"
    options.add(parser, "held-out", help=about)
    about = "what a group of heads that share keys may cost on average, in the unit of --currency"
    options.add(parser, "budget", help=f"{about} [as much as 32 exact keys]")
    options.add(parser, "currency", "frontier")
    about = "name the best method of each head alone, too: takes three times as long"
    parser.add_argument("--diagnose", dest="diagnosed", action="store_true", help=about)
    about = "first tokens of each half, or of each text, that are read [512]"
    options.add(parser, "max-tokens", help=about)
    options.add(parser, "lang", "seed", "jobs", "scheduler")


def run(arguments: argparse.Namespace) -> int:
    from analysis.models import checkpoints
    from analysis.models.pipeline import Run
    from figures.report import model_page
    from figures.show import plans
    from figures.words.terminal_columns import paragraphs
    from figures.words.translation import speaking

    checkpoints.texts(arguments.model, arguments.text, arguments.held_out)
    with speaking(arguments.lang):
        model_page.usable(arguments.out)
        how = options.keywords(
            arguments, "held_out", "budget", "currency", "frontier", "diagnosed", "max_tokens",
            "seed", "jobs", "scheduler",
        )  # fmt: skip
        over = Run.open(arguments.model, arguments.text, arguments.out / "store", **how)
        print(paragraphs([model_page.beforehand(over)]), file=sys.stderr)
        found = over.results(progress=sys.stderr.isatty(), announce=options.announce)
        command = shlex.join(["expqk", *sys.argv[1:]])
        written = model_page.build(found, arguments.out, command=command)
        print(paragraphs(model_page.answers(found)))
        print(f"\n{plans.lines_of(plans.table_of_choices(found.plan))}\n")
        print(paragraphs(plans.legend(found.plan)))
    for path in written:
        print(path)
    return 0
