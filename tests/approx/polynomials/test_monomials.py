"""Polynomials of q·k: dense tensors, compact monomials and scalar functions are the same thing."""

import itertools
import math

import mpmath
import naive
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from small import peak

from approx import Approximation, ResourceLimitError
from approx.estimate import exact, memory
from approx.polynomials import elementwise, monomials
from approx.polynomials.chebyshev import Chebyshev
from approx.polynomials.elementwise import Elementwise
from approx.polynomials.least_squares import LeastSquares
from approx.polynomials.minimax import Minimax
from approx.polynomials.polynomial import Polynomial
from approx.polynomials.richardson import Richardson
from approx.polynomials.taylor import Taylor
from approx.polynomials.tensor_power import TensorPower

EPS = np.finfo(float).eps


def index_sets(d, degree):
    """Return the monomials as tuples of indices, in scikit-learn's documented order."""
    return [
        c for k in range(degree + 1) for c in itertools.combinations_with_replacement(range(d), k)
    ]


def multinomial(indices):
    counts = [indices.count(i) for i in set(indices)]
    return math.factorial(len(indices)) // math.prod(map(math.factorial, counts))


def polynomial(coefficients):
    """Return Σ a_j x^j."""
    return Polynomial.from_coefficients(coefficients)


def points(seed, n, d):
    return np.random.default_rng(seed).uniform(-1, 1, (n, d))


dimensions = st.integers(1, 5)
seeds = st.integers(0, 2**32 - 1)

# Monomials


@pytest.mark.kernel
@pytest.mark.parametrize("d", range(1, 6))
@pytest.mark.parametrize("degree", range(5))
def test_order_width_and_weights(d, degree):
    sets = index_sets(d, degree)
    assert monomials.width(d, degree) == len(sets)
    ratios = [multinomial(c) / multinomial(c[1:]) for c in sets]
    np.testing.assert_array_equal(monomials.root_ratios(d, degree), np.sqrt(ratios))
    begin, tails = monomials.layout(d, degree)
    np.testing.assert_array_equal(
        np.diff(begin), [math.comb(d + k - 1, k) for k in range(degree + 1)]
    )
    for k in range(1, degree + 1):  # the tail of i holds what begins with an index ≥ i
        for i in range(d):
            tail = sets[tails[k, i] : begin[k]]
            assert all(min(c, default=d) >= i for c in tail)
            assert len(tail) == sum(min(c, default=d) >= i for c in sets[begin[k - 1] : begin[k]])


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("d", "degree"), [(1, 6), (3, 4), (5, 2), (4, 0)])
def test_features_are_weighted_monomials(dtype, d, degree):
    X = points(0, 5, d).astype(dtype)
    X[2] = 0
    sets = index_sets(d, degree)
    log_weights = np.log(np.arange(1.0, degree + 2))
    row_log = np.linspace(-1, 1, 5)
    got = monomials.features(X, monomials.root_ratios(d, degree), log_weights, row_log)
    assert got.dtype == dtype
    for x, row, log in zip(X.astype(float), got, row_log):
        for c, value in zip(sets, row):
            want = math.exp(-log) * math.sqrt((len(c) + 1) * multinomial(c)) * math.prod(x[list(c)])
            # x/|x|, its powers, the weight, e^(j log|x| …) with an exponent ≤ 20: 4·degree + 40
            assert abs(value - want) <= (4 * degree + 40) * np.finfo(dtype).eps * abs(want)


def test_features_are_written_where_asked_at_any_weight():
    X = points(1, 5, 3)
    given = monomials.root_ratios(3, 2), np.zeros(3), np.zeros(len(X))
    out = np.full((5, 10), np.nan)
    assert monomials.features(X, *given, out=out) is out
    np.testing.assert_array_equal(out, monomials.features(X, *given))
    for wrong in (out[:4], out.astype(np.float32), np.empty((10, 5)).T):
        with pytest.raises(ValueError, match=r"^out must be C-contiguous, \(5, 10\) of float64"):
            monomials.features(X, *given, out=wrong)
    X = np.array([[1.0, -2.0]])
    left, right = Taylor(degree=1030).approximate(X, X).factors()  # C(1030, 515) = 2.9e308
    np.testing.assert_allclose(left @ right.T, math.exp(5), rtol=1030 * EPS)


def true_monomials(x, degree):
    """Return √C(degree, a) x_0^a x_1^b of a unit vector, a + b = degree, in order."""
    with mpmath.workdps(20):
        u, v = map(mpmath.mpf, x)
        return [
            float(mpmath.sqrt(mpmath.binomial(degree, b)) * u ** (degree - b) * v**b)
            for b in range(degree + 1)
        ]


