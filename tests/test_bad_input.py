"""Bad and odd input at every public entry point: `entries` lists them by the kinds of arguments.

Where there is a choice: no queries, no keys and no columns are errors, of a matrix too, but an
empty matrix has rank 0; integers and bool become float64, float16 becomes float32, longdouble is
rounded to float64 (and refused beyond it); nullable frames of pandas are objects and refused. A
query that sees nothing cannot be given: logits are finite, and a mask without a key is refused.
"""

import dataclasses
import decimal
import fractions
import hashlib
import itertools
import math
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from each import each
from entries import ARGUMENTS, ARRAYS, BOTH, KINDS, METHOD, SHAPE, D, X, clean, points
from hypothesis import example, given, strategies as st
from refusals import refuses
from small import NAMES, SIZED, dense, small, under

from analysis import inputs, moments
from analysis.advice import diagnose, pitfalls
from analysis.errors import metrics
from analysis.ranks import rank
from approx import METHODS, Approximation, Mask, checks, parse, projections
from approx.estimate import exact, memory
from approx.low_rank import godec, robust_pca
from approx.polynomials import monomials
from approx.polynomials.remez import remez
from approx.textbook import attention, flash

every_method = each("name", NAMES)
EITHER = TypeError, ValueError


def approximate(Q, K, name="positive"):
    return small(name, *SHAPE).approximate(Q, K, rng=0)


LOW, SPARSE = (parse(spec).approximate(*points(), rng=0) for spec in ("positive(m=2)", BOTH))


# What is wrong with an argument of a kind: the value, or a function of the good one; the error


def with_two(bad):
    def change(x):
        x[1, 1] = x[2, 0] = bad
        return x

    return change


FINITE = ValueError, r"must be finite, got 2 .* index \(1, 1\)"
REAL = TypeError, "(must hold real numbers, got|is a masked array: fill it first)"
ANY_ARRAY = [
    *((with_two(bad), *FINITE) for bad in (np.nan, np.inf, -np.inf)),
    *((lambda x, kind=kind: x.astype(kind), *REAL) for kind in (complex, object, str, "S9")),
    (lambda x: x.astype("M8[s]"), *REAL),
    (lambda x: np.zeros(x.shape, [("a", float)]), *REAL),
    (lambda x: np.ma.masked_array(x, x > 0), *REAL),
    (lambda x: pd.DataFrame(x).astype("Float64"), *REAL),
    (scipy.sparse.csr_array, EITHER, "toarray|LinearOperator|dimension"),
    (scipy.sparse.coo_matrix, EITHER, "toarray|LinearOperator|dimension"),
    *((value, EITHER, "") for value in (None, "abc", {"a": 1}, [[1.0], [1.0, 2.0]], object())),
]
WIDTHS = r"same width d, got|must have d="
NUMBER = EITHER, "must be .*, got"
FAULTS = {
    "Q": [*ANY_ARRAY, (np.ones((2, 5, 3)), ValueError, r"must have (1 or )?2 dim.* \(2, 5, 3\)"),
          (np.ones((5, 4)), ValueError, WIDTHS), (np.ones((3, 5)), ValueError, WIDTHS),
          (np.ones((0, 3)), ValueError, "must not be empty")],
    "K": [*ANY_ARRAY, (np.ones(3), ValueError, r"must have 2 dimensions, got shape \(3,\)"),
          (1.0, ValueError, r"must have 2 dimensions, got shape \(\)"),
          (np.ones((3, 4)), ValueError, WIDTHS), (np.ones((0, 3)), ValueError, "not be empty")],
    "V": [*ANY_ARRAY, *((np.ones(shape), ValueError, r"one row per (key|query)|dimension|, c\)")
                        for shape in ((5,), (5, 2), (4, 2, 2), (0, 2)))],
    "matrix": [*ANY_ARRAY, *((np.ones(shape), ValueError, "must have 2 dimensions, got shape")
                             for shape in ((), (3,), (2, 5, 3)))],
    "number": [(value, *NUMBER) for value in (
        None, 1j, np.complex128(2), [1.0], np.ones((5, 5)), "3", b"3", True, np.True_, math.nan,
        math.inf, -math.inf, -1, 10**400, -(10**5000), decimal.Decimal("nan"), "x" * 10_000, "a\nb",
        pd.NA, object())],
    "integer": [*((value, TypeError, "must be an integer, got") for value in (
                    3.0, True, np.True_, "3", b"3", "x" * 1000, [3], np.ones((5, 5)), 1j, np.nan)),
                *((value, ValueError, r"must be (>=|<=) (\d|an integer of)")
                  for value in (-(10**5000), 10**5000))],
    "rng": [(value, EITHER, "^rng must be ")
            for value in (-1, 1.5, "0", [1], True, np.random, 2**200)],
    "flag": [(value, TypeError, "must be True or False, got")
             for value in ("False", 0, 1.0, None, [True])],
    "mask": [*((value, TypeError, '^mask must be None, "causal" or a Mask, got') for value in (
                 True, 0, 1.0, np.ones((5, 4), bool), [[0, 1]], {"causal"}, b"causal", object())),
             *((value, ValueError, '^mask must be None, "causal" or a Mask, got')
               for value in ("Causal", "full", "x" * 10_000, "a\nb")),
             ("causal", ValueError, r"causal .* so n must be <= l, got 5 and 4"),
             *((Mask(np.zeros(n, int), np.ones(n, int), l), ValueError,
                f"^the mask is for {n} queries and {l} keys, but th")
               for n, l in ((4, 4), (5, 5), (1, 4), (4, 5)))],
    "sink": [(value, EITHER, "sink must be ")
             for value in (math.nan, math.inf, "3", None, 1j, True, [1.0, 2.0])],
    "name": [(value, EITHER, "must be one of|unknown") for value in ("", "previous", 0, ["x"])],
}  # fmt: skip
FAULTS["causal"] = [
    *FAULTS["flag"],
    (True, ValueError, "causal needs as many keys as queries, got n=5, l=4"),
]
for kind, what in (("method", "a (Sampled )?method"), ("head", "a Head( or Heads)?"),
                   ("estimate", "(an )?Approximations?")):  # fmt: skip
    FAULTS[kind] = [(value, TypeError, rf"must be {what}, got")
                    for value in ("positive(m=2)", type(METHOD), None, 3)]  # fmt: skip
