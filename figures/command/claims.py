"""``expqk claims``."""

import argparse
import shutil
import sys
from pathlib import Path

from figures.command import options

HELP = "Check statements of papers and notes: expected, observed, verdict."
EXAMPLES = ("expqk claims FL-E", "expqk claims --out DIR")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help="an id such as FL-7, or the beginning of ids, such as FL-E [all]",
    )
    options.add_json(parser, "for machines, in English")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write claims.html and claims.pdf")
    options.add_language(parser)
    options.add_jobs(parser)


def run(arguments: argparse.Namespace) -> int:
    from analysis.claims import check
    from analysis.claims.evidence import FAILS
    from analysis.compute import output_files
    from figures.document import pandoc
    from figures.report import claims_document
    from figures.show.claims_ledger import frame, rows, table
    from figures.words.translation import speaking

    if arguments.out:
        if arguments.json:
            raise ValueError("--json prints the claims and --out writes them: give one of the two")
        output_files.usable(arguments.out)  # before anything is computed
        output_files.refuse_edited(arguments.out, (claims_document.PAGE, claims_document.PDF))
        pandoc.executable()
    claims = check(*arguments.ids, jobs=arguments.jobs, progress=sys.stderr.isatty())
    if arguments.out:
        with speaking(arguments.lang):
            for path in claims_document.write(frame(claims), arguments.out, report=False):
                print(path)
    elif arguments.json:
        print(options.as_json(rows(claims)))
    else:
        with speaking(arguments.lang):
            print(table(claims, shutil.get_terminal_size((120, 24)).columns))
    return int(any(claim.verdict == FAILS for claim in claims))
