"""Bad and odd input, row by row, at every public entry point: `entries` lists them.

Where a row leaves a choice: no queries, no keys and no columns are errors, of a matrix too, but an
empty matrix has rank 0; integers and bool become float64, float16 becomes float32, longdouble is
rounded to float64 (and refused beyond it); nullable frames of pandas are objects and refused. A
query that sees nothing cannot be given: logits are finite, and a mask without a key is refused.
"""

import dataclasses
import decimal
import fractions
import hashlib
import math
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from each import each
from entries import (
    ARGUMENTS,
    BOTH,
    ENTRIES,
    INTEGERS,
    KINDS,
    LAYOUTS,
    MASKS,
    MATRICES,
    METHOD,
    NUMBERS,
    POINTS,
    RNGS,
    SHAPE,
    VALUES,
    D,
    X,
    call,
    clean,
    points,
    read_only,
    sound,
)  # fmt: skip
from hypothesis import example, given, strategies as st
from small import NAMES, SIZED, dense, small, under

from analysis import inputs
from analysis.advice import pitfalls
from analysis.costs import operations
from analysis.errors import metrics
from analysis.ranks import modular, rank
from approx import METHODS, Approximation, Mask, Parts, checks, parse, projections
from approx.estimate import exact, memory
from approx.low_rank import godec, robust_pca
from approx.polynomials import monomials
from approx.polynomials.remez import remez
from approx.textbook import attention, flash

every_method = each("name", NAMES)


def entries(*without):
    """Run a test for every entry point, except some that are tested elsewhere here."""
    chosen = [x for x in ENTRIES if not x[0].startswith(tuple(without))]
    return each(
        ("entry", "side"),
        [(entry, side) for _, entry, side in chosen],
        ids=[f"{name}, {side}" for name, _, side in chosen],
    )


every_entry = entries()
one_of_each_kind = each("name", KINDS)
ARGUMENT = {"matrix": "(D|matrix|left|omega|logits)", "Q": "(Q|q)", "K": "K", "V": "(V|W)"}


def approximate(Q, K, name="positive"):
    return small(name, *SHAPE).approximate(Q, K, rng=0)


def assert_same_bits(A, B):
    """Compare what two approximations say about each entry, to the last bit."""
    assert A.dtype == B.dtype
    np.testing.assert_array_equal(A.row_log(), B.row_log())
    np.testing.assert_array_equal(dense(A)[0], dense(B)[0])
    V = np.arange(2.0 * A.shape[1]).reshape(-1, 2)
    np.testing.assert_array_equal(A.attend(V), B.attend(V))


def numbers(result):
    """Yield every array of a result."""
    if isinstance(result, Approximation):
        yield from (result.row_log(), dense(result)[0])
    elif isinstance(result, projections.Fixed):
        yield from (result.omega, result.weights)
    elif dataclasses.is_dataclass(result):  # a decomposition
        yield from (result.left, result.right, result.sparse.toarray())
    elif isinstance(result, dict):
        yield np.array(list(result.values()))
    elif isinstance(result, tuple):
        for x in result:
            yield from numbers(x)
    elif result is not None:
        yield np.asarray(result)


def bits(result):
    return b"".join(x.tobytes() for x in numbers(result))


# Values


def with_two(bad):
    def change(x):
        x[1, 1] = x[2, 0] = bad
        return x

    return change


FINITE = ValueError, r"must be finite, got 2 .* index \(1, 1\)"
REAL = TypeError, "(must hold real numbers, got|is a masked array: fill it first)"
BAD = {
    **{str(bad): (with_two(bad), *FINITE) for bad in (np.nan, np.inf, -np.inf)},
    "complex": (lambda x: x.astype(complex), *REAL),
    "object": (lambda x: x.astype(object), *REAL),
    "str": (lambda x: x.astype(str), *REAL),
    "bytes": (lambda x: x.astype("S9"), *REAL),
    "datetime": (lambda x: x.astype("M8[s]"), *REAL),
    "fields": (lambda x: np.zeros(x.shape, [("a", float)]), *REAL),
    "masked": (lambda x: np.ma.masked_array(x, x > 0), *REAL),
    "nullable frame": (lambda x: pd.DataFrame(x).astype("Float64"), *REAL),
}


@every_entry
@each("bad", BAD)
def test_an_array_that_no_entry_takes(entry, side, bad):
    change, error, rule = BAD[bad]
    _, found = clean(lambda: call(entry, side, change(sound(side))))
    assert isinstance(found, error), f"{found!r} is no {error.__name__}"
    assert re.search(f"{ARGUMENT[side]}.* {rule}", str(found)), found


