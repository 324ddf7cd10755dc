"""The ledger of claims as text, as JSON and as a table."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd

from analysis.claims import VERDICTS, Claim
from analysis.claims.evidence import Value, text
from figures.words.terminal_columns import pad, wrap
from figures.words.translation import mark, tr

COLUMNS = ("id", "document", "statement", "source", "verdict", "quantity", "expected", "observed")
HEADS = (
    mark("id"), mark("verdict"), mark("statement"), mark("quantity"), mark("expected"),
    mark("observed"),
)  # fmt: skip
SEVERAL = {  # a verdict, of more than one claim
    "holds": mark("hold"),
    "holds with a condition": mark("hold with a condition"),
    "corrected": "corrected",
    "fails": mark("fail"),
}
NARROWEST = 80
UNBROKEN = "\N{NO-BREAK SPACE}"
SCRIPT = re.compile(
    r"\^(\{[^{}]*\}|[A-Za-z0-9]+)|(?:(?<=\b[^\W\d_])|(?<=[A-Z]\*))_(\{[^{}]*\}|[A-Za-z0-9]+)"
)


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


def frame(claims: Iterable[Claim]) -> pd.DataFrame:
    """Return one row a checked quantity, all of it text."""
    return pd.DataFrame(
        [
            (claim.id, claim.document, claim.statement, claim.source, claim.verdict,
             what, claim.expected[what], text(claim.observed[what]))
            for claim in claims for what in claim.expected
        ],
        columns=list(COLUMNS),
    )  # fmt: skip


def in_markdown(table: pd.DataFrame, *, errata: bool) -> pd.DataFrame:
    """Return one row a claim, or an erratum, of a `frame`, in Markdown.

    What was observed is followed by what was expected, in parentheses.
    """
    part = table[table.id.str.contains("-E") == errata]
    observed, expected = (part[x].str.replace(" ", UNBROKEN) for x in ("observed", "expected"))
    quantities = pd.Series(
        [
            tr(
                "{quantity}: {observed} ({expected})",
                quantity=tr(what),
                observed=seen,
                expected=due,
            )
            for what, seen, due in zip(part.quantity, observed, expected)
        ],
        part.index,
        dtype=str,
    ).groupby(part.id)
    first = part.drop_duplicates("id").set_index("id", drop=False)
    columns = {
        tr("id"): first.id,
        tr("what to do instead") if errata else tr("claim"): first.statement.map(tr).map(typeset),
        tr("observed (expected)"): quantities.agg(tr("; ").join).map(typeset),
        tr("verdict"): first.verdict.map(tr),
    }
    return pd.DataFrame(columns).loc[first.index]


def typeset(text: str) -> str:
    """Return plain text as Markdown: nothing in it is markup but raised and lowered letters.

    A bar is left as it is: in a table it is escaped with the others. Lines do not break at "=".

    Examples
    --------
    >>> print(typeset("e^{q·k} of rank ≤ d_h"))
    e^q·k^ of rank ≤ d~h~
    """
    text = re.sub("(?<![A-Z])-(?=[0-9])", "−", text)
    text = text.replace(" = ", f"{UNBROKEN}={UNBROKEN}")
    parts, start = [], 0
    for match in SCRIPT.finditer(text):
        mark = "^" if match[1] else "~"
        inside = _escaped((match[1] or match[2]).strip("{}")).replace(" ", "\\ ")
        parts += [_escaped(text[start : match.start()]), f"{mark}{inside}{mark}"]
        start = match.end()
    return "".join([*parts, _escaped(text[start:])])


def _escaped(text: str) -> str:
    return re.sub(r"""([\\`*_{}\[\]<>#^~$@&"'])""", r"\\\1", text)


def counts(verdicts: Iterable[str]) -> str:
    """Return how many there are of each verdict.

    Examples
    --------
    >>> counts(["holds", "corrected", "holds", "fails"])
    '2 hold, 1 corrected, 1 fails'
    """
    numbers = Counter(verdicts)
    return tr(", ").join(
        tr(
            "{count} {verdict}",
            count=count,
            verdict=tr(verdict if count == 1 else SEVERAL[verdict]),
        )
        for verdict in VERDICTS
        if (count := numbers[verdict])
    )


def table(claims: list[Claim], width: int) -> str:
    """Return the ledger as a table of that width, every cell wrapped, and a line of totals."""
    sizes = _sizes(max(width, NARROWEST))
    lines = [*_row(map(tr, HEADS), sizes), "  ".join("─" * size for size in sizes)]
    for claim in claims:
        quantities = [
            line
            for what, expected in claim.expected.items()
            for line in _cells((tr(what), expected, text(claim.observed[what])), sizes[3:])
        ]
        left = _cells((claim.id, tr(claim.verdict), tr(claim.statement)), sizes[:3])
        blank = ("",) * 3
        for a, b in itertools.zip_longest(left, quantities, fillvalue=blank):
            lines.append(_line((*a, *b), sizes))
        lines.append("")
    total = counts(claim.verdict for claim in claims)
    if len(claims) == 1:
        return "\n".join([*lines, tr("1 claim: {total}", total=total)])
    return "\n".join([*lines, tr("{count} claims: {total}", count=len(claims), total=total)])


def _sizes(width: int) -> list[int]:
    narrow = [8, 10]
    numbers = [max(12, width // 8), max(9, width // 12)]
    rest = width - sum(narrow) - sum(numbers) - 2 * (len(HEADS) - 1)
    return [*narrow, rest - rest // 2, rest // 2, *numbers]


def _row(cells: Iterable[str], sizes: list[int]) -> list[str]:
    return [_line(line, sizes) for line in _cells(cells, sizes)]


def _cells(cells: Iterable[str], sizes: list[int]) -> list[tuple[str, ...]]:
    wrapped = [wrap(cell, size) for cell, size in zip(cells, sizes)]
    return list(itertools.zip_longest(*wrapped, fillvalue=""))


def _line(cells: Iterable[str], sizes: list[int]) -> str:
    return "  ".join(map(pad, cells, sizes)).rstrip()
