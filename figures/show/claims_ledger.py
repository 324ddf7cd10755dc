"""The ledger of claims as text, as JSON and as a table."""

import re
from collections import Counter
from collections.abc import Iterable

import pandas as pd

from analysis.claims import VERDICTS, Claim
from analysis.claims.evidence import text
from figures.words.translation import mark, tr

COLUMNS = ("id", "document", "statement", "source", "verdict", "quantity", "expected", "observed")
SEVERAL = {  # a verdict, of more than one claim
    "holds": mark("hold"),
    "holds with a condition": mark("hold with a condition"),
    "corrected": "corrected",
    "fails": mark("fail"),
}
UNBROKEN = "\N{NO-BREAK SPACE}"
SCRIPT = re.compile(
    r"\^(\{[^{}]*\}|[A-Za-z0-9]+)|(?:(?<=\b[^\W\d_])|(?<=[A-Z]\*))_(\{[^{}]*\}|[A-Za-z0-9]+)"
)


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
