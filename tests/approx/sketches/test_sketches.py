"""Sketches by sampling: closed forms at |z| ≤ 5, identities, the zero map that a peer accepts."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

from approx import Approximation, parse
from approx.sketches.product_sketch import ProductSketch
from approx.sketches.products import forms
from approx.sketches.random_maclaurin import RandomMaclaurin
from approx.sketches.signed import Signed, excess, signed, tail, total, value
from approx.sketches.squared_sketch import SquaredSketch
from approx.sketches.tensor_sketch import Hashes, TensorSketch
from approx.testing import assert_moments

SAMPLED = (  # one of each way to draw: test_enumeration.py has the moments of the others, too
    "random_maclaurin(m=8, exact=2)",
    "random_maclaurin(m=20, law='poisson', exact=3)",
    "product_sketch(m=8)",
    "product_sketch(m=8, degree=2, law='gaussian')",
    "tensor_sketch(m=8)",
    "tensor_sketch(m=3, degree=3)",
    "squared_sketch(inner=3, degree=2, law='gaussian')",
)


def points(seed=0, d=3):
    """Return Q, K with |q + k|² ≤ 1 and logits of both signs."""
    u = np.random.default_rng(seed).standard_normal((7, d))
    u *= 0.5 / np.linalg.norm(u, axis=1, keepdims=True)
    return u[:3], np.vstack([u[3:], -u[:1]])


@pytest.mark.parametrize("spec", SAMPLED)
def test_mean_and_variance_are_those_of_the_closed_form(spec):
    assert_moments(
        parse(spec), *points(), draws=2000 if "squared" in spec or "gaussian" in spec else 400
    )


# Identities


def test_squares_are_squares():
    """The estimate is the square of the product sketch of half the degree, so it is ≥ 0."""
    Q, K = (3 * x for x in points())
    rng = np.random.default_rng(0)
    levels = [forms("rademacher", (5, 4), rng) for _ in range(2)]
    outer = Approximation(SquaredSketch(inner=5, degree=4).features(Q, K, levels))
    scale = math.sqrt(0.5)  # degree 2 of half the logit
    inner = ProductSketch(m=5, degree=2).features(Q * scale, K * scale, levels)
    want = Approximation(inner).to_dense() ** 2
    np.testing.assert_allclose(outer.to_dense(), want, rtol=1e-12, atol=1e-12 * want.max())
    assert outer.rank == 15


@pytest.mark.parametrize("spec", SAMPLED)
def test_vectors_of_any_length(spec):
    """Logits of 10⁴; |q| of 1e150, whose square is the last float64, at |q||k| of 1e10; 1e-400."""
    signs = np.array([[1.0, 1, 1], [-1, -1, -1], [1, -1, 0]])
    for long, short in ((58.0, 58.0), (1e150, 1e-140), (1e-200, 1e-200)):
        Q, K = np.full((2, 3), long), short * signs
        values = parse(spec).approximate(Q, K, rng=0)
        assert np.isfinite(values.block(slice(None), shift=values.row_log())).all()
        assert not np.isnan(np.concatenate(parse(spec).moments(Q, K))).any()


def test_budgets_leave_room_for_the_exact_degrees():
    shape = {"n": 10, "l": 10, "d": 3}
    template = RandomMaclaurin(exact=2)
    assert template.within(10, **shape).m == 5  # 4 monomials and one feature
    assert template.within(9, **shape) is None
    assert SquaredSketch().within(20, **shape).inner == 4  # 4·5/2 columns of both sides


@pytest.mark.parametrize(("law", "first"), [("geometric", 0), ("geometric", 2), ("poisson", 0),
                                            ("poisson", 3)])  # fmt: skip
def test_degrees_follow_their_law(law, first):
    """Frequencies of 10⁵ degrees against P(N = j), each a binomial count."""
    count, rate = 100_000, 1.7
    N = RandomMaclaurin(m=1, law=law, exact=first).degrees(count, rate, np.random.default_rng(0))
    assert (np.diff(N) <= 0).all()
    assert N.min() == first
    below = sum(rate**i / math.factorial(i) for i in range(first))
    for j in range(first, first + 5):
        p = 0.5 ** (j - first + 1)
        if law == "poisson":
            p = rate**j / math.factorial(j) / (math.exp(rate) - below)
        assert abs(np.mean(j == N) - p) <= 5 * math.sqrt(p * (1 - p) / count)


# The zero map


def fitted(m, degree, seed):
    """Return its sketch of (1 + x/degree)^degree."""
    kernel_approximation = pytest.importorskip("sklearn.kernel_approximation")
    return kernel_approximation.PolynomialCountSketch(
        gamma=1 / degree, degree=degree, coef0=1, n_components=m, random_state=seed
    ).fit(points(d=4)[0])


@pytest.mark.parametrize(("m", "degree"), [(4, 2), (5, 3), (64, 4)])
def test_the_same_hashes_give_the_sketch_of_scikit_learn(m, degree):
    Q, K = points(d=4)
    found = fitted(m, degree, 0)
    hashes = Hashes(found.indexHash_, found.bitHash_.astype(float))
    left, right, log = Approximation(
        TensorSketch(m=m, degree=degree).features(Q, K, hashes)
    ).scaled_factors()
    want = found.transform(Q), found.transform(K)
    # both are sums of products of degree·m numbers of size ≤ 1, through three transforms
    np.testing.assert_allclose(
        np.exp(log)[:, None] * left @ right.T, want[0] @ want[1].T, atol=1e-12
    )
    ratio = np.exp(log)[:, None] * left / want[0]
    np.testing.assert_allclose(ratio / ratio[:1, :1], 1, rtol=1e-6)  # equal up to the key scale


# Sums and powers as sign and logarithm, against mpmath


DIGITS = 700


logarithms = st.floats(-9, 6)
numbers = st.one_of(
    st.just(0.0), logarithms.map(lambda x: 10**x), logarithms.map(lambda x: -(10**x))
)


@given(x=numbers, first=st.integers(0, 5), factorials=st.sampled_from([1, 2]))
def test_tails_against_mpmath(x, first, factorials):
    y = math.copysign(abs(x) ** 0.5, x) if factorials == 1 else x  # logs of about 10³ for both
    found = tail(signed(y), first, factorials)
    with mpmath.workdps(DIGITS):
        terms = [mpmath.mpf(y) ** j / mpmath.factorial(j) ** factorials for j in range(first)]
        # 0F1(; 1; y) = I₀(2√y)
        whole = mpmath.exp(y) if factorials == 1 else mpmath.hyp0f1(1, mpmath.mpf(y))
        want = whole - mpmath.fsum(terms)
        # terms cancel where y < 0: absolute error beside the largest term, of a log ≤ 2000
        reach = 2 * first + 2
        size = abs(y) if factorials == 1 else math.sqrt(abs(y))
        largest = max([abs(want), *map(abs, terms)]) if size > reach else mpmath.exp(2 * reach)
        if y < 0 and factorials == 2:
            largest = max(largest, size)  # J₀ at an argument of that rounding
        got = float(found.sign) * mpmath.exp(mpmath.mpf(float(found.log)))
        if want == 0:
            assert got == 0
        elif y >= 0:
            assert abs(got - want) <= 1e-15 * (2000 + abs(float(found.log))) * abs(want)
        else:
            assert abs(got - want) <= 1e-13 * largest * (1 + abs(math.log(abs(y) + 1e-300)) * 5)


@given(
    base=st.floats(-4, 4),
    more=st.one_of(st.floats(-4, 4), st.floats(-1e-12, 1e-12)),
    n=st.integers(1, 40),
)
def test_excess_against_mpmath(base, more, n):
    """Relative to the sum of both sides, n·(|log| + 4) roundings; no less where more is small."""
    got = excess(np.array(base), np.array(more), n)
    with mpmath.workdps(DIGITS):
        # base + more is rounded once where they are of one size
        want = (mpmath.mpf(base) + mpmath.mpf(more)) ** n - mpmath.mpf(base) ** n
        found = float(got.sign) * mpmath.exp(mpmath.mpf(float(got.log)))
        scale = abs(base) ** n + (abs(base) + abs(more)) ** n
        if abs(n * more) < 0.5 * abs(base):
            scale = abs(want)
        assert abs(found - want) <= 1e-15 * n * 800 * scale + mpmath.mpf(10) ** -300


def test_sums_have_signs():
    found = total(signed([1.0, -2.0, 0.0]), signed([2.0, 1.0, 0.0]), signed([-3.0, 0.5, 0.0]))
    # of terms of 1 + 2 + 3, each with two logarithms, a difference and an exponential
    np.testing.assert_allclose(value(found), [0.0, -0.5, 0.0], rtol=0, atol=24 * 2.0**-52)
    huge = total(Signed(np.array(1.0), np.array(1e5)), Signed(np.array(-1.0), np.array(9e4)))
    assert huge == (1.0, 1e5)


@pytest.mark.parametrize("factorials", [1, 2])
def test_tails_of_zero(factorials):
    assert value(tail(signed(0.0), 0, factorials)) == 1
    assert value(tail(signed(0.0), 3, factorials)) == 0
