"""Sweeps as TOML: what is read, what is refused and where, and the configs that we ship."""

import math
import tomllib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from analysis import inputs
from analysis.experiments.profile import profile
from analysis.sweeps import config
from analysis.sweeps.config import ConfigError, load, loads
from analysis.sweeps.sweep import plan, sweep
from approx import ResourceLimitError, parse
from figures.gallery import error

CONFIGS = resources.files("figures") / "configs"
GOOD = """
seed = 3
trials = 2
temperatures = [0.5, 1]
budgets = [4, 8.0]
methods = ["positive", "zero"]

[[inputs]]
kind = "gaussian"
n = 8
d = 3
"""


def heads(text, folder="."):
    return loads(text).plan(folder).heads


def with_inputs(text):
    return 'temperatures = [1.0]\nmethods = ["zero"]\n[[inputs]]\n' + text


def test_a_config_is_the_sweep_it_says():
    found = loads(GOOD)
    assert found.trials == 2
    assert found.budgets == (4.0, 8.0)
    assert all(isinstance(t, float) for t in found.temperatures)
    assert found.inputs == (config.Gaussian(n=8, d=3),)
    x = inputs.gaussian(8, 3, rng=3)
    expected = plan([parse("positive"), parse("zero")], x, (0.5, 1.0), trials=2, seed=3,
                    budget=(4.0, 8.0))  # fmt: skip
    assert found.plan().keys == expected.keys


def test_a_budget_may_be_left_out():
    text = GOOD.replace("budgets = [4, 8.0]", "").replace('"positive"', '"positive(m=2)"')
    assert {cell.budget for cell in loads(text).plan().cells} == {-1.0}


@pytest.mark.parametrize(("text", "expected"), [
    ('kind = "gaussian"\nn = 6\nd = 2', inputs.gaussian(6, 2, rng=0)),
    ('kind = "gaussian"\nn = 6\nd = 2\nseed = 5', inputs.gaussian(6, 2, rng=5)),
    ('kind = "sphere"\nn = 6\nd = 2', inputs.sphere(6, 2, rng=0)),
    (
        'kind = "clustered"\nn = 6\nd = 2\nclusters = 2\nspread = 0\nshared = true',
        inputs.clustered(6, 2, 2, 0.0, True, rng=0),
    ),
    ('kind = "clustered"\nn = 6\nd = 2', inputs.clustered(6, 2, rng=0)),
    (
        'kind = "generative"\nn = 6\nd = 2\ndelta = 0.5\nsize = 3\nshared = false',
        inputs.generative(6, 2, 0.5, 3, shared=False, rng=0),
    ),
])  # fmt: skip
def test_synthetic_inputs_are_those_of_the_functions(text, expected):
    (found,) = heads(with_inputs(text))
    assert found.digest() == expected.digest()
    assert found.name == expected.name


def test_names_tell_inputs_apart():
    one = 'kind = "gaussian"\nn = 6\nd = 2\n'
    two = with_inputs(one) + "[[inputs]]\n" + one + "seed = 5\n"
    with pytest.raises(ConfigError, match="would be in the table twice: rename one"):
        heads(two)
    assert [x.name for x in heads(two + 'name = "other draw"')] == ["gaussian", "other draw"]


def test_the_sample_and_its_heads():
    assert [x.name for x in heads(with_inputs('kind = "sample"'))] == [
        x.name for x in inputs.sample().heads()
    ]
    (hard,) = heads(with_inputs('kind = "sample"\nheads = ["hard"]\nn = 16'))
    whole = list(inputs.sample().heads())[2]
    assert hard.name == "MiniLM hard"
    assert (hard.layer, hard.head, hard.n, hard.l) == (whole.layer, whole.head, 16, 16)
    np.testing.assert_array_equal(hard.q, whole.q[:16])
    with pytest.raises(ConfigError, match=r"inputs\[0\]: unknown head 'hart', did you mean 'hard'"):
        heads(with_inputs('kind = "sample"\nheads = ["hart"]'))


