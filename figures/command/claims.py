"""``expqk claims``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys

from figures.command import options

HELP = "Check what papers and notes say: expected, observed, verdict."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="FL-7, or a beginning: FL, FL-E; all")
    parser.add_argument("--json", action="store_true", help="for machines, in English")
    options.add_language(parser)
    options.add_jobs(parser)


def run(arguments: argparse.Namespace) -> int:
    from analysis.claims import check
    from analysis.claims.evidence import FAILS
    from figures.claims import rows, table
    from figures.language import speaking

    claims = check(*arguments.ids, jobs=arguments.jobs, progress=sys.stderr.isatty())
    if arguments.json:
        print(json.dumps(rows(claims), ensure_ascii=False, indent=2))
    else:
        with speaking(arguments.lang):
            print(table(claims, shutil.get_terminal_size((120, 24)).columns))
    return int(any(claim.verdict == FAILS for claim in claims))
