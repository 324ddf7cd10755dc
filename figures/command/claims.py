"""``expqk claims``."""

import argparse
import itertools
import math
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from analysis.claims import VERDICTS, Claim, check
from analysis.claims.evidence import FAILS, Value, value_text
from figures.command import options
from figures.words.terminal_columns import aligned, wrap
from figures.words.translation import mark, speaking, tr

EXAMPLES = ("expqk claims FL-E",)
HEADS = (
    mark("id"), mark("verdict"), mark("statement"), mark("quantity"), mark("expected"),
    mark("observed"),
)  # fmt: skip
SEVERAL = {  # words for a verdict on more than one claim
    "holds": mark("hold"),
    "holds with a condition": mark("hold with a condition"),
    "corrected": "corrected",
    "fails": mark("fail"),
}
NARROWEST = 80


def add(parser: argparse.ArgumentParser) -> None:
    add_ids(parser, "FL-7", "FL-E")
    options.add(parser, "lang")


def add_ids(parser: argparse.ArgumentParser, one: str, several: str) -> None:
    """Add the ids of the claims to check, and how they are checked and printed."""
    about = f"an id such as {one}, or the beginning of ids, such as {several} [all]"
    parser.add_argument("ids", nargs="*", metavar="ID", help=about)
    options.add(parser, "json", help="for machines, in English")
    options.add(parser, "jobs")


def run(arguments: argparse.Namespace) -> int:
    claims = check(*arguments.ids, jobs=arguments.jobs, progress=sys.stderr.isatty())
    with speaking(arguments.lang):
        return show(claims, json=arguments.json)


def show(claims: list[Claim], *, json: bool) -> int:
    """Print claims as a table or as JSON; return 1 if one of them fails."""
    width = shutil.get_terminal_size((120, 24)).columns
    print(options.as_json(rows(claims)) if json else _table(claims, width))
    return int(any(claim.verdict == FAILS for claim in claims))


def rows(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """Return one object a claim, for machines: ``expected`` is text, ``observed`` numbers.

    Both are by quantity. A number that is not finite is text: JSON has none.
    """
    return [
        {
            "id": claim.id,
            "document": claim.document,
            "statement": claim.statement,
            "source": claim.source,
            "expected": claim.expected,
            "observed": {what: _plain(value) for what, value in claim.observed.items()},
            "verdict": claim.verdict,
        }
        for claim in claims
    ]


def _plain(value: Value) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value if math.isfinite(value) else str(value)


def counts(claims: Iterable[Claim]) -> str:
    """Return how many claims there are of each verdict."""
    numbers = Counter(claim.verdict for claim in claims)
    total = tr(", ").join(
        tr("{count} {verdict}", count=count, verdict=tr(one if count == 1 else SEVERAL[one]))
        for one in VERDICTS
        if (count := numbers[one])
    )
    if numbers.total() == 1:
        return tr("1 claim: {total}", total=total)
    return tr("{count} claims: {total}", count=numbers.total(), total=total)


def _table(claims: list[Claim], width: int) -> str:
    """Return the ledger as a table of that width, every cell wrapped, and a line of totals."""
    sizes = _sizes(max(width, NARROWEST))
    lines = [tuple(map(tr, HEADS)), tuple("─" * size for size in sizes)]
    for claim in claims:
        left = map(wrap, (claim.id, tr(claim.verdict), tr(claim.statement)), sizes)
        right = [
            line
            for what, due in claim.expected.items()
            for line in itertools.zip_longest(
                *map(
                    wrap,
                    (tr(what), due.replace("not ", tr("not ")), value_text(claim.observed[what])),
                    sizes[3:],
                ),
                fillvalue="",
            )
        ]
        lines.append(tuple(map("\n".join, (*left, *zip(*right)))))
        lines.append(("",) * len(HEADS))
    return f"{aligned(lines)}\n{counts(claims)}"


def _sizes(width: int) -> list[int]:
    narrow = [8, 10]
    numbers = [max(12, width // 8), max(9, width // 12)]
    rest = width - sum(narrow) - sum(numbers) - 2 * (len(HEADS) - 1)
    return [*narrow, rest - rest // 2, rest // 2, *numbers]
