"""Sweeps of inputs with masks: keys of cells, refused methods, configs, shared keys of a file."""

import dataclasses

import numpy as np
import pytest

from analysis.costs.budget import match
from analysis.inputs import gaussian, load
from analysis.sweeps.config import ConfigError, loads
from analysis.sweeps.sweep import plan
from approx import METHODS, Mask, parse
from approx.baselines import One

GRID = {"trials": 1, "seed": 0}
DIGEST = "57c21be7fbfbd5a749eaadfe8e544ff795cb5139e36e29e89ad5ef3f78a10a90"
KEY = "22bb242a208902dced5b49fa4c64fc010584a73bb7a98289cfde990d765fb66d"
TEMPERATURES = (0.5, 2.0)
CONFIG = 'temperatures = [1.0]\nmethods = ["one"]\n[[inputs]]\nkind = "gaussian"\nn = 6\nd = 2\n'


@dataclasses.dataclass(frozen=True)
class Refusing(One):
    """A method that has no meaning under a mask."""

    name = "refusing"
    refusal = "it mixes all tokens"


def masked(*masks, n=6):
    x = gaussian(n, 2, rng=0)
    return [dataclasses.replace(x, name=str(m), mask=m) for m in masks]


def test_a_key_contains_the_mask_unless_it_is_full():
    masks = None, Mask.full(6, 6), "causal", Mask.window(6, 6, 2), Mask.window(6, 6, 6)
    cells = [
        plan([parse("one")], dataclasses.replace(x, name="x"), (1.0,), **GRID).cells[0]
        for x in masked(*masks)
    ]
    assert ["mask" in cell.about() for cell in cells] == [False, False, True, True, True]
    keys = [cell.key for cell in cells]
    assert keys[0] == keys[1]
    assert keys[2] == keys[4]  # a window of all keys is no limit
    assert len(set(keys)) == 3
    bare = dataclasses.replace(cells[2], mask=cells[3].mask)
    assert bare.key != cells[2].key  # by the mask itself, and not by the content alone


def test_the_key_and_the_seed_without_a_mask_are_what_they_were(monkeypatch):
    """As computed before there were masks; a key contains the version, which is set apart."""
    x = gaussian(4, 2, rng=0)
    (cell,) = plan([parse("positive(m=2)")], x, (1.0,), **GRID).cells
    assert cell.content == DIGEST
    monkeypatch.setattr("analysis.runs.tasks.version", lambda: "0+1")
    assert cell.key == KEY


def test_what_refuses_a_mask_is_absent_and_named():
    full, causal = masked(None, "causal")
    planned = plan([parse("one"), Refusing()], [full, causal], (1.0,), **GRID)
    found = [(cell.name, cell.label) for cell in planned.cells]
    assert found == [("None", "one()"), ("None", "refusing()"), ("causal", "one()")]
    assert [str(absent) for absent in planned.absent] == [
        "refusing() cannot be used under the mask of causal: it mixes all tokens"
    ]
    assert match([Refusing()], 8, causal) == ([], [Refusing()])
    assert match([Refusing()], 8, full) == ([Refusing()], [])


def test_a_config_of_refused_methods_alone_says_so(monkeypatch):
    monkeypatch.setitem(METHODS, "refusing", Refusing)
    text = CONFIG.replace('"one"', '"refusing"')
    assert len(loads(text).plan().cells) == 1
    with pytest.raises(ConfigError, match=r"^methods: refusing\(\) cannot be used under the mask"):
        loads(text + "causal = true\n").plan()


def test_a_config_gives_synthetic_inputs_a_mask():
    for text, mask in (
        ("", Mask.full(6, 6)),
        ("causal = false", Mask.full(6, 6)),
        ("causal = true", Mask.causal(6, 6)),
        ("causal = true\nwindow = 0", Mask.causal(6, 6)),
        ("causal = true\nwindow = 2", Mask.window(6, 6, 2)),
    ):
        (found,) = loads(CONFIG + text).plan().heads
        assert found.mask == mask
        assert found.name == "gaussian"
        np.testing.assert_array_equal(found.q, gaussian(6, 2, rng=0).q)


@pytest.fixture
def folder(tmp_path):
    """Two layers of four heads whose keys are shared by two; the second has a window."""
    rng = np.random.default_rng(0)
    path = tmp_path / "qk"
    path.mkdir()
    for name, heads in (("q", 4), ("k", 2), ("v", 2)):
        np.save(path / f"{name}.npy", rng.standard_normal((2, heads, 24, 8)))
    np.save(path / "causal.npy", 1)
    np.save(path / "window.npy", [0, 5])
    return path


def test_some_heads_of_a_file_bring_their_keys_and_masks(folder):
    text = CONFIG.split("[[inputs]]", maxsplit=1)[0] + '[[inputs]]\nkind = "file"\npath = "qk"\n'
    found = loads(text + 'heads = ["1.3", "0.1", "0.2"]\nn = 7\n').plan(folder.parent).heads
    whole = load(folder)
    assert [x.name for x in found] == ["qk 1.3", "qk 0.1", "qk 0.2"]
    for x, (layer, head) in zip(found, ((1, 3), (0, 1), (0, 2))):
        expected = whole.at(layer, head)
        # sums of d products, which BLAS may add in another order in a larger matrix
        np.testing.assert_allclose(x.logits(), expected.logits()[:7, :7], rtol=1e-14, atol=1e-14)
        np.testing.assert_array_equal(x.v, expected.v[:7])