@every_entry
@each("kind", [scipy.sparse.csr_array, scipy.sparse.coo_matrix])
def test_sparse_matrices_come_with_advice(entry, side, kind):
    _, error = clean(lambda: call(entry, side, kind(sound(side))))
    assert isinstance(error, TypeError | ValueError)  # ValueError: scipy, of another shape
    assert re.search("toarray|LinearOperator|dimension", str(error))


WITHOUT_VALUES = [
    VALUES[name]
    for name in ("metrics.compare", "certificates.row_bounds", "sampling_intervals.upper_bounds")
]


@every_entry
def test_what_is_no_array(entry, side):
    for value in (None, "abc", {"a": 1}, [[1.0], [1.0, 2.0]], object()):
        if value is None and entry in WITHOUT_VALUES:
            continue
        _, error = clean(lambda: call(entry, side, value))  # noqa: B023
        assert isinstance(error, TypeError | ValueError), value


@each(("dtype", "most"), [(np.float64, 1e155), (np.float32, 1e20)])
@each("sign", [1, -1])
def test_values_whose_sums_overflow_are_refused(dtype, most, sign):
    Q, K = points(dtype)
    V = np.array([0, 0, sign * most, 0])
    with pytest.raises(ValueError, match="V must be at most"):
        approximate(Q, K).attend(V)
    with pytest.raises(ValueError, match="V must be at most"):
        exact.attention(Q, K, V.astype(dtype))


def test_an_exponential_beyond_the_dtype():
    with pytest.raises(OverflowError, match=r"exp.* is not representable in float64: the largest"):
        exact.kernel([[30.0]], [[30.0]])
    with pytest.raises(OverflowError, match="not representable in float64"):
        parse("truncated_svd(rank=1)").approximate([[30.0]], [[30.0]]).to_dense()


@each("entry", POINTS.values(), ids=POINTS)
@each("dtype", [np.float64, np.float32])
def test_logits_without_a_digit(entry, dtype):
    Q, K = points(dtype)
    with pytest.raises(ValueError, match=r"\|q\| \|k\| must be < 4.5e\+15|< 8.4e\+06 in float32"):
        entry(Q / dtype(np.finfo(dtype).eps), 10 * K)


@every_method
def test_logits_of_1e13_are_finite_or_refused(name):
    Q, K = (math.sqrt(1e13) * x for x in points())
    if name == "poisson()":
        with pytest.raises(ValueError, match=r"need λ = \|q_c k_c\| <= 1e\+10, got"):
            approximate(Q, K, name)
        return
    A = approximate(Q, K, name)
    assert np.isfinite(A.row_log()).all()
    assert not np.isnan(list(metrics.compare(A, Q, K).values())).any()


# Shapes


@each(
    ("Q", "K", "message"),
    [
        (np.ones((2, 5, 3)), np.ones((4, 3)), r"[Qq] must have (1 or )?2 dim.* \(2, 5, 3\)"),
        (np.ones((5, 3)), np.ones(3), r"K must have 2 dimensions, got shape \(3,\)"),
        (np.ones((5, 3)), 1.0, r"K must have 2 dimensions, got shape \(\)"),
        (np.ones((5, 3)), np.ones((3, 4)), r"same width d, got \(5, 3\) and \(3, 4\)"),
        (np.ones((3, 5)), np.ones((4, 3)), r"same width d, got \(3, 5\) and \(4, 3\)"),
        (np.ones((0, 3)), np.ones((4, 3)), "must not be empty"),
        (np.ones((5, 3)), np.ones((0, 3)), "must not be empty"),
        (np.ones((5, 0)), np.ones((4, 0)), "must not be empty"),
    ],
    ids=["3-D", "1-D", "0-D", "other widths", "swapped axes", "n = 0", "l = 0", "d = 0"],
)
@each("entry", POINTS.values(), ids=POINTS)
def test_shapes_of_points(entry, Q, K, message):
    with pytest.raises(ValueError, match=message):
        entry(Q, K)


@each("shape", [(), (3,), (2, 5, 3)])
@each("entry", MATRICES.values(), ids=MATRICES)
def test_shapes_of_matrices(entry, shape):
    with pytest.raises(ValueError, match="must have 2 dimensions, got shape"):
        entry(np.ones(shape))


@each("shape", [(0, 3), (3, 0)])
@each("name", MATRICES)
def test_matrices_without_entries(name, shape):
    if name == "Approximation.from_factors" or (name, shape) == ("projections.Fixed", (3, 0)):
        return  # no rows, no columns and rank 0 are factors of an empty, or of the zero, matrix
    found, error = clean(lambda: MATRICES[name](np.ones(shape)))
    if name.startswith("rank.") and error is None:
        assert set(np.ravel(list(found.values()) if isinstance(found, dict) else found)) <= {0}
        return
    assert isinstance(error, ValueError), error


