"""The dense part under a mask: its products in chunks, against the matrix with 0 where unseen."""

import mpmath
import naive
import numpy as np
import pytest
import scipy.sparse
from small import assert_within, drawn, hiding

from approx import Approximation, Mask, parse
from approx.estimate import masked, memory
from approx.estimate.low import Dense, Factors
from approx.estimate.masked import Masked
from approx.estimate.memory import ResourceLimitError
from approx.polynomials import elementwise
from approx.polynomials.elementwise import Elementwise
from approx.random_features import exponentials
from approx.testing import roundings, term_sizes

ALL = slice(None)
N, L = 37, 45


def low_of(family, Q, K):
    """Return a dense part of that family for Q and K, before any mask."""
    specs = {
        "exponentials": "positive(m=4)",
        "pairs of exponentials": "hyperbolic(m=6)",
        "signed": "trigonometric(m=4)",
        "monomials": "taylor(degree=2)",
        "logits": "tensor_power(n=12)",
        "offsets": "centered(taylor(degree=2))",
        "offsets, logits": "centered(tensor_power(n=12))",
    }
    if family in specs:
        return parse(specs[family]).approximate(Q, K, rng=0).low
    rows = np.linspace(-2, 2, len(Q)).astype(Q.dtype)
    if family == "dense":
        return Dense(np.exp(Q @ K.T), rows)
    columns = np.sin(np.arange(len(K))).astype(Q.dtype)
    # a scale of 250 apart, so that keys keep their own
    far = 0 if family == "factors" else np.where(np.arange(len(K)) < 5, -250, 0).astype(Q.dtype)
    return Factors(Q, K, rows, columns + far)


FAMILIES = (
    "exponentials", "pairs of exponentials", "signed", "monomials", "logits", "offsets",
    "offsets, logits", "dense", "factors", "factors of far keys",
)  # fmt: skip


def matrix(low):
    """Return the entries in float64, at the scale 1."""
    if isinstance(low, Factors) and low.column_logs is not None:
        both = low.row_logs.astype(float)[:, None] + low.column_logs
        return np.exp(both) * (low.left.astype(float) @ low.right.T)
    return Approximation(low).to_dense().astype(float)


# In order: all, causal, a window, late intervals with a gap that no query sees, one key each, all
# at once; and out of order.
STAIRS = np.repeat([0, 30], (20, 17))
MASKS = {
    "full": Mask.full(N, L),
    "causal": Mask.causal(N, L),
    "window": Mask.window(N, L, 9),
    "wide window": Mask.window(N, L, 30),
    "stairs": Mask(STAIRS, STAIRS + 4, L),
    "in order": hiding(N, L, 6),
    "late": Mask(np.full(N, 11), np.full(N, 40), L),
    "out of order": hiding(N, L, 3),
}
assert {name for name, mask in MASKS.items() if not mask.is_ordered} == {"out of order"}


def of_sums(A):
    """Return what the entries of a product may be off by, for each entry of V that is 1."""
    size, row_log = term_sizes(A)
    return 3 * roundings(A) * size * np.exp(row_log)[:, None] + np.finfo(A.dtype).tiny


def assert_products(A, D, bound, V, W):
    assert_within(A @ V, D @ V, bound @ np.abs(V))
    assert_within(A.T @ W, D.T @ W, bound.T @ np.abs(W))
    assert_within(A.to_dense(), D, bound)
    assert (A @ V).dtype == A.dtype


