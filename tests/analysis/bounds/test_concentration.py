"""Bounds of a mean: against their formulas in plain loops, and by enumeration of all samples."""

import itertools
import math
import statistics

import numpy as np
import pytest
from each import each
from refusals import refuses

from analysis.bounds.concentration import KINDS, PROVED, lower, upper

TIGHT = 1e-9  # halving ends at 2⁻⁴⁰; a sum of b ≤ 80 terms has some 10² roundings
POPULATIONS = (
    [0.0] * 7 + [1.0], [0.0] * 4 + [1.0] * 4, [math.exp(-j) for j in range(8)], [0.5] * 8,
    [0.9, 1.0, 0.95, 0.2, 1.0, 0.85, 1.0, 0.99],
)  # fmt: skip


def twin(x, delta, kind, N=None):
    """The same upper bound from its formula, a number at a time."""
    b, mean = len(x), sum(x) / len(x)
    if b == N:
        return mean
    rho = 1.0
    if N is not None:
        rho = 1 - (b - 1) / N if b <= N / 2 else (1 - b / N) * (1 + 1 / b)
    if kind == "hoeffding":
        high = mean + math.sqrt(rho * math.log(1 / delta) / (2 * b))
    elif kind == "empirical_bernstein" and N is None:
        L = math.log(2 / delta)
        high = mean + math.sqrt(2 * statistics.variance(x) * L / b) + 7 * L / (3 * (b - 1))
    elif kind == "empirical_bernstein":
        L = math.log(5 / delta)
        off = math.sqrt(2 * rho * statistics.pvariance(x) * L / b)
        high = mean + off + (7 / 3 + 3 / math.sqrt(2)) * L / b
    elif kind == "normal":
        left = 1.0 if N is None else (N - b) / N
        z = statistics.NormalDist().inv_cdf(1 - delta)
        high = mean + z * statistics.stdev(x) * math.sqrt(left / b)
    return min(high, 1.0)


def wealth(x, m):
    """What bets against the mean m make of 1."""
    total = 0.0
    for j in range(8):
        weight = 1 / 2 if j == 0 else 1 / 14
        total += weight * math.prod(1 + 2.0**-j * (m - y) / (1 - m) for y in x)
    return total


@each("kind", [kind for kind in KINDS if kind != "betting"])
@each("population", [None, 80, 130, 400])
def test_a_bound_is_that_of_its_formula(kind, population):
    rng = np.random.default_rng(0)
    x = rng.random((3, 80)) ** 3
    for delta in (0.2, 0.05):
        found = upper(x, delta, kind=kind, population=population)
        expected = [twin(list(row), delta, kind, population) for row in x]
        np.testing.assert_allclose(found, expected, rtol=TIGHT)
        mirrored = [1 - twin([1 - y for y in row], delta, kind, population) for row in x]
        found = lower(x, delta, kind=kind, population=population)
        np.testing.assert_allclose(found, np.maximum(mirrored, 0), atol=TIGHT)


def test_a_bet_ends_where_it_is_won():
    x = np.random.default_rng(1).random((4, 12)) ** 2
    for delta in (0.2, 0.01):
        for row, m in zip(x, upper(x, delta, kind="betting")):
            assert wealth(row, m * (1 + TIGHT)) >= 1 / delta
            assert wealth(row, m * (1 - TIGHT)) <= 1 / delta


def samples(population, b, replaced):
    """All samples of b, equally likely."""
    if replaced:
        return np.array(list(itertools.product(population, repeat=b)))
    return np.array(list(itertools.combinations(population, b)))


@each("kind", PROVED)
def test_a_proved_bound_fails_for_no_more_than_its_share_of_all_samples(kind):
    for population in POPULATIONS:
        mean = sum(population) / len(population)
        for b, replaced in ((2, True), (3, False), (5, False)):
            x = samples(population, b, replaced)
            N = None if replaced else len(population)
            for delta in (0.5, 0.1):
                high, low = (f(x, delta, kind=kind, population=N) for f in (upper, lower))
                assert (high < mean - TIGHT).mean() <= delta
                assert (low > mean + TIGHT).mean() <= delta


def test_the_normal_one_is_no_bound_and_populations_may_differ():
    x = samples([0.0] * 7 + [1.0], 3, replaced=True)
    assert (upper(x, 0.05, kind="normal") < 1 / 8).mean() == pytest.approx((7 / 8) ** 3)
    x = np.random.default_rng(2).random((3, 4))
    for kind in KINDS:
        found = upper(x, 0.1, kind=kind, population=[4, 9, 20])
        alone = [upper(row, 0.1, kind=kind, population=N) for row, N in zip(x, (4, 9, 20))]
        np.testing.assert_array_equal(found, alone)
    assert found[0] == pytest.approx(x[0].mean())


def test_errors_say_what_is_wrong():
    refuses("x must be between 0 and 1", upper, [0.5, 1.5], 0.1)
    refuses("delta must be below 1", upper, [0.5], 1.0)
    refuses("population must be >= the 2", upper, [0.5, 0.5], 0.1, population=1)
    refuses('kind "normal" needs 2 draws', upper, [0.5], 0.1, kind="normal")
    refuses("x must have samples of one number at least", upper, [], 0.1)
    refuses("kind", lower, [0.5], 0.1, kind="best")
