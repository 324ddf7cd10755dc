"""``expqk figures``."""

import argparse
import sys
from pathlib import Path

from figures.command import options
from figures.gallery import FIGURES, NAMES

FORMATS = "pdf", "svg", "png"  # of `figures.drawing.style`, which imports Matplotlib
EXAMPLES = ("expqk figures error --qk qk.npz", "expqk figures explore")
MORE = (
    "They go into OUT/figures, with what each shows in NAME.txt, from OUT/data/NAME.csv where that "
    "is there and none of --qk, --heads, --profile, --budget, --currency and --seed is given."
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all, or of {', '.join(NAMES)}; none: list them"
    )
    options.add_profile(parser)
    parser.add_argument(
        "--recompute",
        action="store_true",
        help="compute again, also if the table OUT/data/NAME.csv exists",
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder to write to [out]")
    parser.add_argument(
        "--format",
        type=options.kinds(*FORMATS),
        default=FORMATS,
        help="file types, separated by commas [pdf,svg,png]",
    )


def run(arguments: argparse.Namespace) -> int:
    from analysis.experiments.profile import watch
    from analysis.runs import output_files
    from approx import checks
    from figures.document import figure_files
    from figures.words.translation import speaking

    anew = arguments.recompute or bool(options.settings(arguments))
    if not arguments.names:
        if anew:
            raise ValueError("which figures? Names of them, or all")
        with speaking(arguments.lang):
            print(figure_files.listing())
        return 0
    for name in arguments.names:
        if name not in (known := [*NAMES, "all"]):
            listed = f"`expqk figures` lists all {len(NAMES)}"
            raise ValueError(checks.unknown("figure", name, known, listed))
    names = tuple(FIGURES) if "all" in arguments.names else tuple(dict.fromkeys(arguments.names))
    output_files.usable(arguments.out)
    for name in names:
        files = figure_files.files(name, arguments.out, arguments.format)
        output_files.refuse_edited(arguments.out, files if anew else files[1:])
    profile = options.profile(arguments)
    unused: dict[str, list[str]] = {}  # figures by the options that do nothing for them
    with speaking(arguments.lang):
        for name in names:
            saved = None if anew else figure_files.saved(name, arguments.out)
            if saved is None:
                watched, fields = watch(profile)
                table = FIGURES[name].compute(watched)
                if left := options.unused(arguments, fields, profile, table):
                    unused.setdefault(", ".join(left), []).append(name)
            else:
                table = saved
                print(
                    f"expqk: {name} is drawn from {arguments.out / 'data' / name}.csv; "
                    "--recompute computes it anew",
                    file=sys.stderr,
                )
            caption = figure_files.title_and_text(name, table)
            read, kinds = saved is not None, arguments.format
            for path in figure_files.save(name, table, arguments.out, kinds, caption, read=read):
                print(path)
    for given, unmoved in unused.items():
        print(f"expqk: nothing in {', '.join(unmoved)} depends on {given}", file=sys.stderr)
    return 0