NAMES_OF = {"Q": "(Q|q)", "K": "K", "V": "(V|W)", "matrix": "(D|matrix|left|right|omega|logits)"}


def faults(entry, argument, kind):
    """Yield the values that an argument must not have, the error, and what it says."""
    for value, error, rule in FAULTS[kind]:
        if value is None and entry.optional(argument):
            continue
        if value is math.inf and argument == "gap_tolerance":
            continue  # take what rho gives
        made = value(entry.good[argument].copy()) if callable(value) and kind in ARRAYS else value
        prefix = f"{NAMES_OF[kind]}.* " if (error, rule) in (FINITE, REAL) else ""
        yield made, error, prefix + rule
    if kind == "integer":
        yield entry.least.get(argument, 1) - 1, ValueError, r"must be (>=|<=) (\d|an integer of)"
    if kind == "number" and argument not in entry.least:
        yield from ((0, *NUMBER), (-0.0, *NUMBER))


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_bad_input(kind):
    """Every entry point, whatever is wrong: an error that says what must be, in one line."""
    missed = []
    for entry, argument in ARGUMENTS[kind]:
        for value, error, rule in faults(entry, argument, kind):
            _, found = clean(lambda: entry.given(argument, value))  # noqa: B023
            if not (isinstance(found, error) and re.search(rule, str(found))):
                missed.append(f"{entry.name}({argument}={checks.display(value)}): {found!r}")
    assert not missed, "\n".join([f"{len(missed)} faults", *missed])


# Arrays in other clothes


def numbers(result):
    """Yield every array of a result."""
    if isinstance(result, Approximation):
        yield from (result.row_log(), dense(result)[0])
    elif isinstance(result, projections.Fixed):
        yield from (result.omega, result.weights)
    elif dataclasses.is_dataclass(result):  # a decomposition
        yield from (result.left, result.right, result.sparse.toarray())
    elif isinstance(result, tuple | dict):
        for x in result.values() if isinstance(result, dict) else result:
            yield from numbers(x)
    elif result is not None and not isinstance(result, str):
        yield np.asarray(result)


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def mapped(x):
    """Return an array in a file, which is read-only."""
    with tempfile.TemporaryFile() as file:
        np.save(file, x, allow_pickle=False)
        return np.memmap(file, x.dtype, "r", file.tell() - x.nbytes, x.shape)


