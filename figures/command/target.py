"""``expqk target``."""

import argparse
import sys
from pathlib import Path

from figures.command import options

HELP = "Find the cheapest method with a given error, head by head."
EXAMPLES = ("expqk target qk.npz --tv 0.1",)
ERRORS = {  # of `analysis.advice.target.METRICS`, by option
    "tv": ("attention_tv", "of the attention weights: their total variation, such as 0.1"),
    "output": ("output_relative_error", "of the output P V, relative; FILE has v"),
    "kl": ("attention_kl", "of the attention weights: KL(exact ‖ estimate)"),
    "kl-reverse": ("attention_kl_reverse", "of the attention weights: KL(estimate ‖ exact)"),
    "frobenius": ("attention_relative_frobenius", "of the attention weights: relative Frobenius"),
    "kernel-frobenius": ("kernel_relative_frobenius", "of exp(q·k): relative Frobenius"),
    "kernel-max": ("kernel_relative_max", "of exp(q·k): largest entry, relative"),
}


def add(parser: argparse.ArgumentParser) -> None:
    options.add_file(parser)
    group = parser.add_argument_group("the largest error, one of")
    allowed = group.add_mutually_exclusive_group(required=True)
    for name, (_, about) in ERRORS.items():
        allowed.add_argument(f"--{name}", type=float, metavar="E", help=about)
    options.add(parser, "currency", "method", "references", "trials", "rows")
    options.add(parser, "lang", "seed", "jobs", "scheduler")
    options.add(parser, "json", help="one object per (layer, head, method)")
    about = "folder for the table and the finished heads; a stopped run continues there"
    parser.add_argument("--out", type=Path, metavar="DIR", help=about)


def run(arguments: argparse.Namespace) -> int:
    from analysis.advice.target import needed
    from analysis.compute import output_files
    from figures.drawing import style
    from figures.show import targets
    from figures.words.translation import speaking

    if arguments.out is not None:
        output_files.usable(arguments.out)
        output_files.refuse_edited(arguments.out, style.files("needed"))
    errors = {m: getattr(arguments, name.replace("-", "_")) for name, (m, _) in ERRORS.items()}
    ((metric, target),) = ((m, error) for m, error in errors.items() if error is not None)
    asked = options.measured(arguments) | {"target": target, "metric": metric}
    with speaking(arguments.lang):
        table = needed(**asked, progress=sys.stderr.isatty())
        options.show(arguments, table, targets.text)
        if arguments.out is not None:
            print(style.save_table("needed", table, arguments.out), file=sys.stderr)
    return 0
