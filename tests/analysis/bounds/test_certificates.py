"""Certificates: never below the truth in mpmath, blind to what is unread, and never vacuous."""

import mpmath
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from naive import attention_errors
from refusals import refuses
from small import NAMES, hiding, made

from analysis import inputs
from analysis.bounds import residuals
from analysis.bounds.certificates import row_bounds
from approx import Approximation, Mask, parse
from approx.estimate import exact
from approx.estimate.corrections import Addition, Support
from approx.estimate.low import Factors
from approx.supports.key_boxes import PageBoxes
from approx.supports.patterns import exact_on


def points(rng):
    """Return Q, K, V and a mask: logits up to 10⁴, ties, equal keys, zeros and tiny numbers."""
    n, l, d, c = (int(rng.integers(1, most)) for most in (6, 20, 6, 4))
    size = 10 ** rng.uniform(-3, 2)
    Q, K = (size * rng.standard_normal((rows, d)) for rows in (n, l))
    kind = rng.integers(8)
    if kind == 0:
        K[rng.integers(0, l, l)] = K[0]
    elif kind == 1:
        Q, K = np.rint(Q), np.rint(K)
    elif kind == 2:
        K[:] = K[0]
    elif kind == 3:
        Q[rng.integers(n)] = 0
        K[rng.integers(l)] = 0
    elif kind == 4:
        K += 10 * size * rng.standard_normal(d)
    elif kind == 5:
        Q, K = Q * 1e-160, K * 1e-160
    V = 10.0 ** rng.choice([-18, -2, 0, 2, 18]) * rng.standard_normal((l, c))
    dtype = (np.float64, np.float32)[rng.integers(2)]
    Q, K, V = (np.ascontiguousarray(x, dtype) for x in (Q, K, V))
    most = np.abs(Q.astype(float) @ K.T.astype(float)).max()
    if most > 1e4:
        Q *= dtype(1e4 / most)
    return Q, K, V, Mask.full(n, l) if rng.integers(3) == 0 else hiding(n, l, rng.integers(2**32))


def some_support(rng, Q, K, mask):
    """Return exact entries on any keys of any rows, some with weights; some rows are empty."""
    on = rng.uniform(size=mask.shape) < rng.uniform(0, 1.2, (mask.n, 1))
    on[rng.uniform(size=mask.n) < 0.1] = False
    pattern = scipy.sparse.csr_array(on)
    support = exact_on((pattern.indptr, pattern.indices), Q, K, mask)
    if rng.integers(2):
        return Support(support.matrix, np.exp(rng.uniform(0, 3, support.matrix.nnz)))
    return support


def some_estimate(rng, Q, K, mask):
    """Return a support, alone or on factors of any sign, or factors with an addition."""
    support, dtype, top = some_support(rng, Q, K, mask), Q.dtype, (Q @ K.T).max(axis=1)
    none, s = Factors.empty(*mask.shape, dtype), support.matrix
    logs = s.data - np.repeat(top + 1, np.diff(s.indptr))
    shares = Support(scipy.sparse.csr_array((logs, s.indices, s.indptr), s.shape))
    if rng.integers(2):
        if rng.integers(3) == 0:
            return Approximation(none, shares, space="attention", mask=mask)
        return Approximation(none, support, mask=mask)
    left, right = (rng.uniform(-0.3, 1, (rows, 2)).astype(dtype) for rows in mask.shape)
    if rng.integers(2):
        left /= mask.l
        part = Factors(left, right, np.zeros_like(top))
        return Approximation(part, shares, space="attention", mask=mask)
    part = Factors(left, right, top)
    if rng.integers(2):
        return Approximation(part, support, mask=mask)
    addition = Addition(scipy.sparse.csr_array(rng.uniform(-1, 1, mask.shape).astype(dtype)))
    return Approximation(part, addition, mask=mask)


def certified(rng, estimate, Q, K, V):
    """Return the bounds of an estimate, from boxes of any size and codes, or from norms."""
    known = PageBoxes.from_keys(K, V, size=int(rng.integers(1, 9)), bits=int(rng.integers(0, 5)))
    if estimate.rank and rng.integers(3) == 0:
        dropped = residuals.off_support(estimate, Q, K)
        return row_bounds(estimate, Q, K, V, known=known, dropped=dropped)
    return row_bounds(estimate, Q, K, V, known=known, entries=True)