def round_to(x, dtype):
    return np.round(2 * np.abs(x)).astype(dtype)


# a value, and an array that gives the same bits
AS = {
    **{name: lambda x, layout=layout: (layout(x), x) for name, layout in {
        "Fortran order": np.asfortranarray,
        "strided": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, 1::3],
        "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
        "read-only": read_only,
        "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
        "subclass": lambda x: x.view(np.recarray).view(type("Sub", (np.ndarray,), {})),
        "memory map": mapped,
        "list": np.ndarray.tolist,
        "DataFrame": pd.DataFrame,
        "broadcast": lambda x: np.broadcast_to(x, (2, *x.shape))[1],
    }.items()},
    # int8 would wrap, bool adds to bool
    **{str(dtype): lambda x, dtype=dtype: (round_to(x, dtype), round_to(x, dtype).astype(float))
       for dtype in (np.int8, bool, np.longdouble)},
    "float16": lambda x: (x.astype("f2"), x.astype("f2").astype("f4")),
}  # fmt: skip


def digest(*arrays):
    return hashlib.sha256(b"".join(x.tobytes() for x in arrays)).hexdigest()


WITH_ARRAYS = [pair for kind in ARRAYS for pair in ARGUMENTS[kind]]


@each(("entry", "argument"), WITH_ARRAYS)
def test_the_same_numbers_give_the_same_bits_and_are_left_as_they_were(entry, argument):
    def result(x):
        found, error = clean(lambda: entry.given(argument, x))
        return str(error), digest(*numbers(found))

    known = {}  # of the same plain array
    for clothes, dress in AS.items():
        value, plain = dress(entry.good[argument])
        before, key = digest(np.asarray(value)), (plain.dtype, digest(plain))
        if key not in known:
            known[key] = result(plain)
        assert result(value) == known[key], clothes
        assert digest(np.asarray(value)) == before, clothes


@each(("entry", "argument"), WITH_ARRAYS)
@each("value", [5e-324, -0.0, 1e150, 1e200, 1e308])
def test_extreme_values_are_finite_or_refused(entry, argument, value):
    found, error = clean(lambda: entry.given(argument, np.full_like(entry.good[argument], value)))
    if error is None:  # bias and variance may be a documented inf
        bad = np.isnan if entry.kind(argument) != "V" else lambda x: ~np.isfinite(x)
        assert not any(bad(x).any() for x in numbers(found) if x.dtype.kind == "f")


@each("entry", [entry for entry, _ in ARGUMENTS["K"]])
@each("dtype", [np.float64, np.float32])
def test_logits_without_a_digit(entry, dtype):
    Q, K = points(dtype)
    given = {"Q" if "Q" in entry.good else "q": Q / dtype(np.finfo(dtype).eps), "K": 10 * K}
    refuses(r"\|q\| \|k\| must be < 4.5e\+15|< 8.4e\+06 in float32", entry, **given)


# rho is above 1, share below it; and a budget of 0.5 buys nothing to diagnose
POSITIVE = [(entry, argument) for entry, argument in ARGUMENTS["number"]
            if argument not in ("rho", "share") and entry.use is not diagnose.diagnose]  # fmt: skip
ODD = {
    "positive number": (POSITIVE, [np.float32(0.5), fractions.Fraction(1, 2), np.array(0.5)]),
    "seed below 2^128": (ARGUMENTS["rng"], [2**100, np.int8(3)]),
}


@each(("arguments", "values"), ODD.values(), ids=ODD)
def test_what_is_a_positive_number_or_a_seed(arguments, values):
    for (entry, argument), value in itertools.product(arguments, values):
        entry.given(argument, value)


@each(("entry", "argument"), ARGUMENTS["matrix"])
@each("shape", [(0, 3), (3, 0)])
def test_matrices_without_entries(entry, argument, shape):
    found, error = clean(lambda: entry.given(argument, np.ones(shape)))
    if error is None and entry.use is not projections.Fixed:  # no frequencies of a width
        assert set(np.concatenate([np.ravel(x) for x in numbers(found)])) <= {0}
    elif error is not None:
        assert isinstance(error, ValueError)


# Precision and layout of what every method gets


