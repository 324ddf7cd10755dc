"""The contract of Approximation, for every method: one estimate, whichever way it is used."""

import dataclasses
import itertools
import math

import mpmath
import naive
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from small import (
    NAMES,
    SPECS,
    assert_within,
    dense,
    few,
    made,
    problems,
    small,
    truth,
    under,
    very_few,
)

from analysis.errors import metrics
from analysis.moments import expected_error, normalised_moments
from approx import METHODS, Approximation, Mask, parse
from approx.baselines import Zero
from approx.combinations.centred import Centered
from approx.combinations.scatterbrain import Scatterbrain
from approx.compressed_logits.exponential import Exponential
from approx.estimate import exact
from approx.estimate.corrections import Addition, Support, coordinates
from approx.estimate.low import Factors, rescale
from approx.hierarchical.levels import Levels
from approx.method.tags import AUTOREGRESSIVE, ORACLE, POSITIONAL, SPECTRAL
from approx.polynomials.elementwise import Elementwise
from approx.projections import PROJECTIONS
from approx.random_features.features import RandomFeatures
from approx.sparse.top_k import TopK
from approx.testing import (
    assert_consistent,
    check_method,
    extreme_inputs,
    roundings,
    term_sizes,
    verdict,
)

ALL = slice(None)
EXAMPLE = {name: small(name, 2, 2, 1) for name in NAMES}
DETERMINISTIC = [name for name, method in EXAMPLE.items() if method.deterministic]
UNDECIDED = (  # of 400 draws
    "angular_hybrid()",
    "product_sketch(m=4, law='gaussian')",
    "squared_sketch(inner=2, degree=6, law='gaussian')",
    "lsh(family='cross_polytope', hashes=1)",
    "lsh(family='e2', hashes=2, width=1.5)",
)

every_method = pytest.mark.parametrize("name", NAMES)


# One matrix, whatever is asked of it


class Case:
    """An estimate, its entries at its row scale, and how far sums of their terms may be off."""

    def __init__(self, A, problem):
        self.A = A
        self.Q, self.K, self.V, _ = problem
        self.values, self.row_log = dense(A)
        self.error = roundings(A) * term_sizes(A)[0]
        self.scale = np.exp(self.row_log)[:, None]


def blocks_take_logits_and_an_output(case):
    A, rows = case.A, slice(None, None, -2)
    logits, log = (case.Q @ case.K.T)[rows], A.row_log(rows)
    np.testing.assert_array_equal(case.values[~naive.seen(A.mask, *A.shape)], 0.0)
    assert_within(log, case.row_log[rows], roundings(A))
    assert_within(A.block(rows, shift=log, logits=logits), case.values[rows], case.error[rows])
    out = np.full_like(logits, np.nan)
    assert A.block(rows, shift=log, out=out) is out
    np.testing.assert_array_equal(out, A.block(rows, shift=log))


def vectors_are_columns(case):
    A, V = case.A, case.V
    D = A.to_dense().astype(np.float64)
    bound = 3 * case.error * case.scale
    assert_within(A.matvec(V[:, 0]), D @ V[:, 0], bound @ np.abs(V[:, 0]))
    assert_within(A.rmatvec(D[:, 0].astype(A.dtype)), D.T @ D[:, 0], bound.T @ np.abs(D[:, 0]))
    y, log = A.scaled_matmat(V)
    assert_within(y * np.exp(log.astype(np.float64))[:, None], D @ V, bound @ np.abs(V))


def factors_give_the_estimate_without_the_sparse_part(case):
    A = case.A
    if A.mask != Mask.full(*A.shape):
        return
    low = Approximation(A.low, space=A.space)
    D = low.to_dense().astype(np.float64)
    size, row_log = term_sizes(low)
    bound = 2 * roundings(low) * size * np.exp(row_log)[:, None]
    left, right = A.factors()
    assert (left.shape, right.shape) == ((len(case.Q), A.rank), (len(case.K), A.rank))
    assert_within(left.astype(np.float64) @ right.T, D, bound)
    left, right, log = A.scaled_factors()
    assert_within(np.exp(log.astype(np.float64))[:, None] * (left @ right.T), D, bound)


