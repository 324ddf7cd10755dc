"""Bad and odd inputs, through Q, K, V and the sizes of real methods."""

import dataclasses
import hashlib
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import example, given
from hypothesis import strategies as st
from small import NAMES, dense, made, small

from approx import METHODS, checks, exact, parse

SHAPE = (5, 4, 3)  # n, l, d
every_method = pytest.mark.parametrize("name", NAMES)
one_of_each_kind = pytest.mark.parametrize(
    "name", ["positive", "taylor", "truncated_svd", "top_k", "scatterbrain"]
)


def points(dtype=np.float64, seed=0):
    """Return Q (5, 3) and K (4, 3)."""
    n, l, d = SHAPE
    x = np.random.default_rng(seed).uniform(-1, 1, (n + l, d)).astype(dtype)
    return x[:n].copy(), x[n:].copy()


def approximate(Q, K, name="positive"):
    return small(name, *SHAPE).approximate(Q, K, rng=0)


def assert_same_bits(A, B):
    """Compare what two approximations say about each entry, to the last bit."""
    assert A.dtype == B.dtype
    np.testing.assert_array_equal(A.row_log(), B.row_log())
    np.testing.assert_array_equal(dense(A)[0], dense(B)[0])
    V = np.arange(2.0 * A.shape[1]).reshape(-1, 2)
    np.testing.assert_array_equal(A.attend(V), B.attend(V))


# Values


@every_method
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["Q", "K"])
def test_nan_and_inf_are_refused_with_name_count_and_place(name, bad, side):
    arrays = dict(zip("QK", points()))
    arrays[side][1, 2] = arrays[side][3, 0] = bad
    with pytest.raises(ValueError, match=rf"{side} must be finite, got 2 .* index \(1, 2\)"):
        approximate(**arrays, name=name)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("use", ["attend", "matmat", "rmatmat", "exact"])
def test_nan_in_values_is_refused(bad, use):
    Q, K = points()
    A = approximate(Q, K)
    V = np.ones((5 if use == "rmatmat" else 4, 2))
    V[2, 1] = bad
    with pytest.raises(ValueError, match="must be finite, got 1"):
        {
            "attend": A.attend,
            "matmat": A.__matmul__,
            "rmatmat": A.T.__matmul__,
            "exact": lambda V: exact.attention(Q, K, V),
        }[use](V)


@pytest.mark.parametrize(("dtype", "most"), [(np.float64, 1e155), (np.float32, 1e20)])
def test_values_whose_sums_overflow_are_refused(dtype, most):
    Q, K = points(dtype)
    with pytest.raises(ValueError, match="V must be at most"):
        approximate(Q, K).attend(np.full(4, most))
    with pytest.raises(ValueError, match="V must be at most"):
        exact.attention(Q, K, np.full(4, most, dtype))


# Shapes


@pytest.mark.parametrize(
    ("Q", "K", "message"),
    [
        (np.ones(3), np.ones((4, 3)), r"Q must have 2 dimensions, got shape \(3,\)"),
        (np.ones((2, 5, 3)), np.ones((4, 3)), r"Q must have 2 dimensions, got shape \(2, 5, 3\)"),
        (np.ones((5, 3)), 1.0, r"K must have 2 dimensions, got shape \(\)"),
        (np.ones((5, 3)), np.ones((3, 4)), r"same width d, got \(5, 3\) and \(3, 4\)"),
        (np.ones((0, 3)), np.ones((4, 3)), "must not be empty"),
        (np.ones((5, 3)), np.ones((0, 3)), "must not be empty"),
        (np.ones((5, 0)), np.ones((4, 0)), "must not be empty"),
    ],
)
@every_method
def test_shapes_that_do_not_fit(name, Q, K, message):
    with pytest.raises(ValueError, match=message):
        approximate(Q, K, name)