@each("shape", [(5,), (5, 2), (4, 2, 2), (0, 2)])
@each("entry", [*VALUES.values(), approximate(*points()).scaled_matmat])
def test_shapes_of_values(entry, shape):
    with pytest.raises(ValueError, match=r"one row per (key|query)|dimension|^V must be \(4, c\)"):
        entry(np.ones(shape))


def test_causal_needs_as_many_keys_as_queries(monkeypatch):
    Q, K = points()
    V = np.ones((4, 2))
    method = small("scatterbrain", *SHAPE)
    A = method.approximate(Q, K)

    def made(*_, **__):
        raise AssertionError("a stripe is made before the refusal")

    for place, name in ((Approximation, "block"), (exact, "stripes"), (np, "matmul")):
        monkeypatch.setattr(place, name, made)
    for use in (
        lambda: A.seen("causal"),
        lambda: Approximation.from_factors(Q, K, mask="causal"),
        lambda: method.approximate(Q, K, mask="causal"),
        lambda: method.moments(Q, K, mask="causal"),
        lambda: method.covariance(Q, K, row=0, mask="causal"),
        lambda: method.price(n=5, l=4, d=3, mask="causal"),
        lambda: method.within(9.0, n=5, l=4, d=3, mask="causal"),
        lambda: exact.attention(Q, K, V, mask="causal"),
        lambda: exact.log_row_sums(Q, K, mask="causal"),
        lambda: metrics.compare(A, Q, K, mask="causal"),
        lambda: metrics.compare_all([A], Q, K, spectral=True, mask="causal"),
        lambda: inputs.Head("x", Q, K, mask="causal"),
    ):
        with pytest.raises(ValueError, match=r"causal .* so n must be <= l, got 5 and 4"):
            use()
    for use in (
        lambda: attention.dot_product_attention(Q, K, V, causal=True),
        lambda: attention.linear_attention(Q, K, V, causal=True),
        lambda: attention.linear_weights(Q, K, causal=True),
        lambda: flash.local_quadratic(Q, K, 2, causal=True),
        lambda: flash.global_linear(Q, K, 2, causal=True),
    ):
        with pytest.raises(ValueError, match="causal needs as many keys as queries, got n=5, l=4"):
            use()


def all_at_once(x):
    """Return an array that is strided, reversed, big-endian and read-only."""
    x = LAYOUTS["strided"](LAYOUTS["big-endian"](x[::-1]))[::-1]
    x.flags.writeable = False
    return x


@entries("Method.")  # for methods, see test_any_layout_reaches_every_method_as_one
@each("layout", [all_at_once, LAYOUTS["np.matrix"], LAYOUTS["DataFrame"], LAYOUTS["list"]])
def test_layouts_that_give_the_same_bits(entry, side, layout):
    x = sound(side)
    value = layout(x)
    assert bits(call(entry, side, value)) == bits(call(entry, side, x))
    np.testing.assert_array_equal(np.asarray(value), x)


@entries("Method.moments", "Method.covariance")
@each("dtype", [np.int8, bool, np.longdouble])
def test_numbers_that_become_float64(entry, side, dtype):
    x = np.round(2 * np.abs(sound(side))).astype(dtype)  # int8 would wrap, bool adds to bool
    assert bits(call(entry, side, x)) == bits(call(entry, side, x.astype(np.float64)))


@every_entry
def test_float16_becomes_float32(entry, side):
    x = sound(side).astype(np.float16)
    assert bits(call(entry, side, x)) == bits(call(entry, side, x.astype(np.float32)))


@entries("Method.")  # for methods, see test_inputs_are_never_modified
def test_inputs_are_not_modified(entry, side):
    x = sound(side)
    before = digest(x)
    call(entry, side, x)
    assert digest(x) == before


@every_entry
def test_extreme_values_are_finite_or_refused(entry, side):
    for value in (5e-324, -0.0, 1e150, 1e200, 1e308):
        x = np.full_like(sound(side), value)
        found, error = clean(lambda: call(entry, side, x))  # noqa: B023
        if error is None:  # bias and variance may be a documented inf
            bad = np.isnan if side != "V" else lambda x: ~np.isfinite(x)
            assert not any(bad(x).any() for x in numbers(found)), value


def test_integer_logits_do_not_wrap():
    x = np.full((1, 2), 100, np.int8)
    assert exact.logits(x, x)[0, 0] == 20000
    big = np.array([[60000]], np.int32)
    assert exact.logits(big, big)[0, 0] == 3.6e9


@pytest.mark.skipif(
    np.finfo(np.longdouble).max == np.finfo(float).max, reason="longdouble is float64 here"
)
def test_longdouble_beyond_float64_is_refused():
    with pytest.raises(ValueError, match="Q must be finite"):
        approximate(np.full((5, 3), np.longdouble("1e4000")), points()[1])


