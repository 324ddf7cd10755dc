"""Claims of papers and public code: as their page prints them, and turned by bugs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from analysis import claims
from analysis.claims.evidence import FAILS
from approx.combinations.designs.collisions import Collisions
from approx.compressed_logits.turboquant import TurboQuant, _RotationCoder
from approx.estimate import exact
from approx.low_rank import thinning
from approx.sparse.top_k import TopK
from approx.supports import boxes
from figures.words.markdown import table
from studies.claims import MODULES, __main__, derived

ROOT = Path(__file__).parents[2]
SLOW = {"EDEN-1", "TQ-2", "TQ-3", "ERF-1", "MASS-1", "ALIGN-1"}  # half a second or more


def test_the_page_and_the_command_have_every_claim(ledger, capsys):
    text = __main__.PAGE.read_text("utf-8")
    rows = [line.split(" ")[1] for line in text.splitlines() if re.match(r"\| \w+-\w+ \|", line)]
    assert rows == claims.ids((*claims.MODULES, *MODULES))
    cheap = [name for name in claims.ids(MODULES) if name not in SLOW]
    for claim in (*ledger, *claims.check(*cheap, modules=MODULES)):
        assert claim.verdict != FAILS, claim.id
        # statement, source and verdict: what is observed may differ in rounding elsewhere
        assert table("abcd", [__main__.row(claim)[:4]]).splitlines()[-1] in text
    for page in ("README.md", "README.zh-CN.md"):
        assert f" {len(rows)} " in (ROOT / page).read_text("utf-8")
    assert __main__.main(["--json", "THIN-Ea", "KDE"]) == 0
    assert [x["id"] for x in json.loads(capsys.readouterr().out)] == ["KDE-1", "KDE-Ea", "THIN-Ea"]
    with pytest.raises(ValueError, match="unknown claim 'FL-1'"):
        __main__.main(["FL-1"])


BUGS = {  # what is wrong: where, name, original → wrong, claims that see it
    "softmax is over queries":
        (exact, "softmax", lambda f: lambda *a: f(*a) / f(*a).sum(axis=0), "HA-2 H2O-Ea DROPKV-1"),
    "top-k takes the smallest":
        (TopK, "pattern", lambda f: lambda self, Q, *a: f(self, -Q, *a), "TOPP-3"),
    "bounds forget the signs of queries":
        (boxes, "highest", lambda f: lambda Q, lo, hi: Q @ hi.T, "QUEST-1 QUEST-2"),
    "angles are halved":
        (Collisions, "_angles", lambda f: lambda self, *a: f(self, *a) / 2, "MP-1 MP-Ea"),
    "halves are the first ones": (
        thinning, "halves",
        lambda f: lambda points, *a: np.tile(np.arange(points.shape[1] // 2), (len(points), 1)),
        "THIN-1 THIN-Ea"),
    "groups have no mean":
        (TurboQuant, "_means", lambda f: lambda self, k: 0 * k, "ROPE-1"),
    "codes have the norm for a scale": (
        _RotationCoder, "_round",
        lambda f: lambda self, x: (f(self, x)[0], np.linalg.norm(x, axis=1)), "EDEN-1 SCALE-1"),
    "fractions have a bit fewer":
        (derived, "E4M3", lambda f: (2, -6), "FP8-1"),
}  # fmt: skip


@pytest.mark.parametrize(("where", "name", "wrong", "seen_by"), BUGS.values(), ids=BUGS)
def test_planted_bugs_turn_verdicts(where, name, wrong, seen_by, monkeypatch):
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    judged = claims.check(*seen_by.split(), modules=MODULES)
    assert {claim.id: claim.verdict for claim in judged} == dict.fromkeys(seen_by.split(), FAILS)
