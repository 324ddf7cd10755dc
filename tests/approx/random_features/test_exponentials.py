"""Features that are built tile by tile, against features that are stored."""

import numpy as np
import pytest
from small import FEATURES, drawn

from approx import parse
from approx.estimate import memory
from approx.estimate.memory import ResourceLimitError
from approx.random_features import exponentials
from approx.random_features.exponentials import maxima_and_half_squares
from approx.random_features.features import ExponentialFeatures

FAMILIES = [name for name, kind in FEATURES.items() if issubclass(kind, ExponentialFeatures)]


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maxima_and_half_squares_are_those_of_numpy(dtype):
    rng = np.random.default_rng(0)
    log, x = (rng.standard_normal((7, width)).astype(dtype) for width in (13, 5))
    log[1], log[2], log[3, 4], log[4, 0], log[5] = -np.inf, -np.abs(log[2]), np.inf, 1e30, 0.0
    top, half = maxima_and_half_squares(log, x)
    np.testing.assert_array_equal(top, log.max(axis=1))
    # 5 products, summed
    np.testing.assert_allclose(half, np.square(x).sum(axis=1) / 2, rtol=5 * np.finfo(dtype).eps)
    assert top.dtype == half.dtype == dtype


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stored_factors_are_exponentials_of_the_logs(dtype):
    Q, K = drawn(4, 3, 2, dtype=dtype)
    omega = np.random.default_rng(1).standard_normal((5, 2)).astype(dtype)
    level = np.linspace(-1, 1, 10).astype(dtype)
    low = exponentials.Exponentials(
        exponentials.Side(Q, 0.0), exponentials.Side(K, 0.0), omega, level
    )
    left, right, row_log = low.scaled_factors()
    both = np.vstack([omega, -omega])
    q, k = (x @ both.T + level - 0.5 * np.square(x).sum(axis=1, keepdims=True) for x in (Q, K))
    top = q.max(axis=1)
    # a dozen roundings of logs of order 5
    close = {"rtol": 100 * np.finfo(dtype).eps}
    np.testing.assert_allclose(left, np.exp(q - top[:, None]), **close)
    np.testing.assert_allclose(right, np.exp(k - k.max()), **close)
    np.testing.assert_allclose(row_log, top + k.max(), **close)
    np.testing.assert_array_equal(left.max(axis=1), 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.7, 30.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_streamed_product_is_that_of_the_stored_factors(monkeypatch, family, scale, dtype):
    monkeypatch.setattr(exponentials, "TILE", 64)  # 8 rows: several tiles, the last one short
    Q, K = drawn(21, 19, 4, scale=scale, dtype=dtype)
    V = np.random.default_rng(3).random((19, 6)).astype(dtype)  # positive: nothing cancels
    low = parse(f"{family}(m=8)").approximate(Q, K, rng=0).low
    y, row_log = low.matmat(V)
    stored, stored_log = low.prepare().matmat(V)
    # 19 + 8 terms, and a scale that is a rounding of a log as large as |q|² away
    largest = max(np.square(x).sum(axis=1).max() for x in (Q, K))
    tolerance = (40 + 8 * largest) * np.finfo(dtype).eps
    np.testing.assert_allclose(y * np.exp(row_log - stored_log)[:, None], stored, rtol=tolerance)
    np.testing.assert_allclose(low.attend(V), low.prepare().attend(V), rtol=2 * tolerance)


def test_features_are_written_where_asked():
    Q, K = drawn(21, 3, 4)
    low = parse("positive(m=8)").approximate(Q, K, rng=0).low
    before = low.nbytes
    out = np.full((21, 8), np.nan)
    found, row_log = low.query_features(out)
    assert found is out
    assert low.nbytes == before
    left, _, logs = low.scaled_factors()
    np.testing.assert_array_equal(out, left)
    key_log = logs - row_log
    np.testing.assert_allclose(key_log, key_log[0], rtol=0, atol=8 * np.finfo(float).eps)
    for wrong in (out[:4], out.astype(np.float32), np.empty((8, 21)).T):
        with pytest.raises(ValueError, match=r"^out must be C-contiguous, \(21, 8\) of float64"):
            low.query_features(wrong)
    with pytest.raises(TypeError, match="out must be an array"):
        low.query_features([[0.0]])


def test_a_wide_product_stores_nothing():
    Q, K = drawn(9, 9, 4)
    for product in ("matmat", "attend"):
        low = parse("positive(m=8)").approximate(Q, K, rng=0).low
        before = low.nbytes
        getattr(low, product)(np.ones((9, 2)))
        assert low.nbytes == before
        getattr(low, product)(np.ones((9, 1)))  # as of Krylov methods, which come again and again
        assert low.nbytes == before + low.prepare().nbytes


def test_factors_that_do_not_fit_are_refused_and_the_product_is_not():
    Q, K = drawn(400, 400, 4)
    estimate = parse("positive(m=4096)").approximate(Q, K, rng=0)
    memory.set_limit(2**24)
    assert np.isfinite(estimate.attend(np.ones((400, 4)))).all()
    with pytest.raises(ResourceLimitError, match="factors of 4096 columns"):
        estimate.scaled_factors()
