"""Guarded rows: never farther than they say, whatever an adversary asks."""

import dataclasses

import naive
import numpy as np
import pytest
from small import hiding

from analysis import inputs
from analysis.bounds import certificates
from analysis.experiments.frontier import guarded_reads
from approx import Mask, parse
from approx.estimate import exact
from approx.supports.key_boxes import PageBoxes


def tv_of(estimate, Q, K):
    rows = naive.attention_errors(estimate, Q, K, np.ones((len(K), 1)))
    return np.array([float(tv) for tv, _ in rows])


def some(rng):
    """Return Q, K, a mask and a method: logits up to 10⁴, ties, equal keys, both precisions."""
    n, l, d = (int(rng.integers(1, most)) for most in (7, 24, 6))
    Q, K = (10 ** rng.uniform(-2, 2) * rng.standard_normal((rows, d)) for rows in (n, l))
    kind = rng.integers(5)
    if kind == 0:
        K[rng.integers(0, l, l)] = K[0]
    elif kind == 1:
        Q, K = np.rint(Q), np.rint(K)
    elif kind == 2:
        K += 10 * rng.standard_normal(d)
    dtype = (np.float64, np.float32)[rng.integers(2)]
    Q, K = Q.astype(dtype), K.astype(dtype)
    if (most := np.abs(Q.astype(float) @ K.T.astype(float)).max()) > 1e4:
        Q *= dtype(1e4 / most)
    mask = Mask.full(n, l) if rng.integers(3) == 0 else hiding(n, l, rng.integers(2**32))
    support = rng.choice(["top_k(k=1)", "sink_window(k=2)", "random(k=1)", "pages(k=2, size=2)"])
    if l < 2:
        support = "top_k(k=1)"
    tv, size, bits = rng.choice([0.01, 0.1, 0.5, 0.9]), rng.integers(1, 9), rng.integers(0, 9)
    coded = rng.integers(0, 4) if bits else 0
    spec = f"guarded({support}, tv={tv}, size={size}, bits={bits}, coded={coded})"
    return Q, K, mask, parse(spec)


def test_no_row_is_farther_than_its_guard_says():
    rng = np.random.default_rng(0)
    for seed in range(120):
        Q, K, mask, method = some(rng)
        if not mask.is_full and method.refusal:
            continue
        estimate = method.approximate(Q, K, mask=mask, rng=seed)
        tv = tv_of(estimate, Q, K)
        rows = method.rows(Q, K, mask, seed)
        loose = tv_of(method.method.approximate(Q, K, mask=mask, rng=seed), Q, K)
        alone = dataclasses.replace(method, coded=0).rows(Q, K, mask, seed)
        assert (loose <= alone.bound).all(), method
        assert (tv[~rows.exact] <= method.tv).all(), method
        # exact rows have the rounding of their logits only
        off = np.abs(Q).astype(float) @ np.abs(K).T.astype(float)
        near = (Q.shape[1] + 70) * np.finfo(Q.dtype).eps * (1 + off.max(axis=1))
        assert (tv[rows.exact] <= np.expm1(np.minimum(2 * near[rows.exact], 700))).all(), method


def adversary(rng, method, mask, Q, K, steps):
    """Return the largest tv/bound that a search by random steps and by gradient signs finds."""
    q, k, worst = Q.copy(), K.copy(), 0.0
    for step in range(steps):
        new = q + 10 ** rng.uniform(-3, 0) * rng.standard_normal(q.shape)
        keys = k + 10 ** rng.uniform(-3, 0) * rng.standard_normal(k.shape)
        if step % 4 == 0:  # all unread keys at the far corner of their box
            keys = np.where(rng.random(k.shape) < 0.5, k, k.max(axis=0) * np.sign(new[-1]))
        bound = method.rows(new, keys, mask, 0).bound
        P = exact.softmax(new, keys, mask)
        on = method.method.approximate(new, keys, mask=mask, rng=0)
        apart = np.abs(on.attend(np.eye(len(keys))) - P).sum(axis=1) / 2
        ratio = float((apart / np.maximum(bound, 1e-300)).max())
        if ratio > worst:
            q, k, worst = new, keys, ratio
    return worst


@pytest.mark.parametrize("bits", [0, 2, 6])
def test_an_adversary_finds_no_violation(bits):
    rng = np.random.default_rng(bits)
    Q, K = rng.standard_normal((2, 12, 2))
    method = parse(f"guarded(sink_window(k=2), tv=0.2, size=3, bits={bits})")
    worst = adversary(rng, method, Mask.causal(12, 12), Q, K, 200)
    assert worst <= 1 + 1e-12  # both sides round
    assert worst > 0.99  # the bound is attained where one key is a page


def test_bits_go_where_queries_are_and_bounds_stay_true():
    x = next(iter(inputs.sample("smollm2").heads())).first(256)
    K = np.asarray(x.K, np.float64)
    weights = np.sqrt(np.square(x.Q).mean(axis=0))
    plain = PageBoxes.from_keys(K, size=64, bits=3)
    shared = PageBoxes.from_keys(K, size=64, bits=3, weights=weights)
    assert (shared.depths.sum(axis=1) == 3 * x.d).all()
    Q = np.asarray(x.Q, np.float64)
    widths = []
    for known in (plain, shared):
        lower, upper = known.bounds(Q)
        assert (lower <= Q @ K.T).all()
        assert (upper >= Q @ K.T).all()
        widths.append(float(np.mean(upper - lower)))
    assert widths[1] < 0.9 * widths[0]
    estimate = x.approximate(parse("sink_window(k=32)"))
    bounds = [
        certificates.row_bounds(estimate, x.Q, x.K, known=known).attention_tv.mean()
        for known in (plain, shared)
    ]
    assert bounds[1] < bounds[0]


def test_reads_are_counted_by_hand():
    x = inputs.gaussian(8, 2, rng=1)
    method = parse("guarded(sink_window(k=2), tv=0.2, size=2, bits=4)")
    causal = x.__class__("x", x.Q, x.K, x.V, mask="causal")
    found = guarded_reads(causal, method)
    d, c = 2, causal.shape.c
    for i, row in enumerate(found.itertuples()):
        seen, own = i + 1, i // 2 * 2
        kept = min(2, seen)
        at_hand = {0, i} if i else {0}
        more = len(set(range(own, seen)) - at_hand)
        pages = sum(bool({2 * p, 2 * p + 1} - at_hand) for p in range(i // 2))
        reads = kept * (d + c) + more * d + pages * (2 * d + (4 * d + 2 * 4 * d) / 16)
        if row.exact:
            reads += (seen - kept) * (d + c) - more * d
        assert row.reads == pytest.approx(reads)
        assert row.share == pytest.approx(reads / (seen * (d + c)))
    price = method.price(n=8, l=8, d=2, c=c, mask="causal")
    assert found.reads.max() <= price.reads
