"""The reference collection: its table against the slow twin, its digests, and what is exported."""

import csv
import hashlib

import numpy as np
import pytest
from collection import of, singular_values

from analysis import inputs
from analysis.inputs.array_files import read
from analysis.ranks import reference_collection
from figures.command.cli import main


@pytest.mark.parametrize("name", ["decode", pytest.param("window", marks=pytest.mark.slow)])
def test_two_routes_give_the_stored_row(name):
    x = reference_collection.head(name)
    stored = reference_collection.table().set_index("head").loc[name]
    fast, slow = reference_collection.row(x), of(x)
    assert list(fast) == list(reference_collection.NUMBERS)
    for column in reference_collection.NUMBERS:
        assert reference_collection.printed(fast[column]) == reference_collection.printed(
            slow[column]
        ), column
        assert reference_collection.printed(stored[column]) == reference_collection.printed(
            fast[column]
        ), column


def test_rows_of_a_real_head_follow_from_its_arrays():
    """By NumPy alone what costs little, on a causal head."""
    x = reference_collection.head("smollm2-typical")
    stored = reference_collection.table().set_index("head").loc[x.name]
    logits = np.where(np.tri(256, dtype=bool), x.q @ x.k.T / 8, -np.inf)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    s = np.linalg.svd(p, compute_uv=False)
    ordered = np.sort(p, axis=1)[:, ::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(p * np.log(p), axis=1)
    found = {
        "logit_max": logits.max(),
        "effective_keys": np.exp(entropy).mean(),
        "n_eff": np.median(1 / (p**2).sum(axis=1)),
        "stable_rank": (s**2).sum() / s[0] ** 2,
        "rank_1e-2": (s > 1e-2 * s[0]).sum(),
        "top_k_tv_4": 1 - ordered[:, :4].sum(axis=1).mean(),
        "top_k_tv_64": 1 - ordered[:, :64].sum(axis=1).mean(),
        "columns_tv_16": 1 - p[:, np.argsort(p.sum(axis=0))[-16:]].sum(axis=1).mean(),
    }
    for column, number in found.items():
        assert number == pytest.approx(stored[column], rel=1e-5), column  # six digits are stored


def test_every_head_has_the_digests_of_the_table():
    table = reference_collection.table()
    assert table["head"].tolist() == list(reference_collection.NAMES)
    assert len(table) <= 24
    for x, stored in zip(reference_collection.heads(), table.to_dict("records")):
        assert {k: stored[k] for k in reference_collection.names(x)} == reference_collection.names(
            x
        )
        for array in (x.q, x.k, x.v):
            assert (array == array.astype(np.float32)).all()
    x = reference_collection.head("decode")
    bounds = b"".join(int(i).to_bytes(8, "little") for i in [0] * 16 + list(range(113, 129)))
    assert reference_collection.digests(x)["mask_sha256"] == hashlib.sha256(bounds).hexdigest()


def test_made_logits_are_exact():
    """They are multiples of powers of two: no order of summation changes them."""
    for name in reference_collection.MADE:
        x = reference_collection.head(name)
        slow = x.q.astype(np.longdouble) @ x.k.T.astype(np.longdouble) / 4
        assert np.array_equal(x.Q @ x.K.T, slow), name


def test_singular_values_by_rotations():
    A = np.random.default_rng(0).standard_normal((7, 5))
    for B in (A, A.T, A * np.array([1, 0, 1, 1, 1]), np.ones((4, 4))):
        assert singular_values(B).astype(float) == pytest.approx(
            np.linalg.svd(B, compute_uv=False), abs=1e-14
        )


@pytest.mark.parametrize("format", reference_collection.FORMATS)
def test_export_can_be_read_back_and_used(format, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference_collection, "NAMES", ("smollm2-local", "window"))
    out = tmp_path / "heads"
    assert main(["collection", "--export", str(out), "--format", format]) == 0
    assert capsys.readouterr().out == f"2 heads, 5 files in {out}\n"
    for name in reference_collection.NAMES:
        x, path = reference_collection.head(name), out / f"{name}.{format}"
        back = inputs.load(path)
        assert np.array_equal(back.Q, x.Q)
        assert np.array_equal(back.K, x.K)
        assert np.array_equal(back.V, x.V)
        assert back.mask.shape == x.mask.shape
        assert np.array_equal(back.mask.stop, x.mask.stop)
        assert read(path)["q"].dtype == np.float32
    page = (out / "README.md").read_text("utf-8")
    assert all(f"| `{name}` |" in page for name in reference_collection.COLUMNS)
    assert "{columns}" not in page
    assert f"NAME.{format}" in page
    if format == "npz":  # the example of the page
        monkeypatch.chdir(out)
        code = page.split("```python\n")[1].split("```")[0]
        exec(compile(code, "README.md", "exec"), {})
    with (out / "collection.csv").open(encoding="utf-8") as file:
        assert next(csv.reader(file)) == list(reference_collection.COLUMNS)


def test_the_command_lists_and_writes_json(capsys):
    import json

    assert main(["collection"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(reference_collection.NAMES)
    assert main(["collection", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["head"] for row in rows] == list(reference_collection.NAMES)
    assert rows[0]["states_1e-2"] is None
    assert reference_collection.printed(rows[4]["n_eff"]) == reference_collection.printed(
        reference_collection.table().n_eff[4]
    )


def test_what_has_no_values_or_is_not_known_is_refused():
    with pytest.raises(ValueError, match="did you mean 'needle'"):
        reference_collection.head("neddle")
    x = inputs.Head("x", np.ones((2, 1)), np.ones((2, 1)))
    for call in (reference_collection.row, reference_collection.digests):
        with pytest.raises(ValueError, match="has no values v"):
            call(x)