def assert_above_truth(found, estimate, Q, K, V, least=0):
    """Hold both bounds of every row against errors in 50 digits, themselves at least so large."""
    for bound, (tv, output) in zip(
        found.itertuples(), attention_errors(estimate, Q, K, V), strict=True
    ):
        assert bound.attention_tv >= tv >= least
        assert bound.output_absolute_error >= output >= least


def test_no_bound_is_below_the_truth():
    kinds = set()
    for case in range(50):
        rng = np.random.default_rng((1, case))
        if rng.integers(4):
            Q, K, V, mask = points(rng)
            estimate = some_estimate(rng, Q, K, mask)
        else:
            n, l = (int(x) for x in rng.integers(4, 9, 2))
            Q, K, V = (rng.uniform(0.1, 3) * rng.standard_normal((x, 3)) for x in (n, l, l))
            name = NAMES[rng.integers(len(NAMES))]
            mask = hiding(n, l, case) if rng.integers(2) else None
            try:
                estimate, _ = made(name, Q, K, case, mask)
            except ValueError:  # a mask has no meaning for it
                continue
        found = certified(rng, estimate, Q, K, V)
        assert_above_truth(found, estimate, Q, K, V)
        kinds |= {*found.kind}
    assert kinds == {"support", "entries", "dropped"}


@pytest.mark.parametrize("spec", ["exact()", "top_k(k=2)"])
@pytest.mark.parametrize("bits", [0, 3])
def test_rounding_of_large_logits_is_counted(spec, bits):
    # Logits of 10¹² that differ by 1: what is stored of them is off by 10⁻⁴ and more.
    rng = np.random.default_rng(5)
    Q, u = 1e6 * rng.standard_normal((8, 64)), rng.standard_normal(64)
    K = 1e5 * (u + 1e-13 * rng.standard_normal((6, 64)))
    V = rng.standard_normal((6, 2))
    estimate = parse(spec).approximate(Q, K)
    known = PageBoxes.from_keys(K, V, size=1, bits=bits)
    lower, upper = known.bounds(Q)
    with mpmath.workdps(50):
        x = [[mpmath.fdot(q, k) for k in K.tolist()] for q in Q.tolist()]
    assert (lower <= x).all()
    assert (upper >= x).all()
    found = row_bounds(estimate, Q, K, V, known=known)
    assert_above_truth(found, estimate, Q, K, V, least=1e-6)


def test_shares_are_unknown_where_all_of_a_row_underflows():
    # The page's largest logit, 2000, is of a key that is not seen: of the others e⁻²⁰⁰⁰ is left.
    Q, K, mask = np.ones((1, 1)), np.array([[2000.0], [0.0], [-10.0]]), Mask([1], [3], 3)
    read = scipy.sparse.csr_array(([-1000.0], [1], [0, 1]), shape=(1, 3))
    low = Factors(np.ones((1, 1)), np.array([[0.0], [0.0], [0.25]]), np.zeros(1))
    estimate = Approximation(low, Support(read), space="attention", mask=mask)
    known = PageBoxes.from_keys(K, size=3)
    found = row_bounds(estimate, Q, K, known=known, entries=True)
    assert found.attention_tv[0] >= (1 + 0.25) / 2


def lifted(case):
    """Return Q, K, V and a mask: a direction of its own lifts rows by 0 to 2000 logits."""
    rng = np.random.default_rng((7, case))
    n, l, d = (int(x) for x in rng.integers(3, (7, 10, 4)))
    Q, K, V = (rng.standard_normal((rows, d)) for rows in (n, l, l))
    spread = rng.uniform(0, 2000)
    lift = spread * rng.uniform(size=n) * rng.integers(0, 2, n)
    near = 1 - rng.uniform(0, 3, l) / spread * rng.integers(2)
    mask = hiding(n, l, case) if rng.integers(2) else None
    return np.column_stack([Q, lift]), np.column_stack([K, near]), V, mask


LOW_RANK = (
    "truncated_svd(rank={r})", "nystrom(rank={r})", "godec(rank={r}, k=1)", "robust_pca()",
    "truncated_svd(rank={r}, space='attention')", "hierarchical(rank={r}, leaf=2)",
)  # fmt: skip


