"""Claims of papers and public code, as their page prints them."""

import json
import re
from pathlib import Path

import pytest

from analysis import claims
from analysis.claims.evidence import FAILS
from figures.words.markdown import table
from studies.claims import MODULES, __main__

ROOT = Path(__file__).parents[2]
TEXT = __main__.PAGE.read_text("utf-8")
SLOW = {  # a third of a second or more
    "VA-3", "MP-1", "MP-4", "HA-Ea", "KDE-1", "THIN-2", "ERF-1", "TQ-2", "TQ-3", "QJL-1", "EDEN-1",
    "MASS-1", "ALIGN-1",
}  # fmt: skip
CHEAP = [name for name in claims.ids(MODULES) if name not in SLOW]


@pytest.mark.parametrize("names", [CHEAP, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_claims_are_as_their_page_says(names, ledger):
    for claim in (*ledger, *claims.check(*names, modules=MODULES)):
        assert claim.verdict != FAILS, claim.id
        # statement, source and verdict: what is observed may differ in rounding elsewhere
        assert table("abcd", [__main__.row(claim)[:4]]).splitlines()[-1] in TEXT


def test_the_page_and_the_command_have_every_claim(capsys):
    rows = [line.split(" ")[1] for line in TEXT.splitlines() if re.match(r"\| \w+-\w+ \|", line)]
    assert rows == claims.ids((*claims.MODULES, *MODULES))
    for page in ("README.md", "README.zh-CN.md"):
        assert f" {len(rows)} " in (ROOT / page).read_text("utf-8")
    assert __main__.main(["--json", "THIN-Ea", "QUEST", "--jobs", "1"]) == 0
    found = [one["id"] for one in json.loads(capsys.readouterr().out)]
    assert found == ["QUEST-1", "QUEST-2", "THIN-Ea"]
    with pytest.raises(ValueError, match="unknown claim 'FL-1'"):
        __main__.main(["FL-1"])
