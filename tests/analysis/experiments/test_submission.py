"""A method of a user's file: what is refused, what is checked, its row."""

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest
from acceptance import pages
from small import NAMES, small

import approx
from analysis import inputs
from analysis.errors import metrics
from analysis.experiments import submission
from analysis.experiments.submission import contract, load, looks_ahead, submit
from approx import Parts
from figures.command.cli import main
from figures.show import submissions, sweeps
from figures.words.translation import speaking

PAGE = pages.ROOT / "docs/tutorials/adding_a_method.md"
SOURCE = next(c for _, c in pages.blocks(PAGE.read_text("utf-8")) if "class RandomCentres" in c)


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setattr(approx, "METHODS", approx.METHODS)
    known = set(approx.METHODS)
    yield
    for name in set(approx.METHODS) - known:
        del approx.METHODS[name]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my 'method' (最终) v1.2.py"
    path.write_text(SOURCE, "utf-8")
    return path


def test_a_method_is_twelve_lines(file):
    assert len([line for line in SOURCE.splitlines() if line.strip()]) <= 12
    assert load(file)().name == "random_centres"
    assert load(file) is approx.METHODS["random_centres"]  # read again, as edited


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class RandomC", "clas RandomC", r"does not import \(line 8\): SyntaxError"),
        (
            "import numpy",
            "import nunpy",
            r"does not import \(line 3\): ModuleNotFoundError",
        ),
        ("(Method)", "", "must define one method, a subclass of approx.Method, got none"),
        (SOURCE[-9:], SOURCE[-9:] + "class B(RandomCentres):\n    name = 'b'\n", "got 2: Random"),
        ("def evaluate", "def estimate", "RandomCentres in my .* has no evaluate"),
        ("@dataclass(frozen=True)", "", "is no frozen dataclass"),
        ("frozen=True", "frozen=False", "is no frozen dataclass|does not import"),
        ('"random_centres"', '"nystrom"', "nystrom is a method of expqk: give RandomCentres anoth"),
        ("name, deterministic, sized_by", "title, deterministic, sized_by", "has no name: give"),
        ("def evaluate", "def approximate", "does not import .*define evaluate"),
    ],
)
def test_a_file_that_is_none_is_refused(file, old, new, message):
    file.write_text(SOURCE.replace(old, new), "utf-8")
    with pytest.raises(ValueError, match=message):
        load(file)


def test_no_file_and_another_kind_of_file_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load(tmp_path / "none.py")
    (tmp_path / "a.txt").write_text(SOURCE, "utf-8")
    with pytest.raises(ValueError, match="a method is a Python file"):
        load(tmp_path / "a.txt")


@pytest.mark.parametrize("name", [*NAMES, "positive(m=4)"])
def test_looking_ahead_is_what_methods_declare(name):
    method = small(name, submission.N, submission.N, 4)
    if method.refusal is None:
        with np.errstate(all="ignore"):
            # a change may be too small to be seen at these inputs, a leak is none of them
            assert looks_ahead(method) <= (not method.autoregressive)


class Whole(approx.Method):
    """Keys less their mean, which later keys change."""

    name, deterministic = "whole", True

    def evaluate(self, q, k, mask, rng):
        return Parts.from_factors(np.exp(q[:, :1]), np.exp(k[:, :1] - k.mean()))


Mean = dataclasses.dataclass(frozen=True)(Whole)


@dataclasses.dataclass(frozen=True)
class Leaky(Mean):
    autoregressive = True


@dataclasses.dataclass(frozen=True)
class Local(Mean):
    def evaluate(self, q, k, mask, rng):
        return Parts.from_factors(np.exp(q[:, :1]), np.exp(k[:, :1]))


@dataclasses.dataclass(frozen=True)
class Unseeded(Mean):
    deterministic = False

    def evaluate(self, q, k, mask, rng):
        left = np.random.default_rng().random((len(q), 2))
        return Parts.from_factors(left, left[: len(k)])


@dataclasses.dataclass(frozen=True)
class Failing(Mean):
    def evaluate(self, q, k, mask, rng):
        raise ValueError("not yet")


