"""The report: everything is there, twice the same bytes, numbers from tables, an edit survives."""

import dataclasses
import functools
import json
import re

import pandas as pd
import pytest

from analysis import claims, inputs
from figures.profile import Profile
from figures.report import build as report


@pytest.fixture(scope="module", autouse=True)
def one_ledger():
    """Check the claims once for all reports: tests/analysis/test_claims.py checks them again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "check", functools.cache(report.check))
        yield


@pytest.fixture(scope="module")
def small():
    heads = [inputs.gaussian(40, 8, rng=0), *inputs.sample().heads()][:3]
    cut = tuple(dataclasses.replace(x, q=x.q[:40], k=x.k[:40], v=x.v[:40]) for x in heads)
    return Profile("small", cut, (0.25, 1.0, 8.0), 16.0, trials=2, draws=50)


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    report.build(small, out, command="expqk report")
    return out


def test_all_parts_are_there(made):
    names = {str(p.relative_to(made)) for p in made.rglob("*") if p.is_file()}
    assert {"report.md", "index.html", "report.pdf", "manifest.json"} <= names
    for name in ("error", "price", "moments", "rank", "spectrum"):
        assert {
            f"data/{name}.csv",
            *(f"figures/{name}.{x}" for x in ("svg", "pdf", "png")),
        } <= names


def test_every_claim_is_in_the_report_with_its_numbers(made):
    table = pd.read_csv(made / "data" / "claims.csv")
    assert list(dict.fromkeys(table.id)) == claims.ids()
    text = (made / "report.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:ILA|SB|DIET|ATT|FL)-\w+) \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(claims.ids())
    assert [row for row in rows if "-E" in row] == rows[-35:]  # errata in a table of their own
    assert re.search(r"the printed normaliser: 64 \(not\s1\)", text)
    page = (made / "index.html").read_text("utf-8")
    assert all(f"<td>{one}</td>" in page for one in claims.ids())


def test_the_page_is_self_contained(made):
    page = (made / "index.html").read_text("utf-8")
    assert "<math" in page
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert page.count("<figure") >= 5


def test_versions_and_times_are_in_the_manifest_only(made):
    manifest = json.loads((made / "manifest.json").read_text("utf-8"))
    assert manifest["command"] == "expqk report"
    assert {"numpy", "numba", "typst"} <= set(manifest["versions"])
    assert manifest["blas"]
    assert manifest["versions"]["scipy"] not in (made / "report.md").read_text("utf-8")


def test_made_twice_it_has_the_same_bytes(made, small, tmp_path):
    report.build(small, tmp_path, command="expqk report")
    for path in sorted(p for p in made.rglob("*") if p.is_file() and p.name != "manifest.json"):
        assert (tmp_path / path.relative_to(made)).read_bytes() == path.read_bytes(), path.name


def test_an_edited_source_can_be_rebuilt(made, tmp_path):
    copy = tmp_path / "mine"
    copy.mkdir()
    (copy / "figures").mkdir()
    for path in (made / "figures").glob("*.svg"):
        (copy / "figures" / path.name).write_bytes(path.read_bytes())
    text = (made / "report.md").read_text("utf-8")
    (copy / "report.md").write_text(text + "\n# 我的结论\n\nMy conclusion.\n", encoding="utf-8")
    report.rebuild(copy)
    assert "我的结论" in (copy / "index.html").read_text("utf-8")
    assert (copy / "report.pdf").read_bytes().startswith(b"%PDF")


def test_numbers_in_the_prose_follow_the_tables(small, made):
    tables = {p.stem: pd.read_csv(p) for p in (made / "data").glob("*.csv")}
    text = report.render(small, tables, "expqk report")
    assert text == (made / "report.md").read_text("utf-8")
    errors = tables["error"]
    attention = errors.metric == "attention_relative_frobenius"
    both = errors.method.str.startswith("godec(budget")
    errors.loc[attention & both, "value"] /= 100
    assert report.render(small, tables, "expqk report") != text


def test_names_of_files_cannot_become_markup(tmp_path):
    import numpy as np

    path = tmp_path / "a|b `x` <script> [l](u).npz"
    np.savez(path, q=np.ones((4, 2)), k=np.ones((4, 2)))
    assert inputs.load(path).name == "a_b _x_ _script_ _l__u_"
