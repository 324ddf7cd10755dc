"""Softmax in floating point: truth, condition and bounds against mpmath, formulas in Fractions."""

import math

import mpmath
import numpy as np
import pytest

from analysis.experiments import float_softmax as study

ROW = np.array([[1.5, -2.0, 0.25, 3.0, 2.75, -0.5, 1.0, 0.0]])


def precise(x, dps=40):
    with mpmath.workdps(dps):
        e = [mpmath.exp(mpmath.mpf(float(y))) for y in x]
        return [y / mpmath.fsum(e) for y in e]


@pytest.mark.parametrize("dtype", study.DTYPES)
def test_the_truth_is_that_of_mpmath(dtype):
    x = (7 * ROW).astype(dtype)
    u = float(np.finfo(dtype).eps) / 2
    high, low = study.truth(x)
    with mpmath.workdps(40):
        for g, a, b in zip(precise(x[0]), high[0], low[0]):
            # 25 digits for float64, and n + 2·range roundings of float64 for the shorter formats
            assert abs(mpmath.mpf(float(a)) + mpmath.mpf(float(b)) - g) < 1e-6 * u


def test_the_condition_is_that_of_a_difference_quotient():
    """Of all |dx_j| ≤ h |x|_∞ the worst for g_j moves x_j up and the others down."""
    x, h = ROW[0], 1e-7
    size = np.abs(x).max()
    g = np.array([float(y) for y in precise(x)])
    moved = []
    for j in range(len(x)):
        away = np.where(np.arange(len(x)) == j, h, -h) * size
        moved.append(abs(float(precise(x + away)[j]) - g[j]))
    assert study.condition(ROW)[0] == pytest.approx(max(moved) / g.max() / h, rel=1e-5)


@pytest.mark.parametrize("formula", ["unshifted", "recursive", "shifted", "division_free"])
def test_the_bound_is_the_worst_case_of_its_roundings(formula):
    """Each operation of the least weight rounded up by u, each of the sum down, to first order.

    Of Σ g (max x − x), which is the maximum's share of the second range, the bound has the most.
    """
    u = mpmath.mpf(2) ** -80
    for x in ([20.0] + [0.0] * 7, [1.0] + [0.0] * 63):
        with mpmath.workdps(60):
            y = [mpmath.mpf(v) - (formula != "unshifted") * x[0] for v in x]
            shift = u * (formula != "unshifted")  # rounding x − max x towards 0, or away
            part = [mpmath.exp(v * (1 + shift)) * (1 - u) for v in y]
            while len(part) > 1:
                pairs = zip(part[::2], part[1::2])
                if formula == "recursive":
                    pairs, part = [(part[0], part[1])], part[2:]
                    part = [(a + b) * (1 - u) for a, b in pairs] + part
                else:
                    part = [(a + b) * (1 - u) for a, b in pairs]
            g = precise(x, 60)
            top = mpmath.exp(y[-1] * (1 - shift)) * (1 + u) / part[0] * (1 + u)
            if formula == "division_free":
                log_sum = (x[0] + mpmath.log(part[0]) * (1 - u)) * (1 - u)
                top = mpmath.exp((x[-1] - log_sum) * (1 - u)) * (1 + u)
            worst = float((top / g[-1] - 1) / u)
            mean = float(sum(a * (x[0] - b) for a, b in zip(g, x)))
        bound = study.bound(np.array([x]), formula)[0]
        if formula != "unshifted":
            bound -= (x[0] - x[-1]) - mean
        if formula != "recursive" or x[0] == 20.0:  # all mass in the first term, in every addition
            assert worst == pytest.approx(bound, rel=1e-6)
        assert worst < bound * (1 + 1e-12) + 1e-12


def test_errors_are_below_their_bounds():
    """The share that second-order terms add is n·u at most: 6 % in float16."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((4, 128))
    for dtype in study.DTYPES:
        for size in (0.1, 1.0, 2.5):
            x = (size * z).astype(dtype)
            formulas = (*study.SIZE_FORMULAS, "recursive")
            errors, wide = study.errors(x, formulas), x.astype(np.float64)
            for formula in formulas:
                bound = study.bound(wide, "recursive" if formula == "online" else formula)
                # each new maximum of an online sum adds two roundings, of at most 12
                assert (errors[formula] < 1.06 * bound + 24 * (formula == "online")).all()
            assert (errors["shifted"] < 6).all()
    offset = (z + 60).astype(np.float32)  # the logarithm is off by half an ulp of 60
    errors = study.errors(offset, ("division_free", "shifted"))
    assert (errors["shifted"] < 6).all()
    assert (errors["division_free"] > 5).any()
    assert (errors["division_free"] < study.bound(offset.astype(float), "division_free")).all()


def test_overflow_is_an_error_without_end():
    x = np.full((1, 4), 12.0, np.float16)
    assert study.errors(x, ("unshifted", "shifted"))["unshifted"] == math.inf
    assert study.errors(x, ("shifted",))["shifted"] == 0


def test_a_running_sum_of_ones_stands_still_at_2048_in_float16():
    """2048 + 1 is rounded to even, 2048."""
    x = np.zeros((1, 4096), np.float16)
    assert study.weights(x, "recursive")[0, 0] == 2.0**-11
    assert study.weights(x, "online")[0, 0] == 2.0**-11
    assert study.weights(x, "shifted")[0, 0] == 2.0**-12