@each("name", KINDS)
def test_one_side_of_float64_is_enough_for_float64(name):
    for kinds in itertools.product(("f4", "f8"), repeat=2):
        Q, K = (x.astype(kind) for x, kind in zip(points(), kinds))
        assert approximate(Q, K, name).dtype == max(kinds)


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


@every_method
def test_neither_inputs_nor_an_approximation_are_changed(name):
    Q, K = points()
    K = np.concatenate([K, K[:1]])  # n = l, so causal too
    V, W = np.random.default_rng(1).standard_normal((2, 5, 2))
    logits, shift = Q @ K.T, np.zeros(5)
    before = digest(Q, K, V, W, logits, shift)
    for A in under(name, Q, K):
        method = small(name, *A.shape, Q.shape[1])
        first, left = A.to_dense(), A.factors()[0]
        A.scaled_factors(), method.moments(Q, K, mask=A.mask)
        method.covariance(Q, K, row=0, mask=A.mask)
        A.attend(V), A @ V, A.T @ W, A.matvec(V[:, 0]), A.rmatvec(W[:, 0])
        rows = A.row_log(logits=logits)
        values = A.block(slice(None), shift=shift, logits=logits)
        A.block(slice(None), shift=rows, logits=logits)
        values[:] = 7
        left[:] = 7
        np.testing.assert_array_equal(A.to_dense(), first)
    exact.attention(Q, K, V, mask="causal"), exact.kernel(Q, K), exact.log_row_sums(Q, K)
    assert digest(Q, K, V, W, logits, shift) == before


def test_integers_do_not_wrap():
    x = np.full((1, 2), 100, np.int8)
    assert exact.logits(x, x)[0, 0] == 20000
    big = np.array([[60000]], np.int32)
    assert exact.logits(big, big)[0, 0] == 3.6e9
    a, b = np.int8(100), 100
    for template in [*map(parse, METHODS), *(small(name, *SHAPE) for name in NAMES)]:
        assert template.within(a, n=a, l=a, d=a) == template.within(b, n=b, l=b, d=b)


@each("name", SIZED)
@each("integer", [np.int8, np.uint8, np.int64, np.array])
def test_numpy_integers_become_integers(name, integer):
    # a multiple of every step
    method, plain = (METHODS[name](**{SIZED[name]: size}) for size in (integer(24), 24))
    assert type(getattr(method, SIZED[name])) is int
    assert (method, str(method)) == (plain, str(plain))
    # as an int8 it would wrap in the arithmetic of the price
    assert method.price(n=300, l=300, d=3) == plain.price(n=300, l=300, d=3)


# Extreme values


@every_method
def test_logits_of_1e13_are_finite_or_refused(name):
    Q, K = (math.sqrt(1e13) * x for x in points())
    if name == "poisson()":
        refuses(r"need λ = \|q_c k_c\| <= 1e\+10, got", approximate, Q, K, name)
        return
    A = approximate(Q, K, name)
    assert np.isfinite(A.row_log()).all()
    assert not np.isnan(list(metrics.compare(A, Q, K).values())).any()


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


@each("dtype", [np.float32, np.float64])
def test_the_largest_entry_decides_whether_squares_are_representable(dtype):
    edge = math.sqrt(float(np.finfo(dtype).max) / 4 / 3)  # d·max² ≤ max/4
    K = np.full((2, 3), 1 / edge, dtype)
    for row in ([1, 0, 0], [1, 1, 1]):  # |q|² three times the former's
        q = np.array([row], dtype)
        assert checks.queries_keys(q * dtype(0.999 * edge), K)[0].shape == (1, 3)
        refuses("must be representable in float", checks.queries_keys, q * dtype(1.001 * edge), K)
    # |q|² overflows in float32, in which nothing is computed of a mixed pair; |q| |k| = 3
    for pair in itertools.permutations((np.full((2, 3), 1e20, "f4"), np.full((2, 3), 1e-20))):
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
        refuses("must be representable", approximate, Q, K, name)
        return
    A = approximate(Q, K, name)
    assert all(np.isfinite(x).all() for x in (*numbers(A), A.attend(np.ones(len(K)))))


# What only one function has to refuse

