"""Sweeps: one tidy table, the same for any order and number of processes, own methods included."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from pandas.testing import assert_frame_equal
from refusals import refuses

from analysis.costs.budget import match, stored
from analysis.errors import metrics
from analysis.errors.metrics import compare
from analysis.inputs import Heads, gaussian
from analysis.runs.seeds import seed_sequence
from analysis.sweeps.sweep import COLUMNS, errors, sweep
from approx import METHODS, parse
from approx.projections import Fixed
from figures.gallery import error

EPS = np.finfo(float).eps
SPECS = (
    "positive(m=4)",
    "taylor(degree=1)",
    "scatterbrain(low_rank=positive(m=3), sparse=top_k(k=2))",
)
TEMPERATURES = (0.5, 2.0)


def methods(*specs):
    return [parse(spec) for spec in specs or SPECS]


def small(n=7, d=3, seed=0):
    return gaussian(n, d, rng=seed)


def heads():
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 2, 6, 3))
    return Heads("many", q, k, k, mask="causal", ids=((0, 3, "0.3"), (2, 1, "2.1")))


def run(specs=SPECS, inputs=None, temperatures=TEMPERATURES, **options):
    options = {"trials": 2, "seed": 0} | options
    return sweep(methods(*specs), inputs or [small(), heads()], temperatures, **options)


def tidy(table):
    keys = ["input", "layer", "head", "method", "trial", "temperature", "metric"]
    return table.sort_values(keys, ignore_index=True)


# The table


def test_columns_and_their_types():
    found = run()
    assert tuple(found.columns) == COLUMNS
    assert set(found.method) == set(SPECS)
    numbers = found.drop(columns=["input", "method", "metric"])
    assert all(kind.kind in "if" for kind in numbers.dtypes)
    assert not found.duplicated(list(COLUMNS[:-2])).any()
    x = small()
    whole = compare(parse("one()").approximate(x.Q, x.K), x.Q, x.K, x.V)
    names = {*whole, "rank", "nnz", "stored"} - {"runnable"}  # which is no error
    assert set(found.metric) == names
    # (2 methods × 2 trials + 1) × 3 heads × 2 temperatures
    assert len(found) == 5 * 3 * 2 * len(names)


def test_minus_one_where_there_is_no_meaning():
    found = run()
    assert (found.budget == -1).all()
    alone = found[found.input == "gaussian"]
    assert ((alone.layer == -1) & (alone["head"] == -1)).all()
    many = found[found.input != "gaussian"]
    assert set(zip(many.input, many.layer, many["head"])) == {
        ("many 0.3", 0, 3),
        ("many 2.1", 2, 1),
    }
    by_method = {m: sorted(set(part.trial)) for m, part in found.groupby("method")}
    assert by_method["taylor(degree=1)"] == [-1]
    assert by_method["positive(m=4)"] == by_method[SPECS[2]] == [0, 1]
    assert found.stderr.isna().all()
    assert set(zip(alone.n, alone.l, alone.d)) == {(7, 7, 3)}


def test_values_are_those_of_compare():
    x = heads().at(2, 1)
    found = run(["taylor(degree=1)"], [x], [0.5], trials=1)
    at = x.at_temperature(0.5)
    estimate = parse("taylor(degree=1)").approximate(at.Q, at.K, mask="causal")
    expected = compare(estimate, at.Q, at.K, at.V, mask="causal")
    expected |= {"rank": 4.0, "nnz": 0.0, "stored": stored(estimate)}
    assert expected.pop("runnable") == 1  # which is no error, and in no table
    assert errors(estimate, at) == expected
    cell = dict(zip(found.metric, found.value))
    assert cell == expected  # one temperature: its own Q Kᵀ
    both = run(["taylor(degree=1)"], [x], [0.5, 2.0], trials=1)
    cold = both[both.temperature == 0.5]
    # logits at t = 0.5 are those at t = 2, divided: off by two roundings of numbers below 10
    assert dict(zip(cold.metric, cold.value)) == pytest.approx(expected, rel=1e-13)


def test_estimates_that_would_fill_memory_are_measured_in_groups(monkeypatch):
    x, temperatures, held = small(), (0.5, 1.0, 2.0, 4.0), []
    compare_all = metrics.compare_all

    def counted(estimates, *arguments, **options):
        held.append(len(estimates))
        return compare_all(estimates, *arguments, **options)

    monkeypatch.setattr(metrics, "compare_all", counted)
    whole = run(inputs=[x], temperatures=temperatures, trials=1)
    assert held == [4, 4, 4]
    held.clear()
    monkeypatch.setattr("analysis.sweeps.sweep.HELD", 2**100)
    alone = run(inputs=[x], temperatures=temperatures, trials=1)
    assert held == [1] * 12
    assert_frame_equal(alone, whole, check_exact=True)


def test_temperatures_share_their_draws():
    """The same seed at each temperature, and nothing else: by hand, with the same sequence."""
    x = small()
    found = run(["positive(m=4)"], [x], TEMPERATURES, trials=3, seed=5)
    for trial in range(3):
        seed = seed_sequence(5, x.digest(), "positive(m=4)", trial)
        for t in TEMPERATURES:
            at = x.at_temperature(t)
            estimate = parse("positive(m=4)").approximate(
                at.Q, at.K, rng=np.random.default_rng(seed)
            )
            part = found[(found.trial == trial) & (found.temperature == t)]
            measured = dict(zip(part.metric, part.value))
            assert measured == errors(estimate, at)
    # and temperature 1 of inputs scaled by √2 is temperature ½: the very same frequencies
    scaled = dataclasses.replace(x, scaling=2 / math.sqrt(3))
    one = parse("positive(m=4)").approximate(scaled.Q, scaled.K, rng=0)
    other = parse("positive(m=4)").approximate(
        x.at_temperature(0.5).Q, x.at_temperature(0.5).K, rng=0
    )
    np.testing.assert_allclose(one.to_dense(), other.to_dense(), rtol=100 * EPS)


def test_trials_inputs_methods_and_seeds_have_draws_of_their_own():
    def values(**options):
        found = run(["positive(m=4)"], temperatures=[1.0], **options)
        return found[found.metric == "kernel_relative_frobenius"].value.tolist()

    one = values(inputs=[small(), small(8)], trials=3)
    assert len(set(one)) == len(one) == 6
    assert not set(one) & set(values(inputs=[small(), small(8)], trials=3, seed=1))
    assert values(inputs=[small()], trials=3) == one[:3]


def test_order_does_not_matter():
    found = run()
    inputs = [small(), heads()]
    other = run(SPECS[::-1], inputs[::-1], TEMPERATURES[::-1])
    assert_frame_equal(tidy(found), tidy(other), check_exact=True)
    alone = pd.concat([run([s], [x], [t]) for s in SPECS for x in inputs for t in TEMPERATURES])
    assert_frame_equal(tidy(found), tidy(alone), check_exact=True)
    more = run(trials=3)
    assert_frame_equal(tidy(found), tidy(more[more.trial < 2]), check_exact=True)


# Budgets


def test_templates_are_filled_for_each_input():
    found = run(["positive", "top_k", "zero"], [small(), heads()], [1.0], budget=12.0)
    assert (found.budget == 12.0).all()
    by_input = {name: set(part.method) for name, part in found.groupby("input")}
    assert by_input["gaussian"] == {"positive(m=6)", "top_k(k=7)", "zero()"}
    assert by_input["many 0.3"] == {"positive(m=6)", "top_k(k=6)", "zero()"}
    stored = found[found.metric == "stored"]
    assert (stored.value <= 12).all()


def test_a_budget_may_be_counted_in_another_currency():
    specs = ["positive", "top_k", "zero"]
    found = run(specs, [small()], [1.0], budget=50.0, currency="reads")
    x, part = small(), ["positive", "top_k"]
    filled = [parse(s).within(50.0, **x.shape.given, currency="reads") for s in part]
    assert set(found.method) == {*map(str, filled), "zero()"}
    assert (found.currency == "reads").all()
    # the draws and errors are those of the same methods of the same size, whatever was paid
    sized = run([*map(str, filled), "zero"], [small()], [1.0])
    assert found.value.tolist() == sized.value.tolist()
    assert "currency" not in run(specs, [small()], [1.0], budget=12.0)
    with pytest.raises(ValueError, match="currency must be one of stored, reads"):
        run(specs, [small()], [1.0], budget=50.0, currency="keys")
    with pytest.raises(ValueError, match="'reads' says what a budget counts: give a budget"):
        run(["zero"], [small()], [1.0], currency="reads")


# Measures


def sampled(approximation, inputs):
    return compare(approximation, inputs.Q, inputs.K, rows=4)


def test_standard_errors_have_their_column():
    found = run(["positive(m=4)"], [small()], [1.0], measure=sampled)
    assert not found.metric.str.endswith("_stderr").any()
    at = small().at_temperature(1.0)
    seed = seed_sequence(0, at.digest(), "positive(m=4)", 0)
    estimate = parse("positive(m=4)").approximate(at.Q, at.K, rng=np.random.default_rng(seed))
    expected = compare(estimate, at.Q, at.K, rows=4)
    for row in found[found.trial == 0].to_dict("records"):
        np.testing.assert_equal(row["stderr"], expected.get(f"{row['metric']}_stderr", np.nan))
    assert found.stderr.notna().any()
    assert found[found.metric == "nonpositive_rows"].stderr.isna().all()


# Refusals


@pytest.mark.parametrize(("change", "message"), [
    ({"methods": []}, "methods must not be empty"),
    ({"inputs": []}, "inputs must not be empty"),
    ({"temperatures": []}, "temperatures must not be empty"),
    ({"temperatures": [1.0, 2.0, 1]}, "temperature 1 is given twice"),
    ({"methods": methods("one", "one")}, r"method one\(\) is given twice"),
    ({"methods": methods("positive")}, "is a template"),
    ({"methods": methods("vattention")}, "no budget fills.* such as sampled"),
    ({"methods": methods("positive", "positive(m=4)"), "budget": 8.0},
     r"positive\(m=4\) on gaussian would be in the table twice"),
    ({"inputs": [small(), small()]}, "would be in the table twice"),
    ({"inputs": [small(), small(seed=9)]}, "would be in the table twice"),
    ({"budget": 0}, "budget must be finite and > 0"),
])  # fmt: skip
def test_refusals(change, message):
    asked = {"methods": methods("positive(m=2)"), "inputs": [small()], "temperatures": [1.0]}
    refuses(message, sweep, **asked | change, trials=1, seed=0)


# A user's own method

OWN = '''
import dataclasses

import numpy as np
from approx import Method, Parts, Size
from approx.method.tags import RANDOM

@dataclasses.dataclass(frozen=True)
class Mine(Method):
    """Rows of a random subset of the keys, and their mean elsewhere."""
    name = "mine"
    tags = frozenset({RANDOM})
    sized_by = Size("m")
    m: int | None = None

    def evaluate(self, q, k, mask, rng):
        some = rng.choice(len(k), self.m, replace=False)
        right = np.full((len(k), self.m), 1 / self.m)
        right[some] = np.eye(self.m)
        return Parts.from_factors(np.exp(q @ k[some].T), right)
'''


def test_own_method_of_a_script(monkeypatch):
    """Processes that no fork began get its class by value, and have no entry in METHODS."""
    script = {"__name__": "__main__"}
    exec(OWN, script)
    monkeypatch.setitem(METHODS, "mine", script["Mine"])
    x = gaussian(24, 4, rng=0)
    specs = methods("mine()", "positive", "zero")
    assert [str(m) for m in match(specs[:2], 16, x).fitting] == ["mine(m=8)", "positive(m=8)"]
    options = {"trials": 2, "seed": 0, "budget": 16}
    one, found = (sweep(specs, x, TEMPERATURES, **options, jobs=jobs) for jobs in (1, 2))
    assert_frame_equal(found, one, check_exact=True)
    mine = found[(found.method == "mine(m=8)") & (found.metric == "attention_tv")]
    assert len(mine) == 2 * 2
    assert mine.value.between(0, 1).all()
    figure = error.draw(found[found.temperature == 2.0])
    assert "mine" in [text.get_text() for text in figure.findobj(Text)]


def test_methods_that_draw_nothing_have_one_trial():
    fixed = METHODS["positive"](projection=Fixed([[0.5, 0.0], [-0.5, 0.0]]))
    both, random = methods(
        "scatterbrain(low_rank=taylor(degree=1), sparse=top_k(k=2))",
        "scatterbrain(low_rank=positive(m=2), sparse=top_k(k=2))",
    )
    table = sweep([fixed, both, random], small(4, 2), [1.0], trials=3, seed=0)
    trials = table.groupby("method").trial.unique().map(sorted).to_dict()
    assert trials == {str(fixed): [-1], str(both): [-1], str(random): [0, 1, 2]}