@pytest.mark.parametrize(
    ("chunk", "piece", "dtype"),
    [(1, 4096, np.float64), (4, 3, np.float64), (16, 4096, np.float32), (64, 7, np.float32)],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_products_are_those_of_the_matrix_that_is_seen(monkeypatch, family, chunk, piece, dtype):
    monkeypatch.setattr(masked, "CHUNK", chunk)
    monkeypatch.setattr(masked, "PIECE", piece)
    monkeypatch.setattr(exponentials, "TILE", 40)  # 10 rows or fewer
    monkeypatch.setattr(elementwise, "TILE", 6)
    Q, K = drawn(N, L, 3, dtype=dtype)
    rng = np.random.default_rng(1)
    whole = matrix(low_of(family, Q, K))
    for mask in MASKS.values():
        seen = naive.seen(mask, N, L)
        D = np.where(seen, whole, 0.0)
        for width in (1, 7):  # of exponentials, by factors that are kept, and by tiles
            A = Approximation(low_of(family, Q, K), mask=mask)
            bound = of_sums(A)
            V, W = (rng.uniform(-1, 1, (count, width)).astype(dtype) for count in (L, N))
            assert_products(A, D, bound, V, W)
            totals, doubt = D.sum(axis=1), bound.sum(axis=1)
            certain = np.abs(totals) > 4 * doubt
            assert certain.any()
            want = np.where(totals > 0, 1, 0)[:, None] * (D @ V) / totals[:, None]
            error = (
                2 * (bound @ np.abs(V) + np.abs(want) * doubt[:, None]) / np.abs(totals)[:, None]
            )
            assert_within(A.attend(V)[certain], want[certain], error[certain])
        pattern = scipy.sparse.csr_array(np.where(seen & (rng.random(seen.shape) < 0.5), 1.0, 0.0))
        cols = rng.integers(0, L, 5)
        assert_within(A.block(ALL, cols), D[:, cols], bound[:, cols])
        entries = A.low.at(pattern, np.zeros(N, dtype))
        on = pattern.nonzero()
        assert_within(entries, D[on], bound[on])


def test_what_is_not_representable_is_an_error_only_where_it_is_seen():
    left, right = np.array([[1.0], [1e200]]), np.array([[1.0], [1e-3], [1e200]])
    A = Approximation.from_factors(left, right, mask=Mask([0, 0], [2, 2], 3))
    np.testing.assert_array_equal(A.to_dense(), [[1, 1e-3, 0], [1e200, 1e197, 0]])
    far = Factors(left, right, np.zeros(2), np.array([0.0, -1.0, 9000.0]))
    for mask, fits in ((Mask([0, 0], [2, 2], 3), True), (Mask([0, 1], [2, 3], 3), False)):
        A = Approximation(far, mask=mask)
        for cols in (ALL, np.array([2, 0, 1]), slice(None, None, -1), np.array([2])):
            if fits:
                assert np.isfinite(A.block(ALL, cols)).all()
            else:
                with pytest.raises(OverflowError, match="an entry of the estimate is not repr"):
                    A.block(ALL, cols)


def test_what_is_zero_outside_a_narrower_mask_is_not_masked_twice():
    Q, K = drawn(N, L, 3)
    low = parse("flash(size=5)").approximate(Q, K, mask=Mask.causal(N, L)).low
    assert isinstance(low, Masked)
    assert isinstance(low.low, Factors)  # so that products stay linear in n
    wide = masked.under(low, Mask.window(N, L, 9))
    np.testing.assert_array_equal(Approximation(wide).to_dense()[-1, :-9], 0.0)


def test_a_mask_leaves_the_factors_as_they_are():
    Q, K = drawn(N, L, 3)
    A = parse("positive(m=4)").approximate(Q, K, rng=0)
    B = A.seen("causal")
    assert isinstance(B.low, Masked)
    assert B.seen("causal") is B
    assert B.seen() is B
    assert (B.rank, B.parameters, B.nnz) == (A.rank, A.parameters, 0)
    np.testing.assert_array_equal(A.factors()[0], B.factors()[0])
    np.testing.assert_array_equal(B.scaled_factors().right, A.scaled_factors().right)
    full = A.seen(Mask.full(N, L))
    assert full is A
    assert parse("positive(m=4)").approximate(Q, K, mask=Mask.full(N, L), rng=0).low.rank == A.rank


def test_sums_of_chunks_that_do_not_fit_is_refused():
    Q, K = drawn(512, 512, 3)
    A = parse("positive(m=64)").approximate(Q, K, mask=Mask.window(512, 512, 200), rng=0)
    V = np.ones((512, 64))
    A.low.prepare()
    memory.set_limit(10**4)
    with pytest.raises(ResourceLimitError, match="sums of chunks of keys would take"):
        A @ V


# The kernels


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_seen_is_weighed(dtype):
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, (6, 4)).astype(dtype)
    logs = rng.uniform(-3, 3, 4).astype(dtype)
    # keys 10 to 13: all of them, those in the middle, the first, none before, none after, the last
    first, stop = np.array([0, 11, 3, 0, 14, 13]), np.array([20, 13, 11, 10, 20, 99])
    top = rng.uniform(-3, 3, 6).astype(dtype)
    keys = np.arange(10, 14)
    seen = (first[:, None] <= keys) & (keys < stop[:, None])
    weight = np.exp(logs.astype(float) - top.astype(float)[:, None])
    want = np.where(seen, values * weight, 0.0)
    masked._weigh(values, logs, 10, first, stop, top)
    np.testing.assert_allclose(values, want, rtol=20 * np.finfo(dtype).eps)
    # a tiny value at a scale that is not representable alone, and one that is not seen
    edge = 1.5 * np.log(np.finfo(dtype).max)
    values = np.full((1, 2), np.exp(-edge / 2), dtype)
    far = np.array([edge, 9 * edge], dtype)
    masked._weigh(values, far, 0, np.array([0]), np.array([1]), np.zeros(1, dtype))
    np.testing.assert_allclose(values, [[np.exp(edge / 2), 0]], rtol=edge * 4 * np.finfo(dtype).eps)


@pytest.mark.kernel
def test_the_largest_scale_that_is_seen():
    logs = np.array([3.0, -1.0, 7.0, 2.0])
    first, stop = np.array([0, 11, 13, 0, 14, 12]), np.array([20, 12, 99, 10, 20, 13])
    top = np.array([-np.inf, -np.inf, 5.0, -np.inf, 1.0, 8.0])
    masked._largest_seen(logs, 10, first, stop, top)
    np.testing.assert_array_equal(top, [7.0, -1.0, 5.0, -np.inf, 1.0, 8.0])


