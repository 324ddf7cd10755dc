"""The reference collection: its stored numbers and digests follow from its heads."""

import hashlib

import numpy as np
import pytest

from analysis import inputs
from analysis.ranks import reference_collection

MOST = reference_collection.REAL.keys() - {"minilm-hard", "smollm2-typical"}  # half a second each


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in MOST else ())
        for name in reference_collection.NAMES
    ],
)
def test_the_stored_row_follows_from_the_head(name):
    row = reference_collection.table().set_index("head").loc[name]
    for column, text in reference_collection.stored(reference_collection.head(name)).items():
        if column in reference_collection.NUMBERS:
            assert text == reference_collection.printed(row[column]), column
        elif column != "head":
            assert text == row[column], column


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
    assert list(table) == list(reference_collection.COLUMNS)
    assert table["head"].tolist() == list(reference_collection.NAMES)
    for x, stored in zip(reference_collection.heads(), table.to_dict("records")):
        digests = reference_collection.digests(x)
        assert {name: stored[name] for name in digests} == digests
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


def test_what_has_no_values_or_is_not_known_is_refused():
    with pytest.raises(ValueError, match="did you mean 'needle'"):
        reference_collection.head("neddle")
    x = inputs.Head("x", np.ones((2, 1)), np.ones((2, 1)))
    for call in (reference_collection.row, reference_collection.digests):
        with pytest.raises(ValueError, match="has no values v"):
            call(x)