def arrays(held):
    """Return the arrays of an object, through its fields."""
    if isinstance(held, np.ndarray):
        return [held]
    if isinstance(held, scipy.sparse.csr_array):
        return [held.data, held.indices, held.indptr]
    if dataclasses.is_dataclass(held):
        held = [getattr(held, field.name) for field in dataclasses.fields(held)]
    return [x for part in held for x in arrays(part)] if isinstance(held, list | tuple) else []


def sizes_count_what_is_stored(A, n, l):
    assert A.shape == (n, l)
    assert A.nnz == (0 if A.sparse is None else A.sparse.nnz)
    low = getattr(A.low, "low", A.low)
    assert isinstance(low, Levels | Exponential) or A.parameters == A.rank * (n + l) + A.nnz
    held = [*arrays(A.low), *arrays(A.correction)]
    assert A.nbytes == sum(x.nbytes for x in {id(x): x for x in held}.values())
    held += arrays(A.low.prepare())
    assert A.nbytes == sum(x.nbytes for x in {id(x): x for x in held}.values())
    left, right, _ = A.scaled_factors()
    assert np.linalg.matrix_rank(left.astype(float) @ right.T) <= A.rank


def a_support_holds_exp_and_leaves_the_rest_to_the_low_rank_part(case):
    A = case.A
    if A.correction is None:
        assert A.sparse is None
        assert not A.replaces
        return
    D, S, bound = A.to_dense(), A.sparse, case.error * case.scale
    low = Approximation(A.low, mask=A.mask).to_dense()
    assert S.format == "csr"
    assert S.dtype == A.dtype
    assert S.shape == A.shape
    assert S.has_canonical_format
    on = np.zeros(A.shape, bool)
    on[S.nonzero()] = True
    if not A.replaces:
        assert_within(D, low.astype(np.float64) + S.toarray(), bound)
        return
    assert on.sum() == A.nnz  # exp is never a stored 0 here
    assert not on[~naive.seen(A.mask, *A.shape)].any()
    np.testing.assert_array_equal(D[~on], low[~on])
    if A.correction.weights is not None:
        weights = np.ones(A.shape)
        weights[coordinates(S)] = A.correction.weights
        assert_within(D, np.where(on, (1 - weights) * low + S.toarray(), low), bound)
        D = S.toarray() / weights
    else:
        np.testing.assert_array_equal(D[on], S.toarray()[on])
    if A.space == "attention":
        return
    # q·k: d products of size ≤ 1, then an exponential: (d + 1)·eps of 4, and a rounding
    tolerance = 22 * np.finfo(A.dtype).eps
    assert tolerance < 1e-14 or A.dtype == np.float32
    exp = naive.kernel(case.Q.astype(np.float64), case.K.astype(np.float64))
    np.testing.assert_allclose(D[on], exp[on], rtol=tolerance, atol=0)


def rows_of_attention_sum_to_one_or_are_zero(case):
    A, one = case.A, np.ones(len(case.K), case.Q.dtype)
    if A.space == "kernel":  # numerator and denominator are the same sum
        assert np.isin(A.attend(one), [0.0, 1.0]).all()
        return
    weights = A.to_dense()  # used as they are
    bound = roundings(A) * np.abs(weights).sum(axis=1)
    assert (np.abs(A.attend(one) - weights.sum(axis=1)) <= bound).all()


CHECKS = (
    blocks_take_logits_and_an_output,
    vectors_are_columns,
    factors_give_the_estimate_without_the_sparse_part,
    a_support_holds_exp_and_leaves_the_rest_to_the_low_rank_part,
    rows_of_attention_sum_to_one_or_are_zero,
)


@every_method
@few
@given(problem=problems())
def test_one_matrix_whatever_is_asked(name, problem):
    Q, K, V, seed = problem
    for A in under(name, Q, K, seed, ["hiding"]):
        sizes_count_what_is_stored(A, len(Q), len(K))  # before it has stored more
        assert A.attend(V[:, :0]).shape == (len(Q), 0)
        case = Case(A, problem)
        for check in CHECKS:
            check(case)


