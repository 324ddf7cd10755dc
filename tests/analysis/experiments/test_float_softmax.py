"""Softmax in floating point: truth against mpmath, and known roundings."""

import math

import mpmath
import numpy as np
import pytest

from analysis.experiments import float_softmax as study

ROW = np.array([[1.5, -2.0, 0.25, 3.0, 2.75, -0.5, 1.0, 0.0]])


@pytest.mark.parametrize("dtype", study.DTYPES)
def test_the_truth_is_that_of_mpmath(dtype):
    x = (7 * ROW).astype(dtype)
    u = float(np.finfo(dtype).eps) / 2
    high, low = study.truth(x)
    with mpmath.workdps(40):
        e = [mpmath.exp(mpmath.mpf(float(y))) for y in x[0]]
        for one, a, b in zip(e, high[0], low[0]):
            # 25 digits for float64, and n + 2·range roundings of float64 for the shorter formats
            off = mpmath.mpf(float(a)) + mpmath.mpf(float(b)) - one / mpmath.fsum(e)
            assert abs(off) < 1e-6 * u


def test_errors_are_a_few_roundings():
    """To first order at most n + 2 + 2·range of them, and second-order terms add n·u of that."""
    z = np.random.default_rng(0).standard_normal((4, 128))
    for dtype in study.DTYPES:
        for size in (0.1, 1.0, 2.5):
            x = (size * z).astype(dtype)
            errors = study.errors(x, (*study.SIZE_FORMULAS, "recursive"))
            most = 1.06 * (130 + 2 * np.ptp(x.astype(float), axis=1))
            # each new maximum of an online sum adds two roundings, of at most 12
            assert all((errors[x] < most + 24).all() for x in errors)
            assert (errors["shifted"] < 6).all()
    offset = (z + 60).astype(np.float32)  # the logarithm is off by half an ulp of 60
    errors = study.errors(offset, ("division_free", "shifted"))
    assert (errors["shifted"] < 6).all()
    assert (errors["division_free"] > 5).any()


def test_float16_overflows_and_stands_still():
    """2048 + 1 is rounded to even, 2048."""
    x = np.zeros((1, 4096), np.float16)
    assert study.weights(x, "recursive")[0, 0] == 2.0**-11
    assert study.weights(x, "online")[0, 0] == 2.0**-11
    assert study.weights(x, "shifted")[0, 0] == 2.0**-12
    x = np.full((1, 4), 12.0, np.float16)
    assert study.errors(x, ("unshifted", "shifted"))["unshifted"] == math.inf
    assert study.errors(x, ("shifted",))["shifted"] == 0