@one_of_each_kind
def test_one_side_of_float64_is_enough_for_float64(name):
    Q, K = points(np.float32)
    assert approximate(Q, K, name).dtype == np.float32
    assert approximate(Q.astype(float), K, name).dtype == np.float64
    assert approximate(Q, K.astype(float), name).dtype == np.float64


# Layouts


@each("layout", LAYOUTS)
@each("dtype", [np.float64, np.float32])
def test_any_layout_reaches_every_method_as_one(monkeypatch, layout, dtype):
    """All that is left of it is whether the array may be written to."""
    if layout == "list" and dtype == np.float32:
        return  # which no list holds
    Q, K = points(dtype)
    seen = []
    with monkeypatch.context() as patch:
        made = Parts.from_factors([[1.0]], [[1.0]])
        patch.setattr(type(METHOD), "evaluate", lambda _, q, k, *rest: seen.append((q, k)) or made)
        METHOD.approximate(*map(LAYOUTS[layout], (Q, K)), rng=0)
    for x, plain in zip(seen[0], (Q, K), strict=True):
        assert type(x) is np.ndarray
        assert x.dtype == dtype
        assert x.dtype.isnative
        assert x.flags.c_contiguous
        assert x.tobytes() == plain.tobytes()


@each("name", METHODS)  # kernels are compiled once more for such arrays
def test_same_bits_for_arrays_that_are_read_only(name):
    Q, K = points()
    assert_same_bits(approximate(read_only(Q), read_only(K), name), approximate(Q, K, name))


@every_method
def test_attention_has_the_dtype_of_the_estimate(name):
    Q, K = points(np.float32)
    V = np.random.default_rng(0).integers(-3, 4, (4, 3))  # each of them a float32
    for A in under(name, Q[:4], K):
        want = A.attend(V.astype(np.float32))
        for values in (V, V.astype(np.float64)):
            y = A.attend(values)
            assert y.dtype == np.float32
            assert y.flags.c_contiguous
            np.testing.assert_array_equal(y, want)


def digest(*arrays):
    return hashlib.sha256(b"".join(x.tobytes() for x in arrays)).hexdigest()


@every_method
def test_inputs_are_never_modified(name):
    Q, K = points()
    K = np.concatenate([K, K[:1]])  # n = l, so causal too
    V, W = np.random.default_rng(1).standard_normal((2, 5, 2))
    logits, shift = Q @ K.T, np.zeros(5)
    before = digest(Q, K, V, W, logits, shift)
    for A in under(name, Q, K):
        method = small(name, *A.shape, Q.shape[1])
        A.to_dense(), A.factors(), A.scaled_factors(), method.moments(Q, K, mask=A.mask)
        method.covariance(Q, K, row=0, mask=A.mask)
        A.attend(V), A @ V, A.T @ W, A.matvec(V[:, 0]), A.rmatvec(W[:, 0])
        rows = A.row_log(logits=logits)
        A.block(slice(None), shift=shift, logits=logits)
        A.block(slice(None), shift=rows, logits=logits)
    exact.attention(Q, K, V, mask="causal"), exact.kernel(Q, K), exact.log_row_sums(Q, K)
    assert digest(Q, K, V, W, logits, shift) == before


@every_method
def test_an_approximation_is_not_changed_by_its_uses(name):
    Q, K = points()
    A = approximate(Q, K, name)
    first = A.to_dense()
    A @ np.ones(4), A.T @ np.ones(5), A.attend(np.ones(4)), A.factors()
    values = A.block(slice(None), shift=A.row_log())
    values[:] = 7
    left, right = A.factors()
    left[:] = 7
    np.testing.assert_array_equal(A.to_dense(), first)
    assert right is not None


# Extreme values