def test_rows_far_apart_have_bounds():
    # row 1 has logits of 0 beside 400: exact weights ½ each, of the estimate 5/6 and 1/6
    Q, K, V = np.array([[400.0], [0.0]]), [[1.0], [1 - np.log(5) / 400]], np.array([[1.0], [-1.0]])
    cases = [(Q, np.array(K), V, None, LOW_RANK[0].format(r=1))]
    for case in range(36):
        cases.append((*lifted(case), LOW_RANK[case % 6].format(r=1 + case % 3)))
    finite = 0
    for Q, K, V, mask, spec in cases:
        estimate = parse(spec).approximate(Q, K, mask=mask)
        dropped = residuals.off_support(estimate, Q, K)
        found = row_bounds(estimate, Q, K, V, dropped=dropped)
        assert_above_truth(found, estimate, Q, K, V)
        finite += np.isfinite(found.attention_tv).sum()
    assert finite > 80


def test_unread_keys_are_not_looked_at():
    Q, K, V, estimate = head("top_k(k=5)")
    read = np.unique(estimate.correction.matrix.indices[:5])  # of the first row
    known = PageBoxes.from_keys(K, V, size=4)
    one = Approximation(
        Factors.empty(1, len(K), float), estimate.correction.restricted(slice(0, 1), slice(None))
    )
    found = row_bounds(one, Q[:1], K, V, known=known)
    blind = [np.full_like(x, 1e3) for x in (K, V)]
    for x, y in zip(blind, (K, V)):
        x[read] = y[read]
    pd.testing.assert_frame_equal(row_bounds(one, Q[:1], *blind, known=known), found)


def head(spec, mask=None, l=24):
    rng = np.random.default_rng(3)
    Q, K, V = (rng.standard_normal((l, c)) for c in (3, 3, 2))
    return Q, K, V, parse(spec).approximate(Q, K, mask=mask, rng=0)


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("mask", [None, "causal", "intervals"])
def test_bounds_of_a_support_are_those_of_a_loop(size, mask):
    # U/(M + U) and L/(M + L) of the plain formula: rounding is 10⁻¹¹ of them
    mask = hiding(24, 24, 7) if mask == "intervals" else mask
    Q, K, V, estimate = head("top_k(k=4)", mask)
    s, seen = estimate.correction.matrix, estimate.mask.visible()
    found = row_bounds(estimate, Q, K, V, known=PageBoxes.from_keys(K, V, size=size))
    for i, q in enumerate(Q):
        read = set(s.indices[s.indptr[i] : s.indptr[i + 1]].tolist())
        M, U, pages = sum(np.exp(q @ K[j]) for j in read), 0.0, 0
        for start in range(0, 24, size):
            keys = range(start, min(start + size, 24))
            left = [j for j in keys if seen[i, j] and j not in read]
            corner = [max(q[c] * K[j, c] for j in keys) for c in range(3)]
            U += len(left) * np.exp(sum(corner))
            pages += bool(left)
        assert found.attention_tv[i] == pytest.approx(U / (M + U), rel=1e-10, abs=1e-10)
        assert found["keys"][i] == len(read)
        assert found.pages[i] == pages
        assert found.numbers[i] == pages * (2 * 3 + 3)


def test_keys_of_their_own_boxes_leave_only_rounding():
    Q, K, V, estimate = head("sink_window(k=4)", "causal")
    known = PageBoxes.from_keys(K, V, size=1)
    found = row_bounds(estimate, Q, K, V, known=known)
    P = exact.softmax(Q, K, estimate.mask)
    rows = estimate.to_dense()
    off = rows / rows.sum(axis=1, keepdims=True) - P
    np.testing.assert_allclose(found.attention_tv, np.abs(off).sum(axis=1) / 2, atol=1e-10)
    # one direction only, as if all unread values lay on one side of the output
    unread = np.where(rows == 0, P, 0)
    apart = np.linalg.norm(V[None] - (estimate.attend(V))[:, None], axis=2)
    np.testing.assert_allclose(found.output_absolute_error, (unread * apart).sum(axis=1), atol=1e-6)
    bits = row_bounds(estimate, Q, K, V, known=PageBoxes.from_keys(K, V, size=4, bits=8))
    assert (bits.attention_tv >= found.attention_tv - 1e-10).all()
    assert (bits.attention_tv <= 1.02 * found.attention_tv + 1e-10).all()


