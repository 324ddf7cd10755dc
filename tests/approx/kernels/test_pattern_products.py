"""A product of factors at the entries of a pattern, and of a sparse matrix with V."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, strategies as st

from approx.kernels import pattern_products


def problem(seed, n, l, r, dtype, index=np.int32, density=0.5):
    rng = np.random.default_rng(seed)
    left, right = rng.uniform(-1, 1, (n, r)), rng.uniform(-1, 1, (l, r))
    on = rng.uniform(size=(n, l)) < density
    pattern = scipy.sparse.csr_array(on.astype(dtype))
    pattern.indices, pattern.indptr = pattern.indices.astype(index), pattern.indptr.astype(index)
    return left.astype(dtype), right.astype(dtype), pattern, on


def check(left, right, pattern, on):
    got = pattern_products.product(left, right, pattern)
    assert got.dtype == left.dtype
    rows, cols = np.nonzero(on)  # CSR order
    left, right = left.astype(float), right.astype(float)
    want = (left @ right.T)[rows, cols]
    size = (np.abs(left) @ np.abs(right).T)[rows, cols]
    # r products, in any order: at most r roundings of the sum of |terms|
    error = (left.shape[1] + 1) * np.finfo(got.dtype).eps * size
    assert (np.abs(got - want) <= error).all()


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("keys", [1, 4, 7, 8])
def test_rows_that_follow_one_another_with_the_same_keys(dtype, keys):
    left, right, _, on = problem(0, 7, 9, 5, dtype)
    on[:] = False
    on[:3, :keys] = True  # a pair and a row
    on[3:5, 9 - keys :] = True
    on[5, 9 - keys :] = True
    on[5, 9 - keys] = keys == 1  # one key less than the row before
    on[6, :keys] = True
    check(left, right, scipy.sparse.csr_array(on.astype(dtype)), on)


@given(
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(0, 40),
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from([np.int32, np.int64]),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_entries_of_any_dense_product(n, l, r, dtype, index, density, seed):
    check(*problem(seed, n, l, r, dtype, index, density))


@pytest.mark.kernel
def test_empty_rows_order_and_nan():
    left, right, pattern, on = problem(0, 4, 5, 3, np.float64)
    on[[0, 2]] = False
    pattern = scipy.sparse.csr_array(on.astype(float))
    check(left, right, pattern, on)
    none = pattern_products.product(left[:, :0], right[:, :0], pattern)
    np.testing.assert_array_equal(none, np.zeros(pattern.nnz))
    assert pattern_products.product(left, right, scipy.sparse.csr_array((4, 5))).shape == (0,)
    pattern = scipy.sparse.csr_array(([0.0] * 3, [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    left, right = np.array([[1.0], [10.0]]), np.array([[1.0], [2.0], [3.0]])
    np.testing.assert_array_equal(pattern_products.product(left, right, pattern), [3.0, 1.0, 20.0])
    # sums may be reordered, but nothing may assume that there is no NaN
    pattern = scipy.sparse.csr_array(np.ones((1, 3)))
    right = np.ones((3, 9))
    right[1, 4], right[2, 8] = np.nan, np.inf
    got = pattern_products.product(np.ones((1, 9)), right, pattern)
    np.testing.assert_array_equal(got, [9.0, np.nan, np.inf])


@pytest.mark.parametrize("which", [0, 1])
def test_read_only_factors(which):
    left, right, pattern, on = problem(1, 5, 4, 6, np.float64)
    (left, right)[which].flags.writeable = False
    check(left, right, pattern, on)


@pytest.mark.kernel
@pytest.mark.parametrize("dtypes", [(np.float64,) * 2, (np.float32,) * 2, (np.float32, np.float64)])
@pytest.mark.parametrize("columns", [1, pattern_products.WIDE, pattern_products.WIDE + 3])
def test_product_with_values(dtypes, columns):
    rng = np.random.default_rng(2)
    dense = rng.uniform(-1, 1, (6, 9)) * (rng.uniform(size=(6, 9)) < 0.7)
    dense[2] = 0
    dense, V = (x.astype(t) for x, t in zip((dense, rng.uniform(-1, 1, (9, columns))), dtypes))
    s = scipy.sparse.csr_array(dense)
    for values in (V, np.asfortranarray(V)):
        got = pattern_products.matmat(s, values)
        assert got.dtype == np.result_type(*dtypes)
        # nine products, in any order
        error = 10 * np.finfo(got.dtype).eps * (np.abs(dense) @ np.abs(V))
        assert (np.abs(got - dense.astype(float) @ V) <= error).all()


@pytest.mark.kernel
def test_product_with_values_adds_entries_that_are_stored_twice():
    s = scipy.sparse.csr_array(([1.0, 2.0], [1, 1], [0, 2]), shape=(1, 2))
    np.testing.assert_array_equal(
        pattern_products.matmat(s, np.ones((2, 20))), np.full((1, 20), 3.0)
    )