@every_method
@each("dtype", [np.float64, np.float32])
def test_subnormal_inputs_and_negative_zero_act_as_zero(name, dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    zeros = np.zeros((5, 3), dtype), np.zeros((4, 3), dtype)
    want = dense(approximate(*zeros, name))[0]
    for value in (-0.0, tiny):
        Q, K = (np.full_like(x, value) for x in zeros)
        terms = 64  # e^y with |y| < 1e-38 is 1 to the last bit; sums of at most 8 terms, each ≤ 1
        if value > 0 and name in ("relu()", "cosformer()"):  # homogeneous: as any number > 0
            want = dense(approximate(*(x + 1 for x in zeros), name))[0]
            terms += 4 * 745  # its log, of size 745, is rounded, once more beside another one
        got = dense(approximate(Q, K, name))[0]
        np.testing.assert_allclose(got, want, rtol=0, atol=terms * np.finfo(dtype).eps)
    moments = small(name, *SHAPE).moments(Q, K)
    assert moments is None or not np.isnan(moments).any()


@every_method
def test_squares_beyond_the_dtype_are_refused(name):
    for dtype, big in ((np.float64, 1e160), (np.float64, 1e308), (np.float32, 1e20)):
        for sizes in ((big, 1 / big), (1 / big, big)):
            # the logits, big · 1/big, would be representable; |q|² is not
            Q, K = (np.full_like(x, size) for x, size in zip(points(dtype), sizes))
            with pytest.raises(ValueError, match="must be representable in float"):
                approximate(Q, K, name)


@each("dtype", [np.float32, np.float64])
def test_the_largest_entry_decides_whether_squares_are_representable(dtype):
    edge = math.sqrt(float(np.finfo(dtype).max) / 4 / 3)  # d·max² ≤ max/4
    K = np.full((2, 3), 1 / edge, dtype)
    for row in ([1, 0, 0], [1, 1, 1]):  # |q|² three times the former's
        found, _ = checks.queries_keys(np.array([row], dtype) * dtype(0.999 * edge), K)
        assert found.shape == (1, 3)
        with pytest.raises(ValueError, match="must be representable in float"):
            checks.queries_keys(np.array([row], dtype) * dtype(1.001 * edge), K)


def test_a_mixed_pair_is_measured_in_the_wider_precision():
    # |q|² overflows in float32, in which nothing is computed; |q| |k| = 3
    Q, K = np.full((2, 3), 1e20, np.float32), np.full((2, 3), 1e-20)
    for pair in ((Q, K), (K, Q)):
        assert [x.dtype for x in checks.queries_keys(*pair)] == [np.float64] * 2


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(NAMES), st.booleans())
@example(-1e18, "dense_exponential", False)  # squares that cancel
@example(1e78, "generalized_exponential", False)  # a square of a square
@example(1e150, "dense_exponential", False)
@example(1e10, "positive", True)  # |k|²/2 has an ulp of 10⁴: no exponent may hold its rounding
@example(1e78, "hyperbolic", True)
@example(38745321.0, "coreset()", True)  # keys by keys are beyond what queries by keys may be
@example(1e70, "coreset()", True)
@example(1e150, "scatterbrain", True)
def test_any_finite_float_gives_a_finite_block_or_a_refusal(x, name, keys):
    # logits of size 3 whatever the norms
    Q, K = np.full((5, 3), x), np.full((4, 3), 1 / max(1.0, abs(x)))
    if keys:
        Q, K = K, Q
    if x * x * 3 > np.finfo(float).max / 4:
        with pytest.raises(ValueError, match="must be representable"):
            approximate(Q, K, name)
        return
    A = approximate(Q, K, name)
    values, row_log = dense(A)
    assert np.isfinite(values).all()
    assert np.isfinite(row_log).all()
    assert np.isfinite(A.attend(np.ones(len(K)))).all()


# Sizes


def sized(name, value):
    return METHODS[name](**{SIZED[name]: value})


@each("name", SIZED)
def test_a_size_that_is_no_integer(name):
    for value in (3.0, True, False, np.True_, "3", b"3", [3], np.array([3, 4])):
        with pytest.raises(TypeError, match=f"{SIZED[name]} must be an integer, got"):
            sized(name, value)


@each("name", SIZED)
@each("value", [-1, -(10**30), 0])
def test_a_size_below_the_least(name, value):
    if SIZED[name] == "degree" and value == 0:
        assert sized(name, 0).degree == 0
        return
    with pytest.raises(ValueError, match=rf"{SIZED[name]} must be >= [01], got -?\d+"):
        sized(name, value)


@each("name", SIZED)
@each("integer", [np.int8, np.uint8, np.int64, np.array])
def test_numpy_integers_become_integers(name, integer):
    method, plain = sized(name, integer(24)), sized(name, 24)  # a multiple of every step
    assert type(getattr(method, SIZED[name])) is int
    assert method == plain
    assert str(method) == str(plain)
    # as an int8 it would wrap in the arithmetic of the price
    assert method.price(n=300, l=300, d=3) == plain.price(n=300, l=300, d=3)


@each(
    ("spec", "message"),
    [
        ("truncated_svd(rank=5)", r"truncated_svd\(rank=5\): rank must be <= 4, got 5"),
        ("logit_svd(rank=4)", r"logit_svd\(rank=4\): rank must be <= 3, got 4"),
        ("projected_top_k(k=2, r=4)", r"projected_top_k\(k=2, r=4\): r must be <= 3, got 4"),
        (f"nystrom(rank={10**24}, block=2)", "rank must be <= 2147483647, got"),
    ],
)
def test_a_size_beyond_the_matrix(spec, message):
    method = parse(spec)
    with pytest.raises(ValueError, match=rf"^a head: .*{message}"):
        inputs.Head("a head", *points()).approximate(method)
    with pytest.raises(ValueError, match=message):
        method.approximate(*points())


def test_waves_come_in_pairs():
    with pytest.raises(ValueError, match="m must be a multiple of 2, got 3"):
        parse("trigonometric(m=3)")


