"""Claims of papers and public code: judged as expected, printed on a page, turned by bugs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from analysis import claims
from analysis.claims.evidence import CONDITION, CORRECTED, FAILS, HOLDS
from analysis.moments import expected_errors
from approx.combinations.designs.collisions import Collisions
from approx.combinations.designs.design import Rest
from approx.compressed_logits.key_pca import KeyPCA
from approx.compressed_logits.logit_svd import LogitSVD
from approx.compressed_logits.sign_sketch import SignSketch
from approx.estimate import exact
from approx.low_rank import coreset, thinning
from approx.sparse.top_k import TopK
from approx.supports import boxes
from figures.words.marked_text import table
from studies.claims import DOCUMENTS, MODULES, __main__

ROOT = Path(__file__).parents[2]
CONDITIONAL = [
    "VA-1", "VA-2", "VA-5", "MP-3", "MP-4", "HA-2", "H2O-1", "H2O-2", "QUEST-2", "MINF-1", "WC-1",
    "THIN-2", "TOPP-1", "TOPP-4", "TOPP-5", "KQ-1", "KQ-2", "LIN-1", "LIN-2", "SATA-1", "ERF-1",
    "TQ-1", "TQ-3",
]  # fmt: skip
SLOW = {"EDEN-1", "TQ-2", "TQ-3", "ERF-1"}  # half a second or more


@pytest.fixture(scope="module")
def papers():
    """Return the claims of papers that are cheap to check."""
    cheap = [name for name in claims.ids(MODULES) if name not in SLOW]
    return claims.check(*cheap, modules=MODULES)


def test_verdicts_are_those_that_the_statements_need(papers):
    for claim in papers:
        kind = CONDITION if claim.id in CONDITIONAL else HOLDS
        assert claim.verdict == (CORRECTED if "-E" in claim.id else kind), claim.id
        assert claim.document in DOCUMENTS
        assert all(np.isfinite(x).all() for x in claim.observed.values())


def test_the_page_has_every_claim_and_the_readmes_count_them(papers, ledger):
    text = __main__.PAGE.read_text("utf-8")
    rows = [line.split(" ")[1] for line in text.splitlines() if re.match(r"\| \w+-\w+ \|", line)]
    assert rows == claims.ids((*claims.MODULES, *MODULES))
    for claim in (*ledger, *papers):
        assert table("abcd", [__main__.row(claim)[:4]]).splitlines()[-1] in text
    for page in ("README.md", "README.zh-CN.md"):
        assert f" {len(rows)} " in (ROOT / page).read_text("utf-8")


def test_the_command_prints_as_expqk_does(capsys):
    assert __main__.main(["--json", "THIN-Ea", "KDE"]) == 0
    assert [x["id"] for x in json.loads(capsys.readouterr().out)] == ["KDE-1", "KDE-Ea", "THIN-Ea"]
    with pytest.raises(ValueError, match="unknown claim 'FL-1'"):
        __main__.main(["FL-1"])


BUGS = {  # what is wrong: (where, name, original → wrong, claims that see it)
    "softmax is over queries": (
        exact, "softmax", lambda f: lambda *a: f(*a) / f(*a).sum(axis=0), "HA-2 H2O-Ea",
    ),
    "top-k takes the smallest": (
        TopK, "pattern", lambda f: lambda self, Q, *a: f(self, -Q, *a), "TOPP-3",
    ),
    "no more than 1000 features are ever needed": (
        expected_errors, "features_needed", lambda f: lambda *a, **k: min(f(*a, **k), 1000),
        "LIN-1",
    ),
    "bounds forget the signs of queries": (
        boxes, "highest", lambda f: lambda Q, lo, hi: Q @ hi.T, "QUEST-1 QUEST-2",
    ),
    "the SVD of logits is that of the keys": (
        LogitSVD, "compressed",
        lambda f: lambda self, *a: KeyPCA(rank=self.rank).compressed(*a), "KQ-1 KQ-2",
    ),
    "drawn keys have the weight 1": (
        Rest, "weights",
        lambda f: lambda self, indptr, keys, w: f(self, indptr, keys, np.ones(len(keys))),
        "VA-3 MP-4 HA-Ea",
    ),
    "angles are halved": (
        Collisions, "_angles", lambda f: lambda self, *a: f(self, *a) / 2, "MP-1 MP-Ea",
    ),
    "τ is an eighth": (coreset, "radii", lambda f: lambda q, k: f(q, k) / 8, "WC-1"),
    "halves are the first ones": (
        thinning, "halves",
        lambda f: lambda points, *a: np.tile(np.arange(points.shape[1] // 2), (len(points), 1)),
        "THIN-1 THIN-Ea",
    ),
    "signs are of another key": (
        SignSketch, "read_back", lambda f: lambda self, S, bits, *a: f(self, S, bits[:, ::-1], *a),
        "QJL-1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_turn_verdicts(bug, monkeypatch):
    where, name, wrong, seen_by = BUGS[bug]
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    judged = claims.check(*seen_by.split(), modules=MODULES)
    assert {claim.id: claim.verdict for claim in judged} == dict.fromkeys(seen_by.split(), FAILS)