def test_files_are_found_beside_the_config(tmp_path):
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 2, 3, 5, 4))
    np.savez(tmp_path / "my qk.npz", q=q, k=k)
    text = with_inputs(
        'kind = "file"\npath = "my qk.npz"\nheads = ["1.2", "0.0"]\ndtype = "float32"'
    )
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    found = load(tmp_path / "own.toml").plan(tmp_path).heads
    assert [x.name for x in found] == ["my qk 1.2", "my qk 0.0"]
    assert [(x.layer, x.head) for x in found] == [(1, 2), (0, 0)]
    np.testing.assert_array_equal(found[0].q, q[1, 2].astype(np.float32))
    with pytest.raises(FileNotFoundError, match=r"^inputs\[0\]: no such file"):
        load(tmp_path / "own.toml").plan(tmp_path / "elsewhere")


# Refusals


@pytest.mark.parametrize(("change", "message"), [
    (("trials = 2", "trails = 2"), "unknown key 'trails', did you mean 'trials'? Known:"),
    (("n = 8", "n = 8\nnn = 4"), "unknown key 'inputs[0].nn', did you mean 'inputs[0].n'?"),
    (("n = 8", "n = 8\nclusters = 4"), "unknown key 'inputs[0].clusters'"),
    (('"gaussian"', '"gausian"'), "inputs[0]: unknown kind 'gausian', did you mean"),
    (('kind = "gaussian"', ""), "inputs[0].kind is missing: one of gaussian, "),
    (('kind = "gaussian"', "kind = 3"), "inputs[0].kind must be text in one line, got 3"),
    (("n = 8", ""), "inputs[0].n is missing"),
    (('methods = ["positive", "zero"]', ""), "methods is missing"),
    (("[0.5, 1]", "[0.5, nan]"), "temperatures[1] must be finite, got nan"),
    (("[0.5, 1]", f"[1{'0' * 400}]"), "temperatures[0] must be finite, got inf"),
    (("[0.5, 1]", "[0.5, -1]"), "temperatures[1]: temperature must be finite and > 0"),
    (("[0.5, 1]", "[]"), "temperatures must not be empty"),
    (("[0.5, 1]", "1.0"), "temperatures must be a list, got 1.0"),
    (("[0.5, 1]", "[1.0, 0.5, 1]"), "temperatures[2]: 1 is given twice"),
    (("[0.5, 1]", "[true]"), "temperatures[0] must be a number, got True"),
    (("[4, 8.0]", "[4, 0]"), "budgets[1]: budget must be finite and > 0, got 0.0"),
    (("[4, 8.0]", "[8, 8.0]"), "budgets[1]: 8.0 is given twice"),
    (("[4, 8.0]", "[4]\ncurrency = 'keys'"), "currency must be one of stored, reads"),
    (("budgets = [4, 8.0]", "currency = 'reads'"), "says what a budget counts: give a budget"),
    (('"positive", "zero"', '"taylor(degree=9)"'), "budgets: no method fits 8 stored values"),
    (('"positive", "zero"', '"zero", "zero"'), "methods[1]: 'zero' is given twice"),
    (('"positive", "zero"', '"zero()", "zero"'), "method zero() is given twice"),
    (('"positive", "zero"', '"zero", "postive"'), "methods[1]: unknown method 'postive', did"),
    (('"positive", "zero"', '"zero", 3'), "methods[1] must be text in one line, got 3"),
    (("budgets = [4, 8.0]", ""), "positive() is a template: give its size, or a budget"),
    (("trials = 2", "trials = 2.0"), "trials must be an integer, got 2.0"),
    (("seed = 3", "seed = -1"), "seed must be >= 0, got -1"),
    (("n = 8", "n = 0"), "inputs[0]: n must be >= 1, got 0"),
    (("n = 8", "n = '8'"), "inputs[0].n must be an integer, got '8'"),
    (("n = 8", "n = 8\nwindow = 2"), "inputs[0]: window is the keys that a causal query"),
    (("n = 8", "n = 8\ncausal = true\nwindow = 9"), "inputs[0]: window must be <= 8, got 9"),
    (("n = 8", "n = 8\ncausal = 1"), "inputs[0].causal must be true or false, got 1"),
    (("[[inputs]]", "[inputs]"), "inputs must be a list, got {'d': 3, 'kind'"),
    (("seed = 3", "seed = 3\nseed = 4"), "Cannot overwrite a value (at line 3, column 9)"),
    (("seed = 3", "seed ="), "Invalid value (at line 2, column"),
    (("seed = 3", "seed = " + "[" * 10_000), "recursion"),
    (("seed = 3", "seed = " + "9" * 5000), "Exceeds the limit"),
])  # fmt: skip
def test_refusals_name_the_key(change, message):
    assert change[0] in GOOD
    with pytest.raises(ConfigError) as found:
        loads(GOOD.replace(*change)).plan()
    assert message in str(found.value)
    assert "\n" not in str(found.value)