@pytest.mark.parametrize("spec", SPECS)
def test_every_method_passes_the_checks_of_a_method_of_ones_own(spec):
    """Tags, and moments of unbiased features, are those of test_tags.py and test_laws.py."""
    checks = dict(check_method(parse(spec)))
    law = "unbiased" in checks and isinstance(parse(spec), RandomFeatures)
    for name, check in checks.items():
        if name.startswith(("auto", "row", "invariant")) or (name == "moments" and law):
            continue
        found, why = verdict(check)
        undecided = found == "cannot tell" and name == "moments" and spec in UNDECIDED
        assert found == "passed" or undecided, f"{name}{why}"


@pytest.mark.parametrize("spec", ["taylor(degree=2)", "top_k(k=2)", "truncated_svd(rank=1)"])
def test_products_with_integers_are_those_with_floats(spec):
    Q, K = np.random.default_rng(0).uniform(-1, 1, (2, 5, 2))
    A = parse(spec).approximate(Q, K)
    for dtype in (int, np.int8, bool):
        V = np.arange(5).astype(dtype)
        for product in (A, A.T):
            np.testing.assert_array_equal(product @ V, product @ V.astype(float))


def test_an_addition_keeps_its_scale():
    values = scipy.sparse.csr_array(np.array([[0.5, 0.0], [0.0, -0.25]]))
    low = Factors(np.ones((2, 1)), np.full((2, 1), 0.125), np.full(2, 1000.0))
    A = Approximation(low, Addition(values, 1000.0))
    np.testing.assert_array_equal(A.row_log(), 1000.0)
    want = np.array([[0.625, 0.125], [0.125, -0.125]])
    np.testing.assert_array_equal(A.block(ALL, shift=1000.0), want)
    y, log = A.scaled_matmat(np.array([[1.0], [2.0]]))
    np.testing.assert_array_equal(y[:, 0], want @ [1, 2])
    np.testing.assert_array_equal(log, 1000.0)
    np.testing.assert_array_equal(A.attend([1.0, 2.0])[0], 0.875 / 0.75)
    assert A.attend([1.0, 2.0])[1] == 0  # this row sums to 0
    with pytest.raises(OverflowError):
        A.sparse  # noqa: B018


# Attention


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("shape", [(5,), (5, 3)])
def test_attention_is_an_array_of_its_own(shape, mask):
    A = Approximation.from_factors(np.ones((5, 2)), np.ones((5, 2)), mask=mask)
    found = A.attend(np.ones(shape))
    assert found.flags.c_contiguous
    assert found.base is None or found.base.size == found.size


@every_method
def test_stripes_of_any_height_give_the_same_attention(name, monkeypatch):
    Q, K = np.random.default_rng(0).uniform(-1, 1, (2, 8, 3))
    for A, entries in zip(under(name, Q, K), (1, 20, 30)):  # of one row, two or three
        monkeypatch.setattr(exact, "STRIPE", entries)
        assert_consistent(A, K[:, :2])


def test_rows_are_divided_by_positive_sums_and_softmax_rows_by_none():
    A = Approximation.from_factors([[1.0], [-1.0], [0.0]], [[2.0], [3.0], [1.0]])
    V = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(A.attend(V)[1:], 0.0)
    np.testing.assert_allclose(A.attend(V)[0], 11 / 6, rtol=1e-15)
    np.testing.assert_array_equal(A.seen("causal").attend(V)[1:], 0.0)
    assert A.seen("causal").attend(V)[0] == 1.0
    A = Approximation.from_factors([[0.25], [-1.0]], [[1.0], [2.0]], space="attention")
    np.testing.assert_array_equal(A.attend([1.0, 1.0]), [0.75, -3.0])
    # also where a causal query has lost the rest of its row: the sum says how much it has lost
    np.testing.assert_array_equal(A.seen("causal").attend([1.0, 5.0]), [0.25, -11.0])


# Logits of ±10⁴