WRONG = [
    # its sums would overflow
    *((lambda x=x, f=f: f(x), "V must be at most")
      for x in (np.array([0, 0, 1e155, 0]), np.array([0, 0, -1e155, 0]))
      for f in (LOW.attend, lambda V: exact.attention(*points(), V))),
    (lambda: approximate(*points("f4")).attend([0, 0, -1e20, 0]), "V must be at most"),
    (lambda: exact.kernel([[30.0]], [[30.0]]),
     r"exp.* is not representable in float64: the largest"),
    (lambda: parse("truncated_svd(rank=1)").approximate([[30.0]], [[30.0]]).to_dense(),
     "not representable in float64"),
    *((lambda t=t: dataclasses.replace(X.at_temperature(t), scaling=1e200).Q, "representable")
      for t in (5e-324, 1e-310)),
    (lambda: METHOD.approximate(X.at_temperature(1e-300).Q, X.at_temperature(1e-300).K),
     r"has no digit|representable"),
    # sizes and names
    *((lambda spec=spec: inputs.Head("a head", *points()).approximate(parse(spec)),
       rf"^a head: .*{message}") for spec, message in (
          ("truncated_svd(rank=5)", r"truncated_svd\(rank=5\): rank must be <= 4, got 5"),
          ("logit_svd(rank=4)", r"logit_svd\(rank=4\): rank must be <= 3, got 4"),
          ("projected_top_k(k=2, r=4)", r"projected_top_k\(k=2, r=4\): r must be <= 3, got 4"),
          (f"nystrom(rank={10**24}, block=2)", "rank must be <= 2147483647, got"))),
    (lambda: parse("trigonometric(m=3)"), "m must be a multiple of 2, got 3"),
    *((lambda share=share: METHODS["scatterbrain"](share=share), "share must be")
      for share in (1, 2)),
    (lambda: parse("scatterbrain(sparse=positive(m=2))").approximate(*points()),
     "sparse must be a support"),
    *((lambda x=x: parse(f"scatterbrain(low_rank={x}, sparse=top_k(k=2))").approximate(*points()),
       "purely low-rank") for x in ("top_k(k=2)", "truncated_svd(rank=1, space='attention')")),
    *((lambda f=f: f(D, 6, 1), "rank must be <= 5, got 6")
      for f in (godec.godec, lambda D, r, _: robust_pca.acc_alt_proj(D, r))),
    *((lambda spec=spec: parse(spec), "must be <= ") for spec in (
        "product_sketch(m=2, degree=1025)", "squared_sketch(inner=2, degree=2048)",
        "lsh(hashes=1, rounds=65537)", "smyrf(size=1, rounds=10000000000)")),
    (lambda: rank.estimates(D, steps=4097, rng=0), "steps must be <= 4096, got 4097"),
    (lambda: pitfalls.with_eps("positive(m=2)", *points(), eps=0.1),
     r"must be a positive\(...\), got"),
    (lambda: pitfalls.with_eps(METHOD, *points(), eps=-1.0), "eps must be finite and > 0"),
    *((lambda x=x: memory.set_limit(x), "the memory limit must be an integer, got")
      for x in (0.5, "1", True, [1], np.nan)),
    # functions of the entries, or of the rows, of an array
    *((lambda f=f, x=x: f(x), r"^(weights|scores) must have rows that are not empty")
      for f in (attention.jacobian_norm, attention.simple_normalisation)
      for x in (0.5, [], np.empty((0, 3)), np.empty((3, 0)))),
    *((lambda f=f, x=x: f(x), f"^(logits|x) .*{rule}")
      for f in (attention.softmax, flash.swish)
      for x, rule in ((np.array([["a"]]), "real numbers"), (np.array([[1j]]), "real numbers"),
                      ([[1.0], [1.0, 2.0]], "rows of one length"), (None, "real numbers"),
                      (np.ma.masked_array([[1.0]], True), "masked"),
                      (scipy.sparse.csr_array(np.eye(2)), "toarray"))),
    *((lambda x=x: flash.swish([1.0, x]), "x must be finite, got 1 NaN or inf")
      for x in (np.nan, np.inf)),
    *((lambda x=x: attention.softmax(x), "logits must have a finite maximum along the last axis")
      for x in ([[0.0, np.nan]], [[0.0, np.inf]], [[0, 0], [-np.inf] * 2], np.ones((2, 0)), 1.0)),
    *((lambda s=s: rank.measures(s, (3, 9)), rule)
      for s, rule in (([1.0, 2.0], "s must be descending and >= 0"),
                      ([1.0, -1.0], "s must be descending and >= 0"),
                      ([1.0, np.nan], "s must be finite"), (np.eye(2), "s must have 1 dimensions"),
                      (np.ones(4), r"with n, l >= 4 singular values, got \(3, 9\)"))),
    *((lambda shape=shape: rank.measures([1.0], shape), r"shape must be \(n, l\), got")
      for shape in (3, [3, 9], "ab")),
    # places in an estimate, which never reach a compiled loop
    *((lambda B=B, x=x: B.block(x), r"^rows must")
      for B in (LOW, SPARSE) for x in ([5], [-6], [10**12], 1, [[0]], [True])),
    *((lambda B=B, x=x: B.block(slice(None), x), r"^cols must")
      for B in (LOW, SPARSE) for x in ([4], ["0"], [1.0], None, slice("a"))),
    *((lambda B=B, name=name, x=x: B.block(slice(None), **{name: x}), f"{name} must")
      for B in (LOW, SPARSE) for name, x in (
          *(("shift", x) for x in ([1.0, 2.0], np.nan, "x", 1j)),
          *(("logits", x) for x in (np.ones((2, 2)), 3)),
          *(("out", x) for x in (np.ones((5, 3)), [[0.0] * 4] * 5, np.ones((5, 4), "f4"),
                                 np.ones((5, 4), int))))),
]  # fmt: skip
TOO_LARGE = [
    *((lambda n=n, use=use: use(n), f"lower {lower}") for n in (10**9, 2**63, 10**30)
      for use, lower in (
          (lambda n: inputs.gaussian(n, 3, rng=0), "n or d"),
          (lambda n: inputs.clustered(3, n, rng=0), "n or d"),
          (lambda n: rank.estimates(D, probes=n, rng=0), "probes or steps"),
          (lambda n: METHODS["leverage"](m=n).approximate(*points()), "m, n or l"),
          (lambda n: METHODS["lsh"](hashes=n).approximate(*points()), "hashes, n or l"))),
    (lambda: monomials.layout(64, 10**6), r"lower \w+"),
    (lambda: flash.normalisers(2**50, 1), r"lower \w+"),
    (lambda: remez(10**6, 1.0), r"lower \w+"),
]  # fmt: skip