def test_what_would_not_fit_is_refused_before_it_is_made():
    for change, message in (
        (("n = 8", "n = 1000000000000"), r"^inputs\[0\]: 1000000000000 × 3 queries, .* would take"),
        (
            ("trials = 2", "trials = 1000000000000000"),
            "^a sweep of 4000000000000000 cells would take",
        ),
    ):
        with pytest.raises(ResourceLimitError, match=message):
            loads(GOOD.replace(*change)).plan()


def test_files_that_are_no_config(tmp_path):
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())  # as Notepad does
    assert load(tmp_path / "marked.toml") == loads(GOOD)
    (tmp_path / "long.toml").write_bytes(b" " * (config.MOST_BYTES + 1))
    (tmp_path / "latin.toml").write_bytes(b'methods = ["\xe9"]')
    with pytest.raises(ConfigError, match=r"latin\.toml: 'utf-8' codec"):
        load(tmp_path / "latin.toml")
    for path in (tmp_path / "long.toml", tmp_path, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="is not a file of at most"):
            load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.toml")


def test_the_docstring_has_an_example():
    lines = [line[4:] for line in config.__doc__.splitlines() if line.startswith("    ")]
    example = "\n".join(lines)
    assert len(loads(example).plan().cells) == 1 + 2 * 5
    assert f"# {', '.join([*config.SOURCES][1:])}" in example


# The configs of the package


def shipped(name):
    return loads((CONFIGS / f"{name}.toml").read_bytes(), name).plan()


def test_report_is_the_sweep_of_the_reports_figure():
    """The same cells, hence the same numbers: seeds, content, order and all."""
    default = profile("default")
    methods = [parse(spec) for spec in error.SPECS]
    figure = plan(
        methods, default.inputs, default.temperatures, trials=default.trials, seed=default.seed,
        budget=default.budget,
    )  # fmt: skip
    assert shipped("report").keys == figure.keys
    # and a part of both, computed
    planned, x = shipped("report"), default.inputs[0]
    cell = planned.cells[1]
    rows = cell.run(planned.heads[cell.place])
    alone = sweep([cell.method], x, default.temperatures, trials=1, seed=0, budget=32.0)
    assert [row[-2] for row in rows] == alone.value.tolist()


def test_full_is_the_full_profile_and_more():
    planned, full = shipped("full"), profile("full")
    assert [x.digest() for x in planned.heads] == [x.digest() for x in full.inputs]
    assert planned.cells[0].temperatures == full.temperatures
    assert {cell.trial for cell in planned.cells} == {-1, *range(full.trials)}
    raw = tomllib.loads((CONFIGS / "full.toml").read_text("utf-8"))
    assert {*error.SPECS} <= set(raw["methods"])
    assert math.isclose(sum(raw["budgets"]), 120)
