"""The ledger of claims as a document of its own: claims.html and claims.pdf."""

import tempfile
from pathlib import Path

import pandas as pd

from analysis.claims import DOCUMENTS, VERDICTS
from analysis.compute import output_files
from figures.document.convert import to_html, to_pdf
from figures.report.tables import markdown, metadata
from figures.show import claims_ledger
from figures.words.translation import tr

PAGE, PDF = "claims.html", "claims.pdf"


def write(ledger: pd.DataFrame, out: Path, *, report: bool = True) -> list[Path]:
    """Write the claims of a `figures.show.claims_ledger.frame` as a page and as a PDF; return both.

    Parameters
    ----------
    ledger : DataFrame
    out : Path
    report : bool
        Whether there is a report beside them to link to.
    """
    output_files.usable(out)
    with tempfile.TemporaryDirectory(prefix="expqk-") as folder:
        text = Path(folder) / "claims.md"
        text.write_text(source(ledger, report=report), encoding="utf-8")
        with output_files.recorded(out, PAGE) as path:
            to_html(text, path)
        with output_files.recorded(out, PDF) as path:
            to_pdf(text, path, landscape=True)
    return [out / PAGE, out / PDF]


def source(ledger: pd.DataFrame, *, report: bool) -> str:
    """Return the document as pandoc's Markdown: a section a document, a row a claim.

    The id of a claim is the name of its place, so that a link can lead to it.
    """
    verdicts = ledger.drop_duplicates("id").verdict
    about = tr(
        "Each statement was checked by number: observed is what this project computes, expected, "
        "in parentheses, what a formula or the source says. Margins of random quantities are five "
        "standard errors. *Holds with a condition* was seen to fail without the condition, "
        "*corrected* to fail as it is printed. An id with an E is an erratum: the statement is as "
        "it is right, and “not” marks the printed form."
    )
    parts = [metadata(tr("Claims, checked"), [about, "", _total(verdicts)])]
    if report:
        parts.append(tr("The [report](index.html) says what follows from them."))
    parts += [markdown(documents(ledger)), f": {tr('Claims by document')} {{#tbl:documents}}"]
    for name, part in ledger.groupby("document", sort=False):
        said = part.drop_duplicates("id").verdict
        parts += [
            f"# {name}: {claims_ledger.typeset(DOCUMENTS[str(name)])} {{#{name}}}",
            markdown(rows(part)),
            f": {_total(said)} {{#tbl:{name}}}",
        ]
    return "\n\n".join(parts) + "\n"


def documents(ledger: pd.DataFrame) -> pd.DataFrame:
    """Return one row a document: a link to its section, and how many claims have each verdict."""
    each = ledger.drop_duplicates("id")
    counts = pd.crosstab(each.document, each.verdict).reindex(each.document.unique())
    return pd.DataFrame(
        {
            tr("document"): [f"[{name}](#{name})" for name in counts.index],
            tr("title"): [claims_ledger.typeset(DOCUMENTS[str(name)]) for name in counts.index],
            **{tr(verdict): counts[verdict] for verdict in VERDICTS if verdict in counts},
        }
    ).replace(0, "–")


def rows(ledger: pd.DataFrame) -> pd.DataFrame:
    """Return one row a claim, errata last, with its source."""
    sources = ledger.drop_duplicates("id").set_index("id").source
    parts = []
    for errata in (False, True):
        part = claims_ledger.in_markdown(ledger, errata=errata)
        part.columns = [tr("id"), tr("statement"), tr("observed (expected)"), tr("verdict")]
        parts.append(part.assign(**{tr("source"): sources[part.index].map(claims_ledger.typeset)}))
    every = pd.concat(parts)
    return every.assign(**{tr("id"): [f"[{name}]{{#{name}}}" for name in every.index]})


def _total(verdicts: pd.Series) -> str:
    total = claims_ledger.counts(verdicts)
    if len(verdicts) == 1:
        return tr("1 claim: {total}", total=total)
    return tr("{count} claims: {total}", count=len(verdicts), total=total)
