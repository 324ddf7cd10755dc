"""The ledger of claims: complete, and judged as expected."""

import json
import math
import re
from importlib import resources

import numpy as np
import polib
import pytest
from drawing import numbers

from analysis import claims
from analysis.claims import evidence, ledger
from analysis.claims.evidence import CONDITION, CORRECTED, FAILS, HOLDS, verdict
from approx.textbook.flash import GatedUnit
from figures.command import claims as shown
from figures.command.cli import main
from figures.words import terminal_columns

NUMBERS = {  # of claims, and of errata
    "ILA": (12, 8), "SB": (10, 8), "DIET": (4, 6), "ATT": (7, 7), "FL": (15, 6),
}  # fmt: skip
CLAIMS = [f"{name}-{i + 1}" for name, (count, _) in NUMBERS.items() for i in range(count)]
ERRATA = [f"{name}-E{'abcdefgh'[i]}" for name, (_, count) in NUMBERS.items() for i in range(count)]
CONDITIONAL = [
    "ILA-8", "ILA-9", "ILA-10", "ILA-11", "SB-7", "SB-9", "ATT-2", "ATT-6", "ATT-7",
    "FL-7", "FL-8",
]  # fmt: skip
FORMULA = re.compile(r"(n|Σ) [^,]*$")  # says the same in both languages
WRONG = ["FL-15"]  # a claim of a comment that is no erratum of the table


def test_verdicts_are_those_expected_and_the_same_each_time(ledger):
    expected = dict.fromkeys(CLAIMS, HOLDS) | dict.fromkeys(CONDITIONAL, CONDITION)
    expected |= dict.fromkeys(ERRATA + WRONG, CORRECTED)
    assert {claim.id: claim.verdict for claim in ledger} == expected
    assert claims.check("ILA-2", "SB-Ed") == [x for x in ledger if x.id in ("ILA-2", "SB-Ed")]


def test_every_claim_is_there_once_with_its_numbers(ledger):
    assert sorted(claim.id for claim in ledger) == sorted(CLAIMS + ERRATA)
    assert [claim.id for claim in ledger] == claims.ids()
    assert {claim.document for claim in ledger} == set(claims.DOCUMENTS)
    for claim in ledger:
        assert claim.statement.endswith(".")
        assert claim.source
        assert claim.expected.keys() == claim.observed.keys()
        for value in claim.observed.values():
            assert np.isfinite(value).all()
    assert len({claim.statement for claim in ledger}) == len(ledger)


def test_ids_and_their_beginnings_choose():
    assert [c.id for c in claims.check("FL-1", "diet-ea")] == ["DIET-Ea", "FL-1"]
    assert [c.id for c in claims.check("DIET")] == [x for x in claims.ids() if x[:4] == "DIET"]
    with pytest.raises(ValueError, match="unknown claim 'FLL', did you mean 'FL'"):
        claims.check("FLL")


# What a verdict is made of


def test_what_a_verdict_needs():
    right, wrong = evidence.equal("x", 1, 1), evidence.equal("x", 1, 2)
    assert verdict([right]) == HOLDS
    assert verdict([right, wrong]) == verdict([]) == FAILS
    assert verdict([right, evidence.without(wrong)]) == CONDITION
    assert verdict([right, evidence.without(wrong), evidence.printed(wrong)]) == CORRECTED
    assert verdict([right, evidence.printed(right)]) == FAILS
    assert verdict([right, evidence.without(right)]) == FAILS

    def checks():
        yield evidence.equal("x", 1, 1)
        yield evidence.equal("x", 1, 1)

    entry = evidence.claim("FL-0", "nowhere")(checks)
    with pytest.raises(ValueError, match="FL-0: two checks have one name"):
        entry.judge()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_proves_nothing(value):
    checks = [evidence.near("x", 1.0, value, 0.1), evidence.at_most("x", 1.0, value)]
    for check in checks:
        assert not check.agrees
        assert not evidence.printed(check).agrees
    assert not evidence.above("x", 1.0, math.nan).agrees


# The command


def test_json_is_for_machines(capsys, ledger):
    assert main(["claims", "--json", "FL-7", "DIET", "ILA-Ef", "--jobs", "1"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 12
    for row in rows:
        keys = ["id", "document", "statement", "source", "expected", "observed", "verdict"]
        assert list(row) == keys
        assert row["document"] == row["id"].split("-")[0]
        assert row["verdict"] in claims.VERDICTS
        assert row["expected"].keys() == row["observed"].keys()
        assert all(isinstance(x, str) for x in row["expected"].values())
        assert all(isinstance(x, int | float | list) for x in row["observed"].values())
    written = json.dumps(shown.rows(ledger), allow_nan=False)
    assert [row["id"] for row in json.loads(written)] == claims.ids()


def test_the_table_fits_the_terminal_in_both_languages(capsys, monkeypatch):
    for width in (80, 132):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["claims", "DIET-E", "FL-7", "--jobs", "1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width
        assert lines[0].split()[:2] == ["id", "verdict"]
        assert lines[-1] == "7 claims: 1 holds with a condition, 6 corrected"
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["claims", "--lang", "zh", "DIET-E", "FL-7", "--jobs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(terminal_columns.width, lines)) <= 80
    assert lines[0].split() == ["编号", "结论", "论断", "量", "预期", "实测"]
    assert lines[-1] == "7 条论断：1 条有条件成立、6 条更正后成立"
    verdicts = {line.split()[1] for line in lines if line.startswith(("DIET", "FL"))}
    assert verdicts == {"有条件成立", "更正后成立"}


def test_every_claim_has_its_translation_with_the_same_numbers(ledger):
    entries = polib.pofile(str(resources.files("figures") / "locale" / "zh_CN.claims.po"))
    said = {text for claim in ledger for text in (claim.statement, *claim.expected)}
    assert {entry.msgid for entry in entries} == {text for text in said if not FORMULA.match(text)}
    for entry in entries:
        assert numbers(entry.msgstr) == numbers(entry.msgid), entry.msgid


def test_a_claim_that_fails_is_exit_status_1(capsys, monkeypatch):
    monkeypatch.setattr(GatedUnit, "parameters", 4 * 6 * 5)
    assert main(["claims", "FL-4", "--jobs", "1"]) == 1
    assert "1 claim: 1 fails" in capsys.readouterr().out
    assert main(["claims", "FL-99"]) == 1
    assert "unknown claim 'FL-99'" in capsys.readouterr().err


def test_a_check_that_raises_is_a_failure_of_its_own(capsys, monkeypatch):
    def checks():
        yield evidence.equal("what went before", 1, sum([1]))
        raise FloatingPointError("overflow\nin exp")

    broken = evidence.claim("FL-4", "nowhere")(checks)
    monkeypatch.setattr(ledger.flash, "broken", broken, raising=False)
    monkeypatch.setenv("COLUMNS", "200")  # no word is broken
    assert main(["claims", "--json", "FL-4", "FL-7", "--jobs", "1"]) == 1
    seen = capsys.readouterr()
    one, other = json.loads(seen.out)
    assert (one["verdict"], other["verdict"]) == (FAILS, CONDITION)
    error = "FloatingPointError: overflow in exp"
    assert one["expected"] == {"what went before": "1", error: "no error"}
    assert one["observed"] == {"what went before": 1, error: "nan"}
    assert seen.err == ""
    assert main(["claims", "FL-4", "--jobs", "1"]) == 1
    assert "FloatingPointError:" in capsys.readouterr().out
