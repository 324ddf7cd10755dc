"""Where two errors cross, and what sparse + low-rank gains over the better of both."""

import functools
import math

import numpy as np
import pandas as pd
import pytest
from refusals import refuses

from analysis.inputs import clustered, gaussian
from analysis.sweeps.crossovers import COLUMNS, ORACLES, crossing, oracles, regimes, root
from approx import parse
from approx.estimate import exact

TEMPERATURES = (0.25, 1.0, 4.0)
CLUSTERED = functools.partial(clustered, shared=True)


def test_power_laws_cross_where_they_do():
    t = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    # t^a = 3 t^b at 3^{1/(a−b)}; log-interpolation is exact for power laws, up to a few roundings
    for unit in (1.0, 1e-13):
        found = crossing(unit * t, t**1.0, 3 * t**-0.5)
        assert found / unit == pytest.approx(3 ** (1 / 1.5), rel=1e-14)
    assert crossing(t, 2 * t, 2 * t**0.0) == 1.0  # on the grid


@pytest.mark.parametrize(("sparse", "expected"), [
    ([0.4, 0.2, 0.4, 0.4], math.nan), ([0.2, 0.4, 0.4, 0.4], math.nan),  # only touch
    ([0.1, 0.2, 0.1, 0.1], math.nan), ([0.2, 0.2, 0.2, 0.2], math.nan),
    ([0.4, 0.2, 0.1, 0.4], 2**2.5), ([0.1, 0.2, 0.1, 0.4], 2**2.5),  # a touch before
    ([0.1, 0.2, 0.2, 0.4], 2.0), ([0.1, 0.2, 0.0, 0.4], math.nan),
])  # fmt: skip
def test_a_touch_is_no_crossing(sparse, expected):
    found = crossing([1, 2, 4, 8], sparse, [0.2] * 4)
    assert found == pytest.approx(expected, rel=1e-14, nan_ok=True)


def test_a_crossing_of_two_functions_is_their_root():
    def errors(t):
        return math.expm1(t), 1.0

    grid = np.array([0.25, 0.5, 1.0])
    curves = np.expm1(grid), np.ones(3)
    found = crossing(grid, *curves, errors=errors)
    assert found == pytest.approx(math.log(2), rel=1.1e-4)  # ROUNDING of log t
    assert crossing(grid, *curves) != pytest.approx(math.log(2), rel=5e-3)  # interpolated


@pytest.mark.parametrize(
    ("between", "expected"),  # two errors, which are 1, 2 at t = 1 and 4, 2 at t = 4
    [
        (lambda t: (math.nan, 2.0), math.nan), (lambda t: (t, math.inf), math.nan),
        (lambda t: (0.0, 0.0), math.nan), (lambda t: (0.0, 2.0), 4.0),
        (lambda t: (t, 2.0) if t >= 3 else (0.0, 2.0), 3.0),  # a jump
    ],
)  # fmt: skip
def test_errors_without_a_logarithm_between_two_temperatures(between, expected):
    found = crossing([1.0, 4.0], [1.0, 4.0], [2.0, 2.0], errors=between)
    assert found == pytest.approx(expected, rel=2e-4, nan_ok=True)


def test_no_crossing_is_nan_and_errors_of_zero_or_infinity_are_passed_over():
    t = [1.0, 2.0, 4.0, 8.0]
    for one, other in (
        ([1, 1, 1], [2, 2, 2]), ([2, 2, 2], [1, 1, 1]), ([1], [1]), ([0, 2], [1, 1]),
        ([1, math.inf], [2, 1]), ([1, math.nan], [2, 1]),
    ):  # fmt: skip
        assert math.isnan(crossing(t[: len(one)], one, other))
    found = crossing(t, [0.0, 1.0, 4.0, 9.0], [1.0, 2.0, 2.0, 1.0])
    assert found == pytest.approx(8**0.5, rel=1e-12)