@pytest.mark.parametrize(
    ("method", "kept", "seen"),
    [
        (Mean(), [1, 1, 0, 1], "no, as declared"),
        (Leaky(), [1, 1, 0, 0], "no, though declared"),
        (Local(), [1, 1, 0, 1], "yes, by test: declare it"),
        (Unseeded(), [1, 0, 1, 1], "no, as declared"),
        (Failing(), [0, 0, 0, 0], "it raises ValueError: not yet"),
        (approx.parse("positive(m=4)"), [1, 1, 1, 1], "yes, as declared"),
        (approx.parse("linformer(rank=4)"), [1, 1, 1, 1], "refused under a mask"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_the_contract_is_checked(method, kept, seen):
    checked = contract(method)
    assert [one.holds for one in checked] == [bool(x) for x in kept]
    assert checked[-1].seen.startswith(seen)


def test_a_row_is_that_of_the_method(file):
    """Errors of the same draws, and bias² + variance of a method that has them in closed form."""
    own, x = load(file), inputs.gaussian(40, 4, rng=0)
    table = submit(own(), [x], budget=8, beside=["positive"], temperature=2.0, trials=2, seed=1)
    assert set(table.method) == {"random_centres(rank=4)", "positive(m=4)"}
    listed = submissions.rows(table).set_index("method")
    mine = listed.loc["random_centres(rank=4)"]
    assert (mine["rank"], mine.values_per_row, mine.draws, mine.closed_form) == (4, 8, 2, 0)
    at = x.at_temperature(2.0)
    errors = [metrics.compare(own(4).approximate(at.Q, at.K, rng=i), at.Q, at.K) for i in range(40)]
    tv = np.array([each["attention_tv"] for each in errors])
    assert tv.min() <= mine.tv_least <= mine.attention_tv <= mine.tv_most <= tv.max()
    square = np.mean([each["kernel_relative_frobenius"] ** 2 for each in errors])
    total = np.exp(mine.log_squared_bias) + np.exp(mine.log_variance)
    assert total == pytest.approx(square, rel=0.5)  # 20 and 40 draws: a factor 2 is noticed
    positive = listed.loc["positive(m=4)"]
    logits = at.Q @ at.K.T
    norms = (at.Q**2).sum(axis=1)[:, None] + (at.K**2).sum(axis=1) + 2 * logits
    known = (np.exp(2 * logits) * np.expm1(norms) / 4).sum() / np.exp(2 * logits).sum()
    assert np.exp(positive.log_variance) == pytest.approx(known)
    assert (positive.log_squared_bias, positive.closed_form) == (-np.inf, 1)


@dataclasses.dataclass(frozen=True)
class Own(Mean):
    """The features of the Performer, as if nobody knew their moments."""

    name, deterministic = "own", False

    def evaluate(self, q, k, mask, rng):
        omega = rng.standard_normal((q.shape[1], 16))
        left, right = (np.exp(x @ omega - (x**2).sum(axis=1)[:, None] / 2) / 4 for x in (q, k))
        return Parts.from_factors(left, right)


@pytest.mark.parametrize(("temperature", "reliable"), [(1.0, False), (100.0, True)])
def test_draws_with_a_heavy_tail_are_not_reliable(temperature, reliable):
    """|q + k|² is 8 on average at t = 1: 100 draws see little of the variance e^8 − 1."""
    x = inputs.gaussian(64, 16, rng=0)
    table = submit(Own(), [x], budget=32, beside=["positive"], temperature=temperature, trials=1)
    listed = submissions.rows(table).set_index("method")
    own, positive = listed.loc["own()"], listed.loc["positive(m=16)"]
    assert (own.closed_form, own.reliable, positive.reliable) == (0, reliable, 1)
    known = np.exp(own.log_variance - positive.log_variance)
    assert (0.5 < known < 2) == reliable  # the same features: closed form and draws
    said = submissions.text("own", [], table)
    assert bool(re.search(rf"k̂ {own.pareto_k:.2g} +k̂ {own.pareto_k:.2g}", said)) != reliable
    listed = submissions.objects("own()", [], table, {})["rows"]
    assert [row["reliable"] for row in listed if row["method"] == "own()"] == [float(reliable)]


def test_what_cannot_be_measured_is_said(file):
    own, x = load(file), inputs.gaussian(40, 4, rng=0)
    with pytest.raises(ValueError, match=r"nothing of random_centres\(\) fits 1 stored value"):
        submit(own(), [x], budget=1)
    causal = dataclasses.replace(x, mask="causal")
    with pytest.raises(ValueError, match="linformer cannot be measured on gaussian"):
        submit(approx.parse("linformer"), [causal], budget=8)


def test_the_command_prints_the_row(file, tmp_path, capsys):
    arguments = ["submit", str(file), "--beside", "uniform()", "--trials", "2"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert len(re.findall(r"^→  random_centres\(", said, re.MULTILINE)) == 3
    assert max(map(len, said.splitlines())) <= 80
    assert (tmp_path / "out/figures/submission.svg").exists()
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seed"] == 0
    assert {"expqk", "numpy"} <= found["versions"].keys()
    assert [one["holds"] for one in found["checks"]] == [True] * 4
    assert {row["method"] for row in found["rows"]} == {"random_centres(rank=16)", "uniform()"}
    assert main([*arguments, "--spec", "uniform()"]) == 1
    assert "--spec must be one of random_centres" in capsys.readouterr().err
    file.write_text(SOURCE.replace("rng.choice", "np.random.choice"), "utf-8")
    assert main(arguments) == 1  # the contract is broken: not the seed's
    assert "the same seed, the same bits   no" in capsys.readouterr().out


def test_it_is_said_in_chinese(file):
    own, x = load(file), inputs.gaussian(40, 4, rng=0)
    table = submit(own(), [x], budget=8, beside=["uniform()"], trials=1)
    with speaking("zh"):
        said = submissions.text(own.name, contract(own(4)), table)
    assert "自回归" in said
    assert "同样的种子" in said


# The figure of a table


def tidy(**varied):
    rows = [
        {"input": name, "temperature": t, "budget": b, "method": f"{m}{b:g})", "trial": trial,
         "metric": "attention_tv", "value": 0.1 * b / t + 0.01 * trial}
        for name in ("a", "b $x$")
        for t in varied.get("temperatures", (1.0,))
        for b in varied.get("budgets", (8.0,))
        for m in ("positive(m=", "mine(x=")
        for trial in range(3)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_table_is_drawn_against_what_varies():
    axes = sweeps.plot(tidy(temperatures=(0.5, 1.0, 2.0))).axes
    assert [ax.get_title() for ax in axes] == ["a", "b $x$"]
    line = axes[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), [1.61, 0.81, 0.41])  # medians, by hand
    band = axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.4, 1.62))
    axes = sweeps.plot(tidy(budgets=(4.0, 8.0))).axes
    assert axes[-1].get_xlabel() == "stored values per query row"
    assert len(axes[0].lines) == 2  # one a method, whatever size a budget buys
    (first, second) = sweeps.plot(tidy()).axes
    assert {tick.get_text() for tick in first.get_yticklabels()} == {
        "mine(x=8)", "Performer (positive features)",
    }  # fmt: skip
    assert second.get_xlabel() == "attention total variation"
    with pytest.raises(ValueError, match="metric must be one of attention_tv"):
        sweeps.plot(tidy(), "rank")
