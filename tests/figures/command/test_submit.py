"""A method of a user's file: what is refused, and its row among others."""

import numpy as np
import pytest
from acceptance import pages

import approx
from analysis.errors import metrics
from analysis.inputs import sample
from figures.command.submit import load

PAGE = pages.ROOT / "docs/tutorials/adding_a_method.md"
SOURCE = next(c for _, c in pages.blocks(PAGE.read_text("utf-8")) if "class RandomCentres" in c)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my 'method' (最终) v1.2.py"
    path.write_text(SOURCE, "utf-8")
    return path


@pytest.mark.parametrize(("old", "new", "message"), [
    ("class RandomC", "clas RandomC", r"fails: SyntaxError: .*line 9"),
    ("import numpy", "import nunpy", "fails: ModuleNotFoundError"),
    ("def evaluate", "def approximate", "fails: TypeError: RandomCentres defines approximate"),
    ("(Method)", "", "one subclass of approx.Method, .* got none"),
    ("@dataclass(frozen=True)", "", "got none"),
    ('"random_centres"', '"nystrom"', "with a new name, got RandomCentres"),
    ("name, tags, sized_by", "title, tags, sized_by", "got RandomCentres"),
    (SOURCE[-9:],
     SOURCE[-9:] + "@dataclass(frozen=True)\nclass B(RandomCentres):\n    name = 'b'\n",
     "got (B, RandomCentres|RandomCentres, B)"),
])  # fmt: skip
def test_a_file_that_is_none_is_refused(file, old, new, message):
    file.write_text(SOURCE.replace(old, new), "utf-8")
    with pytest.raises(ValueError, match=message):
        load(file)


@pytest.mark.parametrize(("old", "new", "message"), [
    ("np\n", "np; raise SystemExit(3)\n", ", line 3: the file fails: SystemExit: 3\n"),
    ("rank: int | None = None", "rank: int", ": RandomCentres fails: TypeError: "),
    ("self.rank, r", "self.rnk, r", ", line 14: RandomCentres fails: AttributeError: "),
])  # fmt: skip
def test_an_error_of_the_file_is_one_sentence(file, old, new, message, refused):
    file.write_text(SOURCE.replace(old, new), "utf-8")
    assert refused("submit", file).startswith(f"expqk: {file.name}{message}")


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a method is a Python file"):
        load(tmp_path / "none.py")


def test_the_command_prints_the_errors_of_the_method(file, printed, refused):
    """The median of five draws is between the extremes of twenty others."""
    said = printed("submit", file, "--budget", 16)
    assert max(map(len, said.splitlines())) <= 80
    rows = [line.split() for line in said.splitlines() if line.startswith("→")]
    assert [row[1:4] for row in rows] == [["random_centres(rank=8)", "8", "16"]] * 3
    x = next(sample().heads()).at_temperature(1.0)
    drawn = [load(file)(8).approximate(x.Q, x.K, rng=seed) for seed in range(20)]
    tv = [metrics.compare(each, x.Q, x.K)["attention_tv"] for each in drawn]
    assert np.min(tv) - 0.005 <= float(rows[0][4]) <= np.max(tv) + 0.005  # printed to 2 digits
    assert "random_centres" not in approx.METHODS
    assert "总变差" in printed("submit", file, "--lang", "zh")
    said = refused("submit", file, "--budget", 1)
    assert "nothing of random_centres() fits 1 stored values" in said
