"""Errors of every order and temperature from one pass, against the comparison of each."""

import math

import numpy as np
import pytest

from analysis.errors import orders
from analysis.errors.metrics import compare
from analysis.errors.orders import order_errors
from approx import parse
from approx.polynomials.chebyshev import Chebyshev
from approx.polynomials.polynomial import Polynomial
from approx.polynomials.powers import powers
from approx.polynomials.taylor import Taylor

EPS = np.finfo(float).eps


def points(n, l, d, size=0.8):
    rng = np.random.default_rng(n)
    return (size * rng.standard_normal((count, d)) for count in (n, l))


@pytest.mark.kernel
@pytest.mark.parametrize("basis", ["monomial", "chebyshev"])
def test_every_order_and_temperature_is_that_of_the_dense_matrices(basis):
    Q, K = points(5, 7, 3)
    c, bound, ts = np.array([1.0, 0.9, 0.6, 0.1]), 20.0, (0.5, 1.0, 3.0)
    p = Polynomial.of(c, basis=basis, **({} if basis == "monomial" else {"bound": bound}))
    found = order_errors(p, Q, K, temperatures=ts)
    for row, t in zip(found, ts):
        x = Q @ K.T / t
        series = np.polynomial.Polynomial if basis == "monomial" else np.polynomial.Chebyshev
        for order, error in enumerate(row):
            y = series(c[: order + 1])(x if basis == "monomial" else x / bound)
            expected = np.linalg.norm(y - np.exp(x)) / np.linalg.norm(np.exp(x))
            assert error == pytest.approx(expected, rel=1e3 * EPS)  # some dozens of roundings


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_orders_are_those_that_compare_measures(dtype):
    Q, K = (x.astype(dtype) for x in points(9, 1500, 4))  # three blocks of logits, one short
    found = order_errors(Taylor(4).polynomial(), Q, K, temperatures=[2.0])[0]
    q, k = (x.astype(np.float64) / math.sqrt(2.0) for x in (Q, K))
    for order, error in enumerate(found):
        estimate = parse(f"taylor({order})").approximate(q, k)
        expected = compare(estimate, q, k, attention=False)["kernel_relative_frobenius"]
        assert error == pytest.approx(expected, rel=1e-11)  # logits move by roundings
    x = q @ k.T
    series = Chebyshev(3, bound=float(np.abs(x).max())).polynomial(float(np.abs(x).max()))
    last = order_errors(series, q, k)[0, -1]
    estimate = parse(
        f"chebyshev(3, bound={np.abs(x).max()!r})".replace("np.float64", "")
    ).approximate
    assert last == pytest.approx(
        compare(estimate(q, k), q, k)["kernel_relative_frobenius"], rel=1e-9
    )


def test_logits_of_ten_thousand_are_finite_or_inf():
    Q, K = np.array([[100.0], [-100.0]]), np.array([[100.0], [1.0]])
    found = order_errors(Taylor(3).polynomial(), Q, K, temperatures=[1.0, 1e-2])
    np.testing.assert_allclose(found, 1.0)  # e^10⁴ is all there is, and no polynomial sees it
    low = order_errors(Taylor(3).polynomial(), Q[1:], K)  # logits −10⁴ and −100
    # the cubic at −10⁴ is 1.7e11, exp(−100) is all of the truth
    assert low[0, 3] == pytest.approx((1e12 / 6 - 1e8 / 2 + 1e4 - 1) * math.exp(100), rel=1e-9)
    assert order_errors(Taylor(3).polynomial(), Q[1:], K[:1])[0, 3] == math.inf


def test_a_row_is_scaled_by_its_lowest_logit_too():
    found = order_errors(Taylor(20).polynomial(), [[1.0]], [[0.0], [-1e10]])[0]
    # x^k/k! but for a share of k/1e10, and the truth is 1: its square leaves the range
    expected = [1e10**k / math.factorial(k) for k in range(16, 21)]
    assert found[16:] == pytest.approx(expected, rel=3e-9)


def test_several_stripes_and_one_cut_short(monkeypatch):
    Q, K = points(11, 6, 3)
    p = Taylor(3).polynomial()
    whole = order_errors(p, Q, K, temperatures=[0.5, 1.0])
    monkeypatch.setattr(orders, "STRIPE", 6 * 4 + 1)
    np.testing.assert_allclose(order_errors(p, Q, K, temperatures=[0.5, 1.0]), whole, rtol=1e-13)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="temperatures must be finite and > 0"):
        order_errors(Taylor(2).polynomial(), [[1.0]], [[1.0]], temperatures=[0.0])
    with pytest.raises(ValueError, match="temperatures must not be empty"):
        order_errors(Taylor(2).polynomial(), [[1.0]], [[1.0]], temperatures=[])
    with pytest.raises(TypeError, match="polynomial must be a Polynomial"):
        order_errors(Taylor(2), [[1.0]], [[1.0]])
    cube = powers([1.0], [3])  # its binomial sums are not what it evaluates
    for refused in (lambda: order_errors(cube, [[1.0]], [[1.0]]), lambda: cube.partial_sums([[1]])):
        with pytest.raises(TypeError, match="partial sums of a tensor power"):
            refused()