@pytest.mark.parametrize("shape", [(), (5,), (5, 2), (4, 2, 2), (0, 2)])
def test_values_of_a_shape_that_does_not_fit(shape):
    A = approximate(*points())
    with pytest.raises(ValueError, match=r"V must have one row a key, \(4, c\), got shape"):
        A.attend(np.ones(shape))


def test_causal_needs_as_many_keys_as_queries():
    with pytest.raises(ValueError, match="as many keys as queries, got n=5, l=4"):
        approximate(*points()).attend(np.ones(4), causal=True)


# Types


@one_of_each_kind
@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype(complex),
        lambda x: x.astype(object),
        lambda x: x.astype(str),
        lambda x: x.astype("M8[s]"),
        lambda x: np.ma.masked_array(x, x > 0),
        scipy.sparse.csr_array,
        scipy.sparse.coo_matrix,
        lambda x: pd.DataFrame(x).astype(object),
        lambda x: None,
    ],
    ids=["complex", "object", "str", "datetime", "masked", "csr", "coo", "object frame", "None"],
)
@pytest.mark.parametrize("side", ["Q", "K"])
def test_types_that_are_refused(name, convert, side):
    arrays = dict(zip("QK", points()))
    arrays[side] = convert(arrays[side])
    with pytest.raises(TypeError, match=f"{side} (must hold real numbers|is a masked|is sparse)"):
        approximate(**arrays, name=name)


def test_a_ragged_list_is_refused():
    with pytest.raises(ValueError, match="Q must have rows of one length"):
        approximate([[1.0], [1.0, 2.0]], [[1.0]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, bool])
@one_of_each_kind
def test_integers_are_computed_in_float64(name, dtype):
    # int8 wraps at 3·100·100, bool has no exponential of its own
    Q, K = (np.array([[0, 1, 0], [1, 1, 1], [100, 1, 0]]) * s for s in (1, 1))
    Q, K = Q.astype(dtype), K[:, ::-1].astype(dtype)
    method = small(name, 3, 3, 3)
    A = method.approximate(Q, K, rng=0)
    assert A.dtype == np.float64
    assert_same_bits(A, method.approximate(Q.astype(np.float64), K.astype(np.float64), rng=0))


def test_integer_logits_do_not_wrap():
    x = np.full((1, 2), 100, np.int8)
    assert exact.logits(x, x)[0, 0] == 20000
    big = np.array([[60000]], np.int32)
    assert exact.logits(big, big)[0, 0] == 3.6e9


@one_of_each_kind
def test_float16_is_computed_in_float32(name):
    Q, K = points(np.float16)
    A = approximate(Q, K, name)
    assert A.dtype == np.float32
    assert_same_bits(A, approximate(Q.astype(np.float32), K.astype(np.float32), name))


@one_of_each_kind
def test_longdouble_is_computed_in_float64(name):
    Q, K = points(np.longdouble)
    assert_same_bits(approximate(Q, K, name), approximate(Q.astype(float), K.astype(float), name))


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


def strided(x):
    wide = np.full((2 * len(x), 3 * x.shape[1]), 9, x.dtype)
    wide[::2, 1::3] = x
    return wide[::2, 1::3]


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "strided": strided,
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "matrix": lambda x: np.asarray(x).view(np.recarray).view(type("Sub", (np.ndarray,), {})),
    "list": lambda x: x.tolist(),
    "DataFrame": pd.DataFrame,
    "broadcast": lambda x: np.broadcast_to(x, (2, *x.shape))[1],
}


@every_method
@pytest.mark.parametrize(
    ("layout", "dtype"),
    [(x, t) for x in LAYOUTS for t in (np.float64, np.float32) if (x, t) != ("list", np.float32)],
)  # a list holds float64
def test_same_bits_for_any_layout(name, layout, dtype):
    Q, K = points(dtype)
    plain = approximate(Q, K, name)
    assert_same_bits(approximate(*map(LAYOUTS[layout], (Q, K)), name), plain)