@each("share", [1, 2])
def test_a_share_outside_of_0_1(share):
    with pytest.raises(ValueError, match="share must be"):
        METHODS["scatterbrain"](share=share)


@each(
    ("spec", "message"),
    [
        ("scatterbrain(sparse=positive(m=2))", "sparse must be a support"),
        ("scatterbrain(low_rank=top_k(k=2), sparse=top_k(k=2))", "purely low-rank"),
        (
            "scatterbrain(low_rank=truncated_svd(rank=1, space='attention'), sparse=top_k(k=2))",
            "purely low-rank",
        ),
    ],
)
def test_parts_that_do_not_go_together(spec, message):
    with pytest.raises(ValueError, match=message):
        parse(spec).approximate(*points())


# Numbers

ZERO = {"spread", "delta", "delta of stable", "k of godec", "bound"}
NO_NUMBERS = [None, 1j, np.complex128(2), [1.0], np.ones((5, 5)), "3", b"3", True, np.True_,
              math.nan, math.inf, -math.inf, -1, 10**400, -(10**5000), decimal.Decimal("nan"),
              "x" * 10_000, "a\nb", pd.NA, object()]  # fmt: skip


@each("name", NUMBERS)
def test_what_is_no_positive_number(name):
    for value in NO_NUMBERS + ([] if name in ZERO else [0, -0.0]):
        if name == "gap" and isinstance(value, float) and value == math.inf:
            continue  # take what rho gives
        _, error = clean(lambda: NUMBERS[name](value))  # noqa: B023
        if value is None and isinstance(error, ZeroDivisionError):
            continue  # the default
        assert isinstance(error, TypeError | ValueError), f"{value!r}: {error!r}"
        assert re.search("must be .*, got", str(error)), error


@each("name", sorted(NUMBERS.keys() - {"rho", "share", "k of godec"}))
@each("value", [np.float32(0.5), fractions.Fraction(1, 2), np.array(0.5)])
def test_what_is_a_positive_number(name, value):
    NUMBERS[name](value)


@each("t", [5e-324, 1e-310])
def test_a_temperature_so_small_that_logits_overflow(t):
    with pytest.raises(ValueError, match="representable"):
        dataclasses.replace(X.at_temperature(t), scaling=1e200).Q.any()
    x = X.at_temperature(1e-300)
    with pytest.raises(ValueError, match=r"has no digit|representable"):
        METHOD.approximate(x.Q, x.K)


# values, and what is said of them
NO_OBJECTS = "positive(m=2)", type(METHOD), None, 3
NONE_OF = [
    ("integer", (3.0, True, np.True_, "3", "x" * 1000, [3], np.ones((5, 5)), 1j, math.nan),
     TypeError, "must be an integer, got"),
    ("rng", (-1, 1.5, "0", [1], True, np.random, 2**200), (TypeError, ValueError), "^rng must be "),
    ("flag", ("False", 0, 1.0, None, [True]), TypeError, "must be True or False, got"),
    ("mask", (True, 0, 1.0, np.ones((5, 4), bool), [[0, 1]], {"causal"}, b"causal", object()),
     TypeError, '^mask must be None, "causal" or a Mask, got'),
    ("mask", ("Causal", "full", "x" * 10_000, "a\nb"),
     ValueError, '^mask must be None, "causal" or a Mask, got'),
    ("sink", (math.nan, math.inf, "3", None, 1j, True, [1.0, 2.0]), (TypeError, ValueError),
     "sink must be "),
    ("method", NO_OBJECTS, TypeError, "must be a method, got"),
    ("head", NO_OBJECTS, TypeError, r"must be a Head( or Heads)?, got"),
    ("estimate", NO_OBJECTS, TypeError, "must be an Approximation, got"),
]  # fmt: skip


@each(
    ("use", "values", "error", "rule"),
    [(use, *row) for kind, *row in NONE_OF for use in ARGUMENTS[kind].values()],
    ids=[f"{kind}: {name}" for kind, *_ in NONE_OF for name in ARGUMENTS[kind]],
)
def test_what_is_none_of_its_kind(use, values, error, rule):
    for value in values:
        with pytest.raises(error, match=rule):
            raise clean(lambda: use(value))[1]  # noqa: B023


@each("make", RNGS.values(), ids=RNGS)
def test_any_integer_below_2_128_is_a_seed(make):
    make(2**100)
    make(np.int8(3))


@each("use", MASKS.values(), ids=MASKS)
def test_a_mask_of_another_shape(use):
    for n, l in ((4, 4), (5, 5), (1, 4), (4, 5)):
        with pytest.raises(ValueError, match=f"^the mask is for {n} queries and {l} keys, but th"):
            use(Mask(np.zeros(n, int), np.ones(n, int), l))