def test_extreme_inputs_are_extreme():
    for dtype in (np.float64, np.float32):
        Q, K = extreme_inputs(dtype)
        logits = Q @ K.T
        assert -10_001 < logits.min() < -9999
        assert logits.max() > 9000


@every_method
def test_sums_of_extreme_moments_are_no_nan(name):
    assert_sums_without_nan(small(name, 6, 6, 3), *extreme_inputs(np.float64))


def assert_sums_without_nan(method, Q, K):
    """Check normalised moments and expected error: known or None, inf but never NaN."""
    normalised = normalised_moments(method, Q, K)
    assert normalised is None or not any(np.isnan(x).any() for x in normalised)
    error = expected_error(method, Q, K)
    assert error is None or error >= 0


@pytest.mark.parametrize("size", [0.0, 1e-162, 0.14, 1e3])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_moments_of_every_coupling_are_never_nan(projection, size):
    """Of every family, |q·k| from 0 through 10⁻³²⁰ and 200 to 10¹⁰."""
    Q, K = (size * x for x in extreme_inputs(np.float64))
    for name, method in METHODS.items():
        fields = {f.name for f in dataclasses.fields(method)}
        if "projection" not in fields or (name == "regularized" and "regular" not in projection):
            continue
        coupled = method(m=32, projection=projection)
        covariance = coupled.covariance(Q, K, row=1)
        assert covariance is None or not np.isnan(covariance).any(), name
        found = coupled.moments(Q, K)
        assert found is None or not np.isnan(np.concatenate(found)).any(), name
        assert_sums_without_nan(coupled, Q, K)


@every_method
def test_what_is_not_representable_is_an_overflow_error_never_inf(name):
    for dtype, sign in itertools.product((np.float64, np.float32), (1, -1)):
        Q, K = extreme_inputs(dtype)
        A, _ = made(name, Q * dtype(sign), K)
        edge = math.log(np.finfo(dtype).max)
        values, row_log = dense(A)
        V = np.ones((len(K), 1))
        uses = A.to_dense, lambda A=A, V=V: A @ V, lambda A=A, V=V: A.T @ V
        assert_overflow(values, row_log, edge, uses, "not representable in float")
        left, _, log = A.scaled_factors()
        assert_overflow(left, log, edge, [A.factors], "a factor is not representable")


def assert_overflow(values, row_log, edge, uses, message):
    """Check that uses are refused where a value is beyond the edge, and finite elsewhere."""
    with np.errstate(divide="ignore"):
        top = (np.log(np.abs(values).max(axis=1, initial=0)) + row_log).max()
    assert not edge - 1 < top < edge + 1
    for use in uses:
        if top > edge:
            with pytest.raises(OverflowError, match=message):
                use()
        else:
            assert all(np.isfinite(x).all() for x in use())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_causal_row_is_scaled_by_what_it_sees(dtype):
    # an unseen key 2000 above: at its scale all that is seen would be 0
    Q, K = np.ones((3, 1), dtype), np.array([[0.0], [1.0], [2000.0]], dtype)
    V = np.array([1.0, 2.0, 3.0], dtype)
    want = exact.attention(Q, K, V, mask="causal")
    for spec in ("top_k(k=3)", "scatterbrain(low_rank=zero(), sparse=top_k(k=3))"):
        A = parse(spec).approximate(Q, K, mask="causal")
        np.testing.assert_allclose(A.attend(V), want, rtol=16 * np.finfo(dtype).eps)
        errors = metrics.compare(A, Q, K, V)
        assert errors["nonpositive_rows"] == 0
        assert errors["output_relative_error"] < 16 * np.finfo(dtype).eps


