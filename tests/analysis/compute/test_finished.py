"""What a stopped run keeps, and what a later one takes over."""

from kills import kills

from analysis.compute.finished import Finished


@kills("finished.py", "self.put(name, outcome)", "pass")
@kills("finished.py", "for folder in (self.folder, self.earlier):", "for folder in (self.folder,):")
def test_what_is_taken_from_an_earlier_run_is_kept_in_the_new_folder(tmp_path):
    Finished(tmp_path / "a").put("head", {"tv": 0.25})
    later = Finished(tmp_path / "b", tmp_path / "a")
    assert later.get("other") is None
    assert later.get("head") == {"tv": 0.25}
    assert Finished(tmp_path / "b").get("head") == {"tv": 0.25}  # the old folder may go
    (tmp_path / "b/head.json").write_text("{", "utf-8")  # damaged: taken from there once more
    assert later.get("head") == {"tv": 0.25}