@each(("use", "rule"), WRONG)
def test_what_only_one_function_refuses(use, rule):
    _, error = clean(use)
    assert isinstance(error, TypeError | ValueError | OverflowError)
    assert re.search(rule, str(error)), error


@each(("use", "rule"), TOO_LARGE)
def test_sizes_that_would_not_fit_are_refused_before_they_are_drawn(use, rule):
    memory.set_limit(2**20)
    with pytest.raises(memory.ResourceLimitError, match=rule):
        use()


def test_what_these_functions_do_not_refuse():
    np.testing.assert_array_equal(attention.softmax([0, -np.inf]), [1, 0])
    assert METHODS["taylor"](degree=0).degree == 0


@each("B", [LOW, SPARSE, parse("taylor(degree=2)").approximate(*points())])
def test_negative_and_boolean_places(B):
    whole = B.block(slice(None))
    for rows, cols in (([-1, 0], [3, -4]), (np.arange(5) > 2, np.array([], int))):
        found = B.block(rows, cols)
        np.testing.assert_allclose(found, whole[rows][:, cols], rtol=1e-14)  # another sum


def test_threads_at_once_give_the_bits_of_one():
    """A compiled loop that is not safe might also abort this process."""
    x = np.random.default_rng(0).standard_normal((2, 64, 8)) / 3
    specs = (
        "positive(m=16)", "taylor(degree=2)", "scatterbrain(positive(m=8), top_k(k=4))",
        "lsh(hashes=2)", "tensor_sketch(m=8)", "poisson(m=8)", "hyperbolic(m=8)", "nystrom(rank=4)",
    )  # fmt: skip

    def work(spec):
        A = parse(spec).approximate(*x, rng=0)
        found = moments.monte_carlo(parse(spec), *x, draws=3, rng=0)
        errors = metrics.compare(A, *x, x[0])
        return A.block(slice(None), shift=A.row_log()).tobytes(), errors, found.mean.tobytes()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, specs)) == list(map(work, specs))