@pytest.mark.parametrize(("dtype", "x"), [(np.float64, 400.0), (np.float32, 60.0)])
@pytest.mark.parametrize(
    "spec",
    ["tensor_power(n=1000000)", "scatterbrain(tensor_power(n=1000000), sliding_window(1))"],
)
@pytest.mark.parametrize("masked", [False, True])
def test_rows_of_negative_logits_do_not_vanish(dtype, x, spec, masked, monkeypatch):
    # e^−x at the scale e^x of a bound by |x| would underflow, or at p(0) = 1 of what is not seen
    monkeypatch.setattr(Elementwise, "_factors_are_cheaper", lambda *_: False)
    Q, K = np.array([[-1.0], [1.0]], dtype), np.array([[x], [x - 1], [0]][: 2 + masked], dtype)
    V, mask = np.array([1.0, 2.0, 9.0][: 2 + masked], dtype), Mask([0, 0], [2 - masked, 2], len(K))
    seen = mask.visible()
    A = parse(spec).approximate(Q, K, mask=mask, rng=0)
    # (1 + x/n)^n = e^x up to x²/2n
    bound = x * x / 1e6 + 100 * np.finfo(dtype).eps * x
    np.testing.assert_allclose(A.attend(V), exact.attention(Q, K, V, mask=mask), rtol=bound)
    logits = Q @ K.T
    for log in (A.row_log(), A.row_log(logits=logits)):
        values = A.block(ALL, shift=log, logits=logits)
        assert 0.5 < values.max(axis=1).min() <= values.max() <= 1 + bound
        assert not values[~seen].any()
        found = (np.log(np.where(seen, values, 1)) + log[:, None])[seen]
        np.testing.assert_allclose(found, logits[seen], rtol=0, atol=bound)
    assert metrics.compare(A, Q, K)["kernel_relative_frobenius"] < bound
    W = np.ones((2, 1), dtype)
    if x < 80 or dtype == np.float64:
        want = np.where(seen, np.exp(logits.astype(float)), 0)
        np.testing.assert_allclose(A.T @ W, want.T @ W, rtol=bound)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1500.0, 700.0, -700.0, -1500.0, -1e30, -np.inf])
def test_rescale_is_right_where_the_scale_alone_is_not_representable(dtype, scale):
    info = np.finfo(dtype)
    values = np.array([0.0, info.smallest_subnormal, info.tiny, 1e-30, 1.0, 1e30, info.max], dtype)
    for value in values:
        true = mpmath.mpf(float(value)) * mpmath.exp(mpmath.mpf(scale))
        if true > float(info.max):
            with pytest.raises(OverflowError):
                rescale(np.array([value]), np.array([scale], dtype))
            continue
        got = rescale(np.array([value]), np.array([scale], dtype))
        # e^scale carries |scale| roundings of its argument's last place, three products one each
        error = abs(float(true)) * (abs(max(scale, -1e3)) + 8) * info.eps + 2 * float(
            info.smallest_subnormal
        )
        assert abs(float(got[0]) - float(true)) <= (0 if value == 0 else error)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_entry_beyond_the_range_is_found_where_the_factors_bound_the_entries(dtype, sign):
    log_max = math.log(np.finfo(dtype).max)
    left, right = np.full((40, 20), np.exp(log_max / 2), dtype), np.ones((40, 20), dtype)
    right[3] = sign * np.exp(log_max / 2 - 4)  # entries of 20 e^{log_max − 4}
    for shift, fits in ((0.0, True), (-1.5, False), (-2e3, False), (2e3, True)):
        A = Approximation(Factors(left, right, np.zeros(40, dtype)))
        if fits:
            assert np.isfinite(A.block(slice(2, 4), shift=shift)).all()
            continue
        with pytest.raises(OverflowError):
            A.block(slice(2, 4), shift=shift)
        assert np.isfinite(A.block(slice(2, 4), slice(0, 3), shift=-1.5)).all()


