"""``expqk claims``."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from figures.command import options

if TYPE_CHECKING:
    from analysis.claims import Claim

EXAMPLES = ("expqk claims FL-E",)


def add(parser: argparse.ArgumentParser) -> None:
    add_ids(parser, "FL-7", "FL-E")
    options.add(parser, "lang")


def add_ids(parser: argparse.ArgumentParser, one: str, several: str) -> None:
    """Add the ids of the claims to check, and how they are checked and printed."""
    parser.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help=f"an id such as {one}, or the beginning of ids, such as {several} [all]",
    )
    options.add(parser, "json", help="for machines, in English")
    options.add(parser, "jobs")


def run(arguments: argparse.Namespace) -> int:
    from analysis.claims import check
    from figures.words.translation import speaking

    claims = check(*arguments.ids, jobs=arguments.jobs, progress=sys.stderr.isatty())
    with speaking(arguments.lang):
        return show(claims, json=arguments.json)


def show(claims: list[Claim], *, json: bool) -> int:
    """Print claims as a table or as JSON; return 1 if one of them fails."""
    from analysis.claims.evidence import FAILS
    from figures.show.claims_ledger import rows, table

    width = shutil.get_terminal_size((120, 24)).columns
    print(options.as_json(rows(claims)) if json else table(claims, width))
    return int(any(claim.verdict == FAILS for claim in claims))