@every_method
def test_same_bits_from_a_memory_map(name, tmp_path):
    Q, K = points()
    np.save(tmp_path / "q.npy", Q)
    mapped = np.load(tmp_path / "q.npy", mmap_mode="r", allow_pickle=False)
    assert_same_bits(approximate(mapped, K, name), approximate(Q, K, name))


@every_method
def test_values_of_any_layout(name):
    A = approximate(*points(), name)
    V = np.random.default_rng(0).standard_normal((4, 3))
    want = A.attend(V)
    for layout in LAYOUTS.values():
        np.testing.assert_array_equal(A.attend(layout(V)), want)


def digest(*arrays):
    return hashlib.sha256(b"".join(x.tobytes() for x in arrays)).hexdigest()


@every_method
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inputs_are_never_modified(name, dtype):
    Q, K = points(dtype)
    K = np.concatenate([K, K[:1]])  # n = l, so causal too
    V, W = np.random.default_rng(1).standard_normal((2, 5, 2)).astype(dtype)
    logits, shift = Q @ K.T, np.zeros(5, dtype)
    before = digest(Q, K, V, W, logits, shift)
    A, method = made(name, Q, K)
    for use in (A.to_dense, A.factors, A.scaled_factors, lambda: method.moments(Q, K)):
        use()
    for causal in (False, True):
        A.attend(V, causal=causal)
    A @ V, A.T @ W, A.matvec(V[:, 0]), A.rmatvec(W[:, 0])
    rows = A.row_log(logits=logits)
    A.block(slice(None), shift=shift, logits=logits)
    A.block(slice(None), shift=rows, logits=logits)
    exact.attention(Q, K, V, causal=True), exact.kernel(Q, K), exact.log_row_sums(Q, K)
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
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_subnormal_inputs_and_negative_zero_act_as_zero(name, dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    zeros = np.zeros((5, 3), dtype), np.zeros((4, 3), dtype)
    want = dense(approximate(*zeros, name))[0]
    for value in (tiny, -tiny, -0.0):
        Q, K = (np.full_like(x, value) for x in zeros)
        # e^y with |y| < 1e-38 is 1 to the last bit; sums of at most 8 terms, each ≤ 1
        got = dense(approximate(Q, K, name))[0]
        np.testing.assert_allclose(got, want, rtol=0, atol=64 * np.finfo(dtype).eps)


@every_method
@pytest.mark.parametrize(
    ("dtype", "big"), [(np.float64, 1e160), (np.float64, 1e308), (np.float32, 1e20)]
)
@pytest.mark.parametrize("side", ["Q", "K"])
def test_squares_beyond_the_dtype_are_refused(name, dtype, big, side):
    # the logits, big · 1/big, would be representable; |q|² is not
    arrays = dict(zip("QK", points(dtype)))
    other = "K" if side == "Q" else "Q"
    arrays[side] = np.full_like(arrays[side], big)
    arrays[other] = np.full_like(arrays[other], 1 / big)
    with pytest.raises(ValueError, match="must be representable in float"):
        approximate(**arrays, name=name)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(NAMES))
@example(-1e18, "dense_exponential")  # squares that cancel
@example(1e78, "generalized_exponential")  # a square of a square
@example(1e150, "dense_exponential")
def test_any_finite_float_gives_a_finite_block_or_a_refusal(x, name):
    # logits of size 3 whatever the norms
    Q, K = np.full((5, 3), x), np.full((4, 3), 1 / max(1.0, abs(x)))
    if x * x * 3 > np.finfo(float).max / 4:
        with pytest.raises(ValueError, match="must be representable"):
            approximate(Q, K, name)
        return
    A = approximate(Q, K, name)
    values, row_log = dense(A)
    assert np.isfinite(values).all()
    assert np.isfinite(row_log).all()
    assert np.isfinite(A.attend(np.ones(4))).all()


# Sizes

SIZED = {name: m.size_field for name, m in METHODS.items() if isinstance(m.size_field, str)}


def sized(name, value):
    return METHODS[name](**{SIZED[name]: value})