@each("name", INTEGERS)
def test_an_integer_out_of_range(name):
    use, least = INTEGERS[name]
    for value in (least - 1, -(10**5000), 10**5000):
        with pytest.raises(ValueError, match=r"must be (>=|<=) (\d|an integer of)"):
            raise clean(lambda: use(value))[1]  # noqa: B023


@each("use", [godec.godec, lambda D, r, _: robust_pca.acc_alt_proj(D, r)])
def test_a_rank_above_the_least_side(use):
    with pytest.raises(ValueError, match="rank must be <= 5, got 6"):
        use(D, 6, 1)


def test_sizes_in_int8_do_not_wrap():
    a, b = np.int8(100), 100
    assert operations.exact_attention(a, a).total == 2 * b**3
    for template in [*map(parse, METHODS), *(small(name, *SHAPE) for name in NAMES)]:
        assert template.within(a, n=a, l=a, d=a) == template.within(b, n=b, l=b, d=b)


ODD = {
    "text": (np.array([["a"]]), TypeError, "real numbers"),
    "complex": (np.array([[1j]]), TypeError, "real numbers"),
    "ragged": ([[1.0], [1.0, 2.0]], ValueError, "rows of one length"),
    "masked": (np.ma.masked_array([[1.0]], True), TypeError, "masked"),
    "sparse": (scipy.sparse.csr_array(np.eye(2)), TypeError, "toarray"),
    "nothing": (None, TypeError, "real numbers"),
}


@each("use", [attention.jacobian_norm, attention.simple_normalisation])
@each("bad", [0.5, [], np.empty((0, 3)), np.empty((3, 0))])
def test_a_function_of_rows_has_some(use, bad):
    with pytest.raises(ValueError, match=r"^(weights|scores) must have rows that are not empty"):
        use(bad)


@each("use", [attention.softmax, flash.swish])
@each(("value", "error", "rule"), ODD.values(), ids=ODD)
def test_what_is_no_array_of_a_function_of_entries(use, value, error, rule):
    with pytest.raises(error, match=f"^(logits|x) .*{rule}"):
        use(value)


def test_values_of_functions_of_entries():
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="x must be finite, got 1 NaN or inf"):
            flash.swish([1.0, bad])
    unseen = [-np.inf, -np.inf]
    for bad in ([[0.0, np.nan]], [[0.0, np.inf]], [[0.0, 0.0], unseen], np.ones((2, 0)), 1.0):
        with pytest.raises(
            ValueError, match="logits must have a finite maximum along the last axis"
        ):
            attention.softmax(bad)
    np.testing.assert_array_equal(attention.softmax([0, -np.inf]), [1, 0])


@each(
    ("value", "error", "rule"),
    [
        ([[0.5]], TypeError, "must hold integers of 64 bits, got dtype float64"),
        ([[2**70]], TypeError, "must hold integers of 64 bits, got dtype object"),
        ([[1], [1, 2]], ValueError, "must have rows of one length"),
        ([1, 2], ValueError, r"must have 2 dimensions, got shape \(2,\)"),
        ([[1, 2]], ValueError, r"Q and K must have the same width d, got \(1, [12]\) and"),
    ],
)
def test_what_is_no_matrix_of_residues(value, error, rule):
    for Q, K in ((value, [[1]]), ([[1]], value)):
        with pytest.raises(error, match=rule):
            modular.taylor_kernel(2, Q, K)
    above = np.array([[modular.PRIME * 2**20 + 3]])  # 3: as it is its square would wrap
    np.testing.assert_array_equal(modular.taylor_kernel(1, above, above), [[10]])


@each(
    ("s", "message"),
    [
        ([1.0, 2.0], "s must be descending and >= 0"),
        ([1.0, -1.0], "s must be descending and >= 0"),
        ([1.0, np.nan], "s must be finite"),
        (np.eye(2), "s must have 1 dimensions"),
        (np.ones(4), r"shape must be \(n, l\) with n, l >= 4 singular values, got \(3, 9\)"),
    ],
)
def test_what_are_no_singular_values(s, message):
    with pytest.raises(ValueError, match=message):
        rank.measures(s, (3, 9))


def test_names_and_sizes_of_helpers():
    with pytest.raises(TypeError, match=r"must be a positive\(...\), got"):
        pitfalls.with_eps("positive(m=2)", *points(), eps=0.1)
    for weight in ("scaled", None, ["relative"]):
        with pytest.raises(ValueError, match="weight must be one of relative, absolute"):
            remez(2, 1.0, weight)
    for normaliser in ("", 0, "previous"):
        with pytest.raises(ValueError, match="normaliser must be one of length, chunk"):
            flash.normalisers(4, 2, normaliser=normaliser)
    for shape in (3, [3, 9], "ab"):
        with pytest.raises(TypeError, match=r"shape must be \(n, l\), got"):
            rank.measures([1.0], shape)
    memory.set_limit(2**20)
    for use in (
        lambda: monomials.layout(64, 10**6),
        lambda: flash.normalisers(2**50, 1),
        lambda: remez(10**6, 1.0),
    ):
        with pytest.raises(memory.ResourceLimitError, match=r"lower \w+"):
            use()


