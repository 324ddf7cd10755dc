"""``expqk diagnose``."""

import argparse
import sys

from figures.command import options

METRICS = {"tv": "attention_tv", "output": "output_relative_error"}
EXAMPLES = ("expqk diagnose qk.npz", "expqk diagnose qk.safetensors --budget 24 --trials 3")


def add(parser: argparse.ArgumentParser) -> None:
    options.add_file(parser)
    options.add(parser, "budget", "currency")
    parser.add_argument(
        "--metric", choices=METRICS, default="tv", help="the error by which methods are ranked [tv]"
    )
    options.add(parser, "method", "references", "trials", "rows")
    about = "measure every method on all queries, even if it loses a first test on 64 of them"
    parser.add_argument("--no-screening", dest="screen", action="store_false", help=about)
    about = "keep exact attention if no error is below this share of uniform attention's [0.5]"
    parser.add_argument("--accept", type=float, default=0.5, metavar="SHARE", help=about)
    about = "say what would be measured, and about how long"
    parser.add_argument("--dry-run", action="store_true", help=about)
    options.add(parser, "lang", "seed", "jobs", "scheduler")
    options.add(parser, "json", help="one object per (layer, head, method)")
    about = "folder for the table and a map of the winners; a stopped run continues there"
    options.add(parser, "out", help=about)


def run(arguments: argparse.Namespace) -> int:
    from analysis.advice.diagnose import diagnose, dry_run
    from analysis.costs import budget
    from analysis.runs import output_files
    from figures.show import diagnosis
    from figures.words.translation import speaking

    options.refuse_idle(arguments, "dry-run", "scheduler", "json", "out")
    options.refuse_idle(arguments, "method", "references", "screen")
    options.refuse_idle(arguments, "references", "screen")
    if arguments.out is not None:
        from figures.drawing import style
        from figures.show import price_figure, winners_map

        output_files.usable(arguments.out, style.files("diagnosis"))
    asked = options.measured(arguments) | options.keywords(arguments, "accept", "screen", "budget")
    asked["metric"] = METRICS[arguments.metric]
    if arguments.budget is None:
        first = next(asked["inputs"][0].heads())
        asked["budget"] = budget.price_of_keys(budget.KEYS, first, arguments.currency)
    with speaking(arguments.lang):
        if arguments.dry_run:
            del asked["scheduler"], asked["finished"]  # this process tells how long heads take
            print(diagnosis.plan(dry_run(**asked)))
            return 0
        table = diagnose(**asked, progress=sys.stderr.isatty())
        options.show(arguments, table, diagnosis.text)
        if arguments.out is not None:
            drawn, said = winners_map.draw(table), winners_map.caption(table)
            paths = style.save("diagnosis", table, drawn, arguments.out, caption=said)
            if (line := winners_map.draw_line(table)) is not None:
                paths.append(price_figure.write(line, arguments.out))
            for path in paths:
                print(path, file=sys.stderr)
    return 0