@pytest.mark.parametrize(("place", "value", "rule"), [
    (0, 1.0, "temperatures must have 1 dimensions"),
    (0, [0.0, 1.0], "temperatures must be > 0 and increase"),
    (0, [2.0, 1.0], r"temperatures must be > 0 and increase, got \[2.0, 1.0\]"),
    (1, [1.0, -1.0], r"sparse must be an error >= 0 .*, got \[1.0, -1.0\]"),
    (2, [1.0], "low_rank must be an error >= 0 for each of 2 temperatures"),
])  # fmt: skip
def test_what_is_no_curve(place, value, rule):
    curves = [[1.0, 2.0], [1.0, 2.0], [2.0, 1.0]]
    curves[place] = value
    with pytest.raises((TypeError, ValueError), match=rule):
        crossing(*curves)


def test_what_is_no_table():
    sound = table(sparse=[1, 2, 8], low=[4, 2, 2], both=[1, 0.5, 1])
    with pytest.raises(TypeError, match="table must be a table of a sweep, got 'x'"):
        regimes("x", "error", **NAMES)
    with pytest.raises(ValueError, match="table must have a column value"):
        regimes(sound.drop(columns="value"), "error", **NAMES)
    refuses("metric must be one of error, another, got 'eror'", regimes, sound, "eror", **NAMES)
    with pytest.raises(TypeError, match="both must be a method of the table, got 3"):
        regimes(sound, "error", **NAMES | {"both": 3})
    refuses("budgets must not be empty", oracles, gaussian(3, 2, rng=0), [1.0], [])


def table(**curves):
    """Return a tidy table of three methods at three temperatures; a list of lists has trials."""
    rows = []
    for method, values in curves.items():
        for t, value in zip(TEMPERATURES, values):
            trials = value if isinstance(value, list) else [value]
            rows += [("x", t, method, i, "error", v) for i, v in enumerate(trials)]
    rows += [("x", 1.0, "sparse", 0, "another", 7.0)]
    columns = ["input", "temperature", "method", "trial", "metric", "value"]
    return pd.DataFrame(rows, columns=columns)


NAMES = {"sparse": "sparse", "low_rank": "low", "both": "both"}