@each("value", [0.5, "1", True, [1], np.nan])
def test_a_memory_limit_that_is_no_integer(value):
    with pytest.raises(TypeError, match="the memory limit must be an integer, got"):
        memory.set_limit(value)


# Objects and places


@each("spec", ["positive(m=2)", BOTH, "taylor(degree=2)", "sliding_window(1)"])
def test_places_out_of_range_never_reach_a_compiled_loop(spec):
    A = parse(spec).approximate(*points(), rng=0)
    whole = A.block(slice(None))
    for rows, cols in (([-1, 0], [3, -4]), (np.arange(5) > 2, np.array([], int))):
        found = A.block(rows, cols)
        np.testing.assert_allclose(found, whole[rows][:, cols], rtol=1e-14)  # another sum
    for rows in ([5], [-6], [10**12], 1, [[0]], [True]):
        with pytest.raises((TypeError, ValueError), match=r"^rows must"):
            A.block(rows)
    for cols in ([4], ["0"], [1.0], None, slice("a")):
        with pytest.raises((TypeError, ValueError), match=r"^cols must"):
            A.block(slice(None), cols)
    for wrong in (
        *({"shift": x} for x in ([1.0, 2.0], np.nan, "x", 1j)),
        *({"logits": x} for x in (np.ones((2, 2)), 3)),
        *({"out": x} for x in (np.ones((5, 3)), [[0.0] * 4] * 5)),
        *({"out": np.ones((5, 4), kind)} for kind in (np.float32, int)),
    ):
        with pytest.raises((TypeError, ValueError), match=r"(shift|logits|out) must"):
            A.block(slice(None), **wrong)


@each(
    ("use", "lower"),
    [
        (lambda n: inputs.gaussian(n, 3, rng=0), "n or d"),
        (lambda n: inputs.clustered(3, n, rng=0), "n or d"),
        (lambda n: rank.estimates(D, probes=n, rng=0), "probes or steps"),
        (lambda n: METHODS["leverage"](m=n).approximate(*points()), "m, n or l"),
        (lambda n: METHODS["lsh"](hashes=n).approximate(*points()), "hashes, n or l"),
    ],
)
@each("n", [10**9, 2**63, 10**30])
def test_sizes_that_would_not_fit_are_refused_before_they_are_drawn(use, lower, n):
    memory.set_limit(2**24)
    with pytest.raises(memory.ResourceLimitError, match=f"lower {lower}"):
        use(n)


@each(
    "spec",
    ["product_sketch(m=2, degree=1025)", "squared_sketch(inner=2, degree=2048)",
     "lsh(hashes=1, rounds=65537)", "smyrf(size=1, rounds=10000000000)"],
)  # fmt: skip
def test_loops_that_would_not_end(spec):
    with pytest.raises(ValueError, match="steps must be <= 4096, got 4097"):
        rank.estimates(D, steps=4097, rng=0)
    with pytest.raises(ValueError, match="must be <= "):
        parse(spec)


# Threads

THREADS = """
import threading, numpy as np
from analysis.errors import metrics
from analysis import moments
from approx import parse
x = np.random.default_rng(0).standard_normal((2, 64, 8)) / 3
SPECS = ("positive(m=16)", "taylor(degree=2)", "scatterbrain(positive(m=8), top_k(k=4))",
         "lsh(hashes=2)", "tensor_sketch(m=8)", "poisson(m=8)", "hyperbolic(m=8)",
         "nystrom(rank=4)")

def work(spec):
    method = parse(spec)
    A = method.approximate(*x, rng=0)
    found = moments.monte_carlo(method, *x, draws=3, rng=0)
    errors = metrics.compare(A, *x, x[0])
    return A.block(slice(None), shift=A.row_log()).tobytes(), str(errors), found.mean.tobytes()

together, alone, barrier = {}, {}, threading.Barrier(8)
def run(spec):
    barrier.wait()
    together[spec] = work(spec)
threads = [threading.Thread(target=run, args=(spec,)) for spec in SPECS]
[t.start() for t in threads], [t.join(120) for t in threads]
assert not any(t.is_alive() for t in threads)
alone = {spec: work(spec) for spec in SPECS}
print(sum(together[spec] == alone[spec] for spec in SPECS))
"""


def test_threads_at_once_give_the_bits_of_one():
    """In a process of their own: a compiled loop that is not safe would abort it."""
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=180, check=False
    )
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr[-2000:]