def log_entries(low):
    """Return the logs of the entries of exponentials, in float64, without any scale."""
    both = np.vstack([low.omega, -low.omega])[: low.rank].astype(float)
    logs = []
    for side in (low.queries, low.keys):
        x = side.x.astype(float)
        rest = np.reshape(side.extra, (-1, 1)) - 0.5 * np.square(x).sum(axis=1, keepdims=True)
        logs.append(x @ both.T + low.level + rest)
    return np.logaddexp.reduce(logs[0][:, None] + logs[1], axis=2), max(
        np.abs(x).max() for x in logs
    )


def with_a_loud_key(dtype, n=12, d=3, at=8, norm=400.0):
    """Return Q, K with logits up to 10⁴, and far beyond for one late key."""
    rng = np.random.default_rng(3)
    Q, K = rng.standard_normal((2, n, d))
    Q *= 100 / np.linalg.norm(Q, axis=1, keepdims=True)
    K *= rng.uniform(1, 100, (n, 1)) / np.linalg.norm(K, axis=1, keepdims=True)
    K[at] *= norm / np.linalg.norm(K[at])
    return Q.astype(dtype), K.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize("spec", ["positive(m=8)", "hyperbolic(m=8)", "shifted_positive(m=8)"])
def test_a_loud_key_has_no_effect_on_queries_that_do_not_see_it(monkeypatch, spec, chunk, dtype):
    monkeypatch.setattr(masked, "CHUNK", chunk)
    Q, K = with_a_loud_key(dtype)
    n = len(Q)
    V = np.random.default_rng(0).uniform(1, 2, (n, 2)).astype(dtype)
    late = np.minimum(np.arange(n), 5)
    for mask in (Mask.causal(n, n), Mask(late, np.arange(n) + 1, n), hiding(n, n, 3)):
        for width in (1, 2):
            A = parse(spec).approximate(Q, K, mask=mask, rng=0)
            logs, largest = log_entries(A.low.low)
            logs = np.where(naive.seen(mask, n, n), logs, -np.inf)
            weights = np.exp(logs - logs.max(axis=1, keepdims=True))
            want = weights @ V / weights.sum(axis=1, keepdims=True)
            # exponents up to `largest` carry a few roundings, and d + 4 operations each
            error = 8 * np.finfo(dtype).eps * largest
            assert error < (1e-9 if dtype == np.float64 else 0.2)
            got, row_log = A.attend(V[:, :width]), A.row_log().astype(float)
            assert np.isfinite(got).all()
            # the scale is of the largest features, and what is far below it is 0
            far = logs - row_log[:, None]
            assert far.max() <= np.log(A.rank) + error
            clear = far.max(axis=1) > 0.8 * np.log(np.finfo(dtype).tiny)
            assert clear.mean() > 0.7
            np.testing.assert_allclose(got[clear], want[clear, :width], rtol=error)
            values = A.block(ALL, shift=A.row_log())
            assert np.isfinite(values).all()
            near = far > 0.8 * np.log(np.finfo(dtype).tiny)
            np.testing.assert_allclose(values[near], np.exp(far[near]), rtol=error)


@pytest.mark.parametrize("by_factors", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_polynomials_beside_a_loud_key(monkeypatch, centred, by_factors):
    """(1 + x/40)⁴⁰ in 50 digits, with e^(row + column) where the inputs were centred."""
    monkeypatch.setattr(masked, "CHUNK", 2)
    monkeypatch.setattr(Elementwise, "_factors_are_cheaper", lambda *_: by_factors)
    Q, K = with_a_loud_key(np.float64, d=1)
    n = len(Q)
    low = parse("tensor_power(n=40)").approximate(Q, K).low
    row, column = np.linspace(-900, 900, n), np.where(np.arange(n) == 8, 5000.0, np.arange(n) - 900)
    if centred:
        low = low.rescaled(row, column)
    V = np.random.default_rng(0).uniform(1, 2, (n, 2))
    for mask in (Mask.causal(n, n), Mask.window(n, n, 3), hiding(n, n, 3)):
        A = Approximation(low, mask=mask)
        got, log = A.scaled_matmat(V)
        seen = naive.seen(mask, n, n)
        values = A.block(ALL, shift=A.row_log())
        with mpmath.workdps(50):
            for i in range(n):
                entries = {
                    j: (1 + mpmath.mpf(float(Q[i, 0])) * float(K[j, 0]) / 40) ** 40
                    * (mpmath.exp(float(row[i]) + mpmath.mpf(float(column[j]))) if centred else 1)
                    for j in np.flatnonzero(seen[i])
                }  # fmt: skip
                for c in range(2):
                    want = sum(e * float(V[j, c]) for j, e in entries.items())
                    # logs of the scale near 6000, each product rounded by a power of 40
                    close = abs(mpmath.mpf(float(got[i, c])) * mpmath.exp(float(log[i])) / want - 1)
                    assert close < 6000 * 40 * np.finfo(float).eps
                top = max(entries.values())
                for j, e in entries.items():
                    if e > top * mpmath.mpf(10) ** -250:
                        found = mpmath.mpf(float(values[i, j])) * mpmath.exp(float(A.row_log()[i]))
                        assert abs(found / e - 1) < 6000 * 40 * np.finfo(float).eps
