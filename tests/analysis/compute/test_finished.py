"""What a stopped run keeps, and what a later one takes over."""

import math

import numpy as np
import pandas as pd
from kills import kills

from analysis.compute import finished
from analysis.compute.finished import Finished


@kills("finished.py", "if folder is not self.folder:", "if False:")
@kills("finished.py", "for folder in (self.folder, self.earlier):", "for folder in (self.folder,):")
def test_what_is_taken_from_an_earlier_run_is_kept_in_the_new_folder(tmp_path):
    Finished(tmp_path / "a").put("head", {"tv": 0.25})
    later = Finished(tmp_path / "b", tmp_path / "a")
    assert later.get("other") is None
    assert later.get("head") == {"tv": 0.25}
    assert Finished(tmp_path / "b").get("head") == {"tv": 0.25}  # the old folder may go
    (tmp_path / "b/head.json").write_text("{", "utf-8")  # damaged: taken from there once more
    assert later.get("head") == {"tv": 0.25}


@kills("finished.py", "str(x[name].dtype)", '"object"')
def test_a_table_is_read_back_bit_for_bit(tmp_path):
    table = pd.DataFrame(
        {
            "head": np.array([1, -1]),
            "tv": [0.1 + 0.2, math.nan],
            "gap": [math.inf, 5e-324],
            "winner": [True, False],
            "verdict": ["a 表", None],
            "small": np.array([0.1, 0.2], np.float32),
        }
    )
    store = Finished(tmp_path)
    for name, one in {"whole": table, "empty": table[:0]}.items():
        store.put(name, one)
        pd.testing.assert_frame_equal(store.get(name), one, check_exact=True)


@kills("finished.py", "+ path.read_bytes()", "")
@kills("finished.py", "repr([metadata.version(name) for name in LIBRARIES]).encode()", "")
@kills("finished.py", "hashlib.sha256(CODE.encode())", "hashlib.sha256()")
def test_a_key_depends_on_the_code(tmp_path, monkeypatch):
    """A run that goes on after a change of the code takes nothing from before it."""
    asked, before = finished.key("a head"), finished.code("figures")
    assert finished.key("a head") == asked != finished.key("another")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "one_package").mkdir()
    codes = []
    for name, text in {"one.py": "x = 1", "two.py": "", "one.csv": "x", "one.pyc": "x"}.items():
        for version in (text, text + "\n"):
            (tmp_path / "one_package" / name).write_text(version, "utf-8")
            codes.append(finished.code.__wrapped__("one_package"))
    assert len({*codes, before}) == 7  # what Python compiled decides nothing
    monkeypatch.setattr(finished.metadata, "version", lambda name: f"{name} 99")
    assert finished.code.__wrapped__("one_package") not in codes
    assert finished.version().endswith(finished.CODE[:12])
    monkeypatch.setattr(finished, "CODE", codes[0])
    assert finished.key("a head") != asked