@pytest.mark.parametrize("bits", [0, 1, 5, 8])
def test_boxes_hold_every_key_and_value(bits):
    rng = np.random.default_rng(bits)
    Q, K, V = (rng.standard_normal((x, 5)) * 10 ** rng.uniform(-3, 3) for x in (9, 23, 23))
    known = PageBoxes.from_keys(K, V, size=6, bits=bits)
    lower, upper = known.bounds(Q)
    cell = np.arange(23) // (1 if bits else 6)
    x = Q @ K.T
    assert (lower[:, cell] <= x).all()
    assert (upper[:, cell] >= x).all()
    if bits:  # a part of each side, twice half of it
        side = (known.hi - known.lo)[np.arange(23) // 6] / 2**bits
        np.testing.assert_allclose(upper - lower, np.abs(Q) @ side.T, rtol=1e-6)
    apart = np.linalg.norm(Q[:, None] - V, axis=2)
    assert (known.from_centres(Q, np.zeros(9))[:, np.arange(23) // 6] >= apart).all()
    line = PageBoxes.from_keys(np.zeros((2, 1)), [[1.0], [5.0]], size=2)
    assert line.from_centres(np.zeros((1, 1)), np.zeros(1)) == pytest.approx(5, rel=1e-7)


@pytest.mark.parametrize("space", ["kernel", "attention"])
def test_norms_of_what_was_dropped_are_those_of_the_singular_values(space):
    Q, K, V, estimate = head(f"truncated_svd(rank=5, space='{space}')")
    D = exact.softmax(Q, K) if space == "attention" else np.exp(Q @ K.T)
    u, s, _ = np.linalg.svd(D)
    norms = np.sqrt(np.square(u[:, 5:] * s[5:]).sum(axis=1))
    rows = estimate.to_dense()
    sums, half = rows.sum(axis=1), np.sqrt(24) * norms / 2
    bound = (half + np.abs(D.sum(axis=1) - sums) / 2) / sums
    found = residuals.off_support(estimate, Q, K)
    np.testing.assert_allclose(found.tv, bound, rtol=1e-8)
    np.testing.assert_allclose(found.difference, bound if space == "kernel" else half, rtol=1e-8)
    table = row_bounds(estimate, Q, K, V, dropped=found)
    assert (table.kind == "dropped").all()
    assert (table.attention_tv == found.tv).all()


def test_blocks_have_norms_of_their_own_and_features_no_bound():
    Q, K, _, estimate = head("hierarchical(rank=1, leaf=2, space='attention')", "causal", l=8)
    P, rows = exact.softmax(Q, K, estimate.mask), estimate.to_dense()
    found = residuals.off_support(estimate, Q, K)
    # query 7 takes keys 0…3 and 4, 5, and is exact on 6 and 7
    off = (P - rows)[7]
    half = (2 * np.linalg.norm(off[:4]) + np.sqrt(2) * np.linalg.norm(off[4:6])) / 2
    bound = (half + abs(1 - rows[7].sum()) / 2) / rows[7].sum()
    assert found.tv[7] == pytest.approx(bound, rel=1e-9)
    assert found.blocks[7] == 4
    Q, K, V, estimate = head("positive(m=4)")
    found = row_bounds(estimate, Q, K, V)
    assert found[["attention_tv", "output_absolute_error"]].isna().all().all()
    assert (found.kind == "none").all()
    assert found.reason.str.contains("entries=True").all()


def test_certificates_of_a_real_head_are_tight_with_codes():
    x = next(iter(inputs.sample("smollm2").heads())).first(128)
    estimate = x.approximate(parse("top_k(k=16)"))
    true = x.compare(estimate)["attention_tv"]
    known = (PageBoxes.from_keys(x.K, bits=bits) for bits in (0, 8))
    coarse, fine = (row_bounds(estimate, x.Q, x.K, known=k).attention_tv.mean() for k in known)
    assert true < fine < 1.2 * true
    assert coarse > 0.5  # boxes of pages say next to nothing


def test_what_does_not_fit_is_named():
    Q, K, V, estimate = head("top_k(k=4)")
    refuses("the estimate has shape", row_bounds, estimate, Q, K[:9])
    known, off = PageBoxes.from_keys, residuals.OffSupport(*np.zeros((3, 9)))
    refuses("known must hold boxes", row_bounds, estimate, Q, K, known=known(K[:9]))
    refuses("no boxes of these values", row_bounds, estimate, Q, K, V, known=known(K))
    refuses("dropped is of 9 rows", row_bounds, estimate, Q, K, dropped=off)
    refuses("bits must be", PageBoxes.from_keys, K, bits=9)
    refuses("the estimate has shape", residuals.off_support, estimate, Q, K[:9])
