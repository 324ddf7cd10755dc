"""The ledger of claims as a document: every claim a row, in both languages."""

import re

import pytest

from analysis.claims import DOCUMENTS
from figures.report import claims_document
from figures.show import claims_ledger
from figures.words.translation import speaking


@pytest.fixture(scope="module")
def frame(ledger):
    return claims_ledger.frame(ledger)


def rows(text):
    return re.findall(r"^\| \[([\w-]+)\]\{#\1\} \| .* \|$", text, re.MULTILINE)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_claim_is_a_row_of_its_document_with_its_source(frame, language):
    with speaking(language):
        text = claims_document.source(frame, report=True)
        source = claims_ledger.typeset(frame.source[0])
    sections = re.split(r"^# (\w+): .* \{#\1\}$", text, flags=re.MULTILINE)[1:]
    assert sections[::2] == list(DOCUMENTS)
    for name, section in zip(sections[::2], sections[1::2]):
        part = frame[frame.document == name].drop_duplicates("id")
        errata = part.id.str.contains("-E")
        assert rows(section) == [*part.id[~errata], *part.id[errata]]
        assert f"{{#tbl:{name}}}" in section
        assert f"| [{name}](#{name}) |" in text
    assert f"| {source} |" in sections[1]
    assert "(index.html)" in text
    assert "(index.html)" not in claims_document.source(frame, report=False)


def test_claims_are_counted_by_verdict_and_document(frame):
    table = claims_document.documents(frame)
    each = frame.drop_duplicates("id")
    assert f"  {len(each)} claims: " in claims_document.source(frame, report=True)
    assert table[table.columns[2:]].replace("–", 0).to_numpy().sum() == len(each)
    corrected = (each[each.document == "SB"].verdict == "corrected").sum()
    assert table.set_index("title").corrected["Scatterbrain"] == corrected