@pytest.mark.parametrize(("dtype", "size"), [(np.float64, 1e200), (np.float32, 1e30)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_product_beyond_the_range_is_an_error_at_any_shift(dtype, size, sign):
    left, right = np.full((8, 2), size, dtype), np.full((8, 2), [size, sign * size], dtype)
    A = Approximation.from_factors(left, right)
    for shift in (0.0, math.log(size), 3 * math.log(size)):
        with pytest.raises(OverflowError, match="not representable"):
            A.block(ALL, shift=shift)


# Cancellation on the support


def huge_on_the_support(dtype=np.float64, size=1e20, sign=1):
    """Return an estimate whose low-rank part is ``size`` on the support of its first row.

    Row 0: low = (size, ±size, 0.5, 0.25), support {0, 1} with logits 0.  Row 1: harmless.
    """
    right = np.zeros((4, 3), dtype)
    right[0, 0], right[1, 0], right[2, 1], right[3, 1] = size, sign * size, 0.5, 0.25
    right[:, 2] = 1.0
    left = np.array([[1, 1, 0], [0, 0, 2]], dtype)
    pattern = scipy.sparse.csr_array(
        (np.zeros(3, dtype), np.array([0, 1, 2]), np.array([0, 2, 3])), shape=(2, 4)
    )
    return Approximation(Factors(left, right, np.zeros(2, dtype)), Support(pattern))


@pytest.mark.parametrize(("dtype", "size"), [(np.float64, 1e20), (np.float32, 1e10)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_low_rank_part_that_is_huge_on_the_support_does_not_cancel(
    dtype, size, sign, monkeypatch
):
    A = huge_on_the_support(dtype, size, sign)
    summed = []
    block = Approximation.block

    def spy(self, rows, *args, **kwargs):
        summed.append(rows)
        return block(self, rows, *args, **kwargs)

    V = np.array([[1.0, -1.0], [2.0, 1.0], [3.0, 0.0], [4.0, 1.0]], dtype)
    true = np.array([[1, 1, 0.5, 0.25], [2, 2, 1, 2]])
    np.testing.assert_array_equal(A.to_dense(), true)
    monkeypatch.setattr(Approximation, "block", spy)
    got = A @ V
    assert [list(rows) for rows in summed] == [[0]]  # from its entries, and row 1 is not
    np.testing.assert_allclose(got, true @ V, rtol=4 * np.finfo(dtype).eps)
    want = true @ V / true.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(A.attend(V), want, rtol=8 * np.finfo(dtype).eps)
    W = np.array([[1.0, 2.0], [3.0, -1.0]], dtype)
    # two terms ≤ 12 a sum
    np.testing.assert_allclose(A.T @ W, true.T @ W, rtol=0, atol=50 * np.finfo(dtype).eps)


def test_the_error_of_the_correction_is_at_most_two_thirds_of_the_digits():
    # just below the size at which a row is summed from its entries
    for size in np.logspace(0, 9, 19):
        A = huge_on_the_support(size=size)
        got, want = A @ np.ones(4), A.to_dense() @ np.ones(4)
        eps = np.finfo(float).eps
        assert abs(got[0] - want[0]) <= 4 * eps ** (2 / 3) * want[0]


# Symmetries


@pytest.mark.parametrize(
    "name",
    [name for name, one in EXAMPLE.items() if not one.tags & {POSITIONAL, SPECTRAL}],
)
@very_few
@given(problem=problems(least=3))
def test_permuting_queries_permutes_rows(name, problem):
    Q, K, _, seed = problem
    order = np.random.default_rng(seed).permutation(len(Q))
    A, _ = made(name, Q, K, seed)
    B, _ = made(name, Q[order], K, seed)
    D, _ = dense(A)
    size = term_sizes(A)[0]
    if A.correction is not None and len(np.unique(truth(Q, K))) < truth(Q, K).size:
        return  # ties
    got = B.block(ALL, shift=A.row_log()[order])
    advice = "rows depend on their place: if that is meant, declare POSITIONAL"
    assert_within(got, D[order], 4 * roundings(A) * size[order], advice)


# From factors


def test_from_factors():
    A = Approximation.from_factors([[1.0], [2.0]], [[3.0]], [0.0, math.log(2)])
    np.testing.assert_allclose(A.to_dense(), [[3.0], [12.0]], rtol=4e-16)
    assert (A.rank, A.nnz, A.parameters, A.space) == (1, 0, 3, "kernel")
    assert Approximation.from_factors([[1.0]], [[1.0]], 2.0).row_log() == [2.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([[1.0]], [[1.0, 2.0]]), "same width"),
        (([1.0], [[1.0]]), "left must have 2 dimensions"),
        (([[np.nan]], [[1.0]]), "left must be finite"),
        (([[1.0]], [[np.inf]]), "right must be finite"),
        (([[1.0]], [[1.0]], np.nan), "row_log must be finite"),
        (([[1.0]], [[1.0]], [1.0, 2.0]), "broadcast"),
    ],
)
def test_from_factors_refuses(given, message):
    with pytest.raises(ValueError, match=message):
        Approximation.from_factors(*given)


def test_factors_and_products_that_do_not_fit_are_refused():
    A = Approximation.from_factors(np.ones((3, 1)), np.ones((2, 1)))
    for V in (np.ones(3), np.ones((3, 1))):
        with pytest.raises(ValueError, match="V must have one row per key"):
            A @ V
    with pytest.raises(ValueError, match="W must have one row per query"):
        A.T @ np.ones(2)
    with pytest.raises(TypeError, match="must hold real numbers"):
        A @ np.ones(2, complex)
    with pytest.raises(ValueError, match="space must be one of kernel, attention"):
        Approximation.from_factors([[1.0]], [[1.0]], space="logits")


# Whether a model can run it


@pytest.mark.parametrize("mask", [None, "causal", Mask([0, 0, 1, 2], [4, 2, 4, 3], 4)])
def test_an_estimate_knows_whether_a_model_can_run_its_method(mask):
    Q, K = np.random.default_rng(0).standard_normal((2, 4, 3))
    seen = set()
    for name in NAMES:
        method = small(name, 4, 4, 3)
        if mask is not None and method.refusal is not None:
            continue
        A = method.approximate(Q, K, mask=mask, rng=0)
        hidden = mask is not None and AUTOREGRESSIVE not in method.tags
        future = "reads tokens that the mask hides" * hidden
        why = "needs all logits" if ORACLE in method.tags else future
        assert (A.obstacle, A.runnable) == (why, why == "")
        assert repr(A).endswith(f"; not runnable: {why}>") == (why != "")
        assert f"no: {why}" in A._repr_html_() or A.runnable
        assert metrics.compare(A, Q, K)["runnable"] == A.runnable
        seen.add(why)
    assert len(seen) == (2 if mask is None else 3)


def test_an_estimate_that_no_method_made_does_not_know_whether_it_can_be_run():
    Q = np.random.default_rng(0).standard_normal((4, 3))
    by_hand = Approximation.from_factors(Q, Q)
    masked_later = parse("nystrom(rank=2)").approximate(Q, Q).seen("causal")
    for A in (by_hand, masked_later):
        assert A.runnable is A.obstacle is None
        assert "runnable" not in repr(A)
        assert "not known" in A._repr_html_()
        assert "runnable" not in metrics.compare(A, Q, Q)


class Finished(Zero):
    """Returns an estimate, not its parts."""

    def evaluate(self, q, k, mask, rng):
        return Approximation(super().evaluate(q, k, mask, rng).low, mask=mask)


@pytest.mark.parametrize(
    "method", [Finished(), Scatterbrain(Finished(), TopK(k=1)), Centered(Finished())], ids=str
)
def test_a_method_must_return_parts(method):
    with pytest.raises(TypeError, match=r"Finished\.evaluate must return Parts, .* got <Approx"):
        method.approximate([[1.0]], [[1.0]])


# Moments of what is not random


@pytest.mark.parametrize("name", DETERMINISTIC)
@very_few
@given(problem=problems(least=2, dtypes=[np.float64]))
def test_moments_without_chance_are_the_relative_error(name, problem):
    Q, K, _, seed = problem
    method = small(name, len(Q), len(K), Q.shape[1])
    true = naive.kernel(Q, K)
    for A in under(name, Q, K, seed, ["hiding"]):
        moments = method.moments(Q, K, mask=A.mask)
        if A.space == "attention":
            assert moments is None
            return
        size, row_log = term_sizes(A)
        bound = 2 * roundings(A) * (size * np.exp(row_log)[:, None] / true + 1)
        want = np.where(naive.seen(A.mask, *A.shape), A.to_dense() / true - 1, 0.0)
        assert_within(moments.relative_bias, want, bound)
        np.testing.assert_array_equal(moments.log_relative_variance, -np.inf)