@pytest.mark.parametrize(("dtype", "degree"), [(np.float32, 252), (np.float64, 2044)])
@pytest.mark.parametrize("turn", [0.04, 0.4, 0.785, 1.2])
def test_the_highest_degree_keeps_digits_and_the_next_is_refused(dtype, degree, turn):
    X = np.array([[math.cos(turn), math.sin(turn)]], dtype)
    X64 = X.astype(float) / np.linalg.norm(X.astype(float))
    given = monomials.root_ratios(2, degree), np.zeros(degree + 1), np.zeros(1)
    found = monomials.features(X, *given)[0, -degree - 1 :]
    # the rounded unit vector to the power of the degree, and as many products
    allowed = 4 * degree * np.finfo(dtype).eps
    np.testing.assert_allclose(found, true_monomials(X64[0], degree), rtol=0, atol=allowed)
    more = monomials.root_ratios(2, degree + 1), np.zeros(degree + 2), np.zeros(1)
    with pytest.raises(OverflowError, match=rf"^monomials of degree {degree + 1} in 2 dimensions"):
        monomials.features(X, *more)


def test_degrees_too_high_for_monomials_take_the_other_way():
    X = points(3, 700, 2).astype(np.float32)
    A = Taylor(degree=260).approximate(X, X)  # 34 191 monomials: cheaper, were they right
    total = np.exp(X.astype(float) @ X.T.astype(float)).sum(axis=1)
    # a rounding a coefficient; no exponent is above 2, so that nothing cancels by more than e^4
    np.testing.assert_allclose(A @ np.ones(700), total, rtol=260 * np.finfo(np.float32).eps)
    with pytest.raises(OverflowError, match="degree 260 in 2 dimensions lose their digits"):
        A.factors()


# Dense tensor = compact monomials = scalar polynomial


def compact(method, q, k):
    """Return p(q·k) through the monomial factors."""
    left, right = method.approximate([q], [k]).factors()
    return float((left @ right.T)[0, 0])


