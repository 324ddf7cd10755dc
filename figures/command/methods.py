"""``expqk methods``."""

import argparse
from typing import Any

from figures.command import options

EXAMPLES = ("expqk methods positive",)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", help="a method, to print its formula, moments, cost and source"
    )
    options.add(parser, "json")


def run(arguments: argparse.Namespace) -> int:
    from figures.show.methods_table import about, brief, describe, listing, resolved
    from figures.words.terminal_columns import aligned, terminal

    name = resolved(arguments.name) if arguments.name else None
    if arguments.json:
        shown = about(name) if name else listing()
        print(options.as_json(shown))
        return 0
    if name:
        print(describe(name))
        return 0
    if (size := terminal()) is not None:
        print(brief(size))
        return 0
    rows = [_shown(row) for row in listing()]
    print(aligned([tuple(rows[0]), *(tuple(row.values()) for row in rows)]))
    return 0


def _shown(row: dict[str, Any]) -> dict[str, str]:
    """Return a row of the table, where a method that refuses masks says so.

    Familiar names are left to the page of the method.
    """
    refused, _ = row.pop("refusal"), row.pop("also")
    for key in ("autoregressive", "row_local"):
        row[key] = "refused" if refused else "yes" if row[key] else "no"
    return row