def test_sized_methods_are_found():
    known = {"positive", "trigonometric", "taylor", "tensor_power", "top_k", "sliding_window"}
    assert known | {"truncated_svd"} <= SIZED.keys()


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("value", [3.0, True, False, np.True_, "3", b"3", [3], np.array([3, 4])])
def test_a_size_that_is_no_integer(name, value):
    with pytest.raises(TypeError, match=f"{SIZED[name]} must be an integer, got"):
        sized(name, value)


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("value", [-1, -(10**30), 0])
def test_a_size_below_the_least(name, value):
    if SIZED[name] == "degree" and value == 0:
        assert sized(name, 0).degree == 0
        return
    with pytest.raises(ValueError, match=rf"{SIZED[name]} must be >= [01], got -?\d+"):
        sized(name, value)


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("integer", [np.int8, np.uint8, np.int64, np.array])
def test_numpy_integers_become_integers(name, integer):
    method, plain = sized(name, integer(24)), sized(name, 24)  # a multiple of every step
    assert type(getattr(method, SIZED[name])) is int
    assert method == plain
    assert str(method) == str(plain)
    # as an int8 it would wrap in the arithmetic of the price
    assert method.price(n=300, l=300, d=3) == plain.price(n=300, l=300, d=3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("truncated_svd(rank=5)", "rank must be <= 4, got 5"),
        ("top_k(k=5)", "k must be <= 4, got 5"),
        ("sliding_window(width=5)", "width must be <= 4, got 5"),
        ("scatterbrain(low_rank=positive(m=2), sparse=top_k(k=5))", "k must be <= 4, got 5"),
    ],
)
def test_a_size_beyond_the_matrix(spec, message):
    method = parse(spec)
    with pytest.raises(ValueError, match=message):
        method.approximate(*points())


def test_waves_come_in_pairs():
    with pytest.raises(ValueError, match="m must be a multiple of 2, got 3"):
        parse("trigonometric(m=3)")


@pytest.mark.parametrize("share", [0, 1, -0.5, 2, math.nan, math.inf, True, "0.5"])
def test_a_share_outside_of_0_1(share):
    with pytest.raises(ValueError, match="share must be"):
        METHODS["scatterbrain"](share=share)


@pytest.mark.parametrize("part", ["low_rank", "sparse"])
@pytest.mark.parametrize("value", ["positive(m=3)", None, METHODS["positive"]])
def test_a_part_that_is_no_method(part, value):
    with pytest.raises(TypeError, match=f"{part} must be a method, got"):
        METHODS["scatterbrain"](**{part: value})


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("rng", [-1, 1.5, "0", [1.5]])
@pytest.mark.parametrize("name", ["positive", "scatterbrain"])
def test_a_seed_that_is_none(name, rng):
    with pytest.raises((TypeError, ValueError)):
        small(name, *SHAPE).approximate(*points(), rng=rng)


# The checks themselves, where no method reaches them


@pytest.mark.parametrize("value", ["3", b"3", True, 0, -1.0, math.nan, math.inf])
def test_positive_refuses(value):
    with pytest.raises(ValueError, match="temperature must be finite and > 0, got"):
        checks.positive("temperature", value)


@pytest.mark.parametrize("value", [None, [1.0], 1j])
def test_positive_refuses_what_is_no_number(value):
    with pytest.raises(TypeError, match="temperature must be a number, got"):
        checks.positive("temperature", value)


def test_one_of_names_the_known():
    with pytest.raises(ValueError, match="space must be one of kernel, attention, got 'both'"):
        parse("truncated_svd(space='both')")
    with pytest.raises(ValueError, match="projection must be one of iid"):
        parse("positive(m=2, projection='hadamard_')")


def test_sparse_matrices_come_with_advice():
    with pytest.raises(TypeError, match="toarray"):
        checks.array("Q", scipy.sparse.eye_array(3))


def test_methods_are_frozen():
    method = parse("positive(m=2)")
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.m = 3
