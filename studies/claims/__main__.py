"""Check the claims of papers and public code of 2020 to 2026, and write docs/claims.md."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis import claims
from analysis.claims import Claim
from analysis.claims.evidence import value_text
from figures.command.claims import add_ids, counts, show
from figures.words.markdown import insert, table
from studies.claims import DOCUMENTS, MODULES

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
MARKS = "<!-- claims -->", "<!-- end -->"


def page(ledger: Sequence[Claim]) -> str:
    """Return the tables of `PAGE`: a section a document, a row a claim."""
    titles = claims.DOCUMENTS | DOCUMENTS
    parts = [f"{counts(ledger)}."]
    for name in dict.fromkeys(claim.document for claim in ledger):
        part = [row(claim) for claim in ledger if claim.document == name]
        heads = "id", "statement", "source", "verdict", "observed (expected)"
        parts += [f"## {name}: {titles[name]}", table(heads, part)]
    return "\n\n".join(parts)


def row(claim: Claim) -> list[str]:
    """Return the cells of a claim."""
    numbers = [
        f"{what}: {value_text(claim.observed[what])} ({due})"
        for what, due in claim.expected.items()
    ]
    cells = claim.id, claim.statement, claim.source, claim.verdict, "; ".join(numbers)
    return [re.sub(r"([\\`*_\[\]<>$])", r"\\\1", cell) for cell in cells]


def main(argv: Sequence[str] | None = None) -> int:
    """Print claims, or write the page of all claims, those of `expqk claims` too."""
    parser = argparse.ArgumentParser(prog="python -m studies.claims", description=__doc__)
    add_ids(parser, "VA-1", "VA-E")
    parser.add_argument("--page", action="store_true", help="write docs/claims.md")
    arguments = parser.parse_args(argv)
    progress = sys.stderr.isatty()
    modules = (*claims.MODULES, *MODULES) if arguments.page else MODULES
    ledger = claims.check(*arguments.ids, modules=modules, jobs=arguments.jobs, progress=progress)
    if arguments.page:
        PAGE.write_text(insert(PAGE.read_text("utf-8"), *MARKS, page(ledger)), "utf-8")
    return show(ledger, json=arguments.json)


if __name__ == "__main__":
    sys.exit(main())
