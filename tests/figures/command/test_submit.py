"""A method of a user's file: what is refused, and its row among others."""

from types import SimpleNamespace

import numpy as np
import pytest
from acceptance import pages

import approx
from analysis import inputs
from analysis.errors import metrics
from figures.command import submit
from figures.command.cli import main
from figures.command.submit import load

PAGE = pages.ROOT / "docs/tutorials/adding_a_method.md"
SOURCE = next(c for _, c in pages.blocks(PAGE.read_text("utf-8")) if "class MyFeatures" in c)


@pytest.fixture(autouse=True)
def heads(monkeypatch):
    """Make the bundled heads short."""
    heads = [x.first(48) for x in inputs.sample().heads()]
    monkeypatch.setattr(submit, "sample", lambda: SimpleNamespace(heads=lambda: heads))
    return heads


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my 'method' (最终) v1.2.py"
    path.write_text(SOURCE, "utf-8")
    return path


@pytest.mark.parametrize(("old", "new", "message"), [
    ("class MyF", "clas MyF", r"fails: SyntaxError: .*line 8"),
    ("import numpy", "import nunpy", "fails: ModuleNotFoundError"),
    ("def evaluate", "def approximate", "fails: TypeError: MyFeatures defines approximate"),
    ("(Method)", "", "one subclass of approx.Method, .* got none"),
    ("@dataclass(frozen=True)", "", "got none"),
    ('"my_features"', '"nystrom"', "with a new name, got MyFeatures"),
    ("name, sized_by, det", "title, sized_by, det", "got MyFeatures"),
    (SOURCE[-9:],
     SOURCE[-9:] + "@dataclass(frozen=True)\nclass B(MyFeatures):\n    name = 'b'\n",
     "got (B, MyFeatures|MyFeatures, B)"),
])  # fmt: skip
def test_a_file_that_is_none_is_refused(file, old, new, message):
    file.write_text(SOURCE.replace(old, new), "utf-8")
    with pytest.raises(ValueError, match=message):
        load(file)


@pytest.mark.parametrize(("old", "new", "message"), [
    ("np\n", "np; raise SystemExit(3)\n", ", line 3: the file fails: SystemExit: 3\n"),
    ("m: int | None = None", "m: int", ": MyFeatures fails: TypeError: "),
    ("(self.m, q", "(self.n, q", ", line 13: MyFeatures fails: AttributeError: "),
])  # fmt: skip
def test_an_error_of_the_file_is_one_sentence(file, old, new, message, refused):
    file.write_text(SOURCE.replace(old, new), "utf-8")
    assert refused("submit", file).startswith(f"expqk: {file.name}{message}")


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a method is a Python file"):
        load(tmp_path / "none.py")


def test_the_command_prints_the_errors_of_the_method(file, heads, printed, refused):
    """The median of five draws is between the extremes of twenty others."""
    said = printed("submit", file, "--budget", 16)
    assert max(map(len, said.splitlines())) <= 80
    rows = [line.split() for line in said.splitlines() if line.startswith("→")]
    assert [row[1:4] for row in rows] == [["my_features(m=8)", "8", "16"]] * 3
    x = heads[0].at_temperature(1.0)
    drawn = [load(file)(8).approximate(x.Q, x.K, rng=seed) for seed in range(20)]
    tv = [metrics.compare(each, x.Q, x.K)["attention_tv"] for each in drawn]
    assert np.min(tv) - 0.005 <= float(rows[0][4]) <= np.max(tv) + 0.005  # printed to 2 digits
    assert "my_features" not in approx.METHODS
    assert [line.split()[0] for line in said.splitlines()[:8]] == ["passed"] * 8
    chinese = printed("submit", file, "--lang", "zh")
    assert chinese.startswith("通过  拒绝")
    assert "总变差" in chinese
    said = refused("submit", file, "--budget", 1)
    assert "nothing of my_features() fits 1 stored values" in said


def test_a_failed_check_is_a_sentence_and_the_exit_status(file, capsys):
    file.write_text(SOURCE.replace("/ self.m, top", ", top"), "utf-8")
    assert main(["submit", str(file)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "passed price failed moments: my_features(m=16): entry (0, 0) is 1" in said
    assert "→ my_features(m=16) 16" in said


def test_a_check_that_cannot_tell_is_no_failure(file, capsys):
    """A factor e^(3g − 4.5) has mean 1, but the means of draws are far below it."""
    tail = SOURCE.replace("top + peak)", "top + peak + 3 * rng.standard_normal() - 4.5)")
    file.write_text(tail.replace("* square, log", "* square, np.logaddexp(0, log) + 9"), "utf-8")
    assert main(["submit", str(file)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "cannot tell unbiased: my_features(m=256): entry (0, 0) cannot be judged" in said
    unstated = SOURCE.partition("    def _moments")[0]
    file.write_text(unstated.replace("/ self.m, top", "* 1.5 / self.m, top"), "utf-8")
    assert main(["submit", str(file)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "cannot tell moments: none are stated, so no bias is looked for" in said