SHARE = math.log(1.5) / math.log(6)  # log₂(sparse/low): −2, −0.58, 2: from 1 to 4, 0.58/2.58
NEAR = math.log(2.2) / math.log(4)  # the crossing, 2.2, is nearer 4 by ratio, 1 by difference
GAINS = {  # three curves; the crossing, the largest gain, where it is, the gain at the crossing
    "over the better class": ([1, 2, 8], [4, 2, 2], [1, 0.5, 1], (1.0, 4.0, 1.0, 4.0)),
    "medians": ([[1, 1, 99], 2, 8], [4, 3, 2], [0.125, 1, 1], (4**SHARE, 8.0, 0.25, 2.0)),
    "nearest by ratio": (
        [1e-9, math.exp(-NEAR), math.exp(1 - NEAR)], [1, 1, 1], [1, 0.5, 0.25],
        (2.2, 4.0, 4.0, 4.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GAINS)
def test_gains(case):
    sparse, low, both, expected = GAINS[case]
    one = regimes(table(sparse=sparse, low=low, both=both), "error", **NAMES).iloc[0]
    assert (one.coldest, one.hottest) == ("sparse", "low-rank")
    found = one.crossing, one.gain, one.gain_temperature, one.gain_at_crossing
    assert found == pytest.approx(expected, abs=1e-11)


def test_without_crossing_or_a_method():
    found = regimes(table(sparse=[1, 1, 1], low=[2, 2, 2], both=[1, 1, 1]), "error", **NAMES)
    assert list(found.columns) == list(COLUMNS)
    assert found.crossing.isna().all()
    assert found.gain_at_crossing.isna().all()
    assert (found.coldest.item(), found.hottest.item()) == ("sparse", "sparse")
    missing = regimes(table(sparse=[1, 1, 1], low=[2, 2, 2]), "error", **NAMES)
    assert list(missing.columns) == list(COLUMNS)
    assert missing.empty


@pytest.mark.parametrize("end", [0, -1])
@pytest.mark.parametrize(
    ("sparse", "low", "word"), [(2, 2, "equal"), (0, 0, "equal"), (math.nan, 1, "unknown")]
)
def test_what_is_not_better_is_not_said_to_be(sparse, low, word, end):
    curves = {"sparse": [1.0, 1.0, 1.0], "low": [2.0, 2.0, 2.0], "both": [1.0, 0.5, 1.0]}
    for method, value in (("sparse", sparse), ("low", low), ("both", min(sparse, low))):
        curves[method][end] = value
    one = regimes(table(**curves), "error", **NAMES).iloc[0]
    words = (one.coldest, one.hottest) if end == 0 else (one.hottest, one.coldest)
    assert words == (word, "sparse")
    assert (one.gain, one.gain_temperature) == (2.0, 1.0)  # two zeros gain nothing


@pytest.mark.parametrize("space", ["kernel", "attention"])
def test_oracles_are_the_largest_entries_and_the_svd(space):
    x = gaussian(24, 6, rng=0)
    budget = 6.5  # rank 3, or 156 entries
    found = oracles(x, [0.5, 2.0], [budget], space=space).set_index(
        ["metric", "temperature", "method"]
    )
    for t in (0.5, 2.0):
        at = x.at_temperature(t)
        D = exact.kernel(at.Q, at.K) if space == "kernel" else exact.softmax(at.Q, at.K)
        squares = np.sort(np.square(D), axis=None)
        values = np.linalg.svd(D, compute_uv=False) ** 2
        errors = found.value[f"{space}_relative_frobenius"][t]
        # errors of 0.01 to 1, and rounding of 10⁻¹⁵ of the norm
        expected = math.sqrt(squares[:-156].sum() / squares.sum())
        assert errors["sparse"] == pytest.approx(expected, rel=1e-12)
        expected = math.sqrt(values[3:].sum() / values.sum())
        assert errors["low-rank"] == pytest.approx(expected, rel=1e-12)
        assert errors["both"] <= min(errors["sparse"], errors["low-rank"]) * (1 + 1e-12)
        both = {name: found.value[name][t]["both"] for name in ("rank", "nnz")}
        assert 2 * both["rank"] + both["nnz"] / 24 <= budget
    refuses("space must be one of kernel, attention", oracles, x, [1.0], [4.0], space="output")


@pytest.mark.parametrize(
    ("make", "budget", "low", "high", "crosses"),
    [  # two temperatures around the crossing
        (gaussian, 32.0, 1.0, 1.42, 1.21),
        pytest.param(CLUSTERED, 32.0, 2.8, 4.0, 3.51, marks=pytest.mark.slow),
    ],
)
def test_published_crossings(make, budget, low, high, crosses):
    """Published from one draw at n = l = 256, d = 64; here the mean of three."""
    metric = "attention_relative_frobenius"
    specs = [ORACLES[name].format(space="attention") for name in ("sparse", "low-rank")]
    found = []
    for seed in range(3):
        x = make(256, 64, rng=seed)
        methods = [parse(spec).within(budget, **x.shape.given) for spec in specs]
        ends = {t: x.at_temperature(t) for t in (low, high)}
        known = {
            t: [at.compare(at.approximate(one))[metric] for one in methods]
            for t, at in ends.items()
        }
        t = root(x, methods, metric, known)
        at = x.at_temperature(t)
        sparse, least = (at.compare(at.approximate(one))[metric] for one in methods)
        # errors are powers of t below 4, and t is within 10⁻⁴
        assert sparse == pytest.approx(least, rel=4e-4)
        found.append(t)
    # one draw against three, std·√(1 + 1/3), the std itself from three: 10 of them; three
    # digits are known, of what was interpolated, which moves 1 %
    spread = 10 * math.sqrt(4 / 3) * np.std(found, ddof=1)
    assert abs(np.mean(found) - crosses) < spread + 0.01 * crosses
