"""The dense part of an estimate: one matrix, whichever class it is and however it is asked."""

import numpy as np
import pytest
import scipy.sparse

from approx import parse
from approx.estimate import exact
from approx.estimate.distances import squared_distances
from approx.estimate.low import Dense, Factors
from approx.estimate.memory import ResourceLimitError, set_limit
from approx.polynomials.elementwise import Elementwise

ALL = slice(None)
KINDS = ("factors", "dense", "dense and tall", "logits", "logits, wide", "features")


def points(n=7, l=9, d=3):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (n, d)), rng.uniform(-1, 1, (l, d))


def low_of(kind):
    """Return a low part of 7 or 9 rows, and its matrix."""
    Q, K = points(9, 7) if kind == "dense and tall" else points()
    if kind.startswith("logits"):  # (1 + q·k/2)², and with 8 times as many monomials as points
        low = parse(f"tensor_power(n={2 if kind == 'logits' else 6})").approximate(Q, K).low
        assert isinstance(low, Elementwise)
        return low, (1 + Q @ K.T / low.polynomial.degree) ** low.polynomial.degree
    if kind == "features":
        low = parse("positive(m=4)").approximate(Q, K, rng=0).low
        left, right, log = low.prepare().scaled_factors()
        return low, np.exp(log)[:, None] * (left @ right.T)
    log = np.linspace(-2, 2, len(Q))
    if kind == "factors":
        return Factors(Q, K, log), np.exp(log)[:, None] * (Q @ K.T)
    return Dense(Q @ K.T, log), np.exp(log)[:, None] * (Q @ K.T)


def assert_is(low, want):
    """Compare all that a low part can be asked with a matrix; sums of 9 terms at most e^7."""
    close = {"rtol": 1e-12, "atol": 1e-12}
    n, l = want.shape
    V, W = np.random.default_rng(1).uniform(-1, 1, (2, 9, 2))
    V, W = V[:l], W[:n]
    row_log = low.row_log()
    scale = np.exp(row_log)[:, None]
    np.testing.assert_allclose(low.block(ALL, ALL, row_log) * scale, want, **close)
    rows, cols = np.array([3, 1]), slice(1, 6, 2)
    np.testing.assert_allclose(low.row_log(rows), row_log[rows], rtol=1e-14)
    part = low.block(rows, cols, row_log[rows])
    np.testing.assert_allclose(part * scale[rows], want[rows][:, cols], **close)
    pattern = scipy.sparse.csr_array(np.eye(n, l) + np.eye(n, l, 2))
    entries = low.at(pattern, row_log) * np.repeat(scale, np.diff(pattern.indptr))
    np.testing.assert_allclose(entries, want[pattern.nonzero()], **close)
    y, log = low.matmat(V)
    np.testing.assert_allclose(y * np.exp(log)[:, None], want @ V, **close)
    np.testing.assert_allclose(low.rmatmat(W, row_log + 1), (want / scale / np.e).T @ W, **close)
    left, right, log = low.scaled_factors()
    assert left.shape[1] == low.rank
    np.testing.assert_allclose(np.exp(log)[:, None] * (left @ right.T), want, **close)


@pytest.mark.parametrize("entries", [1, 20, exact.STRIPE])
@pytest.mark.parametrize("kind", KINDS)
def test_one_matrix_whatever_is_asked_with_its_scales_merged(kind, entries, monkeypatch):
    monkeypatch.setattr(exact, "STRIPE", entries)
    low, want = low_of(kind)
    assert_is(low, want)
    rng = np.random.default_rng(2)
    for _ in range(2):  # once, and beside the scales that are there
        row, column = rng.uniform(-1, 1, low.shape[0]), rng.uniform(-1, 1, low.shape[1])
        low, want = low.rescaled(row, column), np.exp(row)[:, None] * want * np.exp(column)
        assert_is(low, want)


def test_logits_of_a_polynomial_with_offsets_are_not_those_of_the_estimate():
    low, _ = low_of("logits")
    row_log, logits = low.row_log(), np.full(low.shape, np.nan)
    assert low.elementwise
    moved = low.rescaled(np.zeros(7), np.zeros(9))
    assert not moved.elementwise
    np.testing.assert_array_equal(moved.row_log(logits=logits), row_log)
    np.testing.assert_array_equal(
        moved.block(ALL, ALL, row_log, logits), low.block(ALL, ALL, row_log)
    )


def test_an_identity_that_does_not_fit_is_refused():
    low = Dense(np.ones((400, 400)), np.zeros(400))
    set_limit(2**21)
    with pytest.raises(ResourceLimitError, match="all rows and an identity"):
        low.scaled_factors()


def test_squared_distances_keep_their_digits():
    rng = np.random.default_rng(0)
    X = 1 + 1e-9 * rng.standard_normal((5, 3))
    Y = 1 + 1e-9 * rng.standard_normal((4, 3))
    want = np.square(X[:, None] - Y).sum(axis=2)  # 10⁻¹⁸: what |x|² + |y|² − 2x·y has lost
    np.testing.assert_allclose(squared_distances(X, Y), want, rtol=1e-12)
    X = np.full((300, 2), 1 / 3)
    assert (squared_distances(X, X) == 0).all()