@given(dimensions, st.integers(1, 4), seeds)
def test_three_ways(d, n, seed):
    q, k = points(seed, 2, d)
    x, size = float(q @ k), float(np.abs(q) @ np.abs(k))
    for method, tensor, scalar, terms in (
        (Taylor(n), naive.taylor_tensors, sum(x**j / math.factorial(j) for j in range(n + 1)),
         math.exp(size)),
        (TensorPower(n), naive.power_tensor, (1 + x / n) ** n, (1 + size / n) ** n),
    ):  # fmt: skip
        bound = 1e-12 * terms  # the sum of |terms|: some 800 products
        assert abs(tensor(q, n) @ tensor(k, n) - scalar) <= bound
        assert abs(compact(method, q, k) - scalar) <= bound
        assert abs(method.approximate([q], [k]).to_dense()[0, 0] - scalar) <= bound


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("by_factors", [True, False])
@given(
    dimensions,
    st.lists(st.floats(-3, 3).map(lambda x: round(x, 3)), min_size=1, max_size=6),
    st.booleans(),
    seeds,
)
@example(2, [0.0, -1.0], True, 0)
@example(1, [0.0], False, 0)
@example(3, [1.0, 0.0, -2.0, 0.0, 0.5], True, 3)
def test_any_signs_of_the_coefficients(by_factors, dtype, d, coefficients, pieces, seed):
    """Entries, and products by the factors or by stripes, whole or in pieces with a short last."""
    Q, K = points(seed, 10, d).astype(dtype), points(seed + 1, 7, d).astype(dtype)
    Q[0] = 0
    A = Approximation(Elementwise(Q, K, polynomial(coefficients)))
    Q, K = Q.astype(float), K.astype(float)
    want = np.polynomial.polynomial.polyval(Q @ K.T, coefficients)
    terms = np.polynomial.polynomial.polyval(np.abs(Q) @ np.abs(K).T, np.abs(coefficients))
    bound = (A.rank + 100) * np.finfo(dtype).eps * terms + 1e-300
    assert (np.abs(A.to_dense() - want) <= bound).all()
    left, right, row_log = A.scaled_factors()
    assert (np.abs(np.exp(row_log)[:, None] * (left @ right.T) - want) <= bound).all()
    V, W = (np.random.default_rng(2).uniform(-1, 1, (n, 2)).astype(dtype) for n in (7, 10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Elementwise, "_factors_are_cheaper", lambda *_: by_factors)
        if pieces:
            patch.setattr(elementwise, "TILE", 3)
            patch.setattr(exact, "STRIPE", 20)
        assert (A @ V).dtype == dtype
        assert (np.abs(A @ V - want @ V) <= bound @ np.abs(V)).all()
        assert (np.abs(A.T @ W - want.T @ W) <= bound.T @ np.abs(W)).all()


# Tensor power as a function


@pytest.mark.parametrize("n", [10**4, 10**5, 10**6, 10**6 + 1])
def test_a_large_tensor_power_is_accurate(n):
    x = np.concatenate([np.linspace(-100, 100, 41), [1e-9, -1e-9, 0.0]])
    got = TensorPower(n).approximate([[1.0]], x[:, None]).to_dense()[0]
    with mpmath.workdps(60):
        want = [(1 + mpmath.mpf(float(y)) / n) ** n for y in x]
        error = [abs(mpmath.mpf(float(g)) - w) / w for g, w in zip(got, want)]
    # n·log1p(x/n) carries three roundings of |x| ≤ 100, exp two ulps: 3·100·eps/2 + 2·eps
    assert max(error) <= 1e-13


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_a_tensor_power_below_minus_n(n):
    x = np.array([-n, -n - 0.5, -2 * n, -3 * n, -n + 0.25, -50.0])
    got = TensorPower(n).approximate([[1.0]], x[:, None]).to_dense()[0]
    # as a polynomial, by powers: n roundings, and log1p near −1 loses |log| eps: a dozen
    np.testing.assert_allclose(got, (1 + x / n) ** n, rtol=(n + 40) * EPS, atol=0)
    assert (np.sign(got[1:4]) == (-1) ** n).all()


def test_the_cheaper_route_is_taken(monkeypatch):
    taken = []
    monkeypatch.setattr(
        Elementwise,
        "_feature_tiles",
        lambda self, f=Elementwise._feature_tiles: taken.append(1) or f(self),
    )
    many, few = np.full((400, 1), 0.1), np.full((4, 3), 0.1)
    Taylor(2).approximate(many, many) @ np.ones(400)
    assert taken == [1]
    Taylor(9).approximate(few, few) @ np.ones(4)
    assert taken == [1]


@pytest.mark.parametrize("make", [Taylor(200), TensorPower(200), TensorPower(1000)])
def test_products_of_a_high_degree_in_one_dimension(make):
    # the factors are the cheaper route here, and j! is beyond float64 from j = 171 on
    x = np.linspace(-1, 1, 600)[:, None]
    A = make.approximate(x, x)
    assert A.low._factors_are_cheaper(1)
    D = A.to_dense()
    # |terms| of each entry add up to at most e; exponents of features reach j·log j ≤ 7000
    np.testing.assert_allclose(A @ np.ones(600), D.sum(axis=1), rtol=0, atol=600 * 8000 * EPS * 2.8)


# Too wide


@pytest.mark.parametrize(
    "make",
    [Taylor(8), TensorPower(8), Richardson(4), Chebyshev(8), Minimax(8), LeastSquares(8)],
)
def test_too_wide_is_refused_before_allocation_and_the_rest_works(make):
    x = points(0, 40, 12) * 0.3
    A = make.approximate(x, x)  # C(20, 8) = 125 970 columns, 80 MB
    D = A.to_dense()
    memory.set_limit(2**21)

    def refused():
        for use in (A.factors, A.scaled_factors):
            with pytest.raises(
                ResourceLimitError, match=r"125970 monomials per row would take 7\d.* MiB"
            ):
                use()

    refused()
    assert peak(refused) < 2**17
    V = np.ones((40, 2))
    assert peak(lambda: (A @ V, A.T @ V, A.attend(V), A.block(slice(0, 9)))) < 2**21
    # 40 terms; p(x) ≤ e^x
    np.testing.assert_allclose(A @ V, D @ V, rtol=60 * EPS)
    np.testing.assert_allclose(A.T @ V, D.T @ V, rtol=60 * EPS)
    np.testing.assert_allclose(A.attend(V), 1.0, rtol=60 * EPS)


def test_a_tile_of_features_beyond_the_limit_is_not_made():
    x = points(0, 400, 2)
    A = Taylor(20).approximate(x, x)  # 231 columns: a tile of 256 rows is 473 kB
    V = np.ones((400, 1))
    memory.set_limit(2**22)
    assert A.low._factors_are_cheaper(1)
    by_factors = A @ V
    memory.set_limit(2**20)
    assert not A.low._factors_are_cheaper(1)
    # 400 terms; p(x) ≤ e², its |terms| add up to as much
    np.testing.assert_allclose(A @ V, by_factors, rtol=0, atol=700 * EPS * 400 * math.exp(2))


@pytest.mark.parametrize(("d", "n"), [(128, 10**6), (2000, 10**6), (1, 10**6)])
def test_a_width_beyond_any_number_is_refused_in_words(d, n):
    # C(128 + 10⁶, 128) has 553 digits, C(2000 + 10⁶, 2000) has 6263: Python refuses to print it
    x = np.full((3, d), 0.5 / math.sqrt(d))
    method = TensorPower(n)
    A = method.approximate(x, x)
    memory.set_limit(2**20)
    with pytest.raises(ResourceLimitError, match="monomials per row would take"):
        A.factors()
    np.testing.assert_allclose(A @ np.ones(3), 3 * A.to_dense()[:, 0], rtol=8 * EPS)
    memory.set_limit(None)
    assert method.within(1e6, n=3, l=3, d=d) is None


@pytest.mark.parametrize("method", [Taylor(10**12), TensorPower(10**12)])
def test_a_degree_whose_coefficients_do_not_fit_is_refused(method):
    with pytest.raises(ResourceLimitError, match=r"would take .*: lower .*, n or l"):
        method.approximate([[1.0]], [[1.0]])
